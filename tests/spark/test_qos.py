"""DDS policies as a Spark user sets and sees them: in rows, in the query's progress, in counters, on stderr."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_rtps.transport.net import blocking_writer
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import BatchPolicy, PublicationPolicy
from spark_rtps.transport.qos import (
    DestinationOrderKind,
    HistoryKind,
    LivelinessKind,
    OwnershipKind,
    Qos,
    ReliabilityKind,
)
from spark_rtps.transport.types.cdr.codec import Codec
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Blob
from tests.spark.spark_streams import (
    DOMAIN,
    Publisher,
    network,
    rows,
    running,
    sink_options,
    source,
    wait_for_rows,
)
from tests.spark.spark_views import Stderr, source_counter, statuses
from tests.support.stream_logs import POINT, points
from tests.support.waiting import PATIENCE, wait_until

MS = 1_000_000
S = 1000 * MS
CODEC = Codec(POINT)
BINARY = {"payload": "binary", "keyed": "true", "key": None}


class Offering(Publisher):
    """A keyed writer with any QoS. ``batch`` samples share a batch."""

    def __init__(self, node: Node, topic: str, *, batch: int = 0, **qos: object) -> None:
        offered = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL, **qos)
        batches = BatchPolicy(enable=True, max_samples=batch) if batch else BatchPolicy()
        self.struct = POINT
        self.writer = node.create_writer(
            WriterSpec(topic, POINT.name, offered, keyed=True, policy=PublicationPolicy(batch=batches))
        )

    def put(self, ids: list[int], x: float, *, timestamp: int | None = None) -> None:
        """Write, and return when readers have it."""
        self.wait_for_readers()
        batch = pa.record_batch({"id": pa.array(ids, pa.int32()), "x": [x] * len(ids)})
        self.writer.write_samples(
            CODEC.encode_batch(batch), key_hashes=CODEC.key_hashes(batch), timestamp=timestamp
        )
        assert self.writer.wait_for_acknowledgments(PATIENCE) == {}

    def leave(self) -> None:
        self.writer.node.delete_endpoint(self.writer.guid)  # type: ignore[attr-defined]


class Watched:
    """A running query and what can be seen of it."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, topic: str, log_dir: Path) -> None:
        self.spark = spark
        self.query = query
        self.topic = topic
        self.log_dir = log_dir

    def xs(self, count: int) -> list[float]:
        """Column x, once there are ``count`` rows and Spark has nothing left to do."""
        wait_for_rows(self.spark, self.query, count)
        self.query.processAllAvailable()
        return sorted(row.x for row in rows(self.spark, self.query).collect())

    def counter(self, label: str) -> int:
        return source_counter(self.topic, self.log_dir, label)

    def wait_for_count(self, label: str, count: int, *, received: int) -> None:
        """Until a counter is what it is once so many samples are counted: they are written some times a second."""
        self.wait_for_counter("reader.received_samples", received)
        wait_until(lambda: self.counter(label) == count, f"{label} == {count}")

    def wait_for_counter(self, label: str, at_least: int) -> None:
        wait_until(lambda: self.counter(label) >= at_least, f"{label} >= {at_least}")

    def wait_for_status(self, name: str, **fields: int) -> None:
        """Until the last progress has a status with fields at least so high."""

        def there() -> bool:
            (status,) = statuses(self.query) or [{}]
            return all(status.get(name, {}).get(field, 0) >= n for field, n in fields.items())

        wait_until(there, f"{name} {fields}")


@pytest.fixture
def watch(
    spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path, chatty: None
) -> Iterator[Callable[..., Watched]]:
    """Starts a query on the topic."""
    started: list[Any] = []

    def start(ddl: str | None = "id INT, x DOUBLE", **options: object) -> Watched:
        df = source(spark, topic, log_dir, None if options.get("payload") else ddl, **options)
        if options.get("payload"):  # x is the last of 20 bytes: header, id, padding, x
            swapped = " || ".join(f"hex(substring(value, {i}, 1))" for i in range(20, 12, -1))
            df = df.selectExpr(f"{swapped} AS x")
        started.append(running(df, tmp_path / "c"))
        return Watched(spark, started[-1].__enter__(), topic, log_dir)

    yield start
    for each in started:
        each.__exit__(None, None, None)


@pytest.fixture
def stderr(spark: SparkSession) -> Stderr:
    return Stderr(spark)


class TestSource:
    @pytest.mark.parametrize("payload", [{}, BINARY], ids=["cdr", "binary"])
    def test_ownership_exclusive(
        self, node: Node, topic: str, watch: Callable[..., Watched], payload: dict[str, Any]
    ) -> None:
        weak, strong = (
            Offering(node, topic, ownership=OwnershipKind.EXCLUSIVE, ownership_strength=strength, batch=10)
            for strength in (1, 5)
        )
        query = watch(ownership="exclusive", **payload)
        strong.put([0, 1, 2], 1.0)
        weak.put([0, 1, 2, 3], 2.0)  # 3 is nobody's yet
        query.wait_for_counter("cache.ownership_dropped_sample_count", 3)
        strong.leave()
        wait_until(lambda: query.counter("reader.matched_writers") == 1, "the stronger one to leave")
        weak.put([0, 1, 2], 3.0)
        found = query.xs(7)
        if payload:
            assert [each.upper() for each in found] == [  # type: ignore[attr-defined]
                *["3FF0000000000000"] * 3,
                "4000000000000000",
                *["4008000000000000"] * 3,
            ]
        else:
            assert found == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0]

    def test_time_based_filter(self, node: Node, topic: str, watch: Callable[..., Watched]) -> None:
        writer = Offering(node, topic)
        query = watch(time_based_filter="1s")
        now = time.time_ns()
        for at in (0, 400, 1000, 1500, 2100):
            writer.put([7], float(at), timestamp=now + at * MS)
        assert query.xs(3) == [0.0, 1000.0, 2100.0]
        query.wait_for_count("cache.time_based_filter_dropped_sample_count", 2, received=5)

    def test_lifespan_of_the_writer(
        self, node: Node, topic: str, watch: Callable[..., Watched], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The clock of the writer's host is behind the reader's by more than its samples live."""
        writer = Offering(node, topic, lifespan=60 * S)
        query = watch()
        slow = SimpleNamespace(**vars(time))
        slow.time_ns = lambda: time.time_ns() - 61 * S
        with monkeypatch.context() as host:
            host.setattr(blocking_writer, "time", slow)
            writer.put([1], 1.0)
        writer.put([1], 2.0)
        assert query.xs(1) == [2.0]
        query.wait_for_counter("cache.expired_dropped_sample_count", 1)

    def test_destination_order(self, node: Node, topic: str, watch: Callable[..., Watched]) -> None:
        by_source = DestinationOrderKind.BY_SOURCE_TIMESTAMP
        one, other = (Offering(node, topic, destination_order=by_source) for _ in range(2))
        query = watch(destination_order="by_source_timestamp")
        now = time.time_ns()
        one.put([1], 1.0, timestamp=now)
        other.put([1], 4.0, timestamp=now + 70 * 365 * 86_400 * S)
        query.wait_for_counter("cache.tolerance_source_timestamp_dropped_sample_count", 1)
        other.put([1, 2], 2.0, timestamp=now - S)
        one.put([1], 3.0, timestamp=now + S)
        assert query.xs(3) == [1.0, 2.0, 3.0]
        query.wait_for_count("cache.old_source_timestamp_dropped_sample_count", 1, received=5)

    def test_a_batch_larger_than_readers_take(
        self, spark: SparkSession, node: Node, topic: str, chatty: None, tmp_path: Path
    ) -> None:
        limits = {
            "history": {"history__depth": 3},
            "samples": {"resource_limits__max_samples": 4},
            "instances": {"resource_limits__max_instances": 1},
            "samples_per_instance": {"resource_limits__max_samples_per_instance": 1},
        }
        readers = [
            source(spark, topic, tmp_path / by, **options).withColumn("by", F.lit(by))
            for by, options in limits.items()
        ]
        writer = Offering(node, topic, batch=10)
        with running(reduce(DataFrame.union, readers), tmp_path / "c") as query:
            writer.wait_for_readers(len(limits))
            writer.put([1, 2] * 5, 1.0)
            counts = wait_for_rows(spark, query, 6 + 4 + 5 + 2).groupBy("by").count()
            assert dict(counts.collect()) == {
                "history": 6,
                "samples": 4,
                "instances": 5,
                "samples_per_instance": 2,
            }

            def seen() -> set[str]:
                return {
                    f"{status}.{field}={n}"
                    for each in statuses(query)
                    for status in ("SAMPLE_LOST", "SAMPLE_REJECTED")
                    for field, n in each.get(status, {}).items()
                    if field != "total_count"
                }

            expected = {
                "SAMPLE_LOST.by_history=4",
                "SAMPLE_REJECTED.by_samples_limit=6",
                "SAMPLE_REJECTED.by_instances_limit=5",
                "SAMPLE_REJECTED.by_samples_per_instance_limit=8",
            }
            wait_until(lambda: seen() == expected, "the statuses")
            counts = {(4, 0), (0, 6), (0, 5), (0, 8)}  # type: ignore[assignment]
            wait_until(lambda: {(s["lost"], s["rejected"]) for s in statuses(query)} == counts, "the counts")  # type: ignore[comparison-overlap]

    def test_deadline_and_liveliness(
        self, node: Node, topic: str, watch: Callable[..., Watched], stderr: Stderr
    ) -> None:
        lease = {"liveliness": LivelinessKind.MANUAL_BY_TOPIC, "liveliness_lease_duration": 300 * MS}
        writer = Offering(node, topic, deadline=200 * MS, **lease)
        query = watch(
            deadline="200ms", liveliness="manual_by_topic", **{"liveliness.lease_duration": "300ms"}
        )
        writer.put([1, 2], 1.0)
        query.wait_for_status("REQUESTED_DEADLINE_MISSED", total_count=2)
        query.wait_for_status("LIVELINESS_CHANGED", not_alive_count=1)
        lost = f"topic '{topic}': liveliness of {re.escape(str(writer.writer.guid))} lost"
        stderr.wait_for(lost)
        writer.put([1], 2.0)
        stderr.wait_for(f"(?s){lost}.*{lost}")  # so it was alive meanwhile, too shortly for Spark's progress
        assert query.xs(3) == [1.0, 1.0, 2.0]


def rows_of(spark: SparkSession, count: int, partitions: int = 1) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("CAST(id AS INT) AS id", "id / 2 AS x")


def save(df: DataFrame, topic: str, **options: object) -> None:
    df.write.format("rtps").options(**sink_options(**options)).mode("append").save(topic)


@pytest.fixture
def copying(spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Starts a query that copies the topic to ``<topic>_out``; options are those of the sink."""
    queries: list[StreamingQuery] = []

    def start(read: dict[str, object] | None = None, **options: object) -> StreamingQuery:
        writer = source(spark, topic, log_dir, **(read or {})).writeStream.format("rtps")
        settings = {**sink_options(**options), "checkpointLocation": str(tmp_path / "copying")}
        queries.append(writer.options(**settings).start(f"{topic}_out"))
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


class TestSink:
    def test_lifespan(self, spark: SparkSession, topic: str, watch: Callable[..., Watched]) -> None:
        query = watch()
        save(rows_of(spark, 50), topic, lifespan="1us")  # over before it can be there
        save(rows_of(spark, 3), topic, lifespan="1h")
        assert query.xs(3) == [0.0, 0.5, 1.0]

    def test_exclusive_ownership(
        self, spark: SparkSession, topic: str, watch: Callable[..., Watched]
    ) -> None:
        query = watch(ownership="exclusive")
        save(rows_of(spark, 3), topic, ownership="exclusive", ownership__strength=7)
        save(rows_of(spark, 4), topic, ownership="exclusive", ownership__strength=5)
        assert query.xs(4) == [0.0, 0.5, 1.0, 1.5]
        query.wait_for_count("cache.ownership_dropped_sample_count", 3, received=7)


class TestProfiles:
    def test_sensor_data(self, spark: SparkSession, topic: str, watch: Callable[..., Watched]) -> None:
        query = watch(qos__profile="sensor_data")

        def all_came() -> bool:
            # best-effort: what is written before the reader knows the writer is lost
            save(rows_of(spark, 100), topic, qos__profile="sensor_data")
            query.query.processAllAvailable()
            return set(range(100)) <= {row.id for row in rows(spark, query.query).collect()}

        wait_until(all_came, "the rows")

    def test_file(
        self, spark: SparkSession, topic: str, watch: Callable[..., Watched], tmp_path: Path, stderr: Stderr
    ) -> None:
        file = tmp_path / "profiles.xml"
        file.write_text(PROFILES)
        query = watch(qos__file=file)
        df = spark.range(0, 20, 1, 1).selectExpr("1 AS id", "CAST(id AS DOUBLE) AS x")
        save(df, topic, qos__file=file, qos__profile="Fast::Batches")
        assert query.xs(4) == [8.0, 9.0, 18.0, 19.0]  # two of each batch
        query.wait_for_status("SAMPLE_LOST", by_history=16)
        assert stderr.text().count("datawriter_qos/writer_data_lifecycle") == 1
        assert stderr.text().count("datareader_qos/reader_data_lifecycle") == 1

    def test_unknown_profile(self, spark: SparkSession, topic: str) -> None:
        with pytest.raises(PySparkException, match="did you mean 'sensor_data'"):
            save(rows_of(spark, 1), topic, qos__profile="sensordata")


PROFILES = """
<dds><qos_library name="Fast"><qos_profile name="Batches" is_default_qos="true">
  <datawriter_qos>
    <durability><kind>TRANSIENT_LOCAL_DURABILITY_QOS</kind></durability>
    <reliability><kind>RELIABLE_RELIABILITY_QOS</kind></reliability>
    <history><kind>KEEP_ALL_HISTORY_QOS</kind></history>
    <batch><enable>true</enable><max_samples>10</max_samples></batch>
    <writer_data_lifecycle><autodispose_unregistered_instances>false</autodispose_unregistered_instances>
    </writer_data_lifecycle>
  </datawriter_qos>
  <datareader_qos>
    <durability><kind>TRANSIENT_LOCAL_DURABILITY_QOS</kind></durability>
    <reliability><kind>RELIABLE_RELIABILITY_QOS</kind></reliability>
    <history><kind>KEEP_LAST_HISTORY_QOS</kind><depth>2</depth></history>
    <reader_data_lifecycle><autopurge_disposed_samples_delay><sec>1</sec><nanosec>0</nanosec>
    </autopurge_disposed_samples_delay></reader_data_lifecycle>
  </datareader_qos>
</qos_profile></qos_library></dds>
"""


READ_ODDLY = {"reliable_reader__heartbeat_suppression_duration": "1s"}
WRITE_ODDLY = {"ownership__strength": 3, "on_no_reader": "drop"}
ADVICE = (
    "reliable_reader.heartbeat_suppression_duration=1s is not less than",
    "ownership.strength=3 has no effect",
)


class TestWarnings:
    def test_mismatches_of_a_stream_are_logged_once(
        self, publisher: Publisher, copying: Callable[..., Any], stderr: Stderr
    ) -> None:
        query = copying(READ_ODDLY, **WRITE_ODDLY)
        for i in range(3):
            publisher.write(points(i, 1))
            query.processAllAvailable()
        assert query.lastProgress["batchId"] > 1
        assert [stderr.text().count(each) for each in ADVICE] == [1, 1]

    def test_mismatches_of_a_batch_are_logged_once(
        self, spark: SparkSession, topic: str, log_dir: Path, stderr: Stderr
    ) -> None:
        save(rows_of(spark, 100, 4), topic, **WRITE_ODDLY)
        options = network(log_dir, read__timeout="500ms", **READ_ODDLY)
        assert (
            spark.read.format("rtps").schema("id INT, x DOUBLE").options(**options).load(topic).count() == 0
        )
        assert [stderr.text().count(each) for each in ADVICE] == [1, 1]


class TestMessageSizes:
    def test_sinks_heed_what_readers_take(
        self, spark: SparkSession, topic: str, watch: Callable[..., Watched]
    ) -> None:
        query = watch(message_size_max="32KiB")
        save(rows_of(spark, 5000), topic, batch__enable=True, max_batches=2)
        assert len(query.xs(5000)) == 5000
        query.wait_for_count("drop.message_too_large", 0, received=5000)

    def test_a_foreign_writer_that_does_not(
        self, spark: SparkSession, topic: str, watch: Callable[..., Watched], stderr: Stderr
    ) -> None:
        with CyclonePeer(DOMAIN) as peer:
            query = watch(None, payload="binary", type="interop::Blob", key=None, message_size_max=4096)
            peer.writer(topic, Blob)
            peer.wait_for_match(topic)
            peer.write(topic, [{"id": 1, "data": [1] * 100}])
            assert len(query.xs(1)) == 1
            peer.write(topic, [{"id": 2, "data": [1] * 20_000}])
            query.wait_for_counter("drop.message_too_large", 1)
            stderr.wait_for("larger than message_size_max, 4096")
