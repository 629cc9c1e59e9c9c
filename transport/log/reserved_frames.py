"""ReservedFrames in a stream log where runs are put together before they are appended.

What lies in its place when it is appended need not be copied. A place is behind the log's end, where its frame will be;
several follow one another. So as long as there are places, nothing can be appended but what lies there, in their order:
whoever has something else to append gives the places up first, and copies what is still needed of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from ..wire.samples import SAMPLE_INDEX, U8, Run
from .frame import HEADER_BYTES, align
from .segment import Segment

#: Of a place, so much is faulted in at once: what a sample declares need not come.
_POPULATED_MAX: Final = 4 << 20


class _ReservedFrame(NamedTuple):
    """``position`` is that of the frame, ``data`` where an indexed run of so many ``samples`` lies in it."""

    position: int
    data: U8
    samples: int

    def holds(self, run: Run) -> bool:
        return run.data is self.data and run.count == self.samples and not run.stride


class Vacates(Protocol):
    """Whoever puts samples together in places of a log."""

    def vacate(self) -> None:
        """Take what lies in the places elsewhere."""


class ReservedFrames:
    """The places of one log, in the order of their frames."""

    __slots__ = ("_places", "reader")

    def __init__(self) -> None:
        #: What puts samples together there, and vacates them for others.
        self.reader: Vacates | None = None
        self._places: deque[_ReservedFrame] = deque()

    def __bool__(self) -> bool:
        return bool(self._places)

    def reserve(self, tail: Segment, position: int, nbytes: int, count: int) -> U8 | None:
        """The place of a run behind the others, or at ``position`` if there are none; None: the segment has no room for
        it."""
        if self._places:
            last = self._places[-1]
            position = last.position + align(_place_at(last.samples) + last.data.nbytes)
        at = position - tail.base + _place_at(count)
        if at + nbytes > tail.size:
            return None
        tail.holds_old = True
        tail.populate(at + min(nbytes, _POPULATED_MAX))
        place = tail.data[at : at + nbytes]
        self._places.append(_ReservedFrame(position, place, count))
        return place

    def hold(self, runs: Sequence[Run | None]) -> bool:
        """Whether the first places hold these runs, in this order."""
        return len(runs) <= len(self._places) and all(
            run is not None and place.holds(run) for run, place in zip(runs, self._places, strict=False)
        )

    def append_run(self, position: int, run: Run) -> bool:
        """The run at the first place is appended; False: it is not there."""
        if not self._places or self._places[0].position != position or not self._places[0].holds(run):
            return False
        self._places.popleft()
        return True

    def clear(self) -> None:
        """Give all up."""
        self._places.clear()


def _place_at(count: int) -> int:
    """Where in its frame an indexed run of so many samples lies."""
    return HEADER_BYTES + count * SAMPLE_INDEX.itemsize
