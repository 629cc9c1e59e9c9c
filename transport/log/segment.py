"""The files of a stream log's directory.

::

    metadata.json             the log's sizes and what its creator gave; written last: with it, there is a log
    lock                      flock'ed by the one appender; holds its process id
    writers                   the checkpoint, see Checkpoint
    <20 digits>.segment       frames from that base position on; as long as the file is

A segment gets its name only after all its bytes are allocated, so that a process which sees it may map all of it and
store to all of it. Files that end in ``.new`` were being made when their process died.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ..errors import LogError, LogFullError, LogLostError
from ..limits import WRITERS_MAX
from ..structure import Guid
from ..wire.samples import U8
from .frame import ALIGNMENT, write_pad
from .permissions import LOCK, create_file
from .small_file import UNFINISHED, replace_text

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"

PAGE: Final = mmap.PAGESIZE
SUFFIX: Final = ".segment"
METADATA: Final = "metadata.json"
WRITERS: Final = "writers"
_FORMAT: Final = "spark-rtps stream log"
_VERSION: Final = 1

#: Linux 5.14: fault many pages in with one call, 4 times cheaper than one by one while storing to them.
_MADV_POPULATE_WRITE: Final = 23
_POPULATE_BYTES: Final = 512 << 10
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class SegmentFile(NamedTuple):
    base: int
    size: int

    @property
    def end(self) -> int:
        return self.base + self.size


def segment_path(directory: Path, base: int) -> Path:
    return directory / f"{base:020d}{SUFFIX}"


def list_segments(directory: Path) -> list[SegmentFile]:
    """The segments that are there right now, by base; one that vanishes meanwhile is left out."""
    found = []
    for name in os.listdir(directory):
        stem = name.removesuffix(SUFFIX)
        if stem == name or not stem.isdecimal():
            continue
        try:
            found.append(SegmentFile(int(stem), os.stat(directory / name).st_size))
        except FileNotFoundError:
            continue
    return sorted(found)


def page_ceil(size: int) -> int:
    return -(-size // PAGE) * PAGE


def refusal(error: OSError, what: str, *, path: Path) -> LogError:
    """The error to raise when the system refuses to do ``what`` with ``path``."""
    kind = LogFullError if error.errno in _FULL else LogError
    return kind(f"cannot {what}: {error.strerror}", path=path)


def lost(what: str, *, path: Path) -> LogLostError:
    """The error to raise when the log at ``path`` cannot be resumed."""
    return LogLostError(f"{what}: the log cannot be resumed", path=path)


def allocate(fd: int, directory: Path, size: int) -> None:
    """Give the file ``size`` bytes that are really there, so that storing to its mmap cannot SIGBUS."""
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        disk = os.statvfs(directory)
        free = disk.f_bavail * disk.f_frsize
        refused = refusal(
            error, f"allocate {size} bytes in {directory} ({free} bytes are free)", path=directory
        )
        if isinstance(refused, LogFullError):
            refused.needed, refused.free = size, free
        raise refused from error


@dataclass(frozen=True, slots=True)
class StreamLogMetadata:
    """The sizes a stream log was created with, and what its creator gave."""

    max_bytes: int
    segment_bytes: int
    given: dict[str, JSON]


def write_metadata(directory: Path, metadata: StreamLogMetadata) -> None:
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "max_bytes": metadata.max_bytes,
        "segment_bytes": metadata.segment_bytes,
        "metadata": metadata.given,
    }
    replace_text(directory / METADATA, json.dumps(content, indent=1))


def read_metadata(directory: Path) -> StreamLogMetadata:
    path = directory / METADATA
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise LogError(f"there is no stream log in {directory}", path=directory) from error
    except OSError as error:
        raise refusal(error, f"read {path}", path=path) from error
    except ValueError as error:
        raise lost(f"{path} is damaged ({error})", path=path) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise lost(f"{path} is not a stream log's", path=path)
    if content.get("version") != _VERSION:
        raise lost(f"{path} is not of version {_VERSION}, the one known here", path=path)
    match content:
        case {"max_bytes": int(max_bytes), "segment_bytes": int(segment_bytes), "metadata": dict(given)}:
            if segment_bytes > 0 and segment_bytes % ALIGNMENT == 0:
                return StreamLogMetadata(max_bytes, segment_bytes, given)
    raise lost(f"{path} is damaged", path=path)


def lock(directory: Path) -> int:
    """Become the directory's one appender: until the file descriptor is closed, or the process dies."""
    fd = create_file(directory / LOCK, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.pwrite(fd, b"%-20d" % os.getpid(), 0)
    except BlockingIOError as error:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise LogError(
            f"process {holder or '?'} is appending to the log in {directory}: stop it first",
            path=directory,
            process=int(holder) if holder.isdecimal() else None,
        ) from error
    except BaseException:
        os.close(fd)
        raise
    return fd


def extend_segment(directory: Path, base: int, size: int) -> None:
    fd = os.open(segment_path(directory, base), os.O_RDWR)
    try:
        allocate(fd, directory, size)
    finally:
        os.close(fd)


class Segment:
    """A segment mapped for appending."""

    __slots__ = ("_mmap", "_populated", "base", "data", "end", "lengths", "size")

    def __init__(self, base: int, fd: int) -> None:
        self.base = base
        self.size = os.fstat(fd).st_size
        self.end = base + self.size
        self._mmap = mmap.mmap(fd, self.size)
        self._populated = 0
        # Both keep the mapping alive: it goes with the last view of it.
        self.data: U8 = np.frombuffer(self._mmap, np.uint8)
        self.lengths = self.data.view("<i4")

    @classmethod
    def create(cls, directory: Path, base: int, size: int) -> Segment:
        """A new segment of zeros; raises LogFullError, and leaves nothing behind, when the disk is full."""
        path = segment_path(directory, base)
        unfinished = path.with_suffix(UNFINISHED)
        try:
            fd = create_file(unfinished, os.O_RDWR | os.O_TRUNC)
        except OSError as error:
            raise refusal(error, f"create a segment in {directory}", path=directory) from error
        try:
            allocate(fd, directory, size)
            segment = cls(base, fd)
            os.replace(unfinished, path)
        except BaseException as error:
            os.unlink(unfinished)
            if isinstance(error, OSError):
                raise refusal(error, f"create a segment in {directory}", path=directory) from error
            raise
        finally:
            os.close(fd)
        return segment

    @classmethod
    def open(cls, directory: Path, base: int) -> Segment:
        fd = os.open(segment_path(directory, base), os.O_RDWR)
        try:
            return cls(base, fd)
        finally:
            os.close(fd)

    def populate(self, stop: int) -> None:
        """Fault in what comes up to ``stop``, and some more."""
        start = self._populated
        if stop <= start:
            return
        self._populated = min(self.size, max(page_ceil(stop), start + _POPULATE_BYTES))
        try:
            self._mmap.madvise(_MADV_POPULATE_WRITE, start, self._populated - start)
        except OSError:
            self._populated = self.size  # an older kernel: pages come one by one

    def pad(self, position: int, rows_before: int) -> None:
        """Fill the rest of the segment, from ``position`` on, with a PAD."""
        at, length = position - self.base, self.end - position
        if length:
            self.populate(at + ALIGNMENT)
            write_pad(self.data, self.lengths, at, length, position=position, rows_before=rows_before)

    def clear(self, position: int) -> None:
        """Zero the rest of the segment, from ``position`` on; pages that hold zeros already are only read."""
        self._populated = (position - self.base) // PAGE * PAGE
        step = 1 << 20
        for at in range(position - self.base, self.size, step):
            part = self.data[at : at + step]
            if part.any():
                part[:] = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What cannot be read back from the frames once they are trimmed, as of ``position``.

    The file has two slots of fixed, allocated size that are written in turn: a full disk cannot keep us from
    trimming, and a slot cut by ``kill -9`` fails its checksum, which leaves the one before.
    """

    serial: int
    base: int
    position: int
    rows: int
    writers: tuple[tuple[Guid, int], ...]  # highest sequence number of each, the longest silent first


# magic, checksum of all that follows in the slot, serial, base, position, rows, number of writers
_SLOT_HEADER: Final = struct.Struct("<4sIqqqqI")
_SLOT_MAGIC: Final = b"wSN1"
_CHECKED: Final = 8
_WRITER: Final = struct.Struct("<16sq")
_SLOT_BYTES: Final = page_ceil(_SLOT_HEADER.size + WRITERS_MAX * _WRITER.size)


def create_checkpoint_file(directory: Path) -> None:
    fd = create_file(directory / WRITERS, os.O_RDWR | os.O_TRUNC)
    try:
        allocate(fd, directory, 2 * _SLOT_BYTES)
    finally:
        os.close(fd)


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    entries = b"".join(_WRITER.pack(guid.to_bytes(), sn) for guid, sn in checkpoint.writers)
    fields = (
        checkpoint.serial,
        checkpoint.base,
        checkpoint.position,
        checkpoint.rows,
        len(checkpoint.writers),
    )
    unsigned = _SLOT_HEADER.pack(_SLOT_MAGIC, 0, *fields) + entries
    slot = _SLOT_HEADER.pack(_SLOT_MAGIC, zlib.crc32(unsigned[_CHECKED:]), *fields) + entries
    fd = os.open(directory / WRITERS, os.O_RDWR)
    try:
        os.pwrite(fd, slot, checkpoint.serial % 2 * _SLOT_BYTES)
    finally:
        os.close(fd)


def read_checkpoint(directory: Path) -> Checkpoint:
    """The newest whole checkpoint."""
    path = directory / WRITERS
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise refusal(error, f"read {path}", path=path) from error
    slots = [_read_slot(raw[at : at + _SLOT_BYTES]) for at in (0, _SLOT_BYTES)]
    whole = [slot for slot in slots if slot is not None]
    if not whole:
        raise lost(f"{path} is damaged", path=path)
    return max(whole, key=lambda slot: slot.serial)


def _read_slot(raw: bytes) -> Checkpoint | None:
    if len(raw) < _SLOT_HEADER.size:
        return None
    magic, checksum, serial, base, position, rows, count = _SLOT_HEADER.unpack_from(raw)
    stop = _SLOT_HEADER.size + count * _WRITER.size
    if magic != _SLOT_MAGIC or stop > len(raw) or zlib.crc32(raw[_CHECKED:stop]) != checksum:
        return None
    entries: Iterable[tuple[bytes, int]] = _WRITER.iter_unpack(raw[_SLOT_HEADER.size : stop])
    writers = tuple((Guid.from_bytes(guid), sn) for guid, sn in entries)
    return Checkpoint(serial, base, position, rows, writers)
