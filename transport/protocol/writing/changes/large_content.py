"""One large sample as a writer keeps it: its payload, which travels as DATA_FRAGs."""

from __future__ import annotations

from ....wire.framing import long_data_header
from ....wire.samples import U8
from ...outgoing import HEARTBEAT_ROOM
from .content import Content, Resending
from .large_sample import LargeSample
from .stream_packer import StreamPacker


class LargeContent(Content):
    """One sample; until it is published, its data is a view of the caller's memory."""

    __slots__ = ("sample",)

    can_be_cut = False

    def __init__(self, sample: LargeSample) -> None:
        self.sample = sample

    @property
    def data(self) -> U8:
        """The payload."""
        return self.sample.data

    @data.setter
    def data(self, data: U8) -> None:
        self.sample.data = data

    def nbytes_of(self, first: int, last: int) -> int:
        return self.sample.data.nbytes

    def own(self) -> None:
        self.sample.data = self.sample.data.copy()

    def head_in_log(self, writer_id: bytes, sn: int) -> bytes:
        sample = self.sample
        return long_data_header(writer_id, sn, sample.flags, sample.key_hash, sample.coherent_set)

    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        sample = self.sample
        for head, piece in sample.encode_fragments(packer.writer_id, first, 1, sample.fragments):
            packer.add_submessage(head, timestamp, payload=piece, reserve=HEARTBEAT_ROOM)

    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        return answer.resend_large(self.sample.fitting(answer.fits), timestamp, first)

    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        return self.sample.fitting(fits), timestamp
