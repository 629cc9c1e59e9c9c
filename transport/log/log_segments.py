"""The segments of a stream log that is read while another process trims it, and their frames."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from ..errors import LogLostError
from .checkpoint import Base
from .frame_scan import FrameGap, FrameHeader, SegmentFrames
from .log_files import LogFiles
from .segment import SegmentFile, StreamLogMetadata, refusal, segment_path

#: Segments kept mapped for the next call. Few, since a mapped segment keeps its disk space after it is trimmed.
MAPPED_MAX: Final = 2


class LogSegments:
    """The segments of the log with these ``files``."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._directory: Path = files.directory
        self._mapped: dict[int, SegmentFrames] = {}
        self._listed: list[SegmentFile] = []

    def headers(self, position: int, stop: int) -> Iterator[FrameHeader]:
        """The run frames from ``position`` on that start before ``stop``."""
        for item in self.scan_frames(position, stop):
            if isinstance(item, FrameHeader) and item.is_run:
                yield item

    def scan_frames(self, position: int, stop: int) -> Iterator[FrameHeader | FrameGap]:
        """All frames and gaps from ``position`` on that start before ``stop``."""
        while position < stop:
            segment = self.map(position)
            if segment is None:
                start = self.start_behind(position)
                if start is not None:
                    position = start
                    continue
                behind = (file.base for file in self._files.segments() if file.base > position)
                after = min((stop, *behind))
                yield FrameGap(position, after)
                position = after
                continue
            for item in segment.scan_frames(position, stop):
                is_hole = isinstance(item, FrameHeader) and item.is_hole
                if isinstance(item, FrameGap):
                    start = self.start_behind(item.position)
                    if start is not None:  # the file became another segment meanwhile
                        position = start
                        break
                yield FrameGap(item.position, item.stop, is_hole) if is_hole else item
                position = item.stop

    @cached_property
    def settings(self) -> StreamLogMetadata:
        return self._files.metadata()  # which never changes

    @property
    def seed(self) -> int:
        return self.settings.seed

    def map(self, position: int) -> SegmentFrames | None:
        """The segment that holds ``position``, mapped; None: it is trimmed, lost or not begun."""
        for mapped in self._mapped.values():
            if mapped.base <= position < mapped.end:
                return mapped
        seed = self.seed
        # A segment with another one behind it does not change until it is trimmed.
        file = holder(self._listed[:-1], position) or holder(self.list_now(), position)
        if file is None:
            return None
        try:
            mapped = self._files.map(file, seed)
        except FileNotFoundError:
            return None
        except OSError as error:
            path = segment_path(self._directory, file.base)
            raise refusal(error, f"read {path}", path=path) from error
        self._mapped.pop(file.base, None)
        while len(self._mapped) >= MAPPED_MAX:
            del self._mapped[next(iter(self._mapped))]
        self._mapped[file.base] = mapped
        return mapped

    def list_now(self) -> list[SegmentFile]:
        """The current segments."""
        self._listed = self._files.segments()
        return self._listed

    def check_trimmed(self, position: int) -> Base | None:
        """Raise LogLostError if ``position`` was trimmed with samples behind it; returns the log's base, or None if
        that is damaged."""
        try:
            base = self._files.base(self.seed)
        except LogLostError:
            self._files.metadata()  # raises an error of its own where there is no log at all
            return None
        if position < base.position:
            raise self.lost(position, "no longer")
        return base

    def start_behind(self, position: int) -> int | None:
        """The start of the first segment, if only the PAD of a trimmed one lies in between; None: there is no frame at
        ``position`` because of damage. Raises LogLostError if it was trimmed with samples behind it."""
        base = self.check_trimmed(position)
        return base.start if base is not None and base.position <= position < base.start else None

    def lost(self, position: int, when: str) -> LogLostError:
        """The error to raise for a position that is ``when``, "no longer" or "not yet", in the log."""
        self._files.metadata()
        files = self._files.segments()
        held = f"which holds segments [{files[0].base}, {files[-1].end})" if files else "which holds nothing"
        return LogLostError(
            f"position {position} is {when} in the log in {self._directory}, {held}",
            path=self._directory,
            position=position,
        )


def base_of(file: SegmentFile) -> int:
    return file.base


def holder(files: list[SegmentFile], position: int) -> SegmentFile | None:
    """The segment of these that holds ``position``."""
    at = bisect_right(files, position, key=base_of) - 1
    return files[at] if at >= 0 and position < files[at].end else None
