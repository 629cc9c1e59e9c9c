"""The ends of the samples in a log's segments, where their PADs begin."""

from __future__ import annotations

from pathlib import Path

from .frame import Cursor, PadFrame
from .frame_scan import SegmentFrames
from .log_view import LogView
from .segment import SCARCE, SegmentFile, refusal, segment_path


class Pads:
    """The PADs of the log in ``directory``."""

    def __init__(self, directory: Path, seed: int) -> None:
        self._directory = directory
        self._seed = seed
        #: The positions of the PADs that this appender wrote, by the segments' bases.
        self._starts: dict[int, int] = {}

    def ended(self, base: int, position: int) -> None:
        """Record that the segment at ``base`` ends with a PAD at ``position``."""
        self._starts[base] = position

    def forget_segment(self, segment: SegmentFile) -> None:
        """Forget a trimmed segment."""
        self._starts.pop(segment.base, None)

    def is_leap(self, start: int, stop: int) -> bool:
        """Whether no sample ever lay from ``start`` to ``stop``, where there is no segment. Raises LogError."""
        try:
            items = LogView(self._directory).items(Cursor(start), Cursor(stop))
            return all(isinstance(item, PadFrame) for item in items)
        except OSError as error:
            raise refusal(error, f"look into {self._directory}", path=self._directory) from error

    def end_of_samples(self, segment: SegmentFile) -> int:
        """The end of the last sample of a segment: the begin of its PAD, or the segment's own end.

        Raises LogError if the segment cannot be read just now, for want of descriptors or memory.
        """
        start = self._starts.get(segment.base)
        if start is None:  # an earlier appender wrote it
            try:
                start = SegmentFrames.map(self._directory, segment, self._seed).pad()
            except OSError as error:
                if error.errno in SCARCE:
                    path = segment_path(self._directory, segment.base)
                    raise refusal(error, f"look into {path}", path=path) from error
        return segment.end if start is None else start
