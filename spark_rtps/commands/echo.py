"""``spark-rtps echo``: the samples of a topic, one JSON line each."""

from __future__ import annotations

import enum
import json
import math
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..transport.errors import TransportError, TypeDefinitionError, UnknownTypeError, UsageError
from .network import Domain, Interface, Peers, joined, seconds, seen_endpoints

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..transport.net.node import Node
    from ..transport.protocol.participant import RemoteEndpoint
    from ..transport.types.cdr.codec import Codec
    from ..transport.types.model import Struct
    from ..transport.wire.samples import Run

#: Bytes taken in but not yet printed; past that, reliable writers are slowed down.
_INBOX_BYTES: Final = 64 << 20
_LOOK_AGAIN_SECONDS: Final = 0.05
#: How long a writer's type is waited for.
_TYPE_SECONDS: Final = 3.0
_ENCAPSULATION_BYTES: Final = 4


class Unannotated(enum.Enum):
    APPENDABLE = "appendable"
    FINAL = "final"


def echo(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    type_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="IDL file with the type of the topic.")
    ] = None,
    type_name: Annotated[
        str | None,
        typer.Option("--type", help="Name of the type in the file; default: what the writer says."),
    ] = None,
    extensibility: Annotated[
        Unannotated,
        typer.Option(help="What structs of the file without an annotation are (Cyclone's idlc: final)."),
    ] = Unannotated.APPENDABLE,
    as_hex: Annotated[bool, typer.Option("--hex", help="Print serialized samples in hexadecimal.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after so many samples.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", "-t", help="End after this time: 5s, 2m.")
    ] = None,
    domain: Domain = 0,
    interface: Interface = None,
    peers: Peers = "",
) -> None:
    """Print the samples of a topic as JSON lines; in hexadecimal if neither a file nor their writer tells the type.

    Asks for what the first writer it finds offers: reliability, history for late joiners, partition.
    """
    deadline = None if timeout is None else time.monotonic() + seconds(timeout, "--timeout")
    if type_name is not None and type_file is None:
        raise UsageError("--type names a type of an IDL file; give the file too: --type-file FILE")
    types = None if type_file is None else _structs(type_file, extensibility)
    if types is not None and type_name is not None:
        _find(types, type_name, type_file)  # a wrong name is said before anything else happens
    printed = 0
    with joined(domain, interface, peers, name="spark-rtps echo", resolve_types=True) as node:
        writer = _await_writer(node, topic, deadline)
        struct = None
        if types is not None:
            struct = _find(types, type_name or writer.type_name, type_file)
        elif not as_hex:
            struct = _told(node, writer)
        codec = None
        if struct is not None and not as_hex:
            from ..transport.types.cdr.codec import Codec

            codec = Codec(struct)
        for run in _runs(node, writer, deadline):
            for line in _lines(run, codec):
                typer.echo(line)
                printed += 1
                if printed == count:
                    return


def _structs(type_file: Path, extensibility: Unannotated) -> dict[str, Struct]:
    from ..datasource.type_files import structs_of_idl
    from ..transport.types.model import Extensibility

    found = structs_of_idl(type_file, Extensibility(extensibility.value))
    if not found:
        raise TypeDefinitionError(f"{type_file} defines no struct")
    return found


def _find(types: dict[str, Struct], name: str, type_file: Path | None) -> Struct:
    if name not in types:
        raise UsageError(
            f"{type_file} defines no struct {name!r}, but {', '.join(sorted(types))}; use --type"
        )
    return types[name]


def _await_writer(node: Node, topic: str, deadline: float | None) -> RemoteEndpoint:
    """The first writer of the topic that is seen."""
    told = False
    while True:
        for endpoint in seen_endpoints(node):
            if endpoint.kind == "writer" and endpoint.topic == topic:
                return endpoint
        if deadline is not None and time.monotonic() > deadline:
            others = sorted({e.topic for e in seen_endpoints(node) if e.kind == "writer"})
            seen = f"; topics written here: {', '.join(others)}" if others else ""
            raise TransportError(f"no writer of the topic {topic!r} on domain {node.config.domain}{seen}")
        if not told:
            typer.echo(f"waiting for a writer of {topic} on domain {node.config.domain}", err=True)
            told = True
        time.sleep(_LOOK_AGAIN_SECONDS)


def _told(node: Node, writer: RemoteEndpoint) -> Struct | None:
    """The type that the writer tells; None if it does not, and why on stderr."""
    from ..transport.net.topic_types import await_type

    try:
        return await_type(node, writer.topic, timeout=_TYPE_SECONDS, type_name=writer.type_name).struct
    except UnknownTypeError as error:
        typer.echo(str(error), err=True)
        return None


def _runs(node: Node, writer: RemoteEndpoint, deadline: float | None) -> Iterator[Run]:
    """What arrives on the topic until the deadline, as runs that own their memory."""
    from ..transport.qos import DataRepresentation, HistoryKind, Qos
    from ..transport.structure import KIND_WRITER_WITH_KEY

    qos = replace(
        Qos(),
        reliability=writer.qos.reliability,
        durability=writer.qos.durability,
        history=HistoryKind.KEEP_ALL,
        ownership=writer.qos.ownership,
        partition=writer.qos.partition,
        data_representation=(DataRepresentation.XCDR1, DataRepresentation.XCDR2),
    )
    keyed = writer.guid.entity[3] == KIND_WRITER_WITH_KEY
    inbox: deque[Run] = deque()
    arrived = threading.Event()
    with node.lock:
        reader = node.create_reader(writer.topic, writer.type_name, qos, keyed=keyed)

        def open_window() -> None:
            reader.window = max(0, _INBOX_BYTES - sum(run.nbytes for run in inbox))

        node.before_receive = open_window
        reader.sample_size_max = _INBOX_BYTES

        def take_in() -> None:
            inbox.extend(run.copy() for run in reader.take())
            arrived.set()

        node.on_received = take_in
    while True:
        while inbox:
            yield inbox.popleft()
        if deadline is not None and time.monotonic() > deadline:
            return
        arrived.wait(_LOOK_AGAIN_SECONDS)
        arrived.clear()


def _lines(run: Run, codec: Codec | None) -> Iterator[str]:
    """One line a sample. A run is cut where its samples' kind changes, for each reads differently."""
    import numpy as np

    from ..transport.wire.samples import DISPOSED, KEY_ONLY, UNREGISTERED, stretches

    flags = run.sample_flags()
    empty = run.samples().all_lengths() < _ENCAPSULATION_BYTES
    for first, last in stretches((np.diff(flags) != 0) | np.diff(empty)):
        flag = int(flags[first])
        gone = "disposed" if flag & DISPOSED else "unregistered" if flag & UNREGISTERED else None
        part = run.take(first, last)
        samples = part.samples()
        note: dict[str, object] = {} if gone is None else {"_instance": gone}
        if gone is not None and empty[first]:
            yield from (json.dumps({**note, **key}) for key in _key_hashes(part))
            continue
        if codec is None:
            for i in range(samples.count):
                yield json.dumps({**note, "_hex": samples.payload(i).hex()})
            continue
        bad = 0
        for decoded in codec.parts(samples, keys_only=bool(flag & KEY_ONLY)):
            for row in decoded.batch.to_pylist():
                yield json.dumps(_plain({**note, **row}), ensure_ascii=False, allow_nan=False)
            if decoded.malformed is not None:
                bad += int(decoded.malformed.sum())
        if bad:
            sys.stderr.write(f"{bad} of {samples.count} samples are not what the type says\n")


def _key_hashes(run: Run) -> list[dict[str, str]]:
    """All that tells the instance where a sample has no payload, if even that."""
    from ..transport.wire.samples import HAS_KEY_HASH

    hashes = run.key_hashes()
    if hashes is None:
        return [{}] * run.count
    known = (run.sample_flags() & HAS_KEY_HASH) != 0
    if run.index is None:
        known[:] = True  # of a uniform run all have one
    return [{"_key_hash": h.tobytes().hex()} if k else {} for h, k in zip(hashes, known, strict=True)]


def _plain(value: object) -> object:
    """JSON has no bytes, decimals, times or NaN: hexadecimal and text."""
    match value:
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case bytes():
            return value.hex()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
