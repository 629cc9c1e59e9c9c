"""What only shows in the long run: readers that come and go, inboxes that stay full, ends at the wrong moment."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

import spark_rtps as rtps
from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.net.wake_pipe import WakePipe
from tests.support.waiting import PATIENCE, wait_until

SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
Participate = Callable[..., rtps.Participant]


def rows(first: int, count: int, instance: int = 1) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": [instance] * count, "n": list(range(first, first + count))}, schema=SCHEMA
    )


def test_readers_that_were_served_and_left_are_no_loss(participate: Participate) -> None:
    publication = participate().publish("t", schema=SCHEMA, key="id")
    for turn in range(4):
        with participate().subscribe("t", schema=SCHEMA, key="id") as subscription:
            assert publication.wait_for_readers(PATIENCE)
            publication.write(rows(10 * turn, 10))
            assert subscription.take(max_rows=10, timeout=PATIENCE).num_rows == 10
        wait_until(lambda: not publication.readers(), "the reader to leave")


@pytest.mark.parametrize("polls", [False, True])
def test_keep_last_that_nobody_reads_holds_nobody_back(participate: Participate, polls: bool) -> None:
    publication = participate().publish("t", schema=SCHEMA, key="id")
    subscription = participate().subscribe(
        "t", schema=SCHEMA, key="id", history="keep_last", history_depth=1, buffer_size=256 << 10
    )
    assert publication.wait_for_readers(PATIENCE)
    for first in range(0, 100_000, 1_000):
        publication.write(rows(first, 1_000, instance=first // 1_000 % 3))
        if polls:
            subscription.counters()
    wait_until(lambda: subscription.counters()["received_samples"] == 100_000)
    newest = dict(zip(*subscription.take().to_pydict().values(), strict=True))
    assert newest == {0: 99_999, 1: 97_999, 2: 98_999}


def test_a_listener_may_read_the_status_it_is_called_with(participate: Participate) -> None:
    """It asks while more and more arrives, and no event overtakes another."""
    received: list[int] = []

    def listener(change: rtps.StatusChange) -> None:
        if subscription is not None:
            received.append(subscription.status("SUBSCRIPTION_MATCHED")["current_count"])

    subscription: rtps.Subscription | None = None
    publication = participate().publish("t", schema=SCHEMA, key="id")
    subscription = participate().subscribe("t", schema=SCHEMA, key="id", listener=listener)
    assert publication.wait_for_readers(PATIENCE)
    for first in range(50):
        publication.write(rows(first, 1))
    wait_until(lambda: len(received) > 1)
    assert subscription.status("SUBSCRIPTION_MATCHED")["current_count"] == 1


def test_a_listener_is_never_called_by_the_thread_that_asks(participate: Participate) -> None:
    mine, called = threading.Lock(), threading.Event()

    def listener(_: rtps.StatusChange) -> None:
        called.set()
        with mine:
            pass

    publication = participate().publish("t", schema=SCHEMA, key="id", listener=listener)
    with mine:
        participate().subscribe("t", schema=SCHEMA, key="id")
        assert called.wait(PATIENCE)
        publication.status("PUBLICATION_MATCHED")


def test_close_does_not_wait_for_a_listener(participate: Participate) -> None:
    ended = threading.Event()
    called = threading.Event()

    def listener(_: rtps.StatusChange) -> None:
        called.set()
        ended.wait(PATIENCE)

    publication = participate().publish("t", schema=SCHEMA, key="id", listener=listener)
    subscription = participate().subscribe("t", schema=SCHEMA, key="id")
    assert called.wait(PATIENCE)
    subscription.close()
    publication.close()
    ended.set()


def test_samples_taken_before_an_error_are_taken_again(participate: Participate) -> None:
    publication = participate().publish("t", schema=SCHEMA, key="id")
    subscription = participate().subscribe("t", schema=SCHEMA, key="id")
    assert publication.wait_for_readers(PATIENCE)
    publication.write(rows(0, 10))
    wait_until(lambda: subscription.counters()["received_samples"] == 10)
    wait = subscription._inbox.arrived.wait

    def interrupted(*_: object) -> bool:
        subscription._inbox.arrived.wait = wait  # type: ignore[method-assign]
        raise KeyboardInterrupt

    subscription._inbox.arrived.wait = interrupted  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        subscription.take(max_rows=20, timeout=PATIENCE)
    assert subscription.take()["n"].to_pylist() == list(range(10))


def test_an_arrow_sample_is_not_divided_but_only_one_is_too_much(participate: Participate) -> None:
    publication = participate().publish("t", schema=SCHEMA, payload="arrow")
    subscription = participate().subscribe("t", schema=SCHEMA, payload="arrow")
    assert publication.wait_for_readers(PATIENCE)
    for first in range(0, 50, 10):
        publication.write(rows(first, 10))
    wait_until(lambda: subscription.counters()["received_samples"] == 5)
    assert subscription.take(max_rows=15).num_rows == 20
    assert subscription.take(max_rows=100, timeout=0.1).num_rows == 30


def test_a_publication_that_is_closed_ends_the_calls_that_wait(participate: Participate) -> None:
    publication = participate().publish("t", schema=SCHEMA, key="id")  # nobody reads
    raised: list[BaseException] = []

    def write() -> None:
        try:
            publication.write(rows(0, 1))
        except rtps.RtpsError as error:
            raised.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    publication.close()
    thread.join(PATIENCE)
    assert not thread.is_alive() and len(raised) == 1


def test_an_endpoint_of_a_participant_that_is_closing_is_refused(participate: Participate) -> None:
    participant = participate()
    participant.publish("t", schema=SCHEMA, key="id")
    participant.close()
    with pytest.raises(UsageError, match="closed"):
        participant._membership.adopt(object())


def test_an_iteration_ends_with_samples_nobody_took(participate: Participate) -> None:
    publication = participate().publish("t", schema=SCHEMA, key="id")
    subscription = participate().subscribe("t", schema=SCHEMA, key="id")
    assert publication.wait_for_readers(PATIENCE)
    publication.write(rows(0, 1))
    iteration = iter(subscription)
    assert next(iteration).num_rows == 1
    publication.write(rows(1, 1))
    wait_until(lambda: subscription.counters()["received_samples"] == 2)
    subscription.close()
    assert list(iteration) == []


def test_a_pipe_that_is_closed_wakes_nobody_else() -> None:
    pipe, other = WakePipe(), None
    pipe.close()
    other = WakePipe()  # gets the numbers of the first
    pipe.wake()
    pipe.clear()
    other.close()
    assert pipe.fileno() == -1
