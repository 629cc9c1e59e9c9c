"""Options whose effect is elsewhere than in the rows: each is set through Spark, and seen where it has to arrive."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.named_logs import directory_of_user
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.log.subscriber_slots import SubscriberSlot
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import FlowControlPolicy, PublicationPolicy
from spark_rtps.transport.types.cdr.codec import Codec
from tests.spark.spark_streams import DOMAIN, running, sink_options, source, wait_for_rows
from tests.support.paced_reader import RELIABLE
from tests.support.stream_logs import POINT, encoded, points
from tests.support.surroundings import INTERFACE
from tests.support.waiting import PATIENCE, wait_until

COUNT = 200
#: A publication log that readers, and spies, may map.
MAPPED = FlowControlPolicy(ipc=True, spies_simulate_connection=True, term_length=1 << 20)


def save(spark: SparkSession, topic: str, **options: object) -> None:
    written = spark.range(0, COUNT, 1, 1).selectExpr("CAST(id AS INT) AS id", "id / 2 AS x")
    given = sink_options(**{"durability": "transient_local", **options})
    written.write.format("rtps").options(**given).mode("append").save(topic)


@pytest.fixture(scope="module")
def mapping_node() -> Iterator[Node]:
    """A participant whose writers have publication logs that others map."""
    config = NodeConfig(domain=DOMAIN, interface=INTERFACE, participant_name="mapped", ipc=True)
    with contextlib.closing(Node.open(config).start()) as node:
        yield node


def published(node: Node, topic: str) -> BlockingWriter:
    policy = PublicationPolicy(flow_control=MAPPED)
    return node.create_writer(WriterSpec(topic, POINT.name, RELIABLE, keyed=POINT.is_keyed, policy=policy))


def write(writer: BlockingWriter, count: int) -> None:
    batch = points(0, count)
    hashes = Codec(POINT).key_hashes(batch) if POINT.is_keyed else None
    writer.write_samples(encoded(batch), key_hashes=hashes, timeout=PATIENCE)


def subscribers() -> list[SubscriberSlot]:
    """Who maps the publication logs of this host."""
    found: list[SubscriberSlot] = []
    for path in directory_of_user().glob("*.publication"):
        with contextlib.suppress(Exception):  # one that goes away
            found += PublicationLog.open(path).subscribers()
    return found


@pytest.mark.parametrize("tether", ["true", "false"])
def test_ipc_and_tether_of_a_source(
    spark: SparkSession, mapping_node: Node, topic: str, log_dir: Path, tmp_path: Path, tether: str
) -> None:
    writer = published(mapping_node, topic)
    df = source(spark, topic, log_dir, ipc="true", tether=tether)
    with running(df, tmp_path / "c") as query:
        wait_until(writer.readers.has_ready, "the reader")
        with mapping_node.lock:
            (guid,) = writer.writer.readers
        wait_until(lambda: guid in {slot.guid for slot in subscribers()}, "the reader in the writer's log")
        (slot,) = (slot for slot in subscribers() if slot.guid == guid)
        assert (slot.is_tethered, slot.is_spy) == (tether == "true", False)
        write(writer, COUNT)
        assert wait_for_rows(spark, query, COUNT).count() == COUNT
    mapping_node.delete_endpoint(writer.guid)


def test_a_sink_whose_log_can_be_spied_on(
    spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    df = source(spark, topic, log_dir, spy="true")
    with running(df, tmp_path / "c") as query:
        wait_until(lambda: log_dir.exists() and any(log_dir.iterdir()), "the spy")
        save(spark, topic, spies_simulate_connection="true")
        assert wait_for_rows(spark, query, COUNT).count() == COUNT


def test_ipc_of_a_sink(spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path) -> None:
    df = source(spark, topic, log_dir, ipc="true")
    with running(df, tmp_path / "c") as query:
        save(spark, topic, ipc="true")
        assert wait_for_rows(spark, query, COUNT).count() == COUNT
        (log,) = log_dir.iterdir()
        receiver = bytes.fromhex(str(LogView(log).metadata["guid_prefix"]))

        def slots() -> list[SubscriberSlot]:
            """Of the source; other tests, on this host at the same time, have spies."""
            return [slot for slot in subscribers() if slot.guid.prefix == receiver]

        wait_until(slots, "the source in the sink's log")
        assert not any(slot.is_spy for slot in slots())
