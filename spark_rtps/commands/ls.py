"""``spark-rtps ls``: the participants of a domain, and what they read and write."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from .network import Domain, Interface, Peers, joined, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..transport.protocol.discovery.participant_data import ParticipantData
    from ..transport.protocol.participant import RemoteEndpoint
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


def ls(
    domain: Domain = 0,
    interface: Interface = None,
    peers: Peers = "",
    wait: Annotated[str, typer.Option("--wait", "-w", help="How long to listen: 500ms, 3s, 5min.")] = "3s",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the participants, topics, types and QoS seen on a domain."""
    patience = seconds(wait, "--wait")
    with joined(domain, interface, peers, name="spark-rtps ls") as participant:
        time.sleep(patience)
        participants, endpoints = participant.participants(), participant.endpoints()
    if as_json:
        typer.echo(json.dumps(_as_json(domain, participants, endpoints), indent=2))
    else:
        _print_tables(domain, patience, participants, endpoints)


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
        if not _is_infinite(nanoseconds):
            words.append(f"{name}={nanoseconds / 1e9:g}s")
    if qos.partition:
        words.append(f"partition={','.join(qos.partition)}")
    if qos.data_representation:
        known = {int(r): r.name.lower() for r in DataRepresentation}
        words.append("+".join(known.get(int(r), str(int(r))) for r in qos.data_representation))
    return words


def _is_infinite(nanoseconds: int) -> bool:
    from ..transport.structure import INFINITE

    return nanoseconds >= INFINITE


def _addresses(participant: ParticipantData) -> list[str]:
    locators = participant.default_unicast or participant.metatraffic_unicast
    return [str(locator) for locator in locators]


def _as_json(
    domain: int, participants: Sequence[ParticipantData], endpoints: Sequence[RemoteEndpoint]
) -> dict[str, object]:
    return {
        "domain": domain,
        "participants": [
            {
                "guid_prefix": p.guid_prefix.hex(),
                "name": name_of(p),
                "vendor": vendor_name(p.vendor),
                "version": f"{p.version[0]}.{p.version[1]}",
                "lease_duration_s": p.lease_duration / 1e9,
                "addresses": _addresses(p),
            }
            for p in participants
        ],
        "endpoints": [
            {
                "guid": str(e.guid),
                "kind": e.kind,
                "topic": e.topic,
                "type": e.type_name,
                "qos": qos_words(e.qos),
            }
            for e in endpoints
        ],
    }


def _print_tables(
    domain: int, patience: float, participants: Sequence[ParticipantData], endpoints: Sequence[RemoteEndpoint]
) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not participants:
        console.print(f"no participant seen on domain {domain} within {patience:g} s")
        return
    table = Table(title=f"participants of domain {domain}", title_justify="left")
    for column in ("GUID prefix", "name", "vendor", "address"):
        table.add_column(column, overflow="fold")
    for p in participants:
        cells = (p.guid_prefix.hex(), name_of(p), vendor_name(p.vendor), "\n".join(_addresses(p)))
        table.add_row(*map(escape, cells))
    console.print(table)
    table = Table(title="topics", title_justify="left")
    for column in ("topic", "type", "", "QoS", "participant"):
        table.add_column(column, overflow="fold")
    names = {p.guid_prefix: name_of(p) for p in participants}
    for e in endpoints:
        participant = e.participant_name or names.get(e.guid.prefix) or e.guid.prefix.hex()
        row = (e.topic, e.type_name, e.kind, ", ".join(qos_words(e.qos)), participant)
        table.add_row(*map(escape, row))
    console.print(table)
