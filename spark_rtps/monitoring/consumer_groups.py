"""The consumer groups of a receiver service's log, as its server keeps and reports them.

The sidecar file ``groups.json``, and the answer to a request for it:
``{"v":1,"groups":{NAME:{"position":P,"row":R,"at_ns":T,"idle_ns":I,"missed":N}}}``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..transport.value_classes import value
from .untrusted_json import parse_mapping, parse_number, parse_object, parse_text

GROUPS: Final = "groups.json"
_GROUPS_MAX: Final = 4_096
_BYTES_MAX: Final = 4 << 20


@value
class ConsumerGroup:
    """A group: everything before ``row`` of the frame at ``position`` is committed, since ``at_ns``, in ns since
    1970."""

    name: str
    position: int
    row: int
    at_ns: int
    #: Bytes before ``position`` that were trimmed before the group had committed them.
    missed: int = 0
    #: Time since its commit, at the moment of the report; setting a clock changes ``at_ns``, but not this.
    idle_ns: int = 0

    def missed_of(self, base: int) -> int:
        """Bytes that were trimmed before the group had committed them, of a log that begins at ``base``."""
        return self.missed + max(0, base - self.position)


def read_groups(directory: Path) -> list[ConsumerGroup]:
    """The groups of the log in ``directory``, the one that is furthest behind first; none if that cannot be read."""
    try:
        with open(directory / GROUPS, "rb") as file:
            return parse_groups(file.read(_BYTES_MAX))
    except (OSError, ValueError):
        return []


def count_groups(directory: Path, *, base: int, end: int) -> dict[str, int]:
    """Counters of the groups of a log that holds [``base``, ``end``); none where it has no groups.

    ``groups.overtaken``: the groups whose next samples are already trimmed.
    """
    groups = read_groups(directory)
    if not groups:
        return {}
    return {
        "groups.count": len(groups),
        "groups.behind_bytes": max(0, end - groups[0].position),
        "groups.overtaken": sum(group.position < base for group in groups),
        "groups.missed_bytes": sum(group.missed_of(base) for group in groups),
    }


def parse_groups(raw: bytes) -> list[ConsumerGroup]:
    """Parse the groups in the file or in an answer. Raises ValueError."""
    found = parse_mapping(parse_object(raw).get("groups"), _GROUPS_MAX)
    groups = [_group(name, each) for name, each in found.items()]
    return sorted(groups, key=lambda group: (group.position, group.row, group.name))


def _group(name: str, raw: object) -> ConsumerGroup:
    fields = parse_mapping(raw)
    position, row, at_ns = (parse_number(fields.get(key)) for key in ("position", "row", "at_ns"))
    missed, idle_ns = (parse_number(fields.get(key, 0)) for key in ("missed", "idle_ns"))
    return ConsumerGroup(parse_text(name), position, row, at_ns, missed, idle_ns)
