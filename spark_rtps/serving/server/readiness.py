"""Whether a receiver service receives: the answer of ``/readyz``."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ...monitoring.stream_counters import State, read_receiver
from ...transport.errors import RtpsError
from ...transport.structure import NANOSECONDS

#: A disk with less free space is about to fail.
_FREE_BYTES_MIN: Final = 64 << 20
#: How long a result is given again: the path needs no token, and there may be many logs.
_REPORTED_NS: Final = NANOSECONDS


class Readiness:
    """Whether the receivers of all subscriptions below ``root`` work; called by the threads of all connections."""

    def __init__(self, root: Path, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._root = root
        self._clock = clock
        self._lock = threading.Lock()
        self._of: Mapping[str, Mapping[str, Any]] | None = None
        self._announced: tuple[bool, dict[str, object]] | None = None
        self._look_at = 0

    def readiness_now(
        self, subscriptions: Mapping[str, Mapping[str, Any]] | None
    ) -> tuple[bool, dict[str, object]]:
        """The result of :func:`readiness`, a second old at most; a new one if there are other subscriptions."""
        with self._lock:
            if self._announced is None or subscriptions is not self._of or self._clock() >= self._look_at:
                self._of, self._announced = subscriptions, readiness(self._root, subscriptions)
                self._look_at = self._clock() + _REPORTED_NS
            return self._announced


def readiness(
    root: Path, subscriptions: Mapping[str, Mapping[str, Any]] | None
) -> tuple[bool, dict[str, object]]:
    """Whether all subscriptions receive, and the checks of each by name.

    ``joined``: its receiver is on the domain; ``writing``: it is at work; ``disk``: there is free space. ``matched``
    (there is a writer) is reported and decides nothing: a robot that is switched off is not a fault of the receiver.
    """
    if subscriptions is None:
        return False, {"v": 1, "ready": False, "subscriptions": {}}
    has_room, now = _has_room(root), time.monotonic_ns()
    checks = {name: _checks(root / each["log"], each, has_room, now) for name, each in subscriptions.items()}
    ready = has_room and all(all(c[k] for k in ("joined", "writing", "disk")) for c in checks.values())
    return ready, {"v": 1, "ready": ready, "subscriptions": checks}


def _checks(directory: Path, parsed: Mapping[str, Any], has_room: bool, now: int) -> dict[str, bool]:
    try:
        state, counters = read_receiver(directory, now=now)
    except (RtpsError, OSError, ValueError):  # it has not started yet
        state, counters = State.ENDED, {}
    is_running = parsed.get("state") == "running"
    return {
        "joined": is_running and state in (State.ALIVE, State.STALLED),
        "matched": counters.get("reader.matched_writers", 0) > 0,
        "writing": is_running and state is State.ALIVE,
        "disk": has_room,
    }


def _has_room(root: Path) -> bool:
    try:
        found = os.statvfs(root)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= _FREE_BYTES_MIN
