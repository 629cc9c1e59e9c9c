"""The log against a plain list: append, trim, reopen and crash in any order."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_rtps.transport.log import segment
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import Run
from tests.log.make_runs import Sample, all_samples, guid, indexed, samples, single, uniform

PAGE = segment.PAGE


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="log-model-"))
        self.lives = 0
        self.frames: list[tuple[int, list[Sample]]] = []  # (position, samples), trimmed ones included
        self.writers: dict[Guid, int] = {}
        self.rows = 0

    @initialize(segment_pages=st.integers(1, 3))
    def create(self, segment_pages: int) -> None:
        self.log = StreamLog.create(
            self.home / "0", max_bytes=12 * PAGE, segment_bytes=segment_pages * PAGE, metadata={"n": 1}
        )

    @rule(
        writer=st.integers(0, 3),
        make=st.sampled_from([uniform, indexed]),
        count=st.integers(1, 30),
        size=st.sampled_from([0, 4, 60, 300]),
        skipped=st.integers(0, 3),
    )
    def append(self, writer: int, make: type, count: int, size: int, skipped: int) -> None:
        self._append(make(guid(writer), self.writers.get(guid(writer), 0) + 1 + skipped, count, size))

    @rule(writer=st.integers(0, 3), size=st.integers(0, 8 * PAGE))
    def append_single(self, writer: int, size: int) -> None:
        self._append(single(guid(writer), self.writers.get(guid(writer), 0) + 1, size))

    def _append(self, run: Run) -> None:
        before = self.log.position
        if not self.log.append(run, reception=0):
            assert self.log.position == before
            return
        self.frames.append((before, samples(run)))
        self.writers[run.writer] = run.last_sn
        self.rows += run.count

    @precondition(lambda self: self.frames)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        position = data.draw(st.sampled_from([self.log.position, *(at for at, _ in self.frames)]))
        base = self.log.base
        self.log.trim(position)
        assert base <= self.log.base <= max(base, position)

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = StreamLog.open(self.log.directory)

    @rule()
    def crash(self) -> None:
        self.lives += 1
        twin = self.home / str(self.lives)
        shutil.copytree(self.log.directory, twin)
        self.log.close()
        self.log = StreamLog.open(twin)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        log = self.log
        assert log.rows == self.rows
        assert log.writers == self.writers
        files = list(log.directory.glob("*.segment"))
        assert sum(path.stat().st_size for path in files) <= log.max_bytes
        got = all_samples(LogView(log.directory).frames(Cursor(log.base), Cursor(log.position)))
        model = [sample for _, samples_ in self.frames for sample in samples_]
        assert got == model[len(model) - len(got) :]
        # what is gone lies below the base
        assert len(got) >= sum(len(samples_) for at, samples_ in self.frames if at >= log.base)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.home)


LogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestLogModel = LogMachine.TestCase
