"""Trimmed segments of a stream log, kept for reuse.

The kernel zeroes the pages of a new file before anything can be stored there, which takes a busy receiver longer than
all its work on the samples. The pages of a trimmed segment exist already, as do its page tables if it is still mapped.
Its old frames are invalid at the file's next position: each header contains its position, under its checksum.

A spare is a file ``<20 digits>.spare``. Those that a killed appender left are removed when the log is opened.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from .segment import Segment, SegmentFile, segment_path

SPARE: Final = ".spare"
#: Spares take space on the disk without containing samples.
_SPARES_MAX: Final = 4


class SpareSegments:
    """The spares of the log in ``directory``, each of ``size`` bytes."""

    def __init__(self, directory: Path, size: int) -> None:
        self._directory = directory
        self._size = size
        self._paths: list[Path] = []
        #: The mappings of full segments and of spares, by their base; the oldest first.
        self._mapped: dict[int, Segment] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of all spares."""
        return len(self._paths) * self._size

    def written(self, segment: Segment) -> None:
        """A segment was written to its end: it stays mapped, since it may soon be a spare."""
        if segment.size == self._size:
            self._mapped[segment.base] = segment
            if len(self._mapped) > _SPARES_MAX:
                del self._mapped[next(iter(self._mapped))]

    def keep(self, file: SegmentFile) -> bool:
        """Make a trimmed segment a spare; False: it cannot be one, or there are enough. Raises OSError."""
        if file.size != self._size or len(self._paths) >= _SPARES_MAX:
            self._mapped.pop(file.base, None)
            return False
        path = segment_path(self._directory, file.base)
        spare = path.with_suffix(SPARE)
        try:
            os.replace(path, spare)
        except FileNotFoundError:
            return True  # the file is removed already, as a trimmed segment's may be
        self._paths.append(spare)
        return True

    def become(self, base: int, size: int) -> Segment | None:
        """A spare as the segment at ``base``; None: there is none of that size. Raises OSError."""
        while self._paths and size == self._size:
            path = self._paths[-1]  # trimmed last: its pages are most likely in memory
            mapped = self._mapped.pop(int(path.stem), None)
            segment = None
            try:
                if path.stat().st_size == size:
                    segment = Segment.reuse(self._directory, base, path, mapped)
                else:
                    path.unlink()
            except FileNotFoundError:
                pass
            self._paths.pop()  # until here it counts as a spare, whatever the system refuses
            if segment is not None:
                return segment
        return None

    def shrink(self, nbytes: int) -> None:
        """Remove spares until they have no more than ``nbytes``. Raises OSError."""
        while self._paths and self.nbytes > max(0, nbytes):
            self._paths[0].unlink(missing_ok=True)
            self._mapped.pop(int(self._paths[0].stem), None)
            del self._paths[0]
