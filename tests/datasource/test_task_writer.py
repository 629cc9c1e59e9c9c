"""What a task of a sink does with its rows: waiting, coherent sets, acknowledgements, what it reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.columns.topic_plan import plan_writing
from spark_rtps.datasource import writer as writer_module
from spark_rtps.datasource.writer import RtpsCommitMessage, TaskWriter
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import RtpsError

COLUMNS = pa.schema([pa.field("id", pa.int32(), nullable=False)])
SETTINGS = parse_options({"topic": "Alerts", "type": "Alert", "key": "id"}, AppliesTo.WRITE)
PLAN = plan_writing(SETTINGS, COLUMNS)


class Session:
    """Stands for a writer's session: it keeps what is done to it, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.ids: list[int] = []
        self.keyed: list[bool] = []
        self.in_coherent_set = False
        self.failing = ""

    def _do(self, what: str) -> None:
        self.done.append(what)
        if what == self.failing:
            raise RtpsError(f"{what} fails")

    def wait_for_reader(self) -> None:
        self._do("wait for a reader")

    def begin_coherent_set(self) -> None:
        self.in_coherent_set = True
        self._do("begin")

    def end_coherent_set(self) -> None:
        self._do("end")
        self.in_coherent_set = False

    def abort_coherent_set(self) -> None:
        self.in_coherent_set = False
        self._do("abort")

    def write(self, samples: Any, key_hashes: Any) -> None:
        payloads = np.stack([np.frombuffer(samples.payload(i), np.uint8) for i in range(samples.count)])
        self.ids += payloads[:, 4:8].copy().view("<i4").ravel().tolist()
        self.keyed.append(key_hashes is not None and key_hashes.shape == (samples.count, 16))
        self._do("write")

    def wait_for_acknowledgments(self) -> None:
        self._do("acknowledged")


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made, asked = Session(), []

    class Pool:
        @staticmethod
        def session(settings: Any, plan: Any) -> Session:
            asked.append((settings, plan))
            assert asked == [(SETTINGS, PLAN)]  # once a task
            return made

    monkeypatch.setattr(writer_module, "WRITERS", Pool)
    return made


def batches(*ids: list[int]) -> Any:
    return iter([pa.record_batch({"id": pa.array(each, pa.int32())}, COLUMNS) for each in ids])


def test_rows_are_written_in_one_set_and_acknowledged(session: Session) -> None:
    message = TaskWriter(SETTINGS, PLAN).write(batches([1, 2], [], [3]))
    assert message == RtpsCommitMessage(rows=3, samples=3)
    wait, write = "wait for a reader", "write"
    assert session.done == [wait, "begin", write, wait, write, "end", "acknowledged"]
    assert (session.ids, session.keyed) == ([1, 2, 3], [True, True])


def test_a_task_without_rows_needs_no_participant(session: Session) -> None:
    assert TaskWriter(SETTINGS, PLAN).write(batches([], [])) == RtpsCommitMessage(0, 0)
    assert session.done == []


@pytest.mark.parametrize("failing", ["write", "end"])
def test_a_task_that_fails_gives_its_set_up(session: Session, failing: str) -> None:
    session.failing = failing
    with pytest.raises(RtpsError, match=f"{failing} fails"):
        TaskWriter(SETTINGS, PLAN).write(batches([1]))
    assert session.done[-1] == "abort" and "acknowledged" not in session.done


def test_a_task_that_spark_gave_up_ends_no_set(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_spark_has_hung_up", lambda: True)
    with pytest.raises(RtpsError, match="Spark gave the task up"):
        TaskWriter(SETTINGS, PLAN).write(batches([1]))
    assert session.done[-2:] == ["write", "abort"]


def test_a_task_settles_first(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[list[str]] = []
    monkeypatch.setattr(writer_module, "settle", lambda: settled.append([*session.done]))
    TaskWriter(SETTINGS, PLAN).write(batches([1]))
    assert settled == [[]]
