"""A train of fragments as a writer keeps it: whole messages of large samples, which leave together."""

from __future__ import annotations

from ....wire.fragment_train import FragmentTrain
from ....wire.samples import U8
from .content import Content, Resending
from .large_sample import LargeSample
from .stream_packer import StreamPacker


class FragmentTrainContent(Content):
    """The messages of one train."""

    __slots__ = ("train",)

    def __init__(self, train: FragmentTrain) -> None:
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
        return train.data.nbytes if train.count == count else train.data.nbytes * count // train.count

    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        packer.add_messages(self.train.data, self.train.message_size, self.train.segment)

    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        return all(
            answer.resend_large(self._sample(sn, answer.fits), timestamp, sn) for sn in range(first, last + 1)
        )

    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        return self._sample(sn, fits), timestamp

    def _sample(self, sn: int, fits: int) -> LargeSample:
        return LargeSample.of_train(self.train, sn).fitting(fits)

    def fitting_messages(self, nbytes: int, at_least: int) -> tuple[int, int]:
        train = self.train
        groups = max(train.messages_within(nbytes), at_least)
        return groups * train.per_message, groups * train.segment

    def part(self, first: int, last: int) -> Content:
        return FragmentTrainContent(self.train.part(first, last))

    def compact(self, first: int, last: int) -> Content:
        train = self.train.part(first, last)
        train.data = train.data.copy()
        return FragmentTrainContent(train)
