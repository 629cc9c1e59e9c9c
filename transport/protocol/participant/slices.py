"""Slices: which part of a topic's writers belongs to one of several readers that share them."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Final

from ...errors import UsageError
from ...structure import Guid
from ...value_classes import value

#: The text of a slice: its index, a slash, and how many there are.
_TEXT: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


def slice_of(writer: Guid, count: int) -> int:
    """The index of the slice, of ``count``, to which a writer belongs.

    The first 8 octets of the SHA-256 of the GUID's 16 octets, in wire order, are a big-endian number; its remainder by
    ``count`` is the index. Users may rely on this rule, and it never changes: a writer that moved to another slice
    would be read twice, or by no reader."""
    return int.from_bytes(sha256(writer.to_bytes()).digest()[:8], "big") % count


@value
class Slice:
    """The writers of slice ``index``, counted from 0, of ``count`` slices."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise UsageError(f"slice {self}: the index must be from 0 to {self.count - 1}")

    @classmethod
    def parse(cls, text: str) -> Slice:
        """The slice of a text such as ``0/4``. Raises ValueError."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError("must be index/count, such as 0/4 for the first of four")
        index, count = int(found[1]), int(found[2])
        if index >= count:
            most = f"from 0 to {count - 1}" if count else "of at least 1"
            raise ValueError(f"must have an index {most}: with n receivers, the slices are 0/n to n-1/n")
        return cls(index, count)

    def has(self, writer: Guid) -> bool:
        return slice_of(writer, self.count) == self.index

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"
