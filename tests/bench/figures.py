"""One function a figure: each returns samples (rows) a second, or milliseconds."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.bench.peers import IDL, TOPIC, TYPE_NAME, Peer
from tests.bench.sources import Instant, Prebuilt, Recorded

WARM_UP = 2.0
SECONDS = 6.0
#: Micro-batches: not counted, needed at least, and how long to wait for them (seconds).
WARM_UP_BATCHES = 3
BATCHES_MIN = 4
PATIENCE = 90.0
ROWS_PER_TRIGGER = 1_000_000
#: Small enough that the log is full before the figure begins: a receiver that runs ahead of Spark takes cores from it.
INGEST_LOG = "512MiB"
#: The JVM goes on getting quicker for hundreds of small micro-batches.
LATENCY_WARM_UP = 25.0
#: How often source and floor take turns, an even number, and what is not counted of each turn (seconds).
LATENCY_TURNS = 4
LATENCY_SETTLING = 6.0
ROOT = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory for logs and checkpoints."""
    path = Path(tempfile.mkdtemp(prefix="rtps-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def receiving(domain: int, *, ipc: bool = False, **changes: Any) -> Iterator[Any]:
    """Our receiver process on the bench's topic; ``ipc``: it reads publication logs on this host. ``changes`` are of
    its configuration."""
    from spark_rtps.transport.net.node_config import NodeConfig
    from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
    from spark_rtps.transport.receiver.config import ReceiverConfig
    from spark_rtps.transport.receiver.process import ReceiverProcess

    with scratch() as directory:
        config = ReceiverConfig(
            log_directory=str(directory / "log"),
            topic=TOPIC,
            type_name=TYPE_NAME,
            keyed=False,
            qos=Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL),
            node=NodeConfig(domain=domain, interface="lo", ipc=ipc),
        )
        process = ReceiverProcess.start(replace(config, **changes))
        try:
            yield process
        finally:
            process.stop()


def rows_per_second(process: Any, seconds: float = SECONDS) -> float:
    """Rows a second that reach the log, while everything is committed at once."""

    def pump(until: float) -> int:
        while time.monotonic() < until:
            time.sleep(0.05)
            process.commit_position(process.cursor().position)
        rows: int = process.counters()["log.rows"]
        return rows

    before, started = pump(time.monotonic() + WARM_UP), time.monotonic()
    after = pump(started + seconds)
    return (after - before) / (time.monotonic() - started)


def receive(domain: int) -> float:
    """Our writer process → our receiver's stream log, reliable."""
    with receiving(domain) as process:
        peer = Peer("our_writer", domain, 0)
        rate = rows_per_second(process)
        lost = process.counters().get("reader.lost_samples", 0)
        peer.stop()
    if lost:
        raise RuntimeError(f"{lost} samples lost on a reliable topic")
    return rate


def single_ours(domain: int) -> float:
    """A Cyclone writer, one sample a datagram → our receiver's stream log."""
    with receiving(domain) as process:
        peer = Peer("cyclone_writer", domain, 0)
        rate = rows_per_second(process)
        peer.stop()
    return rate


def single_cyclone(domain: int) -> float:
    """The same writer → cyclonedds-python → pyarrow: what a user would write today."""
    reader = Peer("cyclone_reader", domain, 1000)
    peer = Peer("cyclone_writer", domain, 0)
    time.sleep(WARM_UP + SECONDS)
    counted = reader.stop()
    peer.stop()
    return float(counted["rows"] / counted["seconds"])


@contextlib.contextmanager
def spark_session(*, shipped_conf: bool = True, cores: int = 2) -> Iterator[Any]:
    """A local session, with or without the shipped conf/spark-defaults.conf."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    if shipped_conf:
        for line in (ROOT / "conf" / "spark-defaults.conf").read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                key, value = line.split(None, 1)
                settings[key] = value.strip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(Prebuilt)
    spark.dataSource.register(Recorded)
    spark.dataSource.register(Instant)
    try:
        yield spark
    finally:
        spark.stop()


def _topic(builder: Any, domain: int, directory: Path) -> Any:
    """The options of the bench's topic, on a reader's or a writer's builder."""
    idl = directory / "bench.idl"
    idl.write_text(IDL)
    for key, value in {
        "domain": domain,
        "interface": "lo",
        "topic": TOPIC,
        "type.file": str(idl),
        "type": TYPE_NAME,
        "reliability": "reliable",
    }.items():
        builder = builder.option(key, value)
    return builder


def source(spark: Any, domain: int, directory: Path) -> Any:
    """The bench's topic as a stream."""
    return _topic(spark.readStream.format("rtps"), domain, directory).option(
        "log.dir", str(directory / "logs")
    )


def checkpoint_in(directory: Path) -> str:
    """Where a query's checkpoint is: named as conf/spark-defaults.conf suggests, if that is in use."""
    from pyspark.sql import SparkSession

    shipped = SparkSession.active().conf.get("spark.hadoop.fs.FILE.impl", None) is not None
    return f"{'FILE:' if shipped else ''}{directory / 'checkpoint'}"


@contextlib.contextmanager
def _running(builder: Any, directory: Path) -> Iterator[Any]:
    """A query, started, and stopped at the end."""
    query = builder.option("checkpointLocation", checkpoint_in(directory)).start()
    try:
        yield query
    finally:
        query.stop()


def _query_rate(query: Any, meanwhile: Callable[[], None] = lambda: None) -> float:
    """Input rows a second of a running query: rows of whole micro-batches over their trigger time.

    The first micro-batches, of which workers and the JVM's compiler warm up, do not count.
    """
    progress: dict[int, tuple[int, int]] = {}
    started = warm = time.monotonic()
    first = -1
    while time.monotonic() < warm + SECONDS or len(progress) < BATCHES_MIN:
        time.sleep(0.1)
        meanwhile()
        if query.exception():
            raise query.exception()
        if time.monotonic() > started + PATIENCE:
            raise RuntimeError(f"only {len(progress)} micro-batches in {PATIENCE:g} s")
        for done in query.recentProgress:
            if first < 0 and done["batchId"] >= WARM_UP_BATCHES:
                first, warm = done["batchId"], time.monotonic()
            if 0 <= first < done["batchId"] and done["numInputRows"]:
                progress[done["batchId"]] = (done["numInputRows"], done["durationMs"]["triggerExecution"])
    rows, milliseconds = map(sum, zip(*progress.values(), strict=True))
    return rows / milliseconds * 1000


def ingest(spark: Any, domain: int) -> float:
    """Our writer → readStream → noop, typed columns; publisher and receiver on the same two cores, and at Spark's
    pace: the log is full."""
    with scratch() as directory:
        peer = Peer("our_writer", domain, 0)
        topic = (
            source(spark, domain, directory).option("minPartitions", 2).option("log.max_bytes", INGEST_LOG)
        )
        frame = topic.option("maxRowsPerTrigger", ROWS_PER_TRIGGER).load()
        with _running(frame.writeStream.format("noop"), directory) as query:
            rate = _query_rate(query)
        peer.stop()
    return rate


def ceiling(spark: Any, sink: str = "noop") -> float:
    """The same pipeline fed with prebuilt Arrow batches: Spark's own limit."""
    frame = spark.readStream.format("prebuilt").load()
    with scratch() as directory, _running(frame.writeStream.format(sink), directory) as query:
        return _query_rate(query)


def publish(spark: Any, domain: int) -> float:
    """A streaming DataFrame → writeStream("rtps") → our receiver's stream log."""
    frame = spark.readStream.format("prebuilt").load()
    with scratch() as directory, receiving(domain) as process:
        sink = _topic(frame.writeStream.format("rtps"), domain, directory)
        with _running(sink, directory) as query:
            return _query_rate(query, lambda: process.commit_position(process.cursor().position))


def latency(spark: Any, domain: int) -> dict[str, Any]:
    """Milliseconds from a Cyclone writer's write() to the row in a foreachBatch, Spark's floor of that, and where
    the time of a micro-batch goes.

    The floor: a source with a row ready gives the age of the row when it is there; a row that comes at any time waits
    half a period besides. Both take turns, now one of them first and now the other, since the JVM goes on getting
    quicker. ``floor_of_rows`` (p50, p99) says the same without medians of medians: what rows would have waited that
    came all the time while the floor was measured. More of them come during long periods than during short ones, as of
    our rows.
    """
    peer = Peer("cyclone_pinger", domain, 50)
    _batches(spark.readStream.format("instant").load(), LATENCY_WARM_UP, 1.0)
    ours, least = [], []
    for turn in range(2 * LATENCY_TURNS):
        if turn % 4 in (1, 2):
            with scratch() as directory:
                ours.append(_batches(source(spark, domain, directory).load(), LATENCY_SETTLING, SECONDS))
        else:
            least.append(_batches(spark.readStream.format("instant").load(), LATENCY_SETTLING, SECONDS))
    peer.stop()
    ages, floor = _together(ours, "age"), _together(least, "age")
    return {
        "ours": [_percentile(ages, 50), _percentile(ages, 99)],
        "floor": _percentile(floor, 50) + _percentile(_together(least, "period"), 50) / 2,
        "floor_of_rows": [_percentile(_together(least, "wait"), percent) for percent in (50, 99)],
        "phases": {
            name: {phase: _percentile(_together(turns, phase), 50) for phase in turns[0] if phase != "wait"}
            for name, turns in (("ours", ours), ("floor", least))
        },
    }


def _batches(frame: Any, warm_up: float, seconds: float) -> dict[str, list[float]]:
    """Of the micro-batches behind the warm-up, in ms: the age of each row when it is there, the period, the callback's
    select() and collect(), and Spark's phases.

    The warm-up begins when the first micro-batch is over: rows that waited for the query to start are no latency.
    """
    found: dict[str, list[float]] = {"age": [], "end": [], "select": [], "collect": []}

    def collect(batch: Any, _: int) -> None:
        began = time.time_ns()
        wanted = batch.select("id", "seq")
        selected = time.time_ns()
        rows = wanted.collect()
        now = time.time_ns()
        found["age"].extend((now - (row[0] << 32 | row[1])) / 1e6 for row in rows)
        found["end"].append(now / 1e6)
        found["select"].append((selected - began) / 1e6)
        found["collect"].append((now - selected) / 1e6)

    with scratch() as directory, _running(frame.writeStream.foreachBatch(collect), directory) as query:
        _await(query, lambda: query.lastProgress is not None and bool(found["end"]))
        time.sleep(warm_up)
        for values in found.values():
            values.clear()
        first = query.lastProgress["batchId"]
        time.sleep(seconds)
        for progress in query.recentProgress:
            if progress["batchId"] > first and progress["numInputRows"]:
                for phase, milliseconds in progress["durationMs"].items():
                    found.setdefault(phase, []).append(milliseconds)
    ends = np.array(found.pop("end"))
    found["period"] = np.diff(ends).tolist()
    if len(ends) == len(found["age"]):
        found["wait"] = waits(ends, ends - np.array(found["age"])).tolist()
    return found


def waits(ends: npt.NDArray[np.float64], asked: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How long rows wait, of which one comes each millisecond, if micro-batches take what was there when they were
    ``asked`` for, and are over at ``ends``, both in ms."""
    came = np.arange(asked[0], asked[-1])
    return ends[np.searchsorted(asked, came)] - came


def _await(query: Any, condition: Callable[[], bool]) -> None:
    """Wait until the condition holds of a query; RuntimeError if that takes longer than ``PATIENCE``."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if query.exception():
            raise query.exception()
        if time.monotonic() > until:
            raise RuntimeError(f"nothing from the query in {PATIENCE:g} s")
        time.sleep(0.05)


def _together(turns: list[dict[str, list[float]]], name: str) -> list[float]:
    return [value for turn in turns for value in turn.get(name, [])]


def _percentile(values: Any, percent: float) -> float:
    return float(np.percentile(values, percent))
