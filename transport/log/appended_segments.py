"""The segment files of a stream log on its appender's side: those that are held, and the spares that come next."""

from __future__ import annotations

from pathlib import Path

from ..errors import LogFullError
from .checkpoint import Base
from .pads import Pads
from .segment import Segment, SegmentFile, StreamLogMetadata, refusal, segment_path
from .spare_segments import SpareSegments


class AppendedSegments:
    """Those of the log in ``directory``, which lie end to end; with the spares no more than its ``max_bytes``."""

    def __init__(self, directory: Path, metadata: StreamLogMetadata) -> None:
        #: By base.
        self.files: list[SegmentFile] = []
        #: Bytes of all of them.
        self.nbytes = 0
        self._directory = directory
        self._max_bytes = metadata.max_bytes
        self._pads = Pads(directory, metadata.seed)
        self._spares = SpareSegments(directory, metadata.segment_bytes)

    def hold(self, files: list[SegmentFile]) -> None:
        """Take over those that an earlier appender left."""
        self.files = files
        self.nbytes = sum(file.size for file in files)

    def create(self, base: int, size: int) -> Segment:
        """A segment to be appended, made of a spare if there is one. Raises LogError, LogFullError for a full disk."""
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
            self._spares.shrink(0)  # the disk has no room but what they take
        except OSError as error:
            raise refusal(error, f"begin a segment in {self._directory}", path=self._directory) from error
        return Segment.create(self._directory, base, size)

    def append(self, segment: Segment) -> None:
        """It is the last one from now on."""
        self.files.append(SegmentFile(segment.base, segment.size))
        self.nbytes += segment.size

    def end_samples(self, base: int, position: int) -> None:
        """In the segment at ``base`` nothing but a PAD lies from ``position`` on."""
        self._pads.ended(base, position)

    def seal(self, segment: Segment) -> None:
        """It was written to its end."""
        self._spares.written(segment)

    def base_before(self, kept: SegmentFile | None, start: int, behind: int) -> Base:
        """The base of the log when the segments before ``kept`` are gone, or all; what is left starts at ``start``.

        ``behind`` is where the segment ``kept`` starts, or the log ends. Raises LogError.
        """
        at = len(self.files) if kept is None else self.files.index(kept)
        gone = self.files[at - 1] if at else None
        if gone is not None and gone.end < behind and self._pads.is_leap(gone.end, behind):
            start = behind
        elif gone is not None and gone.end != start:
            gone = None  # what lay there is lost
        # Where the last sample before it ended: those who have read it stand there, and miss nothing.
        return Base(start if gone is None else self._pads.end_of_samples(gone), start)

    def remove_before(self, kept: SegmentFile | None) -> None:
        """Remove the segments before ``kept``, or all: some become spares. Raises LogError for one that cannot be
        removed: the next call tries it again."""
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
