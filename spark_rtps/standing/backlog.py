"""How far the consumer groups of a log are behind it: from the files beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..transport.errors import LogError
from ..transport.log.counters import Counters
from ..transport.receiver.shown_counters import COUNTERS_FILE

FILE: Final = "groups.json"
_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Behind:
    """A group, and how many bytes of the log it has not committed."""

    group: str
    nbytes: int


def read_groups(directory: Path) -> dict[str, int]:
    """Group -> the position before which everything is committed, rounded up; none if the file cannot be read."""
    path = directory / FILE
    try:
        if path.stat().st_size > _BYTES_MAX:
            return {}
        groups = json.loads(path.read_text(encoding="utf-8"))["groups"]
        return {str(name): int(each["position"]) + (int(each["row"]) > 0) for name, each in groups.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def read_counters(directory: Path) -> dict[str, int]:
    """The counters of a log's receiver, which may have ended; none where there is no file."""
    try:
        return Counters.open(directory / COUNTERS_FILE, writable=False).snapshot()
    except (LogError, OSError, UnicodeDecodeError):
        return {}


def groups_behind(directory: Path, position: int) -> list[Behind]:
    """The groups that have not committed everything before ``position``, the farthest behind first."""
    groups = read_groups(directory)
    behind = [Behind(name, position - there) for name, there in groups.items() if there < position]
    return sorted(behind, key=lambda each: (-each.nbytes, each.group))
