"""Options of flow control, of multicast and of metrics: each is set through Spark, and seen where it has to arrive."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.policies import CongestionControlPolicy, ReaderPolicy
from tests.spark import flow_plugins
from tests.spark.spark_streams import DOMAIN, Publisher, running, sink_options, source, wait_for_rows
from tests.spark.spark_views import source_counter
from tests.spark.test_flow_plugins import reported
from tests.support.paced_reader import PacedReader
from tests.support.stream_logs import POINT, points
from tests.support.surroundings import INTERFACE, IS_CLUSTER
from tests.support.waiting import PATIENCE, wait_until

COUNT = 200
KIB = 1 << 10
GROUP = "239.255.0.44"


@pytest.fixture
def nodes() -> Iterator[Callable[..., Node]]:
    """Participants beside Spark."""
    with contextlib.ExitStack() as opened:

        def open_node(**config: Any) -> Node:
            node = Node.open(NodeConfig(domain=DOMAIN, interface=INTERFACE, **config)).start()
            opened.callback(node.close)
            return node

        yield open_node


class Gate:
    """A query's batches wait here until it is opened; ``ids`` are those of the rows that passed."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.is_reached = threading.Event()
        self.ids: list[int] = []

    def __call__(self, batch: DataFrame, _batch_id: int) -> None:
        ids = [row.id for row in batch.collect()]
        if ids:
            self.is_reached.set()
            assert self._open.wait(PATIENCE)
        self.ids += ids

    def open(self) -> None:
        self._open.set()


@contextlib.contextmanager
def gated(df: DataFrame, checkpoint: Any) -> Iterator[Gate]:
    gate = Gate()
    query = df.writeStream.foreachBatch(gate).option("checkpointLocation", str(checkpoint)).start()
    try:
        yield gate
    finally:
        gate.open()
        query.stop()


def save(spark: SparkSession, topic: str, **options: object) -> None:
    written = spark.range(0, COUNT, 1, 1).selectExpr("CAST(id AS INT) AS id", "id / 2 AS x")
    written.write.format("rtps").options(**sink_options(**options)).mode("append").save(topic)


def receivers(publisher: Publisher) -> list[tuple[int, int | None]]:
    """Window and tag of each reader, as it reported them."""
    with publisher.writer.node.lock:
        found = [proxy.receiver for proxy in publisher.writer.writer.readers.values()]
    return [(each.window, each.group_tag) for each in found if not each.presumed]


@pytest.mark.parametrize("kind", ["static", "cubic"])
def test_congestion_control_and_tag_of_a_source(
    spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path, kind: str
) -> None:
    paced = {
        "congestion_control": kind,
        "congestion_control__initial_window": "64KiB",
        "congestion_control__max_window": "256KiB",
        "congestion_control__measure_rtt": "true",
        "flow_control__group_tag": "5",
    }
    with running(source(spark, topic, log_dir, **paced), tmp_path / "c") as query:
        publisher.wait_for_readers()
        wait_until(lambda: [tag for _, tag in receivers(publisher)] == [5], "the tag")
        ((first, _),) = receivers(publisher)
        # cubic counts in whole datagrams
        assert first == 64 * KIB if kind == "static" else 60 * KIB < first <= 64 * KIB
        written = 4 * COUNT
        publisher.write(points(0, written))
        assert wait_for_rows(spark, query, written).count() == written

        def is_larger() -> bool:
            nonlocal written
            publisher.write(points(written, written + COUNT))
            written += COUNT
            return all(window > 80 * KIB for window, _ in receivers(publisher))

        if kind == "cubic":
            wait_until(is_larger, "slow start")
            assert all(window <= 256 * KIB for window, _ in receivers(publisher))
        else:
            assert [window for window, _ in receivers(publisher)] == [64 * KIB]
        wait_until(lambda: source_counter(topic, log_dir, "reader.rtt_measurements"), "a round trip")


@pytest.mark.parametrize("consumption", ["logged", "committed"])
def test_consumption_is_counted_as_configured(
    spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path, consumption: str
) -> None:
    df = source(spark, topic, log_dir, flow_control__consumption=consumption)

    def consumed() -> int:
        with publisher.writer.node.lock:
            (proxy,) = publisher.writer.writer.readers.values()
            return proxy.consumed

    with gated(df, tmp_path / "c") as gate:
        publisher.write(points(0, COUNT))  # which is acknowledged then, and so in the log
        assert gate.is_reached.wait(PATIENCE)
        if consumption == "committed":
            assert consumed() == 0
            gate.open()
        wait_until(lambda: consumed() == COUNT, "the report")
        assert bool(gate.ids) == (consumption == "committed")


def test_an_untethered_source_is_let_go_by_its_times(
    spark: SparkSession, nodes: Callable[..., Node], topic: str, log_dir: Path, tmp_path: Path
) -> None:
    """By the default times it would be let go after five seconds, and rejoin fifteen later."""
    publisher = Publisher(nodes(), topic)
    # what one reader allows is allowed until the next one is let go, so it is no more than what the other allows
    policy = ReaderPolicy(congestion_control=CongestionControlPolicy(max_window=16 * KIB))
    other = PacedReader(nodes(), topic, POINT.name, keyed=POINT.is_keyed, policy=policy)
    untethered = {
        "tether": "false",
        "untethered_window_limit_timeout": "50ms",
        "untethered_resting_timeout": "50ms",
        "flow_control__consumption": "committed",
        "congestion_control__max_window": "16KiB",
    }
    written = 0
    with gated(source(spark, topic, log_dir, **untethered), tmp_path / "c") as gate:
        publisher.wait_for_readers(2)

        def times_let_go() -> int:
            nonlocal written
            publisher.write_unread(points(written, COUNT))
            written += COUNT
            return source_counter(topic, log_dir, "reader.unavailable")

        wait_until(lambda: times_let_go() >= 8, "the source to be let go")
        gate.open()
        let_go_at = written
        wait_until(lambda: times_let_go() and gate.ids and gate.ids[-1] > let_go_at, "the newest")
        assert source_counter(topic, log_dir, "reader.lost_samples")
    wait_until(lambda: other.count == written, "all that was written")


def test_the_group_of_a_sink(spark: SparkSession, nodes: Callable[..., Node], topic: str) -> None:
    tagged = ReaderPolicy(group_tag=5)
    reader = PacedReader(nodes(), topic, POINT.name, keyed=POINT.is_keyed, policy=tagged)
    group = {"flow_control__strategy": "tagged", "flow_control__group_tag": "5", "connect_timeout": "60s"}
    for missing in ({"flow_control__group_tag": "6"}, {"flow_control__group_min_size": "2"}):
        given = {**group, "flow_control__group_min_size": "1", "offer_timeout": "1s", **missing}
        with pytest.raises(PySparkException, match="group_min_size"):
            save(spark, topic, **given)
    save(spark, topic, **group, flow_control__group_min_size="1")
    assert reader.count == COUNT


def test_a_sink_sends_to_a_group_by_default(
    spark: SparkSession, nodes: Callable[..., Node], topic: str
) -> None:
    readers = [
        PacedReader(nodes(multicast_receive=GROUP), topic, POINT.name, keyed=POINT.is_keyed) for _ in range(2)
    ]
    notes = flow_plugins.notes(topic)
    spark.sparkContext.addPyFile(flow_plugins.__file__)
    paced = {"flow_control__multicast_strategy": "flow_plugins:Noted", "connect_timeout": "60s"}
    for send, received in (("off", COUNT), ("auto", 2 * COUNT)):
        notes.unlink(missing_ok=True)
        save(spark, topic, multicast__send=send, **paced)
        assert [reader.count for reader in readers] == [received] * 2
        # the strategy of groups is asked only while there is one
        asked = notes.exists() and any("receivers" in note for note in reported(notes))
        assert asked == (send == "auto")
    notes.unlink()


def test_a_source_receives_by_a_group(
    spark: SparkSession, nodes: Callable[..., Node], topic: str, log_dir: Path, tmp_path: Path
) -> None:
    publisher = Publisher(nodes(), topic)
    other = PacedReader(nodes(multicast_receive=GROUP), topic, POINT.name, keyed=POINT.is_keyed)
    with running(source(spark, topic, log_dir, multicast__receive=GROUP), tmp_path / "c") as query:
        publisher.write(points(0, COUNT), readers=2)
        assert publisher.writer.writer.channel == "multicast"
        assert wait_for_rows(spark, query, COUNT).count() == COUNT == other.count


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def shows(port: int, kind: str, topic: str) -> bool:
    """Whether an exporter listens there which has metrics of such a stream."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return False
    return any(f'kind="{kind}"' in line and f'topic="{topic}"' in line for line in lines)


@pytest.mark.skipif(IS_CLUSTER, reason="the sink's exporter is on another host")
def test_metrics_of_a_source_and_of_a_sink(
    spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    of_source, of_sink = free_port(), free_port()
    with running(source(spark, topic, log_dir, metrics__port=of_source), tmp_path / "c") as query:
        save(spark, topic, metrics__port=of_sink, connect_timeout="60s")
        wait_for_rows(spark, query, COUNT)
        wait_until(lambda: shows(of_source, "source", topic), "the source")
        wait_until(lambda: shows(of_sink, "sink", topic), "the sink")
