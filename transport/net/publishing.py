"""A writer as a task uses it: calls that block until the network has taken, or acknowledged, the data."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Final, Protocol

from ..errors import AcknowledgmentError
from ..protocol.reader_proxy import ReaderProxy
from ..protocol.writer import StatefulWriter
from ..structure import Guid
from ..wire.samples import U8, Samples

#: How long a blocked call sleeps at most before it looks again; acknowledgements wake it sooner.
_LOOK_AGAIN_SECONDS: Final = 0.05


class Driver(Protocol):
    """What a blocking call needs of the node it works on (`net.node.Node`)."""

    lock: threading.RLock

    def steering(self) -> AbstractContextManager[None]: ...
    def run_once(self, timeout: float) -> int: ...
    def do_work(self) -> int: ...
    def flush(self) -> int: ...


class PublishingWriter:
    """The blocking surface of one writer of a node."""

    def __init__(self, node: Driver, writer: StatefulWriter, topic: str) -> None:
        self.node = node
        self.writer = writer
        self.topic = topic

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
        when no progress was made for ``timeout`` seconds, naming the readers that hold it up.
        """
        with self.node.steering():
            self._write(
                samples, key_hashes, flags, time.time_ns() if timestamp is None else timestamp, timeout
            )

    def _write(self, samples: Samples, key_hashes: U8 | None, flags: int, stamp: int, timeout: float) -> None:
        taken = 0
        deadline = time.monotonic() + timeout
        while True:
            rest = samples.take(taken, samples.count) if taken else samples
            hashes = key_hashes[taken:] if key_hashes is not None else None
            with self.node.lock:
                more = self.writer.write(
                    rest, timestamp=stamp, now=time.monotonic_ns(), flags=flags, key_hashes=hashes
                )
                self.node.flush()
                taken += more
            if taken >= samples.count:
                return
            if more:
                deadline = time.monotonic() + timeout
                # The writing thread takes in acknowledgements itself: no switch of threads at full speed.
                if self.node.do_work():
                    continue
            elif time.monotonic() > deadline:
                raise AcknowledgmentError(self._held_up_by(timeout, self.writer.last_sn))
            self._wait()

    def wait_for_readers(self, timeout: float) -> bool:
        """Wait until a reader is matched and ready; False when none was within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with self.node.steering():
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
            last = self.writer.last_sn
            behind = self.writer.unacknowledged(last)
            if behind:
                self.writer.request_acknowledgment(time.monotonic_ns())
                self.node.flush()
        with self.node.steering():
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

        A reader that left is no longer waited for. What it lacks is well if a ready reader is here that was
        matched before it was written, for that one has to acknowledge it.
        """
        with self.node.lock:
            here = self.writer.readers
            ready = [p.first_relevant for p in here.values() if p.is_ready]
            served_from = min(ready, default=self.writer.last_sn + 1)
            gone = [p for p in seen if here.get(p.guid) is not p]
            return {p.guid: p.acked for p in gone if p.acked + 1 < served_from}

    def _wait(self) -> None:
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
