"""DATA_BATCH: many samples behind one submessage header, acknowledged as one unit (RTI; read by this product and RTI).

Layout (after the submessage header): extraFlags, octetsToInlineQos, reader id, writer id, the batch's sequence
number, the first sample's, offset to the last sample's (u32), sample count (u32), inline QoS of the batch if
Q, length of the sample-info list (u32), the sample infos, one encapsulation header, the payloads without
theirs, each padded to 4. A sample info: flags (u16, big-endian whatever the E flag says), octetsToInlineQos
(u16), length of the payload (u32), then what its flags say: timestamp, sequence number offset, inline QoS.

Wireshark expects a payload right behind the one before, whatever its length: so the length that this writer sends
includes the padding. The number of padding bytes, which the encapsulation header of each sample contains (XTypes 1.3
§7.6.3.1.2), is written into two of the reserved flags: the low bits of their first byte.

:func:`frame_batch` writes the sample infos column by column, never one by one; `batch_scan` reads them likewise.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..structure import ENTITYID_UNKNOWN
from ..value_classes import slotted
from .batch_scan import BATCH_OCTETS_TO_INLINE_QOS, SAMPLE_INFO_FLAGS, Batch, scan_batch
from .framing import gather, inline_qos_words, ntp_words, word_rows
from .inline_qos import STATUS_MASK
from .message import FLAG_E
from .parameters import PID_KEY_HASH, PID_SENTINEL, PID_STATUS_INFO
from .runs import FLAG_Q, Words
from .samples import DISPOSED, I64, KEY_ONLY, U8, UNREGISTERED, Run, Samples
from .submessages import AckNackBatch, HeartbeatBatch

__all__ = [
    "ACKNACK_BATCH",
    "DATA_BATCH",
    "HEARTBEAT_BATCH",
    "AckNackBatch",
    "Batch",
    "BatchBlock",
    "HeartbeatBatch",
    "frame_batch",
    "scan_batch",
]

DATA_BATCH: Final = 0x18
HEARTBEAT_BATCH: Final = HeartbeatBatch.KIND
ACKNACK_BATCH: Final = AckNackBatch.KIND

_T, _Q, _, _D, _I, _K = SAMPLE_INFO_FLAGS
_SUBMESSAGE_MAX: Final = 0xFFFC

Bools = npt.NDArray[np.bool_]


@slotted
class BatchBlock:
    """A DATA_BATCH submessage, ready to send. Only its flags of removed samples change later."""

    batch_sn: int
    first_sn: int
    count: int
    data: U8
    #: Offsets of the sample infos in ``data``: the first and the stride, or all.
    info_start: int
    info_stride: int
    info_starts: I64 | None = None

    @property
    def last_sn(self) -> int:
        return self.first_sn + self.count - 1

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def mark_removed(self, first_sn: int, last_sn: int) -> None:
        """Mark the samples first_sn..last_sn, as far as they are in the batch, as removed."""
        low, high = max(first_sn - self.first_sn, 0), min(last_sn - self.first_sn + 1, self.count)
        if low >= high:
            return
        if self.info_starts is None:
            flags = self.data[self.info_start + 1 :: self.info_stride]
            flags[low:high] |= _I
        else:
            self.data[self.info_starts[low:high] + 1] |= _I

    def to_run(self, prefix: bytes, timestamp: int) -> list[Run]:
        """The samples as runs with memory of their own; ``timestamp`` is that of the first."""
        return scan_batch(self.data, 0, self.nbytes, prefix, timestamp).runs


def frame_batch(
    samples: Samples,
    writer_id: bytes,
    batch_sn: int,
    first_sn: int,
    *,
    flags: int | npt.NDArray[np.uint32] = 0,
    key_hashes: U8 | None = None,
    timestamps: I64 | None = None,
    removed: Bools | None = None,
    coherent_set: int = 0,
    reader_id: bytes = ENTITYID_UNKNOWN,
) -> BatchBlock:
    """Wrap serialized samples, all of one encapsulation, into one DATA_BATCH.

    ``flags``: sample flags of all samples, or (n,) of each. A DISPOSED or UNREGISTERED sample is sent without payload,
    unless that is a serialized key (KEY_ONLY). ``key_hashes``: (n, 16). ``timestamps``: (n,) ns of each sample, the
    first of which is sent in the INFO_TS; None: all share that one. ``removed``: (n,) bool; REMOVED among the flags is
    ignored here. ``coherent_set``: as in `framing.frame`. Raises UsageError if the samples do not fit into one
    submessage.
    """
    count = samples.count
    if not count:
        raise UsageError("a batch without samples")
    if not isinstance(flags, int) and (flags == flags[0]).all():
        flags = int(flags[0])
    encapsulation, lengths, padding, payload = _payloads(samples, flags)
    bits = padding | _bits(lengths, flags, removed) << 8
    infos, starts = _sample_infos(count, bits, lengths, flags, key_hashes, timestamps)
    head = words_before_infos(
        writer_id,
        count,
        infos.size,
        payload.size,
        batch_sn=batch_sn,
        first_sn=first_sn,
        coherent_set=coherent_set,
        reader_id=reader_id,
    )
    at = len(head)
    body = at + infos.size
    words = body + 1 + payload.size
    out = np.empty(words, np.uint32)
    out[:at] = head
    out[at:body] = infos.reshape(-1)
    out[body] = encapsulation
    out[body + 1 :].reshape(payload.shape)[:] = payload
    stride = 4 * infos.size // count
    return BatchBlock(
        batch_sn,
        first_sn,
        count,
        out.view(np.uint8),
        4 * at,
        stride,
        None if starts is None else 4 * at + starts,
    )


def words_before_infos(
    writer_id: bytes,
    count: int,
    infos: int,
    payload: int,
    *,
    batch_sn: int = 0,
    first_sn: int = 0,
    coherent_set: int = 0,
    reader_id: bytes = ENTITYID_UNKNOWN,
) -> list[int]:
    """A DATA_BATCH of ``count`` samples up to its sample infos; ``infos`` and ``payload`` are their lengths in
    words."""
    qos = inline_qos_words(0, False, coherent_set)
    head = [
        DATA_BATCH | (FLAG_E | (FLAG_Q if qos else 0)) << 8,
        BATCH_OCTETS_TO_INLINE_QOS << 16,
        int.from_bytes(reader_id, "little"),
        int.from_bytes(writer_id, "little"),
        batch_sn >> 32,
        batch_sn & 0xFFFF_FFFF,
        first_sn >> 32,
        first_sn & 0xFFFF_FFFF,
        count - 1,
        count,
        *qos,
        4 * infos,
    ]
    nbytes = 4 * (len(head) + infos + 1 + payload)
    if nbytes - 4 > _SUBMESSAGE_MAX:
        raise UsageError(f"a batch of {nbytes} bytes; a submessage has at most {_SUBMESSAGE_MAX + 4}")
    head[0] |= (nbytes - 4) << 16
    return head


def uniform_payloads(samples: Samples, flags: int) -> tuple[int, int, int | Words, Words]:
    """For uniform samples of one encapsulation with the same flags: the common encapsulation header, the length behind
    it (-1: no payload), the number of padding bytes in it, and (samples, words) of bytes."""
    if (flags & (DISPOSED | UNREGISTERED) and not flags & KEY_ONLY) or not samples.size:
        return _NO_PAYLOAD, -1, 0, np.empty((samples.count, 0), np.uint32)
    samples.check_padding()
    rows = word_rows(samples)
    headers, length = rows[:, 0], samples.size - 4
    if (((headers ^ headers[0]) & _ID_AND_PADDING) == 0).all():
        return int(headers[0] & _ID), length, int(headers[0]) >> 24 & 3, rows[:, 1:]
    paddings: Words = (headers >> 24 & 3).astype(np.uint32)
    return _encapsulation(headers), length, paddings, rows[:, 1:]


def sample_infos(count: int, padding: int | Words, length: int, flags: int, key_hashes: U8 | None) -> Words:
    """The (count, words) sample infos of payloads as :func:`uniform_payloads` returns them."""
    bits = padding | _bits(length, flags, None) << 8
    infos, _ = _sample_infos(count, bits, length, flags, key_hashes, None)
    return infos


def _payloads(
    samples: Samples, flags: int | npt.NDArray[np.uint32]
) -> tuple[int, int | I64, int | Words, Words]:
    """The common encapsulation header, the lengths behind it (-1: no payload), the number of padding bytes in them, and
    the bytes."""
    if isinstance(flags, int) and samples.is_uniform:
        return uniform_payloads(samples, flags)
    if isinstance(flags, int) and flags & (DISPOSED | UNREGISTERED) and not flags & KEY_ONLY:
        return _NO_PAYLOAD, -1, 0, np.empty(0, np.uint32)
    offsets, sizes = samples.all_offsets(), samples.all_lengths()
    samples.check_padding()
    carries = sizes > 0
    if not isinstance(flags, int):
        carries &= (flags & (DISPOSED | UNREGISTERED) == 0) | (flags & KEY_ONLY != 0)
    at, words = offsets[carries] // 4, sizes[carries] // 4
    lengths = np.where(carries, sizes - 4, -1)
    if not len(at):
        return _NO_PAYLOAD, lengths, 0, np.empty(0, np.uint32)
    headers = samples.data[: samples.data.nbytes // 4 * 4].view(np.uint32)[at]
    padding = np.zeros(samples.count, np.uint32)
    padding[carries] = headers >> 24 & 3
    return _encapsulation(headers), lengths, padding, gather(samples.data, at + 1, words - 1)


#: Masks of an encapsulation header read as a little-endian word: its id; its id and its count of padding bytes.
_ID: Final = np.uint32(0x0000_FFFF)
_ID_AND_PADDING: Final = np.uint32(0x0300_FFFF)
_NO_PAYLOAD: Final = 0x0100  # CDR_LE


def _encapsulation(headers: Words) -> int:
    if ((headers ^ headers[0]) & _ID).any():
        raise UsageError("samples of different encapsulations do not share a batch")
    return int(headers[0] & _ID)


def _bits(lengths: int | I64, flags: int | npt.NDArray[np.uint32], removed: Bools | None) -> Any:
    """D or K for samples with a payload, I for removed ones: (n,), or one number for all."""
    bits: Any = 0
    if isinstance(lengths, int) and isinstance(flags, int):
        bits = (_K if flags & KEY_ONLY else _D) if lengths >= 0 else 0
    else:
        payload = np.where(np.asarray(flags) & KEY_ONLY, np.uint32(_K), np.uint32(_D))
        bits = np.where(np.asarray(lengths) >= 0, payload, np.uint32(0))
    if removed is not None:
        bits = bits | np.where(removed, np.uint32(_I), np.uint32(0))
    return bits


def _sample_infos(
    count: int,
    bits: Any,
    lengths: int | I64,
    flags: int | npt.NDArray[np.uint32],
    key_hashes: U8 | None,
    timestamps: I64 | None,
) -> tuple[Words, I64 | None]:
    """The sample infos, as (count, words) if all have one shape; otherwise flat, with the byte offset of each."""
    own: Bools | None = None
    if timestamps is not None:
        own = np.empty(count, np.bool_)
        own[0] = False
        np.not_equal(timestamps[1:], timestamps[:-1], out=own[1:])
        if not own.any():
            own = None
    status: Any = flags & STATUS_MASK
    some_status = not isinstance(status, int)  # some samples have a status, some do not
    with_qos: Any = True if key_hashes is not None else status != 0
    head = bits | (with_qos * np.uint32(_Q << 8)) | np.uint32(4 << 16)
    if own is not None:
        head = head + own * np.uint32(_T << 8 | 8 << 16)
    columns: list[Any] = [head, np.maximum(lengths, 0)]
    shown: list[Any] = [True, True]
    if own is not None and timestamps is not None:
        columns += [*ntp_words(timestamps).T]
        shown += [own, own]
    if key_hashes is not None:
        hashes = np.ascontiguousarray(key_hashes).view(np.uint32)
        columns += [PID_KEY_HASH | 16 << 16, *hashes.T]
        shown += [True] * 5
    if some_status or status:
        columns += [PID_STATUS_INFO | 4 << 16, status << 24]  # StatusInfo_t is big-endian
        shown += [status != 0] * 2
    if some_status or with_qos:
        columns.append(PID_SENTINEL)
        shown.append(with_qos)
    infos = np.empty((count, len(columns)), np.uint32)
    for i, column in enumerate(columns):
        infos[:, i] = column
    if own is None and not some_status:
        return infos, None
    there = np.empty(infos.shape, np.bool_)
    for i, rows in enumerate(shown):
        there[:, i] = rows
    sizes = 4 * there.sum(axis=1, dtype=np.int64)
    return infos[there], np.cumsum(sizes) - sizes
