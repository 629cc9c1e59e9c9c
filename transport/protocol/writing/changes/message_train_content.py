"""A train of DATA as a writer keeps it: whole messages of uniform samples, which leave together."""

from __future__ import annotations

import numpy as np

from ....wire.framing import DataBlock, MessageBlock
from ....wire.samples import I64, U8
from .content import Content, Resending
from .data_content import DataContent
from .large_sample import LargeSample
from .stream_packer import StreamPacker


class MessageTrainContent(Content):
    """The messages of one train."""

    __slots__ = ("train",)

    has_rows = True

    def __init__(self, train: MessageBlock) -> None:
        self.train = train

    @property
    def data(self) -> U8:
        """The messages, end to end."""
        return self.train.data

    @data.setter
    def data(self, data: U8) -> None:
        self.train.data = data

    def nbytes_of(self, first: int, last: int) -> int:
        train, count = self.train, last - first + 1
        return train.data.nbytes if train.count == count else count * train.stride

    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        packer.add_messages(self.train.data, self.train.segment)

    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        return all(
            answer.resend_block(block, timestamp, max(first, block.first_sn), min(last, block.last_sn))
            for block in self.train.blocks(first, last)
        )

    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        return DataContent(next(self.train.blocks(sn, sn))).in_fragments(sn, timestamp, fits)

    def fitting_messages(self, nbytes: int, at_least: int) -> tuple[int, int]:
        train = self.train
        messages = max(train.messages_within(nbytes), at_least)
        return messages * train.per_message, messages * train.segment

    def part(self, first: int, last: int) -> Content:
        return MessageTrainContent(self.train.part(first, last))

    def compact(self, first: int, last: int) -> Content:
        rows = self.train.rows(first, last)
        return DataContent(DataBlock(first, last - first + 1, rows, self.train.stride))

    def rows(self, first: int, last: int) -> tuple[U8, I64]:
        return self.train.rows(first, last), np.full(last - first + 1, self.train.stride)
