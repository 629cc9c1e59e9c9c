"""A train of batches as a writer keeps it: whole messages, one DATA_BATCH each, which leave together.

Nobody looks at one of its batches unless it is asked for again, or is to be removed in part: that one then becomes a
change by itself (:meth:`.change.Change.batches_of`).
"""

from __future__ import annotations

from dataclasses import replace

from ....value_classes import slotted
from ....wire.batch_train import BatchTrain
from ....wire.samples import U8
from ...policies import BatchPolicy
from .batch_content import BatchContent


@slotted
class BatchTrainContent:
    """The batches of one train; ``timestamp`` is that of all samples, ``budget`` as in :class:`.BatchContent`."""

    train: BatchTrain
    timestamp: int
    policy: BatchPolicy
    budget: int

    @property
    def data(self) -> U8:
        """The messages."""
        return self.train.data

    @data.setter
    def data(self, data: U8) -> None:
        self.train = replace(self.train, data=data)

    @property
    def nbytes(self) -> int:
        return self.train.data.nbytes

    @property
    def segment(self) -> int:
        """Bytes of a message."""
        return self.train.segment

    @property
    def per_message(self) -> int:
        """Samples of a message."""
        return self.train.per_batch

    def messages_within(self, nbytes: int) -> int:
        """How many messages fit ``nbytes`` together, be they more than there are."""
        return nbytes // self.train.segment

    def begins_at(self, sn: int) -> bool:
        """Whether a batch begins at ``sn``, or the train ends before it."""
        return (sn - self.train.first_sn) % self.train.per_batch == 0

    def part(self, first_sn: int, last_sn: int) -> BatchTrainContent:
        """The batches that have a sample of [first_sn, last_sn]; a view."""
        train = self.train
        return replace(self, train=train.part(train.index(first_sn), train.index(last_sn) + 1))

    def batch(self, i: int) -> BatchContent:
        """Batch ``i``, from 0; a view."""
        return BatchContent(self.train.block(i), self.timestamp, self.policy, self.budget)
