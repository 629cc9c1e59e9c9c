"""The counters of a process in one mapped file, for every other process to read (as Aeron's cnc.dat).

::

     0  magic     8s
     8  capacity  i64   how many counters fit
    64  labels    64 bytes each: u32 length of the label (0 = free), then its UTF-8
        values    i64 each, aligned, in the machine's byte order

A value is read and written by one load or store. Only the process that created the file adds labels, from one
thread; it stores a label's length last. By agreement only one process writes each counter.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from ..errors import LogError, UsageError
from .mapped_file import create_mapped, map_file

#: The file of a receiver's counters, in the folder of its log.
COUNTERS_FILE: Final = "counters"
_MAGIC: Final = b"rtpscnt1"
_HEADER_BYTES: Final = 64
_LABEL_BYTES: Final = 64
_TEXT_MAX: Final = _LABEL_BYTES - 4
CAPACITY: Final = 1_024
#: Numbers from peers may add up to more: the counter then stays at this value.
_MOST: Final = (1 << 63) - 1


class Counter:
    """One 64-bit counter with its label."""

    __slots__ = ("_at", "_values", "label")

    def __init__(self, label: str, values: memoryview, at: int) -> None:
        self.label = label
        self._values = values
        self._at = at

    def get(self) -> int:
        value: int = self._values[self._at]
        return value

    def set(self, value: int) -> None:
        self._values[self._at] = value if value <= _MOST else _MOST

    def add(self, increment: int = 1) -> int:
        """Add to the counter by a load and a store: only for the one process that writes it."""
        value: int = min(self._values[self._at] + increment, _MOST)
        self._values[self._at] = value
        return value


class Counters:
    """A counters file, created by one process and opened by others."""

    def __init__(self, path: Path, mapping: mmap.mmap, *, is_creator: bool) -> None:
        """Use :meth:`create` or :meth:`open`."""
        self.path = path
        self._is_creator = is_creator
        self._mapping = mapping
        words = memoryview(mapping)
        self._lengths = words.cast("I")
        self._capacity = int.from_bytes(mapping[8:16], "little")
        self._values = words[_HEADER_BYTES + self._capacity * _LABEL_BYTES :].cast("q")
        self._counters: dict[str, Counter] = {}

    @classmethod
    def create(cls, path: Path, *, capacity: int = CAPACITY) -> Counters:
        """A new file of zeros. An older one of that name is replaced; a process that has mapped it keeps it."""
        if capacity < 1:
            raise UsageError(f"a counters file cannot have {capacity} counters")
        size = _HEADER_BYTES + capacity * (_LABEL_BYTES + 8)

        def fill(mapping: mmap.mmap) -> mmap.mmap:
            mapping[:16] = _MAGIC + capacity.to_bytes(8, "little")
            return mapping

        mapping = create_mapped(path, size, fill, what=f"the counters file {path}")
        return cls(path, mapping, is_creator=True)

    @classmethod
    def open(cls, path: Path, *, writable: bool = True) -> Counters:
        """Open the file that another process created; LogError if there is none, or none of this kind.

        A process that only reads opens it without ``writable``: the file may be another user's.
        """
        otherwise = f"{path} is not a counters file"
        what = f"the counters file {path}"
        mapping = map_file(path, _HEADER_BYTES, what=what, otherwise=otherwise, writable=writable)
        capacity = int.from_bytes(mapping[8:16], "little")
        whole = len(mapping) == _HEADER_BYTES + capacity * (_LABEL_BYTES + 8)
        if mapping[:8] != _MAGIC or not whole:
            raise LogError(otherwise, path=path)
        return cls(path, mapping, is_creator=False)

    def counter(self, label: str) -> Counter:
        """The counter of that label. A missing one is added by the creator; LogError in other processes."""
        found = self._counters.get(label)
        if found is None:
            self._read_labels()
            found = self._counters.get(label) or self._add(label)
        return found

    def snapshot(self) -> dict[str, int]:
        """All counters, in the order they were added."""
        self._read_labels()
        return dict(zip(self._counters, self._values[: len(self._counters)].tolist(), strict=True))

    def _read_labels(self) -> None:
        for number in range(len(self._counters), self._capacity):
            at = _HEADER_BYTES + number * _LABEL_BYTES
            length = self._lengths[at >> 2]
            if not length:
                return
            label = self._mapping[at + 4 : at + 4 + length].decode()
            self._counters[label] = Counter(label, self._values, number)

    def _add(self, label: str) -> Counter:
        if not self._is_creator:
            raise LogError(
                f"no counter {label!r} in {self.path}; there are {', '.join(self._counters) or 'none'}",
                path=self.path,
            )
        text = label.encode()
        if not 0 < len(text) <= _TEXT_MAX:
            raise UsageError(f"counter label {label!r} is not of 1 to {_TEXT_MAX} bytes")
        number = len(self._counters)
        if number == self._capacity:
            raise LogError(f"{self.path} is full: {number} counters", path=self.path)
        at = _HEADER_BYTES + number * _LABEL_BYTES
        self._mapping[at + 4 : at + 4 + len(text)] = text
        self._lengths[at >> 2] = len(text)
        self._counters[label] = counter = Counter(label, self._values, number)
        return counter
