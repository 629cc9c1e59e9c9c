"""A GSO buffer of batches as a writer keeps it: whole messages with one DATA_BATCH each, sent by one call.

A single batch is accessed only when it is requested again, or removed in part; in the latter case all batches become
changes of their own (:meth:`.change.Change.apart`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ....wire.gso_batches import GsoBatches
from ....wire.samples import U8
from ...policies import BatchPolicy
from .batch_content import BatchContent
from .content import Content, Resending
from .large_sample import LargeSample
from .stream_packer import BATCH, StreamPacker


class GsoBatchContent(Content):
    """The batches of one GSO buffer; ``timestamp`` is that of all samples, ``budget`` as in :class:`.BatchContent`."""

    __slots__ = ("_budget", "_policy", "batches", "gso_buffer", "last_batch_sn", "timestamp")

    def __init__(self, gso_buffer: GsoBatches, timestamp: int, policy: BatchPolicy, budget: int) -> None:
        self.gso_buffer = gso_buffer
        self.timestamp = timestamp
        self.batches = gso_buffer.batches
        self.last_batch_sn = gso_buffer.last_batch_sn
        self._policy = policy
        self._budget = budget

    @property
    def data(self) -> U8:
        """The messages, end to end."""
        return self.gso_buffer.data

    @data.setter
    def data(self, data: U8) -> None:
        self.gso_buffer = replace(self.gso_buffer, data=data)

    def nbytes_of(self, first: int, last: int) -> int:
        return self.gso_buffer.data.nbytes

    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        if packer.form == BATCH:
            packer.add_messages(self.gso_buffer.data, self.gso_buffer.segment)
            return
        for i in range(self.batches):  # for readers that matched after the buffer was framed
            self.batch(i).pack(packer, first, last, timestamp)

    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        batches = range(self.gso_buffer.index(first), self.gso_buffer.index(last) + 1)
        return all(self.batch(i).resend(answer, first, last, timestamp) for i in batches)

    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        return self.batch(self.gso_buffer.index(sn)).in_fragments(sn, timestamp, fits)

    def fitting_messages(self, nbytes: int, at_least: int) -> tuple[int, int]:
        messages = max(nbytes // self.gso_buffer.segment, at_least)
        return messages * self.gso_buffer.per_batch, messages * self.gso_buffer.segment

    def part(self, first: int, last: int) -> Content:
        gso_buffer = self.gso_buffer.part(self.gso_buffer.index(first), self.gso_buffer.index(last) + 1)
        return GsoBatchContent(gso_buffer, self.timestamp, self._policy, self._budget)

    def compact(self, first: int, last: int) -> Content:
        part = self.part(first, last)
        part.data = part.data.copy()
        return part

    def batch(self, i: int) -> BatchContent:
        """Batch ``i``, from 0; a view."""
        return BatchContent(self.gso_buffer.block(i), self.timestamp, self._policy, self._budget)

    def apart(self) -> Iterator[tuple[int, int, Content]]:
        for i in range(self.batches):
            content = self.batch(i)
            yield content.batch.first_sn, content.batch.last_sn, content

    def splits_batch(self, sn: int) -> bool:
        return (sn - self.gso_buffer.first_sn) % self.gso_buffer.per_batch != 0

    def end_of_batch(self, sn: int) -> int:
        gso_buffer = self.gso_buffer
        return gso_buffer.first_sn + (gso_buffer.index(sn) + 1) * gso_buffer.per_batch - 1

    def first_batch_from(self, sn: int) -> int:
        gso_buffer = self.gso_buffer
        within = -(-(sn - gso_buffer.first_sn) // gso_buffer.per_batch)
        return gso_buffer.batch_sn + within if within < gso_buffer.batches else 0

    def span_of(self, first_batch: int, last_batch: int) -> tuple[int, int] | None:
        gso_buffer = self.gso_buffer
        if first_batch < gso_buffer.batch_sn:
            return None
        last = min(last_batch, gso_buffer.last_batch_sn)
        part = gso_buffer.part(first_batch - gso_buffer.batch_sn, last + 1 - gso_buffer.batch_sn)
        return part.first_sn, part.last_sn
