"""The counters file of a receiver, for Spark's source and for ``spark-rtps stat``."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import DropReason
from ..limits import WRITERS_SHOWN_MAX
from ..log.counters import COUNTERS_FILE, Counters
from ..log.owner_lock import OwnerLock
from ..log.stream_log import StreamLog
from ..protocol.participant.events import Event, IncompatibleQos
from ..protocol.participant.statuses import ReaderStatuses
from ..protocol.reading.cache.reader_cache import ReaderCache
from ..protocol.reading.reader import StatefulReader
from ..protocol.reading.received_stream import NO_POSITIONS
from ..structure import INFINITE


class ShownCounters:
    """Writes the counters file, except ``log.consumer``, which the consumer writes."""

    def __init__(self, directory: Path, log: StreamLog, *, domain: int) -> None:
        self._counters = Counters.create(directory / COUNTERS_FILE)
        #: Held until this process ends: its process id means nothing in another PID namespace.
        self._lock = OwnerLock.hold(directory / COUNTERS_FILE)
        c = self._counters.counter
        self._position, self._base, self._rows = c("log.position"), c("log.base"), c("log.rows")
        self._trimmed = c("log.trimmed_bytes")
        self._dropped = c("log.dropped_samples")
        self._consumer = c("log.consumer")
        self._consumer.set(log.base)
        c("receiver.holds_lock").set(int(self._lock is not None))
        c("receiver.pid").set(os.getpid())
        c("receiver.domain").set(domain)
        self._heartbeat = c("receiver.heartbeat_ns")
        self._matched, self._mismatched = c("reader.matched_writers"), c("reader.incompatible_qos")
        self._statuses = ReaderStatuses()  # those of all readers together: the log is one subscription
        self._streams_shown = 0
        self.show_log(log)

    @property
    def consumer(self) -> int:
        """The position up to which samples are consumed, as the consumer wrote it."""
        return self._consumer.get()

    @property
    def matched_writers(self) -> int:
        """The number of writers that match the reader."""
        return len(self._statuses.matched)

    def show_log(self, log: StreamLog) -> None:
        self._rows.set(log.rows)
        self._base.set(log.base)
        self._position.set(log.position)

    def add_trimmed(self, nbytes: int) -> None:
        """Count bytes that were trimmed although no consumer had committed them."""
        self._trimmed.add(nbytes)

    def add_dropped(self, samples: int) -> None:
        """Count samples that were dropped because the log was full."""
        self._dropped.add(samples)

    def show_heartbeat(self, now: int) -> None:
        self._heartbeat.set(now)

    def show_drops(self, drops: Mapping[DropReason, int]) -> None:
        for reason, count in drops.items():
            self._counters.counter(f"drop.{reason.value}").set(count)

    def show_readers(self, readers: Sequence[tuple[StatefulReader, ReaderCache]]) -> None:
        """Show the sum of the readers' counters, their statuses, and the positions of their streams."""
        self._matched.set(sum(len(reader.writers) for reader, _ in readers))
        counts = _sums(reader.counters.snapshot() for reader, _ in readers)
        cached = _sums(cache.counters.snapshot() for _, cache in readers)
        for name, value in counts.items():
            self._counters.counter(f"reader.{name}").set(value)
        for label, value in self._statuses.snapshot(counts, cached).items():
            self._counters.counter(label).set(value)
        self._show_streams([reader for reader, _ in readers])

    def on_event(self, event: Event) -> None:
        self._statuses.on_event(event)
        if isinstance(event, IncompatibleQos):
            self._mismatched.add(1)

    def _show_streams(self, readers: Sequence[StatefulReader]) -> None:
        """The positions of the first writers; zeros in unused rows."""
        matched = ((reader, proxy) for reader in readers for proxy in reader.writers.values())
        writers = list(itertools.islice(matched, WRITERS_SHOWN_MAX))
        for i in range(max(len(writers), self._streams_shown)):
            values = writers[i][0].status.positions(writers[i][1]) if i < len(writers) else None
            raw = writers[i][1].guid.to_bytes() if i < len(writers) else bytes(16)
            c = self._counters.counter
            c(f"stream.{i}.guid_high").set(int.from_bytes(raw[:8], "big", signed=True))
            c(f"stream.{i}.guid_low").set(int.from_bytes(raw[8:], "big", signed=True))
            for name, value in (values or NO_POSITIONS)._asdict().items():
                c(f"stream.{i}.{name}").set(min(value, INFINITE))
        self._streams_shown = len(writers)


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of each counter; with one reader these are its counters."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return {name: min(value, INFINITE) for name, value in total.items()}
