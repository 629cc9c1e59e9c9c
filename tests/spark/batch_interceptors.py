"""Batch interceptors, shipped to the workers as a user ships them."""

from __future__ import annotations

from spark_rtps.transport.protocol.writing.batching import BatchRequest


def in_tens(request: BatchRequest) -> None:
    """No more than ten samples share a batch."""
    if request.queued_samples == 10:
        request.flush()
    request.enqueue()


def refuse(request: BatchRequest) -> None:
    if request.queued_samples == 5:
        raise ValueError(f"five samples of {request.size} bytes are enough")
    request.enqueue()


def without_every_tenth(request: BatchRequest) -> None:
    """Every tenth vehicle is never sent, and those before it share a batch."""
    row = request.row()
    assert row is not None and request.topic == "batched_vehicles" and len(request.key or b"") == 16
    if row["id"] % 10 == 0:
        request.drop()
        request.flush()
    else:
        request.enqueue()


def old_form(sample_size: int, queued_samples: int, queued_bytes: int, flush: object) -> None:
    """What interceptors looked like before."""
