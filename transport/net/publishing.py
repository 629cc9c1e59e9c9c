"""A writer as a task uses it: calls that block until the network has taken, or acknowledged, the data."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from ..errors import AcknowledgmentError, TransportError
from ..protocol.events import Event
from ..protocol.writing.batching import PendingBatch
from ..protocol.writing.reader_proxy import ReaderProxy
from ..protocol.writing.writer import StatefulWriter
from ..structure import Guid, Locator
from ..wire.samples import U8, Samples

#: How long a blocked call sleeps at most before it looks again; acknowledgements wake it sooner.
_LOOK_AGAIN_SECONDS: Final = 0.05
#: The same where the node's own thread drives: nobody wakes us.
_ASYNCHRONOUS_SECONDS: Final = 0.002


class Driver(Protocol):
    """What a blocking call needs of the node it works on (`net.node.Node`)."""

    lock: threading.RLock

    def steering(self) -> AbstractContextManager[None]: ...
    def run_once(self, timeout: float) -> int: ...
    def do_work(self) -> int: ...
    def flush(self) -> int: ...
    def events(self) -> list[Event]: ...
    def wake(self) -> None: ...
    def send_failures(self, destinations: Iterable[Locator]) -> tuple[int, str]: ...


class PublishingWriter:
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
        self._failures = 0
        #: Batches are queued without the node's lock: the user promises that one thread writes.
        batch = writer.batch
        unlocked = batch.batches and not batch.thread_safe_write
        self._queue_lock = contextlib.nullcontext() if unlocked else node.lock

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
        """Write all samples, waiting while the send window is full.

        ``timestamp`` is the source timestamp in ns since the epoch, now by default. Raises AcknowledgmentError
        when no progress was made for ``timeout`` seconds, naming the readers that hold it up, and TransportError
        when something best-effort could not be sent, also by an automatic flush since the last call.
        """
        stamp = time.time_ns() if timestamp is None else timestamp
        taken, batches = self._queue(samples, key_hashes, flags, stamp)
        if taken == samples.count and not batches and self.writer.batch.batches:
            return  # it waits in its batch
        with self._steering():
            self._write(samples, key_hashes, flags, stamp, timeout, taken, batches)
        self._raise_failures()

    def _queue(
        self, samples: Samples, key_hashes: U8 | None, flags: int, stamp: int
    ) -> tuple[int, list[PendingBatch]]:
        with self._queue_lock:
            before = self.writer.get_flush_timer()
            taken, batches = self.writer.queue(
                samples, timestamp=stamp, now=time.monotonic_ns(), flags=flags, key_hashes=key_hashes
            )
            after = self.writer.get_flush_timer()
        if after is not None and (before is None or after < before):
            self.node.wake()  # the flush thread has to look at the clock
        return taken, batches

    def _write(
        self,
        samples: Samples,
        key_hashes: U8 | None,
        flags: int,
        stamp: int,
        timeout: float,
        taken: int,
        batches: list[PendingBatch],
    ) -> None:
        deadline = time.monotonic() + timeout
        more = taken
        while True:
            with self.node.lock:
                self.writer.send(batches, now=time.monotonic_ns())
                self._flush_node()
            if taken >= samples.count:
                return
            if more:
                deadline = time.monotonic() + timeout
                # The writing thread takes in acknowledgements itself: no switch of threads at full speed.
                if self._asynchronous or not self.node.do_work():
                    self._wait()
            elif time.monotonic() > deadline:
                raise AcknowledgmentError(self._held_up_by(timeout, self.writer.last_sn))
            else:
                self._wait()
            rest = samples.take(taken, samples.count)
            hashes = key_hashes[taken:] if key_hashes is not None else None
            more, batches = self._queue(rest, hashes, flags, stamp)
            taken += more

    def flush(self) -> None:
        """Send the batch in progress, in the calling thread. Raises TransportError as :meth:`write` does."""
        with self.node.lock:
            self.writer.flush(now=time.monotonic_ns())
            self._flush_node()
        self._raise_failures()

    def begin_coherent_set(self) -> None:
        """What is written from now on becomes visible together (DDS: begin_coherent_changes)."""
        with self.node.lock:
            self.writer.begin_coherent_set(now=time.monotonic_ns())
            self._flush_node()

    def end_coherent_set(self) -> None:
        """The set is complete (DDS: end_coherent_changes)."""
        with self.node.lock:
            self.writer.end_coherent_set(now=time.monotonic_ns())
            self._flush_node()
        self._raise_failures()

    def _flush_node(self) -> None:
        if self._asynchronous:
            self.node.wake()
        else:
            self.node.flush()

    def _steering(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext() if self._asynchronous else self.node.steering()

    def _raise_failures(self) -> None:
        """What failed to be sent is repaired where it is reliable; elsewhere it is lost, and the user's to know."""
        if self.writer.qos.is_reliable:
            return
        with self.node.lock:
            destinations = {d for proxy in self.writer.readers.values() for d in proxy.info.destinations}
            failures, last = self.node.send_failures(destinations)
        if failures > self._failures:
            lost, self._failures = failures - self._failures, failures
            raise TransportError(f"topic {self.topic!r}: {lost} datagrams could not be sent; {last}")

    def wait_for_readers(self, timeout: float) -> bool:
        """Wait until a reader is matched and ready; False when none was within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with self._steering():
            while not self.has_ready_reader():
                if time.monotonic() >= deadline:
                    return False
                self._wait()
        return True

    def has_ready_reader(self) -> bool:
        """Whether some reader is matched; a reliable one counts once it has sent its first ACKNACK."""
        with self.node.lock:
            return any(proxy.is_ready for proxy in self.writer.readers.values())

    def wait_for_acknowledgments(self, timeout: float) -> dict[Guid, int]:
        """Wait until every matched reliable reader has acknowledged everything written so far.

        Returns the readers that have not within ``timeout`` seconds, each with the highest sequence number it
        did acknowledge; empty when all have.
        """
        deadline = time.monotonic() + timeout
        with self.node.lock:
            self.writer.flush(now=time.monotonic_ns())
            self._flush_node()
            last = self.writer.last_sn
            behind = self.writer.unacknowledged(last)
            if behind:
                self.writer.request_acknowledgment(time.monotonic_ns())
                self._flush_node()
        with self._steering():
            while behind and time.monotonic() < deadline:
                self._wait()
                with self.node.lock:
                    behind = self.writer.unacknowledged(last)
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

    def _wait(self) -> None:
        if self._asynchronous:
            time.sleep(_ASYNCHRONOUS_SECONDS)
        else:
            self.node.run_once(_LOOK_AGAIN_SECONDS)

    def _held_up_by(self, timeout: float, last: int) -> str:
        with self.node.lock:
            behind = self.writer.unacknowledged(last)
            limit = self.writer.blocked_by
        readers = ", ".join(f"{guid} (acknowledged {sn} of {last})" for guid, sn in behind.items())
        return (
            f"writing to topic {self.topic!r} made no progress for {timeout:g} s: its {limit or 'send window'} "
            f"is used up, waiting for {readers or 'nobody'}"
        )
