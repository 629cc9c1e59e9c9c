"""The types that writers told, in a file beside their samples: for tasks that are given columns, and no type.

Lines of a checksum (8 hexadecimal digits, the CRC-32 of what follows the space behind it) and JSON: each distinct type
once, with its number, and for each writer the number of its type, or that it told none. In the log of several topics a
writer's line names its topic, too, and what the writer calls its type; a GUID that is another topic's writer later has
another line, with the position of the log from which on it holds. A writer's line comes before
its first sample, so that a range decodes alike whenever it is read, and a writer without a line is one whose line is
lost. Only writers beyond TYPED_WRITERS_MAX never have one.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import TypeDefinitionError
from ..limits import TYPED_WRITERS_MAX, WRITER_TYPES_MAX
from ..log.permissions import create_file
from ..log.segment import lost
from ..slotted import frozen
from ..structure import Guid
from ..types.idl.printer import print_idl
from ..types.model import Struct

if TYPE_CHECKING:
    from ..net.receiving_node import TypeIdentity  # tasks need no network

_log = logging.getLogger("spark_rtps.receiver")

#: In the metadata of a log: whether all its writers are in the file.
HAS_WRITER_TYPES: Final = "has_writer_types"
WRITER_TYPES: Final = "writer_types.jsonl"
_GUID_BYTES: Final = 16

#: Distinct types by number, which of them is each writer's, the topics of each, and the first damaged line, if there is
#: one.
_Contents: TypeAlias = tuple[
    dict[int, Struct], dict[Guid, Struct | None], dict[Guid, list["WriterTopic"]], str
]
#: In place of the topic of a writer that has no line.
_NOBODY: Final = ""


class WriterTypes:
    """Records types; ``type_of`` gives the type that a writer announces, or None, and ``identity_of``, for a log of
    several topics, its name and its hash."""

    def __init__(
        self,
        directory: Path,
        type_of: Callable[[Guid], Struct | None],
        identity_of: Callable[[Guid], TypeIdentity | None] | None = None,
    ) -> None:
        self._path = directory / WRITER_TYPES
        self._type_of = type_of
        self._identity_of = identity_of
        self._cut_off()
        types, writers, topics, damage = _contents(directory)
        if damage:
            raise lost(damage, path=self._path)
        #: The topic of each writer that has a line, where lines name topics.
        self._known: dict[Guid, str | None] = dict.fromkeys(writers)
        self._known.update((writer, found[-1].topic) for writer, found in topics.items())
        self._refused: set[Guid] = set()
        #: Where each type is among those in the file; None: not there.
        self._places: dict[Struct | None, int | None] = {None: None}
        self._places.update((struct, place) for place, struct in types.items())
        self._count = max(types, default=-1) + 1

    def topic_of(self, writer: Guid) -> str | None:
        """The topic of a writer, as last noted."""
        return self._known.get(writer)

    def note(self, writer: Guid, topic: str | None = None, position: int = 0) -> None:
        """A sample of this writer of ``topic`` is about to be appended at ``position``."""
        before = self._known.get(writer, _NOBODY)
        if before == topic or (before is _NOBODY and len(self._known) >= TYPED_WRITERS_MAX):
            return
        self._known[writer] = topic
        struct = self._type_of(writer)
        lines: list[dict[str, object]] = []
        if struct is not None and struct not in self._places and len(self._places) <= WRITER_TYPES_MAX:
            idl = _idl_of(struct)
            self._places[struct] = None if idl is None else self._count
            if idl is not None:
                lines.append({"number": self._count, "type": struct.name, "idl": idl})
                self._count += 1
        line: dict[str, object] = {"writer": writer.to_bytes().hex(), "is": self._places.get(struct)}
        if topic is not None:
            line |= self._about(writer, topic)
            if before is not _NOBODY:
                line["from"] = position
        lines.append(line)
        try:
            with open(create_file(self._path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as file:
                file.write("".join(map(_line, lines)))
        except OSError as error:
            del self._known[writer]  # tried again with the next samples
            if before is not _NOBODY:
                self._known[writer] = before
            if len(lines) > 1:
                del self._places[struct]
                self._count -= 1
            if writer not in self._refused:
                self._refused.add(writer)
                _log.warning("%s: the type of %s is not recorded: %s", self._path, writer, error)

    def _about(self, writer: Guid, topic: str) -> dict[str, object]:
        identity = None if self._identity_of is None else self._identity_of(writer)
        if identity is None:
            return {"topic": topic}
        return {"topic": topic, "name": identity.type_name, "hash": identity.type_hash}

    def _cut_off(self) -> None:
        """Remove the half of a line that a killed receiver left."""
        if self._path.exists():
            whole = self._path.read_bytes().rfind(b"\n") + 1
            os.truncate(self._path, whole)


def _idl_of(struct: Struct) -> str | None:
    """None: the type has names that IDL does not allow, or that differ in case only."""
    idl = print_idl(struct)
    try:
        _parse(idl, struct.name)
    except TypeDefinitionError:
        return None
    return idl


@lru_cache(maxsize=64)
def _parse(idl: str, name: str) -> Struct:
    from ..types.idl.parser import parse_struct  # most tasks need no parser

    return parse_struct(idl, name, "type of a writer")


@frozen
class WriterTopic:
    """The topic of a writer from the position ``since`` of the log on, what the writer calls its type, and the hash of
    the type that it announced; None: that is not known."""

    topic: str | None = None
    type_name: str | None = None
    type_hash: str | None = None
    since: int = 0


_UNKNOWN_TOPIC: Final = WriterTopic()


@frozen
class ToldTypes:
    """The types of a log's writers; None: a writer told none. ``damage`` names a damaged line; empty: there is none.

    ``topics``: in the log of several topics, those of each writer, one after the other.
    """

    by_writer: Mapping[Guid, Struct | None]
    damage: str = ""
    topics: Mapping[Guid, Sequence[WriterTopic]] = field(default_factory=dict)

    def topic_of(self, writer: Guid, position: int) -> WriterTopic:
        """The topic of what this writer has at ``position`` in the log."""
        found = self.topics.get(writer, ())
        return next((each for each in reversed(found) if each.since <= position), _UNKNOWN_TOPIC)

    @property
    def is_full(self) -> bool:
        """Whether there may be writers without a line."""
        return len(self.by_writer) >= TYPED_WRITERS_MAX


def read_writer_types(directory: Path) -> ToldTypes:
    """What writers told; of a damaged file what can be read."""
    _, writers, topics, damage = _contents(directory)
    return ToldTypes(writers, damage, topics)


def parse_writer_types(raw: bytes, directory: Path) -> ToldTypes:
    """What writers told, in the bytes of the file of the log in ``directory``, which need not be on this host."""
    _, writers, topics, damage = _parsed(raw, directory / WRITER_TYPES)
    return ToldTypes(writers, damage, topics)


def _line(entry: dict[str, object]) -> str:
    text = json.dumps(entry)
    return f"{zlib.crc32(text.encode()):08x} {text}\n"


def _contents(directory: Path) -> _Contents:
    path = directory / WRITER_TYPES
    try:
        found = path.stat()
    except FileNotFoundError:
        return {}, {}, {}, ""
    return _read(path, found.st_ino, found.st_size)


@lru_cache(maxsize=16)
def _read(path: Path, inode: int, size: int) -> _Contents:
    """The first ``size`` bytes: the file only grows."""
    with path.open("rb") as file:
        return _parsed(file.read(size), path)


def _parsed(raw: bytes, path: Path) -> _Contents:
    types: dict[int, Struct] = {}
    found: dict[Guid, Struct | None] = {}
    topics: dict[Guid, list[WriterTopic]] = {}
    damage = ""
    for number, line in enumerate(raw.split(b"\n")[:-1], 1):  # the last one is empty, or not complete
        checksum, _, text = line.partition(b" ")
        try:
            if int(checksum, 16) != zlib.crc32(text):
                raise ValueError("its checksum is wrong")
            entry = json.loads(text)
            if "idl" in entry:
                types[entry["number"]] = _parse(str(entry["idl"]), str(entry["type"]))
            else:
                place, writer = entry["is"], _guid(entry["writer"])
                found[writer] = None if place is None else types[place]
                if "topic" in entry:
                    topics.setdefault(writer, []).append(_topic(entry))
        except (ValueError, LookupError, TypeError, RecursionError, TypeDefinitionError) as error:
            damage = damage or f"{path} is damaged in line {number} ({error!r})"
    return types, found, topics, damage


def _topic(entry: dict[str, Any]) -> WriterTopic:
    name, type_hash = entry.get("name"), entry.get("hash")
    return WriterTopic(
        str(entry["topic"]),
        None if name is None else str(name),
        None if type_hash is None else str(type_hash),
        int(entry.get("from", 0)),
    )


def _guid(text: str) -> Guid:
    raw = bytes.fromhex(text)
    if len(raw) != _GUID_BYTES:
        raise ValueError(f"{text!r} is no GUID")
    return Guid.from_bytes(raw)
