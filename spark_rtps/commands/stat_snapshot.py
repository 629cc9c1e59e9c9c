"""One snapshot of ``spark-rtps stat``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ..transport.value_classes import value

if TYPE_CHECKING:
    from ..monitoring.stream_counters import Stream
    from .receivers import Collected


@value
class StatSnapshot:
    """The streams at one time, and the samples and bytes a second of each since the previous snapshot.

    ``at`` is CLOCK_MONOTONIC, in ns.
    """

    collected: Collected[Stream]
    at: int
    rates: dict[Path, float] = field(default_factory=dict)
    byte_rates: dict[Path, float] = field(default_factory=dict)

    @classmethod
    def after(cls, before: StatSnapshot | None, collected: Collected[Stream], now: int) -> StatSnapshot:
        """The snapshot of ``collected`` at ``now``, with rates since ``before``."""
        if before is None or now <= before.at:
            return cls(collected, now)
        samples = _rates(before, collected, now, lambda stream: stream.samples)
        return cls(collected, now, samples, _rates(before, collected, now, lambda stream: stream.nbytes))

    @property
    def streams(self) -> list[Stream]:
        return self.collected.entries

    def shown(self, *, everything: bool) -> list[Stream]:
        """All streams, or those that have not ended."""
        from ..monitoring.stream_counters import State

        return [s for s in self.streams if everything or s.state is not State.ENDED]


def _rates(
    before: StatSnapshot, collected: Collected[Stream], now: int, count: Callable[[Stream], int]
) -> dict[Path, float]:
    """The increase per second, without streams that are new or whose count restarted."""
    elapsed = (now - before.at) / 1e9
    then = {stream.path: count(stream) for stream in before.streams}
    more = {s.path: count(s) - then[s.path] for s in collected.entries if s.path in then}
    return {path: n / elapsed for path, n in more.items() if n >= 0}
