"""``spark-rtps type``: the type of a topic, as its peers tell it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..transport.errors import UnknownTypeError
from .network import Domain, Interface, Peers, joined, seconds

if TYPE_CHECKING:
    from ..transport.net.topic_types import ToldType
    from ..transport.types.model import Struct


def show_type(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            exists=True,
            dir_okay=False,
            help="IDL or .msg file: can it read this topic, and write to it?",
        ),
    ] = None,
    type_name: Annotated[str | None, typer.Option("--type", help="Name of the type in that file.")] = None,
    wait: Annotated[str, typer.Option("--wait", "-w", help="How long to wait for it: 500ms, 10s.")] = "10s",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    domain: Domain = 0,
    interface: Interface = None,
    peers: Peers = "",
) -> None:
    """Print the type of a topic: as IDL, as a Spark schema, and whether a type of yours can read or write it."""
    from ..datasource.type_files import struct_of_file
    from ..transport.net.topic_types import await_type
    from ..transport.types.model import Extensibility

    patience = seconds(wait, "--wait")
    mine = None if against is None else struct_of_file(str(against), type_name, Extensibility.APPENDABLE)
    with joined(domain, interface, peers, name="spark-rtps type", resolve_types=True) as node:
        found = await_type(node, topic, timeout=patience)
    if found.struct is None:
        raise UnknownTypeError(f"topic {topic!r}: {found.failure}")
    said = _said(found, found.struct, mine)
    typer.echo(json.dumps(said, indent=2) if as_json else _text(said))


def _said(found: ToldType, struct: Struct, mine: Struct | None) -> dict[str, object]:
    from ..datasource.schema import to_spark
    from ..transport.qos import TypeConsistency
    from ..transport.types.arrow import arrow_schema
    from ..transport.types.idl.printer import print_idl
    from ..transport.types.xtypes.assignability import incompatibilities_of_types

    endpoint = found.endpoint
    columns = to_spark(arrow_schema(struct))
    said: dict[str, object] = {
        "topic": endpoint.topic,
        "type": found.type_name,
        "told_by": f"{endpoint.kind} {endpoint.participant_name or endpoint.guid}",
        "idl": print_idl(struct),
        "schema": ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in columns),
    }
    if mine is not None:
        consistency = TypeConsistency()
        said["against"] = mine.name
        said["cannot_read_it"] = list(incompatibilities_of_types(struct, mine, consistency))
        said["cannot_write_it"] = list(incompatibilities_of_types(mine, struct, consistency))
    return said


def _text(said: dict[str, object]) -> str:
    lines = [f"// topic {said['topic']}, type {said['type']}, told by {said['told_by']}", str(said["idl"])]
    lines += ["-- as a Spark schema", str(said["schema"])]
    for key, able in (("cannot_read_it", "read"), ("cannot_write_it", "write")):
        reasons = said.get(key)
        if isinstance(reasons, list):
            can = "cannot" if reasons else "can"
            lines += ["", f"-- {said['against']} {can} {able} this topic", *map(str, reasons)]
    return "\n".join(lines)
