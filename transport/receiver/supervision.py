"""Supervises the process of a receiver: starts it, and restarts it after it died or hung.

A query and a receiver service supervise theirs by the same rules, and differ in the number of deaths they accept.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from ..log.appending import is_appended_to
from ..log.frame import Cursor
from ..structure import NANOSECONDS
from .config import ReceiverConfig

#: A process that starts after one was killed waits until the receiver of the killed one notices, and closes the log.
_LOCK_SECONDS: Final = 10.0
#: After more deaths than this within the period, the process is not restarted for one period.
DEATHS_MAX: Final = 5
PERIOD_NS: Final = 60 * NANOSECONDS
_FIRST_DELAY_NS: Final = NANOSECONDS // 2
_LAST_DELAY_NS: Final = 8 * NANOSECONDS
#: A process that ran for this long works: whatever ended it, a restart may be tried at once.
_WORKS_NS: Final = 2 * NANOSECONDS
#: A receiver whose heartbeat stands still for this long hangs.
_HANGS_NS: Final = 60 * NANOSECONDS


class Receiver(Protocol):
    """The part of :class:`.process.ReceiverProcess` that a supervision and its owner use."""

    @property
    def pid(self) -> int: ...
    def base(self) -> int: ...
    def cursor(self) -> Cursor: ...
    def commit_position(self, position: int) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def why_unmatched(self) -> str | None: ...
    def check(self) -> None: ...
    def stop(self, *, dispose: bool = True) -> None: ...


StartReceiver: TypeAlias = Callable[[ReceiverConfig], Receiver]


class RestartPolicy:
    """The deaths of one process within the last minute. The first is followed by a restart at once, as is that of a
    process that worked."""

    def __init__(self, deaths_max: int = DEATHS_MAX) -> None:
        self.deaths_max = deaths_max
        self._deaths: deque[int] = deque()
        self._runs_since: int | None = None
        #: Whether it died too often, and is not restarted for now.
        self.has_failed = False

    def died(self, now: int) -> int:
        """Count a death; returns when to start again."""
        while self._deaths and now - self._deaths[0] > PERIOD_NS:
            self._deaths.popleft()
        self._deaths.append(now)
        count = len(self._deaths)
        worked = self._runs_since is not None and now - self._runs_since >= _WORKS_NS
        self._runs_since = None
        self.has_failed = count > self.deaths_max
        if self.has_failed:
            self._deaths.clear()
            return now + PERIOD_NS
        return now if count == 1 or worked else now + min(_FIRST_DELAY_NS << (count - 2), _LAST_DELAY_NS)

    def runs(self, now: int) -> None:
        """The process has started."""
        self._runs_since = now
        self.has_failed = False


class ReceiverSupervision:
    """Starts the receivers of one subscription, one after the other, and counts their deaths."""

    def __init__(
        self,
        start: StartReceiver,
        *,
        is_stopping: Callable[[], bool],
        deaths_max: int = DEATHS_MAX,
    ) -> None:
        """``is_stopping`` ends the wait for a log."""
        self._start = start
        self._is_stopping = is_stopping
        self._deaths_max = deaths_max
        self.restarts = RestartPolicy(deaths_max)
        #: The number of deaths.
        self.deaths = 0
        #: The last heartbeat that the receiver showed, and for how long it has shown no other.
        self._heartbeat = 0
        self._silent_ns = 0

    def start(self, config: ReceiverConfig) -> Receiver:
        """Start a receiver as soon as no other one appends to the log. Raises the errors of ``start``."""
        deadline = time.monotonic() + _LOCK_SECONDS
        directory = Path(config.log_directory)
        while is_appended_to(directory) and time.monotonic() < deadline and not self._is_stopping():
            time.sleep(0.05)
        receiver = self._start(config)
        self._heartbeat = self._silent_ns = 0
        return receiver

    def died(self, now: int) -> int:
        """Count a death; returns when to start again."""
        self.deaths += 1
        return self.restarts.died(now)

    def forget_deaths(self) -> None:
        """The next receiver has another configuration."""
        self.restarts = RestartPolicy(self._deaths_max)

    def hangs(self, receiver: Receiver, *, since_look: int) -> bool:
        """Whether its heartbeat stood still for a minute, of which at most ``since_look`` ns are new.

        Silence counts only while this process checks: where both processes were stopped, such as in a container that
        was paused, the receiver needs a moment to continue.
        """
        heartbeat = receiver.counters().get("receiver.heartbeat_ns", 0)
        if heartbeat and heartbeat == self._heartbeat:
            self._silent_ns += since_look
        else:
            self._heartbeat, self._silent_ns = heartbeat, 0
        if self._silent_ns <= _HANGS_NS:
            return False
        self._silent_ns = 0  # a process that the kernel holds, such as for a disk, survives its kill
        return True
