"""The types that writers told, in a file beside their samples: for tasks that are given columns, and no type.

A line of JSON a writer, written before its first sample is in the log, so that a range decodes alike whenever it is
read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

from ..errors import TypeDefinitionError
from ..structure import Guid
from ..types.idl.printer import print_idl
from ..types.model import Struct

_FILE: Final = "writer_types.jsonl"


class WriterTypes:
    """What the receiver writes; ``type_of`` says the type of a writer, if that told it."""

    def __init__(self, directory: Path, type_of: Callable[[Guid], Struct | None]) -> None:
        self._path = directory / _FILE
        self._type_of = type_of
        self._known = set(read_writer_types(directory))

    def note(self, writer: Guid) -> None:
        """A sample of this writer is about to be appended."""
        if writer in self._known:
            return
        self._known.add(writer)
        struct = self._type_of(writer)
        if struct is not None and (idl := _idl_of(struct)) is not None:
            line = json.dumps({"writer": writer.to_bytes().hex(), "type": struct.name, "idl": idl})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def _idl_of(struct: Struct) -> str | None:
    """None: a peer told names that IDL does not have, or that differ by case alone."""
    from ..types.idl.parser import parse_idl  # most tasks need no parser

    idl = print_idl(struct)
    try:
        parse_idl(idl)
    except TypeDefinitionError:
        return None
    return idl


def read_writer_types(directory: Path) -> dict[Guid, Struct]:
    """The types of a log's writers, as far as they told them."""
    path = directory / _FILE
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return {}
    return _read(path, size)


@lru_cache(maxsize=64)
def _read(path: Path, size: int) -> dict[Guid, Struct]:
    """The first ``size`` bytes: the file only grows."""
    from ..types.idl.parser import parse_idl

    with path.open("rb") as file:
        lines = file.read(size).split(b"\n")
    found = {}
    for line in lines[:-1]:  # the last one is empty, or not complete
        entry = json.loads(line)
        struct = parse_idl(entry["idl"], "type of a writer")[entry["type"]]
        assert isinstance(struct, Struct)
        found[Guid.from_bytes(bytes.fromhex(entry["writer"]))] = struct
    return found
