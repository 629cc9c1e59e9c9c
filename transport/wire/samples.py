"""Runs of samples in memory: the data type that the packages of the hot path exchange.

A *sample* here is a serialized payload: the 4-byte encapsulation header (XTypes 1.3 §7.6.3.1.2) and the bytes behind
it. Data is processed once per run, never once per sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..structure import ENTITYID_UNKNOWN, Guid
from ..value_classes import slotted
from .ntp import to_ntp

U8 = npt.NDArray[np.uint8]
I64 = npt.NDArray[np.int64]

#: The header of a payload (RTPS 2.5 §10.2): its length; the offset of the low byte of its options, whose two lowest
#: bits count the bytes of padding (XTypes 1.3 §7.6.3.1.2); the least identifier of XCDR version 2.
ENCAPSULATION_BYTES: Final = 4
OPTIONS_LOW_BYTE: Final = 3
CDR2_BE: Final = 0x06
#: The entry of each sample in the index of a run. ``offset`` is in bytes from the start of ``Run.data``.
SAMPLE_INDEX: Final = np.dtype(
    [
        ("offset", "<u4"),
        ("length", "<u4"),  # of the payload, encapsulation header included; 0 = no payload
        ("timestamp", "<i8"),  # source timestamp, ns since the epoch; NO_TIMESTAMP if absent
        ("flags", "<u4"),
        ("sn_offset", "<u4"),  # of a sparse run: sequence number minus the first one's
        ("key_hash", "V16"),
    ]
)
NO_TIMESTAMP: Final = -(1 << 63)


def check_timestamp(timestamp: int) -> None:
    """Raises UsageError for a source timestamp outside the range of RTPS."""
    if timestamp != NO_TIMESTAMP:
        to_ntp(timestamp)


def source_timestamps(seconds: npt.NDArray[Any], fractions: npt.NDArray[Any]) -> I64:
    """Time_t columns (unsigned 32-bit words) as ns since the epoch; NO_TIMESTAMP where TIME_INVALID."""
    whole, part = seconds.astype(np.int64), fractions.astype(np.int64)
    stamps = whole * 1_000_000_000 + ((part * 1_000_000_000 + (1 << 31)) >> 32)
    stamps[(whole == 0xFFFF_FFFF) & (part == 0xFFFF_FFFF)] = NO_TIMESTAMP
    return stamps


def equal_ranges(changed: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """[first, last) of each range of equal samples; ``changed`` (n - 1,): sample i + 1 differs from sample i."""
    return pairwise([0, *(np.flatnonzero(changed) + 1).tolist(), len(changed) + 1])


# Sample flags: the low bits are those of StatusInfo_t (RTPS 2.5 §9.6.4.9), the others are this product's own.
DISPOSED: Final = 0x1
UNREGISTERED: Final = 0x2
FILTERED: Final = 0x4
KEY_ONLY: Final = 0x100  # the payload is the serialized key, not the sample
HAS_KEY_HASH: Final = 0x200
REMOVED: Final = 0x400  # the writer removed it from its batch: replaced, or its LIFESPAN ran out


@slotted
class Samples:
    """``count`` serialized payloads inside one flat buffer, uniform or ragged.

    Uniform (``stride > 0``): payload i is ``data[start + i*stride :][:size]``.
    Ragged (``stride == 0``): payload i is ``data[offsets[i] :][:lengths[i]]``.
    Every payload starts at a multiple of 4 in ``data``. Never mutated by convention.
    """

    data: U8  # 1-D, C-contiguous
    count: int
    start: int = 0
    stride: int = 0
    size: int = 0
    offsets: I64 | None = None
    lengths: I64 | None = None

    @classmethod
    def uniform(cls, data: U8, count: int, size: int, *, start: int = 0, stride: int = 0) -> Samples:
        return cls(data=data, count=count, start=start, stride=stride or size, size=size)

    @classmethod
    def ragged(cls, data: U8, offsets: I64, lengths: I64) -> Samples:
        return cls(data=data, count=len(offsets), offsets=offsets, lengths=lengths)

    @property
    def is_uniform(self) -> bool:
        return self.stride > 0

    def check_padding(self) -> None:
        """Raises UsageError unless every payload is padded to a multiple of 4, as the codec does."""
        if self.size % 4 or (self.lengths is not None and (self.lengths % 4).any()):
            raise UsageError("samples are not padded to a multiple of 4 bytes")

    def rows(self) -> U8:
        """A (count, size) view of uniform payloads; no copy."""
        view = self.data[self.start :]
        return np.lib.stride_tricks.as_strided(
            view, (self.count, self.size), (self.stride, 1), writeable=False
        )

    def all_offsets(self) -> I64:
        """The offset of each payload, (count,) int64."""
        if self.offsets is not None:
            return self.offsets
        return self.start + self.stride * np.arange(self.count, dtype=np.int64)

    def all_lengths(self) -> I64:
        """Bytes of each payload, encapsulation header included, (count,) int64."""
        if self.lengths is not None:
            return self.lengths
        return np.full(self.count, self.size, np.int64)

    def payload(self, i: int) -> memoryview:
        """Payload i, encapsulation header included; no copy (cold path)."""
        if self.stride:
            at, n = self.start + i * self.stride, self.size
        else:
            assert self.offsets is not None and self.lengths is not None
            at, n = int(self.offsets[i]), int(self.lengths[i])
        return memoryview(self.data)[at : at + n]

    def take_range(self, first: int, last: int) -> Samples:
        """Samples [first, last); no copy. Works also where there is no payload, neither uniform nor ragged."""
        if first == 0 and last == self.count:
            return self
        if self.offsets is None or self.lengths is None:
            return Samples(self.data, last - first, self.start + first * self.stride, self.stride, self.size)
        return Samples.ragged(self.data, self.offsets[first:last], self.lengths[first:last])


@slotted
class Run:
    """Samples of one writer with consecutive sequence numbers, as they were received.

    ``data`` has the submessages (or bare payloads) as received and may be a view of a receive buffer that is reused: to
    keep a run longer than the call that delivers it, copy it (:meth:`copy`).

    Uniform (``stride > 0``): sample i lies at ``data[i*stride : (i+1)*stride]``; in there its payload, the 8-byte NTP
    time of its own INFO_TS and its 16-byte key hash lie at fixed offsets (-1: it has none of its own; then
    ``timestamp`` is the source timestamp of all). All flags are equal.
    Indexed (``stride == 0``): ``index`` (dtype SAMPLE_INDEX) has the offset of each sample.
    """

    writer: Guid
    first_sn: int
    count: int
    data: U8  # 1-D
    stride: int = 0
    payload_offset: int = 0
    payload_length: int = 0
    timestamp: int = NO_TIMESTAMP
    timestamp_offset: int = -1
    timestamp_big_endian: bool = False
    key_hash_offset: int = -1
    flags: int = 0
    index: npt.NDArray[Any] | None = None
    #: The reader to which the submessages are addressed; ENTITYID_UNKNOWN: every matched one.
    reader_id: bytes = ENTITYID_UNKNOWN
    #: The number of its batch, 0: none.
    batch_sn: int = 0
    #: Whether samples are missing in between: ``index["sn_offset"]`` has the numbers.
    sparse: bool = False
    #: First sequence number of the samples' coherent set; 0: none; -1: none, as their inline QoS announces.
    coherent_set: int = 0
    #: Size of the largest of the large datagrams that it spans; 0: it came in one, or they were small.
    datagram_bytes: int = 0

    @property
    def last_sn(self) -> int:
        if self.sparse and self.index is not None:
            return self.first_sn + int(self.index["sn_offset"][-1])
        return self.first_sn + self.count - 1

    def sequence_numbers(self) -> I64:
        """(count,) int64."""
        if self.sparse and self.index is not None:
            return self.first_sn + self.index["sn_offset"].astype(np.int64)
        return np.arange(self.first_sn, self.first_sn + self.count, dtype=np.int64)

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def ends_coherent_set(self) -> bool:
        """Whether it is the empty DATA that ends a coherent set (RTPS 2.5 §8.7.5): it is not for the user."""
        return (
            self.coherent_set < 0
            and not self.payload_length
            and self.index is None
            and not self.flags & (DISPOSED | UNREGISTERED)
        )

    @classmethod
    def single(
        cls,
        writer: Guid,
        sn: int,
        payload: U8,
        *,
        timestamp: int = NO_TIMESTAMP,
        flags: int = 0,
        key_hash: bytes | None = None,
    ) -> Run:
        """A run of one sample with a bare payload (cold path: fragments, disposes, odd submessages)."""
        index = np.zeros(1, SAMPLE_INDEX)
        index[0] = (
            0,
            payload.nbytes,
            timestamp,
            flags | (HAS_KEY_HASH if key_hash else 0),
            0,
            key_hash or bytes(16),
        )
        return cls(writer, sn, 1, payload, index=index)

    def take_range(self, first: int, last: int) -> Run:
        """Samples [first, last) of this run; no copy of payloads."""
        if first == 0 and last == self.count:
            return self
        if self.stride:
            data = self.data[first * self.stride : last * self.stride]
            return replace(self, first_sn=self.first_sn + first, count=last - first, data=data)
        assert self.index is not None
        index, first_sn = self.index[first:last].copy(), self.first_sn + first
        if self.sparse:
            first_sn = self.first_sn + int(index["sn_offset"][0])
            index["sn_offset"] -= index["sn_offset"][0]
        return self._indexed(index, first_sn)

    def select(self, keep: npt.NDArray[np.bool_]) -> Run | None:
        """The samples where ``keep`` is true, None if there are none; no copy of payloads."""
        kept = np.flatnonzero(keep)
        if not len(kept):
            return None
        first, last = int(kept[0]), int(kept[-1])
        if len(kept) == last + 1 - first and not self.sparse:
            return self.take_range(first, last + 1)
        index = (self._to_index() if self.index is None else self.index)[kept]
        numbers = self.sequence_numbers()[kept]
        index["sn_offset"] = numbers - numbers[0]
        return replace(self._indexed(index, int(numbers[0])), sparse=True)

    def _indexed(self, index: npt.NDArray[Any], first_sn: int) -> Run:
        """A run of the samples in ``index``, which it takes over, with no more data than they need."""
        low = int(index["offset"].min())
        high = int((index["offset"].astype(np.int64) + index["length"]).max())
        low -= low % 4  # payloads stay 4-aligned in the shortened buffer
        index["offset"] -= low
        return replace(
            self, first_sn=first_sn, count=len(index), data=self.data[low:high], stride=0, index=index
        )

    def _to_index(self) -> npt.NDArray[Any]:
        """The index of a uniform run."""
        index = np.zeros(self.count, SAMPLE_INDEX)
        index["offset"] = self.payload_offset + self.stride * np.arange(self.count)
        index["length"] = self.payload_length
        index["timestamp"] = self.timestamps()
        index["flags"] = self.flags
        hashes = self.key_hashes()
        if hashes is not None:
            index["flags"] |= HAS_KEY_HASH
            index["key_hash"] = hashes.view("V16").reshape(self.count)
        return index

    def copy(self) -> Run:
        """The same run with memory of its own."""
        return replace(self, data=self.data.copy(), index=None if self.index is None else self.index.copy())

    def samples(self) -> Samples:
        """The payloads; no copy."""
        if self.stride:
            return Samples(self.data, self.count, self.payload_offset, self.stride, self.payload_length)
        assert self.index is not None
        return Samples.ragged(
            self.data, self.index["offset"].astype(np.int64), self.index["length"].astype(np.int64)
        )

    def timestamps(self) -> I64:
        """Source timestamps, (count,) int64 ns since the epoch, NO_TIMESTAMP where absent."""
        if self.index is not None:
            return self.index["timestamp"].astype(np.int64)
        if self.timestamp_offset < 0:
            return np.full(self.count, self.timestamp, np.int64)
        at = self.data[self.timestamp_offset :]
        rows = np.lib.stride_tricks.as_strided(at, (self.count, 8), (self.stride, 1), writeable=False)
        words = np.ascontiguousarray(rows).view(">u4" if self.timestamp_big_endian else "<u4")
        return source_timestamps(words[:, 0], words[:, 1])

    def key_hashes(self) -> U8 | None:
        """Key hashes sent with the samples, (count, 16) uint8, or None where none was sent."""
        if self.index is not None:
            if not int(np.bitwise_or.reduce(self.index["flags"])) & HAS_KEY_HASH:
                return None
            return np.ascontiguousarray(self.index["key_hash"]).view(np.uint8).reshape(self.count, 16)
        if self.key_hash_offset < 0:
            return None
        at = self.data[self.key_hash_offset :]
        rows = np.lib.stride_tricks.as_strided(at, (self.count, 16), (self.stride, 1), writeable=False)
        return np.ascontiguousarray(rows)

    def sample_flags(self) -> npt.NDArray[np.uint32]:
        """Flags of each sample, (count,) uint32."""
        if self.index is not None:
            return self.index["flags"].astype(np.uint32)
        return np.full(self.count, self.flags, np.uint32)
