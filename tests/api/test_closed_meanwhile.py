"""Publications that are closed, forked or used twice while a thread writes: no row goes without a word."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import spark_rtps as rtps
from spark_rtps.api import publication as publication_module
from tests.support.waiting import PATIENCE

SCHEMA = pa.schema([("n", pa.int32())])
COHERENT = {"presentation.coherent_access": True}
Participate = Callable[..., rtps.Participant]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks around for further readers."""
    monkeypatch.setattr(publication_module, "LOOK_AROUND_NS", 0)


def before(target: Any, name: str, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread gets the processor before the first call of that name."""
    known, left = getattr(target, name), [act]

    def late(*arguments: Any, **named: Any) -> Any:
        if left:
            left.pop()()
        return known(*arguments, **named)

    monkeypatch.setattr(target, name, late)


def publishing(
    participate: Participate, what: str, **given: Any
) -> tuple[rtps.Publication, Callable[[], None]]:
    """A publication with a reader, and what closes it: itself, or its participant."""
    participate().subscribe("t", schema=SCHEMA, **given)
    writing = participate()
    publication = writing.publish("t", schema=SCHEMA, **given)
    assert publication.wait_for_readers(PATIENCE)
    return publication, publication.close if what == "publication" else writing.close


@pytest.mark.parametrize("reliability", ["reliable", "best_effort"])
@pytest.mark.parametrize("what", ["publication", "participant"])
def test_rows_of_a_publication_that_is_closed_before_they_are_written_are_an_error(
    participate: Participate, reliability: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication, close = publishing(participate, what, reliability=reliability)
    before(publication._session, "write_samples", close, monkeypatch)
    with pytest.raises(rtps.TransportError, match="its writer was closed"):
        publication.write([{"n": 1}], wait=False)


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("what", ["publication", "participant"])
def test_a_coherent_set_that_is_closed_before_its_end_is_an_error(
    participate: Participate, what: str, wait: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication, close = publishing(participate, what, options=COHERENT)
    before(publication._session._writer, "end_coherent_set", close, monkeypatch)
    with pytest.raises(rtps.TransportError, match="its writer was closed"), publication.coherent(wait=wait):
        publication.write([{"n": 1}])


@pytest.mark.parametrize("on_no_reader", ["wait", "drop"])
@pytest.mark.parametrize("is_late", [False, True])
def test_wait_for_acknowledgments_raises_when_its_publication_is_closed(
    participate: Participate, on_no_reader: str, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not that readers left, or, where none is asked for, that they have everything."""
    reading = participate()
    reading.subscribe("t", schema=SCHEMA)
    publication = participate().publish("t", schema=SCHEMA, options={"on_no_reader": on_no_reader})
    assert publication.wait_for_readers(PATIENCE)
    writer = publication._session._writer
    wait = writer._wait

    def close_behind() -> None:
        wait()
        publication.close()

    if is_late:
        monkeypatch.setattr(writer, "_wait", close_behind)
    else:
        before(writer, "wait_for_acknowledgments", publication.close, monkeypatch)
    # the reader's answers wait
    with reading.node.lock, pytest.raises(rtps.TransportError, match="its writer was closed"):
        publication.write([{"n": 1}])


def test_a_coherent_set_outlives_the_attempt_of_another_thread_to_begin_one(
    participate: Participate, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = participate().subscribe("t", schema=SCHEMA, options=COHERENT)
    publication = participate().publish("t", schema=SCHEMA, options=COHERENT)
    assert publication.wait_for_readers(PATIENCE)
    may_end, outcomes = threading.Event(), list[str]()

    def other() -> None:
        try:
            with publication.coherent():
                publication.write([{"n": 1}])
                may_end.wait(PATIENCE)
                publication.write([{"n": 2}])
        except rtps.UsageError as error:
            outcomes.append(str(error))
        else:
            outcomes.append("whole")

    thread = threading.Thread(target=other)

    def run_other() -> None:
        """As far as it comes while this thread begins a set."""
        thread.start()
        thread.join(0.2)

    before(publication._session._writer, "begin_coherent_set", run_other, monkeypatch)
    try:
        with publication.coherent():
            publication.write([{"n": 3}])
    except rtps.UsageError as error:
        outcomes.append(str(error))
    else:
        outcomes.append("whole")
    may_end.set()
    thread.join(PATIENCE)
    assert outcomes.count("whole") >= 1 and set(outcomes) <= {
        "whole",
        "a coherent set is open already: end it",
    }
    found = subscription.take().column("n").to_pylist()
    assert found in ([3], [1, 2], [1, 2, 3], [3, 1, 2])


def test_a_forked_child_offers_nothing_whatever_its_parents_threads_did(participate: Participate) -> None:
    publication = participate().publish("t", schema=SCHEMA)
    with publication._encoder._lock:  # as a thread has it that encodes rows
        pid = os.fork()
        if pid == 0:
            threading.Timer(PATIENCE, os._exit, (3,)).start()
            is_closed = publication.offer([{"n": 1}]) == rtps.PublicationResult.CLOSED
            os._exit(0 if is_closed and publication.try_claim(8) == rtps.PublicationResult.CLOSED else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
