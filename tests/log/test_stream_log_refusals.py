"""The system refuses one call of the stream log, each in turn: an error that says so, and no row is lost by it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import RECEPTION, guid, uniform
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
