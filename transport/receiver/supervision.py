"""Supervises the process of a receiver: when it is started, and when again after it has died or hangs.

A query and a receiver service supervise theirs by the same rules, and differ in how often a receiver may die.
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

#: A process that starts after one was killed has to wait until that one's receiver notices, and closes the log.
_LOCK_SECONDS: Final = 10.0
#: More deaths than this within the period, and a process is left alone for as long.
DEATHS_MAX: Final = 5
PERIOD_NS: Final = 60 * NANOSECONDS
_FIRST_DELAY_NS: Final = NANOSECONDS // 2
_LAST_DELAY_NS: Final = 8 * NANOSECONDS
#: What ran for so long works: whatever ended it, another try costs nothing.
_WORKS_NS: Final = 2 * NANOSECONDS
#: A receiver that shows no sign of life for so long hangs.
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
    """The deaths of one process within the last minute. The first costs no time, nor does that of one that worked."""

    def __init__(self, deaths_max: int = DEATHS_MAX) -> None:
        self.deaths_max = deaths_max
        self._deaths: deque[int] = deque()
        self._runs_since: int | None = None
        #: It died too often, and rests.
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
        """It has started."""
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
        """Nobody waits for a log any more once ``is_stopping``."""
        self._start = start
        self._is_stopping = is_stopping
        self._deaths_max = deaths_max
        self.restarts = RestartPolicy(deaths_max)
        #: How many have died.
        self.deaths = 0
        #: What the receiver showed last, and for how long it has shown nothing else.
        self._heartbeat = 0
        self._silent_ns = 0

    def start(self, config: ReceiverConfig) -> Receiver:
        """Start a receiver as soon as no other one appends to the log. Raises what its start raises."""
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
        """What runs next is another one."""
        self.restarts = RestartPolicy(self._deaths_max)

    def hangs(self, receiver: Receiver, *, since_look: int) -> bool:
        """Whether it has shown no sign of life for a minute, of which at most ``since_look`` ns are new.

        Silence counts only as long as it is looked at: where both processes were stopped, such as in a container that
        was paused, the receiver needs a moment to go on.
        """
        heartbeat = receiver.counters().get("receiver.heartbeat_ns", 0)
        if heartbeat and heartbeat == self._heartbeat:
            self._silent_ns += since_look
        else:
            self._heartbeat, self._silent_ns = heartbeat, 0
        if self._silent_ns <= _HANGS_NS:
            return False
        self._silent_ns = 0  # one that the kernel does not let go of, such as for a disk, outlives its end
        return True
