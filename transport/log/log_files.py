"""The files that a view reads of a stream log: in the log's directory, or from another source."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..value_classes import value
from .checkpoint import Base, Tail, read_base, read_tail
from .copied_frames import CopiedFrames
from .frame_scan import SegmentFrames
from .segment import SegmentFile, StreamLogMetadata, list_segments, read_metadata


class LogFiles(Protocol):
    """The files of one stream log, to read."""

    @property
    def directory(self) -> Path:
        """The log's directory on its host; errors name it."""

    @property
    def in_place(self) -> bool:
        """Whether mapped segments are the appender's own, which may be overwritten once they are trimmed; otherwise
        they are copies, which stay as they were verified."""

    def metadata(self) -> StreamLogMetadata:
        """Raises LogError if there is no log, and LogLostError if it cannot be read."""

    def base(self, seed: int) -> Base:
        """The log's base; LogLostError if it is not known."""

    def tail(self) -> Tail | None:
        """How far the log was appended to; None: the record is damaged."""

    def segments(self) -> list[SegmentFile]:
        """The existing segments, by base."""

    def expect(self, start: int, stop: int) -> None:
        """Announce that the frames from position ``start`` on that begin before ``stop`` are read next, with their
        bodies."""

    def map(self, file: SegmentFile, seed: int) -> SegmentFrames:
        """The frames of a segment. FileNotFoundError if it was removed, OSError if it cannot be read."""


@value
class LogDirectory:
    """The files of the log in ``directory``, read in place, or copied as they are read, which is needed if another
    process than the reader trims the log."""

    directory: Path
    in_place: bool = True

    def metadata(self) -> StreamLogMetadata:
        return read_metadata(self.directory)

    def base(self, seed: int) -> Base:
        return read_base(self.directory, seed)

    def tail(self) -> Tail | None:
        return read_tail(self.directory)

    def segments(self) -> list[SegmentFile]:
        return list_segments(self.directory)

    def expect(self, start: int, stop: int) -> None:
        """Do nothing: mapped bytes are read, or copied, on access."""

    def map(self, file: SegmentFile, seed: int) -> SegmentFrames:
        kind = SegmentFrames if self.in_place else CopiedFrames
        return kind.map(self.directory, file, seed)
