"""The segment files of a stream log on its appender's side: the held segments, and the spares for the next ones."""

from __future__ import annotations

from pathlib import Path

from ..errors import LogFullError
from .checkpoint import Base
from .pads import Pads
from .segment import Segment, SegmentFile, StreamLogMetadata, refusal, segment_path
from .spare_segments import SpareSegments


class AppendedSegments:
    """The segments of the log in ``directory``, which lie end to end; with the spares no more than its
    ``max_bytes``."""

    def __init__(self, directory: Path, metadata: StreamLogMetadata) -> None:
        #: The segment files by base. Bytes of all of them.
        self.files: list[SegmentFile] = []
        #: Bytes of all of them.
        self.nbytes = 0
        self._directory = directory
        self._max_bytes = metadata.max_bytes
        self._pads = Pads(directory, metadata.seed)
        self._spares = SpareSegments(directory, metadata.segment_bytes)

    def hold(self, files: list[SegmentFile]) -> None:
        """Take over the segments that an earlier appender left."""
        self.files = files
        self.nbytes = sum(file.size for file in files)

    def create(self, base: int, size: int) -> Segment:
        """A segment to append to, made of a spare if there is one. Raises LogError, LogFullError for a full disk."""
        try:
            spare = self._spares.become(base, size)
            if spare is not None:
                return spare
            self._spares.shrink(self._max_bytes - self.nbytes - size)
            try:
                return Segment.create(self._directory, base, size)
            except LogFullError:
                if not self._spares.nbytes:
                    raise
            self._spares.shrink(0)  # the spares take the only space that the disk has left
        except OSError as error:
            raise refusal(error, f"begin a segment in {self._directory}", path=self._directory) from error
        return Segment.create(self._directory, base, size)

    def append(self, segment: Segment) -> None:
        """Make it the last segment."""
        self.files.append(SegmentFile(segment.base, segment.size))
        self.nbytes += segment.size

    def end_samples(self, base: int, position: int) -> None:
        """Record that in the segment at ``base`` only a PAD lies from ``position`` on."""
        self._pads.ended(base, position)

    def seal(self, segment: Segment) -> None:
        """Record that the segment was written to its end."""
        self._spares.written(segment)

    def base_before(self, kept: SegmentFile | None, start: int, behind: int) -> Base:
        """The base of the log once the segments before ``kept``, or all, are removed; the rest starts at ``start``.

        ``behind`` is the start of the segment ``kept``, or the end of the log. Raises LogError.
        """
        at = len(self.files) if kept is None else self.files.index(kept)
        gone = self.files[at - 1] if at else None
        if gone is not None and gone.end < behind and self._pads.is_leap(gone.end, behind):
            start = behind
        elif gone is not None and gone.end != start:
            gone = None  # the segment before is lost
        # The end of the last sample before: consumers that have read it are at this position, and miss nothing.
        return Base(start if gone is None else self._pads.end_of_samples(gone), start)

    def remove_before(self, kept: SegmentFile | None) -> None:
        """Remove the segments before ``kept``, or all; some become spares. Raises LogError for a segment that cannot be
        removed: the next call retries it."""
        while self.files and self.files[0] is not kept:
            gone = self.files[0]
            path = segment_path(self._directory, gone.base)
            try:
                if not self._spares.keep(gone):
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise refusal(error, f"delete {path}", path=path) from error
            del self.files[0]
            self.nbytes -= gone.size
            self._pads.forget_segment(gone)

    def remove_spares(self) -> None:
        """Raises OSError."""
        self._spares.shrink(0)

    def drop_from(self, number: int) -> None:
        """Delete the segments from ``number`` on, which hold no frame of this log. Raises OSError."""
        for file in self.files[number:]:
            segment_path(self._directory, file.base).unlink()
        del self.files[number:]
