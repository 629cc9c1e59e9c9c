"""Distinct observations in one mapped file: for each its count, the first and last time, and two sums.

The error log and the loss report are such files (as Aeron's). The file is made at the first observation::

     0  magic     8s
     8  size      i64   of the file
    16  overflow  i64   observations that found no room
    64  entries, one behind the other, each aligned to 8:
         0  length        u32   header included; 0: there is no entry yet. Stored last.
         8  observations  i64
        16  first, last   2 i64  nanoseconds since 1970
        32  amounts       2 i64  sums over the observations
        48  content             what was observed; never changes

All numbers are in the machine's byte order. One process writes. A number is read and written by one aligned load or
store, and an entry exists once its length is stored, so that other processes can read at any time, also after the
writer was killed in the middle of a store.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ..errors import LogError
from ..structure import INFINITE
from ..value_classes import value
from .mapped_file import create_mapped, map_file
from .segment import SCARCE

_HEADER_BYTES: Final = 64
_OVERFLOW: Final = 16 >> 3
_ALIGNMENT: Final = 8
_ENTRY: Final = struct.Struct("=IIqqqqq")
# Words from the start of an entry.
_OBSERVATIONS, _FIRST, _LAST, _AMOUNTS = 1, 2, 3, 4


@value
class Observed:
    """One entry; times in ns since 1970."""

    content: bytes
    observations: int
    first: int
    last: int
    amounts: tuple[int, int]


class Observations:
    """The file of the one process that writes it. Not thread-safe."""

    def __init__(self, path: Path, mapping: mmap.mmap, key: Callable[[bytes], bytes]) -> None:
        """For :meth:`open`."""
        self.path = path
        self._key = key
        self._mapping = mapping
        self._size = len(mapping)
        words = memoryview(mapping)
        self._lengths, self._numbers = words.cast("I"), words.cast("q")
        self._end = _HEADER_BYTES
        #: The offset of each entry, by the key of its content.
        self._known: dict[bytes, int] = {}
        for at, content in _entries(mapping):
            self._known.setdefault(key(content), at)
            self._end = at + _align(_ENTRY.size + len(content))
        # An entry whose writer was killed has no length, but may have content, which must not follow the next entry.
        mapping[self._end :] = bytes(self._size - self._end)

    @classmethod
    def open(
        cls, path: Path, *, magic: bytes, size: int, key: Callable[[bytes], bytes] = bytes
    ) -> Observations:
        """Resume the file, or make one of ``size`` bytes; a file of another kind is replaced.

        ``key``: contents with the same key are one observation, with the content of the first. Raises LogError if there
        is no file and none can be made, and if one cannot be opened for want of descriptors or memory: its content has
        to stay.
        """
        try:
            mapping = _map(path, magic, writable=True)
        except LogError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in SCARCE:
                raise
            mapping = _create(path, magic, size)
        return cls(path, mapping, key)

    def observe(self, content: bytes, *, now: int, amounts: tuple[int, int] = (0, 0)) -> None:
        """Count an observation, or add a new one; those that do not fit are counted as overflow."""
        key = self._key(content)
        at = self._known.get(key)
        if at is None:
            at = self._new(content, now)
            if at is None:
                self._add(_OVERFLOW, 1)
                return
            self._known[key] = at
        first = at >> 3
        for i, amount in enumerate(amounts, first + _AMOUNTS):
            self._add(i, amount)
        self._numbers[first + _LAST] = now
        self._add(first + _OBSERVATIONS, 1)

    def _new(self, content: bytes, now: int) -> int | None:
        """Add an entry without observations, and return its offset; None: it does not fit."""
        at, length = self._end, _ENTRY.size + len(content)
        if at + _align(length) > self._size:
            return None
        self._end = at + _align(length)
        _ENTRY.pack_into(self._mapping, at, 0, 0, 0, now, now, 0, 0)
        self._mapping[at + _ENTRY.size : at + length] = content
        self._lengths[at >> 2] = length
        return at

    def _add(self, i: int, amount: int) -> None:
        self._numbers[i] = min(self._numbers[i] + amount, INFINITE)


def read_observations(path: Path, *, magic: bytes) -> tuple[list[Observed], int]:
    """All entries, oldest first, and the overflow; LogError if there is no such file."""
    mapping = _map(path, magic, writable=False)
    with memoryview(mapping) as words, words.cast("q") as numbers:
        found = []
        for at, content in _entries(mapping):
            n, first, last, *amounts = numbers[(at >> 3) + _OBSERVATIONS : (at >> 3) + _AMOUNTS + 2]
            if n > 0:
                found.append(Observed(content, n, first, last, (amounts[0], amounts[1])))
        return found, numbers[_OVERFLOW]


def _entries(mapping: mmap.mmap) -> Iterator[tuple[int, bytes]]:
    """The offsets and contents of the entries, up to the first offset without an entry."""
    at, size = _HEADER_BYTES, len(mapping)
    with memoryview(mapping) as words, words.cast("I") as lengths:
        while at + _ENTRY.size <= size:
            length = lengths[at >> 2]
            if length < _ENTRY.size or at + _align(length) > size:
                return
            yield at, mapping[at + _ENTRY.size : at + length]
            at += _align(length)


def _align(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def _map(path: Path, magic: bytes, *, writable: bool) -> mmap.mmap:
    otherwise = f"{path} is damaged, or something else"
    mapping = map_file(path, _HEADER_BYTES, what=str(path), otherwise=otherwise, writable=writable)
    size = len(mapping)
    if size % _ALIGNMENT or mapping[:8] != magic or int.from_bytes(mapping[8:16], "little") != size:
        raise LogError(otherwise, path=path)
    return mapping


def _create(path: Path, magic: bytes, size: int) -> mmap.mmap:
    def fill(mapping: mmap.mmap) -> mmap.mmap:
        mapping[:16] = magic + size.to_bytes(8, "little")
        return mapping

    return create_mapped(path, size, fill, what=str(path))
