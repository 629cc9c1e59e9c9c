"""Options whose effect is elsewhere than in the rows: each is set through Spark, and seen where it has to arrive."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_rtps.transport.log.named_logs import directory_of_user
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.log.subscriber_slots import SubscriberSlot
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.protocol.writing.flow import Receiver
from tests.spark.spark_streams import DOMAIN, running, sink_options, source, wait_for_rows
from tests.spark.spark_views import source_counter
from tests.support.paced_reader import RELIABLE
from tests.support.stream_logs import POINT, encoded, points
from tests.support.surroundings import INTERFACE
from tests.support.waiting import PATIENCE, wait_until

COUNT = 200
KIB = 1 << 10
#: A publication log that readers, and spies, may map.
MAPPED = FlowControlPolicy(ipc=True, spies_simulate_connection=True, term_length=1 << 20)


def save(spark: SparkSession, topic: str, **options: object) -> None:
    written = spark.range(0, COUNT, 1, 1).selectExpr("CAST(id AS INT) AS id", "id / 2 AS x")
    given = sink_options(**{"key": None, "durability": "transient_local", **options})
    written.write.format("rtps").options(**given).mode("append").save(topic)


def unkeyed(spark: SparkSession, topic: str, log_dir: Path, **options: object) -> DataFrame:
    return source(spark, topic, log_dir, **{"key": None, "nullable": "required", **options})


@pytest.fixture(scope="module")
def mapping_node() -> Iterator[Node]:
    """A participant whose writers have publication logs that others map."""
    config = NodeConfig(domain=DOMAIN, interface=INTERFACE, participant_name="mapped", ipc=True)
    with contextlib.closing(Node.open(config).start()) as node:
        yield node


def published(node: Node, topic: str) -> BlockingWriter:
    return node.create_writer(
        WriterSpec(topic, POINT.name, RELIABLE, policy=PublicationPolicy(flow_control=MAPPED))
    )


def subscribers() -> list[SubscriberSlot]:
    """Who maps the publication logs of this host."""
    found: list[SubscriberSlot] = []
    for path in directory_of_user().glob("*.publication"):
        with contextlib.suppress(Exception):  # one that goes away
            found += PublicationLog.open(path).subscribers()
    return found


@pytest.mark.parametrize("tether", ["true", "false"])
def test_ipc_and_tether_of_a_source(spark, mapping_node, topic, log_dir, tmp_path, tether):
    writer = published(mapping_node, topic)
    df = unkeyed(spark, topic, log_dir, ipc="true", tether=tether)
    with running(df, tmp_path / "c") as query:
        wait_until(writer.has_ready_reader, "the reader")
        with mapping_node.lock:
            (guid,) = writer.writer.readers
        wait_until(lambda: guid in {slot.guid for slot in subscribers()}, "the reader in the writer's log")
        (slot,) = (slot for slot in subscribers() if slot.guid == guid)
        assert (slot.is_tethered, slot.is_spy) == (tether == "true", False)
        writer.write(encoded(points(0, COUNT)))
        assert wait_for_rows(spark, query, COUNT).count() == COUNT
    mapping_node.delete_endpoint(writer.guid)


def test_a_source_that_spies(spark, mapping_node, topic, log_dir, tmp_path):
    writer = published(mapping_node, topic)
    df = unkeyed(spark, topic, log_dir, spy="true")
    with running(df, tmp_path / "c") as query:
        wait_until(lambda: any(slot.is_spy for slot in subscribers()), "the spy in the writer's log")
        writer.write(encoded(points(0, COUNT)))
        assert wait_for_rows(spark, query, COUNT).count() == COUNT
        assert not writer.writer.readers
    mapping_node.delete_endpoint(writer.guid)


def test_a_sink_whose_log_can_be_spied_on(spark, topic, log_dir, tmp_path):
    df = unkeyed(spark, topic, log_dir, spy="true")
    with running(df, tmp_path / "c") as query:
        wait_until(lambda: log_dir.exists() and any(log_dir.iterdir()), "the spy")
        save(spark, topic, spies_simulate_connection="true")
        assert wait_for_rows(spark, query, COUNT).count() == COUNT


def test_ipc_of_a_sink(spark, topic, log_dir, tmp_path):
    df = unkeyed(spark, topic, log_dir, ipc="true")
    with running(df, tmp_path / "c") as query:
        save(spark, topic, ipc="true")
        assert wait_for_rows(spark, query, COUNT).count() == COUNT
        wait_until(lambda: subscribers(), "the source in the sink's log")
        assert not any(slot.is_spy for slot in subscribers())


def test_a_tagged_group(spark, topic, log_dir, tmp_path):
    """A sink that waits for a reader with a tag, and a source that has it."""
    tagged = {
        "flow_control__strategy": "tagged",
        "flow_control__group_tag": 7,
        "flow_control__group_min_size": 1,
        "connect_timeout": "500ms",
        "offer_timeout": "500ms",
    }
    without = unkeyed(spark, topic, log_dir / "without")
    with running(without, tmp_path / "c1") as query:
        wait_until(lambda: source_counter(topic, log_dir / "without", "log.heartbeat"), "the source")
        with pytest.raises(PySparkException, match=r"flow_control\.group_min_size"):
            save(spark, topic, **tagged)
        assert query.exception() is None
    df = unkeyed(spark, topic, log_dir / "with", flow_control__group_tag=7)
    with running(df, tmp_path / "c2") as query:
        wait_until(lambda: source_counter(topic, log_dir / "with", "log.heartbeat"), "the source")
        save(spark, topic, **{**tagged, "connect_timeout": "30s", "offer_timeout": "30s"})
        assert wait_for_rows(spark, query, COUNT).count() == COUNT


def test_a_congestion_control_measures_round_trips(spark, mapping_node, topic, log_dir, tmp_path):
    writer = published(mapping_node, topic)
    control = {"congestion_control": "cubic", "congestion_control__measure_rtt": "true"}
    with running(unkeyed(spark, topic, log_dir, **control), tmp_path / "c"):
        wait_until(writer.has_ready_reader, "the reader")
        writer.write(encoded(points(0, COUNT)))
        wait_until(lambda: source_counter(topic, log_dir, "reader.rtt_measurements"), "a round trip")
    mapping_node.delete_endpoint(writer.guid)


@pytest.mark.parametrize("consumption", ["committed", "logged"])
def test_consumption_is_what_spark_committed(spark, mapping_node, topic, log_dir, tmp_path, consumption):
    """A writer is held back while Spark has a micro-batch in hand; or only until its samples are logged."""
    writer = published(mapping_node, topic)
    window = {"congestion_control__max_window": "64KiB", "flow_control__consumption": consumption}
    gate, count = threading.Event(), 8_000
    df = unkeyed(spark, topic, log_dir, **window)
    query = (
        df.writeStream.foreachBatch(lambda batch, number: gate.wait(PATIENCE) and None)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(processingTime="0 seconds")
        .start()
    )

    def receiver() -> Receiver:
        with mapping_node.lock:
            (proxy,) = writer.writer.readers.values()
            return proxy.receiver

    def is_held_back() -> bool:
        """All that the window lets pass is in the source's log, and more waits."""
        logged = source_counter(topic, log_dir, "log.rows")
        with mapping_node.lock:
            sent, stopped_by = writer.writer.state.sent_sn, writer.writer.state.blocked_by
        return bool(stopped_by) and 0 < logged == sent < count

    try:
        wait_until(writer.has_ready_reader, "the reader")
        wait_until(lambda: not receiver().presumed, "its window")
        assert receiver().window <= 64 * KIB
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(writer.write, encoded(points(0, count)), timeout=PATIENCE)
            if consumption == "committed":
                wait_until(lambda: done.done() or is_held_back(), "the writer to be held back")
                assert not done.done() and receiver().position == 0
                gate.set()
            done.result(PATIENCE)
        gate.set()
        wait_until(lambda: source_counter(topic, log_dir, "log.rows") == count, "all rows")
    finally:
        gate.set()
        query.stop()
    mapping_node.delete_endpoint(writer.guid)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def metrics_of(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
        return text


def test_the_metrics_port_of_a_source_and_of_a_sink(spark, topic, log_dir, tmp_path):
    of_source, of_sink = free_port(), free_port()
    df = unkeyed(spark, topic, log_dir, metrics__port=of_source)
    with running(df, tmp_path / "c") as query:
        save(spark, topic, metrics__port=of_sink)
        wait_for_rows(spark, query, COUNT)
        assert f'topic="{topic}"' in metrics_of(of_source)
        assert f'topic="{topic}"' in metrics_of(of_sink)
