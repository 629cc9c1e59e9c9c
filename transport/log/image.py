"""What a process reads of a publication log that is written on its host (Aeron's Image).

Frames are copied out, and looked at only when the copy is known to be whole: nobody who writes the log waits for a
reader that sleeps too long. Whoever cleans says up to where before it does, so that word is looked at after the copy.

Invariant: the position is where a frame begins, or will.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ..errors import LogError
from ..wire.samples import U8
from .frame import align
from .publication_log import PublicationLog
from .term_frames import DATA, HEADER_BYTES

#: Bodies in an array: (start, stop, source address), as of drained datagrams.
Span = tuple[int, int, str]

_BUFFER_BYTES: Final = 1 << 20
_WORD: Final = 4
#: Of the second word of a frame's header, which it ends in.
_TYPE_SHIFT: Final = 16


class Frames(NamedTuple):
    """The bodies of frames that follow each other, copied, and the position behind them."""

    data: U8
    spans: list[Span]
    end: int

    @property
    def nbytes(self) -> int:
        return sum(stop - start for start, stop, _ in self.spans)


class Image:
    """A log and how far it is read; several images of a process share its ``buffer``."""

    def __init__(self, log: PublicationLog, position: int, buffer: CopyBuffer) -> None:
        self.log = log
        self.position = position
        self._buffer = buffer
        self._lengths = log.lengths

    @classmethod
    def joined(cls, log: PublicationLog, buffer: CopyBuffer) -> Image:
        """At the sender's position: what is behind it was sent, to those that were there."""
        return cls(log, log.metadata.positions()["snd_pos"], buffer)

    @property
    def has_more(self) -> bool:
        """Whether a frame is there to be read."""
        length: int = self._lengths[self.position % self.log.data.size // _WORD]
        return length > 0

    @property
    def is_lapped(self) -> bool:
        """Whether what is at the position may have been cleaned."""
        return self.log.cleaning_position > self.position

    def rejoin(self) -> None:
        """Go on at the newest position."""
        self.position = self.log.position

    def rewind(self) -> None:
        """Go back to the beginning of the oldest term that is whole, which is where a frame begins."""
        cleaned = self.log.cleaning_position
        self.position = cleaned + -cleaned % self.log.term_length

    def poll(self, max_bytes: int) -> Frames | None:
        """The next frames, of ``max_bytes`` in all or the first one alone; None if there is none, or it is lapped.

        They are not passed: that is done by setting ``position``. The copy lasts until the next call for any image of
        the buffer.
        """
        log, lengths, start = self.log, self._lengths, self.position
        first = start % log.data.size
        room = log.term_length - start % log.term_length
        bounds: list[tuple[int, int]] = []
        at = 0
        while at < room:
            length = lengths[first + at >> 2]
            if length <= 0:
                break
            after = at + align(length)
            if length < HEADER_BYTES or after > room:
                if self.is_lapped:
                    return None
                raise LogError(f"the publication log {log.path} is damaged at position {start + at}")
            if lengths[first + at + _WORD >> 2] >> _TYPE_SHIFT == DATA and length > HEADER_BYTES:
                if bounds and after > max_bytes:
                    break
                bounds.append((at + HEADER_BYTES, at + length))
            at = after
        if not at:
            return None
        data = self._buffer.copy(log.data[first : first + at]) if bounds else log.data[:0]
        if self.is_lapped:
            return None
        return Frames(data, [(start, stop, "") for start, stop in bounds], start + at)


class CopyBuffer:
    """Memory for copies; it grows to the longest."""

    def __init__(self) -> None:
        self._data: U8 = np.empty(0, np.uint8)

    def copy(self, data: U8) -> U8:
        if data.size > self._data.size:
            self._data = np.empty(max(data.size, _BUFFER_BYTES), np.uint8)
        copied: U8 = self._data[: data.size]
        copied[:] = data
        return copied
