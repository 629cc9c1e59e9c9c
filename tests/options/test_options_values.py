"""Bad input for every option of the table: refused, and the refusal names the option, the value and the fix."""

from __future__ import annotations

from itertools import product

import pytest

from spark_rtps.options import parse_options
from spark_rtps.options.spec import AppliesTo, OptionKind, OptionSpec
from spark_rtps.options.table import OPTIONS
from spark_rtps.options.values import parse_value
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.structure import INFINITE
from tests.support.rows import each_of

#: Texts that are no value of a kind, with what the refusal says.
WRONG: dict[OptionKind, tuple[tuple[str, ...], str]] = {
    OptionKind.TEXT: (("", "   "), "must not be empty"),
    OptionKind.LIST: (("a\0b", "a,\0"), "must not contain NUL"),
    OptionKind.OCTETS: (("0x1", "0xzz"), "after 0x must be hexadecimal digits"),
    OptionKind.INTEGER: (("", "three", "1.5", "0x10", "1 2"), "must be an integer"),
    OptionKind.COUNT: (("", "many", "2.5", "infinite"), "must be an integer or unlimited"),
    OptionKind.BOOLEAN: (("", "maybe", "2", "tru"), "must be true or false"),
    OptionKind.DURATION: (
        ("", "3", "fast", "3 parsecs", "-1s", "1e3s", "unlimited"),
        "must be a duration such as",
    ),
    OptionKind.SIZE: (("", "much", "-1KiB", "3 bits", "1..2k", "unlimited"), "must be a size such as"),
    OptionKind.SIZE_LIMIT: (("", "much", "-2", "infinite"), "must be a size such as"),
    OptionKind.WORD: (("", "sometimes", "sometimes_qos"), "must be one of"),
    OptionKind.OFFSETS: (
        ('{"a": ', '{"a": 1} {}', '{"a": 1, "a": 2}', '{"a": true}', '{"a": -1}', '{"a": [1]}'),
        'must be JSON such as {"cell-1": 12345',
    ),
}


def of_kind(*kinds: OptionKind) -> list[OptionSpec]:
    return [spec for spec in OPTIONS if spec.kind in kinds]


def name(spec: OptionSpec) -> str:
    return spec.name


def role_of(spec: OptionSpec) -> AppliesTo:
    return AppliesTo.READ if spec.applies_to is AppliesTo.BOTH else spec.applies_to


@each_of(
    [(spec, text) for spec in OPTIONS if spec.kind in WRONG for text in WRONG[spec.kind][0]],
    name=lambda case: f"{case[0].name}={case[1]!r}",
)
def test_the_wrong_kind(case: tuple[OptionSpec, str]) -> None:
    spec, text = case
    with pytest.raises(OptionError) as caught:
        parse_options({"topic": "T", spec.name: text}, role_of(spec))
    assert caught.value.option == spec.name
    assert WRONG[spec.kind][1] in caught.value.fix


# less than nothing is no value of the other kinds
@each_of([s for s in OPTIONS if s.minimum or s.kind in (OptionKind.INTEGER, OptionKind.COUNT)], name)
def test_below_the_minimum(spec: OptionSpec) -> None:
    assert spec.minimum is not None
    low = spec.minimum - 1
    if low == -1 and spec.kind is OptionKind.COUNT:  # unlimited
        low = -2
    with pytest.raises(OptionError) as caught:
        parse_value(spec, f"{low}ns" if spec.kind is OptionKind.DURATION else str(low))
    assert caught.value.option == spec.name
    assert caught.value.fix.startswith(("must be at least", "must be between"))


@each_of([s for s in OPTIONS if s.maximum is not None], name)
def test_above_the_maximum(spec: OptionSpec) -> None:
    assert spec.maximum is not None
    high = spec.maximum + 1
    text = str(high)
    if spec.kind is OptionKind.DURATION:
        text = f"{2 * high}ns"  # floats hold no end of years
    elif spec.kind is OptionKind.LIST:
        text = ",".join("x" * high)
    elif spec.kind in (OptionKind.OCTETS, OptionKind.TEXT):
        text = "x" * high
    with pytest.raises(OptionError) as caught:
        parse_value(spec, text)
    assert caught.value.option == spec.name
    assert "must be at most" in caught.value.fix or "and" in caught.value.fix


@each_of([s for s in OPTIONS if s.applies_to is not AppliesTo.BOTH], name)
def test_the_other_side(spec: OptionSpec) -> None:
    other = AppliesTo.WRITE if spec.applies_to is AppliesTo.READ else AppliesTo.READ
    doing = {AppliesTo.READ: "reading", AppliesTo.WRITE: "writing"}[spec.applies_to]
    with pytest.raises(OptionError, match=f"applies only to {doing}"):
        parse_options({"topic": "T", spec.name: spec.default or "1"}, other)


@each_of(OPTIONS, name)
def test_a_typo_names_it(spec: OptionSpec) -> None:
    typo = spec.name[:-1] + "_" + spec.name[-1]
    with pytest.raises(OptionError) as caught:
        parse_options({"topic": "T", typo: "1"}, AppliesTo.READ)
    assert caught.value.option == typo
    assert "did you mean" in caught.value.fix


@each_of([s for s in OPTIONS if s.default is not None], name)
def test_every_default_is_a_value(spec: OptionSpec) -> None:
    assert spec.default is not None
    value = parse_value(spec, spec.default)
    assert value is not None or spec.default == "auto"


@each_of(of_kind(OptionKind.WORD), name)
def test_every_word_is_a_value_in_any_case(spec: OptionSpec) -> None:
    for choice in spec.choices:
        assert parse_value(spec, choice.upper()) == choice


@each_of(
    product(of_kind(OptionKind.COUNT, OptionKind.SIZE_LIMIT), ("unlimited", "LENGTH_UNLIMITED", "-1")),
    name=lambda case: f"{case[0].name}={case[1]}",
)
def test_no_limit(case: tuple[OptionSpec, str]) -> None:
    spec, text = case
    assert parse_value(spec, text) == INFINITE


@each_of(of_kind(OptionKind.DURATION), name)
def test_infinite_where_it_can_be(spec: OptionSpec) -> None:
    if spec.maximum is None:
        assert parse_value(spec, "infinite") == INFINITE
    else:
        with pytest.raises(OptionError, match="and 365d"):
            parse_value(spec, "infinite")


@pytest.mark.parametrize(
    ("constant", "option", "choice"),
    [
        ("BY_SOURCE_TIMESTAMP_DESTINATIONORDER_QOS", "destination_order", "by_source_timestamp"),
        ("DDS_TOPIC_PRESENTATION_QOS", "presentation.access_scope", "topic"),
        ("PERSISTENT_DURABILITY_QOS", "durability", "persistent"),
        ("MANUAL_BY_TOPIC_LIVELINESS_QOS", "liveliness", "manual_by_topic"),
        ("ASYNCHRONOUS_PUBLISH_MODE_QOS", "publish_mode", "asynchronous"),
    ],
)
def test_constants_of_dds(constant: str, option: str, choice: str) -> None:
    (spec,) = [s for s in OPTIONS if s.name == option]
    assert parse_value(spec, constant) == choice


def test_a_constant_of_another_policy() -> None:
    (spec,) = [s for s in OPTIONS if s.name == "durability"]
    with pytest.raises(OptionError, match="must be one of"):
        parse_value(spec, "VOLATILE_HISTORY_QOS")


@each_of(of_kind(OptionKind.COUNT), name)
def test_counts_have_32_bits(spec: OptionSpec) -> None:
    assert parse_value(spec, str(2**31 - 1)) == 2**31 - 1
    with pytest.raises(OptionError, match="and 2147483647"):
        parse_value(spec, str(2**31))


@each_of(of_kind(OptionKind.TEXT), name)
def test_no_nul_in_names(spec: OptionSpec) -> None:
    with pytest.raises(OptionError, match="must not contain NUL"):
        parse_value(spec, "a\0b")


@each_of(of_kind(OptionKind.LIST), name)
def test_escapes_of_a_json_array_make_no_name_that_cannot_be_sent(spec: OptionSpec) -> None:
    with pytest.raises(OptionError, match="must not contain NUL"):
        parse_value(spec, r'["b", "a\u0000b"]')
    with pytest.raises(OptionError, match="must be Unicode"):
        parse_value(spec, r'["b", "a\ud800b"]')
    assert parse_value(spec, r'["\ud83d\ude00", "b"]') == ("\N{GRINNING FACE}", "b")


def test_partitions_fit_one_parameter() -> None:
    names = ",".join(["x" * 1000] * 65)
    parse_options({"topic": "T", "partition": names}, AppliesTo.READ)
    with pytest.raises(OptionError, match="must be at most 65528 bytes in all"):
        parse_options({"topic": "T", "partition": f"{names},y"}, AppliesTo.READ)
    with pytest.raises(OptionError, match="a name must have fewer than 4096 bytes"):
        parse_options({"topic": "T", "partition": "x" * 4096}, AppliesTo.READ)


def test_octets() -> None:
    qos = parse_options({"topic": "T", "user_data": "grün", "group_data": "0x00Ff"}, AppliesTo.READ).qos
    assert (qos.user_data, qos.topic_data, qos.group_data) == ("grün".encode(), b"", b"\x00\xff")


def test_sizes_and_limits_say_what_else_there_is() -> None:
    with pytest.raises(OptionError, match="1MB or unlimited or auto"):
        parse_options({"topic": "T", "batch.max_data_bytes": "x"}, AppliesTo.WRITE)
    with pytest.raises(OptionError, match="between 1228 and 65535"):
        parse_options({"topic": "T", "mtu": "100"}, AppliesTo.READ)
    with pytest.raises(OptionError, match="between 100us and 365d"):
        parse_options({"topic": "T", "reliable_writer.heartbeat_period": "0s"}, AppliesTo.WRITE)


@each_of(OPTIONS, name)
def test_half_a_character(spec: OptionSpec) -> None:
    """What Python makes of arguments that are not UTF-8."""
    with pytest.raises(OptionError, match="must be Unicode"):
        parse_value(spec, "a\udcff")


@pytest.mark.parametrize(
    "others", [{"statuses": "true"}, {"recording": "a.mcap"}, {"receivers": "a=h:1"}, {}], ids=str
)
def test_a_secret_is_never_shown(others: dict[str, str]) -> None:
    secret = "hidden\0" if "receivers" in others else "hidden"
    with pytest.raises(OptionError, match=r"receiver\.token") as error:
        parse_options({"topic": "t", "receiver.token": secret, **others}, AppliesTo.READ)
    assert "hidden" not in f"{error.value} {error.value.value}"


@pytest.mark.parametrize(
    "name",
    [
        *("serve.certificate", "serve.key"),
        *("receiver.token.file", "receiver.ca", "receiver.certificate", "receiver.key"),
    ],
)
def test_a_file_may_lie_at_home(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    needed = {"serve": ["serve.certificate", "serve.key"]}.get(name.split(".")[0])
    given = dict.fromkeys(needed or ["receiver.ca", "receiver.certificate", "receiver.key"], "f.pem")
    given |= {} if needed else {"receivers": "a=h:1"}
    for text, path in (("~/f", "/home/me/f"), ("file:///f", "/f"), ("f", "f")):
        settings = parse_options({"topic": "t", **given, name: text}, AppliesTo.READ)
        assert getattr(settings, name.replace(".", "_")) == path
    with pytest.raises(OptionError, match=rf"{name}.*home directory that is not known"):
        parse_options({"topic": "t", **given, name: "~nobody-is-called-so/f"}, AppliesTo.READ)


def test_a_depth_has_32_bits() -> None:
    """Beyond them peers would be told a negative one."""
    given = {"topic": "t", "history.depth": f"{2**31 - 1}"}
    assert parse_options(given, AppliesTo.READ).qos.history_depth == 2**31 - 1
    with pytest.raises(OptionError, match=r"history\.depth"):
        parse_options({**given, "history.depth": f"{2**31}"}, AppliesTo.READ)
