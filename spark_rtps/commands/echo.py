"""``spark-rtps echo``: the samples of a topic, one JSON line each."""

from __future__ import annotations

import enum
import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..transport.errors import OptionError, TransportError, TypeDefinitionError, UnknownTypeError, UsageError
from ..transport.value_classes import value
from ..transport.wire.samples import ENCAPSULATION_BYTES
from .echo_receiver import LATEST, RecordedRun, checked_start, recorded_runs
from .network import AnyDomain, Interface, Peers, Ros, joined, ros_distribution, seconds
from .receivers import Access, Ca, Certificate, Key, Receiver, TokenFile, only_here, served_at
from .tables import key_hashes, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from ..api.participant import Participant
    from ..transport.protocol.participant.participant import RemoteEndpoint
    from ..transport.types.cdr.codec import Codec
    from ..transport.types.model import Struct
    from ..transport.wire.samples import Run

#: Bytes received but not yet printed; beyond that, reliable writers are slowed down. A sample takes half at most.
_INBOX_BYTES: Final = 128 << 20
_LOOK_AGAIN_SECONDS: Final = 0.05
#: How long to wait for a writer's type.
_TYPE_SECONDS: Final = 3.0


class Unannotated(enum.Enum):
    APPENDABLE = "appendable"
    FINAL = "final"


def echo(
    topic: Annotated[
        str, typer.Argument(help="Name of the topic; with --receiver of the subscription or of its topic.")
    ],
    type_file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="IDL file with the type of the topic.")
    ] = None,
    type_name: Annotated[
        str | None,
        typer.Option("--type", help="Name of the type in the file. Default: the writer's type name."),
    ] = None,
    extensibility: Annotated[
        Unannotated,
        typer.Option(help="Extensibility of structs without an annotation (Cyclone's idlc: final)."),
    ] = Unannotated.APPENDABLE,
    as_hex: Annotated[bool, typer.Option("--hex", help="Print serialized samples in hexadecimal.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after this number of samples.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            "-t",
            help="End after this time: 5s, 2m. With --receiver, 0s ends behind what the log holds.",
        ),
    ] = None,
    domain: AnyDomain = None,
    interface: Interface = None,
    peers: Peers = "",
    receiver: Receiver = None,
    token_file: TokenFile = None,
    ca: Ca = None,
    certificate: Certificate = None,
    key: Key = None,
    ros: Ros = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="With --receiver: earliest, latest (the default), or a position of the log. Then on as it grows.",
        ),
    ] = None,
) -> None:
    """Print the samples of a topic as JSON lines, or in hexadecimal if neither a file nor the writer gives the type.

    The reader requests what the first writer that is found offers: reliability, history for late joiners, partition.
    With --receiver nothing is subscribed: the samples are those in the log of a subscription there.
    """
    from ..options.ros import RosNames
    from .ros import HIDDEN_NODE

    deadline = None if timeout is None else time.monotonic() + seconds(timeout, "--timeout")
    if type_name is not None and type_file is None:
        raise UsageError("--type names a type in an IDL file, so the file is needed too: --type-file FILE")
    types = None if type_file is None else _structs(type_file, extensibility)
    if types is not None and type_name is not None:
        _find(types, type_name, type_file)  # a wrong name is reported before anything else happens
    wanted = _Wanted(types, type_name, type_file, as_hex)
    if receiver is not None:
        for given, option in (
            (domain, "--domain"),
            (ros, "--ros"),
            (interface, "--interface"),
            (peers, "--peers"),
        ):
            only_here(given, option)
        place = checked_start(LATEST if start is None else start)
        (served,) = served_at([receiver], Access(token_file, ca, certificate, key))
        _print(_recorded_lines(recorded_runs(served, topic, place, deadline), wanted), count)
        return
    if start is not None:
        message = "without --receiver there is no log: the writers decide what late joiners get"
        raise typer.BadParameter(message, param_hint="--from")
    node = HIDDEN_NODE if ros else None
    wire_name = RosNames("spark_rtps", "/").topic(topic) if ros else topic
    with joined(domain, interface, peers, name="spark-rtps echo", node=node) as participant:
        writer = _await_writer(participant, wire_name, deadline)
        announced_type = None
        if types is None and not as_hex:
            announced_type = (_known(writer) if ros else None) or _announced(participant, writer)
        codec = wanted.codec(writer.type_name, announced_type)
        runs = _runs(participant, writer, deadline)
        _print((line for run in runs for line in _lines(run, codec)), count)


@value
class _Wanted:
    """How the options ask to read samples."""

    types: dict[str, Struct] | None
    type_name: str | None
    type_file: Path | None
    as_hex: bool

    def codec(self, announced: str, announced_type: Struct | None) -> Codec | None:
        """The codec for a writer that announces this type name and type. None: hexadecimal."""
        from ..transport.types.cdr.codec import Codec

        if self.as_hex:
            return None
        if self.types is not None:
            announced_type = _find(self.types, self.type_name or announced, self.type_file)
        return None if announced_type is None else Codec(announced_type)


def _recorded_lines(runs: Iterator[RecordedRun], wanted: _Wanted) -> Iterator[str]:
    """The lines of a receiver's samples; its writers may have several types, and topics, which the lines then name."""
    codecs: dict[tuple[str, Struct | None], Codec | None] = {}
    for run, topic, type_name, announced_type in runs:
        key = type_name, announced_type
        if key not in codecs:
            codecs[key] = wanted.codec(*key)
        yield from _lines(run, codecs[key], topic)


def _print(lines: Iterable[str], count: int | None) -> None:
    """Print ``count`` lines. The contents of samples cannot control the terminal."""
    for printed, line in enumerate(lines, 1):
        typer.echo(line if line.isprintable() else "".join(map(_escaped, line)))
        if printed == count:
            return


def _escaped(character: str) -> str:
    """The character as an escape of JSON."""
    return character if character.isprintable() else json.dumps(character)[1:-1]


def _structs(type_file: Path, extensibility: Unannotated) -> dict[str, Struct]:
    from ..columns.type_files import structs_of_idl
    from ..transport.types.model import Extensibility

    found = structs_of_idl(type_file, Extensibility(extensibility.value))
    if not found:
        raise TypeDefinitionError(f"{type_file} defines no struct")
    return found


def _find(types: dict[str, Struct], name: str, type_file: Path | None) -> Struct:
    if name not in types:
        raise UsageError(
            f"{type_file} defines no struct {name!r}; it defines {', '.join(sorted(types))}: use --type"
        )
    return types[name]


def _await_writer(participant: Participant, topic: str, deadline: float | None) -> RemoteEndpoint:
    """The first discovered writer of the topic."""
    announced_type = False
    while True:
        writers = [each for each in participant.endpoints() if each.kind == "writer"]
        for writer in writers:
            if writer.topic == topic:
                return writer
        if deadline is not None and time.monotonic() > deadline:
            others = sorted({writer.topic for writer in writers})
            seen = f"; topics that are written there: {', '.join(others)}" if others else ""
            raise TransportError(f"no writer of topic {topic!r} on domain {participant.domain}{seen}")
        if not announced_type:
            typer.echo(f"waiting for a writer of {topic} on domain {participant.domain}", err=True)
            announced_type = True
        time.sleep(_LOOK_AGAIN_SECONDS)


def _known(writer: RemoteEndpoint) -> Struct | None:
    """The ROS 2 definition of a writer's type name, with the hash that the writer announces; None: this package has
    none."""
    from ..columns.type_sources import known_by_name

    try:
        found = known_by_name(writer, ros_distribution())
    except OptionError as error:
        typer.echo(visible(str(error)), err=True)
        return None
    return None if found is None else found.struct


def _announced(participant: Participant, writer: RemoteEndpoint) -> Struct | None:
    """The type that the writer announces. None if it announces none; the reason is then printed to stderr."""
    try:
        return participant.discover_type(
            writer.topic, timeout=_TYPE_SECONDS, type_name=writer.type_name
        ).struct
    except UnknownTypeError as error:
        typer.echo(visible(str(error)), err=True)
        return None


def _runs(participant: Participant, writer: RemoteEndpoint, deadline: float | None) -> Iterator[Run]:
    """The samples that arrive on the topic until the deadline, as runs that own their memory."""
    from ..api.inbox import Inbox
    from ..transport.protocol.participant.endpoint_specs import ReaderSpec
    from ..transport.qos import DataRepresentation, HistoryKind, Qos
    from ..transport.structure import is_keyed

    qos = replace(
        Qos(),
        reliability=writer.qos.reliability,
        durability=writer.qos.durability,
        history=HistoryKind.KEEP_ALL,
        ownership=writer.qos.ownership,
        partition=writer.qos.partition,
        data_representation=(DataRepresentation.XCDR1, DataRepresentation.XCDR2),
    )
    inbox = Inbox(participant.node, capacity=_INBOX_BYTES)
    inbox.join_topic(ReaderSpec(writer.topic, writer.type_name, qos, keyed=is_keyed(writer.guid.entity)))
    while True:
        arrivals = inbox.arrived.count
        for frame in inbox.take_frames():
            if deadline is not None and time.monotonic() >= deadline:
                return
            yield frame.run
        inbox.hold(0)
        inbox.go_on()
        if not inbox.arrived.wait(arrivals, deadline):
            return


def _lines(run: Run, codec: Codec | None, topic: str | None = None) -> Iterator[str]:
    """One line per sample. A run is divided where the kind of its samples changes: each kind reads differently."""
    import numpy as np

    from ..transport.wire.samples import DISPOSED, KEY_ONLY, UNREGISTERED, equal_ranges

    flags = run.sample_flags()
    empty = run.samples().all_lengths() < ENCAPSULATION_BYTES
    for first, last in equal_ranges((np.diff(flags) != 0) | np.diff(empty)):
        flag = int(flags[first])
        gone = "disposed" if flag & DISPOSED else "unregistered" if flag & UNREGISTERED else None
        part = run.take_range(first, last)
        samples = part.samples()
        note: dict[str, object] = {} if topic is None else {"_topic": topic}
        if gone is not None:
            note["_instance"] = gone
        if gone is not None and empty[first]:
            for key in key_hashes(part):
                yield json.dumps(note if key is None else {**note, "_key_hash": key})
            continue
        if codec is None:
            for i in range(samples.count):
                yield json.dumps({**note, "_hex": samples.payload(i).hex()})
            continue
        bad = 0
        for decoded in codec.parts(samples, keys_only=bool(flag & KEY_ONLY)):
            kinds = decoded.batch.schema
            for row in decoded.batch.to_pylist():
                values = {kind.name: _plain(row[kind.name], kind.type) for kind in kinds}
                yield json.dumps({**note, **values}, ensure_ascii=False, allow_nan=False)
            if decoded.malformed is not None:
                bad += int(decoded.malformed.sum())
        if bad:
            sys.stderr.write(f"{bad} of {samples.count} samples do not decode as the topic's type\n")


def _plain(value: object, kind: pa.DataType) -> object:
    """The value as JSON can hold it: bytes become hexadecimal; decimals, times and NaN become text. A map becomes an
    object, or, as a peer may repeat a key, pairs of keys and values."""
    match value:
        case dict():
            return {name: _plain(part, kind.field(name).type) for name, part in value.items()}
        case list() if hasattr(kind, "key_type"):
            pairs = [(_plain(key, kind.key_type), _plain(part, kind.item_type)) for key, part in value]
            texts = [key if isinstance(key, str) else json.dumps(key, ensure_ascii=False) for key, _ in pairs]
            found = {text: part for text, (_, part) in zip(texts, pairs, strict=True)}
            return found if len(found) == len(pairs) else [[key, part] for key, part in pairs]
        case list():
            return [_plain(part, kind.value_type) for part in value]
        case bytes():
            return value.hex()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
