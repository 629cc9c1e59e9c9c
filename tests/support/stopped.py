"""A child process that stands still for a while."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The child does not run meanwhile: silence, and no dispose."""
    os.kill(pid, signal.SIGSTOP)
    # on another core it may go on for a moment after kill() has returned
    os.waitid(os.P_PID, pid, os.WSTOPPED)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
