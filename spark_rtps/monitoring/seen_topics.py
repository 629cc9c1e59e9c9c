"""The participants and endpoints that were seen on a domain, as ``spark-rtps ls`` and a receiver show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from ..transport.structure import INFINITE
from ..transport.value_classes import value
from .told import NUMBER_MAX, told_json, told_list, told_number, told_text

if TYPE_CHECKING:
    from ..transport.protocol.discovery.participant_data import ParticipantData
    from ..transport.protocol.participant.participant import RemoteEndpoint
    from ..transport.qos import Qos

#: Vendor ids (assigned by the OMG) one is likely to meet.
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
    """What was seen on a domain."""

    domain: int
    participants: tuple[SeenParticipant, ...]
    endpoints: tuple[SeenEndpoint, ...]

    @classmethod
    def of(
        cls, domain: int, participants: Iterable[ParticipantData], endpoints: Iterable[RemoteEndpoint]
    ) -> SeenTopics:
        """What a participant of ours sees of the others."""
        found = list(participants)
        names = {p.guid_prefix: name_of(p) for p in found}
        return cls(
            domain,
            tuple(map(_participant, found)),
            tuple(_endpoint(e, names.get(e.guid.prefix, "")) for e in endpoints),
        )

    @classmethod
    def told(cls, raw: bytes) -> SeenTopics:
        """What :meth:`as_json` made. Raises ValueError."""
        told = told_json(raw)
        return cls(
            told_number(told.get("domain")),
            tuple(told_list(told.get("participants"), _told_participant, _ENTRIES_MAX)),
            tuple(told_list(told.get("endpoints"), _told_endpoint, _ENTRIES_MAX)),
        )

    def as_json(self) -> dict[str, Any]:
        """What ``spark-rtps ls --json`` prints."""
        return asdict(self)


def vendor_name(vendor: bytes) -> str:
    """``Cyclone DDS``, or the number of an unknown vendor."""
    return _VENDORS.get(vendor, ".".join(f"{byte:02x}" for byte in vendor))


def name_of(participant: ParticipantData) -> str:
    """Its entity name; else the process and host among its properties, which are all that Cyclone DDS announces."""
    if participant.name:
        return participant.name
    said = dict(participant.properties)
    return "@".join(filter(None, (said.get("__ProcessName"), said.get("__Hostname"))))


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


def _told_participant(told: dict[str, Any]) -> SeenParticipant:
    lease = told.get("lease_duration_s")
    if not isinstance(lease, int | float) or isinstance(lease, bool) or not abs(lease) <= NUMBER_MAX:
        raise ValueError(f"a number has to be where {lease!r:.40} is")
    return SeenParticipant(
        told_text(told.get("guid_prefix")),
        told_text(told.get("name")),
        told_text(told.get("vendor")),
        told_text(told.get("version")),
        float(lease),
        _texts(told.get("addresses")),
    )


def _told_endpoint(told: dict[str, Any]) -> SeenEndpoint:
    return SeenEndpoint(
        told_text(told.get("guid")),
        told_text(told.get("kind")),
        told_text(told.get("topic")),
        told_text(told.get("type")),
        _texts(told.get("qos")),
        told_text(told.get("participant")),
    )


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _WORDS_MAX:
        raise ValueError(f"a list of at most {_WORDS_MAX} texts has to be where {value!r:.40} is")
    return tuple(map(told_text, value))
