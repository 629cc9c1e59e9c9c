"""Where the samples of a log's segments end, and the PADs behind them begin."""

from __future__ import annotations

from pathlib import Path

from .frame import Cursor, PadFrame
from .frame_scan import SegmentFrames
from .log_view import LogView
from .segment import SCARCE, SegmentFile, refusal, segment_path


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

    def forget_segment(self, segment: SegmentFile) -> None:
        """It is trimmed."""
        self._starts.pop(segment.base, None)

    def is_leap(self, start: int, stop: int) -> bool:
        """Whether no sample ever lay from ``start`` to ``stop``, where there is no segment. Raises LogError."""
        try:
            items = LogView(self._directory).items(Cursor(start), Cursor(stop))
            return all(isinstance(item, PadFrame) for item in items)
        except OSError as error:
            raise refusal(error, f"look into {self._directory}", path=self._directory) from error

    def end_of_samples(self, segment: SegmentFile) -> int:
        """Where the last sample of a segment ends: where its PAD begins, or the segment's own end.

        Raises LogError if it cannot be looked into just now, for want of descriptors or memory.
        """
        start = self._starts.get(segment.base)
        if start is None:  # it was written in an earlier life
            try:
                start = SegmentFrames.map(self._directory, segment, self._seed).pad()
            except OSError as error:
                if error.errno in SCARCE:
                    path = segment_path(self._directory, segment.base)
                    raise refusal(error, f"look into {path}", path=path) from error
        return segment.end if start is None else start
