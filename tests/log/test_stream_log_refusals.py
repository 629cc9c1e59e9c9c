"""The system refuses one call of the stream log, each in turn: an error that says so, and no row is lost by it."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.errors import LogError, LogFullError
from spark_rtps.transport.log import stream_log
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import RECEPTION, guid, read, uniform
from tests.support.refusals import REFUSALS, Refusal, open_descriptors

SEGMENT = 16 << 10
MAX = 8 * SEGMENT


class Story:
    """What happens to a log in its life. A step that is refused is tried once more, as its owner would."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log: StreamLog | None = None
        self.next_sn = 1
        self.trimmed = Cursor(0)
        #: Numbers appended and the position behind them.
        self.appended: list[tuple[int, int]] = []
        self.errors: list[str] = []

    def step(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except LogError as error:
            self.errors.append(str(error))  # its traceback would keep mappings
        return do()

    def create(self) -> None:
        self.log = StreamLog.create(
            self.directory, max_bytes=MAX, segment_bytes=SEGMENT, metadata={"topic": "t"}
        )

    def open(self) -> None:
        self.log = StreamLog.open(self.directory)

    def append(self) -> None:
        assert self.log is not None
        run = uniform(guid(1), self.next_sn, 20, 100)
        assert self.step(lambda: self.log.append(run, reception=RECEPTION))
        self.appended += [(sn, self.log.position) for sn in range(run.first_sn, run.last_sn + 1)]
        self.next_sn += run.count

    def trim(self) -> None:
        assert self.log is not None
        end = Cursor(self.appended[len(self.appended) // 2][1])
        self.step(lambda: self.log.trim(end.position))
        self.trimmed = end

    def amend(self) -> None:
        assert self.log is not None
        self.log.amend(type="T")

    def read(self) -> None:
        assert self.log is not None
        start, end = Cursor(self.trimmed.position), Cursor(self.log.position)

        def read() -> list[int]:
            view = LogView(self.directory)
            return [
                int(sn) for frame in view.frames(start, end) for sn in frame.run.sequence_numbers().tolist()
            ]

        found = self.step(read)
        assert found == [sn for sn, behind in self.appended if behind > start.position]

    def close(self) -> None:
        assert self.log is not None
        self.log.close()

    def tell(self) -> None:
        self.step(self.create)
        for _ in range(14):
            self.append()
        self.read()
        self.step(self.amend)
        self.trim()
        for _ in range(8):
            self.append()
        self.step(self.close)
        self.step(self.open)
        self.append()
        self.read()
        self.trim()
        for _ in range(8):
            self.append()
        self.read()
        self.step(self.close)
        self.log = None


@pytest.mark.parametrize(("functions", "code"), REFUSALS)
def test_each_call_is_refused_once(functions: Any, code: int, tmp_path: Path) -> None:
    gc.collect()
    before = open_descriptors()
    number, refused = 0, 0
    while True:
        number += 1
        story, refusal = Story(tmp_path / str(number)), Refusal(functions, number, code)
        with refusal.armed():
            story.tell()
        if not refusal.came:
            break
        for error in story.errors:
            assert os.strerror(code) in error and str(tmp_path) in error
        refused += len(story.errors)
        left = sorted(path.name for path in story.directory.glob("*.new"))
        assert left == [], (number, left)
        held = sum(path.stat().st_size for path in story.directory.glob("*.segment"))
        assert held <= MAX
        with StreamLog.open(story.directory) as log:
            assert log.rows == story.next_sn - 1 and log.writers == {guid(1): log.rows}
            assert log.free_bytes > 2 * SEGMENT, "what was trimmed is free"
        del log  # which maps its file of checkpoints
        gc.collect()
        assert open_descriptors() == before, number
    assert number > 20 and refused > 10


def test_a_segment_begun_without_its_checkpoint_is_read_to_the_shown_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log's position is behind the segment's end then, and queries ask for what lies before it."""
    with StreamLog.create(tmp_path / "log", max_bytes=MAX, segment_bytes=SEGMENT, metadata={}) as log:
        runs = [uniform(guid(1), sn, 20, 100) for sn in range(1, 201, 20)]
        assert log.append(runs[0], reception=RECEPTION)
        monkeypatch.setattr(stream_log, "write_checkpoint", refused)
        appended = 1
        with contextlib.suppress(LogFullError):
            while log.append(runs[appended], reception=RECEPTION):
                appended += 1
        assert log.position == SEGMENT
        assert len(read(log.directory, 0, log.position)) == 20 * appended
        monkeypatch.undo()
        assert log.append(runs[appended], reception=RECEPTION)
        assert len(read(log.directory, 0, log.position)) == 20 * (appended + 1)


def refused(*_: object) -> None:
    raise OSError(errno.ENOSPC, "refused")


def test_a_checkpoint_of_which_the_system_takes_a_part_at_a_time_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    with StreamLog.create(tmp_path / "log", max_bytes=MAX, segment_bytes=SEGMENT, metadata={}) as log:
        assert log.append(uniform(guid(1), 1, 20, 100), reception=RECEPTION)
        monkeypatch.setattr(os, "pwrite", lambda fd, raw, at: pwrite(fd, memoryview(raw)[:7], at))
        log.trim_all()
        assert LogView(log.directory).base == log.base == log.position


def test_a_checkpoint_that_is_cut_off_twice_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite

    def half(fd: int, raw: bytes, at: int) -> int:
        pwrite(fd, memoryview(raw)[:50], at)
        raise OSError(errno.EIO, "refused")

    with StreamLog.create(tmp_path / "log", max_bytes=MAX, segment_bytes=SEGMENT, metadata={}) as log:
        assert log.append(uniform(guid(1), 1, 20, 100), reception=RECEPTION)
        with monkeypatch.context() as refusing:
            refusing.setattr(os, "pwrite", half)
            for _ in range(2):
                with pytest.raises(LogError):
                    log.trim_all()
        assert LogView(log.directory).base == log.base == 0
        twin = tmp_path / "killed"
        shutil.copytree(log.directory, twin)
    with StreamLog.open(twin) as again:
        assert len(read(twin, again.base, again.position)) == 20
