"""Sinks that send in batches, through a flow controller, or in coherent sets, in real Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.structure import Guid
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Vehicle
from tests.spark.spark_streams import (
    DOMAIN,
    Subscriber,
    rows,
    running,
    sink_options,
    source,
    wait_for_rows,
)
from tests.spark.spark_views import Stderr, source_counter, sources
from tests.support.stopped import stopped
from tests.support.stream_logs import NOTE
from tests.support.waiting import wait_until

TOPIC = "batched_vehicles"
VEHICLE = {"type": "interop::Vehicle", "key": "id"}
VEHICLE_DDL = "id INT, note STRING, speed DOUBLE"
#: Rows a way, in two tasks.
COUNT = 2000
BATCH = {"batch__enable": True}
BUCKET = "flow_controller__token_bucket__"
FLOW = {
    "publish_mode": "asynchronous",
    "flow_controller__name": "slow",
    f"{BUCKET}max_tokens": 4,
    f"{BUCKET}tokens_added_per_period": 4,
    f"{BUCKET}period": "10ms",
}
#: Options, and how many batches our reader then gets; None: some.
WAYS: dict[str, tuple[dict[str, object], int | None]] = {
    "auto": (BATCH, None),  # type: ignore[dict-item]
    "bytes": ({**BATCH, "batch__max_data_bytes": 400}, None),
    "samples": ({**BATCH, "batch__max_samples": 7}, 286),
    "no_bytes_limit": ({**BATCH, "batch__max_data_bytes": "unlimited", "batch__max_samples": 100}, 20),
    "resource_limits": ({**BATCH, "resource_limits__max_samples_per_instance": 1}, None),
    "auto_flush": ({**BATCH, "batch__auto_flush_size": 400}, None),
    "delay": (
        {**BATCH, "batch__max_flush_delay": "2ms", "batch__source_timestamp_resolution": "0s"},
        None,
    ),
    "one_thread": ({**BATCH, "batch__thread_safe_write": "false"}, None),
    "no_key_hash": ({**BATCH, "disable_inline_keyhash": True}, None),
    "data": ({**BATCH, "batch__wire": "data"}, 0),
    "lz4": ({**BATCH, "batch__compression": "lz4"}, None),
    "zstd": (
        {
            **BATCH,
            "batch__compression": "zstd",
            "batch__compression_level": 19,
            "batch__compression_threshold": 0,
        },
        None,
    ),
    "turbo": ({"turbo_mode": True}, None),
    "not_coalesced": ({"coalescing": "false"}, 0),
    "flow_controller": ({**BATCH, **FLOW, "batch__max_samples": 50}, 40),
    "flow_controller_without_batches": (FLOW, 0),
    "interceptor": ({**BATCH, "batch__interceptor": "batch_interceptors:in_tens"}, 200),
    "small_datagrams": ({**BATCH, "mtu": 1400, "message_size_max": 1400}, None),
}


def vehicles(spark: SparkSession, first: int, count: int) -> DataFrame:
    df = spark.range(first, first + count, 1, 2)
    return df.selectExpr(
        "CAST(id AS INT) AS id", "repeat('n', CAST(id % 9 AS INT)) AS note", "id / 4 AS speed"
    )


def save(df: DataFrame, topic: str, **options: object) -> None:
    settings = sink_options(**{**VEHICLE, "durability": "transient_local", **options})
    df.write.format("rtps").options(**settings).mode("append").save(topic)


class Readers:
    """A query of ours, with its receiver, and a Cyclone DDS reader; both keep up with a topic."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, log_dir: Path, peer: CyclonePeer) -> None:
        self.spark = spark
        self.query = query
        self.peer = peer
        self._log_dir = log_dir
        #: Samples that our reader gets, or has.
        self.written = 0

    @property
    def batches(self) -> int:
        """Which our reader got, once all samples are counted: counters are written some times a second."""
        wait_until(lambda: self._counter("reader.received_samples") >= self.written, "all samples")
        return self._counter("reader.received_batches")

    @property
    def repeated(self) -> int:
        """Samples that our reader had got before."""
        return self._counter("reader.duplicate_samples")

    def _counter(self, label: str) -> int:
        return source_counter(TOPIC, self._log_dir, label)

    def rows_from(self, first: int) -> DataFrame:
        return rows(self.spark, self.query).where(F.col("id").between(first, first + COUNT - 1))


@pytest.fixture(scope="module")
def readers(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    spark.sparkContext.addPyFile(str(Path(__file__).with_name("batch_interceptors.py")))
    directory = tmp_path_factory.mktemp("readers")
    df = source(spark, TOPIC, directory / "logs", VEHICLE_DDL, **VEHICLE, durability="transient_local")
    with CyclonePeer(DOMAIN) as peer, running(df, directory / "c") as query:
        peer.reader(TOPIC, Vehicle, transient_local=True)
        wait_until(lambda: sources(TOPIC, directory / "logs"), "the source")
        yield Readers(spark, query, directory / "logs", peer)


@pytest.mark.parametrize("way", WAYS)
def test_every_row_once(spark: SparkSession, readers: Readers, way: str) -> None:
    options, batches = WAYS[way]
    first, before, repeated = list(WAYS).index(way) * COUNT, readers.batches, readers.repeated
    written = vehicles(spark, first, COUNT)
    readers.peer.call("take", TOPIC)  # what a way that failed left
    # to a multicast group with a reader of Cyclone DDS, which reads no batches, a writer would send none
    save(written, TOPIC, **{**options, "multicast__send": "off"})
    readers.written += COUNT
    taken = readers.peer.take(TOPIC, COUNT)
    assert sorted(each.row["id"] for each in taken) == list(range(first, first + COUNT))
    found = readers.rows_from(first)
    wait_until(
        lambda: readers.query.exception() is not None or found.count() >= COUNT, f"{COUNT} rows", every=0.02
    )
    assert sorted(found.collect()) == sorted(written.collect())
    if batches is None:
        wait_until(lambda: readers.batches > before, "a batch")
        return

    def sent_again() -> int:
        """Batches, by the samples that our reader had got before."""
        return ceil((readers.repeated - repeated) * batches / COUNT)

    wait_until(
        lambda: readers.batches == before + batches + sent_again(),
        lambda: f"{batches} batches and {sent_again()} again; there are {readers.batches - before}",
    )


class TestInterceptor:
    def test_an_exception_of_an_interceptor_fails_the_task(
        self, spark: SparkSession, readers: Readers
    ) -> None:
        refusing = "batch_interceptors:refuse"
        with pytest.raises(PySparkException, match=r"five samples of \d+ bytes are enough"):
            save(vehicles(spark, 0, 20), "refused", **BATCH, batch__interceptor=refusing, on_no_reader="drop")

    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("no_such_module:refuse", "'batch.interceptor' = 'no_such_module:refuse': .*--py-files"),
            ("batch_interceptors:accept", "cannot be loaded where the task runs: .* no attribute 'accept'"),
        ],
    )
    def test_that_is_not_there(self, spark: SparkSession, readers: Readers, name: str, error: str) -> None:
        with pytest.raises(PySparkException, match=error):
            save(vehicles(spark, 0, 20), "refused", **BATCH, batch__interceptor=name, on_no_reader="drop")


NOTES = 200
#: Where a task stops half way, with what it wrote before on its way to the readers.
HALF_WAY = 150


@pytest.fixture
def small_chunks(spark: SparkSession) -> Iterator[None]:
    """A task gets its rows ten by ten."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, 10)
    yield
    spark.conf.set(name, before)


def notes(spark: SparkSession, gate: Path, *, failures: int = 0) -> DataFrame:
    """Notes in one task, which half way waits until ``gate`` exists, and then fails that many times."""

    @F.udf("string", useArrow=False)
    def text(i: int) -> str:
        from pyspark import TaskContext

        if i == HALF_WAY:
            while not gate.exists():
                time.sleep(0.01)
            if TaskContext.get().attemptNumber() < failures:
                raise RuntimeError("failed half way")
        return "n" * 10_000  # more than what is buffered on the way

    return spark.range(0, NOTES, 1, 1).select(F.col("id").cast("int").alias("id"), text("id").alias("text"))


@pytest.fixture
def subscriber(tmp_path: Path, topic: str) -> Iterator[Subscriber]:
    """It takes everything at once, coherent or not."""
    found = Subscriber(tmp_path / "subscriber", topic, NOTE)
    yield found
    found.stop()


@pytest.fixture
def saving(spark: SparkSession) -> Iterator[Callable[..., Future[None]]]:
    """Writes notes in another thread."""

    def run(df: DataFrame, topic: str, **options: object) -> None:
        # Spark looks for Python data sources in the session of the thread
        spark._jvm.SparkSession.setActiveSession(spark._jsparkSession)
        save(df, topic, type="Note", durability="volatile", **options)

    with ThreadPoolExecutor(1) as pool:
        yield lambda df, topic, **options: pool.submit(run, df, topic, **options)


def wait_for_half(subscriber: Subscriber, saving: Future[None]) -> None:
    """Until the subscriber has something of a task that goes on."""

    def there() -> bool:
        if saving.done():
            saving.result()
        return subscriber.receiver.counters()["log.rows"] >= 10

    wait_until(there, "the first rows")


@pytest.mark.usefixtures("small_chunks")
class TestCoherentAccess:
    OPTIONS: ClassVar = {"presentation__coherent_access": True}

    @pytest.mark.parametrize("batch", [{}, BATCH], ids=["data", "data_batch"])
    def test_samples_of_a_failed_task_are_not_received(
        self,
        spark: SparkSession,
        topic: str,
        log_dir: Path,
        tmp_path: Path,
        subscriber: Subscriber,
        saving: Callable[..., Future[None]],
        batch: dict[str, Any],
    ) -> None:
        df = source(spark, topic, log_dir, "id INT, text STRING", type="Note", **self.OPTIONS)
        gate = tmp_path / "gate"
        with running(df.select("id"), tmp_path / "c") as query:
            wait_until(lambda: sources(topic, log_dir), "the source")
            done = saving(notes(spark, gate, failures=1), topic, **self.OPTIONS, **batch)
            wait_for_half(subscriber, done)
            assert rows(spark, query).count() == 0
            gate.touch()
            done.result()
            found = wait_for_rows(spark, query, NOTES)
            query.processAllAvailable()
            assert sorted(row.id for row in found.collect()) == list(range(NOTES))
            assert {p["numInputRows"] for p in query.recentProgress} <= {0, NOTES}
        assert subscriber.table().num_rows > NOTES  # who does not ask for coherent access sees both attempts

    def test_a_write_that_fails_leaves_nothing(
        self,
        spark: SparkSession,
        topic: str,
        log_dir: Path,
        tmp_path: Path,
        subscriber: Subscriber,
        saving: Callable[..., Future[None]],
    ) -> None:
        df = source(spark, topic, log_dir, "id INT, text STRING", type="Note", **self.OPTIONS)
        gate = tmp_path / "gate"
        with running(df.select("id"), tmp_path / "c") as query:
            wait_until(lambda: sources(topic, log_dir), "the source")
            done = saving(notes(spark, gate, failures=2), topic, **self.OPTIONS)
            wait_for_half(subscriber, done)
            gate.touch()
            with pytest.raises(PySparkException, match="failed half way"):
                done.result()
            last = spark.createDataFrame([(-1, "last")], "id INT, text STRING")
            save(last, topic, type="Note", durability="volatile", **self.OPTIONS)
            assert [row.id for row in wait_for_rows(spark, query, 1).collect()] == [-1]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(
    ("options", "failure"),
    [
        (
            {"reliable_writer__max_heartbeat_retries": 10, "reliable_writer__heartbeat_period": "200ms"},
            r"{} \(had \d+ of 200\) left before everything was acknowledged, or stopped answering",
        ),
        ({"acknowledgment_timeout": "5s"}, r"not acknowledged within 5 s by {} \(has \d+ of 200\)"),
    ],
    ids=["max_heartbeat_retries", "acknowledgment_timeout"],
)
def test_a_reader_that_stands_still(
    spark: SparkSession,
    topic: str,
    tmp_path: Path,
    subscriber: Subscriber,
    saving: Callable[..., Future[None]],
    options: dict[str, int | str],
    failure: str,
) -> None:
    stderr, gate = Stderr(spark), tmp_path / "gate"
    prefix = bytes.fromhex(str(LogView(subscriber.directory).metadata["guid_prefix"]))
    done = saving(notes(spark, gate), topic, **options)
    wait_for_half(subscriber, done)
    with stopped(subscriber.receiver.pid):
        gate.touch()
        stderr.wait_for(failure.format(re.escape(str(Guid(prefix, b"\0\0\1\7")))))
    done.result()  # Spark repeats the task
    assert set(subscriber.table().column("id").to_pylist()) == set(range(NOTES))
