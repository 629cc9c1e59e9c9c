"""Where an option ends up: each field of each policy has one, with the policy's own default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import pytest

from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.options.policies import (
    BATCH_FIELDS,
    CONGESTION_FIELDS,
    FLOW_CONTROL_FIELDS,
    FLOW_FIELDS,
    READER_FIELDS,
    TYPE_CONSISTENCY_FIELDS,
    WRITER_FIELDS,
)
from spark_rtps.options.table import OPTIONS
from spark_rtps.transport.limits import UDP_PAYLOAD_MAX
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    BatchWire,
    Compression,
    CongestionControlPolicy,
    FlowControllerPolicy,
    FlowControlPolicy,
    ReaderPolicy,
    Scheduling,
    WriterPolicy,
)
from spark_rtps.transport.protocol.writing.flow.token_bucket import FIXED_RATE
from spark_rtps.transport.qos import (
    DestinationOrderKind,
    DurabilityKind,
    HistoryKind,
    PresentationScope,
    Qos,
    TypeConsistency,
    TypeConsistencyKind,
)
from spark_rtps.transport.structure import INFINITE

#: What a reader does by itself: no options.
INTERNAL = {"nack_delay", "reorder_delay", "preemptive_period", "preemptive_period_max"}


def read(**options: str) -> Settings:
    return _parse(options, AppliesTo.READ)


def write(**options: str) -> Settings:
    return _parse(options, AppliesTo.WRITE)


def _parse(options: dict[str, str], role: AppliesTo) -> Settings:
    return parse_options({"topic": "T", **{k.replace("__", "."): v for k, v in options.items()}}, role)


def names(policy: type) -> set[str]:
    return {field.name for field in fields(policy)}


class TestFields:
    def test_every_field_has_an_option(self) -> None:
        assert set(READER_FIELDS) == names(ReaderPolicy) - INTERNAL
        assert set(WRITER_FIELDS) == names(WriterPolicy)
        assert set(BATCH_FIELDS) == names(BatchPolicy)
        assert set(FLOW_FIELDS) == names(FlowControllerPolicy)
        assert set(FLOW_CONTROL_FIELDS) == names(FlowControlPolicy)
        assert set(CONGESTION_FIELDS) == names(CongestionControlPolicy)

    def test_every_option_of_a_policy_is_a_field(self) -> None:
        taken = {
            *READER_FIELDS.values(),
            *WRITER_FIELDS.values(),
            *BATCH_FIELDS.values(),
            *FLOW_FIELDS.values(),
            *FLOW_CONTROL_FIELDS.values(),
            *CONGESTION_FIELDS.values(),
        }
        prefixes = ("reliable_reader.", "reliable_writer.", "batch.", "flow_controller.", "flow_control.")
        prefixes += ("congestion_control", "publication.", "untethered_")  # type: ignore[assignment]
        listed = {spec.name for spec in OPTIONS if spec.name.startswith(prefixes)}
        assert listed - taken == {"batch.interceptor", "flow_control.consumption"}
        batches = {"turbo_mode", "disable_inline_keyhash", "max_batches", "data_compression"}
        on_one_host = {"ipc", "spies_simulate_connection", "tether"}
        assert taken - listed == batches | on_one_host | {"status_message_timeout"}

    def test_defaults_are_the_policies(self) -> None:
        settings = write()
        assert settings.writer_policy == WriterPolicy()
        assert settings.batch == BatchPolicy(max_data_bytes=INFINITE)  # auto: what a datagram holds
        assert settings.flow_controller is None
        assert settings.flow_control == FlowControlPolicy(term_length=32 << 20)
        assert read().reader_policy == ReaderPolicy()
        assert write(publish_mode="asynchronous").flow_controller == FlowControllerPolicy()

    def test_defaults_of_the_rest(self) -> None:
        for settings in (read(), write()):
            assert settings.mtu is None
            assert settings.message_size_max == UDP_PAYLOAD_MAX
            assert settings.interceptor is None
            assert settings.coalescing is True
            assert settings.accept_writer_removed_batch_samples is False
            assert settings.transport_priority == 0
            assert settings.warnings == ()


class TestValues:
    @pytest.mark.parametrize("field", sorted(WRITER_FIELDS))
    def test_a_writer_field(self, field: str) -> None:
        text, value = _other(WriterPolicy(), field, WRITER_FIELDS)
        settings = write(**{WRITER_FIELDS[field]: text}, **_room(field))
        assert getattr(settings.writer_policy, field) == value

    @pytest.mark.parametrize("field", sorted(set(READER_FIELDS) - {"congestion_control"}))
    def test_a_reader_field(self, field: str) -> None:
        text, value = _other(ReaderPolicy(), field, READER_FIELDS)
        settings = read(**{READER_FIELDS[field]: text}, **_room(field))
        assert getattr(settings.reader_policy, field) == value

    def test_batch(self) -> None:
        settings = write(
            batch__enable="true",
            batch__max_data_bytes="8KiB",
            batch__max_samples="100",
            batch__max_flush_delay="5ms",
            batch__source_timestamp_resolution="0s",
            batch__wire="data_batch",
            batch__auto_flush_size="4KiB",
            batch__compression="zstd",
            batch__compression_level="7",
            batch__compression_threshold="1KiB",
            disable_inline_keyhash="true",
            max_batches="12",
        )
        assert settings.batch == BatchPolicy(
            enable=True,
            max_data_bytes=8192,
            max_samples=100,
            max_flush_delay=5_000_000,
            source_timestamp_resolution=0,
            wire=BatchWire.DATA_BATCH,
            auto_flush_size=4096,
            compression=Compression.ZSTD,
            compression_level=7,
            compression_threshold=1024,
            disable_inline_keyhash=True,
            max_batches=12,
        )

    def test_unsafe_writes(self) -> None:
        options = {"batch__enable": "true", "batch__thread_safe_write": "false"}
        assert write(**options).batch.thread_safe_write is False
        assert not write(
            **options, async_publisher__disable_asynchronous_batch="true"
        ).batch.thread_safe_write

    def test_flow_controller(self) -> None:
        settings = write(
            publish_mode="asynchronous",
            flow_controller__name="slow",
            flow_controller__scheduling="highest_priority_first",
            flow_controller__token_bucket__max_tokens="10",
            flow_controller__token_bucket__tokens_added_per_period="5",
            flow_controller__token_bucket__tokens_leaked_per_period="1",
            flow_controller__token_bucket__period="10ms",
            flow_controller__token_bucket__bytes_per_token="1KiB",
            transport_priority="-4",
        )
        assert settings.flow_controller == FlowControllerPolicy(
            name="slow",
            scheduling=Scheduling.HIGHEST_PRIORITY_FIRST,
            max_tokens=10,
            tokens_added_per_period=5,
            tokens_leaked_per_period=1,
            period=10_000_000,
            bytes_per_token=1024,
        )
        assert settings.transport_priority == -4

    def test_a_predefined_flow_controller_keeps_what_is_not_set(self) -> None:
        options = {"publish_mode": "asynchronous", "flow_controller__name": "fixed_rate"}
        assert write(**options).flow_controller == FIXED_RATE
        slower = write(**options, flow_controller__token_bucket__period="3s").flow_controller
        assert slower == replace(FIXED_RATE, period=3_000_000_000)

    def test_windows_without_an_end(self) -> None:
        policy = write(reliable_writer__max_send_window_size="64").writer_policy
        assert (policy.min_send_window_size, policy.max_send_window_size) == (INFINITE, 64)
        assert write(reliable_writer__min_send_window_size="4").writer_policy.max_send_window_size == INFINITE

    def test_heartbeats_are_at_most_one_a_sample(self) -> None:
        policy = write(reliable_writer__max_send_window_size="3").writer_policy
        assert policy.heartbeats_per_max_samples == 3

    def test_datagrams(self) -> None:
        settings = read(mtu="9000", message_size_max="32KiB", accept_writer_removed_batch_samples="true")
        assert (settings.mtu, settings.message_size_max) == (9000, 32768)
        assert settings.accept_writer_removed_batch_samples
        assert read(mtu="auto").mtu is None
        assert write(coalescing="false").coalescing is False


class TestQos:
    def test_qos_of_a_reader(self) -> None:
        qos = read(
            history__depth="5",
            resource_limits__max_samples="50",
            resource_limits__max_instances="7",
            resource_limits__max_samples_per_instance="6",
            deadline="3s",
            time_based_filter="1s",
            destination_order="by_source_timestamp",
            destination_order__source_timestamp_tolerance="2s",
            presentation__access_scope="topic",
            presentation__coherent_access="true",
            presentation__ordered_access="true",
            ownership="exclusive",
        ).qos
        assert (qos.history, qos.history_depth) == (HistoryKind.KEEP_LAST, 5)
        assert (qos.max_samples, qos.max_instances, qos.max_samples_per_instance) == (50, 7, 6)
        assert (qos.deadline, qos.time_based_filter) == (3_000_000_000, 1_000_000_000)
        assert qos.destination_order is DestinationOrderKind.BY_SOURCE_TIMESTAMP
        assert qos.source_timestamp_tolerance == 2_000_000_000
        assert qos.presentation_scope is PresentationScope.TOPIC
        assert qos.coherent_access and qos.ordered_access

    def test_qos_of_a_writer(self) -> None:
        qos = write(
            max_blocking_time="2s",
            lifespan="4s",
            ownership__strength="9",
            user_data="u",
            topic_data="t",
            group_data="0x67",
        ).qos
        assert (qos.max_blocking_time, qos.lifespan, qos.ownership_strength) == (2 * 10**9, 4 * 10**9, 9)
        assert (qos.user_data, qos.topic_data, qos.group_data) == (b"u", b"t", b"g")

    @pytest.mark.parametrize("word", ["transient", "persistent"])
    def test_words_of_durability(self, word: str) -> None:
        kind = DurabilityKind[word.upper()]
        assert write(durability=word).qos.durability is kind
        assert read(durability=word, startingOffsets="earliest").qos.durability is kind

    def test_defaults(self) -> None:
        plain = {"max_blocking_time", "reliability", "history", "data_representation"}
        for settings in (read(), write()):
            for field in names(Qos) - plain:
                assert getattr(settings.qos, field) == getattr(Qos(), field), field
            assert settings.qos.history is HistoryKind.KEEP_ALL


def _other(policy: object, field: str, options: Mapping[str, str]) -> tuple[str, object]:
    """A text for another value than the default, and that value."""
    (spec,) = [s for s in OPTIONS if s.name == options[field]]
    value = getattr(policy, field)
    if isinstance(value, bool):
        return ("false" if value else "true"), not value
    if spec.kind.name == "DURATION":
        return "700ms", 700_000_000
    if spec.maximum is not None:
        return str(spec.maximum), spec.maximum
    return "12", 12


def _room(field: str) -> dict[str, str]:
    """The other end of a range, far enough away."""
    return {
        "fast_heartbeat_period": {"reliable_writer.heartbeat_period": "1s"},
        "round_trip_time": {"reliable_reader.nack_period": "1s"},
        "min_nack_response_delay": {"reliable_writer.max_nack_response_delay": "1s"},
        "inactivate_nonprogressing_readers": {"reliable_writer.max_heartbeat_retries": "9"},
        "min_heartbeat_response_delay": {"reliable_reader.max_heartbeat_response_delay": "1s"},
    }.get(field, {})


def test_type_consistency() -> None:
    assert read().qos.type_consistency == TypeConsistency()
    given = {
        "type_consistency__kind": "DISALLOW_TYPE_COERCION",
        "type_consistency__ignore_sequence_bounds": "false",
        "type_consistency__ignore_string_bounds": "false",
        "type_consistency__ignore_member_names": "true",
        "type_consistency__prevent_type_widening": "true",
        "type_consistency__force_type_validation": "true",
    }
    assert set(TYPE_CONSISTENCY_FIELDS.values()) == {key.replace("__", ".") for key in given}
    disallow = TypeConsistencyKind.DISALLOW_TYPE_COERCION
    assert read(**given).qos.type_consistency == TypeConsistency(disallow, False, False, True, True, True)
