"""``spark-rtps type``: the type of a topic, as its peers announce it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..transport.errors import UnknownTypeError
from ..transport.value_classes import value
from .network import Domain, Interface, Peers, joined, seconds
from .receivers import Access, Ca, Certificate, Key, Receiver, TokenFile, only_here, recorded, served_at
from .tables import visible

if TYPE_CHECKING:
    from ..columns.type_sources import TopicType
    from ..serving.wire_format.served import Served
    from ..transport.types.model import Struct

#: Keys that list why the user's type cannot read or write the topic, and the verb of each.
_ABILITIES: Final = (("cannot_read_it", "read"), ("cannot_write_it", "write"))


def show_type(
    topic: Annotated[
        str, typer.Argument(help="Name of the topic; with --receiver of the subscription or of its topic.")
    ],
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            exists=True,
            dir_okay=False,
            help="IDL or .msg file: whether a source and a sink with it can read and write the topic. "
            "The exit code is 1 if not.",
        ),
    ] = None,
    include_path: Annotated[
        list[Path] | None,
        typer.Option("--include-path", help="Another folder from which that file may include. Repeatable."),
    ] = None,
    type_name: Annotated[str | None, typer.Option("--type", help="Name of the type in that file.")] = None,
    wait: Annotated[
        str, typer.Option("--wait", "-w", help="How long to wait for the type: 500ms, 10s, 5min.")
    ] = "10s",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    domain: Domain = 0,
    interface: Interface = None,
    peers: Peers = "",
    receiver: Receiver = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
) -> None:
    """Print the type of a topic as IDL and as a Spark schema, and whether a type of yours can read or write it.

    Structs without an extensibility annotation are treated as by type.extensibility=auto.
    """
    from ..columns.type_sources import type_of_file

    patience = seconds(wait, "--wait")
    mine = None
    if against is not None:
        mine = type_of_file(str(against), type_name, include_path=map(str, include_path or ()))
    if receiver is not None:
        for given, option in ((domain, "--domain"), (interface, "--interface"), (peers, "--peers")):
            only_here(given, option)
        found = _recorded(served_at([receiver], Access(token_file, ca, certificate, key))[0], topic)
    else:
        with joined(domain, interface, peers, name="spark-rtps type") as participant:
            announced_type = participant.discover_type(topic, timeout=patience)
        if announced_type.struct is None:
            raise UnknownTypeError(f"topic {topic!r}: {announced_type.failure}")
        endpoint = announced_type.endpoint
        announced_by = f"{endpoint.kind} {endpoint.participant_name or endpoint.guid}"
        found = _FoundType(
            endpoint.topic,
            announced_by,
            announced_type.type_name,
            announced_type.keyed,
            announced_type.struct,
        )
    described = _described(found, mine)
    typer.echo(json.dumps(described, indent=2) if as_json else visible(_text(described)))
    if any(described.get(key) for key, _ in _ABILITIES):
        raise typer.Exit(1)


@value
class _FoundType:
    """The type of a topic, and the endpoint that announces it."""

    topic: str
    announced_by: str
    type_name: str
    keyed: bool
    struct: Struct


def _recorded(served: Served, name: str) -> _FoundType:
    """The type that most writers in the log of a receiver's subscription announced."""
    from ..transport.structure import is_keyed

    with recorded(served, name) as (one, log):
        announced_type = {
            writer: struct for writer, struct in log.writer_types().by_writer.items() if struct is not None
        }
    if not announced_type:
        raise UnknownTypeError(f"subscription {one.name!r}: no writer in its log has announced a type")
    ((struct, _), *others) = Counter(announced_type.values()).most_common()
    if others:
        typer.echo(f"{len(others)} more types are announced by other writers", err=True)
    writer = next(each for each, its in announced_type.items() if its == struct)
    type_name, keyed = one.type or struct.name, is_keyed(writer.entity)
    return _FoundType(one.topic, f"writer {writer}", type_name, keyed, struct)


def _described(found: _FoundType, mine: TopicType | None) -> dict[str, object]:
    from ..columns.compatibility import cannot_read, cannot_write
    from ..columns.type_sources import TopicType
    from ..transport.types.idl.printer import print_idl

    described: dict[str, object] = {
        "topic": found.topic,
        "type": found.type_name,
        "told_by": found.announced_by,
        "idl": print_idl(found.struct),
        "schema": _spark_schema(found.struct),
    }
    if mine is not None:
        topic = TopicType(found.type_name, found.keyed, found.struct)
        described["against"] = mine.type_name
        described["cannot_read_it"] = list(cannot_read(topic, mine))
        described["cannot_write_it"] = list(cannot_write(topic, mine))
    return described


def _spark_schema(struct: Struct) -> str | None:
    """The columns as Spark writes them; None without PySpark, as on a receiver's host."""
    from ..transport.types.arrow import arrow_schema

    try:
        from ..datasource.schema import to_spark
    except ModuleNotFoundError:
        return None
    columns = to_spark(arrow_schema(struct))
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in columns)


def _text(described: dict[str, object]) -> str:
    lines = [
        f"// topic {described['topic']}, type {described['type']}, announced by {described['told_by']}",
        str(described["idl"]),
    ]
    if described["schema"] is not None:
        lines += ["-- as a Spark schema", str(described["schema"])]
    for key, able in _ABILITIES:
        reasons = described.get(key)
        if isinstance(reasons, list):
            can = "cannot" if reasons else "can"
            lines += ["", f"-- {described['against']} {can} {able} this topic", *map(str, reasons)]
    return "\n".join(lines)
