"""The samples that one reader of a node delivered and no thread has taken yet: runs that own their memory, bounded.

The node's thread puts runs in, under the node's lock: it copies them, since the receive buffer is reused, and applies
the policies for single samples (`transport.protocol.reading.cache`). Any other thread takes them out.
The two meet at a lock that is held only while a list is swapped.

Invariants:
* ``waiting_bytes + held_bytes`` is the part of ``capacity`` that the reader's window excludes: a reliable writer is
  held back and loses nothing; the reader counts the samples of best-effort writers that it drops (``window_closed``);
* frames are numbered in the order of their arrival (``Frame.rows_before``), without holes;
* no lock of a subscription is held when the node's lock is asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ..transport.errors import UsageError
from ..transport.log.frame import Frame
from ..transport.net.node import Node
from ..transport.protocol.participant.endpoint_specs import ReaderSpec
from ..transport.protocol.reading.cache.reader_cache import ReaderCache
from ..transport.protocol.reading.reader import StatefulReader
from ..transport.receiver.instance_keys import InstanceKeys
from ..transport.structure import Guid
from ..transport.types.model import Struct
from ..transport.wire.samples import Run
from .announced_writers import AnnouncedWriters
from .arguments import CAPACITY
from .arrival_signal import ArrivalSignal
from .sample_cache import memory_of

_log = logging.getLogger("spark_rtps.api")

#: Part of the capacity that one sample may take.
_SAMPLE_PART: Final = 2
#: Unread arrivals are compacted when they exceed this, and exceed the bytes that are held.
_RELIEF_BYTES: Final = 1 << 20


class Inbox:
    """One reader, and its delivered samples; the module's text has which thread may call what."""

    def __init__(self, node: Node, *, capacity: int = CAPACITY) -> None:
        """``capacity`` is in bytes; a sample of more than half of it is skipped."""
        self.capacity = capacity
        self.announced = AnnouncedWriters(node)
        self.arrived = ArrivalSignal()
        #: Called in the node's thread when many unread samples have arrived; must not block.
        self.relief: Callable[[], None] | None = None
        self.reader: StatefulReader | None = None
        #: Whether writers are held back, or soon will be, for lack of space.
        self.is_short = False
        self._node = node
        self._cache: ReaderCache | None = None
        self._frames: list[Frame] = []
        self._waiting_bytes = 0
        self._held_bytes = 0
        self._number = 0

    def join_topic(
        self,
        spec: ReaderSpec,
        *,
        instance_type: Struct | None = None,
        accept_writer_removed_batch_samples: bool = False,
    ) -> Guid:
        """Join the topic; returns the reader's GUID. The caller holds the node's lock if that is to be known before the
        first event about it.

        ``instance_type`` is the type by which keys are computed, if a policy needs instances. If the reader awaits
        types,
        those of its writers are kept.

        Raises UsageError if the node is closed, PluginError for a congestion control that cannot be loaded.
        """
        node, qos = self._node, spec.qos
        with node.lock:
            if node.is_closed or self.arrived.is_ended:
                raise UsageError(f"topic {spec.topic!r}: the participant is closed")
            self._cache = ReaderCache(
                qos,
                keys=self._instance_keys(spec, instance_type) if spec.keyed else None,
                writer_qos=node.participant.database.qos_of,
                accept_writer_removed_batch_samples=accept_writer_removed_batch_samples,
            )
            self.announced.keeps_types = spec.awaits_types
            least = min(spec.sample_size_max, self.capacity // _SAMPLE_PART)
            self.reader = node.create_reader(replace(spec, sample_size_max=least), self)
        return self.reader.guid

    def _instance_keys(self, spec: ReaderSpec, instance_type: Struct | None) -> InstanceKeys:
        if not spec.qos.reports_instances:
            return InstanceKeys(None)
        return InstanceKeys(instance_type, self.announced.type_of if spec.awaits_types else None)

    # --- in the node's thread, under its lock ------------------------------------------------------

    def room(self) -> int:
        """Bytes of runs that there is space for now."""
        room = max(0, self.capacity - self._waiting_bytes - self._held_bytes)
        self.is_short = room < self.capacity // 2
        return room

    def deliver(self, reader: StatefulReader, runs: list[Run]) -> None:
        """Copy runs whose memory is valid during the call only."""
        assert self._cache is not None
        reception, now = time.time_ns(), time.monotonic_ns()
        frames: list[Frame] = []
        nbytes, number = 0, self._number
        for run in runs:
            try:
                kept = self._cache.accept(run, reception=reception, now=now)
                if kept is None:
                    continue
                self.announced.record_writer(kept.writer)
                kept = kept.copy()
            except Exception:  # noqa: BLE001  (the other runs arrive)
                # These samples are lost here, and the writer need not send them again.
                reader.counters.lost_samples += run.count
                _log.exception(
                    "samples cannot be stored: reader %s counts %d as lost", reader.guid, run.count
                )
                continue
            frames.append(Frame(number, kept.nbytes, reception, number, kept))
            nbytes += memory_of(kept)
            number += kept.count
        if frames:
            self._add(frames, nbytes, number)

    def _add(self, frames: list[Frame], nbytes: int, number: int) -> None:
        with self.arrived.lock:
            if self.arrived.is_ended:
                return
            self._frames += frames
            self._waiting_bytes += nbytes
            self._number = number
            self.arrived.raise_count()
        # a small inbox, or one that is nearly full, is compacted sooner
        enough = min(max(_RELIEF_BYTES, self._held_bytes), (self.capacity - self._held_bytes) // 2)
        if self.relief is not None and self._waiting_bytes > enough:
            self.relief()

    # --- in any thread ------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self.arrived.is_ended

    def take_frames(self) -> list[Frame]:
        """The frames that arrived since the last call, oldest first. The bytes kept of them do not count until
        :meth:`hold`
        announces them."""
        with self.arrived.lock:
            frames, self._frames = self._frames, []
            self._held_bytes += self._waiting_bytes
            self._waiting_bytes = 0
        return frames

    def put_back(self, frames: list[Frame]) -> None:
        """Put back frames that the owner could not keep."""
        with self.arrived.lock:
            if not self.arrived.is_ended:
                nbytes = sum(memory_of(frame.run) for frame in frames)
                self._frames = [*frames, *self._frames]
                self._waiting_bytes += nbytes
                self._held_bytes = max(0, self._held_bytes - nbytes)

    def hold(self, nbytes: int) -> None:
        """Count ``nbytes`` that the owner keeps of the taken frames against the capacity."""
        self._held_bytes = nbytes

    def go_on(self) -> None:
        """Let held-back writers continue, if there is space again."""
        if not self.is_short or self._held_bytes + self._waiting_bytes > self.capacity // 2:
            return
        with self._node.lock:
            if self.reader is not None and not self._node.is_closed and not self.arrived.is_ended:
                self._node.offer_room(self.reader)
                self._node.wake()

    def writer_lost(self, writer: Guid) -> None:
        """The writer is unmatched, or not alive: it no longer owns an instance."""
        if self._cache is not None:
            with self._node.lock:
                self._cache.writer_lost(writer)

    def handle_timer(self, now: int) -> None:
        """Do what is due; ``now`` is monotonic, ns."""
        if self._cache is None:
            return
        timer = self._cache.get_timer()
        if timer is not None and timer <= now:
            with self._node.lock:
                self._cache.handle_timer(now)
        self.go_on()

    def counters(self) -> tuple[dict[str, int], dict[str, int]]:
        """The counters of the reader, and of its policies."""
        if self.reader is None or self._cache is None:
            return {}, {}
        with self._node.lock:
            return self.reader.counters.snapshot(), self._cache.counters.snapshot()

    def writers(self) -> tuple[Guid, ...]:
        """The writers that are matched now."""
        if self.reader is None:
            return ()
        with self._node.lock:
            return tuple(self.reader.writers)

    def disown(self) -> None:
        """In a forked child: close, and leave the topic to the parent."""
        self.arrived.disown()
        self._frames, self._waiting_bytes = [], 0

    def close(self) -> None:
        """Leave the topic, drop unread samples, and wake the waiting threads."""
        with self.arrived.lock:
            if self.arrived.is_ended:
                return
            self.arrived.is_ended = True
            self._frames = []
            self._waiting_bytes = 0
            self.arrived.wake_all()
        with self._node.lock:
            if self.reader is not None and not self._node.is_closed:
                self._node.delete_endpoint(self.reader.guid)
