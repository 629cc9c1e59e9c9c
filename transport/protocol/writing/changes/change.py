"""A stretch of samples as it is kept and sent: framed for the wire, or one sample too large for a datagram.

A change cut down to little is copied out of its block, so at most four times the live bytes are held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from ....value_classes import slotted
from ....wire.fragment_train import FragmentTrain
from ....wire.framing import DataBlock, MessageBlock
from ....wire.samples import U8
from .batch_content import BatchContent
from .batch_train_content import BatchTrainContent
from .large_sample import LargeSample

_COMPACT_BELOW: Final = 4
#: Where readerId lies in a DATA submessage (RTPS 2.5 §9.4.5.4).
_READER_ID_OFFSET: Final = 8


def addressed_to(reader_id: bytes, block: DataBlock, first: int, last: int) -> U8:
    """A copy of the submessages first..last with ``reader_id`` in them.

    A repair is for the reader that asks for it, not for volatile readers of its participant that were matched later.
    """
    data = np.array(np.frombuffer(block.slice(first, last), np.uint8))
    if isinstance(block.ends, int):
        starts = block.ends * np.arange(last - first + 1)
    else:
        ends = np.array([0, *block.ends])[first - block.first_sn : last - block.first_sn + 1]
        starts = ends - ends[0]
    data[(starts + _READER_ID_OFFSET)[:, None] + np.arange(4)] = np.frombuffer(reader_id, np.uint8)
    return data


@slotted
class Change:
    """Samples first_sn..last_sn as they go on the wire, with their common source timestamp.

    Only :class:`~..publication.UnsentChanges` moves what they hold, into its log and out of it.
    """

    first_sn: int
    last_sn: int
    timestamp: int
    content: DataBlock | MessageBlock | LargeSample | FragmentTrain | BatchContent | BatchTrainContent
    #: The last batch up to and including this change; 0: there is none.
    batch_sn: int = 0
    #: Its frame in the publication log: where it begins, -1 if it is not there; where the one behind it begins.
    start: int = -1
    position: int = 0
    #: It is being written yet (:mod:`.claims`).
    is_claimed: bool = False

    @property
    def count(self) -> int:
        return self.last_sn - self.first_sn + 1

    @property
    def newest(self) -> int:
        """The last sample's timestamp."""
        return self.content.newest if isinstance(self.content, BatchContent) else self.timestamp

    @property
    def units(self) -> int:
        """Samples, but a batch is one: it is acknowledged as one."""
        return self.batches or self.count

    @property
    def batches(self) -> int:
        """How many batches the samples are."""
        if isinstance(self.content, BatchTrainContent):
            return self.content.train.batches
        return 1 if isinstance(self.content, BatchContent) else 0

    @property
    def nbytes(self) -> int:
        content = self.content
        if isinstance(content, LargeSample):
            return content.data.nbytes
        if isinstance(content, BatchContent | BatchTrainContent):
            return content.nbytes
        if content.count == self.last_sn - self.first_sn + 1:
            return content.data.nbytes
        if isinstance(content, MessageBlock):
            return self.count * content.stride
        if isinstance(content, FragmentTrain):
            return content.data.nbytes * self.count // content.count
        return content.end_of(self.last_sn) - content.end_of(self.first_sn - 1)

    def batches_of(self, train: BatchTrainContent, first: int, last: int) -> Iterator[Change]:
        """Each batch of ``train``, the content, that has a sample of first..last, as a change by itself."""
        for i in range(train.train.index(first), train.train.index(last) + 1):
            content = train.batch(i)
            block = content.batch
            yield replace(
                self,
                first_sn=block.first_sn,
                last_sn=block.last_sn,
                content=content,
                batch_sn=block.batch_sn,
            )

    def train_part(
        self, train: MessageBlock | FragmentTrain | BatchTrainContent, first: int, last: int
    ) -> Change:
        """The whole messages first..last of ``train``, the content; a view."""
        content = train.part(first, last)
        part = replace(self, first_sn=first, last_sn=last, content=content)
        if isinstance(content, BatchTrainContent):
            part.batch_sn = content.train.last_batch_sn
        return part

    def cut(self, first: int, last: int) -> Change:
        """The part first..last, with memory of its own once it is small; of a train of batches, whole batches."""
        block = self.content
        if isinstance(block, LargeSample | BatchContent) or (first == self.first_sn and last == self.last_sn):
            return self
        if isinstance(block, BatchTrainContent):
            part = self.train_part(block, first, last)
            if part.nbytes * _COMPACT_BELOW < block.nbytes:
                part.content.data, part.start = part.content.data.copy(), -1
            return part
        part = replace(self, first_sn=first, last_sn=last)
        if part.nbytes * _COMPACT_BELOW >= block.nbytes:
            return part
        if isinstance(block, FragmentTrain):
            messages = block.part(first, last)
            messages.data = messages.data.copy()
            return replace(part, content=messages, start=-1)
        if isinstance(block, MessageBlock):
            alone = DataBlock(first, last - first + 1, block.rows(first, last), block.stride)
            return replace(part, content=alone, start=-1)
        before = block.end_of(first - 1)
        ends = block.ends
        if not isinstance(ends, int):
            ends = [block.end_of(sn) - before for sn in range(first, last + 1)]
        data = np.array(block.data[before : block.end_of(last)])
        return replace(part, content=DataBlock(first, last - first + 1, data, ends), start=-1)
