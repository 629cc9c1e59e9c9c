"""Preparation of a Python worker process, once for all its tasks."""

from __future__ import annotations

import gc
import os

_settled_in = 0


def settle() -> None:
    """Exclude what is imported from garbage collection: Spark collects after every task.

    Measured: collection takes 2 instead of 14 ms a task.
    """
    global _settled_in
    if _settled_in != os.getpid():
        _settled_in = os.getpid()
        gc.freeze()
