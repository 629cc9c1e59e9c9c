"""Which thread runs a node's duty cycle: the node's own, or one that is waiting for the network."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Final, Protocol

_log = logging.getLogger(__name__)

_IDLE_SECONDS_MAX: Final = 1.0
#: For how long a thread that steered may steer again without having woken the node's own thread in between.
_LINGER_SECONDS: Final = 0.002


class Agent(Protocol):
    """Owns the duty cycle (`net.node.Node`)."""

    lock: threading.RLock

    @property
    def is_closed(self) -> bool: ...
    def cycle(self, timeout: float) -> None: ...
    def wake(self) -> None: ...


class DutyCycle:
    """The node's own thread, if it has one, and the threads that steer: those that run the duty cycle in its place."""

    def __init__(self, agent: Agent, domain: int) -> None:
        self._agent = agent
        self._domain = domain
        self.thread: threading.Thread | None = None
        #: The number of threads that steer now.
        self.steering_threads = 0
        #: Until when a thread that steered lingers, and whether the node's own thread checks that.
        self._lingers_until = 0.0
        self._looks_often = False
        self._unsteered = threading.Event()
        self._unsteered.set()

    def start(self) -> None:
        """Run the duty cycle in a daemon thread until the node is closed."""
        self.thread = threading.Thread(target=self._run, name=f"rtps-domain-{self._domain}", daemon=True)
        self.thread.start()

    def join(self) -> None:
        """Wait for the thread of a node that is closed, unless it is the calling one."""
        self._agent.wake()
        if self.thread is not None and not self.runs_in_this_thread:
            self.thread.join(timeout=5)

    @property
    def runs_in_this_thread(self) -> bool:
        """Whether the calling thread is the node's own."""
        return threading.current_thread() is self.thread

    @contextlib.contextmanager
    def steering(self, *, lingering: bool = False) -> Iterator[None]:
        """Meanwhile the calling thread runs the duty cycle, and the node's own thread stands aside.

        ``lingering``: the caller is likely to steer again at once, and until then the node's own thread is not needed.
        """
        with self._agent.lock:
            self.steering_threads += 1
            self._unsteered.clear()
        try:
            yield
        finally:
            with self._agent.lock:
                self.steering_threads -= 1
                self._lingers_until = time.monotonic() + _LINGER_SECONDS if lingering else 0.0
                if not self.steering_threads and not (lingering and self._looks_often):
                    self._unsteered.set()

    def _run(self) -> None:
        while not self._agent.is_closed:
            try:
                if self._is_needed():
                    self._agent.cycle(_IDLE_SECONDS_MAX)
            except Exception:  # noqa: BLE001  (without this thread every lease would expire)
                if self._agent.is_closed:
                    return
                _log.exception("the duty cycle of domain %d failed; it continues", self._domain)
                time.sleep(0.1)  # never spin on a failure that repeats

    def _is_needed(self) -> bool:
        """Whether the node's own thread runs the duty cycle now. While another thread steers or lingers, return False
        after a while.

        A thread that lingers does not wake the node's own thread, which would slow every write: that thread checks by
        itself.
        """
        with self._agent.lock:
            left = self._lingers_until - time.monotonic()
            if not self.steering_threads:
                if left <= 0:
                    return True
                self._unsteered.clear()
            self._looks_often = left > 0
        self._unsteered.wait(_LINGER_SECONDS if self._looks_often else _IDLE_SECONDS_MAX)
        return False
