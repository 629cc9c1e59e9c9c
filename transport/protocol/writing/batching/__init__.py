"""Samples gathered into batches, and the batches that leave."""

from .batch_queue import FlushReason, PendingBatch
from .batcher import Batcher, Interceptor

__all__ = ["Batcher", "FlushReason", "Interceptor", "PendingBatch"]
