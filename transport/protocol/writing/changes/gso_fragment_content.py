"""A GSO buffer of fragments as a writer keeps it: whole messages of large samples, sent by one call."""

from __future__ import annotations

from ....wire.gso_fragments import GsoFragments
from ....wire.samples import U8
from .content import Content, Resending
from .large_sample import LargeSample
from .stream_packer import StreamPacker


class GsoFragmentContent(Content):
    """The messages of one GSO buffer."""

    __slots__ = ("gso_buffer",)

    def __init__(self, gso_buffer: GsoFragments) -> None:
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
        return (
            gso_buffer.data.nbytes
            if gso_buffer.count == count
            else gso_buffer.data.nbytes * count // gso_buffer.count
        )

    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        packer.add_messages(self.gso_buffer.data, self.gso_buffer.message_size, self.gso_buffer.segment)

    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        return all(
            answer.resend_large(self._sample(sn, answer.fits), timestamp, sn) for sn in range(first, last + 1)
        )

    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        return self._sample(sn, fits), timestamp

    def _sample(self, sn: int, fits: int) -> LargeSample:
        return LargeSample.of_gso(self.gso_buffer, sn).fitting(fits)

    def fitting_messages(self, nbytes: int, at_least: int) -> tuple[int, int]:
        gso_buffer = self.gso_buffer
        groups = max(gso_buffer.messages_within(nbytes), at_least)
        return groups * gso_buffer.per_message, groups * gso_buffer.segment

    def part(self, first: int, last: int) -> Content:
        return GsoFragmentContent(self.gso_buffer.part(first, last))

    def compact(self, first: int, last: int) -> Content:
        gso_buffer = self.gso_buffer.part(first, last)
        gso_buffer.data = gso_buffer.data.copy()
        return GsoFragmentContent(gso_buffer)
