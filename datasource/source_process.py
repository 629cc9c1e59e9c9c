"""The process on the driver that runs a streaming source: whether Spark ends it, and whether the driver lives."""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

_LOOK_SECONDS: Final = 0.02
#: A killed driver closes its sockets some milliseconds before its children get another parent.
_DYING_SECONDS: Final = 0.5


class SourceProcess:
    """Spark ends the process by SIGTERM and by closing its socket; a killed driver only closes sockets."""

    def __init__(self) -> None:
        self.is_stopping = False  # no Event: a second SIGTERM inside Event.set() would deadlock
        #: When the source's receiver was attached last; 0: not yet.
        self.attached_at = 0
        self._parent = 0
        self._pid = 0

    def attach(self, stop: Callable[[], None]) -> None:
        """From now on a receiver belongs to this process; ``stop`` is called at the end of the process."""
        if not self.attached_at:
            atexit.register(stop)
        self.attached_at, self._parent, self._pid = time.monotonic_ns(), os.getppid(), os.getpid()
        if threading.current_thread() is threading.main_thread():
            # Spark sends SIGTERM and closes the socket: without a handler the process ends before stop() is called
            signal.signal(signal.SIGTERM, self.on_sigterm)

    def on_sigterm(self, _signal: int, _frame: FrameType | None) -> None:
        self.is_stopping = True

    def is_forked(self) -> bool:
        """Whether this is a child of the process: its receiver belongs to its parent."""
        return os.getpid() != self._pid

    def is_orphaned(self) -> bool:
        """Whether the driver was killed: its sockets close as for a stopped query, but it sends no signal."""
        until = time.monotonic() + _DYING_SECONDS
        while not self.is_stopping and os.getppid() == self._parent and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
        return os.getppid() != self._parent
