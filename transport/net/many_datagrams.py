"""Many small datagrams in one system call, with their senders (recvmmsg).

Python's own calls return one datagram at a time, and its sender costs more than half as much again. In one call for
many datagrams, senders cost next to nothing, and each datagram costs less than by `recv_into`.

Datagrams lie in slots of one size, chosen by the datagrams before; a longer datagram continues in a buffer of its own,
and is joined behind the slots.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from typing import Any, Final, Self

import numpy as np

from ..limits import UDP_PAYLOAD_MAX
from ..protocol.receiving.message_receiver import Span
from ..wire.samples import U8

#: Datagrams of one call.
_COUNT: Final = 64
#: After a burst of this many datagrams, none longer than a slot, the next burst is likely to be alike, until a longer
#: one comes.
_MANY: Final = 32
_SMALL: Final = 1_024
#: Bytes that a burst may need beyond its end, for datagrams that are longer than a slot.
MANY_ROOM: Final = _COUNT * (UDP_PAYLOAD_MAX + 7 & ~7)
_SOURCES_KNOWN_MAX: Final = 1_024
#: struct mmsghdr and struct iovec of Linux on machines of 64 bits.
_MESSAGE: Final = np.dtype(
    {
        "names": ["name", "name_length", "pieces", "piece_count", "length"],
        "formats": ["u8", "u4", "u8", "u8", "u4"],
        "offsets": [0, 8, 16, 24, 56],
        "itemsize": 64,
    }
)
_PIECE: Final = np.dtype([("base", "u8"), ("length", "u8")])


class ManyDatagrams:
    """Receives into a buffer that has MANY_ROOM bytes behind the end of a burst."""

    def __init__(self, receive: Any) -> None:
        """For :meth:`where_possible`, which checks that the system supports the call."""
        self._receive = receive
        self._slot = 0
        self._messages = np.zeros(_COUNT, _MESSAGE)
        pieces = np.zeros((_COUNT, 2), _PIECE)
        self._names = np.zeros((_COUNT, 4), "<u4")
        self._rests: U8 = np.empty((_COUNT, UDP_PAYLOAD_MAX), np.uint8)
        each = np.arange(_COUNT, dtype=np.uint64)
        self._messages["name"] = self._names.ctypes.data + each * 16
        self._messages["pieces"] = pieces.ctypes.data + each * 32
        self._messages["piece_count"] = 2
        pieces["base"][:, 1] = self._rests.ctypes.data + each * UDP_PAYLOAD_MAX
        pieces["length"][:, 1] = UDP_PAYLOAD_MAX
        self._each = each
        self._slots = pieces["base"][:, 0]
        self._slot_lengths = pieces["length"][:, 0]
        self._name_lengths = self._messages["name_length"]
        self._lengths = self._messages["length"]
        self._sources: dict[int, str] = {}

    @classmethod
    def where_possible(cls) -> Self | None:
        """None if the system has no such call, or has other structures than these."""
        if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
            return None
        try:
            receive = ctypes.CDLL(None, use_errno=True).recvmmsg
        except (OSError, AttributeError):
            return None
        receive.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
        return cls(receive)

    @property
    def expects_many(self) -> bool:
        """Whether there was a burst of many small datagrams, and no longer one since."""
        return self._slot > 0

    def note_spans(self, spans: list[Span]) -> None:
        """Record the datagrams of a burst: the next burst is likely to be alike."""
        if len(spans) >= _MANY:
            self._expect(len(spans), max(stop - start for start, stop, _ in spans))

    def _expect(self, count: int, longest: int) -> None:
        if longest > _SMALL:
            self._slot = 0
        elif count >= _MANY:
            self._slot = (longest + 7) & ~7

    def drain(self, source: socket.socket, buffer: U8, room: int, spans: list[Span]) -> None:
        """Receive the datagrams that wait, up to ``room`` bytes of slots. Raises OSError."""
        at = longest = 0
        slot, file = self._slot, source.fileno()
        self._slot_lengths[:] = slot
        first = buffer.ctypes.data + self._each * slot
        while at + _COUNT * slot <= room:
            np.add(first, at, out=self._slots)
            self._name_lengths[:] = 16
            count = self._receive(file, self._messages.ctypes.data, _COUNT, socket.MSG_DONTWAIT, None)
            if count < 0:
                error = ctypes.get_errno()
                self._expect(len(spans), longest)
                raise OSError(error, os.strerror(error))  # of EAGAIN: a BlockingIOError
            lengths = self._lengths[:count].tolist()
            longest = max(longest, *lengths)
            starts = range(at, at + count * slot, slot)
            numbers = self._names[:count, 1]
            if (numbers == numbers[0]).all():
                sender = self._source(int(numbers[0]))
                spans += [
                    (start, start + length, sender) for start, length in zip(starts, lengths, strict=True)
                ]
            else:
                senders = map(self._source, numbers.tolist())
                spans += [
                    (start, start + length, sender)
                    for start, length, sender in zip(starts, lengths, senders, strict=True)
                ]
            at += count * slot
            if longest > slot:
                at = self._put_together(buffer, spans, count, at)
            if count < _COUNT:
                break
        self._expect(len(spans), longest)

    def _source(self, number: int) -> str:
        source = self._sources.get(number)
        if source is None:
            if len(self._sources) >= _SOURCES_KNOWN_MAX:
                self._sources.clear()
            source = self._sources[number] = socket.inet_ntoa(number.to_bytes(4, "little"))
        return source

    def _put_together(self, buffer: U8, spans: list[Span], count: int, at: int) -> int:
        """Move datagrams that are longer than a slot behind the slots; returns the end of the bytes that they take."""
        slot = self._slot
        for i in range(count):
            start, stop, source = spans[i - count]
            if stop - start > slot:
                rest = stop - start - slot
                buffer[at : at + slot] = buffer[start : start + slot]
                buffer[at + slot : at + slot + rest] = self._rests[i, :rest]
                spans[i - count] = (at, at + slot + rest, source)
                at += (slot + rest + 7) & ~7
        return at
