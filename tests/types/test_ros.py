"""ROS 2 interface definitions: what is read, what is refused, and what things are called in DDS."""

from __future__ import annotations

import contextlib
import sys

import pytest

from spark_rtps.transport.errors import TypeDefinitionError, UsageError
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
from spark_rtps.transport.types.model import (
    Array,
    Extensibility,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    WString,
)
from spark_rtps.transport.types.ros import distributions, parse_definition, parse_msg, ros_type
from spark_rtps.transport.types.ros_names import (
    dds_type_name,
    ros_type_name,
)

INT32 = Primitive(PrimitiveKind.INT32)
UINT8 = Primitive(PrimitiveKind.UINT8)


def read(text: str, **others: str) -> Struct:
    known = {f"lab/msg/{name}": other for name, other in others.items()}
    return parse_msg(text, "lab/msg/T", definitions=known.get)


def types(struct: Struct) -> dict[str, Type]:
    return {member.name: member.type for member in struct.members}


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "sensor_msgs/msg/Imu",
            "sensor_msgs/Imu",
            "sensor_msgs::msg::Imu",
            "sensor_msgs::msg::dds_::Imu_",
        ],
    )
    def test_types(self, name: str) -> None:
        assert ros_type_name(name) == "sensor_msgs/msg/Imu"
        assert dds_type_name(name) == "sensor_msgs::msg::dds_::Imu_"

    def test_services_and_actions(self) -> None:
        assert dds_type_name("lab/srv/Add_Request") == "lab::srv::dds_::Add_Request_"
        assert ros_type_name("lab::action::dds_::Go_SendGoal_Request_") == "lab/action/Go_SendGoal_Request"

    @pytest.mark.parametrize("name", ["", "Imu", "a/b/c/d", "a/idl/B", "a::B", "a/msg/", "ä/msg/B", "a b/C"])
    def test_no_names(self, name: str) -> None:
        with pytest.raises(TypeDefinitionError, match="no name of a ROS 2 interface"):
            ros_type_name(name)


class TestFields:
    def test_types(self) -> None:
        found = types(
            read(
                "bool b\nbyte o\nchar c\nint8 i8\nuint64 u64\nfloat32 f\nfloat64 d\n"
                "string s\nstring<=10 s10\nwstring w\nwstring<=5 w5\n"
                "int32[] many\nint32[<=5] some\nint32[3] three\nstring<=4[<=2] words\nInner inner\nlab/Inner[2] two"
                "\nlab/msg/Inner again",
                Inner="int32 x",
            )
        )
        inner = Struct("lab::msg::dds_::Inner_", found["inner"].members)
        kinds = {
            "b": PrimitiveKind.BOOLEAN,
            "o": PrimitiveKind.BYTE,
            "c": PrimitiveKind.UINT8,
            "i8": PrimitiveKind.INT8,
            "u64": PrimitiveKind.UINT64,
            "f": PrimitiveKind.FLOAT32,
            "d": PrimitiveKind.FLOAT64,
        }
        assert found == {
            **{name: Primitive(kind) for name, kind in kinds.items()},
            "s": String(),
            "s10": String(10),
            "w": WString(),
            "w5": WString(5),
            "many": Sequence(INT32),
            "some": Sequence(INT32, 5),
            "three": Array(INT32, (3,)),
            "words": Sequence(String(4), 2),
            "inner": inner,
            "two": Array(inner, (2,)),
            "again": inner,
        }

    def test_struct(self) -> None:
        struct = read("int32 a\nint32 b")
        assert struct.name == "lab::msg::dds_::T_"
        assert struct.extensibility is Extensibility.FINAL
        assert [member.id for member in struct.members] == [0, 1]
        assert not struct.is_keyed

    def test_comments_and_spaces(self) -> None:
        struct = read("# what it is\n\n  int32\t a   # how\n#int32 no\nint32 b#c\r\n\t# end")
        assert types(struct) == {"a": INT32, "b": INT32}

    @pytest.mark.parametrize("text", ["", "# nothing\n", "int32 A=1"])
    def test_empty_messages_have_one_member(self, text: str) -> None:
        assert types(read(text)) == {"structure_needs_at_least_one_member": UINT8}

    @pytest.mark.parametrize(
        ("line", "value"),
        [
            ("bool x true", True),
            ("bool x 0", False),
            ("int32 x -5 # five", -5),
            ("uint8 x 0xff", 255),
            ("char x 65", 65),
            ("float64 x 1", 1.0),
            ("float32 x -.5e3#y", -500.0),
            ("string x plain # text", "plain"),
            ("string x 'it # is'  # one", "it # is"),
            (r'string x "a\"b"', 'a"b'),
            ("string x ''", ""),
        ],
    )
    def test_defaults(self, line: str, value: bool | float | int | str) -> None:
        struct = read(line)
        assert struct.members[0].notes == (("default", value),)
        assert parse_idl(print_idl(struct))[struct.name] == struct

    @pytest.mark.parametrize(
        "line",
        [
            "int32[] x [1, 2,3] # and",
            "string[2] x ['a,b', \"c#d\"]",
            "int32[<=3] x []",
            "float32[2] x [ .5 , 1 ]",
        ],
    )
    def test_defaults_of_many_values_are_no_notes(self, line: str) -> None:
        assert read(line).members[0].notes == ()

    def test_constants_are_no_members(self) -> None:
        struct = read(
            "int32 A=1\nstring NAME = 'x' # y\nfloat32 PI=3.14\nint32 a 3\nbyte B_2=0x10\nstring S=it's"
        )
        assert types(struct) == {"a": INT32}

    def test_header_is_that_of_std_msgs_unless_there_is_one(self) -> None:
        header = types(parse_msg("Header header", "lab/msg/T"))["header"]
        assert isinstance(header, Struct) and header.name == "std_msgs::msg::dds_::Header_"
        own = types(read("Header header", Header="int32 x"))["header"]
        assert isinstance(own, Struct) and own.name == "lab::msg::dds_::Header_"

    def test_definitions_come_before_those_of_the_distribution(self) -> None:
        texts = {"std_msgs/msg/Header": "int32 mine"}
        header = types(parse_msg("std_msgs/Header header", "lab/msg/T", definitions=texts.get))["header"]
        assert isinstance(header, Struct) and types(header) == {"mine": INT32}


class TestConcatenated:
    TEXT = (
        "lab/Inner[] inner\nHeader header\n"
        f"{'=' * 80}\nMSG: lab/Inner\nint32 x\nOther y\n{'=' * 80}\nMSG: lab/msg/Other\nuint8 z\n"
        f"{'=' * 80}\nMSG: std_msgs/Header\nint32 seq\n"
    )

    def test_sections_define_what_the_first_uses(self) -> None:
        found = types(parse_msg(self.TEXT, "lab/Outer", definitions={"lab/msg/Inner": "int32 no"}.get))
        assert isinstance(found["inner"], Sequence) and isinstance(found["inner"].element, Struct)
        assert list(types(found["inner"].element)) == ["x", "y"]
        assert isinstance(found["header"], Struct) and types(found["header"]) == {"seq": INT32}

    def test_first_may_be_headed_too(self) -> None:
        headed = f"MSG: lab/Outer\n{self.TEXT}"
        assert parse_msg(headed, "lab/Outer") == parse_msg(self.TEXT, "lab/Outer")

    def test_section_without_a_heading(self) -> None:
        with pytest.raises(TypeDefinitionError, match="must begin with MSG: package/Name"):
            parse_msg("int32 x\n===\nint32 y", "lab/msg/T")

    def test_sections_of_idl_are_missing(self) -> None:
        with pytest.raises(TypeDefinitionError, match="lab/msg/T:1: lab/msg/Inner is not defined"):
            parse_msg("Inner x\n===\nIDL: lab/msg/Inner\nmodule lab {};", "lab/msg/T")


SERVICE = "int64 a\nint64 b\n---\nint64 sum\n"
ACTION = "int32 order\n---\nint32[] sequence\n---\nint32[] partial\n"


class TestServicesAndActions:
    @pytest.mark.parametrize("wanted", ["Add_Request", "lab/srv/Add_Request", "lab::srv::dds_::Add_Request_"])
    def test_request(self, wanted: str) -> None:
        struct = parse_definition(SERVICE, "lab/srv/Add", wanted)
        assert struct.name == "lab::srv::dds_::Add_Request_"
        assert list(types(struct)) == ["a", "b"]

    def test_response_and_event(self) -> None:
        response = parse_definition(SERVICE, "lab/srv/Add", "Add_Response")
        event = parse_definition(SERVICE, "lab/srv/Add", "Add_Event")
        assert event.name == "lab::srv::dds_::Add_Event_"
        assert types(event)["response"] == Sequence(response, 1)
        assert list(types(event)) == ["info", "request", "response"]

    def test_empty_parts(self) -> None:
        for part in ("Request", "Response"):
            found = types(parse_definition("---", "lab/srv/Trigger", f"Trigger_{part}"))
            assert found == {"structure_needs_at_least_one_member": UINT8}

    @pytest.mark.parametrize(
        ("wanted", "members"),
        [
            ("Go_Goal", ["order"]),
            ("Go_Result", ["sequence"]),
            ("Go_Feedback", ["partial"]),
            ("Go_SendGoal_Request", ["goal_id", "goal"]),
            ("Go_SendGoal_Response", ["accepted", "stamp"]),
            ("Go_SendGoal_Event", ["info", "request", "response"]),
            ("Go_GetResult_Request", ["goal_id"]),
            ("Go_GetResult_Response", ["status", "result"]),
            ("Go_FeedbackMessage", ["goal_id", "feedback"]),
        ],
    )
    def test_action(self, wanted: str, members: list[str]) -> None:
        struct = parse_definition(ACTION, "lab/action/Go", wanted)
        assert struct.name == f"lab::action::dds_::{wanted}_"
        assert list(types(struct)) == members

    def test_package_of_the_wanted_name(self) -> None:
        # a file may lie anywhere
        struct = parse_definition("int32 x", "tmp/msg/T", "lab/msg/T")
        assert struct.name == "lab::msg::dds_::T_"
        assert parse_definition("int32 x", "lab/msg/T") == struct

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            (None, "Add_Request, Add_Response, Add_Event: name one$"),
            ("Add", "name one$"),
            ("Add_Respons", "did you mean Add_Response?"),
        ],
    )
    def test_the_part_of_a_service_must_be_named(self, wanted: str | None, message: str) -> None:
        with pytest.raises(TypeDefinitionError, match=message):
            parse_definition(SERVICE, "lab/srv/Add", wanted)

    def test_number_of_parts(self) -> None:
        with pytest.raises(TypeDefinitionError, match="expected Request --- Response, found 3 parts"):
            parse_definition(ACTION, "lab/srv/Go", "Go_Request")


class TestRefused:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("int32", r"lab/msg/T:1: 'int32' is neither a field nor a constant"),
            ("\nint32 a\n\nint32 a", r"lab/msg/T:4: a is defined twice"),
            ("int32 9a", "neither a field"),
            ("int32[ a", r"'int32\[' is no type"),
            ("int32<=5 a", "int32 cannot have a bound"),
            ("int32[0] a", "0 is no size"),
            ("string<=99999999999999999999 a", "is no size"),
            ("int32[2147483648] a", "is no size"),
            ("Nothing a", r"lab/msg/T:1: lab/msg/Nothing is not defined; .*pip install 'spark-rtps\[ros\]'"),
            ("a/b/C x", "no name of a ROS 2 interface"),
            ("T t", "lab/msg/T contains itself"),
            ("A a", "lab/msg/B:1: lab/msg/A contains itself"),
            ("int8 a 128", "128 is no int8, which is from -128 to 127"),
            ("uint8 A=-1", "-1 is no uint8"),
            ("bool a yes", "'yes' is no boolean"),
            ("int32 a 1.5", "'1.5' is no int32"),
            ("float32 A=one", "'one' is no float"),
            ("string<=2 a abc", "'abc' is longer than 2"),
            ("string a 'it's'", "must be written"),
            ("int32[2] a [1]", "has 1 values, not 2"),
            ("int32[<=1] a [1, 2]", "has 2 values, not 1"),
            ("int32[] a 1", "must be in brackets"),
            ("string[] a ['a' b]", "no list of values"),
            ("B a 1", "messages cannot have one"),
            ("B A=1", "must be a number"),
            ("int32 a=1", "constant a must be in capitals"),
        ],
    )
    def test_texts(self, text: str, message: str) -> None:
        others = {"A": "B b", "B": "A a"} if text == "A a" else {"B": "int32 x"}
        with pytest.raises(TypeDefinitionError, match=message):
            read(text, **others)

    def test_nested_too_deeply(self) -> None:
        with pytest.raises(TypeDefinitionError, match="nested too deeply"):
            parse_msg(
                "M0 m",
                "lab/msg/T",
                definitions=lambda name: f"M{int(name.removeprefix('lab/msg/M')) + 1} m",
            )


class TestDistributions:
    def test_names(self) -> None:
        assert {"foxy", "humble", "jazzy"} <= set(distributions())

    def test_forms_of_a_name(self) -> None:
        forms = ["sensor_msgs/msg/Imu", "sensor_msgs/Imu", "sensor_msgs::msg::dds_::Imu_"]
        assert len({ros_type(name) for name in forms}) == 1

    def test_distributions_differ(self) -> None:
        old, new = (ros_type("shape_msgs/msg/SolidPrimitive", d) for d in ("foxy", "jazzy"))
        assert list(types(old)) == ["type", "dimensions"]
        assert list(types(new)) == ["type", "dimensions", "polygon"]

    def test_unknown_message(self) -> None:
        with pytest.raises(
            TypeDefinitionError,
            match=r"no message sensor_msgs/msg/Imo of ROS 2 jazzy; .*mean sensor_msgs/msg/Imu",
        ):
            ros_type("sensor_msgs/Imo")

    def test_unknown_distribution(self) -> None:
        with pytest.raises(UsageError, match=r"'melodic' is not known; known are .*jazzy"):
            ros_type("sensor_msgs/Imu", "melodic")

    def test_without_rosbags(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "rosbags.typesys", None)
        with pytest.raises(UsageError, match=r"pip install 'spark-rtps\[ros\]'"):
            ros_type("sensor_msgs/Imu")


def test_any_text_is_read_or_refused() -> None:
    # cut anywhere, and with a sign too many
    for text in (TestConcatenated.TEXT, SERVICE, ACTION, "string<=5[<=3] a ['x', \"y\"] # z\nint8 B = -0x1"):
        for cut in range(len(text)):
            for variant in (text[:cut], text[cut:], text[:cut] + "=" + text[cut:]):
                with contextlib.suppress(TypeDefinitionError):
                    parse_definition(variant, "lab/msg/T")
