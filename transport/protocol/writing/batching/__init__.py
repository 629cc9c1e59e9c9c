"""Gathers samples into batches."""

from .batch_queue import FlushReason, PendingBatch
from .batcher import Batcher
from .interceptor import BatchRequest, Interceptor

__all__ = ["BatchRequest", "Batcher", "FlushReason", "Interceptor", "PendingBatch"]
