"""The types that writers announced, in a sidecar file of their log: for tasks with columns and without a type.

Each line has a checksum (8 hexadecimal digits, the CRC-32 of what follows the space behind it) and JSON: each distinct
type once, with its number, and for each writer the number of its type, or that it announced none. In the log of several
topics a writer's line also has its topic and the writer's name for its type; a GUID that later belongs to another
topic's writer gets another line, with the position of the log from which on it holds. A writer's line comes before its
first sample, so that a range decodes alike whenever it is read; the line of a writer without one is lost. Samples whose
line cannot be written are not appended.

The file has lines of TYPED_WRITERS_MAX writers at most. When it is full, the lines of writers whose samples are all
trimmed are removed.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ..errors import TypeDefinitionError, reason
from ..limits import TYPED_WRITERS_MAX, WRITER_TYPES_MAX
from ..log.permissions import create_file
from ..log.segment import lost, refusal
from ..log.small_file import replace_text
from ..structure import GUID_BYTES, Guid
from ..types.idl.printer import print_idl
from ..types.model import Struct
from ..value_classes import value

if TYPE_CHECKING:
    from ..net.receiving_node import TypeIdentity  # tasks need no network

_log = logging.getLogger("spark_rtps.receiver")

#: Key in the metadata of a log: whether all its writers are in the file.
HAS_WRITER_TYPES: Final = "has_writer_types"
WRITER_TYPES: Final = "writer_types.jsonl"

#: Distinct types by number, the number of each writer's type, the topics of each writer, and the first damaged line,
#: if there is one.
_Contents: TypeAlias = tuple[
    dict[int, Struct], dict[Guid, Struct | None], dict[Guid, list["WriterTopic"]], str
]
#: Fraction of the lines that must be removable for the file to be rewritten before it is full.
_PRUNED_PART: Final = 8


class WriterTypes:
    """Records types; ``type_of`` gives the type that a writer announces, or None, and ``identity_of`` its name and its
    hash, for a log of several topics."""

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
        #: The topic of each writer that has a line, if lines have topics.
        self._known: dict[Guid, str | None] = dict.fromkeys(writers)
        self._known.update((writer, found[-1].topic) for writer, found in topics.items())
        self._lines = sum(len(topics.get(writer, (None,))) for writer in writers)
        #: The number of each type in the file; None: the type is not in the file.
        self._places: dict[Struct | None, int | None] = {None: None}
        self._places.update((struct, place) for place, struct in types.items())
        self._count = max(types, default=-1) + 1
        #: The end of the last frame of each writer, among the frames appended since the start.
        self._ends: dict[Guid, int] = {}
        #: All frames appended before the start end at or before this; None: none was appended since.
        self._others_end: int | None = None
        self._pruned_at = 0
        self._reported_types = False

    def topic_of(self, writer: Guid) -> str | None:
        """The topic of a writer, as last noted."""
        return self._known.get(writer)

    def record_writer(self, writer: Guid, topic: str | None = None, position: int = 0, base: int = 0) -> bool:
        """Record a writer of ``topic`` before a sample of it is appended at ``position``, or behind it, to a log that
        begins at ``base``.

        False: its line does not fit; the sample must not be appended. Raises LogError if the line cannot be written;
        the call can be repeated.
        """
        is_known = writer in self._known
        if is_known and self._known[writer] == topic:
            return True
        if self._others_end is None:
            self._others_end = position
        # Half of the lines stay free, unless there are more writers between two trims of the log: after a restart it
        # is unknown which of the existing lines are still needed.
        if self._lines >= TYPED_WRITERS_MAX // 2:
            self._prune(base)
        if self._lines >= TYPED_WRITERS_MAX:
            return False
        struct = self._type_of(writer)
        place = self._places.get(struct)
        lines: list[dict[str, object]] = []
        if struct is not None and struct not in self._places and self._has_room_for_types(base):
            idl = _idl_of(struct)
            if idl is None:
                self._places[struct] = None
            else:
                place = self._count
                lines.append({"number": place, "type": struct.name, "idl": idl})
        line: dict[str, object] = {"writer": writer.to_bytes().hex(), "is": place}
        if topic is not None:
            line |= self._about(writer, topic)
            if is_known:
                line["from"] = position
        lines.append(line)
        self._append(lines, writer)
        if len(lines) > 1:
            self._places[struct] = place
            self._count += 1
        self._known[writer] = topic
        self._lines += 1
        return True

    def appended(self, writer: Guid, end: int) -> None:
        """A frame of this writer was appended that ends at ``end``."""
        self._ends[writer] = end
        if self._others_end is None:
            self._others_end = end

    def _append(self, lines: Iterable[dict[str, object]], writer: Guid) -> None:
        """Write all lines or nothing: the next write must not continue a partial line."""
        try:
            fd = create_file(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                size = os.fstat(fd).st_size
                try:
                    _write("".join(map(_line, lines)).encode(), fd)
                except BaseException:
                    os.ftruncate(fd, size)
                    raise
            finally:
                os.close(fd)
        except OSError as error:
            what = f"record the type of {writer} in {self._path}"
            raise refusal(error, what, path=self._path.parent) from error

    def _has_room_for_types(self, base: int) -> bool:
        if len(self._places) > WRITER_TYPES_MAX:
            self._prune(base)
        if len(self._places) <= WRITER_TYPES_MAX:
            return True
        if not self._reported_types:
            self._reported_types = True
            _log.warning(
                "%s: the log has samples of %d types, the most that it records: samples of further types are read by "
                "the query's own columns",
                self._path,
                WRITER_TYPES_MAX,
            )
        return False

    def _prune(self, base: int) -> None:
        """Remove the lines that only samples before ``base`` need, once for each base, if there are many of them or the
        file is full."""
        if base <= self._pruned_at or self._others_end is None:
            return
        self._pruned_at, others_end = base, self._others_end
        going = {guid for guid in self._known if self._ends.get(guid, others_end) <= base}
        is_full = self._lines >= TYPED_WRITERS_MAX or len(self._places) > WRITER_TYPES_MAX
        if not is_full and len(going) < self._lines // _PRUNED_PART:
            return
        try:
            kept, used, count = _still_needed(self._path.read_bytes(), going, base)
            replace_text(self._path, kept.decode())
        except OSError as error:
            _log.warning("%s: removing lines that are no longer needed failed: %s", self._path, reason(error))
            return
        self._lines = count
        for guid in going:
            del self._known[guid]
            self._ends.pop(guid, None)
        self._places = {struct: n for struct, n in self._places.items() if struct is None or n in used}

    def _about(self, writer: Guid, topic: str) -> dict[str, object]:
        identity = None if self._identity_of is None else self._identity_of(writer)
        if identity is None:
            return {"topic": topic}
        return {"topic": topic, "name": identity.type_name, "hash": identity.type_hash}

    def _cut_off(self) -> None:
        """Remove the partial line that a killed receiver left."""
        if self._path.exists():
            raw = self._path.read_bytes()
            whole = raw.rfind(b"\n") + 1
            if whole < len(raw):
                os.truncate(self._path, whole)


def _write(raw: bytes, fd: int) -> None:
    rest = memoryview(raw)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _still_needed(raw: bytes, going: Collection[Guid], base: int) -> tuple[bytes, set[int], int]:
    """The lines, without those of the writers that are ``going`` and those that another line replaces at or before
    ``base``; the numbers of the types that they need, and the number of writers' lines."""
    types: dict[int, bytes] = {}
    writers: dict[Guid, list[tuple[int, int | None, bytes]]] = {}
    for line in raw.splitlines(keepends=True):
        entry = json.loads(line.partition(b" ")[2])
        if "idl" in entry:
            types[entry["number"]] = line
        elif (guid := _guid(entry["writer"])) not in going:
            writers.setdefault(guid, []).append((entry.get("from", 0), entry["is"], line))
    needed = []
    for lines in writers.values():
        first = max((n for n, (since, *_) in enumerate(lines) if since <= base), default=0)
        needed += lines[first:]
    used = {number for _, number, _ in needed if number is not None}
    kept = [types[number] for number in sorted(used)] + [line for _, _, line in needed]
    return b"".join(kept), used, len(needed)


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


@value
class WriterTopic:
    """The topic of a writer from the position ``since`` of the log on, the writer's name for its type, and the hash of
    the type that it announced; None: not known."""

    topic: str | None = None
    type_name: str | None = None
    type_hash: str | None = None
    since: int = 0


_UNKNOWN_TOPIC: Final = WriterTopic()


@value
class AnnouncedTypes:
    """The types of a log's writers; None: a writer announced none. ``damage`` describes a damaged line; empty: there is
    none.

    ``topics``: in the log of several topics, the topics of each writer, one after the other.
    """

    by_writer: Mapping[Guid, Struct | None]
    damage: str = ""
    topics: Mapping[Guid, Sequence[WriterTopic]] = field(default_factory=dict)

    def topic_of(self, writer: Guid, position: int) -> WriterTopic:
        """The topic of this writer's samples at ``position`` in the log."""
        found = self.topics.get(writer, ())
        return next((each for each in reversed(found) if each.since <= position), _UNKNOWN_TOPIC)

    @property
    def is_full(self) -> bool:
        """Whether there may be writers without a line."""
        return len(self.by_writer) >= TYPED_WRITERS_MAX


def read_writer_types(directory: Path) -> AnnouncedTypes:
    """The types that writers announced; of a damaged file, the readable ones."""
    _, writers, topics, damage = _contents(directory)
    return AnnouncedTypes(writers, damage, topics)


def parse_writer_types(raw: bytes, directory: Path) -> AnnouncedTypes:
    """The types that writers announced, from the file's bytes; the log in ``directory`` need not be on this host."""
    _, writers, topics, damage = _parsed(raw, directory / WRITER_TYPES)
    return AnnouncedTypes(writers, damage, topics)


def _line(entry: dict[str, object]) -> str:
    text = json.dumps(entry)
    return f"{zlib.crc32(text.encode()):08x} {text}\n"


def _contents(directory: Path) -> _Contents:
    path = directory / WRITER_TYPES
    while True:
        try:
            found = path.stat()
            return _read(path, found.st_ino, found.st_size, found.st_mtime_ns)
        except FileNotFoundError:
            return {}, {}, {}, ""
        except _ReplacedError:
            continue


class _ReplacedError(Exception):
    """The file was replaced."""


@lru_cache(maxsize=16)
def _read(path: Path, inode: int, size: int, _changed: int) -> _Contents:
    """Read the first ``size`` bytes of the file, which grows, is truncated after a failed write, and is replaced."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_ino != inode:
            raise _ReplacedError
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
                topic = _topic(entry) if "topic" in entry else None
                found[writer] = None if place is None else types[place]
                if topic is not None:
                    topics.setdefault(writer, []).append(topic)
        except (
            ValueError, LookupError, TypeError, OverflowError, RecursionError, TypeDefinitionError,
        ) as error:  # fmt: skip
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
    if len(raw) != GUID_BYTES:
        raise ValueError(f"{text!r} is no GUID")
    return Guid.from_bytes(raw)
