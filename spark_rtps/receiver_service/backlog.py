"""The backlog of a log's consumer groups, from the sidecar files."""

from __future__ import annotations

from pathlib import Path

from ..monitoring.consumer_groups import GROUPS, parse_groups, read_groups
from ..transport.errors import LogError
from ..transport.log.counters import COUNTERS_FILE, Counters
from ..transport.value_classes import value


@value
class Behind:
    """A group, and how many bytes of the log it has not committed."""

    group: str
    nbytes: int


def committed(directory: Path) -> int:
    """The lowest position that some group has committed everything before: the log has to hold the rest.

    Raises OSError: a file that cannot be opened now, for example for lack of descriptors, may still have groups.
    """
    try:
        raw = (directory / GROUPS).read_bytes()
    except FileNotFoundError:
        return 0
    try:
        groups = parse_groups(raw)
    except ValueError:  # the server renames it
        return 0
    return max((each.position + (each.row > 0) for each in groups), default=0)


def read_counters(directory: Path) -> dict[str, int]:
    """The counters of a log's receiver, which may have ended; none where there is no file."""
    try:
        return Counters.open(directory / COUNTERS_FILE, writable=False).snapshot()
    except (LogError, OSError, UnicodeDecodeError):
        return {}


def groups_behind(directory: Path, position: int) -> list[Behind]:
    """The groups that have not committed everything before ``position``, the farthest behind first."""
    behind = [
        Behind(each.name, position - each.position)
        for each in read_groups(directory)
        if each.position < position
    ]
    return sorted(behind, key=lambda each: (-each.nbytes, each.group))
