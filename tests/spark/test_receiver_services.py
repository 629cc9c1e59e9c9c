"""Queries of receiver services through real Spark: two ``spark-rtps receive``, which outlive the queries."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_rtps.columns.topic_plan import METADATA_DDL
from spark_rtps.transport.net.node import Node
from tests.spark.spark_streams import DOMAIN, POINT_DDL, Publisher, wait_for_rows
from tests.spark.spark_streams import running as running_into_memory
from tests.support.receive_command import Receive
from tests.support.stream_logs import points
from tests.support.surroundings import INTERFACE, IS_CLUSTER
from tests.support.waiting import wait_until

# its server listens on loopback, which executors elsewhere do not reach: tests/cluster has them on other hosts
pytestmark = pytest.mark.skipif(IS_CLUSTER, reason="for Spark on this host; tests/cluster has its own")


ADMIN = "of-who-may-add-subscriptions-0123456789"
TOKEN = "of-all-receivers-of-a-query-0123456789"


@pytest.fixture
def receivers(tmp_path: Path, topic: str) -> Iterator[dict[str, Receive]]:
    """Two receivers of one topic, named one and two."""
    for role, token in (("commit", TOKEN), ("admin", ADMIN)):
        (tmp_path / role).write_text(token)
        (tmp_path / role).chmod(0o600)
    text = (
        f'[tokens]\ncommit = "{tmp_path}/commit"\nadmin = "{tmp_path}/admin"\n'
        f'[subscriptions.points]\ntopic = "{topic}"\ntype = "Point"\nkeyed = "true"\n'
        'reliability = "reliable"\nhistory = "keep_all"\n'
    )
    found: dict[str, Receive] = {}
    try:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            found[name] = Receive(tmp_path / name, DOMAIN, free_port())
            found[name].start(text)
        yield found
    finally:
        for each in found.values():
            each.close()


def options_of(receivers: dict[str, Receive], topic: str, **options: object) -> dict[str, str]:
    given = {
        "domain": DOMAIN,
        "receivers": ",".join(f"{name}=127.0.0.1:{each.port}" for name, each in receivers.items()),
        "receiver.token": TOKEN,
        "type": "Point",
        "key": "id",
        **options,
    }
    return {key: str(value) for key, value in given.items()}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_every_row_comes_once_over_kills_and_restarts(
    spark: SparkSession, publisher: Publisher, topic: str, receivers: dict[str, Receive], tmp_path: Path
) -> None:
    options = options_of(receivers, topic, startingOffsets="earliest")

    @contextlib.contextmanager
    def running() -> Iterator[StreamingQuery]:
        df = spark.readStream.format("rtps").schema(POINT_DDL).options(**options).load(topic)
        writer = df.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start(str(tmp_path / "output"))
        try:
            yield query
        finally:
            query.stop()

    def found(query: StreamingQuery) -> list[int]:
        query.processAllAvailable()
        return numbers(spark.read.schema(POINT_DDL).parquet(str(tmp_path / "output")))

    def write(first: int) -> None:
        publisher.write(points(first, 500), readers=2)

    write(0)
    with running() as query:
        wait_until(lambda: found(query) == twice(500), "every row once, of both")
        receivers["one"].kill(signal.SIGKILL)
        receivers["one"].start_again()
        write(500)
        wait_until(lambda: found(query) == twice(1000), "every row once, of both")
    write(1000)  # nobody reads
    with running() as query:
        wait_until(lambda: found(query) == twice(1500), "every row once, of both")


def twice(count: int) -> list[int]:
    """Both receivers have every sample."""
    return sorted([*range(count), *range(count)])


def test_the_recorded_past_by_time(
    spark: SparkSession, publisher: Publisher, topic: str, receivers: dict[str, Receive]
) -> None:
    ddl = f"{POINT_DDL}, {METADATA_DDL}"
    reader = spark.read.format("rtps").schema(ddl).options(**options_of(receivers, topic))
    for first in range(0, 100, 10):
        publisher.write(points(first, 10), readers=2)
    wait_until(lambda: reader.load(topic).count() == 200, "all rows", every=0.2)
    recorded = {row.id: row._rtps.reception_timestamp for row in reader.load(topic).collect()}
    since = recorded[40]
    at = since.replace(tzinfo=UTC).isoformat()
    later = reader.option("startingTimestamp", at).load(topic)
    assert {row.id for row in later.collect()} >= set(range(50, 100))
    earlier = (
        spark.read.format("rtps")
        .schema(ddl)
        .options(**options_of(receivers, topic, endingTimestamp=at))
        .load(topic)
    )
    assert set(numbers(earlier)) >= set(range(40))
    assert not set(numbers(earlier)) & set(range(50, 100))


def test_queries_bring_their_subscription_and_share_it(
    spark: SparkSession, publisher: Publisher, topic: str, receivers: dict[str, Receive], tmp_path: Path
) -> None:
    qos = {"history": "keep_last", "history.depth": 1000, "startingOffsets": "earliest"}
    given = {**qos, "receiver.subscribe": "true", "receiver.token": ADMIN, "filter": "x >= 20"}
    df = spark.readStream.format("rtps").schema(POINT_DDL).options(**options_of(receivers, topic, **given))
    streams = [running_into_memory(df.load(topic), tmp_path / name) for name in "ab"]
    with streams[0] as one, streams[1] as two:
        publisher.write(points(0, 100), readers=4)  # of both receivers: the file's, and one for both queries
        for query in (one, two):
            assert numbers(wait_for_rows(spark, query, 120)) == sorted([*range(40, 100)] * 2)


def test_topics_share_a_subscription(
    spark: SparkSession, node: Node, topic: str, receivers: dict[str, Receive], tmp_path: Path
) -> None:
    """A query asks for a pattern, topics join while it runs, and a batch of one type reads what was recorded."""
    two, late = f"{topic}/two", f"{topic}/late"
    publishers = {name: Publisher(node, name) for name in (f"{topic}/one", two)}
    given = {"receiver.subscribe": "true", "receiver.token": ADMIN, "startingOffsets": "earliest"}
    given |= {"subscribePattern": f"{topic}/.*", "interface": INTERFACE}
    options = {
        key: text for key, text in options_of(receivers, topic, **given).items() if key not in ("type", "key")
    }
    raw = spark.readStream.format("rtps").options(**options, payload="binary").load()
    with running_into_memory(raw, tmp_path / "raw") as query:
        for first, each in zip((0, 100), publishers.values(), strict=True):
            each.write(points(first, 50), readers=2)  # of both receivers
        wait_for_rows(spark, query, 200)
        publishers[late] = Publisher(node, late)
        publishers[late].write(points(200, 50), readers=2)
        rows = wait_for_rows(spark, query, 300)
        reported = {
            (row.topic, row.type_name): row["count"]
            for row in rows.groupBy("topic", "type_name").count().collect()
        }
    assert reported == {(name, "Point"): 100 for name in publishers}
    typed = spark.read.format("rtps").schema(f"topic STRING, {POINT_DDL}").options(**options).load()
    assert numbers(typed.where(f"topic = '{two}'")) == sorted([*range(100, 150)] * 2)
    assert typed.count() == 300


def test_slices_have_to_be_there_once(
    spark: SparkSession, node: Node, topic: str, receivers: dict[str, Receive], tmp_path: Path
) -> None:
    def give(name: str, part: str) -> None:
        receiver, runs = receivers[name], "subscription points: its receiver runs"
        before = receiver.printed().count(runs)
        whole = receiver.file.read_text().partition("slice = ")[0]
        receiver.file.write_text(f'{whole}slice = "{part}"\n')
        receiver.signal(signal.SIGHUP)
        wait_until(lambda: receiver.printed().count(runs) > before, receiver.printed)

    df = spark.readStream.format("rtps").schema(POINT_DDL).options(**options_of(receivers, topic))
    give("one", "0/2")
    give("two", "0/2")
    wrong = running_into_memory(df.load(topic), tmp_path / "wrong")
    with wrong as query, pytest.raises(StreamingQueryException) as failed:
        query.processAllAvailable()
    assert "one and two have slice 0/2" in str(failed.value)
    assert "no receiver has slice 1/2" in str(failed.value)
    give("two", "1/2")
    Publisher(node, topic).write(points(0, 100), readers=2)
    early = df.option("startingOffsets", "earliest").load(topic)
    with running_into_memory(early, tmp_path / "right") as query:
        assert numbers(wait_for_rows(spark, query, 100)) == list(range(100))


def test_a_wrong_token(
    spark: SparkSession, topic: str, receivers: dict[str, Receive], tmp_path: Path
) -> None:
    options = options_of(receivers, topic) | {"receiver.token": "geheim" * 8}
    df = spark.readStream.format("rtps").schema(POINT_DDL).options(**options).load(topic)
    with running_into_memory(df, tmp_path / "c") as query, pytest.raises(StreamingQueryException) as failed:
        query.processAllAvailable()
    assert "token" in str(failed.value)
    assert "geheim" not in str(failed.value)


def test_the_token_is_in_no_error(spark: SparkSession, topic: str, receivers: dict[str, Receive]) -> None:
    options = options_of(receivers, topic)
    for wrong in ({"receiver.token.fil": "x"}, {"receivers": "one=127.0.0.1:1"}, {"receiver.ca": "/nowhere"}):
        with pytest.raises(PySparkException) as failed:
            spark.read.format("rtps").schema(POINT_DDL).options(**options | wrong).load(topic).count()
        assert TOKEN not in str(failed.value)


def numbers(df: DataFrame) -> list[int]:
    return sorted(row.id for row in df.select("id").collect())
