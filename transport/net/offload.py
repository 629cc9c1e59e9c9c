"""GSO buffers: many datagrams in one system call, which the kernel splits and joins.

Sending (UDP GSO): consecutive datagrams of equal length to the same destinations, of which the last may be shorter, are
handed over in one buffer; the kernel cuts it. Receiving (UDP GRO): datagrams that came as a GSO buffer are returned in
one piece, with the length to cut it by. On the wire nothing changes.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from ..limits import LOCATORS_MAX, PARTICIPANTS_MAX, UDP_PAYLOAD_MAX
from ..protocol.outgoing import Buffer, OutgoingDatagrams
from ..protocol.receiving.message_receiver import Span
from ..structure import VENDOR_ID, Locator
from ..wire.message import HEADER_SIZE
from ..wire.samples import U8

_SOL_UDP: Final = socket.IPPROTO_UDP
_UDP_SEGMENT: Final = 103
_UDP_GRO: Final = 104
#: Segments that every kernel with UDP_SEGMENT takes.
SEGMENTS_MAX: Final = 64
#: Longer datagrams gain nothing: those of jumbo frames (8,972 bytes) go seven at a time.
SEGMENT_SIZE_MAX: Final = UDP_PAYLOAD_MAX // 7
#: Many pieces smaller than this are copied together faster than the kernel gathers them.
_PIECE_MIN: Final = 1_024
_PIECES_MANY: Final = 8
#: Errors if the route's device computes no checksums, or the segments do not fit its MTU.
_REFUSED: Final = (errno.EIO, errno.EINVAL, errno.EMSGSIZE)
#: Number of routes whose refusals are remembered.
_ROUTES_MAX: Final = PARTICIPANTS_MAX * LOCATORS_MAX
#: This many consecutive datagrams of one length from this product are a GSO buffer that was split; shorter ones may be
#: HEARTBEATs.
_GSO_SEEN: Final = 8
_GSO_SEGMENT_MIN: Final = 64
CONTROL_SIZE: Final = socket.CMSG_SPACE(4)
#: Bytes that a received GSO buffer may take in the receive buffer: at most 3 bytes are put behind each message.
GSO_CAPACITY: Final = UDP_PAYLOAD_MAX + UDP_PAYLOAD_MAX // HEADER_SIZE * 3

#: Datagrams to the same destinations, bytes of each of them except the last, which may be shorter, and bytes of all.
GsoBuffer = tuple[list[OutgoingDatagrams], int, int]


def control(segment: int) -> list[tuple[int, int, bytes]]:
    """The control message with the segment size."""
    return [(_SOL_UDP, _UDP_SEGMENT, segment.to_bytes(2, sys.byteorder))]


def pieces(buffers: list[Buffer], nbytes: int) -> list[Buffer]:
    """The buffers in the form that a system call takes fastest; there may be more than it takes at all."""
    if len(buffers) > _PIECES_MANY and len(buffers) * _PIECE_MIN > nbytes:
        return [b"".join(buffers)]
    return buffers


def gso_buffers(datagrams: Iterable[OutgoingDatagrams]) -> Iterator[GsoBuffer]:
    """All datagrams in order, joined where the kernel can send them together."""
    gso_buffer: list[OutgoingDatagrams] = []
    segment = nbytes = 0
    for each in datagrams:
        size = sum(map(len, each.buffers))
        if gso_buffer:
            if (
                not each.segment
                and 0 < size <= segment <= SEGMENT_SIZE_MAX
                and len(gso_buffer) * segment == nbytes  # no datagram in it is shorter
                and nbytes + size <= UDP_PAYLOAD_MAX
                and len(gso_buffer) < SEGMENTS_MAX
                and each.destinations == gso_buffer[0].destinations
            ):
                gso_buffer.append(each)
                nbytes += size
                continue
            yield gso_buffer, segment, nbytes
        gso_buffer, segment, nbytes = [each], min(each.segment or size, size), size
        if segment < size:  # the datagrams are a GSO buffer already
            if segment > SEGMENT_SIZE_MAX:
                yield gso_buffer, segment, nbytes
            else:
                for group in each.groups():
                    yield from _system_calls(group, len(group.buffers[0]))
            gso_buffer = []
    if gso_buffer:
        yield gso_buffer, segment, nbytes


def _system_calls(gso_buffer: OutgoingDatagrams, nbytes: int) -> Iterator[GsoBuffer]:
    """A GSO buffer, in parts that the kernel takes."""
    segment = gso_buffer.segment
    step = segment * max(1, min(SEGMENTS_MAX, UDP_PAYLOAD_MAX // segment))
    if nbytes <= step:
        yield [gso_buffer], min(segment, nbytes), nbytes
        return
    (buffer,) = gso_buffer.buffers
    view = memoryview(buffer)
    for at in range(0, nbytes, step):
        part = view[at : at + step]
        size = len(part)
        yield [OutgoingDatagrams([part], gso_buffer.destinations, segment)], min(segment, size), size


class Routes:
    """The GSO buffers that may be tried: each route refuses on its own, by the length of its segments."""

    def __init__(self) -> None:
        #: The smallest segment that was refused.
        self._refused: dict[tuple[socket.socket, Locator], int] = {}

    def takes(self, sender: socket.socket, to: Locator, segment: int) -> bool:
        return not self._refused or segment < self._refused.get((sender, to), segment + 1)

    def refused(self, sender: socket.socket, to: Locator, segment: int, error: OSError) -> None:
        """Record that a GSO buffer could not be sent; if the route refused it, no other like it is tried."""
        if error.errno not in _REFUSED:
            return
        if len(self._refused) >= _ROUTES_MAX:
            self._refused.clear()
        self._refused[sender, to] = 0 if error.errno == errno.EIO else segment


def takes_gso(sender: socket.socket) -> bool:
    """Whether the kernel knows UDP_SEGMENT; a kernel without it would send a GSO buffer as one datagram."""
    try:
        sender.setsockopt(_SOL_UDP, _UDP_SEGMENT, 0)
    except OSError:
        return False
    return True


def receive_coalesced(receiver: socket.socket) -> bool:
    """Have GSO buffers returned in one piece; False if the kernel cannot."""
    try:
        receiver.setsockopt(_SOL_UDP, _UDP_GRO, 1)
    except OSError:
        return False
    return True


def is_gso(data: U8, spans: list[Span]) -> bool:
    """Whether the datagrams of a burst look as if they had come in a GSO buffer.

    Only this product's participants send GSO buffers, and the system call that reports them takes longer: it would make
    every datagram of other senders more expensive.
    """
    if len(spans) <= _GSO_SEEN:
        return False
    start, stop, _ = spans[-2]  # the last may be shorter
    vendor = data[start + 6 : start + 8].tobytes()  # RTPS 2.5 §9.4.4: behind magic and version
    if vendor != VENDOR_ID or not _GSO_SEGMENT_MIN <= stop - start <= SEGMENT_SIZE_MAX:
        return False
    return {stop - start for start, stop, _ in spans[-1 - _GSO_SEEN : -1]} == {stop - start}


def take_apart(
    data: U8, at: int, size: int, control: list[tuple[int, int, bytes]], source: str, spans: list[Span]
) -> int:
    """Add the span of each datagram of the ``size`` bytes at ``data[at:]``, which came from ``source``.

    Returns the end of the bytes that they take. Spans of messages begin at multiples of 4, as ``at`` does.
    """
    segment = int.from_bytes(control[0][2], sys.byteorder) if control else size
    if not 0 < segment < size:
        spans.append((at, at + size, source))
        return at + size
    pitch = segment
    if segment % 4 and segment >= HEADER_SIZE:  # a shorter datagram is not a message, and is not parsed
        pitch = (segment + 3) & ~3
        whole, rest = divmod(size, segment)
        packed = data[at : at + size].copy()
        data[at : at + whole * pitch].reshape(whole, pitch)[:, :segment] = packed[: size - rest].reshape(
            whole, segment
        )
        if rest:
            data[at + whole * pitch : at + whole * pitch + rest] = packed[size - rest :]
        size = whole * pitch + rest if rest else (whole - 1) * pitch + segment
    stop = at + size
    spans += [(start, min(start + segment, stop), source) for start in range(at, stop, pitch)]
    return stop
