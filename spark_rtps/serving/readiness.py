"""Whether a standing receiver receives: what ``/readyz`` tells."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..monitoring.stream_counters import State, read_source

#: A disk with less room is about to refuse.
_FREE_BYTES_MIN: Final = 64 << 20


def readiness(
    root: Path, subscriptions: Mapping[str, Mapping[str, Any]] | None
) -> tuple[bool, dict[str, object]]:
    """Whether all subscriptions receive, and the checks of each by name.

    ``joined``: its receiver is on the domain; ``writing``: it is at work; ``disk``: there is room. ``matched``, whether
    there is a writer, is told and decides nothing: a robot that is switched off is no fault of the receiver.
    """
    if subscriptions is None:
        return False, {"v": 1, "ready": False, "subscriptions": {}}
    has_room, now = _has_room(root), time.monotonic_ns()
    checks = {name: _checks(root / each["log"], each, has_room, now) for name, each in subscriptions.items()}
    ready = has_room and all(all(c[k] for k in ("joined", "writing", "disk")) for c in checks.values())
    return ready, {"v": 1, "ready": ready, "subscriptions": checks}


def _checks(directory: Path, told: Mapping[str, Any], has_room: bool, now: int) -> dict[str, bool]:
    stream = read_source(directory, now=now)
    is_running = told.get("state") == "running" and stream is not None
    return {
        "joined": is_running and stream is not None and stream.state in (State.ALIVE, State.STALLED),
        "matched": stream is not None and stream.counters.get("reader.matched_writers", 0) > 0,
        "writing": is_running and stream is not None and stream.state is State.ALIVE,
        "disk": has_room,
    }


def _has_room(root: Path) -> bool:
    try:
        found = os.statvfs(root)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= _FREE_BYTES_MIN
