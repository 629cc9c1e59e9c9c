"""Trains of fragments: whole messages of one DATA_FRAG each, for large samples that are alike, laid out in one pass.

What is the same in all messages is written by strided assignment, numbers as columns, payloads by one copy, so that a
train costs about as much as one message. Each message but the last one of a sample is equally long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..structure import ENTITYID_UNKNOWN
from .samples import U8, Samples
from .submessages import DATA_FRAG_HEADER_SIZE, DATA_FRAG_NUMBER_AT, DATA_FRAG_SN_AT, DataFrag


@dataclass(slots=True)
class FragmentTrain:
    """Whole messages, end to end, of ``count`` samples of ``sample_size`` bytes; never mutated.

    Each message begins with ``head`` bytes of headers, those of the DATA_FRAG included.
    """

    first_sn: int
    count: int
    data: U8
    head: int
    fragment_size: int
    sample_size: int
    is_key: bool = False

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def fragments(self) -> int:
        """Of each sample."""
        return -(-self.sample_size // self.fragment_size)

    @property
    def message_size(self) -> int:
        """Bytes of a message that is not a sample's last."""
        return self.head + self.fragment_size

    @property
    def segment(self) -> int:
        """Bytes of all messages of a sample."""
        return self.fragments * self.head + self.sample_size

    @property
    def per_message(self) -> int:
        """Samples in so many bytes: the train is divided between samples."""
        return 1

    def messages_within(self, nbytes: int) -> int:
        """How many samples fit ``nbytes`` together, be they more than there are."""
        return nbytes // self.segment

    def part(self, first_sn: int, last_sn: int) -> FragmentTrain:
        """The samples [first_sn, last_sn]; a view."""
        segment, low, high = self.segment, first_sn - self.first_sn, last_sn - self.first_sn + 1
        return replace(
            self, first_sn=first_sn, count=high - low, data=self.data[low * segment : high * segment]
        )

    def samples(self) -> Iterator[U8]:
        """The messages of each sample; views."""
        segment = self.segment
        for at in range(0, self.data.nbytes, segment):
            yield self.data[at : at + segment]

    def payload(self, sn: int) -> U8:
        """One sample; a copy."""
        messages = self.part(sn, sn).data
        full = self.fragments - 1
        payload = np.empty(self.sample_size, np.uint8)
        _cut(payload, 0, 1, full, self.sample_size, self.fragment_size, self.fragment_size)[:] = _cut(
            messages, self.head, 1, full, self.segment, self.message_size, self.fragment_size
        )
        payload[full * self.fragment_size :] = messages[full * self.message_size + self.head :]
        return payload


def train_bytes(count: int, sample_size: int, fragment_size: int, headers: int) -> int:
    """Bytes of the messages of ``count`` samples, with so many bytes of ``headers`` before each DATA_FRAG."""
    return count * (-(-sample_size // fragment_size) * (headers + DATA_FRAG_HEADER_SIZE) + sample_size)


def frame_fragments(
    out: U8,
    headers: bytes,
    samples: Samples,
    writer_id: bytes,
    first_sn: int,
    fragment_size: int,
    *,
    is_key: bool = False,
) -> FragmentTrain:
    """Frame uniform samples, larger than ``fragment_size``, into ``out``, which has :func:`train_bytes`.

    Each message begins with ``headers``. There is no inline QoS.
    """
    count, size = samples.count, samples.size
    head = len(headers) + DATA_FRAG_HEADER_SIZE
    train = FragmentTrain(first_sn, count, out, head, fragment_size, size, is_key)
    segment, full = train.segment, train.fragments - 1
    numbers = np.arange(first_sn, first_sn + count, dtype=np.int64)
    high_low = np.empty((count, 1, 2), "<u4")
    high_low[:, 0, 0], high_low[:, 0, 1] = numbers >> 32, numbers & 0xFFFF_FFFF
    for first, messages, length in (
        (0, full, fragment_size),
        (full, 1, size - full * fragment_size),  # what is left
    ):
        at, step = first * train.message_size, train.message_size
        like = DataFrag(
            ENTITYID_UNKNOWN, writer_id, 1, 1, 1, fragment_size, size, bytes(length), None, is_key
        ).encode_head()
        _cut(out, at, count, messages, segment, step, head)[:] = np.frombuffer(headers + like, np.uint8)
        words = at + len(headers) + DATA_FRAG_SN_AT
        np.ndarray((count, messages, 2), "<u4", out, words, (segment, step, 4))[:] = high_low
        words = at + len(headers) + DATA_FRAG_NUMBER_AT
        np.ndarray((count, messages), "<u4", out, words, (segment, step))[:] = np.arange(
            first + 1, first + messages + 1
        )
        _cut(out, at + head, count, messages, segment, step, length)[:] = _cut(
            samples.data,
            samples.start + first * fragment_size,
            count,
            messages,
            samples.stride,
            fragment_size,
            length,
        )
    return train


def _cut(data: U8, at: int, rows: int, columns: int, row: int, column: int, length: int) -> U8:
    """The (rows, columns, length) bytes that lie so far apart."""
    return np.ndarray((rows, columns, length), np.uint8, data, at, (row, column, 1))
