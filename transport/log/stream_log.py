"""The stream log: the samples that a subscription has received, appended to mapped segments (the appender's side).

A **position** is a count of bytes since the log's birth and never falls. The log holds ``[base, position)``:
``base`` is where its last trimmed sample ended, and its oldest segment starts there or behind the PAD of a trimmed one,
since trimming takes whole segments only.

Invariants

- Segments lie end to end from there on; only the last may have space behind its last frame. A new segment is made when
a frame needs it. A frame longer than ``segment_bytes`` gets a segment of its own.
- ``max_bytes`` bounds the bytes allocated on disk for segments, their unused ends included. It is at least four
segments (``segment_bytes`` is reduced), so that the next frame fits once everything is trimmed.
- A trimmed segment becomes a spare, and a spare the next segment (spare_segments.py). Spares count in ``max_bytes``.
- The checkpoint in the file ``writers`` is written before segments are trimmed and whenever one is begun; the tail
beside it after each append. recovery.py describes how they are used.
- Where a recovery found lost samples, segments may be missing, or hold a HOLE instead of frames. A position is never
reused for other samples: after a power failure, whose losses are unknown, the log continues in a new segment far behind
its last frame.

Only metadata that is replaced is synced: the log has to survive a killed process, and the page cache does that. The
checksums find what a power loss leaves torn.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from ..errors import LogError, LogFullError, UsageError
from ..structure import Guid
from ..wire.samples import U8, Run
from .appended_segments import AppendedSegments
from .checkpoint import (
    Base,
    Checkpoint,
    TailStore,
    create_checkpoint_file,
    read_checkpoint,
    remember,
    write_checkpoint,
)
from .damage import Damage
from .frame import HEADER_BYTES, HOLE, LENGTH_MAX, PAD, Cursor, align, frame_length, write_run
from .host_clocks import Clocks
from .log_view import LogView
from .permissions import PRIVATE, make_folder, protect
from .recovery import Recovered, left_segments, recover
from .reserved_frames import ReservedFrames
from .segment import (
    JSON,
    METADATA,
    Segment,
    SegmentFile,
    StreamLogMetadata,
    fitting_segment_bytes,
    list_segments,
    lock,
    lost,
    page_ceil,
    read_metadata,
    refusal,
    write_metadata,
)

SEGMENT_BYTES: Final = 64 << 20
_SHARED_BYTES: Final = 256 << 10
#: No power failure has lost as much: a minute's writes of a fast disk, and more than most memories hold.
_LEAP_BYTES: Final = 64 << 30
#: free_bytes assumes frames no longer than this part of a segment.
_FRAME_PART: Final = 8


class StreamLog:
    """The appender of one log; there is at most one at a time. Not thread-safe."""

    def __init__(
        self,
        directory: Path,
        locked: int,
        metadata: StreamLogMetadata,
        checkpoint: Checkpoint,
        stored: TailStore,
    ) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self.directory = directory
        self.metadata: dict[str, JSON] = metadata.given
        self.max_bytes = metadata.max_bytes
        self.segment_bytes = metadata.segment_bytes
        #: The losses found when the log was opened, as far as recovery looks; empty in an undamaged log.
        self.damage: list[Damage] = []
        self._seed = metadata.seed
        self._lock: int | None = locked
        self._stored = stored
        self._serial = checkpoint.serial
        self._base = Base(checkpoint.base, checkpoint.start)
        self._position = checkpoint.position
        self._rows = checkpoint.rows
        self._writers = dict(checkpoint.writers)
        #: The writers that have left, in that order.
        self._gone: dict[Guid, None] = {}
        self._segments = AppendedSegments(directory, metadata)
        self._is_torn = False  # an exception interrupted the store of a frame or of its records
        self._tail: Segment | None = None  # the last segment while it has space
        #: Frames in which samples are put together that are appended next.
        self.places = ReservedFrames()

    # --- life ------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        max_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        metadata: dict[str, JSON],
        mode: int = PRIVATE,
    ) -> StreamLog:
        """A new, empty log in ``directory``, which is made if it is missing and must not contain a log yet.

        ``mode`` is the directory's; its files follow it (:mod:`.permissions`).
        """
        seed = int.from_bytes(os.urandom(4), "little")
        settings = StreamLogMetadata(
            max_bytes, fitting_segment_bytes(max_bytes, segment_bytes), seed, metadata
        )
        checkpoint = Checkpoint(1, 0, 0, 0, 0, 0, ())
        try:
            make_folder(directory, mode)
            locked = lock(directory)
            try:
                if cls.exists(directory):
                    raise LogError(
                        f"{directory} holds a stream log already: open it, or delete the directory",
                        path=directory,
                    )
                if list_segments(directory):
                    raise lost(f"{directory / METADATA} is missing", path=directory)
                create_checkpoint_file(directory)
                write_checkpoint(directory, checkpoint, seed)
                log = cls(directory, locked, settings, checkpoint, TailStore.open_store(directory))
                log._stored.store(0, 0)
                log._stored.begin_life()
                write_metadata(directory, settings)
            except BaseException:
                os.close(locked)
                raise
        except OSError as error:
            raise refusal(error, f"create a stream log in {directory}", path=directory) from error
        return log

    @staticmethod
    def exists(directory: Path) -> bool:
        """Whether there is a log in ``directory`` to :meth:`open`.

        Raises OSError if that is unknown: Path.exists, from Python 3.14 on, would return False.
        """
        try:
            os.stat(directory / METADATA)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    @classmethod
    def open(
        cls, directory: Path, *, max_bytes: int | None = None, mode: int = PRIVATE, reached: int = 0
    ) -> StreamLog:
        """Resume a log, also after ``kill -9``; ``max_bytes`` replaces its limit, ``mode`` the mode of its directory.

        ``reached``: the position up to which the log was read. A log that ends before, as after a power failure,
        continues there, and the bytes in between are lost: no position is used twice.

        Raises LogLostError for a log that cannot be resumed, LogAccessError for another user's, LogError for one that
        cannot be opened.
        """
        settings = stored = read_metadata(directory)
        if max_bytes is not None:
            fitting = fitting_segment_bytes(max_bytes, settings.segment_bytes)
            settings = StreamLogMetadata(max_bytes, fitting, settings.seed, settings.given)
        try:
            protect(directory, mode)
            locked = lock(directory)
            try:
                read_metadata(directory)  # the file is missing if the log was removed meanwhile
                if settings.max_bytes != stored.max_bytes:  # readers use it to plan
                    with contextlib.suppress(OSError):  # a full disk: a later start writes it
                        write_metadata(directory, replace(stored, max_bytes=settings.max_bytes), durable=True)
                checkpoint = read_checkpoint(directory, settings.seed)
                log = cls(directory, locked, settings, checkpoint, TailStore.open_store(directory))
                log._recover(checkpoint, align(reached))
                log._stored.begin_life()
            except BaseException:
                os.close(locked)
                raise
        except OSError as error:
            raise refusal(error, f"open the stream log in {directory}", path=directory) from error
        return log

    def close(self) -> None:
        """Release the directory, so that the log can be opened again. May be called twice."""
        if self._lock is None:
            return
        try:
            if not self._is_torn:  # otherwise the frames show the end, as after kill -9
                self._stored.end_life(self._position)
                self._checkpoint(base=self._base)
            self._segments.remove_spares()
        finally:
            os.close(self._lock)
            self._lock = None
            self._tail = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- contents ----------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Bytes appended since birth: the position of the next frame."""
        return self._position

    @property
    def base(self) -> int:
        """The lowest position held: all samples before it are trimmed, and none behind it."""
        return self._base.position

    @property
    def rows(self) -> int:
        """Samples appended since birth."""
        return self._rows

    @property
    def writers(self) -> dict[Guid, int]:
        """The sequence number appended last of each writer, trimmed ones included; do not change it.

        It is the highest, except if a writer began anew under its GUID.
        """
        return self._writers

    @property
    def free_bytes(self) -> int:
        """Bytes that certainly fit under max_bytes, in frames of at most an eighth of a segment.

        A frame is ``align(frame_length(run))`` long. The free space on the disk is not taken into account.
        """
        lost = (
            self.segment_bytes // _FRAME_PART
        )  # at most: at the end of a segment that the next frame did not fit
        tail = self._tail.end - self._position if self._tail else 0
        segments = max(0, self.max_bytes - self._segments.nbytes) // self.segment_bytes
        return max(0, tail - lost) + segments * (self.segment_bytes - lost)

    # --- change ----------------------------------------------------------------------------------

    def amend(self, **given: JSON) -> None:
        """Add to the creator's metadata, or replace parts of it. Raises LogError."""
        amended = {**self.metadata, **given}
        try:
            settings = StreamLogMetadata(self.max_bytes, self.segment_bytes, self._seed, amended)
            write_metadata(self.directory, settings, durable=self._rows > 0)
        except OSError as error:
            what = f"write the metadata of the stream log in {self.directory}"
            raise refusal(error, what, path=self.directory) from error
        self.metadata = amended

    def writer_gone(self, writer: Guid) -> None:
        """Record that a writer has left. If there are too many, it is forgotten before silent ones that are present."""
        if writer in self._writers:
            self._gone.pop(writer, None)
            self._gone[writer] = None

    def writer_back(self, writer: Guid) -> None:
        """Record that a writer is present, perhaps again."""
        self._gone.pop(writer, None)

    @property
    def shared_bytes_max(self) -> int:
        """The largest sum of bytes of runs that share a frame: ranges of the log are divided at frames, and free_bytes
        relies on it."""
        return min(_SHARED_BYTES, self.segment_bytes // _FRAME_PART - HEADER_BYTES)

    def place(self, nbytes: int, count: int = 1) -> U8 | None:
        """The bytes of a reserved frame for an indexed run of ``count`` samples that is appended next, or behind the
        frames reserved before; None: its position is not known. See :mod:`.reserved_frames` for the obligations."""
        return None if self._tail is None else self.places.reserve(self._tail, self._position, nbytes, count)

    def append(self, run: Run, *, reception: int, more: Sequence[Run] = ()) -> bool:
        """Append and commit a whole run, or nothing of it: False = no space until more is trimmed.

        ``more``: runs that continue it, which go into the same frame (`frame.goes_on`).

        LogFullError: the disk is full (append the run again when there is space), or the run is so long that max_bytes
        can never hold it.
        """
        if self._lock is None:
            raise UsageError(f"the stream log in {self.directory} is closed")
        if self._is_torn:
            raise UsageError(f"an append to the log in {self.directory} was interrupted: open the log again")
        length = frame_length(run)
        last_sn, count = run.last_sn, run.count
        if more:
            length += sum(each.nbytes for each in more)
            last_sn, count = more[-1].last_sn, count + sum(each.count for each in more)
        _check(run, length)
        in_place = bool(self.places)
        if in_place and (more or not self.places.append_run(self._position, run)):
            raise UsageError(f"the log in {self.directory} has reserved frames, and this run is in none")
        aligned = align(length)
        tail = self._tail
        if tail is None or self._position + aligned > tail.end:
            tail = self._begin_segment(aligned)
            if tail is None:
                return False
        position = self._position
        at = position - tail.base
        tail.populate(at + aligned)
        tail.end_before(at + aligned)
        write_run(
            tail.data,
            tail.lengths,
            at,
            run,
            length,
            position=position,
            reception=reception,
            rows_before=self._rows,
            seed=self._seed,
            more=more,
            in_place=in_place,
        )
        self._is_torn = True
        self._position = position + aligned
        self._rows += count
        remember(self._writers, run.writer, last_sn, self._gone)
        self._is_torn = False
        if tail.size > self.segment_bytes:
            self._seal(tail)
        else:
            self._stored.store(self._position, self._rows)
        return True

    def trim(self, position: int) -> None:
        """Trim the segments that end at or before ``position``. A reader of one finds out at the end (LogView.frames).

        Raises LogError if one cannot be deleted: the next call retries it.
        """
        if position > self._position:
            raise UsageError(
                f"cannot trim to {position}: the log in {self.directory} ends at {self._position}"
            )
        files = self._segments.files
        kept = next((segment for segment in files if segment.end > position), None)
        if not files or kept is files[0]:
            return
        self._keep_from(kept, position if kept is None else min(position, kept.base))

    def trim_all(self) -> None:
        """Trim all samples, those of the last segment too. Raises LogError as :meth:`trim`."""
        self._keep_from(None, self._position)

    def _keep_from(self, kept: SegmentFile | None, start: int) -> None:
        """Trim the segments before ``kept``, or all; the rest starts at ``start``."""
        base = self._segments.base_before(kept, start, self._position if kept is None else kept.base)
        self._checkpoint(base=base)
        self._base = base
        self._segments.remove_before(kept)
        if kept is None:
            self._tail = None

    def trim_oldest(self) -> bool:
        """Trim the oldest segment, unless it is the only one; False: it is. Raises LogError as :meth:`trim`."""
        files = self._segments.files
        if len(files) < 2:
            return False
        self.trim(files[0].end)
        return True

    # --- inside ----------------------------------------------------------------------------------

    def _begin_segment(self, aligned: int) -> Segment | None:
        """The next segment, its checkpoint written; None = no space under max_bytes."""
        size = max(self.segment_bytes, page_ceil(aligned))
        # When all is consumed, one segment with space may be left: the new one must fit beside it.
        if size > self.segment_bytes and size + self.segment_bytes > self.max_bytes:
            raise LogFullError(
                f"a run of {aligned} bytes never fits the log in {self.directory}, which is limited to "
                f"{self.max_bytes} bytes: it needs at least {size + self.segment_bytes}",
                path=self.directory,
                needed=size + self.segment_bytes,
                limit=self.max_bytes,
            )
        if self._segments.nbytes + size > self.max_bytes:
            return None
        old = self._tail
        segment = self._segments.create(old.end if old else self._position, size)
        if old is not None:
            self._seal(old)
        self._tail = segment
        self._segments.append(segment)
        self._checkpoint(base=self._base)
        return segment

    def _seal(self, segment: Segment) -> None:
        """End the segment with a PAD, so that it can be trimmed once all of it is consumed."""
        self._segments.end_samples(segment.base, self._position)
        segment.fill(self._position, segment.end, PAD, self._rows, self._seed)
        self._position = segment.end
        self._stored.store(
            self._position, self._rows
        )  # what comes next may be refused, and readers see the position
        self._tail = None
        self._segments.seal(segment)

    def _checkpoint(self, *, base: Base) -> None:
        files = self._segments.files
        end = files[-1].end if files else self._position
        writers = tuple((guid, self._writers[guid]) for guid in dict.fromkeys((*self._gone, *self._writers)))
        serial = self._serial + 1
        checkpoint = Checkpoint(serial, *base, self._position, max(end, self._position), self._rows, writers)
        try:
            write_checkpoint(self.directory, checkpoint, self._seed)
        except OSError as error:
            raise refusal(error, f"write the checkpoint in {self.directory}", path=self.directory) from error
        self._serial = (
            serial  # one that is cut off is written again: the other is the only whole one meanwhile
        )

    def _recover(self, checkpoint: Checkpoint, reached: int) -> None:
        """Find the tail from the frames, and mark lost positions in front of it (recovery.py)."""
        self._segments.hold(left_segments(self.directory, checkpoint, self.segment_bytes))
        files = self._segments.files
        life = self._stored.life()
        if life is not None and life.closed is not None:
            reached = max(reached, life.closed)
        found = recover(self.directory, files, checkpoint, self._writers, self._seed, reached=reached)
        self._position, self._rows = found.position, found.rows
        for number, file in enumerate(files):
            if file.end > found.tail and not self._resume(number, found):
                break
        if life is not None and life.closed is None and life.boot != Clocks.read_now().boot:
            self._leap()
        self._segments.hold(files)
        self._stored.store(self._position, self._rows)
        self._checkpoint(base=self._base)
        view = LogView(self.directory)
        for start, stop in found.damaged:
            for _ in view.frames(Cursor(start), Cursor(stop), self.damage.append):
                pass

    def _leap(self) -> None:
        """The power failed, and positions behind the last frame may have been read and planned: use none of them."""
        tail = self._tail
        if tail is not None and self._position > tail.base:
            self._seal(tail)
            tail.sync()
        elif tail is not None:
            self._segments.drop_from(len(self._segments.files) - 1)
            self._tail = None
        before, self._position = self._position, self._position + _LEAP_BYTES
        if not self._segments.files and self._base.start == before:
            self._base = Base(self._base.position, self._position)

    def _resume(self, number: int, found: Recovered) -> bool:
        """Mark lost positions in a segment; False: the log continues here, and nothing lies behind."""
        base, _ = file = self._segments.files[number]
        if base > found.position:  # the segment was made and not yet used
            self._segments.drop_from(number)
            return False
        segment = Segment.open_file(self.directory, base)
        start, stop = max(found.tail, base), min(found.position, file.end)
        if start < stop:
            segment.fill(start, stop, HOLE, found.rows, self._seed)
        if found.position >= file.end:
            return True
        self._segments.drop_from(number + 1)
        segment.clear(found.position)
        self._tail = segment
        if segment.size > self.segment_bytes and found.position > base:
            self._seal(segment)
        return False


def _check(run: Run, length: int) -> None:
    if run.count < 1 or length > LENGTH_MAX:
        raise UsageError(f"a run of {run.count} samples and {length} bytes cannot be appended")
    if run.stride:
        if run.data.nbytes < run.count * run.stride:
            raise UsageError(f"{run.count} samples of {run.stride} bytes are not in {run.data.nbytes}")
    elif run.index is None or len(run.index) != run.count:
        raise UsageError(f"a run without stride needs an index of {run.count} samples")
