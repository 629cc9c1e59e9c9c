"""``spark-rtps record``: how a recording ends."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from mcap.reader import make_reader
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.commands import record as record_module
from spark_rtps.recordings.mcap_file import McapFile
from spark_rtps.recordings.mcap_writing import McapRecorder
from spark_rtps.recordings.recorded import ALL_TIMES, Piece
from spark_rtps.transport.errors import RecordingError
from spark_rtps.transport.types.idl.parser import parse_struct

POINT = parse_struct("@final struct Point { long x; };", "Point", "here")
ROWS = 2000


def rows(first: int) -> pa.Table:
    """Of three writers, in turn."""
    numbers = range(first, first + ROWS)
    times = pa.array([1_700_000_000_000_000 + number for number in numbers], pa.timestamp("us"))
    return pa.table(
        {
            "reception_timestamp": times,
            "source_timestamp": times,
            "writer": [f"{number % 3:02x}" * 16 for number in numbers],
            "sequence_number": pa.array(numbers, pa.int64()),
            "instance_state": ["ALIVE"] * ROWS,
            "value": pa.array(
                [b"\0\1\0\0" + number.to_bytes(4, "little") for number in numbers], pa.binary()
            ),
        }
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_write_leaves_a_whole_file_with_all_taken_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    taken: list[pa.Table] = []

    def take(**_: Any) -> pa.Table:
        taken.append(rows(ROWS * len(taken)))
        return taken[-1]

    @contextmanager
    def joined(*_: Any, **__: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(endpoints=list)

    def hash_of(_participant: object, writer: str) -> None:
        if writer.startswith("02"):  # between two samples of what was taken
            os.kill(os.getpid(), number)

    subscription = SimpleNamespace(topic="T", take=take, counters=dict)
    monkeypatch.setattr(record_module, "joined", joined)
    monkeypatch.setattr(record_module, "_subscribed", lambda *_: (subscription, POINT))
    monkeypatch.setattr(record_module, "_hash_of", hash_of)
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    path = tmp_path / "t.mcap"
    result = CliRunner().invoke(app, ["record", "T", "-o", str(path), "-t", "60s"])
    assert result.exit_code == 0, result.output
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    with path.open("rb") as file:
        found = [message.sequence for _, _, message in make_reader(file).iter_messages()]
    assert len(taken) == 1 and sorted(found) == list(range(ROWS))


def test_a_topic_that_is_named_twice_is_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def joined(*_: Any, **__: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(endpoints=list)

    def subscribed(_: object, topic: str, *__: Any) -> tuple[SimpleNamespace, Any]:
        left = [rows(0), rows(ROWS)]

        def take(**_: Any) -> pa.Table:
            if len(left) == 1:
                os.kill(os.getpid(), signal.SIGINT)
                return left[0][:0]
            return left.pop(0)

        return SimpleNamespace(topic=topic, take=take, counters=dict), POINT

    monkeypatch.setattr(record_module, "joined", joined)
    monkeypatch.setattr(record_module, "_subscribed", subscribed)
    path = tmp_path / "t.mcap"
    result = CliRunner().invoke(app, ["record", "T", "U", "T", "-o", str(path)])
    assert result.exit_code == 0, result.output
    with path.open("rb") as file:
        found = [
            (channel.topic, message.sequence) for _, channel, message in make_reader(file).iter_messages()
        ]
    assert sorted(found) == [(topic, number) for topic in "TU" for number in range(ROWS)]


def test_received_samples_are_in_the_file_before_the_recorder_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it were killed then: the next look at the topic is after what came before has been written."""
    path, there = tmp_path / "t.mcap", list[int]()

    @contextmanager
    def joined(*_: Any, **__: Any) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(endpoints=list)

    def take(**_: Any) -> pa.Table:
        if not there:
            there.append(0)
            return rows(0)
        file = McapFile(str(path), is_lenient=True)
        channels = file.channels("T", typed=True)
        piece = Piece(str(path), file.form, channels, tuple(file.sections(channels, ALL_TIMES)))
        there[0] = sum(each.count for each in file.read_piece(piece, ALL_TIMES))
        os.kill(os.getpid(), signal.SIGINT)
        return rows(0)[:0]

    subscription = SimpleNamespace(topic="T", take=take, counters=dict)
    monkeypatch.setattr(record_module, "joined", joined)
    monkeypatch.setattr(record_module, "_subscribed", lambda *_: (subscription, POINT))
    monkeypatch.setattr(record_module, "_WRITTEN_SECONDS", 0)
    result = CliRunner().invoke(app, ["record", "T", "-o", str(path)])
    assert result.exit_code == 0, result.output
    assert there == [ROWS]
    with path.open("rb") as file:
        assert len(list(make_reader(file).iter_messages())) == ROWS


def test_a_full_disk_is_an_error_that_says_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = McapRecorder(str(tmp_path / "t.mcap"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(recorder._writer, "add_message", full)
    monkeypatch.setattr(recorder._writer, "finish", full)
    printed = (
        r"t\.mcap: it cannot be written to its end: No space left on device; failOnDataLoss=false reads what"
    )
    with pytest.raises(RecordingError, match=printed):
        recorder.add_rows("T", POINT, rows(0))
    with pytest.raises(RecordingError, match=printed):
        recorder.close()
    assert recorder._file.closed
