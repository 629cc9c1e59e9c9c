"""DATA as a writer keeps it: the submessages of at most one datagram."""

from __future__ import annotations

from typing import Final

import numpy as np

from ....wire.framing import DataBlock
from ....wire.samples import I64, U8
from .content import Content, Resending
from .large_sample import LargeSample
from .stream_packer import StreamPacker

#: Offset of readerId in a DATA submessage (RTPS 2.5 §9.4.5.4).
_READER_ID_OFFSET: Final = 8


class DataContent(Content):
    """The submessages of one block."""

    __slots__ = ("block",)

    sends_in_parts = True
    has_rows = True

    def __init__(self, block: DataBlock) -> None:
        self.block = block

    @property
    def data(self) -> U8:
        """The submessages, end to end."""
        return self.block.data

    @data.setter
    def data(self, data: U8) -> None:
        self.block.data = data

    def nbytes_of(self, first: int, last: int) -> int:
        block = self.block
        if block.count == last - first + 1:
            return block.data.nbytes
        return block.end_of(last) - block.end_of(first - 1)

    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        packer.add_block(self.block, first, last, timestamp)

    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        return answer.resend_block(self.block, timestamp, first, last)

    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        block = self.block
        if block.end_of(sn) - block.end_of(sn - 1) <= fits:
            return None
        return LargeSample.of_block(block, sn, fits), timestamp

    def compact(self, first: int, last: int) -> Content:
        block = self.block
        before, ends = block.end_of(first - 1), block.ends
        if not isinstance(ends, int):
            ends = [block.end_of(sn) - before for sn in range(first, last + 1)]
        data = np.array(block.data[before : block.end_of(last)])
        return DataContent(DataBlock(first, last - first + 1, data, ends))

    def rows(self, first: int, last: int) -> tuple[U8, I64]:
        block, count = self.block, last - first + 1
        data = block.data[block.end_of(first - 1) : block.end_of(last)]
        if isinstance(block.ends, int):
            return data, np.full(count, block.ends)
        ends = np.array([0, *block.ends], np.int64)
        return data, np.diff(ends[first - block.first_sn : last - block.first_sn + 2])


def addressed_to(reader_id: bytes, block: DataBlock, first: int, last: int) -> U8:
    """A copy of the submessages first..last that names ``reader_id`` as the reader.

    A repair is for the reader that requests it, not for volatile readers of its participant that matched later.
    """
    data = np.array(np.frombuffer(block.slice(first, last), np.uint8))
    if isinstance(block.ends, int):
        starts = block.ends * np.arange(last - first + 1)
    else:
        ends = np.array([0, *block.ends])[first - block.first_sn : last - block.first_sn + 1]
        starts = ends - ends[0]
    data[(starts + _READER_ID_OFFSET)[:, None] + np.arange(4)] = np.frombuffer(reader_id, np.uint8)
    return data
