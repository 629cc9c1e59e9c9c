"""The files of a stream log's directory.

::

    metadata.json             the log's sizes and what its creator gave; written last: with it, there is a log
    lock                      flock'ed by the one appender; holds its process id
    writers                   checkpoints, and the log's end: see checkpoint.py
    <20 digits>.spare         a trimmed segment that will become a new one: see spare_segments.py
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
import time
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ..errors import LogError, LogFormatError, LogFullError, LogLostError, UsageError, reason
from ..limits import LOG_POSITION_MAX
from ..value_classes import value
from ..wire.samples import U8
from .frame import ALIGNMENT, write_rest
from .permissions import LOCK, create_file
from .small_file import UNFINISHED, replace_text

JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"

PAGE: Final = mmap.PAGESIZE
SUFFIX: Final = ".segment"
METADATA: Final = "metadata.json"
_SEGMENTS_MIN: Final = 4
_FORMAT: Final = "spark-rtps stream log"
#: Version 1 had no checksums.
VERSION: Final = 2

#: Linux 5.14: fault many pages in with one call, 4 times cheaper than one by one while storing to them.
_MADV_POPULATE_WRITE: Final = 23
_POPULATE_BYTES: Final = 512 << 10
_LOCK_TRIES: Final = 20
_LOCK_PAUSE_SECONDS: Final = 0.005
#: Errors of resources that may be available a moment later: they are not errors of the file.
SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
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
    """The existing segments, by base; one that is removed meanwhile is left out.

    So is an empty one. A truncated file counts up to its last whole 32 bytes. If two overlap, the later one counts if
    it begins with a valid frame, and cuts the other short.
    """
    found = []
    try:
        with os.scandir(directory) as listed:
            entries = [entry for entry in listed if entry.name.endswith(SUFFIX)]
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refusal(error, f"look into {directory}", path=directory) from error
    for entry in entries:
        stem = entry.name.removesuffix(SUFFIX)
        if not stem.isdecimal() or int(stem) > LOG_POSITION_MAX:
            continue
        try:
            size = entry.stat().st_size // ALIGNMENT * ALIGNMENT
        except FileNotFoundError:
            continue
        if size:
            found.append(SegmentFile(int(stem), size))
    kept: list[SegmentFile] = []
    for file in sorted(found):
        if kept and file.base < kept[-1].end:
            if not _begins(directory, file.base):
                continue
            kept[-1] = SegmentFile(kept[-1].base, file.base - kept[-1].base)
        kept.append(file)
    return kept


def _begins(directory: Path, base: int) -> bool:
    """Whether a file's first frame has the file's position."""
    try:
        with open(segment_path(directory, base), "rb") as file:
            return file.read(ALIGNMENT)[8:16] == base.to_bytes(8, "little")
    except FileNotFoundError:
        return False


def page_ceil(size: int) -> int:
    return -(-size // PAGE) * PAGE


def fitting_segment_bytes(max_bytes: int, segment_bytes: int) -> int:
    """``segment_bytes``, cut down so that several fit ``max_bytes``, in whole pages."""
    if max_bytes < _SEGMENTS_MIN * PAGE or segment_bytes < PAGE:
        raise UsageError(
            f"a stream log of {max_bytes} bytes with segments of {segment_bytes} is too small: use at least "
            f"{_SEGMENTS_MIN * PAGE} and {PAGE}"
        )
    return page_ceil(min(segment_bytes, max_bytes // _SEGMENTS_MIN // PAGE * PAGE))


def refusal(error: OSError, what: str, *, path: Path) -> LogError:
    """The error to raise when the system refuses to do ``what`` with ``path``."""
    kind = LogFullError if error.errno in _FULL else LogError
    return kind(f"cannot {what}: {reason(error)}", path=path)


def is_scarce(error: LogError) -> bool:
    """Whether the system refused a resource that may be available a moment later."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in SCARCE


def lost(what: str, *, path: Path) -> LogLostError:
    """The error to raise when the log at ``path`` cannot be resumed."""
    return LogLostError(f"{what}: the log cannot be resumed", path=path)


def allocate(fd: int, directory: Path, size: int) -> None:
    """Allocate ``size`` bytes for the file, so that storing to its mmap cannot SIGBUS."""
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


@value
class StreamLogMetadata:
    """The sizes with which a stream log was created, and its creator's metadata.

    All checksums of the log start from ``seed``, which is drawn for each log.
    """

    max_bytes: int
    segment_bytes: int
    seed: int
    given: dict[str, JSON]


def write_metadata(directory: Path, metadata: StreamLogMetadata, *, durable: bool = False) -> None:
    """``durable``: after a power failure the old or the new file is there, complete, which samples on the disk need."""
    content: dict[str, JSON] = {
        "format": _FORMAT,
        "version": VERSION,
        "max_bytes": metadata.max_bytes,
        "segment_bytes": metadata.segment_bytes,
        "seed": metadata.seed,
        "metadata": metadata.given,
    }
    content["checksum"] = _metadata_checksum(content)
    replace_text(directory / METADATA, json.dumps(content, indent=1), durable=durable)


def read_metadata(directory: Path) -> StreamLogMetadata:
    """Raises LogError if there is no log, LogLostError for a damaged file, LogFormatError for another version's.

    The result is shared between calls with the same text: do not change it.
    """
    path = directory / METADATA
    try:
        text = path.read_bytes()
    except FileNotFoundError as error:
        if directory.is_dir() and list_segments(directory):
            raise lost(f"{path} is missing", path=path) from error
        raise LogError(f"there is no stream log in {directory}", path=directory) from error
    except OSError as error:
        raise refusal(error, f"read {path}", path=path) from error
    return _parse_metadata(directory, text)


@lru_cache(maxsize=16)
def _parse_metadata(directory: Path, text: bytes) -> StreamLogMetadata:
    """Cached: the text seldom changes, and is read for each micro-batch and for each request of a range."""
    path = directory / METADATA
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise lost(f"{path} is damaged ({error})", path=path) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise lost(f"{path} is not a stream log's", path=path)
    checksum, version = content.pop("checksum", None), content.get("version")
    if checksum is None and version != VERSION:
        raise LogFormatError(
            f"the stream log in {directory} has version {version!r} of its format, but only version {VERSION} is "
            "supported: the log cannot be resumed",
            path=directory,
            version=version,
        )
    if checksum != _metadata_checksum(content):
        raise lost(f"{path} is damaged", path=path)
    match content:
        case {
            "version": 2,
            "max_bytes": int(max_bytes),
            "segment_bytes": int(segment_bytes),
            "seed": int(seed),
            "metadata": dict(given),
        }:
            return StreamLogMetadata(max_bytes, segment_bytes, seed, given)
    raise LogFormatError(
        f"{path} has version {version!r}: the log cannot be resumed", path=path, version=version
    )


def _metadata_checksum(content: dict[str, JSON]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def lock(directory: Path) -> int:
    """Become the directory's one appender: until the file descriptor is closed, or the process dies."""
    fd = create_file(directory / LOCK, os.O_RDWR)
    try:
        _lock_patiently(fd)
        os.pwrite(fd, b"%-20d" % os.getpid(), 0)
    except BlockingIOError as error:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise LogError(
            f"process {holder or '?'} appends to the log in {directory}: stop it first",
            path=directory,
            process=int(holder) if holder.isdecimal() else None,
        ) from error
    except BaseException:
        os.close(fd)
        raise
    return fd


def _lock_patiently(fd: int) -> None:
    """Retry: a process that checks whether a log has an appender holds its lock for a moment. Raises
    BlockingIOError."""
    for _ in range(_LOCK_TRIES - 1):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            return
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def extend_segment(directory: Path, base: int, size: int) -> None:
    fd = os.open(segment_path(directory, base), os.O_RDWR)
    try:
        allocate(fd, directory, size)
    finally:
        os.close(fd)


class Segment:
    """A segment mapped for appending."""

    __slots__ = ("_mmap", "_populated", "base", "data", "end", "file", "holds_old", "lengths", "size")

    def __init__(self, base: int, fd: int, *, holds_old: bool = False) -> None:
        """``holds_old``: behind the appended frames there may be frames of an earlier segment, not zeros."""
        self.base = base
        self.holds_old = holds_old
        status = os.fstat(fd)
        self.size = status.st_size // ALIGNMENT * ALIGNMENT  # a truncated file may end anywhere
        #: Identifies the file, independent of its name.
        self.file = (status.st_dev, status.st_ino)
        self.end = base + self.size
        self._mmap = mmap.mmap(fd, self.size)
        self._populated = 0
        # Both keep the mapping alive: it is freed with its last view.
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
    def reuse(cls, directory: Path, base: int, spare: Path, mapped: Segment | None = None) -> Segment:
        """A segment in the file of a trimmed one, which may still be mapped: its pages are then in memory. Raises
        OSError."""
        fd = os.open(spare, os.O_RDWR)
        try:
            segment = cls(base, fd, holds_old=True)
            if mapped is not None and mapped.file == segment.file and mapped.size == segment.size:
                segment = mapped
                segment.base, segment.end, segment.holds_old = base, base + segment.size, True
            segment.end_before(0)
            os.replace(spare, segment_path(directory, base))
        finally:
            os.close(fd)
        return segment

    @classmethod
    def open_file(cls, directory: Path, base: int) -> Segment:
        fd = os.open(segment_path(directory, base), os.O_RDWR)
        try:
            return cls(base, fd)
        finally:
            os.close(fd)

    def sync(self) -> None:
        """Write the appended frames to the disk. Raises OSError."""
        self._mmap.flush()

    def populate(self, stop: int) -> None:
        """Fault in the pages up to ``stop``, and some more."""
        start = self._populated
        if stop <= start:
            return
        self._populated = min(self.size, max(page_ceil(stop), start + _POPULATE_BYTES))
        try:
            self._mmap.madvise(_MADV_POPULATE_WRITE, start, self._populated - start)
        except OSError:
            self._populated = self.size  # an older kernel: pages are faulted in one by one

    def end_before(self, at: int) -> None:
        """Ensure that no frame begins at ``data[at:]``, whatever the bytes were before."""
        if self.holds_old and at < self.size:
            self.lengths[at >> 2] = 0

    def fill(self, start: int, stop: int, kind: int, rows_before: int, seed: int) -> None:
        """Fill [start, stop) with a PAD or a HOLE."""
        at, length = start - self.base, stop - start
        if length:
            self.populate(at + ALIGNMENT)
            write_rest(
                self.data, self.lengths, at, kind, length, position=start, rows_before=rows_before, seed=seed
            )

    def clear(self, position: int) -> None:
        """Zero the rest of the segment, from ``position`` on; pages that hold zeros already are only read."""
        self._populated = (position - self.base) // PAGE * PAGE
        step = 1 << 20
        for at in range(position - self.base, self.size, step):
            part = self.data[at : at + step]
            if part.any():
                part[:] = 0
