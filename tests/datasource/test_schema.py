"""What a topic is to Spark: types from IDL files and from columns."""

import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
    YearMonthIntervalType,
)

from spark_rtps.columns.topic_plan import BINARY_SCHEMA, METADATA_SCHEMA, topic_type
from spark_rtps.columns.type_sources import TopicType
from spark_rtps.datasource.schema import plan_sink, plan_source, source_schema, to_arrow, to_spark
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.datasource.stream_reader import RtpsStreamReader
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.options.settings import Settings
from spark_rtps.transport.errors import OptionError, TypeDefinitionError, UsageError
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl

IDL = """
module robots {
  struct Pose { @key long id; double x; double y; string<8> name; };
  struct Stamp { long long at; };
};
"""

POSE = StructType().add("id", "integer").add("x", "double").add("y", "double").add("name", "string")


@pytest.fixture
def idl(tmp_path: Path) -> str:
    path = tmp_path / "robots.idl"
    path.write_text(IDL)
    return str(path)


def schema_of(given: Settings) -> StructType:
    """As Spark asks for it."""
    return source_schema(given, topic_type(given))


def kind_of(name: str) -> DataType:
    return StructType().add("a", name)["a"].dataType


def settings(role: AppliesTo = AppliesTo.READ, **options: object) -> Settings:
    return parse_options({"topic": "T", **{k.replace("__", "."): str(v) for k, v in options.items()}}, role)


class TestExtensibility:
    @pytest.mark.parametrize(
        ("given", "found"), [({}, "appendable"), ({"type__extensibility": "final"}, "final")]
    )
    def test_extensibility_of_structs_without_an_annotation(
        self, idl: str, given: dict[str, str], found: str
    ) -> None:
        plan = plan_source(settings(type__file=idl, type="Pose", **given), POSE)
        assert plan.struct is not None
        assert plan.struct.extensibility.value == found


class TestSourceSchema:
    def test_from_idl(self, idl: str) -> None:
        assert schema_of(settings(type__file=idl, type="robots::Pose")) == POSE
        assert schema_of(settings(type__file=idl, type="Pose")) == POSE

    def test_metadata(self, idl: str) -> None:
        schema = schema_of(settings(type__file=idl, type="Pose", metadata="true"))
        assert schema["_rtps"].dataType == to_spark(METADATA_SCHEMA)
        assert schema.names[-1] == "_rtps"

    def test_binary(self) -> None:
        schema = schema_of(settings(payload="binary", type="x::Y"))
        assert to_arrow(schema).equals(BINARY_SCHEMA)
        assert schema["source_timestamp"].dataType == TimestampType()

    def test_arrow_needs_columns(self) -> None:
        with pytest.raises(OptionError, match=r"give them with \.schema"):
            schema_of(settings(payload="arrow"))

    def test_some_members(self, idl: str) -> None:
        assert schema_of(settings(type__file=idl, type="Pose", columns="name, x")).names == ["x", "name"]
        with pytest.raises(
            OptionError, match="option 'columns' = 'z': there is no member z; there are id, x, y, name"
        ):
            schema_of(settings(type__file=idl, type="Pose", columns="z"))

    @pytest.mark.parametrize(
        ("expression", "output"),
        [
            ("z > 1", "z"),
            ("x > > 1", ">"),
            ("x > %0", "%0"),
            ("x LIKE 'a'", "LIKE"),
        ],
    )
    def test_a_wrong_filter_is_an_error_at_once(self, idl: str, expression: str, output: str) -> None:
        with pytest.raises(OptionError, match="option 'filter'") as caught:
            RtpsDataSource({"topic": "T", "type.file": idl, "type": "Pose", "filter": expression}).schema()
        assert output in str(caught.value)

    @pytest.mark.parametrize("payload", ["binary", "cdr"])
    def test_the_inferred_schema_can_be_read(self, idl: str, payload: str) -> None:
        more = {"mode": "permissive", "metadata": "true", "filter": "x > 1"} if payload == "cdr" else {}
        options = {"topic": "T", "type.file": idl, "type": "Pose", "payload": payload, **more}
        source = RtpsDataSource(options)
        assert isinstance(source.streamReader(source.schema()), RtpsStreamReader)

    def test_fields_of_members(self, tmp_path: Path) -> None:
        path = tmp_path / "nested.idl"
        path.write_text("struct P { long x; long y; }; struct Q { P p; sequence<P> more; long z; };")
        given = settings(type__file=path, type="Q", columns="p.y,more.x")
        assert schema_of(given).simpleString() == "struct<p:struct<y:int>,more:array<struct<x:int>>>"
        with pytest.raises(OptionError, match=r"there is no member p\.z; there are x, y"):
            schema_of(settings(type__file=path, type="Q", columns="p.z"))
        with pytest.raises(OptionError, match="z is int32, which has no member a"):
            schema_of(settings(type__file=path, type="Q", columns="z.a"))

    def test_choices_of_types(self, tmp_path: Path) -> None:
        path = tmp_path / "choices.idl"
        path.write_text("enum E { A }; bitmask B { F }; struct S { unsigned long long n; E e; B b; };")
        by_default = schema_of(settings(type__file=path, type="S"))
        assert by_default.simpleString() == "struct<n:decimal(20,0),e:string,b:array<string>>"
        chosen = settings(type__file=path, type="S", uint64="long", enum="int", bitmask="long")
        assert schema_of(chosen).simpleString() == "struct<n:bigint,e:int,b:bigint>"

    def test_corrupt_records(self, idl: str) -> None:
        schema = schema_of(settings(type__file=idl, type="Pose", mode="PERMISSIVE"))
        assert schema["_corrupt_record"].dataType == BinaryType()
        named = settings(type__file=idl, type="Pose", mode="permissive", columnNameOfCorruptRecord="bad")
        assert schema_of(named).names == [*POSE.names, "bad"]
        with pytest.raises(OptionError, match="the type has such a member"):
            schema_of(settings(type__file=idl, type="Pose", mode="permissive", columnNameOfCorruptRecord="x"))


class TestIdl:
    def test_unknown_struct_names_all_and_the_nearest(self, idl: str) -> None:
        with pytest.raises(OptionError) as caught:
            schema_of(settings(type__file=idl, type="robots::Pos"))
        assert "'robots::Pose', 'robots::Stamp'; did you mean 'robots::Pose'?" in str(caught.value)

    def test_struct_must_be_named(self, idl: str) -> None:
        with pytest.raises(OptionError, match=r"option 'type': robots\.idl defines .*; name one"):
            schema_of(settings(type__file=idl))

    def test_only_struct_needs_no_name(self, tmp_path: Path) -> None:
        path = tmp_path / "one.idl"
        path.write_text("struct One { long a; };")
        assert schema_of(settings(type__file=path)).names == ["a"]

    def test_no_file(self) -> None:
        with pytest.raises(OptionError, match=r"option 'type.file' = '/none.idl': cannot be read"):
            schema_of(settings(type__file="/none.idl"))

    def test_broken_file_says_where(self, tmp_path: Path) -> None:
        path = tmp_path / "broken.idl"
        path.write_text("struct One {\n  long a\n};")
        with pytest.raises(TypeDefinitionError, match=r"broken.idl:3"):
            schema_of(settings(type__file=path))


class TestReading:
    def test_idl(self, idl: str) -> None:
        plan = plan_source(settings(type__file=idl, type="Pose"), POSE)
        assert (plan.type_name, plan.keyed, plan.has_metadata) == ("robots::Pose", True, False)

    def test_announced_name(self, idl: str) -> None:
        given = settings(type__file=idl, type="Pose", type__name="robots::dds_::Pose_")
        assert plan_source(given, POSE).type_name == "robots::dds_::Pose_"

    def test_some_columns_in_any_order(self, idl: str) -> None:
        schema = StructType().add("y", "double").add("id", "long")
        plan = plan_source(settings(type__file=idl, type="Pose"), schema)
        assert plan.data.names == ["y", "id"]

    def test_column_that_is_no_member(self, idl: str) -> None:
        with pytest.raises(UsageError, match="no member 'z'"):
            plan_source(settings(type__file=idl, type="Pose"), StructType().add("z", "double"))

    def test_derived(self) -> None:
        schema = StructType([StructField("at", TimestampType()), StructField("v", DoubleType())])
        plan = plan_source(settings(), schema)
        assert (plan.type_name, plan.keyed) == ("T", False)
        assert plan_source(settings(type="a::B", key="v"), schema).type_name == "a::B"
        assert plan_source(settings(key="v"), schema).keyed

    def test_topic_that_is_no_identifier(self) -> None:
        plan = plan_source(
            parse_options({"topic": "rt/chat"}, AppliesTo.READ), StructType().add("a", "integer")
        )
        assert plan.type_name == "rt_chat"

    @pytest.mark.parametrize(
        ("name", "legal"), [("1rt/chat", "T1rt_chat"), ("a::2::b", "a::T2::b"), ("a:b", "a_b"), ("٣", "_")]
    )
    def test_derived_name_is_legal_idl(self, name: str, legal: str) -> None:
        plan = plan_source(parse_options({"topic": name}, AppliesTo.READ), StructType().add("a", "integer"))
        assert plan.type_name == legal
        assert legal in parse_idl(print_idl(plan.struct))

    def test_key_is_no_column(self) -> None:
        with pytest.raises(OptionError, match="option 'key' = 'b': is no column; columns are 'a'"):
            plan_source(settings(key="b"), StructType().add("a", "integer"))

    def test_metadata_with_schema(self) -> None:
        with pytest.raises(OptionError, match=r"add the column to \.schema"):
            plan_source(settings(metadata="true"), POSE)
        plan = plan_source(settings(), StructType([*POSE, StructField("_rtps", to_spark(METADATA_SCHEMA))]))
        assert plan.has_metadata
        assert plan.data.names == POSE.names

    def test_metadata_column_of_other_type(self) -> None:
        with pytest.raises(OptionError, match="must be declared as _rtps STRUCT<writer"):
            plan_source(settings(), StructType([*POSE, StructField("_rtps", IntegerType())]))

    def test_binary(self, idl: str) -> None:
        given = settings(payload="binary", type="robots::Pose", keyed="true")
        plan = plan_source(given, to_spark(BINARY_SCHEMA))
        assert (plan.type_name, plan.keyed) == ("robots::Pose", True)
        assert plan_source(
            settings(payload="binary", type="Pose", type__file=idl), to_spark(BINARY_SCHEMA)
        ).keyed
        with pytest.raises(OptionError, match="schema of its own"):
            plan_source(given, POSE)

    def test_an_unnamed_type_is_that_of_the_first_writer(self, idl: str) -> None:
        at = StructType().add("at", "long")
        assert plan_source(settings(type__file=idl, type="Stamp"), at).named
        assert plan_source(settings(type="Stamp"), at).named
        assert plan_source(settings(type__name="Stamp"), at).named
        assert plan_source(settings(payload="arrow"), at).named
        assert plan_source(settings(), at, TopicType("Stamp", False, None)).named is False
        assert plan_source(settings(), at).named is False
        binary = to_spark(BINARY_SCHEMA)
        assert plan_source(settings(payload="binary", type="Stamp"), binary).named
        assert plan_source(settings(payload="binary"), binary, TopicType("Stamp", False, None)).named
        assert plan_source(settings(payload="binary"), binary).named is False

    @pytest.mark.parametrize(
        ("options", "asked"),
        [
            ({}, False),
            ({"type": "T"}, False),
            ({"ownership": "exclusive"}, True),
            ({"ownership": "exclusive", "type": "T"}, False),
            ({"type_consistency__force_type_validation": "true"}, True),
        ],
    )
    def test_binary_asks_for_the_type_where_a_policy_looks_into_it(
        self, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], asked: bool
    ) -> None:
        found = TopicType("Stamp", False, None)
        monkeypatch.setattr("spark_rtps.columns.topic_plan.discovered_type", lambda _: found)
        assert topic_type(settings(payload="binary", **options)) == (found if asked else None)

    def test_no_member_among_the_columns(self, idl: str) -> None:
        alone = StructType([StructField("_rtps", to_spark(METADATA_SCHEMA))])
        with pytest.raises(OptionError, match=r"only '_rtps': add some; or leave it out"):
            plan_source(settings(), alone)
        assert plan_source(settings(type__file=idl, type="Pose"), alone).data.names == []

    def test_arrow(self) -> None:
        plan = plan_source(settings(payload="arrow"), POSE)
        assert (plan.type_name, plan.keyed) == ("spark_rtps::ArrowBatch", False)

    def test_corrupt_record_column(self, idl: str) -> None:
        given = settings(type__file=idl, type="Pose", mode="permissive")
        for kind in ("binary", "string"):
            plan = plan_source(given, StructType([*POSE, StructField("_corrupt_record", kind_of(kind))]))
            assert (plan.corrupt, plan.data.names) == ("_corrupt_record", POSE.names)
        assert plan_source(given, POSE).corrupt is None
        with pytest.raises(OptionError, match="must be a nullable BINARY"):
            plan_source(given, StructType([*POSE, StructField("_corrupt_record", IntegerType())]))

    def test_filter(self, idl: str) -> None:
        given = settings(
            type__file=idl, type="Pose", filter="x > %0 AND name LIKE 'a%'", filter__parameters="1.5"
        )
        plan = plan_source(given, POSE)
        assert (plan.filter.expression, plan.filter.parameters) == ("x > %0 AND name LIKE 'a%'", ("1.5",))
        with pytest.raises(OptionError, match="option 'filter' = 'z > 1'"):
            plan_source(settings(type__file=idl, type="Pose", filter="z > 1"), POSE)

    def test_a_guessed_type_is_not_announced(self, idl: str, tmp_path: Path) -> None:
        assert not plan_source(settings(), POSE).announced
        assert not plan_source(settings(type__file=idl, type="Pose"), POSE).announced
        assert plan_source(settings(type__file=idl, type="Pose", type__extensibility="final"), POSE).announced
        path = tmp_path / "sure.idl"
        path.write_text("@final struct Sure { long a; };")
        assert plan_source(settings(type__file=path), StructType().add("a", "integer")).announced

    @pytest.mark.parametrize("options", [{"filter": "z > 1"}, {"metadata": "true"}])
    def test_wrong_options_of_a_stream_are_errors_of_its_reader(self, options: dict[str, str]) -> None:
        """Spark stops the reader that it could not make, and tells of that."""
        source = RtpsDataSource({"topic": "T", **options})
        reader = source.streamReader(POSE)
        for call in (
            reader.initialOffset,
            lambda: reader.latestOffset({}, reader.getDefaultReadLimit()),
            lambda: reader.partitions({}, {}),
            lambda: reader.read(None),
        ):
            with pytest.raises(OptionError, match=f"option '{next(iter(options))}'"):
                call()
        reader.stop()
        with pytest.raises(OptionError):
            source.reader(POSE)

    def test_names_are_made_legal_as_in_a_sink(self) -> None:
        inner = StructType().add("a-b", "integer", nullable=False).add("A_B", "integer")
        schema = (
            StructType().add("größe", "integer").add("_1", "integer").add("in ner", ArrayType(inner, False))
        )
        plan = plan_source(settings(key="größe"), schema)
        written = plan_sink(settings(AppliesTo.WRITE, key="größe", nullable="required"), schema).plan
        assert plan.struct == written.struct
        assert [(m.name, m.key) for m in plan.struct.members] == [
            ("gr__e", True),
            ("c_1", False),
            ("in_ner", False),
        ]
        assert plan.columns.names == schema.names
        assert plan.data.names == ["gr__e", "c_1", "in_ner"]
        # what is declared NOT NULL stays that
        elements = plan.data.field("in_ner").type.value_field
        assert not elements.nullable
        assert not elements.type.field("a_b").nullable

    def test_a_key_is_a_column_by_either_name(self) -> None:
        for key in ("größe", "gr__e"):
            assert plan_source(settings(key=key), StructType().add("größe", "integer")).keyed
        with pytest.raises(OptionError, match="is no column; columns are 'größe'"):
            plan_source(settings(key="groesse"), StructType().add("größe", "integer"))

    def test_plan_is_shipped_to_tasks(self, idl: str) -> None:
        plan = plan_source(settings(type__file=idl, type="Pose"), POSE)
        assert pickle.loads(pickle.dumps(plan)) == plan


class TestWriting:
    def test_derived(self) -> None:
        plan = plan_sink(settings(AppliesTo.WRITE, key="id"), POSE).plan
        assert (plan.type_name, plan.keyed) == ("T", True)

    def test_idl(self, idl: str) -> None:
        given = settings(AppliesTo.WRITE, type__file=idl, type="Pose")
        assert plan_sink(given, POSE).plan.type_name == "robots::Pose"
        with pytest.raises(UsageError, match="robots::Pose needs also 'name'; add the column"):
            plan_sink(given, StructType(POSE.fields[:3]))
        with pytest.raises(UsageError, match="robots::Pose has no member 'more'"):
            plan_sink(given, StructType([*POSE, StructField("more", StringType())]))

    def test_nullable_columns_are_optional(self) -> None:
        schema = StructType(
            [StructField("a", IntegerType()), StructField("b", IntegerType(), nullable=False)]
        )
        plan = plan_sink(
            settings(AppliesTo.WRITE, key="a"), StructType([*schema, StructField("c", StringType())])
        ).plan
        assert [member.optional for member in plan.struct.members] == [False, False, True]
        assert plan.representation is DataRepresentation.XCDR2
        plain = plan_sink(settings(AppliesTo.WRITE, nullable="required"), schema).plan
        assert not any(member.optional for member in plain.struct.members)
        assert plain.representation is DataRepresentation.XCDR1

    def test_names_are_made_legal(self) -> None:
        inner = StructType().add("a-b", "integer").add("A_B", "integer")
        schema = StructType().add("größe", "integer").add("1st", "integer").add("in ner", inner)
        plan = plan_sink(settings(AppliesTo.WRITE), schema).plan
        assert [member.name for member in plan.struct.members] == ["gr__e", "c1st", "in_ner"]
        assert [member.name for member in plan.struct.members[2].type.members] == ["a_b", "A_B_2"]
        assert plan.columns.names == schema.names
        assert plan.data.names == ["gr__e", "c1st", "in_ner"]

    def test_binary(self) -> None:
        given = settings(AppliesTo.WRITE, payload="binary", type="Any")
        assert plan_sink(given, StructType().add("value", "binary")).plan.type_name == "Any"
        with pytest.raises(OptionError, match="needs a BINARY column `value`"):
            plan_sink(given, POSE)

    def test_column_without_dds_type(self) -> None:
        with pytest.raises(TypeDefinitionError, match="decimal128"):
            plan_sink(settings(AppliesTo.WRITE), StructType().add("d", "decimal(10,2)"))

    @pytest.mark.parametrize(
        ("t", "path", "name"),
        [
            (YearMonthIntervalType(), "x", "INTERVAL YEAR TO MONTH"),
            (MapType(StringType(), YearMonthIntervalType()), "x[].value", "INTERVAL YEAR TO MONTH"),
            (StructType().add("v", ArrayType(VariantType())), "x.v[]", "VARIANT"),
        ],
    )
    def test_column_that_spark_does_not_hand_out(self, t: DataType, path: str, name: str) -> None:
        with pytest.raises(TypeDefinitionError) as caught:
            plan_sink(settings(AppliesTo.WRITE), StructType().add("a", "integer").add("x", t))
        assert str(caught.value) == f"column {path!r}: {name} has no DDS type; cast it, or leave it out"
