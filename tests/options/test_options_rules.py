"""Options that contradict each other name both; those that make no sense are warned about."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest

from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.protocol.participant.slices import Slice

READ, WRITE = AppliesTo.READ, AppliesTo.WRITE
BATCH = {"batch.enable": "true"}
FLOW = {"publish_mode": "asynchronous"}
WRITER, READER = "reliable_writer.", "reliable_reader."
KEEP = "reliable_writer.disable_positive_acks_{}_sample_keep_duration"
BUCKET = "flow_controller.token_bucket."


def parse(role: AppliesTo, options: dict[str, str]) -> Settings:
    return parse_options({"topic": "T", **options}, role)


CONTRADICTIONS = [
    # BATCH, as its manual has them
    (WRITE, {**BATCH, "batch.max_data_bytes": "unlimited", "batch.max_samples": "unlimited"}),
    (WRITE, {**BATCH, "batch.max_flush_delay": "1s", "async_publisher.disable_asynchronous_batch": "true"}),
    (WRITE, {**BATCH, "batch.thread_safe_write": "false", "batch.source_timestamp_resolution": "0s"}),
    (WRITE, {**BATCH, "batch.thread_safe_write": "false", "batch.max_flush_delay": "1s"}),
    (
        WRITE,
        {
            **BATCH,
            "batch.thread_safe_write": "false",
            "async_publisher.disable_asynchronous_batch": "false",
        },
    ),
    (WRITE, {"turbo_mode": "true", "batch.thread_safe_write": "false", "batch.max_flush_delay": "1s"}),
    (WRITE, {**BATCH, "batch.compression": "lz4", "batch.compression_level": "13"}),
    # what is the least is not more than what is the most
    (WRITE, {f"{WRITER}min_nack_response_delay": "2s", f"{WRITER}max_nack_response_delay": "1s"}),
    (WRITE, {f"{WRITER}min_send_window_size": "9", f"{WRITER}max_send_window_size": "8"}),
    (WRITE, {f"{WRITER}heartbeats_per_max_samples": "9", f"{WRITER}max_send_window_size": "8"}),
    (WRITE, {f"{WRITER}low_watermark": "9", f"{WRITER}high_watermark": "8"}),
    (WRITE, {KEEP.format("min"): "2s", KEEP.format("max"): "1s"}),
    (
        READ,
        {f"{READER}min_heartbeat_response_delay": "2ms", f"{READER}max_heartbeat_response_delay": "1ms"},
    ),
    (READ, {"time_based_filter": "2s", "deadline": "1s"}),
    (READ, {"log.segment_bytes": "64MiB", "log.max_bytes": "32MiB"}),
    # HISTORY and RESOURCE_LIMITS
    (READ, {"history.depth": "9", "resource_limits.max_samples_per_instance": "8"}),
    (WRITE, {"history.depth": "9", "resource_limits.max_samples": "8"}),
    (WRITE, {"resource_limits.max_samples_per_instance": "9", "resource_limits.max_samples": "8"}),
    (READ, {"history": "keep_all", "history.depth": "5"}),
    (WRITE, {"durability": "persistent", "resource_limits.max_samples": "10"}),
    (READ, {"startingOffsets": "latest", "durability": "transient"}),
    (READ, {"slice": "0/2", "ownership": "exclusive"}),
]


@pytest.mark.parametrize(
    ("role", "options"), CONTRADICTIONS, ids=lambda v: ",".join(v) if isinstance(v, dict) else ""
)
def test_a_contradiction_names_both(role: AppliesTo, options: dict[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        parse(role, options)
    assert caught.value.option in options
    for name in set(options) - {"batch.enable", "publish_mode", "turbo_mode"}:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (f"{WRITER}min_nack_response_delay", f"{WRITER}max_nack_response_delay"),
        (KEEP.format("min"), KEEP.format("max")),
    ],
)
def test_an_option_alone_may_contradict_a_default(low: str, high: str) -> None:
    with pytest.raises(OptionError, match=f"option '{low}'.*{high}"):
        parse(WRITE, {low: "1h"})
    with pytest.raises(OptionError, match=r"option 'log.segment_bytes'.*log.max_bytes, 4GiB"):
        parse(READ, {"log.segment_bytes": "8GiB"})


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"batch.max_samples": "5"}, "batch.enable=true"),
        ({"batch.max_data_bytes": "5KiB"}, "batch.enable=true"),
        ({"batch.max_flush_delay": "5ms"}, "batch.enable=true"),
        ({"batch.source_timestamp_resolution": "0s"}, "batch.enable=true"),
        ({"batch.thread_safe_write": "false"}, "batch.enable=true"),
        ({"batch.wire": "data"}, "batch.enable=true"),
        ({"batch.auto_flush_size": "5KiB"}, "batch.enable=true"),
        ({"batch.compression": "lz4"}, "batch.enable=true"),
        ({"batch.interceptor": "a:b"}, "batch.enable=true"),
        ({**BATCH, "batch.compression_level": "3"}, "batch.compression=lz4 or zstd"),
        ({**BATCH, "batch.compression_threshold": "3"}, "batch.compression=lz4 or zstd"),
        ({"flow_controller.name": "slow"}, "publish_mode=asynchronous"),
        ({"flow_controller.scheduling": "round_robin"}, "publish_mode=asynchronous"),
        ({f"{BUCKET}max_tokens": "3", "publish_mode": "synchronous"}, "publish_mode=asynchronous"),
        ({f"{BUCKET}tokens_added_per_period": "3"}, "publish_mode=asynchronous"),
        ({f"{BUCKET}tokens_leaked_per_period": "3"}, "publish_mode=asynchronous"),
        ({f"{BUCKET}period": "3s"}, "publish_mode=asynchronous"),
        ({f"{BUCKET}bytes_per_token": "3KiB"}, "publish_mode=asynchronous"),
    ],
)
def test_an_option_without_the_one_it_needs(options: dict[str, str], needed: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(WRITE, options)
    assert caught.value.option in options
    assert f"has no effect without {needed}" in str(caught.value)


def test_batch_options_suit_turbo_mode_and_batching_switched_off() -> None:
    assert parse(WRITE, {"turbo_mode": "true", "batch.wire": "data"}).batch.turbo_mode
    assert not parse(WRITE, {"batch.enable": "false", "batch.max_samples": "5"}).batch.enable


def test_a_batch_is_no_larger_than_a_datagram() -> None:
    parse(WRITE, {**BATCH, "batch.max_data_bytes": "64256"})
    with pytest.raises(OptionError, match="at most 64256: a batch travels in one UDP datagram"):
        parse(WRITE, {**BATCH, "batch.max_data_bytes": "64KiB"})


def test_a_flow_controller_that_nobody_triggers() -> None:
    with pytest.raises(
        OptionError, match=r"'flow_controller\.name' = 'on_demand': sends only when it is triggered"
    ):
        parse(WRITE, {**FLOW, "flow_controller.name": "on_demand"})


@pytest.mark.parametrize("text", ["f", "a:", ":f", "a b:f", "a:f()", "a.:f", "a:f:g", "1a:f"])
def test_an_interceptor_that_is_none(text: str) -> None:
    with pytest.raises(OptionError, match="must be module:callable"):
        parse(WRITE, {**BATCH, "batch.interceptor": text})


def test_an_interceptor() -> None:
    assert parse(WRITE, {**BATCH, "batch.interceptor": "a.b_c:D.e"}).interceptor == "a.b_c:D.e"


WARNINGS = [
    (WRITE, {**BATCH, "lifespan": "1s", "batch.max_flush_delay": "2s"}),
    (WRITE, {**BATCH, "lifespan": "1s"}),
    (WRITE, {**BATCH, "history.depth": "5", "batch.max_samples": "6"}),
    (WRITE, {**BATCH, "history.depth": "5"}),
    (WRITE, {**BATCH, "turbo_mode": "true"}),
    (WRITE, {**BATCH, "deadline": "1s", "batch.max_flush_delay": "2s"}),
    (WRITE, {"max_batches": "3", "disable_inline_keyhash": "true"}),
    (WRITE, {**BATCH, "mtu": "1500", "batch.max_data_bytes": "8KiB"}),
    (WRITE, {"ownership.strength": "3"}),
    (WRITE, {"liveliness": "manual_by_topic", "liveliness.lease_duration": "1s"}),
    (WRITE, {f"{WRITER}disable_positive_acks": "true"}),
    (WRITE, {**FLOW, f"{BUCKET}max_tokens": "3", f"{BUCKET}tokens_added_per_period": "4"}),
    (WRITE, {"reliability": "best_effort", f"{WRITER}heartbeat_period": "1s"}),
    (READ, {"reliability": "best_effort", f"{READER}nack_period": "1s"}),
    (READ, {"reliability": "best_effort", "durability": "transient_local"}),
    (READ, {"reliability": "best_effort", "startingOffsets": "earliest"}),
    (READ, {f"{READER}heartbeat_suppression_duration": "100ms"}),
]


@pytest.mark.parametrize(
    ("role", "options"), WARNINGS, ids=lambda v: ",".join(v) if isinstance(v, dict) else ""
)
def test_a_warning_names_the_options(role: AppliesTo, options: dict[str, str]) -> None:
    (warning,) = parse(role, options).warnings
    for name in set(options) - {"batch.enable", "publish_mode"}:
        assert name in warning


def test_a_heartbeat_that_would_be_suppressed_names_the_period() -> None:
    (warning,) = parse(READ, {f"{READER}heartbeat_suppression_duration": "2s"}).warnings
    assert f"{WRITER}heartbeat_period=100ms" in warning


@pytest.mark.parametrize(
    ("role", "options"),
    [
        (READ, {}),
        (WRITE, {}),
        (WRITE, BATCH),
        (WRITE, {**BATCH, "lifespan": "2s", "batch.max_flush_delay": "1s"}),
        (WRITE, {**BATCH, "history.depth": "5", "batch.max_samples": "5"}),
        (WRITE, {**BATCH, "mtu": "9000", "batch.max_data_bytes": "8KiB"}),
        (READ, {f"{READER}heartbeat_suppression_duration": "99ms"}),
        (READ, {"liveliness": "manual_by_topic", "liveliness.lease_duration": "1s"}),
        (WRITE, {**FLOW, f"{BUCKET}max_tokens": "3", f"{BUCKET}tokens_added_per_period": "3"}),
    ],
)
def test_no_warning(role: AppliesTo, options: dict[str, str]) -> None:
    assert parse(role, options).warnings == ()


def test_max_batches_of_a_history_that_nothing_empties() -> None:
    options = {"topic": "T", "durability": "transient_local", "batch.enable": "true", "max_batches": "8"}
    with pytest.raises(OptionError, match=r"max_batches.*history=keep_all"):
        parse_options(options, AppliesTo.WRITE)
    parse_options({**options, "history": "keep_last"}, AppliesTo.WRITE)


@pytest.mark.parametrize("role", [READ, AppliesTo.BOTH])
def test_a_batch_read_has_an_end(role: AppliesTo) -> None:
    with pytest.raises(OptionError, match=r"option 'read.timeout' = 'infinite': .*read.max_rows.*never end"):
        parse(role, {"read.timeout": "infinite"})
    assert parse(role, {"read.timeout": "infinite", "read.max_rows": "7"}).read_max_rows == 7
    assert parse(role, {"read.timeout": "365d"}).read_max_rows is None


@pytest.mark.parametrize(
    ("option", "little", "least"),
    [
        ("participant.lease_duration", "99ms", "100ms"),
        ("log.segment_bytes", str(mmap.PAGESIZE - 1), str(mmap.PAGESIZE)),
    ],
)
def test_values_below_the_least_useful_are_refused(option: str, little: str, least: str) -> None:
    with pytest.raises(OptionError, match=f"option '{option}' = '{little}': must be at least {least}"):
        parse(READ, {option: little})
    parse(READ, {option: least})


def test_the_least_segment_makes_a_log(tmp_path: Path) -> None:
    settings = parse(READ, {"log.segment_bytes": str(mmap.PAGESIZE), "log.max_bytes": "16MiB"})
    sizes = {"max_bytes": settings.log_max_bytes, "segment_bytes": settings.log_segment_bytes}
    with StreamLog.create(tmp_path / "log", **sizes, metadata={}) as log:
        assert log.segment_bytes == mmap.PAGESIZE


def test_an_infinite_duration_exceeds_every_other() -> None:
    with pytest.raises(OptionError, match="must not be greater than deadline, 1s"):
        parse(READ, {"time_based_filter": "infinite", "deadline": "1s"})


def test_no_bound_is_not_greater_than_one() -> None:
    unbounded = {"reliable_writer.min_send_window_size": "unlimited"}
    parse(WRITE, {**unbounded, "reliable_writer.max_send_window_size": "40"})


def test_batches_without_a_bound_of_their_own_are_bounded_by_the_mtu() -> None:
    unbounded = {"batch.max_data_bytes": "unlimited", "batch.max_samples": "5", "history": "keep_all"}
    (warning,) = parse(WRITE, {**BATCH, **unbounded, "mtu": "1400"}).warnings
    assert "batch.max_data_bytes=unlimited is more than mtu=1400" in warning


class TestRetention:
    """What a receiver service keeps."""

    def receiver_service(self, **given: str) -> Settings:
        return parse_options(
            {"topic": "t"} | {k.replace("__", "."): v for k, v in given.items()},
            AppliesTo.READ,
            receiver_service=True,
        )

    def test_defaults(self) -> None:
        assert (self.receiver_service().retention, self.receiver_service().retention_time) == ("bytes", 0)

    def test_time(self) -> None:
        assert self.receiver_service(retention="time", retention__time="2s").retention_time == 2_000_000_000

    @pytest.mark.parametrize(
        ("given", "named", "fix"),
        [
            ({"retention": "time"}, "retention", "needs retention.time"),
            ({"retention.time": "1h"}, "retention.time", "no effect without retention=time"),
            (
                {"flow_control.consumption": "committed"},
                "flow_control.consumption",
                "needs retention=committed",
            ),
        ],
    )
    def test_contradictions(self, given: dict[str, str], named: str, fix: str) -> None:
        with pytest.raises(OptionError, match=fix) as error:
            parse_options({"topic": "t"} | given, AppliesTo.READ, receiver_service=True)
        assert error.value.option == named

    def test_writers_may_wait_for_commits(self) -> None:
        given = {"flow_control__consumption": "committed", "retention": "committed"}
        assert self.receiver_service(**given).consumption == "committed"

    def test_a_query_has_none(self) -> None:
        with pytest.raises(OptionError, match="receiver services"):
            parse_options({"topic": "t", "retention": "bytes"}, AppliesTo.READ)
        committed = parse_options({"topic": "t", "flow_control.consumption": "committed"}, AppliesTo.READ)
        assert committed.consumption == "committed"


class TestSlices:
    def test_a_slice(self) -> None:
        assert parse(READ, {}).slice is None
        assert parse(READ, {"slice": "1/3"}).slice == Slice(1, 3)
        assert parse(READ, {"slice": "0/1", "ownership": "shared"}).slice == Slice(0, 1)

    @pytest.mark.parametrize(
        ("text", "fix"),
        [
            ("3/3", "must have an index from 0 to 2: with n receivers, the slices are 0/n to n-1/n"),
            ("1/0", "must have an index of at least 1"),
            ("first", "must be index/count, such as 0/4 for the first of four"),
            ("0 / 2", "must be index/count"),
            ("0,2", "must be index/count"),
        ],
    )
    def test_an_invalid_slice_is_refused(self, text: str, fix: str) -> None:
        with pytest.raises(OptionError, match=re.escape(fix)) as caught:
            parse(READ, {"slice": text})
        assert (caught.value.option, caught.value.value) == ("slice", text)

    def test_writers_have_none(self) -> None:
        with pytest.raises(OptionError, match="applies only to reading"):
            parse(WRITE, {"slice": "0/2"})

    def test_receiver_services_decide_it_by_their_subscriptions(self) -> None:
        with pytest.raises(OptionError, match="is decided by the subscription"):
            parse(READ, {"slice": "0/2", "receivers": "a=h:1"})

    def test_the_owner_of_an_instance_may_be_in_another_slice(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=r"slice.*divide the data by topic, domain or partition"):
            parse(READ, {"slice": "0/2", "ownership": "exclusive"})
        profile = tmp_path / "qos.xml"
        profile.write_text(
            '<dds><qos_library name="l"><qos_profile name="p"><datareader_qos><ownership><kind>'
            "EXCLUSIVE_OWNERSHIP_QOS</kind></ownership></datareader_qos></qos_profile></qos_library></dds>"
        )
        with pytest.raises(OptionError, match="set by the QoS profile"):
            parse(READ, {"slice": "0/2", "qos.file": str(profile), "qos.profile": "l::p"})

    @pytest.mark.parametrize(
        ("name", "text"),
        [("time_based_filter", "1s"), ("deadline", "1s"), ("destination_order", "by_source_timestamp")],
    )
    def test_rules_over_all_writers_of_an_instance_hold_in_each_slice(self, name: str, text: str) -> None:
        (warning,) = parse(READ, {"slice": "0/2", name: text}).warnings
        assert warning.startswith(f"{name}={text} with slice=0/2")
        assert parse(READ, {name: text}).warnings == ()
        assert parse(READ, {"slice": "0/2"}).warnings == ()


class TestReceiverServices:
    """Where a query starts in their logs says nothing about DURABILITY."""

    @pytest.mark.parametrize(
        ("starting", "durability"),
        [("latest", "transient_local"), ("earliest", "volatile"), ('{"a": 5}', "transient_local")],
    )
    def test_a_start_suits_any_durability(self, starting: str, durability: str) -> None:
        given = {"receivers": "a=h:1", "receiver.subscribe": "true", "startingOffsets": starting}
        asked = parse(READ, {**given, "durability": durability})
        assert asked.qos.durability.name.lower() == durability
        assert parse(READ, given).qos.durability.name == "VOLATILE"

    def test_best_effort_writers_send_no_history_but_receivers_keep_one(self) -> None:
        given = {"receivers": "a=h:1", "receiver.subscribe": "true", "reliability": "best_effort"}
        assert parse(READ, {**given, "startingOffsets": "earliest"}).warnings == ()
        warnings = parse(
            READ, {**given, "startingOffsets": "latest", "durability": "transient_local"}
        ).warnings
        assert [warning.split()[0] for warning in warnings] == ["durability=transient_local"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"event_time": "header.stamp"}, "event_time"),
        ({"recording": "a.mcap", "log_time": "true"}, "reception_timestamp"),
    ],
)
def test_columns_that_payloads_do_not_have(options: dict[str, str], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        parse(READ, {"payload": "binary", **options})
    parse(READ, options)
