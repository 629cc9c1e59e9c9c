"""The contents of a stream log, by segment and by writer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..errors import LogLostError
from ..limits import WRITERS_MAX
from ..structure import Guid
from ..value_classes import slotted
from .checkpoint import read_checkpoint
from .frame import Frame
from .log_view import LogView
from .segment import read_metadata


@slotted
class HeldSegment:
    """A segment and its valid frames; reception times are in ns since 1970, of its first and its last frame."""

    base: int
    end: int
    frames: int = 0
    rows: int = 0
    first_reception: int | None = None
    last_reception: int | None = None


@slotted
class HeldWriter:
    """A writer and its valid frames; ``highest_sn`` also counts trimmed samples."""

    writer: Guid
    highest_sn: int
    rows: int = 0
    #: Bytes of its frames, headers included.
    nbytes: int = 0
    #: Sequence numbers missing between those in the log: samples that were lost, filtered, or not addressed to the
    #: reader.
    missing: int = 0
    #: The first and the last number in the scanned part of the log.
    first_sn: int | None = None
    last_sn: int | None = None

    def count(self, frame: Frame) -> None:
        """Add a frame of this writer, behind the others."""
        run = frame.run
        between = run.last_sn - run.first_sn + 1 - run.count
        if self.last_sn is not None:
            between += max(0, run.first_sn - self.last_sn - 1)
        self.missing += between
        self.first_sn = run.first_sn if self.first_sn is None else self.first_sn
        self.last_sn = run.last_sn
        self.highest_sn = max(self.highest_sn, run.last_sn)
        self.rows += run.count
        self.nbytes += frame.length


class Inventory:
    """Counts the frames of a log, which are added in the order of their positions.

    ``known`` are writers with their highest sequence numbers, whose samples may all be trimmed.
    """

    def __init__(self, view: LogView, known: Iterable[tuple[Guid, int]] = ()) -> None:
        """Raises LogError if there is no log."""
        self._view = view
        self._at = 0
        self.segments: list[HeldSegment] = []
        self.writers: dict[Guid, HeldWriter] = {}
        #: Frames of writers beyond those that are counted one by one.
        self.overflow = 0
        for writer, sn in known:
            self.writers[writer] = HeldWriter(writer, sn)
        self._look()

    @classmethod
    def of_log(cls, directory: Path) -> Inventory:
        """The inventory of a log on this host, which also knows the writers whose samples are trimmed."""
        try:
            known = read_checkpoint(directory, read_metadata(directory).seed).writers
        except LogLostError:
            known = ()  # the frames may be valid all the same
        return cls(LogView(directory), known)

    def count(self, frame: Frame) -> None:
        if not self.segments or self.segments[-1].end <= frame.position:
            self._look()  # the segment was begun meanwhile
        segments = self.segments
        while self._at < len(segments) and segments[self._at].end <= frame.position:
            self._at += 1
        if self._at < len(segments):
            self._count_segment(segments[self._at], frame)
        writer = self.writers.get(frame.run.writer)
        if writer is None:
            if len(self.writers) >= WRITERS_MAX:
                self.overflow += 1
                return
            writer = self.writers[frame.run.writer] = HeldWriter(frame.run.writer, 0)
        writer.count(frame)

    def _count_segment(self, segment: HeldSegment, frame: Frame) -> None:
        segment.frames += 1
        segment.rows += frame.run.count
        segment.last_reception = frame.reception
        if segment.first_reception is None:
            segment.first_reception = frame.reception

    def _look(self) -> None:
        """Add the segments behind the known ones."""
        end = self.segments[-1].end if self.segments else 0
        for file in self._view.segments:
            if file.base >= end:
                self.segments.append(HeldSegment(file.base, file.end))
