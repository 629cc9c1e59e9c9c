"""Waiting for a condition that must become true."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds. Nothing takes longer, even on a loaded machine, unless it is broken.
PATIENCE = 60.0


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str] = "what must come",
    patience: float = PATIENCE,
    *,
    every: float = 0.005,
) -> None:
    """Check the condition every so many seconds until it holds.

    Raises AssertionError after ``patience`` seconds; ``what`` names the condition in its message.
    """
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(every)
