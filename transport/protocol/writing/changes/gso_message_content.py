"""A GSO buffer of DATA as a writer keeps it: whole messages of uniform samples, sent by one call."""

from __future__ import annotations

import numpy as np

from ....wire.framing import DataBlock, MessageBlock
from ....wire.samples import I64, U8
from .content import Content, Resending
from .data_content import DataContent
from .large_sample import LargeSample
from .stream_packer import StreamPacker


class GsoMessageContent(Content):
    """The messages of one GSO buffer."""

    __slots__ = ("gso_buffer",)

    has_rows = True

    def __init__(self, gso_buffer: MessageBlock) -> None:
        self.gso_buffer = gso_buffer

    @property
    def data(self) -> U8:
        """The messages, end to end."""
        return self.gso_buffer.data

    @data.setter
    def data(self, data: U8) -> None:
        self.gso_buffer.data = data

    def nbytes_of(self, first: int, last: int) -> int:
        gso_buffer, count = self.gso_buffer, last - first + 1
        return gso_buffer.data.nbytes if gso_buffer.count == count else count * gso_buffer.stride

    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        packer.add_messages(self.gso_buffer.data, self.gso_buffer.segment)

    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        return all(
            answer.resend_block(block, timestamp, max(first, block.first_sn), min(last, block.last_sn))
            for block in self.gso_buffer.blocks(first, last)
        )

    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        return DataContent(next(self.gso_buffer.blocks(sn, sn))).in_fragments(sn, timestamp, fits)

    def fitting_messages(self, nbytes: int, at_least: int) -> tuple[int, int]:
        gso_buffer = self.gso_buffer
        messages = max(gso_buffer.messages_within(nbytes), at_least)
        return messages * gso_buffer.per_message, messages * gso_buffer.segment

    def part(self, first: int, last: int) -> Content:
        return GsoMessageContent(self.gso_buffer.part(first, last))

    def compact(self, first: int, last: int) -> Content:
        rows = self.gso_buffer.rows(first, last)
        return DataContent(DataBlock(first, last - first + 1, rows, self.gso_buffer.stride))

    def rows(self, first: int, last: int) -> tuple[U8, I64]:
        return self.gso_buffer.rows(first, last), np.full(last - first + 1, self.gso_buffer.stride)
