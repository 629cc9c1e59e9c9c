"""The nouns of the RTPS structure module: GUIDs, locators, ports, time (RTPS 2.5 §8.2, §9.3, §9.6)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# --- time: integer nanoseconds everywhere; transport.wire converts to and from the wire -----------

NANOSECONDS: Final = 1_000_000_000
#: An unlimited duration, number of bytes or of samples, everywhere in this package. Options have their own words
#: for it, and RTPS has -1 and DURATION_INFINITE on the wire.
INFINITE: Final = (1 << 63) - 1

PROTOCOL_VERSION: Final = (2, 5)
#: Not assigned by the OMG: peers special-case the vendors they know (facts of several stacks).
VENDOR_ID: Final = b"\x01\x7e"
VENDOR_CYCLONE: Final = b"\x01\x10"
VENDOR_FAST_DDS: Final = b"\x01\x0f"
VENDOR_RTI: Final = b"\x01\x01"


GUID_BYTES: Final = 16
KEY_HASH_BYTES: Final = 16

#: As `Guid` prints it.
_GUID: Final = re.compile(r"([0-9a-f]{8})\.([0-9a-f]{8})\.([0-9a-f]{8}):([0-9a-f]{8})")


class Guid(NamedTuple):
    """A GUID: 12-byte prefix of the participant and 4-byte entity id (RTPS 2.5 §8.2.4.1)."""

    prefix: bytes
    entity: bytes

    def to_bytes(self) -> bytes:
        return self.prefix + self.entity

    @classmethod
    def from_bytes(cls, raw: bytes) -> Guid:
        return cls(raw[:12], raw[12:16])

    @classmethod
    def parse(cls, text: str) -> Guid | None:
        """Parse the text that ``str`` makes of a GUID; None if it is no such text."""
        found = _GUID.fullmatch(text)
        return None if found is None else cls.from_bytes(bytes.fromhex("".join(found.groups())))

    def __str__(self) -> str:
        p = self.prefix.hex()
        return f"{p[:8]}.{p[8:16]}.{p[16:]}:{self.entity.hex()}"


PREFIX_UNKNOWN: Final = bytes(12)

# Entity ids (RTPS 2.5 §9.3.1.3, table 9.2)
ENTITYID_UNKNOWN: Final = bytes(4)
GUID_UNKNOWN: Final = Guid(PREFIX_UNKNOWN, ENTITYID_UNKNOWN)
ENTITYID_PARTICIPANT: Final = b"\x00\x00\x01\xc1"
ENTITYID_SEDP_PUBLICATIONS_WRITER: Final = b"\x00\x00\x03\xc2"
ENTITYID_SEDP_PUBLICATIONS_READER: Final = b"\x00\x00\x03\xc7"
ENTITYID_SEDP_SUBSCRIPTIONS_WRITER: Final = b"\x00\x00\x04\xc2"
ENTITYID_SEDP_SUBSCRIPTIONS_READER: Final = b"\x00\x00\x04\xc7"
ENTITYID_SPDP_WRITER: Final = b"\x00\x01\x00\xc2"
ENTITYID_P2P_MESSAGE_WRITER: Final = b"\x00\x02\x00\xc2"
ENTITYID_P2P_MESSAGE_READER: Final = b"\x00\x02\x00\xc7"
ENTITYID_TYPE_LOOKUP_REQUEST_WRITER: Final = b"\x00\x03\x00\xc3"
ENTITYID_TYPE_LOOKUP_REQUEST_READER: Final = b"\x00\x03\x00\xc4"
ENTITYID_TYPE_LOOKUP_REPLY_WRITER: Final = b"\x00\x03\x01\xc3"
ENTITYID_TYPE_LOOKUP_REPLY_READER: Final = b"\x00\x03\x01\xc4"

# Entity kinds of user-defined endpoints (RTPS 2.5 table 9.1)
KIND_WRITER_WITH_KEY: Final = 0x02
KIND_WRITER_NO_KEY: Final = 0x03
KIND_READER_NO_KEY: Final = 0x04
KIND_READER_WITH_KEY: Final = 0x07


def is_builtin(entity: bytes) -> bool:
    """Whether an entity id is one of the reserved (built-in) ones."""
    return (entity[3] & 0xC0) == 0xC0


def is_writer(entity: bytes) -> bool:
    """Whether an entity id belongs to a writer, of any origin."""
    return (entity[3] & 0x3F) in (KIND_WRITER_WITH_KEY, KIND_WRITER_NO_KEY)


def is_keyed(entity: bytes) -> bool:
    """Whether an entity id belongs to an endpoint whose type has a key."""
    return (entity[3] & 0x3F) in (KIND_WRITER_WITH_KEY, KIND_READER_WITH_KEY)


LOCATOR_KIND_UDPV4: Final = 1
LOCATOR_KIND_UDPV6: Final = 2


class Locator(NamedTuple):
    """Where to send: an IP address in text form and a UDP port (RTPS 2.5 §9.3.2)."""

    address: str
    port: int
    kind: int = LOCATOR_KIND_UDPV4
    #: For a multicast group: our address on the interface to send through; empty: all interfaces. It is never sent.
    via: str = ""

    @property
    def is_multicast(self) -> bool:
        """Whether the address is in 224.0.0.0/4; the property is read for every datagram."""
        return 224 <= int(self.address.partition(".")[0]) < 240

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


# --- ports (RTPS 2.5 §9.6.2.3) --------------------------------------------------------------------

PORT_BASE: Final = 7400
DOMAIN_ID_GAIN: Final = 250
PARTICIPANT_ID_GAIN: Final = 2
#: Highest domain whose ports stay below 65536.
DOMAIN_MAX: Final = 232
#: Also of the default group for samples.
SPDP_MULTICAST_ADDRESS: Final = "239.255.0.1"


def spdp_multicast_port(domain: int) -> int:
    return PORT_BASE + DOMAIN_ID_GAIN * domain


def user_multicast_port(domain: int) -> int:
    return PORT_BASE + DOMAIN_ID_GAIN * domain + 1


def metatraffic_unicast_port(domain: int, participant_index: int) -> int:
    return PORT_BASE + DOMAIN_ID_GAIN * domain + 10 + PARTICIPANT_ID_GAIN * participant_index


def user_unicast_port(domain: int, participant_index: int) -> int:
    return PORT_BASE + DOMAIN_ID_GAIN * domain + 11 + PARTICIPANT_ID_GAIN * participant_index


# --- multicast groups -----------------------------------------------------------------------------


def default_group(domain: int) -> Locator:
    """Where a domain's samples are sent by multicast, unless a reader names another group (RTPS 2.5 §9.6.2.3)."""
    return Locator(SPDP_MULTICAST_ADDRESS, user_multicast_port(domain))


def is_of_discovery(group: Locator) -> bool:
    """Whether participants of any domain announce themselves to this group."""
    return group.address == SPDP_MULTICAST_ADDRESS and (group.port - PORT_BASE) % DOMAIN_ID_GAIN == 0


def is_for_routers(group: Locator) -> bool:
    """Whether the group is in 224.0.0.0/24 (RFC 5771 §4), which switches always flood and readers do not use."""
    return group.address.startswith("224.0.0.")
