"""SPDPdiscoveredParticipantData and its parameter list (RTPS 2.5 §8.5.3.2, §9.6.2.2, table 9.14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...errors import DecodeError, DropReason
from ...limits import LEASE_MAX_NS, LOCATORS_MAX
from ...structure import (
    ENTITYID_PARTICIPANT,
    LOCATOR_KIND_UDPV4,
    LOCATOR_KIND_UDPV6,
    NANOSECONDS,
    PROTOCOL_VERSION,
    VENDOR_CYCLONE,
    VENDOR_ID,
    Guid,
    Locator,
)
from ...wire import parameters as p

# BuiltinEndpointSet_t (RTPS 2.5 §9.3.2, table 9.4)
PARTICIPANT_ANNOUNCER: Final = 1 << 0
PARTICIPANT_DETECTOR: Final = 1 << 1
PUBLICATIONS_ANNOUNCER: Final = 1 << 2
PUBLICATIONS_DETECTOR: Final = 1 << 3
SUBSCRIPTIONS_ANNOUNCER: Final = 1 << 4
SUBSCRIPTIONS_DETECTOR: Final = 1 << 5
PARTICIPANT_MESSAGE_WRITER: Final = 1 << 10
PARTICIPANT_MESSAGE_READER: Final = 1 << 11
# XTypes 1.3 §7.6.3.3.4, table 66
TYPE_LOOKUP_REQUEST_WRITER: Final = 1 << 12
TYPE_LOOKUP_REQUEST_READER: Final = 1 << 13
TYPE_LOOKUP_REPLY_WRITER: Final = 1 << 14
TYPE_LOOKUP_REPLY_READER: Final = 1 << 15
#: The built-in endpoints that we have: all standard ones.
BUILTIN_ENDPOINTS: Final = (
    PARTICIPANT_ANNOUNCER
    | PARTICIPANT_DETECTOR
    | PUBLICATIONS_ANNOUNCER
    | PUBLICATIONS_DETECTOR
    | SUBSCRIPTIONS_ANNOUNCER
    | SUBSCRIPTIONS_DETECTOR
    | PARTICIPANT_MESSAGE_WRITER
    | PARTICIPANT_MESSAGE_READER
    | TYPE_LOOKUP_REQUEST_WRITER
    | TYPE_LOOKUP_REQUEST_READER
    | TYPE_LOOKUP_REPLY_WRITER
    | TYPE_LOOKUP_REPLY_READER
)

#: RTPS 2.5 table 9.13: the meaning of an absent PID_PARTICIPANT_LEASE_DURATION.
LEASE_DEFAULT: Final = 100 * NANOSECONDS
#: A shorter lease is lengthened to this, or the participant would be found and lost repeatedly.
LEASE_MIN: Final = NANOSECONDS // 10

#: The numbers before the text of PID_PARTICIPANT_VERSION_INFO.
_VERSION_INFO_NUMBERS: Final = 5 * 4
#: Cyclone DDS announces RTPS 2.1 up to this release; early builds of the next one did, too, with a product version.
_CYCLONE_WITHOUT_INT8: Final = (0, 10)
_RTPS_OF_CYCLONE_WITHOUT_INT8: Final = (2, 1)
_PRODUCT_VERSION_MAX: Final = 32

_UNDERSTOOD: Final = frozenset(
    {
        p.PID_PROTOCOL_VERSION,
        p.PID_VENDOR_ID,
        p.PID_PARTICIPANT_GUID,
        p.PID_BUILTIN_ENDPOINT_SET,
        p.PID_BUILTIN_ENDPOINT_QOS,
        p.PID_PARTICIPANT_LEASE_DURATION,
        p.PID_METATRAFFIC_UNICAST_LOCATOR,
        p.PID_METATRAFFIC_MULTICAST_LOCATOR,
        p.PID_DEFAULT_UNICAST_LOCATOR,
        p.PID_DEFAULT_MULTICAST_LOCATOR,
        p.PID_DOMAIN_ID,
        p.PID_DOMAIN_TAG,
        p.PID_ENTITY_NAME,
        p.PID_PROPERTY_LIST,
        p.PID_USER_DATA,
        p.PID_EXPECTS_INLINE_QOS,
        p.PID_PARTICIPANT_MANUAL_LIVELINESS_COUNT,
        p.PID_KEY_HASH,
    }
)


@dataclass(frozen=True, slots=True)
class ParticipantData:
    """What a participant announces about itself."""

    guid_prefix: bytes
    vendor: bytes = VENDOR_ID
    version: tuple[int, int] = PROTOCOL_VERSION
    builtin_endpoints: int = BUILTIN_ENDPOINTS
    lease_duration: int = LEASE_DEFAULT
    metatraffic_unicast: tuple[Locator, ...] = ()
    metatraffic_multicast: tuple[Locator, ...] = ()
    default_unicast: tuple[Locator, ...] = ()
    default_multicast: tuple[Locator, ...] = ()
    domain: int | None = None
    domain_tag: str = ""
    name: str = ""
    properties: tuple[tuple[str, str], ...] = ()
    user_data: bytes = b""
    #: The version of the DDS software, if its vendor announces it.
    product_version: str = ""

    @property
    def guid(self) -> Guid:
        return Guid(self.guid_prefix, ENTITYID_PARTICIPANT)

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses at which it announces that it can be reached."""
        return frozenset(locator.address for locator in (*self.metatraffic_unicast, *self.default_unicast))

    @property
    def crashes_on_int8(self) -> bool:
        """Whether it does not know TK_INT8 and TK_UINT8 (XTypes 1.3 annex B): Cyclone DDS up to 0.10 crashes when it
        requests a type with such members."""
        if self.vendor != VENDOR_CYCLONE:
            return False
        numbers = self.product_version.split(".")[:2]
        if len(numbers) == 2 and all(each.isascii() and each.isdigit() for each in numbers):
            return tuple(map(int, numbers)) <= _CYCLONE_WITHOUT_INT8
        return self.version <= _RTPS_OF_CYCLONE_WITHOUT_INT8


def encode_participant(data: ParticipantData) -> bytes:
    """The payload of an SPDP sample, encapsulation header included."""
    parameters: list[tuple[int, bytes]] = [
        (p.PID_PROTOCOL_VERSION, bytes(data.version) + bytes(2)),
        (p.PID_VENDOR_ID, data.vendor + bytes(2)),
        (p.PID_PARTICIPANT_GUID, p.encode_guid(data.guid)),
        (p.PID_BUILTIN_ENDPOINT_SET, p.encode_u32(data.builtin_endpoints)),
        (p.PID_PARTICIPANT_LEASE_DURATION, p.encode_duration(data.lease_duration)),
    ]
    if data.domain is not None:
        parameters.append((p.PID_DOMAIN_ID, p.encode_u32(data.domain)))
    if data.domain_tag:
        parameters.append((p.PID_DOMAIN_TAG, p.encode_string(data.domain_tag)))
    for pid, locators in (
        (p.PID_METATRAFFIC_UNICAST_LOCATOR, data.metatraffic_unicast),
        (p.PID_METATRAFFIC_MULTICAST_LOCATOR, data.metatraffic_multicast),
        (p.PID_DEFAULT_UNICAST_LOCATOR, data.default_unicast),
        (p.PID_DEFAULT_MULTICAST_LOCATOR, data.default_multicast),
    ):
        parameters += [(pid, p.encode_locator(locator)) for locator in locators]
    if data.name:
        parameters.append((p.PID_ENTITY_NAME, p.encode_string(data.name)))
    if data.properties:
        parameters.append((p.PID_PROPERTY_LIST, p.encode_properties(data.properties)))
    if data.user_data:
        parameters.append((p.PID_USER_DATA, p.encode_octets(data.user_data)))
    return p.encode_parameter_payload(parameters)


def decode_participant(payload: bytes | memoryview) -> ParticipantData:
    """The participant that the payload of an SPDP sample describes. Raises DecodeError."""
    parameters = p.decode_parameter_payload(memoryview(payload))
    little = parameters.little_endian
    refuse_not_understood(parameters, _UNDERSTOOD)
    guid = p.decode_guid(required(parameters, p.PID_PARTICIPANT_GUID))
    version = parameters.get(p.PID_PROTOCOL_VERSION) or bytes(PROTOCOL_VERSION)
    vendor = parameters.get(p.PID_VENDOR_ID) or bytes(2)
    if guid.entity != ENTITYID_PARTICIPANT or len(version) < 2 or len(vendor) < 2:
        raise DecodeError(DropReason.BAD_PARAMETER, "participant GUID, version or vendor")
    lease = parameters.get(p.PID_PARTICIPANT_LEASE_DURATION)
    lease_ns = LEASE_DEFAULT if lease is None else p.decode_duration(lease, little)
    domain = parameters.get(p.PID_DOMAIN_ID)
    tag = parameters.get(p.PID_DOMAIN_TAG)
    name = parameters.get(p.PID_ENTITY_NAME)
    user_data = parameters.get(p.PID_USER_DATA)
    return ParticipantData(
        guid.prefix,
        vendor[:2],
        (version[0], version[1]),
        p.decode_u32(required(parameters, p.PID_BUILTIN_ENDPOINT_SET), little),
        min(max(lease_ns, LEASE_MIN), LEASE_MAX_NS),
        locators_of(parameters, p.PID_METATRAFFIC_UNICAST_LOCATOR),
        locators_of(parameters, p.PID_METATRAFFIC_MULTICAST_LOCATOR),
        locators_of(parameters, p.PID_DEFAULT_UNICAST_LOCATOR),
        locators_of(parameters, p.PID_DEFAULT_MULTICAST_LOCATOR),
        None if domain is None else p.decode_u32(domain, little),
        "" if tag is None else p.decode_string(tag, little),
        "" if name is None else p.decode_string(name, little),
        _properties(parameters),
        b"" if user_data is None else p.decode_octets(user_data, little),
        _product_version(parameters) if vendor[:2] == VENDOR_CYCLONE else "",
    )


def encode_participant_key(prefix: bytes) -> bytes:
    """The serialized key of a participant, as in a dispose message (RTPS 2.5 §9.6.2.1)."""
    return p.encode_parameter_payload([(p.PID_PARTICIPANT_GUID, prefix + ENTITYID_PARTICIPANT)])


def decode_participant_key(payload: bytes | memoryview) -> Guid:
    """The participant that a dispose refers to. Raises DecodeError."""
    return p.decode_guid(required(p.decode_parameter_payload(memoryview(payload)), p.PID_PARTICIPANT_GUID))


def required(parameters: p.ParameterList, pid: int) -> bytes:
    """The value of a parameter that may not be missing."""
    value = parameters.get(pid)
    if value is None:
        raise DecodeError(DropReason.BAD_PARAMETER, f"parameter {pid:#06x} is missing")
    return value


def refuse_not_understood(parameters: p.ParameterList, understood: frozenset[int]) -> None:
    """Refuse data with an unknown must-understand parameter (RTPS 2.5 §9.6.2.2.1). Raises DecodeError."""
    unknown = parameters.unknown_must_understand(understood)
    if unknown:
        raise DecodeError(DropReason.BAD_PARAMETER, f"must understand {unknown[0]:#06x}")


def locators_of(parameters: p.ParameterList, pid: int) -> tuple[Locator, ...]:
    """The UDP locators under this parameter id, without broken ones and those of other transports.

    The limit counts for each kind by itself, so that unusable kinds leave space for usable ones.
    """
    found: list[Locator] = []
    room = dict.fromkeys((LOCATOR_KIND_UDPV4, LOCATOR_KIND_UDPV6), LOCATORS_MAX)
    for encoded in parameters.all(pid):
        try:
            locator = p.decode_locator(encoded, parameters.little_endian)
        except DecodeError:
            continue  # one bad address does not invalidate the others
        if locator is not None and room[locator.kind]:
            room[locator.kind] -= 1
            found.append(locator)
    return tuple(found)


def _properties(parameters: p.ParameterList) -> tuple[tuple[str, str], ...]:
    value = parameters.get(p.PID_PROPERTY_LIST)
    if value is None:
        return ()
    try:
        return p.decode_properties(value, parameters.little_endian)
    except DecodeError:
        return ()  # only for display: vendors put long and binary things in here


def _product_version(parameters: p.ParameterList) -> str:
    """The version that Cyclone DDS announces; "" if there is none, or not in the expected form."""
    value = parameters.get(p.PID_PARTICIPANT_VERSION_INFO)
    if value is None:
        return ""
    try:
        words = p.decode_string(value[_VERSION_INFO_NUMBERS:], parameters.little_endian).split("/")
    except DecodeError:
        return ""
    return words[1] if len(words) == 4 and len(words[1]) <= _PRODUCT_VERSION_MAX else ""
