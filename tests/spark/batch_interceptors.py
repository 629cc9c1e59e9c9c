"""Batch interceptors, shipped to the workers as a user ships them."""

from __future__ import annotations

from collections.abc import Callable


def in_tens(sample_size: int, queued_samples: int, queued_bytes: int, flush: Callable[[], None]) -> None:
    """No more than ten samples share a batch."""
    if queued_samples == 10:
        flush()


def refuse(sample_size: int, queued_samples: int, queued_bytes: int, flush: Callable[[], None]) -> None:
    if queued_samples == 5:
        raise ValueError(f"five samples of {sample_size} bytes are enough")
