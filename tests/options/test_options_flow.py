"""Options of the publication log, of flow and congestion control: what they become, and what makes no sense."""

from __future__ import annotations

import dataclasses

import pytest
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.options.participants import publication_policy
from spark_rtps.options.policies import FLOW_CONTROL_FIELDS
from spark_rtps.options.table import OPTIONS
from spark_rtps.options.table_flow import FLOW_OPTIONS, TERM_LENGTH_MAX, TERM_LENGTH_MIN
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.log import publication_log_metadata
from spark_rtps.transport.net.plugins import load_congestion_control
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.policies import CongestionControlPolicy, FlowControlPolicy, ReaderPolicy
from spark_rtps.transport.protocol.writing.flow import STRATEGIES, flow_control_of
from spark_rtps.transport.protocol.writing.publication import PublicationPositions
from spark_rtps.transport.structure import INFINITE, Guid

READ, WRITE = AppliesTo.READ, AppliesTo.WRITE
BEST_EFFORT = {"reliability": "best_effort"}
FLOW, CUBIC, LOG = "flow_control.", "congestion_control.", "publication."


def parse(role: AppliesTo, options: dict[str, str]) -> Settings:
    return parse_options({"topic": "T", **options}, role)


def refusal(role: AppliesTo, options: dict[str, str]) -> OptionError:
    with pytest.raises(OptionError) as caught:
        parse(role, options)
    return caught.value


class TestDefaults:
    def test_defaults_of_a_writer(self) -> None:
        settings = parse(WRITE, {})
        assert settings.flow_control == FlowControlPolicy(term_length=32 << 20)
        assert settings.offer_timeout == settings.qos.max_blocking_time == 30_000_000_000
        assert (settings.ipc, settings.metrics_port, settings.warnings) == (False, 0, ())

    def test_defaults_of_a_reader(self) -> None:
        settings = parse(READ, {})
        assert settings.reader_policy == ReaderPolicy()
        assert (settings.consumption, settings.spy, settings.ipc, settings.metrics_port) == (
            "logged",
            False,
            False,
            0,
        )

    def test_both_sides_agree_on_tethering(self) -> None:
        reader, writer = ReaderPolicy(), FlowControlPolicy()
        for field in ("untethered_window_limit_timeout", "untethered_resting_timeout"):
            assert getattr(reader, field) == getattr(writer, field)

    def test_terms_are_those_of_the_log(self) -> None:
        assert TERM_LENGTH_MIN == publication_log_metadata.TERM_LENGTH_MIN
        assert TERM_LENGTH_MAX == publication_log_metadata.TERM_LENGTH_MAX

    def test_the_window_of_the_log_on_one_host_is_an_option_of_its_own(self) -> None:
        given = {"publication.term_length": "1MiB", "publication.term_window": "256KiB"}
        policy = parse(WRITE, given).flow_control
        assert policy.log_window(policy.term_length) == 256 << 10, "spies of a writer by UDP"
        policy = parse(WRITE, {**given, "ipc": "true"}).flow_control
        assert policy.log_window(policy.term_length) == 512 << 10
        policy = parse(WRITE, {**given, "ipc": "true", "publication.ipc_term_window": "64KiB"}).flow_control
        assert policy.log_window(policy.term_length) == 64 << 10

    def test_auto_is_half_a_term(self) -> None:
        policy = parse(WRITE, {"publication.term_length": "1MiB"}).flow_control
        assert PublicationPositions(policy.term_length, policy.term_window).term_window == 512 << 10


class TestWhatTheyBecome:
    def test_flow_control(self) -> None:
        settings = parse(
            WRITE,
            {
                "flow_control.strategy": "tagged",
                "flow_control.receiver_timeout": "5s",
                "flow_control.group_tag": "-7",
                "flow_control.group_min_size": "3",
                "publication.term_length": "1MiB",
                "publication.term_window": "256KiB",
                "publication.ipc_term_window": "128KiB",
                "publication.unblock_timeout": "2s",
                "ipc": "true",
                "spies_simulate_connection": "true",
                "untethered_window_limit_timeout": "1s",
                "untethered_resting_timeout": "3s",
            },
        )
        expected = FlowControlPolicy(
            strategy="tagged",
            receiver_timeout=5_000_000_000,
            group_tag=-7,
            group_min_size=3,
            term_length=1 << 20,
            term_window=256 << 10,
            ipc_term_window=128 << 10,
            unblock_timeout=2_000_000_000,
            ipc=True,
            spies_simulate_connection=True,
            untethered_window_limit_timeout=1_000_000_000,
            untethered_resting_timeout=3_000_000_000,
        )
        assert settings.flow_control == expected
        assert settings.ipc
        assert publication_policy(settings).flow_control == expected
        assert settings.warnings == ()

    def test_every_field_of_flow_control_has_an_option(self) -> None:
        assert set(FLOW_CONTROL_FIELDS) == {field.name for field in dataclasses.fields(FlowControlPolicy)}

    def test_congestion_control(self) -> None:
        settings = parse(
            READ,
            {
                "congestion_control": "CUBIC",
                "congestion_control.initial_window": "64KiB",
                "congestion_control.max_window": "8MiB",
                "congestion_control.min_rtt": "2ms",
                "congestion_control.measure_rtt": "true",
                "congestion_control.tcp_mode": "true",
            },
        )
        assert settings.reader_policy.congestion_control == CongestionControlPolicy(
            kind="cubic",
            initial_window=64 << 10,
            max_window=8 << 20,
            min_rtt=2_000_000,
            measure_rtt=True,
            tcp_mode=True,
        )
        assert settings.warnings == ()

    def test_reading(self) -> None:
        settings = parse(
            READ,
            {
                "flow_control.consumption": "committed",
                "flow_control.group_tag": str(2**63 - 1),
                "status_message_timeout": "50ms",
                "reliable_reader.nack_group_size": "64",
                "reliable_reader.nack_backoff_max": "20ms",
                "ipc": "true",
                "tether": "false",
                "untethered_window_limit_timeout": "1s",
                "untethered_resting_timeout": "3s",
                "metrics.port": "9400",
                "metrics.address": "0.0.0.0",
            },
        )
        assert settings.reader_policy == ReaderPolicy(
            status_message_timeout=50_000_000,
            group_tag=2**63 - 1,
            nack_group_size=64,
            nack_backoff_max=20_000_000,
            tether=False,
            untethered_window_limit_timeout=1_000_000_000,
            untethered_resting_timeout=3_000_000_000,
        )
        assert (settings.consumption, settings.ipc, settings.metrics_port) == ("committed", True, 9400)
        assert (settings.metrics_address, parse(READ, {}).metrics_address) == ("0.0.0.0", "127.0.0.1")
        assert settings.warnings == ()

    def test_spy(self) -> None:
        assert parse(READ, {"spy": "true"}).spy

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, 30_000_000_000),
            ({"offer_timeout": "auto"}, 30_000_000_000),
            ({"max_blocking_time": "2s"}, 2_000_000_000),
            ({"max_blocking_time": "2s", "offer_timeout": "5s"}, 5_000_000_000),
            ({"offer_timeout": "0s"}, 0),
            ({"offer_timeout": "infinite"}, INFINITE),
        ],
    )
    def test_offer_timeout(self, options: dict[str, str], expected: int) -> None:
        assert parse(WRITE, options).offer_timeout == expected

    def test_offer_timeout_that_is_none(self) -> None:
        assert refusal(WRITE, {"offer_timeout": "soon"}).fix.endswith("infinite or auto")


class TestPlugins:
    @pytest.mark.parametrize(("role", "option"), [(WRITE, f"{FLOW}strategy"), (READ, "congestion_control")])
    def test_a_plugin_of_the_user(self, role: AppliesTo, option: str) -> None:
        settings = parse(role, {option: "my.package:Own.Kind"})
        policy = settings.reader_policy.congestion_control
        assert "my.package:Own.Kind" in (settings.flow_control.strategy, policy.kind)
        assert settings.warnings == ()

    @pytest.mark.parametrize(("role", "option"), [(WRITE, f"{FLOW}strategy"), (READ, "congestion_control")])
    @pytest.mark.parametrize("text", ["", "fastest", "a:", ":f", "a b:f", "a:f()", "a.:f", "a:f:g", "1a:f"])
    def test_an_invalid_plugin_is_refused(self, role: AppliesTo, option: str, text: str) -> None:
        error = refusal(role, {option: text})
        assert error.option == option
        assert "or module:class, such as my.package:MyClass" in error.fix

    def test_every_strategy_of_the_table_is_one(self) -> None:
        (spec,) = [spec for spec in OPTIONS if spec.name == f"{FLOW}strategy"]
        assert set(spec.choices) == set(STRATEGIES)
        for choice in spec.choices:
            flow_control_of(parse(WRITE, {spec.name: choice, f"{FLOW}group_tag": "1"}).flow_control)

    def test_every_congestion_control_of_the_table_is_one(self) -> None:
        (spec,) = [spec for spec in OPTIONS if spec.name == "congestion_control"]
        for choice in spec.choices:
            policy = parse(READ, {spec.name: choice}).reader_policy.congestion_control
            load_congestion_control(policy.kind)(
                policy, WriterInfo(Guid(bytes(12), bytes(4)), (), (), True, False)
            )


class TestContradictions:
    def test_tagged_without_a_tag(self) -> None:
        error = refusal(WRITE, {f"{FLOW}strategy": "tagged"})
        assert (error.option, error.value) == (f"{FLOW}strategy", "tagged")
        assert "needs flow_control.group_tag" in error.fix
        assert (
            parse(WRITE, {f"{FLOW}strategy": "tagged", f"{FLOW}group_tag": "0"}).flow_control.group_tag == 0
        )

    @pytest.mark.parametrize("name", ["untethered_window_limit_timeout", "untethered_resting_timeout"])
    def test_a_spy_has_the_times_of_its_sink(self, name: str) -> None:
        error = refusal(READ, {"spy": "true", "tether": "false", name: "1s"})
        assert error.option == name and "set " + name + " at the sink" in error.fix
        assert parse(READ, {"spy": "true", "tether": "false"}).warnings == ()

    def test_nothing_bounds_how_long_a_reader_may_be_without_progress(self) -> None:
        name = "reliable_writer.inactivate_nonprogressing_readers"
        error = refusal(WRITE, {name: "true"})
        assert error.option == name and "reliable_writer.max_heartbeat_retries" in error.fix
        for bound in ({"reliable_writer.max_heartbeat_retries": "9"}, {f"{FLOW}receiver_timeout": "1s"}):
            assert parse(WRITE, {name: "true", **bound}).writer_policy.inactivate_nonprogressing_readers

    def test_a_group_that_nobody_can_count(self) -> None:
        error = refusal(WRITE, {**BEST_EFFORT, f"{FLOW}group_min_size": "2"})
        assert error.option == f"{FLOW}group_min_size"
        assert "reliability=best_effort" in error.fix

    @pytest.mark.parametrize(
        ("text", "nearest"),
        [
            ("3MiB", "2MiB or 4MiB"),
            ("65537", "64KiB or 128KiB"),
            ("0", "64KiB"),
            ("1", "64KiB"),
            ("32KiB", "64KiB"),
            ("1073741823", "512MiB or 1GiB"),
            ("2GiB", "1GiB"),
            ("5GiB", "1GiB"),
        ],
    )
    def test_a_term_of_another_length(self, text: str, nearest: str) -> None:
        error = refusal(WRITE, {f"{LOG}term_length": text})
        assert (error.option, error.value) == (f"{LOG}term_length", text)
        assert error.fix == f"must be a power of two from 64KiB to 1GiB, such as {nearest}"

    @pytest.mark.parametrize("text", ["64KiB", "131072", "16MiB", "1GiB"])
    def test_a_term(self, text: str) -> None:
        length = parse(WRITE, {f"{LOG}term_length": text}).flow_control.term_length
        assert length.bit_count() == 1

    def test_a_window_on_one_host_of_more_than_half_a_term(self) -> None:
        error = refusal(WRITE, {"publication.term_length": "64KiB", "publication.ipc_term_window": "64KiB"})
        assert error.option == "publication.ipc_term_window" and "publication.term_length=128KiB" in error.fix

    def test_a_window_of_more_than_half_a_term(self) -> None:
        error = refusal(WRITE, {f"{LOG}term_window": "17MiB"})
        assert error.option == f"{LOG}term_window"
        assert (
            "half of publication.term_length=32MiB; lower publication.term_window, or set publication.term_length=64MiB"
            in error.fix
        )
        error = refusal(WRITE, {f"{LOG}term_window": "40KiB", f"{LOG}term_length": "64KiB"})
        assert (
            "half of publication.term_length=64KiB; lower publication.term_window, or set "
            "publication.term_length=128KiB" in error.fix
        )
        half = parse(WRITE, {f"{LOG}term_window": "16MiB"}).flow_control
        assert half.term_window == half.term_length // 2

    def test_a_first_window_of_more_than_the_largest(self) -> None:
        error = refusal(READ, {f"{CUBIC}initial_window": "17MiB"})
        assert error.option == f"{CUBIC}initial_window"
        assert "congestion_control.max_window, 16MiB" in error.fix
        error = refusal(READ, {f"{CUBIC}max_window": "1MiB", f"{CUBIC}initial_window": "2MiB"})
        assert "congestion_control.max_window, 1MiB" in error.fix
        parse(READ, {f"{CUBIC}max_window": "1MiB"})


WARNINGS = [
    (WRITE, {f"{FLOW}group_tag": "1"}),
    (WRITE, {f"{FLOW}strategy": "min", f"{FLOW}group_tag": "1"}),
    (WRITE, {f"{FLOW}strategy": "max", f"{FLOW}group_tag": "1", f"{FLOW}group_min_size": "2"}),
    (WRITE, {f"{FLOW}strategy": "unicast", f"{FLOW}group_min_size": "2"}),
    (WRITE, {f"{FLOW}receiver_timeout": "50ms", "reliable_writer.heartbeat_period": "60ms"}),
    (
        WRITE,
        {**BEST_EFFORT, f"{FLOW}strategy": "max", f"{FLOW}receiver_timeout": "1ms", f"{FLOW}group_tag": "1"},
    ),
    (READ, {**BEST_EFFORT, f"{FLOW}group_tag": "1", f"{FLOW}consumption": "committed"}),
    (READ, {**BEST_EFFORT, "congestion_control": "static", f"{CUBIC}tcp_mode": "true"}),
    (READ, {**BEST_EFFORT, "status_message_timeout": "1s", "reliable_reader.nack_backoff_max": "1ms"}),
    (READ, {"congestion_control": "static", f"{CUBIC}min_rtt": "1ms", f"{CUBIC}tcp_mode": "true"}),
    (READ, {f"{CUBIC}min_rtt": "1ms"}),
    (READ, {"reliable_reader.nack_backoff_max": "1ms", "reliable_reader.nack_group_size": "1"}),
    (READ, {"untethered_window_limit_timeout": "1s", "untethered_resting_timeout": "1s"}),
    (WRITE, {"publication.ipc_term_window": "64KiB"}),
    (READ, {"destination_order.source_timestamp_tolerance": "1s"}),
    (READ, {"peers.allow": "10.1.0.0/16", "peers": "robot,10.1.0.1,10.2.0.1:7410"}),
    (WRITE, {"peers.allow": "10.1.0.0/16", "peers": "10.2.0.1"}),
    (READ, {"spy": "true", "peers.allow": "10.1.0.0/16"}),
    (READ, {"spy": "true", "reliability": "best_effort"}),
    (READ, {"spy": "true", "peers": "a,b", "interface": "lo", "multicast": "false", "mtu": "1500"}),
    (READ, {"spy": "true", "ipc": "true", f"{FLOW}group_tag": "1", f"{CUBIC}min_rtt": "1ms"}),
    (READ, {"spy": "true", "reliable_reader.nack_backoff_max": "1ms", "status_message_timeout": "1s"}),
]


@pytest.mark.parametrize(
    ("role", "options"), WARNINGS, ids=lambda v: ",".join(v) if isinstance(v, dict) else ""
)
def test_a_warning_names_the_options(role: AppliesTo, options: dict[str, str]) -> None:
    (warning,) = parse(role, options).warnings
    for name in set(options):
        assert name in warning


@pytest.mark.parametrize(
    ("role", "options"),
    [
        (WRITE, {f"{FLOW}strategy": "tagged", f"{FLOW}group_tag": "1", f"{FLOW}group_min_size": "1"}),
        (WRITE, {f"{FLOW}strategy": "min", f"{FLOW}group_min_size": "1"}),
        # what it heeds is its own affair
        (WRITE, {f"{FLOW}strategy": "a:b", f"{FLOW}group_tag": "1", f"{FLOW}group_min_size": "1"}),
        (WRITE, {f"{FLOW}receiver_timeout": "100ms"}),
        # a best-effort writer has a publication log too
        (WRITE, {**BEST_EFFORT, f"{LOG}term_length": "1MiB", "ipc": "true", "offer_timeout": "1s"}),
        (WRITE, {"untethered_window_limit_timeout": "1s", "untethered_resting_timeout": "1s"}),
        (WRITE, {"offer_timeout": "60s", "acknowledgment_timeout": "1s"}),
        (READ, {"tether": "false", "untethered_window_limit_timeout": "1s"}),
        (
            READ,
            {f"{CUBIC}initial_window": "64KiB", f"{CUBIC}max_window": "1MiB", f"{CUBIC}measure_rtt": "true"},
        ),
        (READ, {"congestion_control": "a:b", f"{CUBIC}min_rtt": "1ms", f"{CUBIC}tcp_mode": "true"}),
        (READ, {"reliable_reader.nack_group_size": "2", "reliable_reader.nack_backoff_max": "1ms"}),
        (READ, {"destination_order.source_timestamp_tolerance": "1s", "time_based_filter": "1s"}),
        (READ, {"peers.allow": "10.1.0.0/16,10.2.0.1", "peers": "robot,10.1.0.1,10.2.0.1:7410"}),
        (READ, {"spy": "true", "tether": "false", f"{FLOW}consumption": "committed"}),
    ],
    ids=lambda v: ",".join(v) if isinstance(v, dict) else "",
)
def test_no_warning(role: AppliesTo, options: dict[str, str]) -> None:
    assert parse(role, options).warnings == ()


@pytest.mark.parametrize("spec", FLOW_OPTIONS, ids=lambda spec: spec.name)
def test_the_command_prints_it(spec: object) -> None:
    printed = CliRunner().invoke(app, ["options"]).output
    assert f"| `{getattr(spec, 'name', '')}` |" in printed


def test_a_profile_does_not_touch_them() -> None:
    settings = parse(READ, {"qos.profile": "default", f"{FLOW}consumption": "committed"})
    assert settings.consumption == "committed"
    assert settings.reader_policy == parse(READ, {}).reader_policy
