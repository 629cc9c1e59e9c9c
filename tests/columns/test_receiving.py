"""The configuration of a receiver, as settings and plan ask for it."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path

import pyarrow as pa
import pytest

from spark_rtps.columns.receiving import receiver_config
from spark_rtps.columns.topic_plan import BINARY_SCHEMA, MANY_BINARY_SCHEMA, plan_reading
from spark_rtps.options.explanations import RECEIVER_HINTS
from spark_rtps.options.participants import node_config
from spark_rtps.options.settings import parse_options
from spark_rtps.options.spec import AppliesTo
from spark_rtps.transport.protocol.discovery.topic_selection import TopicSelection
from spark_rtps.transport.protocol.policies import CongestionControlPolicy
from spark_rtps.transport.receiver.config import ReceiverConfig

COLUMNS = pa.schema([("x", pa.int32())])


@pytest.mark.parametrize(("given", "recorded"), [(None, True), (True, True), (False, False)])
def test_types_of_writers_are_recorded_where_the_type_is_a_guess(given: bool | None, recorded: bool) -> None:
    settings = parse_options({"topic": "Square", "log.max_bytes": "128MiB"}, AppliesTo.READ)
    plan = plan_reading(settings, COLUMNS)
    config = receiver_config(settings, plan, Path("/logs/1"), records_writer_types=given)
    assert config.records_writer_types is recorded
    assert (config.log_directory, config.topic) == ("/logs/1", "Square")
    assert config.log_max_bytes == 128 << 20 and config.type_name is None


def test_no_types_are_recorded_where_nothing_is_decoded() -> None:
    settings = parse_options({"topic": "Square", "payload": "binary"}, AppliesTo.READ)
    config = receiver_config(settings, plan_reading(settings, BINARY_SCHEMA), Path("/logs/1"))
    assert not config.records_writer_types and config.type is None


#: Set by others, such as receiver services and sessions, or in place of the topic.
BY_OTHERS = {
    "log_reached",
    "log_goes_on_behind_loss",
    "retention",
    "retention_ns",
    "topics",
    "ended_logs_period_ns",
    "ended_logs_bytes",
}


@pytest.mark.parametrize("spy", [True, False])
def test_all_options_of_a_source_reach_its_receiver(spy: bool) -> None:
    """None of the fields is left at its default. The sink keeps the time of a spy, any other reader its own."""
    second = 1_000_000_000
    untethered = {"untethered_window_limit_timeout": "1s", "untethered_resting_timeout": "2s"}
    options = {
        "topic": "Square",
        "type.name": "ShapeType",
        "key": "x",
        "filter": "x > %0",
        "filter.parameters": "7",
        "slice": "1/2",
        "domain": "9",
        "qos.profile": "best_available",
        "history": "keep_last",
        "history.depth": "3",
        "congestion_control": "cubic",
        "congestion_control.measure_rtt": "true",
        "tether": "false",
        "flow_control.group_tag": "4",
        "flow_control.consumption": "committed",
        "accept_writer_removed_batch_samples": "true",
        "log.max_bytes": "128MiB",
        "log.segment_bytes": "1MiB",
        "log.mode": "0750",
        "on_log_full": "fail",
        **({"spy": "true"} if spy else untethered),
    }
    settings = parse_options(options, AppliesTo.READ)
    plan = plan_reading(settings, pa.schema([pa.field("x", pa.int32(), nullable=False)]))
    config = receiver_config(settings, plan, Path("/logs/1"), records_writer_types=True, ephemeral=True)
    assert config == ReceiverConfig.from_json(config.to_json())
    for each in fields(ReceiverConfig):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if each.name not in BY_OTHERS | {"announces_type"} | (set() if spy else {"spy"}):
            assert getattr(config, each.name) != default, each.name
    assert config.node == node_config(settings) and config.node.domain == 9
    assert config.qos == settings.qos and config.qos.history_depth == 3
    assert config.policy == settings.reader_policy
    policy = config.policy
    assert policy.congestion_control == CongestionControlPolicy("cubic", measure_rtt=True)
    assert (policy.tether, policy.group_tag) == (False, 4)
    if not spy:
        assert policy.untethered_window_limit_timeout == 1 * second
        assert policy.untethered_resting_timeout == 2 * second
    assert (config.consumption, config.spy, config.ephemeral) == ("committed", spy, True)
    assert (config.log_max_bytes, config.log_segment_bytes, config.log_mode) == (128 << 20, 1 << 20, 0o750)
    assert config.slice == settings.slice and config.filter == ("x > %0", ("7",))
    assert (config.keyed, config.reports_instances, config.type_name) == (True, True, "ShapeType")
    assert config.type is not None and config.accept_writer_removed_batch_samples
    assert config.hints == RECEIVER_HINTS


@pytest.mark.parametrize("announced", [True, False])
def test_a_type_is_announced_where_it_is_certain(announced: bool) -> None:
    options = {"topic": "Square", "type": "std_msgs/msg/Int32"} if announced else {"topic": "Square"}
    settings = parse_options(options, AppliesTo.READ)
    plan = plan_reading(settings, pa.schema([("data", pa.int32())]))
    assert receiver_config(settings, plan, Path("/logs/1")).announces_type is announced
    kept = parse_options({**options, "type.announce": "false"}, AppliesTo.READ)
    assert not receiver_config(kept, plan, Path("/logs/1")).announces_type


def test_several_topics_reach_the_receiver() -> None:
    """Of writers of several topics the log says who they are, whatever becomes of what they write."""
    settings = parse_options({"subscribePattern": "rt/.*", "payload": "binary"}, AppliesTo.READ)
    config = receiver_config(settings, plan_reading(settings, MANY_BINARY_SCHEMA), Path("/logs/1"))
    assert config.topics == settings.topics == TopicSelection(pattern="rt/.*")
    assert (config.topic, config.type_name, config.records_writer_types) == ("rt/.*", None, True)
