"""A train of batches as a writer keeps it: whole messages, one DATA_BATCH each, which leave together.

Nobody looks at one of its batches unless it is asked for again, or is to be removed in part: that one then becomes a
change by itself (:meth:`.change.Change.apart`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ....wire.batch_train import BatchTrain
from ....wire.samples import U8
from ...policies import BatchPolicy
from .batch_content import BatchContent
from .content import Content, Resending
from .large_sample import LargeSample
from .stream_packer import BATCH, StreamPacker


class BatchTrainContent(Content):
    """The batches of one train; ``timestamp`` is that of all samples, ``budget`` as in :class:`.BatchContent`."""

    __slots__ = ("_budget", "_policy", "batches", "last_batch_sn", "timestamp", "train")

    def __init__(self, train: BatchTrain, timestamp: int, policy: BatchPolicy, budget: int) -> None:
        self.train = train
        self.timestamp = timestamp
        self.batches = train.batches
        self.last_batch_sn = train.last_batch_sn
        self._policy = policy
        self._budget = budget

    @property
    def data(self) -> U8:
        """The messages, end to end."""
        return self.train.data

    @data.setter
    def data(self, data: U8) -> None:
        self.train = replace(self.train, data=data)

    def nbytes_of(self, first: int, last: int) -> int:
        return self.train.data.nbytes

    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        if packer.form == BATCH:
            packer.add_messages(self.train.data, self.train.segment)
            return
        for i in range(self.batches):  # for readers that were matched after it was framed
            self.batch(i).pack(packer, first, last, timestamp)

    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        batches = range(self.train.index(first), self.train.index(last) + 1)
        return all(self.batch(i).resend(answer, first, last, timestamp) for i in batches)

    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        return self.batch(self.train.index(sn)).in_fragments(sn, timestamp, fits)

    def fitting_messages(self, nbytes: int, at_least: int) -> tuple[int, int]:
        messages = max(nbytes // self.train.segment, at_least)
        return messages * self.train.per_batch, messages * self.train.segment

    def part(self, first: int, last: int) -> Content:
        train = self.train.part(self.train.index(first), self.train.index(last) + 1)
        return BatchTrainContent(train, self.timestamp, self._policy, self._budget)

    def compact(self, first: int, last: int) -> Content:
        part = self.part(first, last)
        part.data = part.data.copy()
        return part

    def batch(self, i: int) -> BatchContent:
        """Batch ``i``, from 0; a view."""
        return BatchContent(self.train.block(i), self.timestamp, self._policy, self._budget)

    def apart(self) -> Iterator[tuple[int, int, Content]]:
        for i in range(self.batches):
            content = self.batch(i)
            yield content.batch.first_sn, content.batch.last_sn, content

    def splits_batch(self, sn: int) -> bool:
        return (sn - self.train.first_sn) % self.train.per_batch != 0

    def end_of_batch(self, sn: int) -> int:
        train = self.train
        return train.first_sn + (train.index(sn) + 1) * train.per_batch - 1

    def first_batch_from(self, sn: int) -> int:
        train = self.train
        within = -(-(sn - train.first_sn) // train.per_batch)
        return train.batch_sn + within if within < train.batches else 0

    def span_of(self, first_batch: int, last_batch: int) -> tuple[int, int] | None:
        train = self.train
        if first_batch < train.batch_sn:
            return None
        last = min(last_batch, train.last_batch_sn)
        part = train.part(first_batch - train.batch_sn, last + 1 - train.batch_sn)
        return part.first_sn, part.last_sn
