"""Waiting for what must come."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds. Longer than anything takes on a loaded machine, unless it is broken.
PATIENCE = 60.0


def wait_until(
    condition: Callable[[], object],
    what: str | Callable[[], str] = "what must come",
    patience: float = PATIENCE,
    *,
    every: float = 0.005,
) -> None:
    """Look every so many seconds until the condition holds; ``what`` says what it is that does not come."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience:g} s for {what if isinstance(what, str) else what()}")
        time.sleep(every)
