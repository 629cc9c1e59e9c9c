"""What a view reads of a stream log: from the log's directory, or from wherever else its files can be had."""

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
        """Where the log lies on its host; errors name it."""

    @property
    def in_place(self) -> bool:
        """Whether what is mapped is the appender's own, which may be overwritten once it is trimmed; else it is a copy,
        and what is verified stays as it is."""

    def metadata(self) -> StreamLogMetadata:
        """Raises LogError if there is no log, and LogLostError if it cannot be read."""

    def base(self, seed: int) -> Base:
        """Where the log begins; LogLostError if that is not known."""

    def tail(self) -> Tail | None:
        """How far the log was appended to; None: that is damaged."""

    def segments(self) -> list[SegmentFile]:
        """The segments that are there, by base."""

    def expect(self, start: int, stop: int) -> None:
        """The frames from position ``start`` on that begin before ``stop`` are about to be read, and their bodies."""

    def map(self, file: SegmentFile, seed: int) -> SegmentFrames:
        """The frames of a segment. FileNotFoundError if it is gone, OSError if it cannot be read."""


@value
class LogDirectory:
    """The files of the log in ``directory``, read in place; or copied as they are read, which a log has to be that
    others than its reader trim."""

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
        """What is mapped is read, or copied, when it is looked at."""

    def map(self, file: SegmentFile, seed: int) -> SegmentFrames:
        kind = SegmentFrames if self.in_place else CopiedFrames
        return kind.map(self.directory, file, seed)
