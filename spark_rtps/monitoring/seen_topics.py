"""The participants and endpoints seen on a domain, as ``spark-rtps ls`` and a receiver show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ..transport.structure import INFINITE
from ..transport.value_classes import value
from .untrusted_json import NUMBER_MAX, parse_entries, parse_list, parse_number, parse_object, parse_text

if TYPE_CHECKING:
    from ..transport.protocol.discovery.participant_data import ParticipantData
    from ..transport.protocol.participant.participant import RemoteEndpoint
    from ..transport.qos import Qos

#: Common vendor ids (assigned by the OMG).
_VENDORS: Final = {
    b"\x01\x01": "RTI Connext",
    b"\x01\x02": "OpenSplice",
    b"\x01\x03": "OpenDDS",
    b"\x01\x07": "CoreDX",
    b"\x01\x0f": "Fast DDS",
    b"\x01\x10": "Cyclone DDS",
    b"\x01\x11": "GurumDDS",
    b"\x01\x12": "RustDDS",
    b"\x01\x7e": "spark-rtps",
}
_ENTRIES_MAX: Final = 1 << 16
_WORDS_MAX: Final = 64


@value
class SeenParticipant:
    """A participant as it announces itself; ``addresses`` are those of its data."""

    guid_prefix: str
    name: str
    vendor: str
    version: str
    lease_duration_s: float
    addresses: tuple[str, ...]


@value
class SeenEndpoint:
    """A reader or a writer (``kind``); ``qos`` in DDS's words, its participant by name or GUID prefix."""

    guid: str
    kind: str
    topic: str
    type: str
    qos: tuple[str, ...]
    participant: str


@value
class SeenTopics:
    """The participants and endpoints seen on a domain."""

    domain: int
    participants: tuple[SeenParticipant, ...]
    endpoints: tuple[SeenEndpoint, ...]

    @classmethod
    def describe(
        cls, domain: int, participants: Iterable[ParticipantData], endpoints: Iterable[RemoteEndpoint]
    ) -> SeenTopics:
        """Build it from the discovered participants and endpoints."""
        found = list(participants)
        names = {p.guid_prefix: name_of(p) for p in found}
        return cls(
            domain,
            tuple(map(_participant, found)),
            tuple(_endpoint(e, names.get(e.guid.prefix, "")) for e in endpoints),
        )

    @classmethod
    def parse(cls, raw: bytes) -> SeenTopics:
        """Parse the output of :meth:`as_json`. Raises ValueError."""
        found = parse_object(raw)
        return cls(
            parse_number(found.get("domain")),
            tuple(parse_list(found.get("participants"), _parse_participant, _ENTRIES_MAX)),
            tuple(parse_list(found.get("endpoints"), _parse_endpoint, _ENTRIES_MAX)),
        )

    def as_json(self) -> dict[str, Any]:
        """The output of ``spark-rtps ls --json``."""
        return asdict(self)


def vendor_name(vendor: bytes) -> str:
    """``Cyclone DDS``, or the number of an unknown vendor."""
    return _VENDORS.get(vendor, ".".join(f"{byte:02x}" for byte in vendor))


def name_of(participant: ParticipantData) -> str:
    """Its entity name; else the process and host among its properties, which are all that Cyclone DDS announces."""
    if participant.name:
        return participant.name
    properties = dict(participant.properties)
    return "@".join(filter(None, (properties.get("__ProcessName"), properties.get("__Hostname"))))


def qos_words(qos: Qos) -> list[str]:
    """The policies that decide about a match, in DDS's words, without those that have their default value."""
    from ..transport.qos import DataRepresentation, LivelinessKind, OwnershipKind

    words = [qos.reliability.name.lower(), qos.durability.name.lower()]
    words.append("keep_all" if qos.history.name == "KEEP_ALL" else f"keep_last({qos.history_depth})")
    if qos.ownership is not OwnershipKind.SHARED:
        words.append(f"ownership={qos.ownership.name.lower()}")
    if qos.liveliness is not LivelinessKind.AUTOMATIC:
        words.append(f"liveliness={qos.liveliness.name.lower()}")
    for name in ("deadline", "lifespan", "liveliness_lease_duration"):
        nanoseconds = getattr(qos, name)
        if nanoseconds < INFINITE:
            words.append(f"{name}={nanoseconds / 1e9:g}s")
    if qos.partition:
        words.append(f"partition={','.join(qos.partition)}")
    if qos.data_representation:
        known = {int(r): r.name.lower() for r in DataRepresentation}
        words.append("+".join(known.get(int(r), str(int(r))) for r in qos.data_representation))
    return words


def _participant(seen: ParticipantData) -> SeenParticipant:
    locators = seen.default_unicast or seen.metatraffic_unicast
    return SeenParticipant(
        seen.guid_prefix.hex(),
        name_of(seen),
        vendor_name(seen.vendor),
        f"{seen.version[0]}.{seen.version[1]}",
        seen.lease_duration / 1e9,
        tuple(map(str, locators)),
    )


def _endpoint(seen: RemoteEndpoint, name: str) -> SeenEndpoint:
    return SeenEndpoint(
        str(seen.guid),
        seen.kind,
        seen.topic,
        seen.type_name,
        tuple(qos_words(seen.qos)),
        seen.participant_name or name or seen.guid.prefix.hex(),
    )


def _parse_participant(raw: dict[str, Any]) -> SeenParticipant:
    lease = raw.get("lease_duration_s")
    if not isinstance(lease, int | float) or isinstance(lease, bool) or not abs(lease) <= NUMBER_MAX:
        raise ValueError(f"a lease has to be a number, not {lease!r:.40}")
    return SeenParticipant(
        parse_text(raw.get("guid_prefix")),
        parse_text(raw.get("name")),
        parse_text(raw.get("vendor")),
        parse_text(raw.get("version")),
        float(lease),
        _texts(raw.get("addresses")),
    )


def _parse_endpoint(raw: dict[str, Any]) -> SeenEndpoint:
    return SeenEndpoint(
        parse_text(raw.get("guid")),
        parse_text(raw.get("kind")),
        parse_text(raw.get("topic")),
        parse_text(raw.get("type")),
        _texts(raw.get("qos")),
        parse_text(raw.get("participant")),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(parse_entries(value, parse_text, _WORDS_MAX))
