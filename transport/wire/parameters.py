"""Parameter lists and the CDR values in them (RTPS 2.5 §9.4.2.11, §9.6.3, §9.6.4).

Discovery data and inline QoS are lists of (parameter id, value). Values are kept as bytes, in the byte order
the list was read with; ``decode_*`` and ``encode_*`` turn one value into Python and back. Lengths and counts
are checked against the bytes that are there before anything is built from them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Container, Iterable, Iterator
from typing import Any, Final

from ..errors import DecodeError, DropReason, UsageError
from ..limits import FILTER_PARAMETERS_MAX, PARAMETERS_MAX, PARTITIONS_MAX, STRING_MAX, USER_DATA_MAX
from ..structure import LOCATOR_KIND_UDPV4, LOCATOR_KIND_UDPV6, Guid, Locator
from ..value_classes import value
from .ntp import duration_from_ntp, duration_to_ntp
from .numbers import pair

# --- parameter ids ------------------------------------------------------------------------------------

PID_PAD: Final = 0x0000
PID_SENTINEL: Final = 0x0001
# Discovery (RTPS 2.5 table 9.14)
PID_PARTICIPANT_LEASE_DURATION: Final = 0x0002
PID_TIME_BASED_FILTER: Final = 0x0004
PID_TOPIC_NAME: Final = 0x0005
PID_OWNERSHIP_STRENGTH: Final = 0x0006
PID_TYPE_NAME: Final = 0x0007
PID_DOMAIN_ID: Final = 0x000F
PID_PROTOCOL_VERSION: Final = 0x0015
PID_VENDOR_ID: Final = 0x0016
PID_RELIABILITY: Final = 0x001A
PID_LIVELINESS: Final = 0x001B
PID_DURABILITY: Final = 0x001D
PID_DURABILITY_SERVICE: Final = 0x001E
PID_OWNERSHIP: Final = 0x001F
PID_PRESENTATION: Final = 0x0021
PID_DEADLINE: Final = 0x0023
PID_DESTINATION_ORDER: Final = 0x0025
PID_LATENCY_BUDGET: Final = 0x0027
PID_PARTITION: Final = 0x0029
PID_LIFESPAN: Final = 0x002B
PID_USER_DATA: Final = 0x002C
PID_GROUP_DATA: Final = 0x002D
PID_TOPIC_DATA: Final = 0x002E
PID_UNICAST_LOCATOR: Final = 0x002F
PID_MULTICAST_LOCATOR: Final = 0x0030
PID_DEFAULT_UNICAST_LOCATOR: Final = 0x0031
PID_METATRAFFIC_UNICAST_LOCATOR: Final = 0x0032
PID_METATRAFFIC_MULTICAST_LOCATOR: Final = 0x0033
PID_PARTICIPANT_MANUAL_LIVELINESS_COUNT: Final = 0x0034
PID_CONTENT_FILTER_PROPERTY: Final = 0x0035
PID_HISTORY: Final = 0x0040
PID_RESOURCE_LIMITS: Final = 0x0041
PID_EXPECTS_INLINE_QOS: Final = 0x0043
PID_DEFAULT_MULTICAST_LOCATOR: Final = 0x0048
PID_TRANSPORT_PRIORITY: Final = 0x0049
PID_PARTICIPANT_GUID: Final = 0x0050
PID_GROUP_GUID: Final = 0x0052
PID_GROUP_ENTITY_ID: Final = 0x0053
PID_BUILTIN_ENDPOINT_SET: Final = 0x0058
PID_PROPERTY_LIST: Final = 0x0059
PID_ENDPOINT_GUID: Final = 0x005A
PID_TYPE_MAX_SIZE_SERIALIZED: Final = 0x0060
PID_ENTITY_NAME: Final = 0x0062
PID_BUILTIN_ENDPOINT_QOS: Final = 0x0077
PID_DOMAIN_TAG: Final = 0x4014  # carries the must-understand bit
# Inline QoS (RTPS 2.5 table 9.18)
PID_COHERENT_SET: Final = 0x0056
PID_KEY_HASH: Final = 0x0070
PID_STATUS_INFO: Final = 0x0071
# Types (XTypes 1.3 §7.6.3.2; the V1 ones are XTypes 1.1's, still sent by Fast DDS 2)
PID_TYPE_ID_V1: Final = 0x0069
PID_TYPE_OBJECT_V1: Final = 0x0072
PID_DATA_REPRESENTATION: Final = 0x0073
PID_TYPE_CONSISTENCY_ENFORCEMENT: Final = 0x0074
PID_TYPE_INFORMATION: Final = 0x0075
#: RTI's: the value of PID_TYPE_OBJECT_V1, compressed.
PID_TYPE_OBJECT_COMPRESSED: Final = 0x8021
#: Cyclone DDS's (from ADLINK): five numbers, and ``host/version/operating system/processor``.
PID_PARTICIPANT_VERSION_INFO: Final = 0x8007

#: Bits of a parameter id (RTPS 2.5 §9.6.3): a vendor's own; drop the whole list if not understood.
PID_VENDOR_SPECIFIC: Final = 0x8000
PID_MUST_UNDERSTAND: Final = 0x4000

PL_CDR_BE: Final = b"\x00\x02"
PL_CDR_LE: Final = b"\x00\x03"

#: Bytes of the longest value: lengths are multiples of 4.
VALUE_MAX: Final = 0xFFFC

#: Sizes of whole parameters of inline QoS: a key hash, a status info, a coherent set; and of the sentinel behind them.
KEY_HASH_SIZE: Final = 4 + 16
STATUS_INFO_SIZE: Final = 4 + 4
COHERENT_SET_SIZE: Final = 4 + 8
SENTINEL_SIZE: Final = 4

_PARAMETER: Final = pair("HH")
_I16: Final = pair("h")
_U32: Final = pair("I")
_U32_U32: Final = pair("II")
_LOCATOR: Final = pair("iI16s")
_SEQUENCE_NUMBER: Final = pair("iI")

#: The number of an unknown sample (RTPS 2.5 §9.3.2.9); in PID_COHERENT_SET: no set.
SEQUENCENUMBER_UNKNOWN: Final = -1 << 32


# --- parameter lists ----------------------------------------------------------------------------------


@value
class ParameterList:
    """Parameters in their order, without the sentinel and padding; iterates over (pid, value).

    A value is found under its id with and without the must-understand bit: any sender may set that bit.
    """

    parameters: tuple[tuple[int, bytes], ...] = ()
    little_endian: bool = True

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def get(self, pid: int) -> bytes | None:
        """The first value of ``pid``."""
        for found, payload in self.parameters:
            if found == pid or found == pid | PID_MUST_UNDERSTAND:
                return payload
        return None

    def all(self, pid: int) -> list[bytes]:
        """Every value of ``pid``."""
        both = (pid, pid | PID_MUST_UNDERSTAND)
        return [value for found, value in self.parameters if found in both]

    def unknown_must_understand(self, known: Container[int]) -> list[int]:
        """Ids that forbid the use of the list if only ``known`` ids are understood (RTPS 2.5 §9.6.3)."""
        return [
            pid
            for pid, _ in self.parameters
            if pid & PID_MUST_UNDERSTAND and pid not in known and pid & ~PID_MUST_UNDERSTAND not in known
        ]

    @property
    def key_hash(self) -> bytes | None:
        """KeyHash_t, 16 bytes (RTPS 2.5 §9.6.4.8); raises DecodeError if it is shorter."""
        value = self.get(PID_KEY_HASH)
        if value is None:
            return None
        if len(value) < 16:
            raise DecodeError(DropReason.BAD_PARAMETER, f"key hash of {len(value)} bytes")
        return value[:16]

    @property
    def status_info(self) -> int:
        """StatusInfo_t's flags, 0 if absent (RTPS 2.5 §9.6.4.9)."""
        value = self.get(PID_STATUS_INFO)
        return 0 if value is None else decode_status_info(value)

    @property
    def coherent_set(self) -> int:
        """The coherent set, as in `Run.coherent_set`; 0 if there is none."""
        value = self.get(PID_COHERENT_SET)
        if value is None or len(value) < 8:
            return 0
        return decode_coherent_set(value, 0, self.little_endian)

    def encode(self) -> bytes:
        return encode_parameters(self.parameters, self.little_endian)


def decode_parameters(data: memoryview, little_endian: bool) -> tuple[ParameterList, int]:
    """The parameter list at the start of ``data``, and its length in bytes, sentinel included."""
    header = _PARAMETER[little_endian]
    parameters: list[tuple[int, bytes]] = []
    at, end = 0, len(data)
    while at + 4 <= end:
        pid, length = header.unpack_from(data, at)
        at += 4
        if pid == PID_SENTINEL:  # its length is ignored (RTPS 2.5 §9.4.2.11.2)
            return ParameterList(tuple(parameters), bool(little_endian)), at
        if at + length > end:
            raise DecodeError(DropReason.BAD_PARAMETER_LIST, f"{pid:#06x}: {length} bytes, {end - at} left")
        if pid != PID_PAD:
            if len(parameters) == PARAMETERS_MAX:
                raise DecodeError(DropReason.OVER_LIMIT, f"more than {PARAMETERS_MAX} parameters")
            parameters.append((pid, bytes(data[at : at + length])))
        # A length is a multiple of 4; senders that do not count the padding still pad.
        at += length + (-length & 3)
    raise DecodeError(DropReason.BAD_PARAMETER_LIST, "no sentinel")


def encode_parameters(parameters: Iterable[tuple[int, bytes]], little_endian: bool = True) -> bytes:
    """A parameter list with its sentinel; values are padded to a multiple of 4."""
    header = _PARAMETER[little_endian]
    parts: list[bytes] = []
    for pid, payload in parameters:
        padding = -len(payload) & 3
        if len(payload) > VALUE_MAX:
            raise UsageError(f"parameter {pid:#06x} has {len(payload)} bytes; at most {VALUE_MAX} fit")
        parts += (header.pack(pid, len(payload) + padding), payload, bytes(padding))
    parts.append(header.pack(PID_SENTINEL, 0))
    return b"".join(parts)


def decode_parameter_payload(payload: memoryview) -> ParameterList:
    """The parameter list of a discovery payload, which starts with its encapsulation header."""
    encapsulation = bytes(payload[:2])
    if encapsulation not in (PL_CDR_LE, PL_CDR_BE) or len(payload) < 4:
        raise DecodeError(DropReason.BAD_ENCAPSULATION, f"{encapsulation.hex()} where PL_CDR was due")
    return decode_parameters(payload[4:], encapsulation == PL_CDR_LE)[0]


def encode_parameter_payload(parameters: Iterable[tuple[int, bytes]], little_endian: bool = True) -> bytes:
    """A discovery payload: encapsulation header and parameter list."""
    encapsulation = PL_CDR_LE if little_endian else PL_CDR_BE
    return encapsulation + b"\x00\x00" + encode_parameters(parameters, little_endian)


# --- values -------------------------------------------------------------------------------------------


def _need(value: bytes, stop: int, what: str) -> None:
    if len(value) < stop:
        raise DecodeError(DropReason.BAD_PARAMETER, f"{what}: {len(value)} bytes, {stop} needed")


def decode_bool(value: bytes) -> bool:
    _need(value, 1, "boolean")
    return value[0] != 0


def decode_u32(value: bytes, little_endian: bool) -> int:
    _need(value, 4, "unsigned long")
    return int.from_bytes(value[:4], "little" if little_endian else "big")


def encode_u32(number: int, little_endian: bool = True) -> bytes:
    return _U32[little_endian].pack(number)


def decode_i32(value: bytes, little_endian: bool) -> int:
    _need(value, 4, "long")
    return int.from_bytes(value[:4], "little" if little_endian else "big", signed=True)


def encode_i32(number: int, little_endian: bool = True) -> bytes:
    return _U32[little_endian].pack(number & 0xFFFFFFFF)


def encode_sequence_number(number: int, little_endian: bool = True) -> bytes:
    return _SEQUENCE_NUMBER[little_endian].pack(number >> 32, number & 0xFFFFFFFF)


def decode_coherent_set(value: Any, at: int, little_endian: int) -> int:
    """The coherent set in the eight bytes of ``value`` from ``at`` on, as in `Run.coherent_set`.

    RTPS 2.5 §8.7.5: SEQUENCENUMBER_UNKNOWN ends a set; a number below 1 cannot begin one. Both are -1.
    """
    high, low = _SEQUENCE_NUMBER[little_endian].unpack_from(value, at)
    first: int = high << 32 | low
    return first if first > 0 else -1


def decode_duration(value: bytes, little_endian: bool) -> int:
    """Nanoseconds; INFINITE for DURATION_INFINITE."""
    _need(value, 8, "duration")
    try:
        return duration_from_ntp(*_U32_U32[little_endian].unpack_from(value))
    except ValueError as error:
        raise DecodeError(DropReason.BAD_PARAMETER, str(error)) from None


def encode_duration(ns: int, little_endian: bool = True) -> bytes:
    return _U32_U32[little_endian].pack(*duration_to_ntp(ns))


def decode_guid(value: bytes) -> Guid:
    _need(value, 16, "GUID")
    return Guid.from_bytes(value[:16])


def encode_guid(guid: Guid) -> bytes:
    return guid.to_bytes()


def decode_status_info(value: bytes) -> int:
    """StatusInfo_t is four octets, independent of byte order; the flags are in the last (RTPS 2.5 §9.6.4.9)."""
    _need(value, 4, "status info")
    return value[3] & 0x07


def encode_status_info(flags: int) -> bytes:
    return bytes((0, 0, 0, flags & 0x07))


def decode_locator(value: bytes | memoryview, little_endian: bool) -> Locator | None:
    """A UDP locator; None for an unsupported transport (shared memory, TCP…): ignore it.

    Port 0 and ports above 65535 raise BAD_LOCATOR: they cannot be sent to.
    """
    if len(value) < 24:
        raise DecodeError(DropReason.BAD_LOCATOR, f"{len(value)} bytes")
    kind, port, address = _LOCATOR[little_endian].unpack_from(value)
    if kind not in (LOCATOR_KIND_UDPV4, LOCATOR_KIND_UDPV6):
        return None
    if not 0 < port < 65536:
        raise DecodeError(DropReason.BAD_LOCATOR, f"port {port}")
    if kind == LOCATOR_KIND_UDPV4:
        return Locator(str(ipaddress.IPv4Address(address[12:])), port, kind)
    return Locator(str(ipaddress.IPv6Address(address)), port, kind)


def encode_locator(locator: Locator, little_endian: bool = True) -> bytes:
    try:
        packed = ipaddress.ip_address(locator.address).packed
    except ValueError as error:
        raise UsageError(f"locator {locator}: {error}") from None
    return _LOCATOR[little_endian].pack(locator.kind, locator.port, packed.rjust(16, b"\x00"))


def decode_string(value: bytes, little_endian: bool) -> str:
    return _string_at(value, 0, little_endian)[0]


def encode_string(text: str, little_endian: bool = True) -> bytes:
    """A CDR string, padded to 4: its byte count with the closing NUL, the bytes, the NUL."""
    raw = text.encode() + b"\x00"
    return _U32[little_endian].pack(len(raw)) + raw + bytes(-len(raw) & 3)


def decode_octets(value: bytes, little_endian: bool) -> bytes:
    """sequence<octet>: USER_DATA, TOPIC_DATA, GROUP_DATA."""
    count = decode_u32(value, little_endian)
    if count > USER_DATA_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, f"{count} octets")
    _need(value, 4 + count, "octet sequence")
    return value[4 : 4 + count]


def encode_octets(octets: bytes, little_endian: bool = True) -> bytes:
    return _U32[little_endian].pack(len(octets)) + octets + bytes(-len(octets) & 3)


def decode_i16_sequence(value: bytes, little_endian: bool) -> tuple[int, ...]:
    """sequence<short>: DATA_REPRESENTATION. Bytes behind it (a vendor's compression mask) are ignored."""
    count = decode_u32(value, little_endian)
    _need(value, 4 + 2 * count, "short sequence")
    shorts = _I16[little_endian].iter_unpack(value[4 : 4 + 2 * count])
    return tuple(short for (short,) in shorts)


def encode_i16_sequence(numbers: Iterable[int], little_endian: bool = True) -> bytes:
    shorts = b"".join(map(_I16[little_endian].pack, numbers))
    return _U32[little_endian].pack(len(shorts) // 2) + shorts + bytes(-len(shorts) & 3)


def decode_strings(value: bytes, little_endian: bool) -> tuple[str, ...]:
    """sequence<string>: PARTITION."""
    count = decode_u32(value, little_endian)
    if count > PARTITIONS_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, f"{count} strings")
    return tuple(_strings_at(value, 4, count, little_endian))


def encode_strings(texts: Iterable[str], little_endian: bool = True) -> bytes:
    strings = [encode_string(text, little_endian) for text in texts]
    return _U32[little_endian].pack(len(strings)) + b"".join(strings)


def decode_properties(value: bytes, little_endian: bool) -> tuple[tuple[str, str], ...]:
    """sequence<Property_t>: (name, value) pairs. Binary properties after them are ignored."""
    count = decode_u32(value, little_endian)
    strings = _strings_at(value, 4, 2 * count, little_endian)
    return tuple(zip(strings[::2], strings[1::2], strict=True))


def encode_properties(properties: Iterable[tuple[str, str]], little_endian: bool = True) -> bytes:
    strings = [encode_string(text, little_endian) for each in properties for text in each]
    return _U32[little_endian].pack(len(strings) // 2) + b"".join(strings)


def decode_type_consistency(value: bytes, little_endian: bool) -> tuple[int, tuple[bool, ...]]:
    """The kind, and the five flags of TypeConsistencyEnforcementQosPolicy in their order; no flags if they are missing,
    since senders of XTypes 1.1 omit them (XTypes 1.3 §7.6.3.4.1)."""
    _need(value, 2, "type consistency")
    kind = int.from_bytes(value[:2], "little" if little_endian else "big")
    flags = tuple(byte != 0 for byte in value[2:7])
    return kind, flags if len(flags) == 5 else ()


def encode_type_consistency(kind: int, flags: Iterable[bool], little_endian: bool = True) -> bytes:
    return kind.to_bytes(2, "little" if little_endian else "big") + bytes(flags) + b"\x00"


def decode_content_filter(
    value: bytes, little_endian: bool
) -> tuple[tuple[str, str, str, str], tuple[str, ...]]:
    """ContentFilterProperty_t: the four strings, and the expression's parameters (RTPS 2.5 §9.6.2.2)."""
    texts, at = _strings_from(value, 0, 4, little_endian)
    count = decode_u32(value[at : at + 4], little_endian)
    if count > FILTER_PARAMETERS_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, f"{count} parameters of a filter")
    name, related, filter_class, expression = texts
    parameters = _strings_at(value, at + 4, count, little_endian)
    return (name, related, filter_class, expression), tuple(parameters)


def encode_content_filter(
    texts: tuple[str, str, str, str], parameters: Iterable[str], little_endian: bool = True
) -> bytes:
    strings = b"".join(encode_string(text, little_endian) for text in texts)
    return strings + encode_strings(parameters, little_endian)


def _strings_at(value: bytes, at: int, count: int, little_endian: bool) -> list[str]:
    return _strings_from(value, at, count, little_endian)[0]


def _strings_from(value: bytes, at: int, count: int, little_endian: bool) -> tuple[list[str], int]:
    """``count`` strings from ``at`` on, and the end of the last one with its padding."""
    _need(value, at + 4 * count, "string sequence")  # before any loop: a string takes 4 bytes at least
    strings: list[str] = []
    for _ in range(count):
        text, at = _string_at(value, at, little_endian)
        strings.append(text)
    return strings, at


def _string_at(value: bytes, at: int, little_endian: bool) -> tuple[str, int]:
    """The string at ``at`` (4-aligned) and the offset of the next one."""
    length = decode_u32(value[at : at + 4], little_endian)
    if length > STRING_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, f"string of {length} bytes")
    start = at + 4
    stop = start + length
    _need(value, stop, "string")
    if length and value[stop - 1]:
        raise DecodeError(DropReason.BAD_PARAMETER, "string without closing NUL")
    # Some senders do not count the NUL: their empty string has length 0. DDS names no encoding: no bytes are refused.
    return value[start : max(stop - 1, start)].decode(errors="replace"), stop + (-stop & 3)
