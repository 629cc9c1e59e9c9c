"""Where the samples of a log's segments end, and the PADs behind them begin."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from .frame_walk import SegmentFrames
from .segment import SegmentFile


class Pads:
    """Those of the log in ``directory``."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        #: By the segments' bases; of those that this appender has ended.
        self._starts: dict[int, int] = {}

    def ended(self, base: int, position: int) -> None:
        """The segment at ``base`` ends with a PAD at ``position``."""
        self._starts[base] = position

    def forget(self, segment: SegmentFile) -> None:
        """It is trimmed."""
        self._starts.pop(segment.base, None)

    def end_of_samples(self, segment: SegmentFile) -> int:
        """Where the last sample of a segment ends: where its PAD begins, or the segment's own end."""
        start = self._starts.get(segment.base)
        if start is None:  # it was written in an earlier life
            with suppress(OSError):
                start = SegmentFrames.map(self._directory, segment, self._seed).pad()
        return segment.end if start is None else start
