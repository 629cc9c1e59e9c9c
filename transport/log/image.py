"""A process's view of a publication log that another process on its host writes (Aeron's Image).

Frames are copied out, and used only if the copy is known to be whole, since the log's writer does not wait for a reader
that sleeps too long. The writer stores the position up to which it is going to clean before it cleans, so the reader
loads that word after the copy.

Invariant: the position is the beginning of a frame, or of the next one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from ..errors import LogError
from ..protocol.receiving.message_receiver import Span
from ..protocol.writing.publication import FRAME_HEADER_BYTES
from ..wire.samples import U8
from .frame import align
from .publication_log import PublicationLog
from .term_frames import DATA

_BUFFER_BYTES: Final = 1 << 20
_WORD: Final = 4
#: The second word of a frame's header ends in the type.
_TYPE_SHIFT: Final = 16
#: Offset of the word with the length of each message, in a frame's header.
_SEGMENT_AT: Final = 28


class CopiedMessages(NamedTuple):
    """The copied messages of consecutive frames, each a span of ``data``, and the position behind the last frame."""

    data: U8
    spans: list[Span]
    end: int

    @property
    def nbytes(self) -> int:
        return sum(stop - start for start, stop, _ in self.spans)


class Image:
    """A log and its read position; several images of a process share one ``buffer``."""

    def __init__(self, log: PublicationLog, position: int, buffer: CopyBuffer, source: str = "") -> None:
        """``source``: the address that the frames' messages count as coming from
        (:func:`~..protocol.trust.source_of_log`)."""
        self.log = log
        self.position = position
        self._buffer = buffer
        self._source = source
        self._lengths = log.lengths

    @classmethod
    def joined(cls, log: PublicationLog, buffer: CopyBuffer, source: str = "") -> Image:
        """An image that begins with the next frame to be sent: earlier frames were sent to earlier readers."""
        return cls(log, log.metadata.positions()["snd_pos"], buffer, source)

    @property
    def has_more(self) -> bool:
        """Whether there is a frame to read."""
        length: int = self._lengths[self.position % self.log.data.size // _WORD]
        return length > 0 and self.position < self.log.position

    @property
    def is_lapped(self) -> bool:
        """Whether the frame at the position may have been cleaned."""
        return self.log.cleaning_position > self.position

    def rejoin(self) -> None:
        """Continue at the newest position."""
        self.position = self.log.position

    def rewind(self) -> None:
        """Go back to the beginning of the oldest whole term, where a frame begins."""
        cleaned = self.log.cleaning_position
        self.position = cleaned + -cleaned % self.log.term_length

    def poll(self, max_bytes: int) -> CopiedMessages | None:
        """Copy the next frames, at most ``max_bytes``, or only the first one; None: there is none, or it was lapped.

        A frame that holds several messages has a span for each of them.

        The position does not move: the caller sets it to ``end``. The copy is valid until the next call for any image
        that shares the buffer.
        """
        log, lengths, start = self.log, self._lengths, self.position
        first = start % log.data.size
        # If the tail has reached bytes that are not cleaned yet, old frames follow it.
        room = min(log.term_length - start % log.term_length, log.position - start)
        spans: list[Span] = []
        at = 0
        while at < room:
            length = lengths[first + at >> 2]
            if length <= 0:
                break
            after = at + align(length)
            if length < FRAME_HEADER_BYTES or after > room:
                if self.is_lapped:
                    return None
                raise LogError(
                    f"the publication log {log.path} is damaged at position {start + at}", path=log.path
                )
            if lengths[first + at + _WORD >> 2] >> _TYPE_SHIFT == DATA and length > FRAME_HEADER_BYTES:
                if spans and after > max_bytes:
                    break
                body, stop = at + FRAME_HEADER_BYTES, at + length
                segment = lengths[first + at + _SEGMENT_AT >> 2]
                if 0 < segment < stop - body:
                    cuts = range(body, stop, segment)
                    spans += [(cut, min(cut + segment, stop), self._source) for cut in cuts]
                else:
                    spans.append((body, stop, self._source))
            at = after
        if not at:
            return None
        data = self._buffer.copy(log.data[first : first + at]) if spans else log.data[:0]
        if self.is_lapped:
            return None
        return CopiedMessages(data, spans, start + at)


class CopyBuffer:
    """Memory for copies; it grows to the longest one."""

    def __init__(self) -> None:
        self._data: U8 = np.empty(0, np.uint8)

    def copy(self, data: U8) -> U8:
        if data.size > self._data.size:
            self._data = np.empty(max(data.size, _BUFFER_BYTES), np.uint8)
        copied: U8 = self._data[: data.size]
        copied[:] = data
        return copied
