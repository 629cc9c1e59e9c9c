"""How a thread, or a task of an event loop, waits for samples."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

#: The longest single sleep: `threading.Condition` has a limit.
_WAIT_SECONDS_MAX: Final = 3600.0


class ArrivalSignal:
    """Wakes the threads and tasks that wait for the samples of one inbox."""

    def __init__(self) -> None:
        #: Guards the arrivals; held only while a list is swapped.
        self.lock = threading.Condition(threading.Lock())
        #: Increased whenever samples have arrived, or were put back.
        self.count = 0
        #: Whether no more will arrive.
        self.is_ended = False
        #: Called at each arrival, and at the end, by the thread that notices it.
        self._wakers: set[Callable[[], None]] = set()

    def disown(self) -> None:
        """In a forked child: nothing will arrive here."""
        self.lock = threading.Condition(threading.Lock())  # a thread of the parent may have held it
        self.is_ended = True

    def wait(self, count: int, deadline: float | None) -> bool:
        """Wait until ``count`` exceeds the given one; False: nothing will arrive any more, or time is up.

        ``deadline`` is monotonic, in seconds; None: never.
        """
        with self.lock:
            while self.count <= count and not self.is_ended:
                left = _WAIT_SECONDS_MAX if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                self.lock.wait(min(left, _WAIT_SECONDS_MAX))
            return self.count > count

    def add_waker(self, waker: Callable[[], None]) -> None:
        """Call ``waker`` at each arrival, and at the end. It must neither block nor call the inbox."""
        with self.lock:
            self._wakers.add(waker)

    def remove_waker(self, waker: Callable[[], None]) -> None:
        """Do not call it any more."""
        with self.lock:
            self._wakers.discard(waker)

    def raise_count(self) -> None:
        """Samples have arrived, or were put back; the caller holds the lock."""
        self.count += 1
        self.wake_all()

    def wake_all(self) -> None:
        """Let waiting threads check again; the caller holds the lock."""
        self.lock.notify_all()
        for waker in self._wakers:
            waker()
