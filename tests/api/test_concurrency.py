"""Concurrent threads, errors and forked children: no row is lost or doubled, and no participant ends."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import spark_rtps as rtps
from spark_rtps.api import inbox as inbox_module
from spark_rtps.api import instances as instances_module
from spark_rtps.api import publication as publication_module
from spark_rtps.api import reception as reception_module
from spark_rtps.api import sample_cache as cache_module
from spark_rtps.api.inbox import Inbox
from spark_rtps.api.membership import Membership
from spark_rtps.api.reception import Reception
from spark_rtps.api.writer_session import WriterSession
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.net.directory import Directory
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.events import LivelinessLost
from spark_rtps.transport.protocol.reading.cache.reader_cache import ReaderCache
from spark_rtps.transport.wire.samples import Run
from tests.support.waiting import PATIENCE, wait_until


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks around for further readers."""
    monkeypatch.setattr(publication_module, "LOOK_AROUND_NS", 0)


SCHEMA = pa.schema([("n", pa.int32())])
TEXT = pa.schema([("s", pa.string())])
BYTES = pa.schema([("value", pa.binary())])
Participate = Callable[..., rtps.Participant]


def rows_of(table: pa.Table, column: str = "n") -> list[Any]:
    return table.column(column).to_pylist()  # type: ignore[no-any-return]


def write(publication: rtps.Publication, *numbers: int) -> None:
    publication.write([{"n": number} for number in numbers])


# --- one reader for one subscription ---------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False], ids=["named type", "the first writer's type"])
def test_a_subscription_that_two_threads_join_has_one_reader(
    participate: Participate, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """The thread that subscribes, and that of the participant, which looks for the topic's first writer."""
    writing, reading = participate(), participate()
    publication = writing.publish("t", schema=SCHEMA, type="T")
    wait_until(lambda: bool(reading.endpoints()))
    threads: list[threading.Thread] = []
    opened, found = Inbox.join_topic, Directory.first_writer

    def sidecar() -> None:
        if not threads:
            (subscription,) = reading._membership.endpoints
            threads.append(threading.Thread(target=subscription.do_work, args=(time.monotonic_ns(),)))
            threads[0].start()
            threads[0].join(0.1)  # it may wait for the node's lock

    def open_beside(self: Inbox, *arguments: Any, **keywords: Any) -> Any:
        sidecar()
        return opened(self, *arguments, **keywords)

    def find_beside(*arguments: Any) -> Any:
        writer = found(*arguments)
        if not threads:
            (subscription,) = reading._membership.endpoints
            assert isinstance(subscription, rtps.Subscription)
            subscription._changes_seen = -1  # something else is discovered meanwhile
            sidecar()
        return writer

    monkeypatch.setattr(Inbox, "join_topic", open_beside)
    monkeypatch.setattr(Directory, "first_writer", find_beside)
    subscription = reading.subscribe("t", schema=SCHEMA, type="T" if named else None)
    threads[0].join(PATIENCE)
    monkeypatch.undo()
    assert publication.wait_for_readers(PATIENCE)
    write(publication, *range(5))
    assert rows_of(subscription.take(max_rows=5, timeout=PATIENCE)) == list(range(5))
    other = reading.subscribe("u", schema=SCHEMA, type="T")  # what is written behind it has come by then
    second = writing.publish("u", schema=SCHEMA, type="T")
    assert second.wait_for_readers(PATIENCE)
    write(second, 7)
    assert rows_of(other.take(max_rows=1, timeout=PATIENCE)) == [7]
    assert subscription.take().num_rows == 0 and len(publication.readers()) == 1
    subscription.close()
    wait_until(lambda: publication.readers() == [])


# --- errors while rows are fetched ----------------------------------------------------------------------


def text(number: int) -> bytes:
    word = f"good{number}".encode() + b"\0"
    return b"\0\1\0\0" + struct.pack("<I", len(word)) + word + bytes(-len(word) % 4)


MALFORMED = b"\0\1\0\0" + struct.pack("<I", 1000) + b"abcd"


def waiting(participate: Participate, *malformed: int) -> rtps.Subscription:
    """A subscription with mode=failfast in which ten samples wait, one a run, of which some do not decode."""
    publication = participate().publish("f", type="T", schema=BYTES, payload="binary")
    subscription = participate().subscribe("f", type="T", schema=TEXT, mode="failfast")
    assert publication.wait_for_readers(PATIENCE)
    for number in range(10):
        publication.write([{"value": MALFORMED if number in malformed else text(number)}], wait=False)
    publication.wait_for_acknowledgments(PATIENCE)
    wait_until(lambda: subscription.counters()["waiting_samples"] == 10)
    return subscription


def taken(subscription: rtps.Subscription) -> list[str]:
    return rows_of(subscription.take(), "s")


def read(subscription: rtps.Subscription) -> list[str]:
    return rows_of(subscription.read(), "s")


def iterated(subscription: rtps.Subscription) -> list[str]:
    return next(iter(subscription)).column("s").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("fetch", [taken, read, iterated])
def test_a_malformed_sample_takes_no_other_with_it(
    participate: Participate, fetch: Callable[[rtps.Subscription], list[str]]
) -> None:
    subscription = waiting(participate, 3, 7)
    for number in (4, 8):  # by sequence number
        with pytest.raises(rtps.MalformedSampleError, match=f"sample {number} of"):
            fetch(subscription)
    good = [f"good{number}" for number in range(10) if number not in (3, 7)]
    assert fetch(subscription) == good
    assert subscription.counters()["malformed_samples"] == 2
    if fetch is read:
        assert rows_of(subscription.read(sample_states="any"), "s") == good
        assert read(subscription) == []


def test_rows_that_were_read_before_stay_so_when_a_later_one_does_not_decode(
    participate: Participate,
) -> None:
    subscription = waiting(participate, 9)
    assert len(rows_of(subscription.read(max_rows=4), "s")) == 4
    with pytest.raises(rtps.MalformedSampleError):
        taken(subscription)
    assert read(subscription) == [f"good{number}" for number in range(4, 9)]
    assert taken(subscription) == [f"good{number}" for number in range(9)]


@pytest.mark.parametrize("fetch", [taken, read, iterated])
def test_an_interrupted_decoding_loses_no_sample(
    participate: Participate,
    monkeypatch: pytest.MonkeyPatch,
    fetch: Callable[[rtps.Subscription], list[str]],
) -> None:
    subscription = waiting(participate)

    def stopped(self: Reception, frames: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Reception, "decode_frames", stopped)
        with pytest.raises(KeyboardInterrupt):
            fetch(subscription)
    assert fetch(subscription) == [f"good{number}" for number in range(10)]


class Stopped(BaseException):
    """As KeyboardInterrupt, raised once."""


@pytest.mark.parametrize("fetch", [taken, read, iterated])
@pytest.mark.parametrize("depth", [None, 5], ids=["keep_all", "keep_last"])
def test_an_exception_at_any_call_of_a_fetch_loses_no_sample(
    participate: Participate, fetch: Callable[[rtps.Subscription], list[str]], depth: int | None
) -> None:
    publication = participate().publish("f", type="T", schema=TEXT)
    history: dict[str, Any] = {} if depth is None else {"history": "keep_last", "history_depth": depth}
    subscription = participate().subscribe("f", type="T", schema=TEXT, **history)
    assert publication.wait_for_readers(PATIENCE)
    rooms = {module.__file__ for module in (inbox_module, instances_module, reception_module, cache_module)}
    undoing = {"give_back", "put_back", "drop", "notice", "_notice", "_wake", "_count_bytes", "memory_of"}
    call, written_so_far, is_stopped = 0, 0, True
    while is_stopped:
        numbers = [str(written_so_far + number) for number in range(6)]
        for number in numbers:
            publication.write([{"s": number}], wait=False)
        publication.wait_for_acknowledgments(PATIENCE)
        written_so_far += 6
        wait_until(lambda count=written_so_far: subscription._inbox._number == count)  # type: ignore[misc]
        calls, is_stopped = 0, False

        def stop(frame: Any, event: str, argument: Any, last: int = call) -> None:
            nonlocal calls, is_stopped
            code = frame.f_code
            if event != "call" or code.co_filename not in rooms or code.co_name in undoing or is_stopped:
                return
            calls += 1
            if calls > last:
                is_stopped = True
                raise Stopped

        got: list[str] = []
        sys.setprofile(stop)
        try:
            got = fetch(subscription)
        except Stopped:
            pass
        finally:
            sys.setprofile(None)
        if fetch is read:
            got += read(subscription)
            taken(subscription)
        else:
            got += taken(subscription)
        assert got == numbers[-(depth or 6) :], f"call {call}"
        call += 1
    assert call > 10


def test_an_iteration_that_waits_gets_what_a_failed_take_gives_back(participate: Participate) -> None:
    subscription = waiting(participate, 9)
    good = [f"good{number}" for number in range(9)]
    decoded, found = Reception.decode_frames, list[str]()
    iterating = threading.Thread(target=lambda: found.extend(iterated(subscription)))

    def while_an_iteration_waits(self: Reception, frames: Any) -> Any:
        if not iterating.is_alive() and not found:
            before = subscription._inbox.arrived.count
            iterating.start()
            wait_until(lambda: self.looked_at >= before)  # nothing is there
        return decoded(self, frames)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reception, "decode_frames", while_an_iteration_waits)
        with pytest.raises(rtps.MalformedSampleError):
            taken(subscription)
    iterating.join(PATIENCE)
    assert found == good


def test_a_run_that_cannot_be_kept_takes_no_other_with_it_and_is_counted(
    participate: Participate, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = participate().publish("t", schema=SCHEMA, type="T")
    subscription = participate().subscribe("t", schema=SCHEMA, type="T")
    assert publication.wait_for_readers(PATIENCE)
    accept, delivered = ReaderCache.accept, Inbox.deliver

    def fails_on_the_second(self: ReaderCache, run: Run, **keywords: Any) -> Any:
        if run.first_sn == 2:
            raise MemoryError
        return accept(self, run, **keywords)

    def one_by_one(self: Inbox, reader: Any, runs: list[Run]) -> None:
        parts = [run.take_range(at, at + 1) for run in runs for at in range(run.count)]
        delivered(self, reader, parts)

    monkeypatch.setattr(ReaderCache, "accept", fails_on_the_second)
    monkeypatch.setattr(Inbox, "deliver", one_by_one)
    write(publication, 1, 2, 3)
    assert rows_of(subscription.take(max_rows=2, timeout=PATIENCE)) == [1, 3]
    assert subscription.counters()["lost_samples"] == 1


# --- a participant that ends while it is used --------------------------------------------------------


def test_a_participant_that_is_closed_while_it_publishes_closes_everything(
    participate: Participate, monkeypatch: pytest.MonkeyPatch
) -> None:
    participant = participate()
    first = participant.publish("t", schema=SCHEMA, type="T")
    adopt = Membership.adopt

    def close_then(self: Membership, endpoint: Any) -> None:
        adopt(self, endpoint)
        if endpoint.topic == "v":
            self.flush()
            self.close()

    monkeypatch.setattr(Membership, "adopt", close_then)
    with pytest.raises(rtps.UsageError, match="is closed"):
        participant.publish("v", schema=SCHEMA, type="T")
    node = participant._membership._node
    assert first.is_closed and participant.is_closed and node is not None and node.is_closed


class Reader:
    def __init__(self) -> None:
        self.guid, self.acked = "r", 0


def test_a_loss_is_an_error_for_every_thread_whose_rows_it_has() -> None:
    """Two threads write, the only reader leaves without their rows, and both wait."""
    here = {"r": Reader()}

    class Writer:
        guid, writer = "w", SimpleNamespace(last_sn=2)
        node = SimpleNamespace(directory=SimpleNamespace(incompatible=lambda guid: {}))
        readers: Any = property(lambda self: self)

        def wait_for_readers(self, timeout: float) -> bool:
            return True

        def ready_reliable(self) -> list[Any]:
            return list(here.values())

        def write_samples(self, *arguments: Any, **keywords: Any) -> None:
            pass

        def wait_for_acknowledgments(self, timeout: float) -> dict[Any, Any]:
            return {}

        def unserved(self, seen: Any) -> dict[Any, int]:
            return {each.guid: each.acked for each in seen if here.get(each.guid) is not each}

    session = WriterSession(
        Writer(),
        parse_options({"topic": "t", "domain": "0"}, AppliesTo.WRITE),
        look_around_until=0,
    )

    def written() -> int:
        losses = session.losses
        session.wait_for_reader()
        session.write_samples(None)
        return losses

    first, second = written(), written()
    here.clear()
    for since in (first, second):
        with pytest.raises(rtps.AcknowledgmentError, match="left before"):
            session.wait_for_acknowledgments(1, since=since)
    here["r"] = Reader()
    session.wait_for_acknowledgments(1, since=written())


def test_concurrent_takes_release_all_capacity(
    participate: Participate, monkeypatch: pytest.MonkeyPatch
) -> None:
    publication = participate().publish("r", type="T", schema=BYTES)
    subscription = participate().subscribe("r", type="T", schema=BYTES, buffer_size="512KiB")
    assert publication.wait_for_readers(PATIENCE)
    for number in range(20):
        publication.write([{"value": bytes([number]) * 20_000}], wait=False)
    wait_until(lambda: subscription.counters()["waiting_samples"] == 20)
    inbox, hold, others = subscription._inbox, Inbox.hold, list[threading.Thread]()

    def hold_late(self: Inbox, nbytes: int) -> None:
        if (
            self is inbox
            and not others
            and threading.current_thread() is threading.main_thread()
            and nbytes < full
        ):
            others.append(threading.Thread(target=subscription.take))
            others[0].start()
            others[0].join(0.2)  # it takes all that is left, unless it has to wait for this thread
        hold(self, nbytes)

    full = subscription.counters()["waiting_bytes"]
    monkeypatch.setattr(Inbox, "hold", hold_late)
    assert subscription.take(max_rows=1).num_rows == 1
    others[0].join(PATIENCE)
    assert inbox.room() == inbox.capacity


def test_instances_of_a_writer_that_returns_while_its_loss_is_handled_stay_alive(
    participate: Participate,
) -> None:
    keyed = pa.schema([("k", pa.int32())])
    publication = participate().publish("i", type="T", schema=keyed, key="k")
    subscription = participate().subscribe("i", type="T", schema=keyed, key="k")
    publication.write([{"k": 1}])
    (writer,) = subscription._inbox.writers()
    subscription.on_event(LivelinessLost(writer, "i"))
    assert [(each.state, len(each.writers)) for each in subscription.instances()] == [("ALIVE", 1)]


# --- forked children --------------------------------------------------------------------------------

FORKS = """
import os, sys
import pyarrow as pa
import spark_rtps as rtps
schema = pa.schema([("n", pa.int32())])
with rtps.Participant(int(sys.argv[1]), interface="lo", options={{"ipc": True}}) as p:
    publication = p.publish("t", schema=schema, type="T")
    subscription = p.subscribe("u", schema=schema, type="T")
    path = publication._writer.writer._unsent.log.path
    assert publication.wait_for_readers({patience})
    publication.write([{{"n": 1}}])
    pid = os.fork()
    if pid == 0:
{child}
    else:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert path.exists(), "the child removed the publication log"
        publication.write([{{"n": 2}}])
"""
CHILDREN = {
    "exits": "sys.exit(0)",
    "leaves the block": "pass",
    "reads on": """
assert p.is_closed and subscription.is_closed and list(subscription) == []
for call in (subscription.take, subscription.read):
    try:
        call(max_rows=1)
    except rtps.UsageError as error:
        assert "closed" in str(error)
    else:
        raise AssertionError(call)
sys.exit(0)
""",
}


@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN.keys())
def test_a_forked_child_that_ends_keeps_its_parents_participant(
    participate: Participate, domain: int, child: str
) -> None:
    script = FORKS.format(patience=PATIENCE, child=textwrap.indent(child, 8 * " "))
    statuses: list[dict[str, int]] = []
    subscription = participate(options={"ipc": True}).subscribe(
        "t",
        schema=SCHEMA,
        type="T",
        listener=lambda change: (
            statuses.append(dict(change.fields)) if change.status == "SUBSCRIPTION_MATCHED" else None
        ),
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(domain)],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert rows_of(subscription.take(max_rows=2, timeout=PATIENCE)) == [1, 2]
    wait_until(lambda: not subscription.writers())
    subscription.status("SUBSCRIPTION_MATCHED")
    wait_until(lambda: bool(statuses) and statuses[-1]["current_count"] == 0)
    assert [each["current_count"] for each in statuses] == [1, 0], "it was matched once, until its end"


def test_a_participant_freed_in_its_nodes_thread_leaves_at_once(domain: int) -> None:
    participant = rtps.Participant(domain, interface="lo")
    participant.subscribe("t", schema=SCHEMA, type="T")
    node, held = participant.node, [participant]
    begun = threading.Event()
    took: list[float] = []

    def forget(of: Node) -> None:
        if not took and begun.is_set():
            start = time.monotonic()
            held[0]._membership.endpoints.clear()
            held.clear()
            gc.collect()
            took.append(time.monotonic() - start)

    del participant
    with node.lock:
        node._after_cycle = forget
    begun.set()
    node.wake()
    wait_until(lambda: bool(took) and node.is_closed)
    assert took[0] < 4.0, "it does not wait for the thread that waits for it"


def test_keep_last_separates_instances_by_the_type_of_their_writer(
    participate: Callable[..., rtps.Participant],
) -> None:
    """The columns of a subscription make a type without optional members; the publication's has some."""
    schema = pa.schema([("n", pa.int32()), ("k", pa.int32())])
    rows = [{"n": 5, "k": 0}, {"n": 9, "k": 5}, {"n": 6, "k": 0}]
    publication = participate().publish("Cars", type="Car", schema=schema, key="k")
    subscription = participate().subscribe("Cars", type="Car", schema=schema, key="k", history_depth=1)
    publication.write(rows)
    assert subscription.take(max_rows=2, timeout=10).to_pylist() == rows[1:]
    assert [each.key for each in subscription.instances()] == [{"k": 0}, {"k": 5}]
