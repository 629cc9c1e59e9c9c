"""Writes runs: serialized samples become DATA submessages, with a few NumPy calls for all of them.

The counterpart of :mod:`.runs`. Layout: RTPS 2.5 §9.4.5.3 (DATA), little-endian, reader id unknown.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..structure import KEY_HASH_BYTES, NANOSECONDS
from ..value_classes import slotted, value
from .inline_qos import STATUS_MASK
from .message import FLAG_E
from .ntp import TIME_INVALID
from .parameters import (
    PID_COHERENT_SET,
    PID_KEY_HASH,
    PID_SENTINEL,
    PID_STATUS_INFO,
    SEQUENCENUMBER_UNKNOWN,
)
from .runs import DATA, FLAG_D, FLAG_K, FLAG_Q, Words
from .samples import I64, KEY_ONLY, NO_TIMESTAMP, U8, Samples
from .submessages import DATA_HEADER_SIZE, DATA_OCTETS_TO_INLINE_QOS

#: The second word of a DATA: extraFlags, octetsToInlineQos.
_TO_INLINE_QOS: Final = DATA_OCTETS_TO_INLINE_QOS << 16
_HEADER_WORDS: Final = DATA_HEADER_SIZE // 4
#: Offset of the sequence number in a DATA, high word first.
_NUMBER_OFFSET: Final = 16
#: The key hash is the first parameter of the inline QoS.
_KEY_HASH_OFFSET: Final = DATA_HEADER_SIZE + 4


@slotted
class DataBlock:
    """DATA submessages of consecutive sequence numbers, ready to send; never mutated.

    ``ends`` is the uniform length of a submessage, or a list of the ends of all in ``data``.
    """

    first_sn: int
    count: int
    data: U8
    ends: int | list[int]

    @property
    def last_sn(self) -> int:
        return self.first_sn + self.count - 1

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def end_of(self, sn: int) -> int:
        """The end of the submessage of ``sn`` in ``data``; 0 for the number before the first."""
        i = sn - self.first_sn + 1
        if isinstance(self.ends, int):
            return i * self.ends
        return self.ends[i - 1] if i > 0 else 0

    def slice(self, first_sn: int, last_sn: int) -> memoryview:
        """The submessages of [first_sn, last_sn], both within the block."""
        return memoryview(self.data)[self.end_of(first_sn - 1) : self.end_of(last_sn)]

    def fitting(self, first_sn: int, budget: int) -> int:
        """The last SN of this block such that [first_sn, it] fits ``budget`` bytes; first_sn - 1 if none."""
        start = self.end_of(first_sn - 1)
        if isinstance(self.ends, int):
            return min(self.last_sn, first_sn - 1 + budget // self.ends)
        return self.first_sn + bisect_right(self.ends, start + budget) - 1


def frame(
    samples: Samples,
    writer_id: bytes,
    first_sn: int,
    *,
    budget: int,
    flags: int = 0,
    key_hashes: U8 | None = None,
    coherent_set: int = 0,
) -> list[DataBlock]:
    """Wrap serialized samples into DATA submessages, cut into blocks of at most ``budget`` bytes.

    Payload lengths must be multiples of 4 (the codec pads). ``flags``: sample flags of all samples; DISPOSED and
    UNREGISTERED are sent as inline QoS, with the (n, 16) ``key_hashes`` if given; with KEY_ONLY the payloads are
    serialized keys. ``coherent_set``: the first sequence number of the samples' coherent set, 0 if they have none.
    Raises UsageError if a sample does not fit.
    """
    if samples.count == 0:
        return []
    tail = inline_qos_words(flags, key_hashes is not None, coherent_set)
    fixed = DATA_HEADER_SIZE + 4 * len(tail)
    n = samples.count
    numbers = np.arange(first_sn, first_sn + n, dtype=np.int64)
    kind = FLAG_E | (FLAG_Q if tail else 0)
    if samples.is_uniform:
        size = samples.size
        if size:
            kind |= FLAG_K if flags & KEY_ONLY else FLAG_D
        stride = fixed + size
        if stride > budget or size % 4:
            samples.check_padding()
            raise UsageError(f"a sample of {size} bytes does not fit a datagram of {budget}")
        out = np.empty((n, stride // 4), np.uint32)
        _headers(out, kind, writer_id, numbers, tail, key_hashes)
        out[:, 0] = DATA | kind << 8 | (stride - 4) << 16
        if size:
            out[:, fixed // 4 :] = word_rows(samples)
        flat = out.view(np.uint8).reshape(-1)
        per_block = budget // stride
        return [
            DataBlock(
                first_sn + i, min(per_block, n - i), flat[i * stride : (i + per_block) * stride], stride
            )
            for i in range(0, n, per_block)
        ]
    return _frame_ragged(samples, writer_id, first_sn, budget, flags, key_hashes, tail, kind, numbers)


@slotted
class MessageBlock:
    """Whole messages of uniform DATA submessages, end to end, ready to send; never mutated.

    All messages but the last hold ``per_message`` samples; each begins with ``head`` bytes of headers.
    """

    first_sn: int
    count: int
    data: U8
    stride: int
    per_message: int
    head: int

    @property
    def last_sn(self) -> int:
        return self.first_sn + self.count - 1

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def segment(self) -> int:
        """Bytes of a message."""
        return self.head + self.per_message * self.stride

    def blocks(self, first_sn: int, last_sn: int) -> Iterator[DataBlock]:
        """The submessages of each message that has a sample of [first_sn, last_sn]."""
        per, segment = self.per_message, self.segment
        for i in range((first_sn - self.first_sn) // per, (last_sn - self.first_sn) // per + 1):
            count = min(per, self.count - i * per)
            start = i * segment + self.head
            yield DataBlock(
                self.first_sn + i * per, count, self.data[start : start + count * self.stride], self.stride
            )

    def part(self, first_sn: int, last_sn: int) -> MessageBlock:
        """The messages that have a sample of [first_sn, last_sn]; a view."""
        per, segment = self.per_message, self.segment
        low, high = (first_sn - self.first_sn) // per, (last_sn - self.first_sn) // per + 1
        count = min(high * per, self.count) - low * per
        data = self.data[low * segment : high * segment]
        return MessageBlock(self.first_sn + low * per, count, data, self.stride, per, self.head)

    def rows(self, first_sn: int, last_sn: int) -> U8:
        """The submessages of [first_sn, last_sn] end to end, without the message headers; a copy."""
        parts = [
            block.slice(max(first_sn, block.first_sn), min(last_sn, block.last_sn))
            for block in self.blocks(first_sn, last_sn)
        ]
        return np.concatenate([np.frombuffer(part, np.uint8) for part in parts])

    def messages_within(self, nbytes: int) -> int:
        """How many of the first messages fit into ``nbytes`` together."""
        return -(-self.count // self.per_message) if nbytes >= self.nbytes else nbytes // self.segment


@value
class MessageShape:
    """How uniform samples are put into messages: see :class:`MessageBlock`."""

    stride: int
    per_message: int
    head: int
    tail: tuple[int, ...]

    @property
    def segment(self) -> int:
        """Bytes of a full message."""
        return self.head + self.per_message * self.stride

    def nbytes(self, count: int) -> int:
        """Bytes of the messages of ``count`` samples."""
        messages = -(-count // self.per_message)
        return messages * self.head + count * self.stride


def message_shape(
    size: int, budget: int, head: int, *, flags: int, with_key_hash: bool, coherent_set: int
) -> MessageShape:
    """The shape of samples of ``size`` bytes with ``budget`` bytes of submessages in a message; at least one must
    fit."""
    tail = inline_qos_words(flags, with_key_hash, coherent_set)
    stride = DATA_HEADER_SIZE + 4 * len(tail) + size
    return MessageShape(stride, budget // stride, head, tuple(tail))


def frame_messages(
    out: U8,
    shape: MessageShape,
    headers: bytes,
    samples: Samples,
    writer_id: bytes,
    first_sn: int,
    *,
    flags: int,
    key_hashes: U8 | None,
) -> MessageBlock:
    """Frame uniform samples as whole messages into ``out``, which has ``shape.nbytes(samples.count)`` bytes.

    Each message begins with ``headers``. The other parameters are as in :func:`frame`.
    """
    count, per, stride = samples.count, shape.per_message, shape.stride
    columns = _columns(shape, samples, writer_id, first_sn, flags, key_hashes)
    segment = shape.head + per * stride
    done = at = 0
    while done < count:  # all full messages at once, then the rest
        messages, rows = max((count - done) // per, 1), min(per, count - done)
        stop = done + messages * rows
        heads = np.ndarray((messages, shape.head), np.uint8, out, at, (segment, 1))
        heads[:] = np.frombuffer(headers, np.uint8)
        for offset, values in columns:
            start, strides = at + shape.head + offset, (segment, stride)
            column = np.ndarray((messages, rows), values.dtype, out, start, strides)
            column[:] = values if len(values) == 1 else values[done:stop].reshape(messages, rows)
        done = stop
        at += messages * segment
    return MessageBlock(first_sn, count, out, stride, per, shape.head)


def _columns(
    shape: MessageShape,
    samples: Samples,
    writer_id: bytes,
    first_sn: int,
    flags: int,
    key_hashes: U8 | None,
) -> list[tuple[int, npt.NDArray[Any]]]:
    """The columns of submessages: the offset of each, and one value for all, or one for each.

    Values wider than a word are opaque: NumPy copies such values whole.
    """
    kind = FLAG_E | (FLAG_Q if shape.tail else 0)
    if samples.size:
        kind |= FLAG_K if flags & KEY_ONLY else FLAG_D
    first_word = DATA | kind << 8 | (shape.stride - 4) << 16
    same = np.array([first_word, _TO_INLINE_QOS, 0, int.from_bytes(writer_id, "little")], np.uint32)
    numbers = np.arange(first_sn, first_sn + samples.count, dtype=np.int64)
    high = numbers >> 32
    if high[0] == high[-1]:
        high = high[:1]
    columns: list[tuple[int, npt.NDArray[Any]]] = [
        (0, same.view("V16")),
        (_NUMBER_OFFSET, high.astype(np.uint32)),
        (_NUMBER_OFFSET + 4, numbers.astype(np.uint32)),
    ]
    if shape.tail:
        tail = np.array(shape.tail, np.uint32)
        columns.append((DATA_HEADER_SIZE, tail.view(f"V{tail.nbytes}")))
    if key_hashes is not None:
        columns.append((_KEY_HASH_OFFSET, np.ascontiguousarray(key_hashes).view(f"V{KEY_HASH_BYTES}")[:, 0]))
    if size := samples.size:
        rows = np.ndarray((samples.count,), f"V{size}", samples.data, samples.start, (samples.stride,))
        columns.append((shape.stride - size, rows))
    return columns


def framed_key_hash(submessage: U8) -> U8:
    """The (1, 16) key hash of a DATA that was framed with one; a view."""
    return submessage[_KEY_HASH_OFFSET : _KEY_HASH_OFFSET + KEY_HASH_BYTES].reshape(1, KEY_HASH_BYTES)


def word_rows(samples: Samples) -> Words:
    """The (count, size / 4) words of uniform samples; a view where they lie end to end."""
    start, count = samples.start, samples.count
    if samples.stride == samples.size and start % 4 == 0:
        return samples.data[start : start + count * samples.size].view(np.uint32).reshape(count, -1)
    return np.ascontiguousarray(samples.rows()).view(np.uint32)


def _headers(
    out: Words,
    kind: int,
    writer_id: bytes,
    numbers: npt.NDArray[np.int64],
    tail: list[int],
    key_hashes: U8 | None,
) -> None:
    """Fill columns 1.. of the (n, words) matrix, all except the submessage header."""
    fixed = [_TO_INLINE_QOS, 0, int.from_bytes(writer_id, "little")]  # 0: every matched reader
    out[:, 1:4] = np.array(fixed, np.uint32)
    out[:, 4] = numbers >> 32
    out[:, 5] = numbers & 0xFFFF_FFFF
    if tail:
        out[:, 6 : _HEADER_WORDS + len(tail)] = np.array(tail, np.uint32)
    if key_hashes is not None:
        out[:, 7:11] = np.ascontiguousarray(key_hashes).view(np.uint32)


def inline_qos_words(flags: int, with_key_hash: bool, coherent_set: int) -> list[int]:
    """The inline QoS as little-endian words, key hash left zero; empty when there is none."""
    words: list[int] = []
    if with_key_hash:
        words += [PID_KEY_HASH | 16 << 16, 0, 0, 0, 0]
    status = flags & STATUS_MASK
    if status:
        words += [PID_STATUS_INFO | 4 << 16, status << 24]  # StatusInfo_t is big-endian
    if coherent_set:
        words += [PID_COHERENT_SET | 8 << 16, coherent_set >> 32 & 0xFFFF_FFFF, coherent_set & 0xFFFF_FFFF]
    return [*words, PID_SENTINEL] if words else []


def long_data_header(
    writer_id: bytes, sn: int, flags: int, key_hash: bytes | None, coherent_set: int
) -> bytes:
    """The bytes before the payload of a DATA that ends its message, however long (octetsToNextHeader 0)."""
    tail = inline_qos_words(flags, key_hash is not None, coherent_set)
    kind = FLAG_E | (FLAG_Q if tail else 0) | (FLAG_K if flags & KEY_ONLY else FLAG_D)
    writer = int.from_bytes(writer_id, "little")
    words = [DATA | kind << 8, _TO_INLINE_QOS, 0, writer, sn >> 32, sn & 0xFFFF_FFFF, *tail]
    head = struct.pack(f"<{len(words)}I", *words)
    if key_hash is None:
        return head
    return head[:_KEY_HASH_OFFSET] + key_hash + head[_KEY_HASH_OFFSET + KEY_HASH_BYTES :]


def frame_end_of_coherent_set(writer_id: bytes, sn: int) -> DataBlock:
    """The sample without payload that ends a coherent set (RTPS 2.5 §8.7.5): its coherent set is unknown."""
    tail = inline_qos_words(0, False, SEQUENCENUMBER_UNKNOWN)
    out = np.empty((1, _HEADER_WORDS + len(tail)), np.uint32)
    _headers(out, 0, writer_id, np.array([sn], np.int64), tail, None)
    out[:, 0] = DATA | (FLAG_E | FLAG_Q) << 8 | (out.nbytes - 4) << 16
    return DataBlock(sn, 1, out.view(np.uint8).reshape(-1), out.nbytes)


def _frame_ragged(
    samples: Samples,
    writer_id: bytes,
    first_sn: int,
    budget: int,
    flags: int,
    key_hashes: U8 | None,
    tail: list[int],
    kind: int,
    numbers: npt.NDArray[np.int64],
) -> list[DataBlock]:
    n = samples.count
    lengths = samples.all_lengths() // 4
    header_words = _HEADER_WORDS + len(tail)
    total = lengths + header_words
    largest = int(total.max()) * 4
    if largest > budget:
        raise UsageError(f"a sample of {largest} bytes does not fit a datagram of {budget}")
    ends = np.cumsum(total)
    starts = ends - total
    out = np.empty(int(ends[-1]), np.uint32)
    head = np.empty((n, header_words), np.uint32)
    _headers(head, kind, writer_id, numbers, tail, key_hashes)
    carries = np.where(lengths > 0, FLAG_K if flags & KEY_ONLY else FLAG_D, 0)
    head[:, 0] = DATA | (kind | carries) << 8 | (total * 4 - 4) << 16
    out[starts[:, None] + np.arange(header_words)] = head
    if lengths.any():
        out[spread(starts + header_words, lengths)] = gather(
            samples.data, samples.all_offsets() // 4, lengths
        )
    flat = out.view(np.uint8)
    byte_ends = ends * 4
    blocks = []
    i = start = 0
    while i < n:
        j = int(np.searchsorted(byte_ends, start + budget, side="right"))
        stop = int(byte_ends[j - 1])
        blocks.append(DataBlock(first_sn + i, j - i, flat[start:stop], (byte_ends[i:j] - start).tolist()))
        i, start = j, stop
    return blocks


def ntp_words(stamps: I64, *, checked: bool = True) -> Words:
    """Time_t of ns since the epoch: (n, 2) seconds and fractions, rounded up as `ntp.to_ntp` does.

    NO_TIMESTAMP becomes TIME_INVALID. A time outside the range of Time_t raises UsageError; unless ``checked``, it
    becomes TIME_INVALID, too.
    """
    seconds, rest = np.divmod(stamps, NANOSECONDS)
    good = (seconds >= 0) & (seconds <= 0xFFFF_FFFF)
    words = np.empty((len(stamps), 2), np.uint32)
    words[:, 0] = seconds & 0xFFFF_FFFF
    words[:, 1] = -(-(rest << 32) // NANOSECONDS)
    if not good.all():
        if checked and (good | (stamps == NO_TIMESTAMP)).sum() < len(stamps):
            raise UsageError("a timestamp is outside the range of RTPS (1970 to 2106)")
        words[~good] = TIME_INVALID
    return words


def spread(starts: I64, lengths: I64) -> I64:
    """The positions [starts[i], starts[i] + lengths[i]) of all i, one after another."""
    before = np.cumsum(lengths) - lengths
    positions: I64 = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return positions


def gather(data: U8, starts: I64, lengths: I64) -> Words:
    """The words [starts[i], starts[i] + lengths[i]) of ``data``, one after another."""
    words: Words = data[: data.nbytes // 4 * 4].view(np.uint32)[spread(starts, lengths)]
    return words
