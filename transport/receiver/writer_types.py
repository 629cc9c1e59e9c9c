"""The types that writers told, in a file beside their samples: for tasks that are given columns, and no type.

Lines of a checksum (8 hexadecimal digits, the CRC-32 of what follows the space behind it) and JSON: each distinct type
once, with its number, and for each writer the number of its type, or that it told none. A writer's line comes before
its first sample, so that a range decodes alike whenever it is read, and a writer without a line is one whose line is
lost. Only writers beyond TYPED_WRITERS_MAX never have one.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias

from ..errors import TypeDefinitionError
from ..limits import TYPED_WRITERS_MAX, WRITER_TYPES_MAX
from ..log.permissions import create_file
from ..log.segment import lost
from ..structure import Guid
from ..types.idl.printer import print_idl
from ..types.model import Struct

_log = logging.getLogger("spark_rtps.receiver")

#: In the metadata of a log: whether all its writers are in the file.
HAS_WRITER_TYPES: Final = "has_writer_types"
WRITER_TYPES: Final = "writer_types.jsonl"
_GUID_BYTES: Final = 16

#: Distinct types by number, which of them is each writer's, and the first damaged line, if there is one.
_Contents: TypeAlias = tuple[dict[int, Struct], dict[Guid, Struct | None], str]


class WriterTypes:
    """Records types; ``type_of`` gives the type that a writer announces, or None."""

    def __init__(self, directory: Path, type_of: Callable[[Guid], Struct | None]) -> None:
        self._path = directory / WRITER_TYPES
        self._type_of = type_of
        self._cut_off()
        types, writers, damage = _contents(directory)
        if damage:
            raise lost(damage, path=self._path)
        self._known = set(writers)
        self._refused: set[Guid] = set()
        #: Where each type is among those in the file; None: not there.
        self._places: dict[Struct | None, int | None] = {None: None}
        self._places.update((struct, place) for place, struct in types.items())
        self._count = max(types, default=-1) + 1

    def note(self, writer: Guid) -> None:
        """A sample of this writer is about to be appended."""
        if writer in self._known or len(self._known) >= TYPED_WRITERS_MAX:
            return
        self._known.add(writer)
        struct = self._type_of(writer)
        lines: list[dict[str, object]] = []
        if struct is not None and struct not in self._places and len(self._places) <= WRITER_TYPES_MAX:
            idl = _idl_of(struct)
            self._places[struct] = None if idl is None else self._count
            if idl is not None:
                lines.append({"number": self._count, "type": struct.name, "idl": idl})
                self._count += 1
        lines.append({"writer": writer.to_bytes().hex(), "is": self._places.get(struct)})
        try:
            with open(create_file(self._path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as file:
                file.write("".join(map(_line, lines)))
        except OSError as error:
            self._known.discard(writer)  # tried again with the next samples
            if len(lines) > 1:
                del self._places[struct]
                self._count -= 1
            if writer not in self._refused:
                self._refused.add(writer)
                _log.warning("%s: the type of %s is not recorded: %s", self._path, writer, error)

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


@dataclass(frozen=True, slots=True)
class ToldTypes:
    """The types of a log's writers; None: a writer told none. ``damage`` names a damaged line; empty: there is none."""

    by_writer: Mapping[Guid, Struct | None]
    damage: str = ""

    @property
    def is_full(self) -> bool:
        """Whether there may be writers without a line."""
        return len(self.by_writer) >= TYPED_WRITERS_MAX


def read_writer_types(directory: Path) -> ToldTypes:
    """What writers told; of a damaged file what can be read."""
    _, writers, damage = _contents(directory)
    return ToldTypes(writers, damage)


def parse_writer_types(raw: bytes, directory: Path) -> ToldTypes:
    """What writers told, in the bytes of the file of the log in ``directory``, which need not be on this host."""
    _, writers, damage = _parsed(raw, directory / WRITER_TYPES)
    return ToldTypes(writers, damage)


def _line(entry: dict[str, object]) -> str:
    text = json.dumps(entry)
    return f"{zlib.crc32(text.encode()):08x} {text}\n"


def _contents(directory: Path) -> _Contents:
    path = directory / WRITER_TYPES
    try:
        found = path.stat()
    except FileNotFoundError:
        return {}, {}, ""
    return _read(path, found.st_ino, found.st_size)


@lru_cache(maxsize=16)
def _read(path: Path, inode: int, size: int) -> _Contents:
    """The first ``size`` bytes: the file only grows."""
    with path.open("rb") as file:
        return _parsed(file.read(size), path)


def _parsed(raw: bytes, path: Path) -> _Contents:
    types: dict[int, Struct] = {}
    found: dict[Guid, Struct | None] = {}
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
                place = entry["is"]
                found[_guid(entry["writer"])] = None if place is None else types[place]
        except (ValueError, LookupError, TypeError, RecursionError, TypeDefinitionError) as error:
            damage = damage or f"{path} is damaged in line {number} ({error!r})"
    return types, found, damage


def _guid(text: str) -> Guid:
    raw = bytes.fromhex(text)
    if len(raw) != _GUID_BYTES:
        raise ValueError(f"{text!r} is no GUID")
    return Guid.from_bytes(raw)
