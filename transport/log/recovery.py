"""Recovers a stream log that an earlier appender left: its frames, and perhaps damage.

The segment of the last checkpoint and all segments behind it are verified completely: a few at most. Earlier segments
are verified by their readers. The frames decide, not the checkpoint: the number of samples and the sequence numbers are
the highest that either of them has. The log ends behind its last frame, unless the appender is known to have come
further, by the checkpoint, by the tail in the same file (checkpoint.py) or by the log's readers, or a committed frame
there is damaged. Then samples are lost, and the log continues where they must have ended: a position is never reused
for other samples.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import NamedTuple

from ..structure import Guid
from .checkpoint import Checkpoint, has_room, read_tail, remember
from .frame_scan import FrameHeader, SegmentFrames
from .segment import SUFFIX, SegmentFile, extend_segment, list_segments, page_ceil
from .small_file import UNFINISHED
from .spare_segments import SPARE


class Recovered(NamedTuple):
    """Frames end at ``tail``; the next one goes to ``position``; the bytes in between are lost."""

    tail: int
    position: int
    rows: int
    #: Ranges with damage.
    damaged: list[tuple[int, int]]


def left_segments(directory: Path, checkpoint: Checkpoint, segment_bytes: int) -> list[SegmentFile]:
    """The segments that an earlier appender left, the last one in its original length; its other files are removed.
    Raises OSError or LogError."""
    for suffix in (UNFINISHED, SPARE):
        for left in directory.glob(f"*{suffix}"):
            if left.stem.isdecimal():  # other files belong to other processes, which may be writing them
                left.unlink(missing_ok=True)
    # Other segments are trimmed, and were not deleted before the kill; or they are empty.
    segments = [file for file in list_segments(directory) if file.end > checkpoint.start]
    bases = {file.base for file in segments}
    for path in directory.glob(f"*{SUFFIX}"):
        if path.stem.isdecimal() and int(path.stem) not in bases:
            path.unlink()
    if segments:
        last = segments[-1]
        size = max(page_ceil(last.size), segment_bytes)
        if size != last.size:  # the file was truncated
            extend_segment(directory, last.base, size)
            segments[-1] = SegmentFile(last.base, size)
    return segments


def recover(
    directory: Path,
    files: Iterable[SegmentFile],
    checkpoint: Checkpoint,
    writers: dict[Guid, int],
    seed: int,
    *,
    reached: int,
) -> Recovered:
    """Verify the end of a log, which was read up to ``reached``; ``writers``, as of the checkpoint, is updated from the
    frames."""
    known, stored = read_tail(directory), frozenset(writers)
    least = max(checkpoint.position, checkpoint.base if known is None else known.position)
    rows = max(checkpoint.rows, 0 if known is None else known.rows)
    tail = verified = checkpoint.position
    end = checkpoint.start
    torn, is_damaged = 0, False
    damaged = []
    for file in files:
        if end < min(file.base, checkpoint.position):
            damaged.append((end, min(file.base, checkpoint.position)))
        end = file.end
        if end <= checkpoint.position:
            continue
        frames = SegmentFrames.map(directory, file, seed)
        if frames.base <= checkpoint.position:
            tail = verified = frames.base
        for item in frames.scan_frames(frames.base, frames.end):
            if isinstance(item, FrameHeader):
                # Each frame counts, also one that lies right behind damage.
                is_sound = _count(item, checkpoint.position, stored, writers)
                is_damaged |= not is_sound or item.position != tail
                rows = max(rows, item.rows_before + item.count)
                tail = item.stop
        if frames.is_committed(max(tail, torn)):
            torn = frames.end
    if end < checkpoint.position:
        damaged.append((end, checkpoint.position))
    if known is None and end < checkpoint.end:
        least = checkpoint.end
    least = max(least, reached)
    position = least if tail < least else max(tail, torn)
    if is_damaged or tail < position:
        damaged.append((verified, position))
    return Recovered(tail, position, rows, damaged)


def _count(header: FrameHeader, checkpoint: int, stored: Container[Guid], writers: dict[Guid, int]) -> bool:
    """Add the writer of a frame; False: the frame is damaged. Samples that a writer can send again do not count as
    received.

    For frames before the checkpoint, the checkpoint has the writers ``stored``, with their newest numbers, which need
    not be the highest. It has forgotten other writers; they may fit again.
    """
    if not header.is_run:
        return True
    if not header.segment.is_whole(header):
        return False
    _, run = header.segment.read_frame(header)
    if header.position >= checkpoint or (run.writer not in stored and has_room(writers, run.writer)):
        remember(writers, run.writer, run.last_sn)
    return True
