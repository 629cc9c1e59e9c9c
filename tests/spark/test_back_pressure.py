"""Back-pressure through real Spark: who is slow slows the others, and nobody's memory or disk fills.

How long things take decides nothing: sizes are looked at all the while, and what arrives at the end.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rtps.options import default_log_dir
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.wire.samples import Samples
from tests.spark.spark_streams import DOMAIN, sink_options, source
from tests.support.child_environment import child_environment
from tests.support.paced_reader import RELIABLE
from tests.support.surroundings import INTERFACE
from tests.support.waiting import PATIENCE, wait_until

MIB = 1 << 20
#: What may come and go beside the stream: buffers, code that is loaded late, a garbage collector's mood.
SLACK = 48 * MIB
LOG_BYTES = 16 * MIB
BLOB = "id BIGINT, data BINARY"
BLOB_BYTES = 8_000
#: Seconds, for a whole load.
AT_MOST = 300


def status(pid: int | str) -> dict[str, str]:
    """/proc/<pid>/status; empty when there is none any more."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def resident(pid: int) -> int:
    """Bytes in memory, the pages of files included."""
    return int(status(pid).get("VmRSS", "0 kB").split()[0]) << 10


def workers(spark: SparkSession) -> list[int]:
    """Spark's Python processes: whoever has its JVM among its ancestors."""
    jvm = spark.sparkContext._gateway.proc.pid
    everybody = {int(p.name): status(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()}
    parents = {pid: int(found["PPid"]) for pid, found in everybody.items() if found}

    def is_spark(pid: int) -> bool:
        while pid > 1 and pid != jvm:
            pid = parents.get(pid, 0)
        return pid == jvm  # type: ignore[no-any-return]

    return [p for p in parents if p != jvm and "python" in everybody[p]["Name"] and is_spark(p)]


class Watch:
    """The largest of some sizes, and how much it was once things had settled."""

    def __init__(self, size: Callable[[], int]) -> None:
        self._size = size
        self.settled = 0
        self.most = 0

    def look(self, *, settled: bool) -> None:
        size = self._size()
        if settled:
            self.most = max(self.most, size)
        else:
            self.settled = max(self.settled, size)

    def assert_flat(self, slack: int = SLACK) -> None:
        assert self.settled > 0
        assert self.most <= self.settled + slack, f"{self.settled >> 20} MiB became {self.most >> 20} MiB"


@contextlib.contextmanager
def meanwhile(look: Callable[[], object]) -> Iterator[None]:
    """Look again and again, in a thread: Spark finds data sources only in the one that made its session."""
    done = threading.Event()

    def run() -> None:
        while not done.wait(0.03):
            look()

    with ThreadPoolExecutor(1) as thread:
        looking = thread.submit(run)
        try:
            yield
        finally:
            done.set()
        looking.result()


# --- the sink --------------------------------------------------------------------------------------------


class Slow:
    """A reader in a process of its own that consumes ``rate`` bytes a second."""

    def __init__(self, topic: str, rate: int) -> None:
        settings = json.dumps({"interface": INTERFACE, "rate": rate, "receive_buffer": 4 * MIB})
        command = [sys.executable, "-m", "tests.support.paced_reader", str(DOMAIN), topic, "Blob", settings]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment())
        self.count = 0
        assert self.process.stdout is not None
        self.guid = self.process.stdout.readline().strip()
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                self.count = int(line)

    def stop_consuming_once_it_has_some(self) -> None:
        if self.count:
            self.process.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listening.join()


@pytest.fixture
def slow_reader(topic: str) -> Iterator[Callable[[int], Slow]]:
    made: list[Slow] = []

    def start(rate: int) -> Slow:
        made.append(Slow(topic, rate))
        return made[-1]

    yield start
    for each in made:
        each.end()


def write(spark: SparkSession, topic: str, count: int, **options: object) -> None:
    given = sink_options(type="Blob", key=None, publication__term_length="1MiB", **options)
    blobs = spark.range(0, count, 1, 1).selectExpr("id", "cast(repeat('x', 1000) AS BINARY) AS data")
    blobs.write.format("rtps").options(**given).mode("append").save(topic)


def sink_counters(topic: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for about in (default_log_dir() / "publishers").glob("*.json"):
        if json.loads(about.read_text())["topic"] == topic:
            found |= Counters.open(about.with_suffix(".counters")).snapshot()
    return found


def test_a_slow_reader_slows_the_query_and_fills_no_memory(
    spark: SparkSession, topic: str, slow_reader: Callable[[int], Slow]
) -> None:
    count = 80_000  # 80 MB; a worker holds three terms of 1 MiB, and what Spark gives it at once
    reader = slow_reader(100_000_000)
    memory = Watch(lambda: max(map(resident, workers(spark)), default=0))
    with meanwhile(lambda: memory.look(settled=reader.count > count // 4)):
        write(spark, topic, count)
    wait_until(lambda: reader.count >= count, "the reader")
    assert reader.count == count
    memory.assert_flat()
    counters = sink_counters(topic)
    assert counters["writer.written_samples"] == count
    assert counters["writer.back_pressured"] > 0
    assert counters["writer.flow_control_limits"] > 0
    assert counters["writer.status_messages_received"] > 0


def test_a_reader_that_stops_ends_the_query_with_its_name_position_and_limit(
    spark: SparkSession, topic: str, slow_reader: Callable[[int], Slow]
) -> None:
    reader = slow_reader(4_000_000)
    with meanwhile(reader.stop_consuming_once_it_has_some), pytest.raises(PySparkException) as caught:
        write(spark, topic, 100_000, offer_timeout="1s")
    output = " ".join(str(caught.value).split())
    named = re.search(r"waiting for reader ([^ ]+) \(acknowledged (\d+) of (\d+)\)", output)
    assert named, output
    assert named[1] == reader.guid
    assert int(named[2]) < int(named[3])
    assert f"writing to topic '{topic}' made no progress for 1 s" in output
    limits = re.search(r"at pub-pos (\d+), pub-lmt (\d+), snd-pos (\d+), snd-lmt (\d+)", output)
    assert limits, output
    pub_pos, pub_lmt, snd_pos, _ = map(int, limits.groups())
    assert snd_pos <= pub_pos and snd_pos <= pub_lmt
    assert "raise offer_timeout" in output and "flow_control.receiver_timeout" in output


# --- the source ------------------------------------------------------------------------------------------


class Topic:
    """A thread that writes numbered blobs as fast as it may, until told to stop."""

    def __init__(self, node: Node, topic: str) -> None:
        self.writer = node.create_writer(WriterSpec(topic, "Blob", RELIABLE))
        self.written = 0
        self._stopping = threading.Event()
        self._rows = np.zeros((64, 16 + BLOB_BYTES), np.uint8)
        self._rows[:, 1] = 1
        self._rows[:, 12:16] = np.frombuffer(BLOB_BYTES.to_bytes(4, "little"), np.uint8)
        self._thread = ThreadPoolExecutor(1)
        self._done = None

    def start(self) -> None:
        assert self.writer.wait_for_readers(PATIENCE)
        self._done = self._thread.submit(self._write)  # type: ignore[assignment]

    def _write(self) -> None:
        rows = self._rows
        while not self._stopping.is_set():
            ids = np.arange(self.written, self.written + len(rows), dtype="<i8")
            rows[:, 4:12] = ids.view(np.uint8).reshape(-1, 8)
            self.writer.write_samples(Samples.uniform(rows.reshape(-1), *rows.shape), timeout=AT_MOST)
            self.written += len(rows)

    @property
    def held_back(self) -> int:
        """How often it could not go on at once."""
        return int(self.writer.writer.counters.back_pressured)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        self._stopping.set()
        assert self._done is not None
        self._done.result(AT_MOST)
        self._thread.shutdown()


def disk(directory: Path) -> int:
    """Bytes that the files there take."""
    found = 0
    for path in directory.rglob("*"):
        try:
            found += path.stat().st_blocks * 512
        except FileNotFoundError:
            pass  # trimmed
    return found


class Sums:
    """What a query saw: it takes no more before its topic was held back again."""

    def __init__(self, topic: Topic) -> None:
        self.rows = 0
        self.errors: list[str] = []
        self.batches = 0
        self._topic = topic
        self._held_back = 0

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        length = F.length("data")
        found = batch.agg(
            F.count("id"), F.min("id"), F.max("id"), F.sum("id"), F.min(length), F.max(length)
        ).first()
        count, first, last, total, *lengths = found  # type: ignore[misc]
        if count:
            expected = (self.rows, self.rows + count - 1, count * (2 * self.rows + count - 1) // 2)
            if (first, last, total) != expected or lengths != [BLOB_BYTES, BLOB_BYTES]:
                self.errors.append(f"batch {batch_id}: {found}, expected {expected}")
            self.rows += count
            topic, before = self._topic, self._held_back
            wait_until(lambda: topic.held_back > before or topic.is_stopping, "the topic to be held back")
            self._held_back = topic.held_back
            self.batches += 1


@pytest.mark.parametrize(
    ("turns", "options"),
    [
        (16, {"flow_control__consumption": "logged"}),
        (4, {"flow_control__consumption": "committed"}),
    ],
    ids=["logged", "committed"],
)
def test_a_query_slower_than_its_topic(
    spark: SparkSession,
    node: Node,
    topic: str,
    log_dir: Path,
    tmp_path: Path,
    turns: int,
    options: dict[str, str],
) -> None:
    """Ten minutes of a load, compressed: the log turns over many times, and stays as large as it is."""
    df = source(
        spark,
        topic,
        log_dir,
        BLOB,
        type="Blob",
        key=None,
        log__max_bytes=LOG_BYTES,
        log__segment_bytes=2 * MIB,
        **options,
    )
    load = Topic(node, topic)
    sums = Sums(load)
    query = df.writeStream.foreachBatch(sums).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        load.start()
        (log,) = log_dir.iterdir()
        receiver = Counters.open(log / "counters").snapshot()["receiver.pid"]
        python = Watch(lambda: max(map(resident, workers(spark)), default=0))
        memory, files = Watch(lambda: resident(receiver)), Watch(lambda: disk(log_dir))
        rows = turns * LOG_BYTES // BLOB_BYTES
        deadline = time.monotonic() + AT_MOST
        while sums.rows < rows:
            assert query.exception() is None and not sums.errors and time.monotonic() < deadline
            for each in (python, memory, files):
                each.look(settled=sums.rows > rows // 10)
            time.sleep(0.05)
        load.stop()
        wait_until(lambda: sums.rows >= load.written or query.exception() is not None, "the rest", AT_MOST)
        assert query.exception() is None
        found = Counters.open(log / "counters").snapshot()
    finally:
        query.stop()
    assert sums.errors == []
    assert sums.rows == load.written
    assert found["receiver.pid"] == receiver and found["reader.lost_samples"] == 0
    assert found["log.position"] > turns * LOG_BYTES
    # Files of the log, and a little for what describes them.
    assert files.most <= LOG_BYTES + MIB
    python.assert_flat()
    memory.assert_flat()
    # The writer was paced from the first turn of the log to the last: no batch went on before it was held back again.
    assert sums.batches >= turns
    assert load.writer.writer.counters.status_messages_received > 0
