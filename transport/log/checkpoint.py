"""The file ``writers`` of a stream log: checkpoints, and how far the log was appended to.

::

    2 slots     checkpoints, written in turn: a full disk cannot keep us from trimming, and a slot cut by ``kill -9``
                fails its checksum, which leaves the one before
    1 page      Tail: position, rows, and both again with all bits inverted; i64, native. At 512, in a sector
                of its own, Life: in which start of the host's kernel the log was opened, and where it was closed

The slots' and the page's bytes are allocated. The page is mapped and stored to after each append. Frames are counted
from their headers, but cannot show that later frames are lost: this page can. If a number and its inverse disagree,
because a process was killed between the two stores, the smaller one is right.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from ..limits import WRITERS_MAX
from ..structure import Guid
from ..value_classes import value
from .frame import ALIGNMENT
from .host_clocks import Clocks
from .permissions import create_file
from .segment import PAGE, allocate, lost, page_ceil, refusal

WRITERS: Final = "writers"


@value
class Checkpoint:
    """The state as of ``position`` that cannot be read from the frames once they are trimmed.

    The log's segments reach from ``start`` to ``end``. No sample lies between ``base`` and ``start``.
    """

    serial: int
    base: int
    start: int
    position: int
    end: int
    rows: int
    writers: tuple[
        tuple[Guid, int], ...
    ]  # highest sequence number of each, in the order in which they are forgotten


# magic, checksum of all that follows in the slot, serial, base, start, position, end, rows, number of writers
_SLOT_HEADER: Final = struct.Struct("<4sIqqqqqqI")
_SLOT_MAGIC: Final = b"wSN3"
#: Older logs have no ``start``: it is ``base``.
_OLD_SLOT_HEADER: Final = struct.Struct("<4sIqqqqqI")
_OLD_SLOT_MAGIC: Final = b"wSN2"
_CHECKED: Final = 8
_WRITER: Final = struct.Struct("<16sq")
_SLOT_BYTES: Final = page_ceil(_SLOT_HEADER.size + WRITERS_MAX * _WRITER.size)
#: Bytes of a slot that are read at first: most logs have their entries in them.
_FIRST_BYTES: Final = 1024
_TAIL_AT: Final = 2 * _SLOT_BYTES
_TAIL: Final = struct.Struct("=qqqq")
_FILE_BYTES: Final = _TAIL_AT + PAGE
#: Magic, checksum of all that follows, boot id, position.
_LIFE: Final = struct.Struct("<4sI40sq")
_LIFE_AT: Final = 512
_LIFE_MAGIC: Final = b"wLF1"
_NOT_CLOSED: Final = -1


def create_checkpoint_file(directory: Path) -> None:
    fd = create_file(directory / WRITERS, os.O_RDWR | os.O_TRUNC)
    try:
        allocate(fd, directory, _FILE_BYTES)
    finally:
        os.close(fd)


def write_checkpoint(directory: Path, checkpoint: Checkpoint, seed: int) -> None:
    entries = b"".join(_WRITER.pack(guid.to_bytes(), sn) for guid, sn in checkpoint.writers)
    fields = (
        checkpoint.serial,
        checkpoint.base,
        checkpoint.start,
        checkpoint.position,
        checkpoint.end,
        checkpoint.rows,
        len(checkpoint.writers),
    )
    unsigned = _SLOT_HEADER.pack(_SLOT_MAGIC, 0, *fields) + entries
    slot = _SLOT_HEADER.pack(_SLOT_MAGIC, zlib.crc32(unsigned[_CHECKED:], seed), *fields) + entries
    rest, at = memoryview(slot), checkpoint.serial % 2 * _SLOT_BYTES
    fd = os.open(directory / WRITERS, os.O_RDWR)
    try:
        while rest:  # the system may write a part, and refuse the rest
            written = os.pwrite(fd, rest, at)
            rest, at = rest[written:], at + written
    finally:
        os.close(fd)


def read_checkpoint(directory: Path, seed: int) -> Checkpoint:
    """The newest whole checkpoint; raises LogLostError if none is."""
    slot = _newest_slot(directory, seed)
    entries: Iterable[tuple[bytes, int]] = _WRITER.iter_unpack(slot.entries)
    writers = tuple((Guid.from_bytes(guid), sn) for guid, sn in entries)
    return Checkpoint(slot.serial, slot.base, slot.start, slot.position, slot.end, slot.rows, writers)


class Base(NamedTuple):
    """The begin of a log: samples before ``position`` are trimmed. Its segments lie from ``start`` on."""

    position: int
    start: int


def read_base(directory: Path, seed: int) -> Base:
    """The base in the newest whole checkpoint; raises LogLostError if there is none."""
    slot = _newest_slot(directory, seed)
    return Base(slot.base, slot.start)


class _Slot(NamedTuple):
    """A checkpoint as it is written."""

    serial: int
    base: int
    start: int
    position: int
    end: int
    rows: int
    entries: bytes


def _newest_slot(directory: Path, seed: int) -> _Slot:
    path = directory / WRITERS
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            slots = [_read_slot(fd, at, seed) for at in (0, _SLOT_BYTES)]
            if None in slots:  # one may be written just now, and the other one since it was read
                slots = [_read_slot(fd, at, seed) for at in (0, _SLOT_BYTES)]
        finally:
            os.close(fd)
    except FileNotFoundError as error:
        raise lost(f"{path} is missing", path=path) from error
    except OSError as error:
        raise refusal(error, f"read {path}", path=path) from error
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        raise lost(f"{path} is damaged", path=path)
    return max(whole, key=lambda slot: slot.serial)


def _read_slot(fd: int, at: int, seed: int) -> _Slot | None:
    """The slot at ``at``, read only as far as it is written; None: it is not whole."""
    raw = os.pread(fd, _FIRST_BYTES, at)
    if len(raw) < _SLOT_HEADER.size:
        return None
    is_old = raw[: len(_OLD_SLOT_MAGIC)] == _OLD_SLOT_MAGIC
    header = _OLD_SLOT_HEADER if is_old else _SLOT_HEADER
    magic, checksum, serial, base, *starts, position, end, rows, count = header.unpack_from(raw)
    stop = header.size + count * _WRITER.size
    if not (is_old or magic == _SLOT_MAGIC) or stop > _SLOT_BYTES:
        return None
    raw = raw[:stop] if stop <= len(raw) else os.pread(fd, stop, at)
    if len(raw) < stop or zlib.crc32(raw[_CHECKED:], seed) != checksum:
        return None
    start = starts[0] if starts else base
    return _Slot(serial, base, start, position, end, rows, raw[header.size :])


def remember(writers: dict[Guid, int], writer: Guid, sn: int, gone: dict[Guid, None] | None = None) -> None:
    """Note the newest sequence number of a writer, which is lower than the last one if the writer began anew under its
    GUID. The dict's order is that of last use, and its size is bounded: writers in ``gone`` are forgotten first, then
    those that were silent for longest."""
    writers.pop(writer, None)
    writers[writer] = sn
    if gone:
        gone.pop(writer, None)
    if len(writers) > WRITERS_MAX:
        first = next(iter(gone or writers))
        del writers[first]
        if gone:
            del gone[first]


def has_room(writers: Mapping[Guid, int], writer: Guid) -> bool:
    """Whether this writer fits without forgetting another one."""
    return writer in writers or len(writers) < WRITERS_MAX


class Tail(NamedTuple):
    """How far a log was appended to: at least to ``position``, with ``rows`` samples, and at most to ``most``."""

    position: int
    rows: int
    most: int


def read_tail(directory: Path) -> Tail | None:
    """The tail that the appender stored last; None: it is damaged, or missing. Raises LogError if the system
    refuses."""
    path = directory / WRITERS
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            raw = os.pread(fd, _TAIL.size, _TAIL_AT)
        finally:
            os.close(fd)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # such as a lack of descriptors, which is not damage
        raise refusal(error, f"read {path}", path=path) from error
    if len(raw) < _TAIL.size:
        return None
    position, rows, position_inverted, rows_inverted = _TAIL.unpack(raw)
    least, most = sorted((position, ~position_inverted))
    rows = min(rows, ~rows_inverted)
    return None if least < 0 or rows < 0 or least % ALIGNMENT else Tail(least, rows, most)


class Life(NamedTuple):
    """The time from the opening of a log, in the host's start ``boot``, to its close at the position ``closed``; None:
    it was not closed, as far as is known."""

    boot: str
    closed: int | None


class TailStore:
    """Stores the tail, and the current life of the log."""

    __slots__ = ("_page", "_words")

    def __init__(self, page: mmap.mmap) -> None:
        """Use :meth:`open`."""
        self._page = page
        self._words = np.frombuffer(page, np.int64)

    @classmethod
    def open_store(cls, directory: Path) -> TailStore:
        fd = os.open(directory / WRITERS, os.O_RDWR)
        try:
            if os.fstat(fd).st_size < _FILE_BYTES:  # the file was truncated
                allocate(fd, directory, _FILE_BYTES)
            return cls(mmap.mmap(fd, PAGE, offset=_TAIL_AT))
        finally:
            os.close(fd)

    def store(self, position: int, rows: int) -> None:
        words = self._words
        words[0] = position
        words[1] = rows
        words[2] = ~position
        words[3] = ~rows

    def life(self) -> Life | None:
        """The newest life; None: it is missing, as in logs of earlier versions, or damaged."""
        magic, checksum, boot, closed = _LIFE.unpack_from(self._page, _LIFE_AT)
        body = self._page[_LIFE_AT + _CHECKED : _LIFE_AT + _LIFE.size]
        if magic != _LIFE_MAGIC or zlib.crc32(body) != checksum:
            return None
        return Life(boot.rstrip(b"\0").decode("ascii", "replace"), None if closed == _NOT_CLOSED else closed)

    def begin_life(self) -> None:
        """Call this before anything is appended: the disk has the life and the tail when it returns. Raises OSError."""
        self._write_life(Clocks.read_now().boot, _NOT_CLOSED)
        self._page.flush()

    def end_life(self, position: int) -> None:
        """Record the close of the log. If the disk does not get this record, the log counts as not closed."""
        self._write_life(Clocks.read_now().boot, position)

    def _write_life(self, boot: str, closed: int) -> None:
        unsigned = _LIFE.pack(_LIFE_MAGIC, 0, boot.encode(), closed)
        checksum = zlib.crc32(unsigned[_CHECKED:])
        _LIFE.pack_into(self._page, _LIFE_AT, _LIFE_MAGIC, checksum, boot.encode(), closed)
