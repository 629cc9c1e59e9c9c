"""Just enough pcap for tests: reads UDP datagrams from a capture, and writes a capture for tshark.

Reads classic pcap files of Ethernet frames and reassembles IPv4 fragments; writes files of raw IPv4 packets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

CAPTURES = Path(__file__).parents[1] / "captures"

_MAGIC_LE, _MAGIC_BE = b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4"  # microsecond resolution
_LINKTYPE_ETHERNET, _LINKTYPE_RAW = 1, 101
_FILE_HEADER = Struct("<4sHHiIII")
_ETHERTYPE = Struct(">12xH")
_IPV4 = Struct(">BBHHHBBH4s4s")
_UDP = Struct(">HHHH")


class Datagram(NamedTuple):
    """One UDP datagram. ``frame`` is Wireshark's number of its frame, or of the last one if it was fragmented."""

    frame: int
    source: str
    source_port: int
    destination: str
    destination_port: int
    payload: bytes


def captures() -> list[Path]:
    """Every capture of the tests, in order of name. Raises FileNotFoundError if there are none."""
    found = sorted(CAPTURES.glob("*.pcap"))
    if not found:
        raise FileNotFoundError(f"no captures in {CAPTURES}")
    return found


def read_pcap(path: Path) -> list[Datagram]:
    """The UDP/IPv4 datagrams of a capture in order of arrival, without those which lack a fragment."""
    datagrams: list[Datagram] = []
    pieces: dict[tuple[bytes, bytes, int], dict[int, tuple[bytes, bool]]] = {}
    for frame, data in _frames(path.read_bytes()):
        if len(data) < 34 or _ETHERTYPE.unpack_from(data)[0] != 0x0800:
            continue
        first, _, length, identification, fragment, _, protocol, _, source, destination = _IPV4.unpack_from(
            data, 14
        )
        if protocol != 17:
            continue
        body = data[14 + 4 * (first & 15) : 14 + length]
        offset, more = (fragment & 0x1FFF) * 8, bool(fragment & 0x2000)
        if offset or more:
            key = (source, destination, identification)
            pieces.setdefault(key, {})[offset] = (body, more)
            whole = _assemble(pieces[key])
            if whole is None:
                continue
            del pieces[key]
            body = whole
        source_port, destination_port, size, _ = _UDP.unpack_from(body)
        addresses = (str(ipaddress.IPv4Address(source)), str(ipaddress.IPv4Address(destination)))
        datagrams.append(
            Datagram(frame, addresses[0], source_port, addresses[1], destination_port, body[8:size])
        )
    return datagrams


def _frames(capture: bytes) -> Iterator[tuple[int, bytes]]:
    order = {_MAGIC_LE: "<", _MAGIC_BE: ">"}[capture[:4]]
    linktype = Struct(order + "I").unpack_from(capture, 20)[0]
    if linktype != _LINKTYPE_ETHERNET:
        raise ValueError(f"link type {linktype} is not Ethernet")
    record = Struct(order + "IIII")
    at, frame = 24, 0
    while at < len(capture):
        captured = record.unpack_from(capture, at)[2]
        at += 16
        frame += 1
        yield frame, capture[at : at + captured]
        at += captured


def _assemble(pieces: dict[int, tuple[bytes, bool]]) -> bytes | None:
    """The datagram, once its pieces lie end to end from offset 0 to the last fragment; else None."""
    parts: list[bytes] = []
    at, more = 0, True
    while more:
        if at not in pieces:
            return None
        part, more = pieces[at]
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def write_pcap(datagrams: Iterable[bytes], *, port: int = 7400) -> bytes:
    """A capture of these UDP payloads, each sent from 127.0.0.1 to 127.0.0.1, with ``port`` at both ends."""
    parts = [_FILE_HEADER.pack(_MAGIC_LE, 2, 4, 0, 0, 262_144, _LINKTYPE_RAW)]
    loopback = bytes((127, 0, 0, 1))
    for number, payload in enumerate(datagrams):
        udp = _UDP.pack(port, port, 8 + len(payload), 0)
        ip = _IPV4.pack(0x45, 0, 28 + len(payload), number, 0, 64, 17, 0, loopback, loopback)
        packet = ip + udp + payload
        parts += (Struct("<IIII").pack(number, 0, len(packet), len(packet)), packet)
    return b"".join(parts)
