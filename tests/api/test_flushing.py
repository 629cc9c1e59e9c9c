"""Flushes by the Python API: of a publication, a participant, the process; waited for and not; and what fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import spark_rtps as rtps
from spark_rtps.api import flushing
from spark_rtps.api.flushing import FLUSHES_MAX, FlushQueue, flush_each
from tests.net.net_scene import cut_off
from tests.support.waiting import PATIENCE, wait_until

Participate = Callable[..., rtps.Participant]

SCHEMA = pa.schema([pa.field("i", pa.int32(), nullable=False)])
#: Batches leave when they are flushed, and not before.
OPEN = {"batch.enable": True}
BEST_EFFORT: dict[str, Any] = {"reliability": "best_effort", "options": OPEN}


def subscribed(participant: rtps.Participant, *topics: str) -> list[rtps.Subscription]:
    return [participant.subscribe(topic, schema=SCHEMA, reliability="best_effort") for topic in topics]


def published(
    participant: rtps.Participant, subscription: rtps.Subscription, **arguments: Any
) -> rtps.Publication:
    """A publication that is matched with a subscription, and has a sample in its batch."""
    publication = participant.publish(subscription.topic, schema=SCHEMA, **{"options": OPEN, **arguments})
    assert publication.wait_for_readers(PATIENCE)
    wait_until(lambda: subscription.status("SUBSCRIPTION_MATCHED")["current_count"])
    publication.write([{"i": 1}], wait=False)
    return publication


def has_one(subscription: rtps.Subscription) -> bool:
    return subscription.read(max_rows=1, timeout=PATIENCE)["i"].to_pylist() == [1]  # type: ignore[no-any-return]


def has_none(subscription: rtps.Subscription) -> bool:
    return subscription.take().num_rows == 0  # type: ignore[no-any-return]


# --- scopes -----------------------------------------------------------------------------------------------


def test_a_publication_flushes_its_own_batch_alone(participate: Participate) -> None:
    here = participate()
    a, b = subscribed(participate(), "a", "b")
    one, _ = published(here, a), published(here, b)
    one.flush()
    assert has_one(a) and has_none(b)


def test_a_participant_flushes_all_its_publications(participate: Participate) -> None:
    here, other = participate(), participate()
    a, b, c = subscribed(participate(), "a", "b", "c")
    kept = [published(here, a), published(here, b), published(other, c)]
    here.flush()
    assert has_one(a) and has_one(b) and has_none(c) and len(kept) == 3


@pytest.mark.parametrize("is_awaited", [True, False])
def test_the_process_flushes_all_participants(participate: Participate, is_awaited: bool) -> None:
    a, b = subscribed(participate(), "a", "b")
    kept = [published(participate(), a), published(participate(), b)]
    if is_awaited:
        rtps.flush()
    else:
        rtps.flush_async().result(PATIENCE)
    assert has_one(a) and has_one(b) and len(kept) == 2


# --- what fails -------------------------------------------------------------------------------------------


@pytest.fixture
def cut(participate: Participate) -> Iterator[tuple[rtps.Participant, list[rtps.Publication]]]:
    """A participant with publications, of which the first two cannot send."""
    here, *others = (participate() for _ in range(4))
    subscriptions = [subscribed(other, topic)[0] for other, topic in zip(others, "abc", strict=True)]
    publications = [published(here, each, **BEST_EFFORT) for each in subscriptions]
    cut_off(here.node, *(other.node for other in others[:2]))
    yield here, publications
    assert has_one(subscriptions[2])  # those behind one that fails are flushed, too


BOTH = r"2 flushes failed: topic 'a': 1 datagrams could not be sent; .*; topic 'b': 1 datagrams"


@pytest.mark.parametrize("scope", ["participant", "process"])
def test_errors_are_reported_together_or_ignored(
    cut: tuple[rtps.Participant, list[rtps.Publication]], scope: str
) -> None:
    flush: Callable[..., None] = cut[0].flush if scope == "participant" else rtps.flush
    with pytest.raises(rtps.TransportError, match=BOTH):
        flush()
    for publication in cut[1]:
        publication.write([{"i": 1}], wait=False)
    flush(ignore_errors=True)
    flush()  # told once


@pytest.mark.parametrize("scope", ["publication", "participant", "process"])
def test_the_failed_callback_has_the_error(
    cut: tuple[rtps.Participant, list[rtps.Publication]], scope: str
) -> None:
    flush: Any = {"publication": cut[1][0].flush_async, "participant": cut[0].flush_async}.get(scope)
    flush = flush or rtps.flush_async
    sent: list[None] = []
    failed: list[Exception] = []
    done = flush(sent=lambda: sent.append(None), failed=failed.append)
    error = done.exception(PATIENCE)
    wait_until(lambda: failed)
    assert (sent, failed) == ([], [error])
    assert isinstance(error, rtps.TransportError) and "topic 'a'" in str(error)
    cut[0].flush(ignore_errors=True)


def test_a_publication_that_was_closed_is_flushed_already(participate: Participate) -> None:
    here = participate()
    (a,) = subscribed(participate(), "a")
    publication = published(here, a)
    assert has_none(a)
    publication.close()
    here.flush()
    flush_each([publication])
    with pytest.raises(rtps.UsageError, match="closed"):
        publication.flush_async()


# --- not waited for ---------------------------------------------------------------------------------------


def test_the_sent_callback_is_called_by_another_thread_once_it_is_sent(participate: Participate) -> None:
    (a,) = subscribed(participate(), "a")
    publication = published(participate(), a)
    threads: list[threading.Thread] = []
    failed: list[Exception] = []
    sent = publication.flush_async(
        sent=lambda: threads.append(threading.current_thread()), failed=failed.append
    )
    assert sent.result(PATIENCE) is None
    assert has_one(a)
    wait_until(lambda: threads)
    assert threads[0] is not threading.current_thread() and failed == []


def test_an_interceptor_flushes_as_ices_does(participate: Participate) -> None:
    """It asks for a flush, whose outcome it hears of, and queues the sample behind it."""
    (a,) = subscribed(participate(), "a")
    sent: list[int] = []

    def intercept(request: rtps.BatchRequest) -> None:
        if request.queued_bytes + request.size > 16:
            publication.flush_async(sent=lambda: sent.append(1))
        request.enqueue()

    rtps.set_batch_interceptor(intercept)
    try:
        publication = participate().publish("a", schema=SCHEMA, options=OPEN)
    finally:
        rtps.set_batch_interceptor(None)
    publication.write([{"i": i} for i in range(5)])
    assert a.read(max_rows=5, timeout=PATIENCE)["i"].to_pylist() == [0, 1, 2, 3, 4]
    wait_until(lambda: len(sent) == 3)


class Blocked:
    """A flush that does not end before it is let go."""

    def __init__(self) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()

    def flush(self) -> None:
        self.begun.set()
        assert self.gate.wait(PATIENCE)


def test_waiting_flushes_are_bounded() -> None:
    queue, blocked = FlushQueue(), Blocked()
    first = queue.put(blocked.flush, None, None)
    assert blocked.begun.wait(PATIENCE)
    waiting = [queue.put(lambda: None, None, None) for _ in range(FLUSHES_MAX)]
    with pytest.raises(rtps.UsageError, match="1024 flushes wait already"):
        queue.put(lambda: None, None, None)
    assert not first.done()
    blocked.gate.set()
    for each in (first, *waiting):
        each.result(PATIENCE)
    queue.put(lambda: None, None, None).result(PATIENCE)


def test_flushes_complete_in_order_and_may_be_cancelled() -> None:
    queue, blocked, done = FlushQueue(), Blocked(), list[int]()
    queue.put(blocked.flush, None, None)
    futures = [queue.put(lambda i=i: done.append(i), None, None) for i in range(4)]  # type: ignore[misc]
    assert futures[1].cancel()
    blocked.gate.set()
    futures[3].result(PATIENCE)
    assert done == [0, 2, 3]


def test_a_callback_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    queue = FlushQueue()
    queue.put(lambda: None, lambda: 1 / 0, None).result(PATIENCE)
    queue.put(lambda: None, None, None).result(PATIENCE)
    wait_until(lambda: "ZeroDivisionError" in caplog.text)


# --- compression ------------------------------------------------------------------------------------------


def test_a_flush_that_compresses_needs_a_codec(participate: Participate) -> None:
    (a,) = subscribed(participate(), "a")
    publication = published(participate(), a)
    for flush in (publication.flush, publication.flush_async):
        with pytest.raises(rtps.OptionError, match=r"'batch\.compression' = 'none': set a codec"):
            flush(compress=True)
    publication.flush(compress=False)
    assert has_one(a)


@pytest.mark.parametrize("is_awaited", [True, False])
def test_samples_that_a_flush_compresses_arrive(participate: Participate, is_awaited: bool) -> None:
    (a,) = subscribed(participate(), "a")
    options = {**OPEN, "batch.compression": "zstd", "batch.compression_threshold": "1MiB"}
    publication = published(participate(), a, options=options)
    publication.write([{"i": 1}] * 199, wait=False)
    if is_awaited:
        publication.flush(compress=True)
    else:
        publication.flush_async(compress=True).result(PATIENCE)
    assert a.read(max_rows=200, timeout=PATIENCE)["i"].to_pylist() == [1] * 200


# --- automatic flushes ------------------------------------------------------------------------------------


def test_a_handler_receives_failures_of_automatic_flushes(participate: Participate) -> None:
    here, there = participate(), participate()
    subscriptions = subscribed(there, "a")
    received: list[rtps.TransportError] = []
    options = {**OPEN, "batch.max_flush_delay": "1ms", "batch.max_samples": 10}
    publication = here.publish(
        "a", schema=SCHEMA, reliability="best_effort", options=options, on_flush_failed=received.append
    )
    assert publication.wait_for_readers(PATIENCE)
    cut_off(here.node, there.node)
    publication.write([{"i": 1}], wait=False)
    wait_until(lambda: received)
    assert str(received[0]).startswith("topic 'a': 1 datagrams could not be sent; sending to ")
    publication.write([{"i": 1}], wait=False)  # nothing is left for it to raise
    wait_until(lambda: len(received) == 2)
    with pytest.raises(rtps.TransportError, match="topic 'a'"):
        publication.write(
            [{"i": i} for i in range(10)], wait=False
        )  # it fills a batch, and hears of it itself
    publication.close()
    assert len(received) == 2 and has_none(subscriptions[0])


def test_participants_that_are_gone_are_flushed_no_more(participate: Participate) -> None:
    participant = participate()
    _ = participant.node
    assert participant._membership in flushing.FLUSHERS._members
    participant.close()
    rtps.flush()
