"""How far the consumer groups of a log are behind it: from the files beside it."""

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
    """The position before which some group of a log has committed everything: so much the log has to hold.

    Raises OSError: a file that cannot be opened now, such as for want of descriptors, does not say that there is none.
    """
    try:
        raw = (directory / GROUPS).read_bytes()
    except FileNotFoundError:
        return 0
    try:
        groups = parse_groups(raw)
    except ValueError:  # the server puts it aside
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
