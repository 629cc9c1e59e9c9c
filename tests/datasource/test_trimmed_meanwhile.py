"""Logs of receiver services that are trimmed, and overwritten, while a query plans and reads: no row that is none."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from spark_rtps.columns import chunks
from spark_rtps.datasource.log_reading import read_range
from spark_rtps.datasource.schema import plan_source, source_schema
from spark_rtps.monitoring.decoding_report import NOT_HELD, LostPart, read_decoding_report
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import LogLostError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.wire.samples import Run
from tests.datasource.receiver_service_scene import FakeReceiver, ReceiverServices, ids
from tests.datasource.stream_reader_scene import COLUMNS
from tests.support.stream_logs import RECEPTION, WRITER, encoded, points, run_of

ALL = ReadAllAvailable()
#: Samples of a frame; a segment of a megabyte has five such frames, and is no longer than the frames that it holds.
FRAME = 8_000
PLANNED = 20 * FRAME


@pytest.fixture
def services(tmp_path: Path) -> ReceiverServices:
    """Receiver a has 20 frames in a log of four segments, the oldest of which make room for new ones."""
    found = ReceiverServices(tmp_path)
    found.a.max_bytes = 4 << 20
    found.a.renew()
    receive(found.a, 0, 20)
    return found


def receive(receiver: FakeReceiver, first: int, frames: int) -> None:
    """With retention=bytes: the oldest segments make room, and become the next ones."""
    for number in range(first, first + FRAME * frames, FRAME):
        run = run_of(encoded(points(number, FRAME)), number + 1)
        while not receiver.stream.append(run, reception=RECEPTION):
            receiver.stream.trim_oldest()
    receiver.base = receiver.stream.base


def before_gathering(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Frames were verified and are not decoded yet: the receiver gets the processor then, once."""
    gather, left = chunks.gather, [act]

    def gather_late(frames: list[Any]) -> chunks.Chunk:
        if left:
            left.pop()()
        return gather(frames)

    monkeypatch.setattr(chunks, "gather", gather_late)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_rows_of_a_log_that_is_overwritten_before_decoding_are_those_of_the_range(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    base = services.a.base
    first = next(LogView(services.a.root / services.a.log).frames(Cursor(base), services_end(services)))
    reader = services.reader(startingOffsets="earliest", failOnDataLoss=fail)
    zero = reader.initialOffset()
    parts = reader.partitions(zero, reader.latestOffset(zero, ALL))
    before_gathering(monkeypatch, lambda: receive(services.a, PLANNED, 30))
    rows: list[int] = []
    task = pickle.loads(pickle.dumps(reader))
    try:
        for part in parts:
            for batch in task.read(part):
                rows += batch.column("id").to_pylist()
    except LogLostError:
        assert fail == "true"
    else:
        assert fail == "false"
    assert rows and rows == list(range(first.rows_before, first.rows_before + len(rows)))
    assert rows[-1] < PLANNED


def services_end(services: ReceiverServices) -> Cursor:
    return Cursor(services.a.stream.position)


def test_a_task_that_stops_early_has_rows_of_the_range_alone(
    services: ReceiverServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``limit`` has it: such a task never comes to where it would find that the log was trimmed."""
    reader = services.reader(startingOffsets="earliest")
    zero = reader.initialOffset()
    parts = reader.partitions(zero, reader.latestOffset(zero, ALL))
    before_gathering(monkeypatch, lambda: receive(services.a, PLANNED, 30))
    batches = pickle.loads(pickle.dumps(reader)).read(parts[0])
    rows = next(batches).column("id").to_pylist()
    batches.close()
    assert rows == list(range(rows[0], rows[0] + len(rows))) and rows[-1] < PLANNED


# --- what Spark has not taken yet -----------------------------------------------------------------


def overwritten(log: StreamLog, run: Run) -> None:
    """Go on until each segment that the log had was trimmed and written anew."""
    until = log.position + 2 * log.max_bytes
    while log.position < until:
        if not log.append(run, reception=2):
            log.trim_oldest()


def rest_of(log: StreamLog, batches: Iterator[pa.RecordBatch], later: Run) -> list[pa.RecordBatch]:
    """All batches, of which the first is taken before the log is overwritten."""
    found = [next(batches)]
    overwritten(log, later)
    return found + list(batches)


@pytest.mark.parametrize("payload", ["cdr", "binary", "arrow"])
def test_batches_do_not_change_while_spark_takes_them(tmp_path: Path, payload: str) -> None:
    count = 100_000
    with StreamLog.create(tmp_path / "log", max_bytes=16 << 20, segment_bytes=4 << 20, metadata={}) as log:

        def run(value: int) -> Run:
            batch = pa.record_batch(
                {"id": pa.array([value] * count, pa.int32()), "x": [float(value)] * count}
            )
            if payload == "cdr":
                return run_of(encoded(batch), log.rows + 1)
            return whole(batch, log.rows + 1)

        for _ in range(1 if payload == "binary" else 2):
            assert log.append(run(1), reception=1)
        settings = parse_options({"topic": "T", "payload": payload}, AppliesTo.READ)
        columns = source_schema(settings, None) if payload == "binary" else COLUMNS
        plan = plan_source(settings, columns)
        end = Cursor(log.position)
        batches = read_range(log.directory, Cursor(0), end, plan, fail_on_data_loss=False)
        found = rest_of(log, batches, run(9))
        if payload == "binary":
            assert {value for batch in found for value in batch.column("value").to_pylist()} == {
                whole_bytes(1, count)
            }
        else:
            assert {value for batch in found for value in batch.column("id").unique().to_pylist()} == {1}


def whole(batch: pa.RecordBatch, number: int) -> Run:
    """The batch in one sample, as a stream of Arrow."""
    data = np.frombuffer(whole_of(batch), np.uint8)
    return Run(WRITER, number, 1, data, len(data), 0, len(data))


def whole_of(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    content = sink.getvalue().to_pybytes()
    raw = b"\0\1\0\0" + len(content).to_bytes(4, "little") + content
    return raw + bytes(-len(raw) % 4)  # type: ignore[no-any-return]


def whole_bytes(value: int, count: int) -> bytes:
    return whole_of(alike(value, count))


def alike(value: int, count: int) -> pa.RecordBatch:
    return pa.record_batch({"id": np.full(count, value, np.int32), "x": np.full(count, float(value))})


@pytest.mark.parametrize("frames", [1, 2])
def test_no_rows_leave_that_are_overwritten_while_a_query_reads_its_own_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: int
) -> None:
    """A micro-batch that is evaluated once more, after its commit: with ``limit`` its task ends at the first rows."""
    with StreamLog.create(tmp_path / "log", max_bytes=16 << 20, segment_bytes=4 << 20, metadata={}) as log:
        for number in range(frames):
            assert log.append(run_of(encoded(points(number * FRAME, FRAME)), log.rows + 1), reception=1)
        end = Cursor(log.position)
        plan = plan_source(parse_options({"topic": "T"}, AppliesTo.READ), COLUMNS)
        before_gathering(
            monkeypatch, lambda: overwritten(log, run_of(encoded(points(PLANNED, FRAME)), log.rows + 1))
        )
        batches = read_range(log.directory, Cursor(0), end, plan, fail_on_data_loss=True, own=True)
        with pytest.raises(LogLostError, match="no longer in the log"):
            next(batches)


def test_a_range_overwritten_while_spark_takes_its_last_rows_fails(
    tmp_path: Path,
) -> None:
    """Large payloads are views of the log until they are sent."""
    with StreamLog.create(tmp_path / "log", max_bytes=16 << 20, segment_bytes=4 << 20, metadata={}) as log:
        assert log.append(whole(alike(1, 100_000), 1), reception=1)
        settings = parse_options({"topic": "T", "payload": "binary"}, AppliesTo.READ)
        plan = plan_source(settings, source_schema(settings, None))
        batches = read_range(
            log.directory, Cursor(0), Cursor(log.position), plan, fail_on_data_loss=True, own=True
        )
        next(batches)
        overwritten(log, whole(alike(9, 100_000), 2))
        with pytest.raises(LogLostError, match="no longer in the log"):
            next(batches)


# --- what is still held ---------------------------------------------------------------------------


def test_rows_trimmed_before_a_read_are_counted_and_the_rest_is_read(
    services: ReceiverServices,
) -> None:
    receiver = services.b
    receive(receiver, 0, 12)
    reader = services.reader(startingOffsets='{"a":0,"b":0}', failOnDataLoss="false", topic="T")
    zero = reader.initialOffset()
    end = reader.latestOffset(zero, ALL)
    parts = [p for p in reader.partitions(zero, end) if receiver.log in p.directory]  # type: ignore[attr-defined]
    assert receiver.stream.trim_oldest()
    base = receiver.stream.base
    directory = receiver.root / receiver.log
    (first, *_) = LogView(directory).frames(Cursor(base), Cursor(receiver.stream.position))
    for _ in range(2):  # Spark repeats a task
        assert ids(reader, parts) == list(range(first.rows_before, 12 * FRAME))
        (part,) = read_decoding_report(directory).lost.values()
        assert part == LostPart(NOT_HELD, 0, part.at_ns, base, first.rows_before)


def test_rows_trimmed_during_a_read_are_counted_and_the_rest_is_read(services: ReceiverServices) -> None:
    receiver = services.b
    receive(receiver, 0, 30)
    reader = services.reader(startingOffsets='{"a":0,"b":0}', failOnDataLoss="false")
    zero = reader.initialOffset()
    parts = [
        part
        for part in reader.partitions(zero, reader.latestOffset(zero, ALL))
        if receiver.log in part.directory  # type: ignore[attr-defined]
    ]
    directory = receiver.root / receiver.log
    batches = (batch for part in parts for batch in pickle.loads(pickle.dumps(reader)).read(part))
    rows = next(batches).column("id").to_pylist()
    for _ in range(4):
        assert receiver.stream.trim_oldest()
    for batch in batches:
        rows += batch.column("id").to_pylist()
    (part,) = read_decoding_report(directory).lost.values()
    assert part.samples is not None and part.samples + len(rows) == 30 * FRAME
    missing = sorted(set(range(30 * FRAME)) - set(rows))
    assert missing == list(range(missing[0], missing[0] + part.samples))
    assert rows == sorted(set(rows))


def test_a_range_that_is_trimmed_whole_is_counted_whole(services: ReceiverServices) -> None:
    receiver = services.b
    receive(receiver, 0, 4)
    reader = services.reader(startingOffsets='{"a":0,"b":0}', failOnDataLoss="false")
    zero = reader.initialOffset()
    end = reader.latestOffset(zero, ALL)
    parts = [p for p in reader.partitions(zero, end) if receiver.log in p.directory]  # type: ignore[attr-defined]
    position = receiver.stream.position
    receive(receiver, 4 * FRAME, 8)
    while receiver.stream.base <= position:
        assert receiver.stream.trim_oldest()
    assert ids(reader, parts) == []
    (part,) = read_decoding_report(receiver.root / receiver.log).lost.values()
    assert (part.cause, part.position, part.nbytes) == (NOT_HELD, 0, position)
