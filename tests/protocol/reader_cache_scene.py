"""A reader's cache in virtual time, and writers for it."""

from __future__ import annotations

from typing import Any

from spark_rtps.transport.protocol.reading.cache.reader_cache import ReaderCache
from spark_rtps.transport.qos import HistoryKind, Qos
from spark_rtps.transport.structure import Guid
from tests.protocol.runs_of_samples import WALL, Sample, keys_of, numbers, run_of, writer


class Scene:
    """A reader's cache, writers with their QoS, and two clocks that go together, but for what ``step`` sets."""

    def __init__(self, *, keyed: bool = True, accept_removed: bool = False, **policies: Any) -> None:
        self.qos = Qos(**({"history": HistoryKind.KEEP_ALL} | policies))
        self.writers: dict[Guid, Qos] = {writer(n): Qos() for n in (1, 2, 3)}
        self.cache = ReaderCache(
            self.qos,
            keys=keys_of if keyed else None,
            writer_qos=self.writers.get,
            accept_writer_removed_batch_samples=accept_removed,
        )
        self.now = 0
        #: How far the reader's wall clock is from the writers', ns.
        self.step = 0
        self._next_sn = dict.fromkeys(range(10), 1)

    def write(self, source: int, *samples: Sample, batch_sn: int = 0) -> list[int]:
        """Which of these samples pass, by their place."""
        first = self._next_sn[source]
        self._next_sn[source] += len(samples)
        run = run_of(source, first, samples, batch_sn=batch_sn)
        accepted = self.cache.accept(run, reception=WALL + self.now + self.step, now=self.now)
        return [number - first for number in numbers(accepted)]

    def wait(self, duration: int) -> None:
        """Let time pass, timers included."""
        end = self.now + duration
        while (timer := self.cache.get_timer()) is not None and timer <= end:
            assert timer > self.now
            self.now = timer
            self.cache.handle_timer(timer)
            following = self.cache.get_timer()
            assert following is None or following > timer
        self.now = end

    def counted(self) -> dict[str, int]:
        """Counters that are not zero, but for the instances."""
        counters = self.cache.counters.snapshot()
        counters.pop("alive_instance_count")
        return {name: count for name, count in counters.items() if count}
