"""UDP datagrams of captures: classic pcap and pcapng files, as tcpdump, Wireshark and others write them.

IPv4 over Ethernet and Linux's cooked captures (VLAN tags too), loopback and raw IP. IP fragments are reassembled, and
GSO buffers are divided. Other packets are skipped.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ..transport.errors import DecodeError, RecordingError
from ..transport.wire.message import HEADER_SIZE, MAGIC, iter_submessages
from ..transport.wire.samples import U8
from .recorded import TIME_MAX

_log = logging.getLogger("spark_rtps.recordings")

#: Of a classic file: byte order, and the unit of its fractions of seconds in ns.
_CLASSIC: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1_000),
    b"\xa1\xb2\xc3\xd4": (">", 1_000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_SECTION: Final = b"\x0a\x0d\x0d\x0a"
_ORDERS: Final = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
#: Blocks of pcapng; that of type 2 is what older tools write.
_INTERFACE_BLOCK, _PACKET_BLOCK, _SIMPLE_BLOCK, _ENHANCED_BLOCK = 1, 2, 3, 6
#: The longest packet or block, as in Wireshark.
_PACKET_MAX: Final = 1 << 18
_BLOCK_MAX: Final = 16 << 20
_LEAVE_OUT: Final = "failOnDataLoss=false reads what lies before it"
_RESOLUTION_OPTION, _OFFSET_OPTION = 9, 14
_IPV4: Final = Struct(">BBHHHBBH4s4s")
_UDP: Final = Struct(">HHHH")
_VLANS: Final = (0x8100, 0x88A8)
_ETHERTYPE_IPV4: Final = 0x0800
_PROTOCOL_UDP: Final = 17
#: Link types (tcpdump.org/linktypes.html): where the EtherType is, or where IP begins.
_ETHERNET, _COOKED, _COOKED_2 = 1, 113, 276
_ETHERTYPE_AT: Final = {_ETHERNET: 12, _COOKED: 14, _COOKED_2: 0}
_IP_AT: Final = {_ETHERNET: 14, _COOKED: 16, _COOKED_2: 20, 0: 4, 108: 4, 12: 0, 101: 0, 228: 0}
#: Limits: datagrams with kept fragments, completed ones (to recognise repetitions), and fragments of one datagram.
_PARTIAL_MAX: Final = 512
_FRAGMENTS_MAX: Final = 1 << 13
#: How long a datagram may take to come, and its first fragment behind others, ns. Hosts wait for 15 to 30 s (RFC 791
#: §3.2), in which identifications come again: a capture whose fragments come so late is rarer.
_REASSEMBLY_NS: Final = 5_000_000_000
_OVERTAKING_NS: Final = 1_000_000_000


class Datagram(NamedTuple):
    """A UDP datagram; ``time`` is in ns since the epoch."""

    time: int
    source: str
    payload: bytes


class _Packet(NamedTuple):
    time: int
    link: int
    data: bytes
    is_whole: bool


def datagrams(data: U8, path: str, *, is_lenient: bool = False) -> Iterator[Datagram]:
    """The UDP datagrams of a capture, in order. Raises RecordingError if the file is not a capture, or is damaged.

    Packets that are missing or shortened are logged, and so is, if ``is_lenient``, the part behind damage.
    """
    magic = bytes(data[:4])
    if magic == _SECTION:
        packets = _pcapng(memoryview(data), path)
    elif magic in _CLASSIC:
        packets = _classic(memoryview(data), path, *_CLASSIC[magic])
    else:
        raise RecordingError("it is not a capture, although its name says so", path=path)
    fragments, shortened = _Fragments(), 0
    try:
        for packet in packets:
            if not packet.is_whole:
                shortened += 1
                continue
            found = _udp(packet, fragments)
            if found is not None:
                for payload in _taken_apart(found.payload):
                    yield found._replace(payload=payload)
    except RecordingError as error:
        if not (is_lenient and error.is_damage):
            error.hint = _LEAVE_OUT if error.is_damage else ""
            raise
        _log.warning("%s; left out because failOnDataLoss=false", error)
    if shortened:
        _log.warning("%s: %d packets were captured in part only (snaplen) and are left out", path, shortened)
    if incomplete := fragments.finish():
        _log.warning("%s: %d datagrams lack fragments in the capture and are left out", path, incomplete)


def _classic(data: memoryview, path: str, order: str, unit: int) -> Iterator[_Packet]:
    """https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-04.html"""
    if len(data) < 24:
        raise RecordingError("it is cut short: it has no packets", path=path)
    most, link = Struct(order + "II").unpack_from(data, 16)
    link &= 0xFFFF
    _check_link(link, path)
    record, at = Struct(order + "IIII"), 24
    while at + record.size <= len(data):
        seconds, fraction, captured, length = record.unpack_from(data, at)
        if captured > max(most, _PACKET_MAX):
            raise _damage(data, at, f"a packet of {captured} bytes", path)
        begin = at + record.size
        if begin + captured > len(data):
            break
        time = seconds * 1_000_000_000 + fraction * unit
        at = begin + captured
        yield _Packet(time, link, bytes(data[begin:at]), captured >= length)
    _check_end(data, at, path)


def _pcapng(data: memoryview, path: str) -> Iterator[_Packet]:
    """https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html"""
    order, at, links, unread = "<", 0, set[int](), 0
    interfaces: list[_Interface] = []
    while at + 12 <= len(data):
        if bytes(data[at : at + 4]) == _SECTION:
            found = _ORDERS.get(bytes(data[at + 8 : at + 12]))
            if found is None:
                raise _damage(data, at, "a section without a byte order", path)
            order, interfaces = found, []
        kind, length = Struct(order + "II").unpack_from(data, at)
        if length < 12 or length % 4 or length > _BLOCK_MAX:
            raise _damage(data, at, f"a block of {length} bytes", path)
        if at + length > len(data):
            break
        if Struct(order + "I").unpack_from(data, at + length - 4)[0] != length:
            raise _damage(data, at, f"a block of {length} bytes that ends with another length", path)
        body = data[at + 8 : at + length - 4]
        try:
            if kind == _INTERFACE_BLOCK:
                interfaces.append(
                    _Interface(Struct(order + "H").unpack_from(body)[0], *_clock(body[8:], order))
                )
                links.add(interfaces[-1].link)
            elif (packet := _packet(kind, body, order, interfaces)) is not None:
                if packet.link in _IP_AT:
                    yield packet
                else:
                    unread += 1
        except (StructError, LookupError, OverflowError):
            raise _damage(data, at, f"a block of type {kind} that cannot be right", path) from None
        at += length
    _check_end(data, at, path)
    if links and links.isdisjoint(_IP_AT):
        _check_link(min(links), path)
    if unread:
        kinds = ", ".join(map(str, sorted(links - _IP_AT.keys())))
        _log.warning(
            "%s: %d packets of links of type %s, which are not read, are left out", path, unread, kinds
        )


class _Interface(NamedTuple):
    """Of a section of pcapng: link type, units in a second, and seconds to be added to each time."""

    link: int
    units: int
    offset: int


def _packet(kind: int, body: memoryview, order: str, interfaces: list[_Interface]) -> _Packet | None:
    """The packet of a block; None: it holds none. Raises struct.error, LookupError or OverflowError for damage."""
    if kind == _SIMPLE_BLOCK:
        (size,) = Struct(order + "I").unpack_from(body)
        data = bytes(body[4 : 4 + size])
        return _Packet(0, interfaces[0].link, data, len(data) == size)
    if kind == _ENHANCED_BLOCK:
        number, high, low, captured, size = Struct(order + "IIIII").unpack_from(body)
    elif kind == _PACKET_BLOCK:
        number, _, high, low, captured, size = Struct(order + "HHIIII").unpack_from(body)
    else:
        return None
    link, units, offset = interfaces[number]
    time = (high << 32 | low) * 1_000_000_000 // units + offset * 1_000_000_000
    if captured > len(body) - 20 or not 0 <= time <= TIME_MAX:
        raise OverflowError
    return _Packet(time, link, bytes(body[20 : 20 + captured]), captured >= size)


def _damage(data: memoryview, at: int, what: str, path: str) -> RecordingError:
    why = f"it is damaged: {what} at byte {at}; from there on, {len(data) - at} bytes, it cannot be read"
    return RecordingError(why, path=path, is_damage=True)


def _check_end(data: memoryview, at: int, path: str) -> None:
    if at < len(data):
        left = len(data) - at
        _log.warning("%s: it is cut short; its last packet is left out (%d bytes at its end)", path, left)


def _clock(options: memoryview, order: str) -> tuple[int, int]:
    """Units of time in a second, and seconds to be added to each time, as the options of an interface say."""
    at, head, units, offset = 0, Struct(order + "HH"), 1_000_000, 0
    while at + 4 <= len(options):
        code, length = head.unpack_from(options, at)
        if code == 0:
            break
        if code == _RESOLUTION_OPTION and length >= 1:
            value = options[at + 4]
            units = int(2 ** (value & 0x7F) if value & 0x80 else 10 ** min(value, 18))
        elif code == _OFFSET_OPTION and length >= 8:
            (offset,) = Struct(order + "q").unpack_from(options, at + 4)
        at += 4 + (length + 3 & -4)
    return units, offset


def _check_link(link: int, path: str) -> None:
    if link not in _IP_AT:
        known = "Ethernet, Linux cooked, loopback and raw IP are"
        raise RecordingError(
            f"it was captured on a link of type {link}, which is not read; {known}", path=path
        )


def _udp(packet: _Packet, fragments: _Fragments) -> Datagram | None:
    """The datagram of a packet, or the one that it completes."""
    data = packet.data
    at = _IP_AT[packet.link]
    type_at = _ETHERTYPE_AT.get(packet.link)
    if type_at is not None:
        ethertype = int.from_bytes(data[type_at : type_at + 2], "big")
        while ethertype in _VLANS:
            ethertype, at = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
        if ethertype != _ETHERTYPE_IPV4:
            return None
    if len(data) < at + _IPV4.size or data[at] >> 4 != 4:
        return None
    first, _, length, identification, fragment, _, protocol, _, source, destination = _IPV4.unpack_from(
        data, at
    )
    if protocol != _PROTOCOL_UDP:
        return None
    # the length is 0 where the network card was to divide the buffer
    body = data[at + 4 * (first & 15) : at + length if length else len(data)]
    offset, more = (fragment & 0x1FFF) * 8, bool(fragment & 0x2000)
    if offset or more:
        whole = fragments.add_fragment(
            (source, destination, identification), packet.time, offset, body, is_last=not more
        )
        if whole is None:
            return None
        body = whole
    if len(body) < _UDP.size:
        return None
    size = _UDP.unpack_from(body)[2]
    payload = body[_UDP.size : size] if size else body[_UDP.size :]
    return Datagram(packet.time, ".".join(map(str, source)), payload)


def _taken_apart(payload: bytes) -> list[bytes]:
    """The datagrams of a GSO buffer, which a host captures before its network card divides it, or of a GRO buffer, into
    which received datagrams were joined: all of one length, but for the last, and of one participant.
    """
    header, segment = payload[:HEADER_SIZE], HEADER_SIZE
    if not header.startswith(MAGIC):
        return [payload]
    while (segment := payload.find(header, segment)) > 0:
        starts = range(0, len(payload), segment)
        if all(payload.startswith(header, at) for at in starts) and _is_message(payload[:segment]):
            return [payload[at : at + segment] for at in starts]
        segment += 1
    return [payload]


def _is_message(data: bytes) -> bool:
    """Whether its submessages end where it does. Payloads may look like the header of a message."""
    try:
        for _ in iter_submessages(memoryview(data)):
            pass
    except DecodeError:
        return False
    return True


class _Partial:
    """A datagram of which fragments have come, by their offsets; the first one at ``since``."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.pieces: dict[int, tuple[bytes, bool]] = {}
        #: It was handed out; a capture of several interfaces has each fragment several times.
        self.is_done = False

    def assembled(self) -> bytes | None:
        """The datagram, once its pieces lie end to end from offset 0 to the last fragment."""
        parts: list[bytes] = []
        at, is_last = 0, False
        while not is_last:
            if at not in self.pieces:
                return None
            part, is_last = self.pieces[at]
            if not part:
                return None
            parts.append(part)
            at += len(part)
        return b"".join(parts)


class _Fragments:
    """Fragments of incomplete IP datagrams.

    Their 16-bit identifications are reused soon, and a capture may lack any fragment. So fragments of two datagrams
    must
    not be mixed: old ones are forgotten, and a fragment that contradicts the present ones begins a new datagram. A
    repeated
    fragment, as of a packet that passes several interfaces, belongs to the same datagram.
    """

    def __init__(self) -> None:
        self._partial: OrderedDict[tuple[bytes, bytes, int], _Partial] = OrderedDict()
        #: Incomplete datagrams.
        self.incomplete = 0

    def add_fragment(
        self, key: tuple[bytes, bytes, int], now: int, offset: int, body: bytes, *, is_last: bool
    ) -> bytes | None:
        """The datagram that the fragment completes, if it does."""
        found = self._partial.get(key)
        if found is not None and self._is_of_another(found, now, offset, body, is_last=is_last):
            del self._partial[key]
            self.incomplete += not found.is_done
            found = None
        if found is None:
            found = self._partial[key] = _Partial(now)
        if found.is_done:
            return None
        if len(found.pieces) < _FRAGMENTS_MAX:
            found.pieces[offset] = body, is_last
        whole = found.assembled()
        if whole is not None:
            found.is_done = True
            if len(whole) < _UDP.size or _UDP.unpack_from(whole)[2] not in (0, len(whole)):
                self.incomplete += 1
                whole = None
        if len(self._partial) > _PARTIAL_MAX:
            _, oldest = self._partial.popitem(last=False)
            self.incomplete += not oldest.is_done
        return whole

    def finish(self) -> int:
        """The number of incomplete datagrams, at the end of the capture."""
        self.incomplete += sum(not each.is_done for each in self._partial.values())
        self._partial.clear()
        return self.incomplete

    def _is_of_another(self, found: _Partial, now: int, offset: int, body: bytes, *, is_last: bool) -> bool:
        age = now - found.since
        if found.is_done and offset not in found.pieces:
            return True
        # a capture of several interfaces, or CPUs, may have what came later first
        if abs(age) > _REASSEMBLY_NS or found.pieces.get(offset, (body, is_last)) != (body, is_last):
            return True
        # the first fragment is sent before the others, which may overtake it, but not for long
        return offset == 0 and 0 not in found.pieces and age > _OVERTAKING_NS
