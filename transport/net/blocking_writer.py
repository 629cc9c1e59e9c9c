"""The blocking calls of a writer: they return once the network has taken, or acknowledged, the data."""

from __future__ import annotations

import threading
import time
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
from ..protocol.writing.writer import StatefulWriter
from ..qos import LivelinessKind
from ..structure import KEY_HASH_BYTES, Guid, is_keyed
from ..wire.samples import U8, Samples
from .buffer_claim import BufferClaim
from .directory import Directory
from .duty_cycle import DutyCycle
from .matched_readers import WriterMatches
from .node_counters import NodeCounters
from .publish_mode import Asynchronous, PublishMode, Synchronous
from .send_failures import SendFailures, WriteFailures

_READERS_NAMED_MAX: Final = 8


class Driver(Protocol):
    """What a blocking call needs of its node (`net.node.Node`)."""

    lock: threading.RLock
    sleeps_until: int

    @property
    def is_closed(self) -> bool: ...
    @property
    def duty_cycle(self) -> DutyCycle: ...
    @property
    def directory(self) -> Directory: ...
    @property
    def counters(self) -> NodeCounters: ...
    @property
    def send_failures(self) -> SendFailures: ...
    def run_once(self, timeout: float) -> int: ...
    def do_work(self) -> int: ...
    def flush(self) -> int: ...
    def events(self) -> list[Event]: ...
    def wake(self) -> None: ...
    def assert_liveliness(self, writer: Guid | None = None) -> None: ...


class BlockingWriter:
    """The blocking surface of one writer of a node.

    ``asynchronous``: nothing is sent in the calling thread; the node's thread sends (RTI's PUBLISH_MODE).
    """

    def __init__(
        self, node: Driver, writer: StatefulWriter, topic: str, *, asynchronous: bool = False
    ) -> None:
        self.node = node
        self.writer = writer
        self.topic = topic
        self.readers = WriterMatches(node, writer)
        self.failures = WriteFailures(node, writer, topic)
        self._mode: PublishMode = Asynchronous(node) if asynchronous else Synchronous(node)
        self._is_ended = False
        self._keyed = is_keyed(writer.guid.entity)

    @property
    def guid(self) -> Guid:
        return self.writer.guid

    def write_samples(
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
        ns since the epoch, now by default. Raises UsageError for samples of a keyed topic without key hashes. Without
        progress for ``timeout`` seconds it raises AcknowledgmentError, which names the limit and the readers that hold
        the writer up, or TransportError if the flow controller does. It also raises TransportError if a best-effort
        sample could not be sent, also by an automatic flush since the last call.
        """
        self._check_key_hashes(samples, key_hashes)
        stamp = time.time_ns() if timestamp is None else timestamp
        taken = self._offer(samples, key_hashes, flags, stamp)
        if taken < samples.count:
            with self._mode.steering(lingering=True):
                self._write_on(samples, key_hashes, flags, stamp, taken, timeout)
        self.failures.raise_own()

    def offer(
        self,
        samples: Samples,
        *,
        key_hashes: U8 | None = None,
        flags: int = 0,
        timestamp: int | None = None,
    ) -> int:
        """Write all samples or none, without waiting; returns the position behind them, or the reason.

        NOT_CONNECTED: there is no reader, or no group of them yet. BACK_PRESSURED: try again, a reader or the network
        is slower. ADMIN_ACTION: try again at once, the publication log has begun its next term. CLOSED,
        MAX_POSITION_EXCEEDED: never try again. Raises UsageError for more bytes than ever fit, and for samples of a
        keyed topic without key hashes.
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
        self.failures.raise_own()
        return position

    def try_claim(self, size: int, *, timestamp: int | None = None) -> BufferClaim | PublicationResult:
        """Space for one serialized sample of ``size`` bytes in the publication log, or why not (as :meth:`offer`)."""
        stamp = time.time_ns() if timestamp is None else timestamp
        with self.node.lock:
            if (refusal := self._refusal(1, size + 3)) is not None:
                return refusal
            claim = self.writer.claims.make(
                size, timestamp=stamp, now=time.monotonic_ns(), wall_clock=time.time_ns()
            )
            try:
                self._mode.flush_writer()
            except BaseException:  # the caller never gets the claim to commit or abort it
                if claim is not None:
                    self.writer.claims.abort(claim, now=time.monotonic_ns())
                raise
        self.node.wake()  # the claim may become overdue
        if claim is None:
            return PublicationResult.BACK_PRESSURED
        return BufferClaim(claim, self.writer, self.node.lock, self._mode.flush_writer)

    def _check_key_hashes(self, samples: Samples, key_hashes: U8 | None) -> None:
        """Without key hashes the writer's history would treat all instances as one."""
        if key_hashes is None:
            if self._keyed:
                raise UsageError(f"topic {self.topic!r} has a key; its samples are written with key_hashes")
        elif key_hashes.shape != (samples.count, KEY_HASH_BYTES):
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
                self.failures.begin_sending()
                writer.send(batches, now=now, hand_over=self._mode.flush_writer)
                self._mode.flush_writer()
                self.failures.end_sending()
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
        """Write the rest, from ``taken`` on, as space becomes free."""
        deadline = time.monotonic() + timeout
        self._mode.do_work()
        while True:
            # Before the first wait: the node's thread may have freed space before it stood aside.
            rest = samples.take_range(taken, samples.count)
            hashes = key_hashes[taken:] if key_hashes is not None else None
            more = self._offer(rest, hashes, flags, stamp)
            taken += more
            if taken == samples.count:
                return
            if more:
                deadline = time.monotonic() + timeout
                # The writing thread processes acknowledgements itself: no thread switch at full speed.
                if self._mode.do_work():
                    continue
            elif time.monotonic() > deadline:
                raise _held_up(self.node, self.writer, self.topic, timeout)
            self._wait()

    def flush(self, *, compress: bool | None = None) -> None:
        """Send the batch in progress, in the calling thread. Raises TransportError as :meth:`write` does.

        ``compress``: whether to use the codec of the batch policy, whatever the batch's size; None: the size decides.
        """
        with self.node.lock:
            self.failures.begin_sending()
            self.writer.flush_batch(now=time.monotonic_ns(), compress=compress)
            self._mode.flush_writer()
            self.failures.end_sending()
        self.failures.raise_own()

    def begin_coherent_set(self) -> None:
        """Samples that are written from now on become visible together (DDS: begin_coherent_changes)."""
        with self.node.lock:
            self._check_open()
            self.failures.begin_sending()
            self.writer.coherent_sets.begin(now=time.monotonic_ns())
            self._mode.flush_writer()
            self.failures.end_sending()
        self.failures.raise_own()

    def end_coherent_set(self) -> None:
        """The set is complete (DDS: end_coherent_changes)."""
        with self.node.lock:
            self._check_open()
            self.failures.begin_sending()
            self.writer.coherent_sets.end(now=time.monotonic_ns())
            self._mode.flush_writer()
            self.failures.end_sending()
        self.failures.raise_own()

    def abort_coherent_set(self) -> None:
        """Abandon the set: readers with coherent access see none of its samples, and those still queued are not
        sent."""
        with self.node.lock:
            self.writer.coherent_sets.abort(now=time.monotonic_ns())
            self._mode.flush_writer()

    def assert_liveliness(self) -> None:
        """Assert that this writer lives, if LIVELINESS is MANUAL (DDS: assert_liveliness); a write does the same."""
        kind = self.writer.qos.liveliness
        if kind is not LivelinessKind.AUTOMATIC:
            self.node.assert_liveliness(self.guid if kind is LivelinessKind.MANUAL_BY_TOPIC else None)

    def wait_for_asynchronous_publishing(self, timeout: float) -> bool:
        """Wait until everything written has left its flow controller (RTI's call of that name); False: not yet."""
        deadline = time.monotonic() + timeout
        while self._mode.is_asynchronous:
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
        if self.readers.has_ready():
            return True  # a task calls this before each of its writes
        deadline = time.monotonic() + timeout
        with self._mode.steering():
            while not self.readers.has_ready():
                if time.monotonic() >= deadline:
                    return False
                self._wait()
        return True

    def wait_for_acknowledgments(self, timeout: float) -> dict[Guid, int]:
        """Wait until every matched reliable reader has acknowledged everything written so far.

        Returns the readers that have not within ``timeout`` seconds, each with the highest sequence number that it did
        acknowledge; empty if all have. Best-effort samples have at least been sent then: TransportError if they wait in
        a flow controller, or could not be sent.
        """
        deadline = time.monotonic() + timeout
        with self.node.lock:
            self._check_open()
            self.failures.begin_sending()
            self.writer.flush_batch(now=time.monotonic_ns())
            self._mode.flush_writer()
            self.failures.end_sending()
            last = self.writer.last_sn
            behind = self.writer.unacknowledged(last)
            if behind:
                self.writer.request_acknowledgment(time.monotonic_ns())
                self._mode.flush_writer()
        with self._mode.steering():
            while behind:
                with self.node.lock:  # the node's thread may have received it before it stood aside
                    self._check_open()  # a writer that has left has no readers
                    behind = self.writer.unacknowledged(last)
                if not behind or time.monotonic() >= deadline:
                    break
                self._wait()
        if not self.wait_for_asynchronous_publishing(deadline - time.monotonic()):
            raise OutOfTokensError(
                f"topic {self.topic!r}: after {timeout:g} s written samples still wait for tokens of their flow "
                "controller",
                admitted=True,
            )
        self.failures.raise_own()
        return behind

    def end(self) -> None:
        """Remove the writer from its node: calls that write or wait raise TransportError."""
        self._is_ended = True

    def _check_open(self) -> None:
        if self._is_ended or self.node.is_closed:
            raise TransportError(f"topic {self.topic!r}: its writer was closed")

    def _wait(self) -> None:
        self._check_open()
        self._mode.wait()


def _held_up(node: Driver, writer: StatefulWriter, topic: str, timeout: float) -> RtpsError:
    """The error for a write that made no progress: the limit, and the readers that it waits for."""
    with node.lock:
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
    stuck = f"writing to topic {topic!r} made no progress for {timeout:g} s: its"
    if limit is WriterLimit.FLOW_CONTROLLER:
        return OutOfTokensError(f"{stuck} {limit} has no tokens")
    # The reader that paces the writer comes first: it is the one to examine.
    first = sorted(behind, key=lambda guid: guid != slowest)
    held_up = partial(
        AcknowledgmentError,
        limit=limit,
        readers={g: behind[g] for g in first},
        last_sn=last,
        positions=positions,
    )
    if limit is WriterLimit.GROUP:
        return held_up(f"{stuck} {limit} requires more readers than are matched")
    readers = ", ".join(
        f"{guid} (acknowledged {behind[guid]} of {last})" for guid in first[:_READERS_NAMED_MAX]
    )
    if len(first) > _READERS_NAMED_MAX:
        readers += f" and {len(first) - _READERS_NAMED_MAX} more"
    where = ", ".join(f"{name} {position}" for name, position in positions.items())
    return held_up(f"{stuck} {limit} is used up at {where}, waiting for reader {readers or 'nobody'}")
