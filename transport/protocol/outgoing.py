"""Output of the state machines: submessages packed into datagrams, and datagrams with their RTPS header."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from ..limits import MESSAGE_SIZE_LEAST
from ..structure import Locator
from ..value_classes import slotted
from ..wire.info import INFO_DST_SIZE, INFO_TS_SIZE
from ..wire.message import HEADER_SIZE
from ..wire.samples import NO_TIMESTAMP, U8
from ..wire.submessages import InfoTimestamp

Buffer = bytes | memoryview | U8

#: Bytes that the participant puts in front: RTPS header, INFO_DST, INFO_TS.
HEADER_ROOM: Final = HEADER_SIZE + INFO_DST_SIZE + INFO_TS_SIZE
#: Bytes of a HEARTBEAT or HEARTBEAT_BATCH behind the data.
HEARTBEAT_ROOM: Final = 48
#: Bytes of a datagram that are not for samples.
DATAGRAM_ROOM: Final = HEADER_ROOM + HEARTBEAT_ROOM
#: Small messages to the same addresses share a datagram up to this size, an unfragmented one on any link.
SHARED_SIZE_MAX: Final = MESSAGE_SIZE_LEAST


@slotted
class Outgoing:
    """What one endpoint sends in one datagram; header, INFO_DST and the first INFO_TS are not in it.

    ``timestamp`` is the source timestamp (ns since the epoch) in force for the first submessage, if any.
    """

    destinations: tuple[Locator, ...]
    dest_prefix: bytes | None
    timestamp: int | None
    submessages: list[Buffer]
    #: Submessages of other endpoints for the same addresses may be appended.
    shareable: bool = True
    #: The one buffer is a GSO buffer of whole messages of this many bytes, the last one possibly shorter; 0: it is not.
    segment: int = 0
    #: The last message in each block of this many bytes may be shorter; 0: only the last message of all.
    group: int = 0


@slotted
class OutgoingDatagrams:
    """Bytes to send to each destination: as one UDP datagram, or with ``segment`` and ``group`` as several, see
    :class:`Outgoing`."""

    buffers: list[Buffer]
    destinations: tuple[Locator, ...]
    segment: int = 0
    group: int = 0

    def groups(self) -> list[OutgoingDatagrams]:
        """Split into parts in which only the last message may be shorter."""
        if not self.group:
            return [self]
        (buffer,) = self.buffers
        return [
            OutgoingDatagrams([buffer[at : at + self.group]], self.destinations, self.segment)
            for at in range(0, len(buffer), self.group)
        ]

    def apart(self) -> list[OutgoingDatagrams]:
        """Split into single UDP datagrams."""
        if not self.segment:
            return [self]
        (buffer,) = self.buffers
        return [
            OutgoingDatagrams([buffer[at:stop]], self.destinations)
            for at, stop in message_spans(len(buffer), self.segment, self.group)
        ]

    def messages(self) -> list[bytes]:
        """The bytes of each UDP datagram."""
        return [b"".join(map(bytes, each.buffers)) for each in self.apart()]


@slotted
class Packer:
    """Packs submessages for the same readers into as few datagrams as possible."""

    message_size: int
    destinations: tuple[Locator, ...]
    dest_prefix: bytes | None
    shareable: bool = True
    packed: list[Outgoing] = field(default_factory=list)
    #: Bytes of submessages packed.
    nbytes: int = 0
    _room: int = 0
    _timestamp: int = NO_TIMESTAMP

    def add_messages(self, messages: U8, segment: int, group: int = 0) -> None:
        """Append whole messages unchanged; see :class:`Outgoing`."""
        self.nbytes += messages.nbytes
        self._room = 0
        self.packed.append(
            Outgoing(self.destinations, self.dest_prefix, None, [messages], False, segment, group)
        )

    def begin_datagram(self) -> None:
        """Begin a new datagram with the next submessage."""
        self._room = 0

    def add_submessage(
        self, buffer: Buffer, timestamp: int | None = None, *, payload: Buffer | None = None, reserve: int = 0
    ) -> None:
        """Append a submessage, or several in one buffer; ``payload`` is the end of the submessage, if that lies in
        another buffer.

        ``timestamp`` is that of DATA and DATA_FRAG, NO_TIMESTAMP if they have none; None for submessages without
        timestamps. ``reserve`` bytes are left free behind it.
        """
        stamp = self._timestamp if timestamp is None else timestamp
        changes = stamp != self._timestamp
        buffers = [buffer] if payload is None else [buffer, payload]
        nbytes = len(buffer) if payload is None else len(buffer) + len(payload)
        need = nbytes + (INFO_TS_SIZE if changes else 0)
        self.nbytes += nbytes
        if not self.packed or need + reserve > self._room or (changes and stamp == NO_TIMESTAMP):
            own = None if timestamp is None or timestamp == NO_TIMESTAMP else timestamp
            # A datagram that is shared may grow beyond a message size that is lower than usual.
            shareable = self.shareable and self.message_size >= SHARED_SIZE_MAX
            self.packed.append(Outgoing(self.destinations, self.dest_prefix, own, buffers, shareable))
            self._room = self.message_size - HEADER_ROOM - nbytes
            self._timestamp = NO_TIMESTAMP if own is None else own
            return
        if changes:
            self.packed[-1].submessages.append(InfoTimestamp(stamp).encode())
            self._timestamp = stamp
        self.packed[-1].submessages += buffers
        self._room -= need


def message_spans(nbytes: int, segment: int, group: int = 0) -> Iterator[tuple[int, int]]:
    """[start, stop) of each message in a GSO buffer of ``nbytes``, see :class:`Outgoing`."""
    group = group or nbytes
    for start in range(0, nbytes, group):
        end = min(start + group, nbytes)
        for at in range(start, end, segment):
            yield at, min(at + segment, end)


def union_of(locators: list[tuple[Locator, ...]]) -> tuple[Locator, ...]:
    """Each locator once, in order of first appearance."""
    return tuple(dict.fromkeys(locator for each in locators for locator in each))
