"""Columns alone, and payloads alone: a live Cyclone writer says what the type is called, and whether it has a key."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from spark_rtps.columns.decoding import decode_range
from spark_rtps.columns.topic_plan import BINARY_SCHEMA, METADATA_SCHEMA, TopicPlan, topic_type
from spark_rtps.datasource.batch_reader import RtpsBatchReader
from spark_rtps.datasource.receiver_session import ReceiverSession
from spark_rtps.datasource.schema import plan_source, to_spark
from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Part, Vehicle
from tests.support import domains
from tests.support.waiting import wait_until

DOMAIN = domains.INTEROP_NAMING
COLUMNS = StructType().add("speed", "double").add("id", "long")


@pytest.fixture(scope="module")
def peer() -> Iterator[CyclonePeer]:
    with CyclonePeer(DOMAIN) as peer:
        yield peer


def planned(
    directory: Path, topic: str, schema: StructType = COLUMNS, **options: object
) -> tuple[Settings, TopicPlan]:
    """What Spark's source is told, and what it makes of it."""
    given = {"topic": topic, "domain": DOMAIN, "interface": "lo", "log.dir": directory, **options}
    settings = parse_options({k: str(v) for k, v in given.items()}, AppliesTo.READ)
    return settings, plan_source(settings, schema)


def rows_of(receiving: ReceiverSession, plan: TopicPlan) -> list[dict[str, Any]]:
    """All that is in the log by now."""
    end, view = receiving.tail(), LogView(receiving.directory)
    batches = decode_range(view, Cursor(0), end, plan) if end > Cursor(0) else iter(())
    return [row for batch in batches for row in batch.to_pylist()]


def wait_for_rows(receiving: ReceiverSession, plan: TopicPlan, count: int) -> list[dict[str, Any]]:
    wait_until(lambda: receiving.counters()["log.rows"] >= count, f"{count} samples")
    return rows_of(receiving, plan)


def vehicles(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": i, "note": "n" * i, "speed": i / 2} for i in range(first, first + count)]


def as_columns(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"speed": row["speed"], "id": row["id"]} for row in rows]


@pytest.mark.parametrize("transient_local", [False, True])
def test_a_stream_that_starts_before_its_writer(
    peer: CyclonePeer, topic: str, tmp_path: Path, transient_local: bool
) -> None:
    """It takes the history of a writer that keeps one; killed, the receiver goes on under the same name."""
    starting = {"startingOffsets": "earliest"} if transient_local else {}
    settings, plan = planned(tmp_path, topic, **starting)
    receiving = ReceiverSession.on_new_log(settings, plan)
    try:
        peer.writer(topic, Vehicle, transient_local=transient_local)
        if not transient_local:
            peer.wait_for_match(topic)
        peer.write(topic, vehicles(0, 5))
        assert as_columns(vehicles(0, 5)) == wait_for_rows(receiving, plan, 5)
        assert LogView(receiving.directory).metadata["type"] == "interop::Vehicle"
        (guid,) = peer.matched(topic)
        os.kill(receiving._receiver.pid, signal.SIGKILL)
        wait_until(lambda: receiving.tail() and receiving.supervision.deaths, "another receiver")
        peer.write(topic, vehicles(5, 5))
        assert as_columns(vehicles(0, 10)) == wait_for_rows(receiving, plan, 10)
        assert peer.matched(topic) == [guid]
    finally:
        receiving.stop()


def test_ends_of_instances(peer: CyclonePeer, topic: str, tmp_path: Path) -> None:
    """Nobody said the key; the type that the writer tells does."""
    schema = StructType([*COLUMNS.fields]).add("_rtps", to_spark(METADATA_SCHEMA))
    settings, plan = planned(tmp_path, topic, schema, metadata=True)
    receiving = ReceiverSession.on_new_log(settings, plan)
    try:
        peer.writer(topic, Vehicle)
        peer.wait_for_match(topic)
        peer.write(topic, vehicles(7, 1))
        peer.write(topic, vehicles(7, 1), "dispose")
        found = wait_for_rows(receiving, plan, 2)
    finally:
        receiving.stop()
    states = [(row["speed"], row["id"], row["_rtps"]["instance_state"]) for row in found]
    assert states == [(3.5, 7, "ALIVE"), (None, 7, "NOT_ALIVE_DISPOSED")]


def test_a_batch_read(peer: CyclonePeer, topic: str, tmp_path: Path) -> None:
    peer.writer(topic, Vehicle, transient_local=True)
    peer.write(topic, vehicles(0, 3))
    options = {"startingOffsets": "earliest", "read.max_rows": 3, "read.timeout": "60s"}
    reader = RtpsBatchReader(*planned(tmp_path, topic, **options))
    found = [row for batch in reader.read(reader.partitions()[0]) for row in batch.to_pylist()]
    assert found == as_columns(vehicles(0, 3))


def test_payloads_of_a_writer_that_comes_later(peer: CyclonePeer, topic: str, tmp_path: Path) -> None:
    settings, plan = planned(tmp_path, topic, to_spark(BINARY_SCHEMA), payload="binary")
    assert topic_type(settings) is None  # nobody is asked, and nobody waited for
    receiving = ReceiverSession.on_new_log(settings, plan)
    try:
        peer.writer(topic, Part)
        peer.wait_for_match(topic)
        peer.write(topic, [{"plant": "p", "number": 1, "weight": 0.5}])
        (row,) = wait_for_rows(receiving, plan, 1)
    finally:
        receiving.stop()
    assert (row["encapsulation"], row["instance_state"]) == ("CDR_LE", "ALIVE")
    assert row["value"][4:10] == b"\x02\0\0\0p\0"
