"""Offsets of a stream: a position in the stream log of each receiver, as versioned JSON.

Spark compares offsets as strings, so the order of keys is fixed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias, TypeGuard

from ..transport.errors import UsageError
from ..transport.log.frame import Cursor
from ..transport.value_classes import value

Json: TypeAlias = "dict[str, Json] | str | int"

VERSION: Final = 1
#: The name of the receiver that the source starts itself.
EMBEDDED: Final = "embedded"
_GROUP_MAX: Final = 128


@value
class Offset:
    """Everything before ``cursor`` in the stream log called ``log`` (a UUID) of one receiver has been planned."""

    log: str
    cursor: Cursor

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {"log": self.log, "position": self.cursor.position}
        if self.cursor.row:
            found["row"] = self.cursor.row
        return {"v": VERSION, "receivers": {EMBEDDED: found}}

    @classmethod
    def from_json(cls, raw: object) -> Offset:
        """Raises UsageError for an offset that another source, or a newer version of this one, has written."""
        # a checkpoint can be edited, so this may be any JSON
        version = raw.get("v") if isinstance(raw, dict) else VERSION
        if version != VERSION:
            raise UsageError(
                f"the checkpoint holds an offset of version {version!r}; this spark-rtps reads version "
                f"{VERSION}: upgrade it, or start with a new checkpoint"
            )
        match raw:
            case {"receivers": {"embedded": {"log": str(log), "position": position, **rest}}} if _is_uuid(
                log
            ):
                row = rest.get("row", 0)
                if _is_count(position) and _is_count(row):
                    return cls(log, Cursor(position, row))
        raise UsageError(f"the checkpoint holds no offset of the rtps source: {raw!r}")


@value
class ReceiverServiceOffset:
    """An offset for each receiver service by its name, and the consumer group that commits them.

    The end of a query's first micro-batch contains its beginning as ``since``: Spark does not keep the beginning, and
    asks
    for it again if this micro-batch has to be repeated. Receivers that have not answered yet have no offset: they are
    ``awaited`` since a time, in ns since 1970, and their samples are read from that time on.
    """

    group: str
    by_receiver: Mapping[str, Offset]
    since: Mapping[str, Offset] | None = None
    awaited: Mapping[str, int] | None = None

    def to_json(self) -> dict[str, Json]:
        found: dict[str, Json] = {
            "v": VERSION,
            "group": self.group,
            "receivers": _announced(self.by_receiver),
        }
        if self.since is not None:
            found["since"] = _announced(self.since)
        if self.awaited:
            found["awaited"] = dict(sorted(self.awaited.items()))
        return found

    @classmethod
    def from_json(cls, raw: object) -> ReceiverServiceOffset:
        """Raises UsageError for an offset that another source, or a newer version of this one, has written."""
        match raw:
            case {"v": 1, "group": str(group), "receivers": dict(receivers), **rest} if (
                len(group) <= _GROUP_MAX
            ):
                since = rest.get("since")
                since = None if since is None else _offsets_of(since, raw)
                return cls(group, _offsets_of(receivers, raw), since, _awaited(rest.get("awaited"), raw))
            case {"receivers": {"embedded": _}}:
                raise UsageError(
                    "the checkpoint is one of a query with its own receiver; remove the option receivers, or start "
                    "with a new checkpoint"
                )
        raise UsageError(f"the checkpoint holds no offset of receiver services: {raw!r:.200}")


def _announced(log_offsets: Mapping[str, Offset]) -> dict[str, Json]:
    return {
        name: {"log": log_offset.log, "position": log_offset.cursor.position, "row": log_offset.cursor.row}
        for name, log_offset in sorted(log_offsets.items())
    }


def _offsets_of(announced: object, raw: object) -> dict[str, Offset]:
    found = announced.items() if isinstance(announced, dict) else [("", None)]
    return {str(name): _offset_of(log_offset, raw) for name, log_offset in found}


def _awaited(announced: object, raw: object) -> dict[str, int] | None:
    if announced is None:
        return None
    if not isinstance(announced, dict) or not all(_is_count(time_ns) for time_ns in announced.values()):
        raise UsageError(f"the checkpoint holds no offset of receiver services: {raw!r:.200}")
    return {str(name): time_ns for name, time_ns in announced.items()}


def _offset_of(announced: object, raw: object) -> Offset:
    match announced:
        case {"log": str(log), "position": position, "row": row} if _is_uuid(log):
            if _is_count(position) and _is_count(row):
                return Offset(log, Cursor(position, row))
    raise UsageError(f"the checkpoint holds no offset of receiver services: {raw!r:.200}")


def _is_count(value: object) -> TypeGuard[int]:
    """Whether it is a number of bytes or rows."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


@lru_cache(maxsize=64)
def _is_uuid(text: str) -> bool:
    """Whether the name of a log is a UUID: it becomes part of a path."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
