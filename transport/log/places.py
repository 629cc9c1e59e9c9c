"""Places in a stream log where runs of one sample are put together before they are appended.

What lies in its place when it is appended need not be copied. A place is behind the log's end, where its frame will be;
several follow one another. So as long as there are places, nothing can be appended but what lies there, in their order:
whoever has something else to append gives the places up first, and copies what is still needed of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

from ..wire.samples import SAMPLE_INDEX, U8, Run
from .frame import HEADER_BYTES, align
from .segment import Segment

#: Where in its frame a run of one sample lies.
_PLACE_AT: Final = HEADER_BYTES + SAMPLE_INDEX.itemsize


class Vacates(Protocol):
    """Whoever puts samples together in places of a log."""

    def vacate(self) -> None:
        """Take what lies in the places elsewhere."""


class Places:
    """The places of one log, each with the position of its frame."""

    __slots__ = ("_places", "reader")

    def __init__(self) -> None:
        #: What puts samples together there, and vacates them for others.
        self.reader: Vacates | None = None
        self._places: deque[tuple[int, U8]] = deque()

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, tail: Segment, position: int, nbytes: int) -> U8 | None:
        """The place of a sample behind the others, or at ``position`` if there are none; None: the segment has no room
        for it."""
        if self._places:
            position, before = self._places[-1]
            position += align(_PLACE_AT + before.nbytes)
        at = position - tail.base + _PLACE_AT
        if at + nbytes > tail.size:
            return None
        tail.holds_old = True
        place = tail.data[at : at + nbytes]
        self._places.append((position, place))
        return place

    def hold(self, runs: Sequence[Run | None]) -> bool:
        """Whether the first places hold these runs, in this order."""
        return len(runs) <= len(self._places) and all(
            run is not None and _lies_in(run, place)
            for run, (_, place) in zip(runs, self._places, strict=False)
        )

    def take(self, position: int, run: Run) -> bool:
        """The run at the first place is appended; False: it is not there."""
        if not self._places or self._places[0][0] != position or not _lies_in(run, self._places[0][1]):
            return False
        self._places.popleft()
        return True

    def clear(self) -> None:
        """Give all up."""
        self._places.clear()


def _lies_in(run: Run, place: U8) -> bool:
    return run.data is place and run.count == 1 and not run.stride
