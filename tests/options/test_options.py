"""Options: every kind of value, what is refused and what the refusal says."""

import builtins
import contextlib
import itertools
import pickle
import types
import typing
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from spark_rtps.api.arguments import topic_settings
from spark_rtps.columns.type_sources import given_type
from spark_rtps.options import Mode, OnNoReader, Payload, Settings, parse_options, policies, settings
from spark_rtps.options.page import SECTIONS, options_page
from spark_rtps.options.receivers import timestamp
from spark_rtps.options.settings import FIELDS
from spark_rtps.options.spec import AppliesTo, OptionKind
from spark_rtps.options.table import OPTIONS
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.qos import (
    DataRepresentation,
    DurabilityKind,
    HistoryKind,
    OwnershipKind,
    ReliabilityKind,
)
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.types.model import Extensibility


def read(**options: str) -> Settings:
    return _parse(options, AppliesTo.READ)


def write(**options: str) -> Settings:
    return _parse(options, AppliesTo.WRITE)


def _parse(options: dict[str, str], role: AppliesTo) -> Settings:
    # test code writes history__depth for history.depth
    return parse_options({"topic": "T", **{k.replace("__", "."): v for k, v in options.items()}}, role)


def refusal(role: AppliesTo = AppliesTo.READ, **options: str) -> OptionError:
    with pytest.raises(OptionError) as caught:
        _parse(options, role)
    return caught.value


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a field's type."""
    match get_origin(hint), get_args(hint):
        case (None, _):
            return value is None if hint is NoneType else isinstance(value, hint)
        case (types.UnionType | typing.Union, each):
            return any(_fits(value, one) for one in each)
        case (builtins.tuple, (one, builtins.Ellipsis)):
            return isinstance(value, tuple) and all(_fits(item, one) for item in value)
        case (builtins.tuple, each):
            return isinstance(value, tuple) and len(value) == len(each) and all(map(_fits, value, each))
        case (origin, _):
            return isinstance(value, origin)
    raise AssertionError(hint)


class TestFields:
    """The assignment of options to fields is by name, so that the type checker does not see it."""

    HINTS = get_type_hints(Settings, {**vars(settings), "Offsets": str | tuple[tuple[str, int | str], ...]})

    @pytest.mark.parametrize("role", [AppliesTo.READ, AppliesTo.WRITE])
    def test_values_are_of_the_types_that_fields_declare(self, role: AppliesTo) -> None:
        found = [_parse({}, role)]
        for spec in OPTIONS:
            texts = (
                "true",
                "unlimited",
                "7",
                "64MiB",
                "3s",
                "x=h:1",
                "2026-01-31",
                "0/2",
                "0x00",
                *spec.choices,
            )
            for text, receivers in itertools.product(texts, ({}, {"receivers": "a=h:1"})):
                with contextlib.suppress(OptionError):
                    found.append(_parse({**receivers, spec.name: text}, role))
        wrong = {
            (name, repr(getattr(each, name)))
            for each in found
            for name, hint in self.HINTS.items()
            if not _fits(getattr(each, name), hint)
        }
        assert not wrong

    def test_each_field_of_one_option_has_one(self) -> None:
        assert len(set(FIELDS.values())) == len(FIELDS)
        assert set(FIELDS.values()) <= {spec.name for spec in OPTIONS}

    def test_each_option_is_read(self) -> None:
        """By a field of its own, or by name where several options make one value."""
        source = "".join(path.read_text() for path in Path(settings.__file__).parent.glob("[!t]*.py"))
        policies_fields = {
            option
            for name, value in vars(policies).items()
            if name.endswith("_FIELDS")
            for option in value.values()
        }
        unread = [
            spec.name
            for spec in OPTIONS
            if spec.name not in {*FIELDS.values(), *policies_fields} and f'"{spec.name}"' not in source
        ]
        assert not unread


class TestKeys:
    def test_case_does_not_matter(self) -> None:
        assert read(MAXROWSPERTRIGGER="7").max_rows_per_trigger == 7
        assert parse_options({"Topic": "X"}, AppliesTo.READ).topic == "X"

    def test_path_is_the_topic(self) -> None:
        assert parse_options({"path": "Square"}, AppliesTo.READ).topic == "Square"
        assert parse_options({"path": "Square", "topic": "Square"}, AppliesTo.READ).topic == "Square"
        with pytest.raises(OptionError, match="another topic, 'Circle'"):
            parse_options({"path": "Circle", "topic": "Square"}, AppliesTo.READ)

    def test_topic_is_required(self) -> None:
        with pytest.raises(OptionError, match="option 'topic': name the topic"):
            parse_options({}, AppliesTo.READ)

    def test_keys_of_spark_itself_are_let_pass(self) -> None:
        assert write(checkpointLocation="/tmp/c").topic == "T"

    @pytest.mark.parametrize(
        ("wrong", "meant"),
        [
            ("reliablity", "reliability"),
            ("depth", "history.depth"),
            ("maxRowPerTrigger", "maxRowsPerTrigger"),
            ("startingOffset", "startingOffsets"),
            ("max_bytes", "log.max_bytes"),
            ("domain_id", "domain"),
        ],
    )
    def test_unknown_key_names_the_nearest(self, wrong: str, meant: str) -> None:
        error = refusal(**{wrong: "x"})
        assert error.option == wrong
        assert f"did you mean '{meant}'?" in str(error)

    def test_unknown_key_far_from_all(self) -> None:
        assert "did you mean" not in str(refusal(zzzzzzzzqqq="1"))

    def test_options_of_the_other_side(self) -> None:
        assert "applies only to reading; remove it here" in str(refusal(AppliesTo.WRITE, metadata="true"))
        assert "applies only to writing" in str(refusal(on_no_reader="drop"))
        parse_options({"topic": "T", "metadata": "true", "on_no_reader": "drop"}, AppliesTo.BOTH)


class TestValues:
    @pytest.mark.parametrize(
        ("text", "ns"),
        [
            ("200ms", 200_000_000),
            ("3s", 3_000_000_000),
            ("5min", 300_000_000_000),
            ("1.5 s", 1_500_000_000),
            ("10us", 10_000),
            ("7ns", 7),
            ("2h", 7_200_000_000_000),
            ("1d", 86_400_000_000_000),
            ("infinite", INFINITE),
            ("DURATION_INFINITE", INFINITE),
        ],
    )
    def test_duration(self, text: str, ns: int) -> None:
        assert read(deadline=text).qos.deadline == ns

    @pytest.mark.parametrize("text", ["3", "fast", "3 parsecs", "-1s", "", "s"])
    def test_no_duration(self, text: str) -> None:
        assert "must be a duration such as 200ms, 3s, 5min or infinite" in str(refusal(deadline=text))

    @pytest.mark.parametrize(
        ("text", "nbytes"),
        [
            ("4096", 4096),
            ("64KiB", 65_536),
            ("1MB", 1_000_000),
            ("1m", 1 << 20),
            ("2GiB", 2 << 30),
            ("1.5 kib", 1536),
            ("12b", 12),
        ],
    )
    def test_size(self, text: str, nbytes: int) -> None:
        assert read(maxBytesPerTrigger=text).max_bytes_per_trigger == nbytes

    def test_no_size(self) -> None:
        assert "must be a size such as 4096, 64KiB or 1MB" in str(refusal(maxBytesPerTrigger="much"))

    @pytest.mark.parametrize("text", ["true", "TRUE", "yes", "1"])
    def test_true(self, text: str) -> None:
        assert read(metadata=text).metadata is True

    def test_no_boolean(self) -> None:
        assert str(refusal(metadata="maybe")) == "option 'metadata' = 'maybe': must be true or false"

    @pytest.mark.parametrize(
        "text",
        ["best_effort", "BEST_EFFORT", "best-effort", "BEST_EFFORT_RELIABILITY_QOS"],
    )
    def test_word(self, text: str) -> None:
        assert read(reliability=text).qos.reliability is ReliabilityKind.BEST_EFFORT

    @pytest.mark.parametrize(
        ("option", "constant", "value"),
        [
            ("durability", "TRANSIENT_LOCAL_DURABILITY_QOS", DurabilityKind.TRANSIENT_LOCAL),
            ("history", "KEEP_LAST_HISTORY_QOS", HistoryKind.KEEP_LAST),
            ("ownership", "EXCLUSIVE_OWNERSHIP_QOS", OwnershipKind.EXCLUSIVE),
        ],
    )
    def test_dds_constants(self, option: str, constant: str, value: object) -> None:
        assert getattr(write(**{option: constant}).qos, option) is value

    def test_wrong_word_names_all(self) -> None:
        error = refusal(reliability="sometimes")
        assert str(error) == "option 'reliability' = 'sometimes': must be one of reliable, best_effort"

    def test_wrong_value_where_nobody_knows_the_role(self) -> None:
        assert str(refusal(AppliesTo.BOTH, mode="x")) == (
            "option 'mode' = 'x': must be one of dropmalformed, permissive, failfast; it applies only to reading"
        )
        assert "applies only to writing" in str(refusal(AppliesTo.BOTH, lifespan="soon"))
        assert "applies" not in str(refusal(AppliesTo.BOTH, reliability="sometimes"))
        assert "applies" not in str(refusal(mode="x"))

    def test_bounds(self) -> None:
        assert "must be between 0 and 232" in str(refusal(domain="233"))
        assert "must be at least 1" in str(refusal(maxRowsPerTrigger="0"))
        assert "must be an integer" in str(refusal(domain="zero"))

    def test_count(self) -> None:
        assert write(resource_limits__max_samples="unlimited").qos.max_samples == INFINITE
        assert write(resource_limits__max_samples="-1").qos.max_samples == INFINITE
        assert write(resource_limits__max_samples="10").qos.max_samples == 10

    def test_list(self) -> None:
        assert read(partition="a, b*,").qos.partition == ("a", "b*")
        assert read(partition="[ab]*,[1]").qos.partition == ("[ab]*", "[1]")

    @pytest.mark.parametrize("name", ["log.dir", "qos.file", "type.file", "type.include_path"])
    def test_home_directories_that_are_not_known(self, name: str) -> None:
        sidecar = {"type.file": "x.idl", "type": "T"} if "include" in name else {}
        with pytest.raises(OptionError, match="home directory that is not known"):
            given_type(parse_options({"topic": "T", **sidecar, name: "~nosuchuser/x"}, AppliesTo.READ))

    def test_list_in_json(self) -> None:
        assert read(partition='["", "a,b", " c "]').qos.partition == ("", "a,b", " c ")
        assert "must not have an empty name" in str(refusal(peers='["", "robot"]'))

    @pytest.mark.parametrize(
        "names", [["a", "b"], ["", "a"], [""], ["a,b"], [" a"], ["[1]"], ['["a"]'], ["a'b,c", "d'"], []]
    )
    def test_list_of_python(self, names: list[str]) -> None:
        """What a program gives is what it gets, whatever the names are."""
        options = {"partition": names}
        settings = topic_settings("T", AppliesTo.READ, of_participant={}, options=options, keywords={})
        assert settings.qos.partition == tuple(names)

    def test_commas_of_filter_parameters(self) -> None:
        """They are literals of SQL, and these have commas between quotes."""
        given = {"filter": "s = %0 AND n = %1", "filter.parameters": "'a,b', 5"}
        assert parse_options({"topic": "T", **given}, AppliesTo.READ).filter_parameters == ("'a,b'", "5")
        for parameters in (["'a,b'", "5"], ["'it''s,'", "'x"]):
            options = {"filter": "s = %0 AND n = %1", "filter.parameters": parameters}
            settings = topic_settings("T", AppliesTo.READ, of_participant={}, options=options, keywords={})
            assert settings.filter_parameters == tuple(parameters)

    def test_dates_of_eight_digits(self) -> None:
        """ISO 8601 has a basic form; as milliseconds they would be the first day of 1970."""
        assert timestamp("startingTime", "20260131") == timestamp("startingTime", "2026-01-31")
        assert timestamp("startingTime", "20261331") == 20_261_331_000_000
        assert timestamp("startingTime", "1769817600000") == timestamp("startingTime", "20260131")

    def test_peers(self) -> None:
        assert read(peers="10.0.0.1, robot:7412").peers == ("10.0.0.1", "robot:7412")
        assert "must be host or host:port" in str(refusal(peers="robot:port"))
        assert "must be host or host:port" in str(refusal(peers=":7400"))
        assert "must be host or host:port" in str(refusal(peers="robot:70000"))

    def test_networks(self) -> None:
        allowed = "10.1.0.0/16, 10.2.0.7,"
        assert read(peers__allow=allowed).peers_allowed == ("10.1.0.0/16", "10.2.0.7")
        assert write(readers__allow=allowed).readers_allowed == ("10.1.0.0/16", "10.2.0.7")
        assert read().peers_allowed == write().readers_allowed == ()
        for given, fix in {
            "10.1.2.3/16": "write 10.1.0.0/16 for the network",
            "robot": "must be IPv4 networks or addresses, such as",
            "10.1.0.0/16,fe80::/10": "must be IPv4 networks or addresses, such as",
            "10.1.0.0/33": "must be IPv4 networks or addresses, such as",
            " , ": "names no network; remove the option",
        }.items():
            assert fix in str(refusal(peers__allow=given))
            assert fix in str(refusal(AppliesTo.WRITE, readers__allow=given))
        assert "applies only to writing" in str(refusal(readers__allow=allowed))
        assert "at most 256 names" in str(refusal(peers__allow=",".join(["10.0.0.1"] * 257)))


class TestMeaning:
    def test_reader_defaults(self) -> None:
        settings = read()
        assert settings.domain == 0
        assert settings.payload is Payload.CDR
        assert settings.qos.reliability is ReliabilityKind.RELIABLE
        assert settings.qos.durability is DurabilityKind.VOLATILE
        assert settings.qos.data_representation == (DataRepresentation.XCDR1, DataRepresentation.XCDR2)
        assert settings.fail_on_data_loss is True

    def test_writer_defaults(self) -> None:
        settings = write()
        assert settings.qos.reliability is ReliabilityKind.RELIABLE
        assert settings.qos.history is HistoryKind.KEEP_ALL
        assert settings.representation is None  # what the type needs
        assert settings.on_no_reader is OnNoReader.WAIT

    def test_starting_offsets_is_durability(self) -> None:
        assert read(startingOffsets="earliest").qos.durability is DurabilityKind.TRANSIENT_LOCAL
        assert read(startingOffsets="latest").qos.durability is DurabilityKind.VOLATILE
        both = read(startingOffsets="earliest", durability="transient_local")
        assert both.qos.durability is DurabilityKind.TRANSIENT_LOCAL
        error = refusal(startingOffsets="earliest", durability="volatile")
        assert "means durability=transient_local, but durability=volatile" in str(error)

    def test_depth_implies_keep_last(self) -> None:
        qos = write(history__depth="5").qos
        assert (qos.history, qos.history_depth) == (HistoryKind.KEEP_LAST, 5)
        assert "no meaning" in str(refusal(AppliesTo.WRITE, history="keep_all", history__depth="5"))

    def test_max_samples_that_would_stop_writing_for_ever(self) -> None:
        error = refusal(AppliesTo.WRITE, durability="transient_local", resource_limits__max_samples="10")
        assert error.option == "resource_limits.max_samples"
        for part in ("durability=transient_local", "history=keep_all", "or history=keep_last"):
            assert part in str(error)
        assert write(resource_limits__max_samples="10").qos.max_samples == 10
        late = {"durability": "transient_local", "history": "keep_last", "resource_limits__max_samples": "10"}
        assert write(**late).qos.max_samples == 10

    def test_extensibility_is_that_of_the_file(self) -> None:
        assert read(type__file="x.idl").type_extensibility is None
        assert (
            write(type__file="x.idl", type__extensibility="final").type_extensibility is Extensibility.FINAL
        )
        assert "give type.file" in str(refusal(type__extensibility="final"))
        assert "one of auto, appendable, final" in str(
            refusal(type__file="x.idl", type__extensibility="mutable")
        )

    def test_binary_has_its_metadata(self) -> None:
        assert "has these columns already" in str(refusal(payload="binary", metadata="true"))

    @pytest.mark.parametrize("payload", ["binary", "arrow"])
    @pytest.mark.parametrize(
        "given",
        [
            {"filter": "x > 1"},
            {"columns": "x"},
            {"uint64": "long"},
            {"enum": "int"},
            {"bitmask": "long"},
            {"time": "timestamp"},
        ],
        ids=lambda given: next(iter(given)),
    )
    def test_options_about_members_need_payload_cdr(self, payload: str, given: dict[str, str]) -> None:
        error = refusal(payload=payload, **given)
        assert "needs payload=cdr: it looks at the type's members" in str(error)
        assert error.option in given

    def test_binary_has_nothing_malformed(self) -> None:
        assert "no effect with payload=binary" in str(refusal(payload="binary", mode="permissive"))
        assert read(payload="arrow", mode="permissive").mode is Mode.PERMISSIVE
        assert read(payload="binary", mode="failfast").mode is Mode.FAILFAST

    def test_options_without_their_enabling_option_are_refused(self) -> None:
        assert "no effect without filter" in str(refusal(filter__parameters="1"))
        error = refusal(columnNameOfCorruptRecord="bad")
        assert "no effect without mode=permissive" in str(error)
        assert read(columnNameOfCorruptRecord="bad", mode="dropmalformed").corrupt_record == "bad"

    def test_a_type_is_a_name(self) -> None:
        error = refusal(type="struct Fin { long a; };")
        assert str(error) == (
            "option 'type' = 'struct Fin { lon...': is not a name; write the IDL to a file and set type.file to its "
            "path"
        )

    def test_key_or_idl(self) -> None:
        assert read(key="a,b").key == ("a", "b")
        assert "remove one of the two" in str(refusal(key="a", type__file="x.idl"))
        assert "use key=<columns>" in str(refusal(keyed="true"))
        assert read(keyed="true", payload="binary").keyed

    @pytest.mark.parametrize("payload", ["binary", "arrow"])
    def test_key_where_no_columns_make_the_type(self, payload: str) -> None:
        assert "only for payload=cdr" in str(refusal(AppliesTo.WRITE, key="id", payload=payload))

    def test_a_duration_of_too_many_digits(self) -> None:
        assert "must be a duration" in str(refusal(read__timeout="9" * 400 + "s"))

    def test_log_sizes(self) -> None:
        assert read(log__max_bytes="16MiB").log_max_bytes == 16 << 20  # its segments are smaller
        assert "log.max_bytes" in str(refusal(log__segment_bytes="64MiB", log__max_bytes="32MiB"))
        assert "must be at least 16777216" in str(refusal(log__max_bytes="1MiB"))

    def test_on_log_full_drop_needs_fail_on_data_loss_false(self) -> None:
        assert read().on_log_full == "hold"
        assert read(on_log_full="fail").on_log_full == "fail"
        assert "failOnDataLoss=false" in str(refusal(on_log_full="drop"))
        assert read(on_log_full="drop", failOnDataLoss="false").on_log_full == "drop"

    def test_settings_are_values(self) -> None:
        settings = read(deadline="1s")
        assert pickle.loads(pickle.dumps(settings)) == settings
        assert hash(settings) == hash(read(deadline="1s"))


class TestTable:
    def test_every_option_has_a_row(self) -> None:
        page = options_page()
        rows = [line for line in page.splitlines() if line.startswith("| `")]
        for spec in OPTIONS:
            assert sum(line.startswith(f"| `{spec.name}` |") for line in rows) == 1, spec.name
        assert [spec for section in SECTIONS for spec in section.options] == list(OPTIONS)

    def test_texts_stand_alone(self) -> None:
        """Each is whole sentences that need neither the row above nor the one below."""
        for spec in OPTIONS:
            assert spec.doc.endswith("."), spec.name
            assert not spec.doc.startswith(("The same", "And ", "Of ")), spec.name
            assert spec.doc[0].isupper() or spec.doc[0] == "`", spec.name
            assert "  " not in spec.doc, spec.name
            assert "|" not in spec.doc, spec.name

    def test_words_have_choices_and_defaults_are_valid(self) -> None:
        for spec in OPTIONS:
            assert bool(spec.choices) == (
                spec.kind in (OptionKind.WORD, OptionKind.PLUGIN, OptionKind.OFFSETS)
            )
        read(), write()
