"""A writer as a task uses it: calls that block until the network has taken, or acknowledged, the data."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Container, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol

from ..errors import (
    AcknowledgmentError,
    OutOfTokensError,
    RtpsError,
    TransportError,
    UsageError,
    WriterLimit,
)
from ..protocol.participant.events import Event
from ..protocol.writing.publication import PublicationResult
from ..protocol.writing.readers import ReaderProxy
from ..protocol.writing.writer import StatefulWriter
from ..qos import LivelinessKind
from ..structure import Guid, Locator, is_keyed
from ..wire.framing import KEY_HASH_SIZE
from ..wire.samples import U8, Samples
from .buffer_claim import BufferClaim

#: How long a blocked call sleeps at most before it looks again; acknowledgements wake it sooner.
_LOOK_AGAIN_SECONDS: Final = 0.05
#: The same where the node's own thread drives: nobody wakes us.
_ASYNCHRONOUS_SECONDS: Final = 0.002
_READERS_NAMED_MAX: Final = 8
#: Failures of automatic flushes that wait for the user's handler.
_FAILURES_KEPT: Final = 1_024


class Driver(Protocol):
    """What a blocking call needs of the node it works on (`net.node.Node`)."""

    lock: threading.RLock
    sleeps_until: int

    @property
    def send_errors(self) -> int: ...
    @property
    def is_closed(self) -> bool: ...
    def counts(self) -> dict[str, int]: ...
    def steering(self, *, lingering: bool = ...) -> AbstractContextManager[None]: ...
    def run_once(self, timeout: float) -> int: ...
    def do_work(self) -> int: ...
    def flush(self) -> int: ...
    def events(self) -> list[Event]: ...
    def incompatible(self, guid: Guid) -> Mapping[Guid, tuple[str, ...]]: ...
    def wake(self) -> None: ...
    def send_failures(self, destinations: Container[Locator], since: int) -> list[str]: ...
    def assert_liveliness(self, writer: Guid | None = None) -> None: ...


class BlockingWriter:
    """The blocking surface of one writer of a node.

    ``asynchronous``: nothing is sent in the calling thread, but by the node's (RTI's PUBLISH_MODE).
    """

    def __init__(
        self, node: Driver, writer: StatefulWriter, topic: str, *, asynchronous: bool = False
    ) -> None:
        self.node = node
        self.writer = writer
        self.topic = topic
        self._asynchronous = asynchronous
        self._is_ended = False
        self._keyed = is_keyed(writer.guid.entity)
        self._errors_seen = node.send_errors
        #: Whether what others than the caller failed to send, automatic flushes, is for :meth:`automatic_failures`
        #: alone, and not for the next call.
        self.sets_automatic_failures_apart = False
        self._automatic: deque[str] = deque(maxlen=_FAILURES_KEPT)
        self._failed: list[str] = []

    @property
    def guid(self) -> Guid:
        return self.writer.guid

    def write(
        self,
        samples: Samples,
        *,
        key_hashes: U8 | None = None,
        flags: int = 0,
        timestamp: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        """Write all samples, waiting while the send window, or the queue of the flow controller, is full.

        ``key_hashes`` (n, 16) are their instances, which a keyed topic needs. ``timestamp`` is the source timestamp in
        ns since the epoch, now by default. Raises UsageError for samples of a keyed topic without key hashes. When no
        progress was made for ``timeout`` seconds it raises AcknowledgmentError, naming the limit and the readers that
        hold it up, or TransportError if the flow controller does. TransportError also when something best-effort
        could not be sent, be it by an automatic flush since the last call.
        """
        self._check_key_hashes(samples, key_hashes)
        stamp = time.time_ns() if timestamp is None else timestamp
        taken = self._offer(samples, key_hashes, flags, stamp)
        if taken < samples.count:
            with self._steering(lingering=True):
                self._write_on(samples, key_hashes, flags, stamp, taken, timeout)
        self._raise_failures()

    def offer(
        self,
        samples: Samples,
        *,
        key_hashes: U8 | None = None,
        flags: int = 0,
        timestamp: int | None = None,
    ) -> int:
        """Write all samples or none, without waiting: the position behind them, or why not.

        NOT_CONNECTED: there is no reader, or no group of them yet. BACK_PRESSURED: try again, a reader or the network
        is slower. ADMIN_ACTION: try again at once, the publication log has begun its next term. CLOSED,
        MAX_POSITION_EXCEEDED: never again. UsageError for more than ever fits, and for samples of a keyed topic without
        key hashes.
        """
        self._check_key_hashes(samples, key_hashes)
        stamp = time.time_ns() if timestamp is None else timestamp
        with self.node.lock:
            nbytes = int(samples.all_lengths().sum())
            if (refusal := self._refusal(samples.count, nbytes)) is not None:
                return refusal
            if not self._offer(samples, key_hashes, flags, stamp, whole=True):
                self.writer.admission.check_fits(samples)
                return PublicationResult.BACK_PRESSURED
            position = self.writer.positions.pub_pos
        self._raise_failures()
        return position

    def try_claim(self, size: int, *, timestamp: int | None = None) -> BufferClaim | PublicationResult:
        """Room for one serialized sample of ``size`` bytes in the publication log, or why not (as :meth:`offer`)."""
        stamp = time.time_ns() if timestamp is None else timestamp
        with self.node.lock:
            if (refusal := self._refusal(1, size + 3)) is not None:
                return refusal
            claim = self.writer.claims.make(
                size, timestamp=stamp, now=time.monotonic_ns(), wall_clock=time.time_ns()
            )
            try:
                self._flush_node()
            except BaseException:  # nobody will have it, to commit it or to give it up
                if claim is not None:
                    self.writer.claims.abort(claim, now=time.monotonic_ns())
                raise
        self.node.wake()  # it may become overdue
        if claim is None:
            return PublicationResult.BACK_PRESSURED
        return BufferClaim(claim, self.writer, self.node.lock, self._flush_node)

    def _check_key_hashes(self, samples: Samples, key_hashes: U8 | None) -> None:
        """Without key hashes the writer's history would take all instances for one."""
        if key_hashes is None:
            if self._keyed:
                raise UsageError(f"topic {self.topic!r} has a key; its samples are written with key_hashes")
        elif key_hashes.shape != (samples.count, KEY_HASH_SIZE):
            raise UsageError(f"{samples.count} samples need as many key hashes, not {key_hashes.shape}")

    def _refusal(self, count: int, nbytes: int) -> PublicationResult | None:
        if self.node.is_closed or self._is_ended:
            return PublicationResult.CLOSED
        if not self.writer.positions.is_connected:
            return PublicationResult.NOT_CONNECTED
        return self.writer.admission.begin_term(count, nbytes, keyed=self._keyed)

    def _offer(
        self, samples: Samples, key_hashes: U8 | None, flags: int, stamp: int, *, whole: bool = False
    ) -> int:
        """Queue from the front, and send what became full, at once: nobody's samples may come between."""
        writer = self.writer
        with self.node.lock:
            self._check_open()
            now = time.monotonic_ns()
            taken, batches = writer.queue(
                samples,
                timestamp=stamp,
                now=now,
                flags=flags,
                key_hashes=key_hashes,
                whole=whole,
                wall_clock=time.time_ns(),
            )
            if batches or taken < samples.count or not writer.batch.batches:
                self._begin_sending()
                writer.send(batches, now=now, hand_over=self._flush_node)
                self._end_sending()
                writer.resume(now=time.monotonic_ns())
            timer = writer.get_timer()
        if timer is not None and timer < self.node.sleeps_until:
            self.node.wake()  # it has to look at the clock sooner
        return taken

    def _write_on(
        self,
        samples: Samples,
        key_hashes: U8 | None,
        flags: int,
        stamp: int,
        taken: int,
        timeout: float,
    ) -> None:
        """Write the rest, from ``taken`` on, as room comes."""
        deadline = time.monotonic() + timeout
        if not self._asynchronous:
            self.node.do_work()
        while True:
            # First of all: the node's thread may have made room before it stood aside.
            rest = samples.take(taken, samples.count)
            hashes = key_hashes[taken:] if key_hashes is not None else None
            more = self._offer(rest, hashes, flags, stamp)
            taken += more
            if taken == samples.count:
                return
            if more:
                deadline = time.monotonic() + timeout
                # The writing thread takes in acknowledgements itself: no switch of threads at full speed.
                if not self._asynchronous and self.node.do_work():
                    continue
            elif time.monotonic() > deadline:
                raise self._held_up(timeout)
            self._wait()

    def flush(self, *, compress: bool | None = None) -> None:
        """Send the batch in progress, in the calling thread. Raises TransportError as :meth:`write` does.

        ``compress``: whether with the codec of the batch policy, whatever the batch's size; None: as its size asks.
        """
        with self.node.lock:
            self._begin_sending()
            self.writer.flush(now=time.monotonic_ns(), compress=compress)
            self._end_sending()
        self._raise_failures()

    def begin_coherent_set(self) -> None:
        """What is written from now on becomes visible together (DDS: begin_coherent_changes)."""
        with self.node.lock:
            self._check_open()
            self._begin_sending()
            self.writer.coherent_sets.begin(now=time.monotonic_ns())
            self._end_sending()
        self._raise_failures()

    def end_coherent_set(self) -> None:
        """The set is complete (DDS: end_coherent_changes)."""
        with self.node.lock:
            self._check_open()
            self._begin_sending()
            self.writer.coherent_sets.end(now=time.monotonic_ns())
            self._end_sending()
        self._raise_failures()

    def abort_coherent_set(self) -> None:
        """The set is given up: readers with coherent access see nothing of it, what is still queued is not sent."""
        with self.node.lock:
            self.writer.coherent_sets.abort(now=time.monotonic_ns())
            self._flush_node()

    def _flush_node(self) -> None:
        if self._asynchronous:
            self.node.wake()
        else:
            self.node.flush()

    def _steering(self, *, lingering: bool = False) -> AbstractContextManager[None]:
        return contextlib.nullcontext() if self._asynchronous else self.node.steering(lingering=lingering)

    def _raise_failures(self) -> None:
        """What failed to be sent is repaired where it is reliable; elsewhere it is lost, and the user's to know."""
        if self.node.send_errors == self._errors_seen and not self._failed:
            return
        with self.node.lock:
            causes, self._failed = self._failed, []
            if not self.sets_automatic_failures_apart:
                causes += self._new_failures()
        if causes:
            raise self._not_sent(causes)

    def automatic_failures(self) -> TransportError | None:
        """What automatic flushes failed to send since the last call; see ``sets_automatic_failures_apart``."""
        if self.node.send_errors == self._errors_seen and not self._automatic:
            return None
        with self.node.lock:
            self._automatic += self._new_failures()
            causes = [*self._automatic]
            self._automatic.clear()
        return self._not_sent(causes) if causes else None

    def _begin_sending(self) -> None:
        """The caller, with the node's lock, is about to send: what failed before is not its own."""
        if self.sets_automatic_failures_apart:
            self._automatic += self._new_failures()

    def _end_sending(self) -> None:
        self._flush_node()
        if self.sets_automatic_failures_apart:
            self._failed += self._new_failures()

    def _new_failures(self) -> list[str]:
        """The causes of what could not be sent since the last call; the caller holds the node's lock."""
        since, self._errors_seen = self._errors_seen, self.node.send_errors
        if since == self._errors_seen or self.writer.qos.is_reliable:
            return []
        destinations = {d for proxy in self.writer.readers.values() for d in proxy.info.destinations}
        return self.node.send_failures(destinations, since)

    def _not_sent(self, causes: list[str]) -> TransportError:
        return TransportError(
            f"topic {self.topic!r}: {len(causes)} datagrams could not be sent; {causes[-1]}"
        )

    def assert_liveliness(self) -> None:
        """Assert that this writer lives, where LIVELINESS is MANUAL (DDS: assert_liveliness); a write does the same."""
        kind = self.writer.qos.liveliness
        if kind is not LivelinessKind.AUTOMATIC:
            self.node.assert_liveliness(self.guid if kind is LivelinessKind.MANUAL_BY_TOPIC else None)

    def wait_for_asynchronous_publishing(self, timeout: float) -> bool:
        """Wait until all that was written has left its flow controller (RTI's call of that name); False: not yet."""
        deadline = time.monotonic() + timeout
        while self._asynchronous:
            with self.node.lock:
                self._check_open()
                if not self.writer.state.backlog:
                    break
            if time.monotonic() >= deadline:
                return False
            self._wait()
        return True

    def wait_for_readers(self, timeout: float) -> bool:
        """Wait until a reader is matched and ready; False when none was within ``timeout`` seconds."""
        if self.has_ready_reader():
            return True  # a task asks before each of its writes
        deadline = time.monotonic() + timeout
        with self._steering():
            while not self.has_ready_reader():
                if time.monotonic() >= deadline:
                    return False
                self._wait()
        return True

    def has_ready_reader(self) -> bool:
        """Whether some reader is matched; a reliable one counts once it has sent its first ACKNACK. Spies count where
        they simulate a connection."""
        with self.node.lock:
            readers = self.writer.readers.values()
            return any(proxy.is_ready for proxy in readers) or (
                self.writer.positions.is_connected and not readers
            )

    def wait_for_acknowledgments(self, timeout: float) -> dict[Guid, int]:
        """Wait until every matched reliable reader has acknowledged everything written so far.

        Returns the readers that have not within ``timeout`` seconds, each with the highest sequence number it
        did acknowledge; empty when all have. What nobody acknowledges has then left at least: TransportError if it
        waits in a flow controller, or could not be sent.
        """
        deadline = time.monotonic() + timeout
        with self.node.lock:
            self._check_open()
            self._begin_sending()
            self.writer.flush(now=time.monotonic_ns())
            self._end_sending()
            last = self.writer.last_sn
            behind = self.writer.unacknowledged(last)
            if behind:
                self.writer.request_acknowledgment(time.monotonic_ns())
                self._flush_node()
        with self._steering():
            while behind:
                with self.node.lock:  # the node's thread may have heard of it before it stood aside
                    self._check_open()  # a writer that has left has no readers
                    behind = self.writer.unacknowledged(last)
                if not behind or time.monotonic() >= deadline:
                    break
                self._wait()
        if not self.wait_for_asynchronous_publishing(deadline - time.monotonic()):
            raise OutOfTokensError(
                f"topic {self.topic!r}: after {timeout:g} s what was written still waits for tokens of its flow "
                "controller",
                admitted=True,
            )
        self._raise_failures()
        return behind

    def ready_reliable_readers(self) -> list[ReaderProxy]:
        """The reliable readers that are matched and ready now, to be handed to :meth:`unserved`."""
        with self.node.lock:
            return [p for p in self.writer.readers.values() if p.reliable and p.is_ready]

    def unserved(self, seen: Iterable[ReaderProxy]) -> dict[Guid, int]:
        """Which of the readers in ``seen`` left behind samples that nobody has, with what they acknowledged.

        A reader that left, or became inactive, is no longer waited for. What it lacks is well if a ready reader
        is here that was matched before it was written, for that one has to acknowledge it.
        """
        with self.node.lock:
            here = self.writer.readers
            ready = [p.first_relevant for p in here.values() if p.is_ready and p.active]
            served_from = min(ready, default=self.writer.last_sn + 1)
            gone = [p for p in seen if here.get(p.guid) is not p or not p.active]
            return {p.guid: p.acked for p in gone if p.acked + 1 < served_from}

    def end(self) -> None:
        """The writer leaves its node: calls that write, or wait, raise TransportError."""
        self._is_ended = True

    def _check_open(self) -> None:
        if self._is_ended or self.node.is_closed:
            raise TransportError(f"topic {self.topic!r}: its writer was closed")

    def _wait(self) -> None:
        self._check_open()
        if self._asynchronous:
            time.sleep(_ASYNCHRONOUS_SECONDS)
        else:
            self.node.run_once(_LOOK_AGAIN_SECONDS)

    def _held_up(self, timeout: float) -> RtpsError:
        """What stopped a write, as an error: the limit, and whom it waits for."""
        with self.node.lock:
            writer = self.writer
            last, limit = writer.last_sn, WriterLimit(writer.state.blocked_by or WriterLimit.SEND_WINDOW)
            snd_lmt, slowest = writer.pacing.send_limit
            behind = writer.unacknowledged(last)
            at = writer.positions
            positions = {
                "pub-pos": at.pub_pos,
                "pub-lmt": at.pub_lmt,
                "snd-pos": at.snd_pos,
                "snd-lmt": min(snd_lmt, at.snd_lmt),
            }
        stuck = f"writing to topic {self.topic!r} made no progress for {timeout:g} s: its"
        if limit is WriterLimit.FLOW_CONTROLLER:
            return OutOfTokensError(f"{stuck} {limit} lets no more go")
        # The one that paces first: it is where to look.
        first = sorted(behind, key=lambda guid: guid != slowest)
        held_up = partial(
            AcknowledgmentError,
            limit=limit,
            readers={g: behind[g] for g in first},
            last_sn=last,
            positions=positions,
        )
        if limit is WriterLimit.GROUP:
            return held_up(f"{stuck} {limit} wants more readers than are there")
        readers = ", ".join(
            f"{guid} (acknowledged {behind[guid]} of {last})" for guid in first[:_READERS_NAMED_MAX]
        )
        if len(first) > _READERS_NAMED_MAX:
            readers += f" and {len(first) - _READERS_NAMED_MAX} more"
        where = ", ".join(f"{name} {position}" for name, position in positions.items())
        return held_up(f"{stuck} {limit} is used up at {where}, waiting for reader {readers or 'nobody'}")
