"""Reserved frames in a stream log, in which runs are put together before they are appended.

A run that lies in its reserved frame need not be copied when it is appended. A frame is reserved behind the log's end,
at its final position; several follow one another. So while there are reserved frames, only their runs can be appended,
in their order: before any other append, the frames are given up, and runs that are still needed are copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from ..wire.samples import SAMPLE_INDEX, U8, Run
from .frame import HEADER_BYTES, align
from .segment import Segment

#: Bytes of a frame that are faulted in at once: a sample may be shorter than declared.
_POPULATED_MAX: Final = 4 << 20


class _ReservedFrame(NamedTuple):
    """``position`` is that of the frame; ``data`` is its part for an indexed run of this many ``samples``."""

    position: int
    data: U8
    samples: int

    def holds(self, run: Run) -> bool:
        return run.data is self.data and run.count == self.samples and not run.stride


class Vacates(Protocol):
    """Puts samples together in reserved frames of a log."""

    def vacate(self) -> None:
        """Copy the samples in the reserved frames to other memory."""


class ReservedFrames:
    """The reserved frames of one log, in the order of their positions."""

    __slots__ = ("_places", "reader")

    def __init__(self) -> None:
        #: Puts samples together in the frames, and vacates them for other appends.
        self.reader: Vacates | None = None
        self._places: deque[_ReservedFrame] = deque()

    def __bool__(self) -> bool:
        return bool(self._places)

    def reserve(self, tail: Segment, position: int, nbytes: int, count: int) -> U8 | None:
        """The bytes for a run behind the other reserved frames, or at ``position`` if there are none; None: the segment
        has no space for it."""
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
        """Whether the first reserved frames hold these runs, in this order."""
        return len(runs) <= len(self._places) and all(
            run is not None and place.holds(run) for run, place in zip(runs, self._places, strict=False)
        )

    def append_run(self, position: int, run: Run) -> bool:
        """Release the first reserved frame, whose run is appended; False: the run is not in it."""
        if not self._places or self._places[0].position != position or not self._places[0].holds(run):
            return False
        self._places.popleft()
        return True

    def clear(self) -> None:
        """Give up all reserved frames."""
        self._places.clear()


def _place_at(count: int) -> int:
    """The offset of an indexed run of this many samples in its frame."""
    return HEADER_BYTES + count * SAMPLE_INDEX.itemsize
