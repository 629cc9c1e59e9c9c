"""GSO buffers of fragments: whole messages of DATA_FRAGs, for large samples of one size, laid out in one pass.

Bytes that are the same in all messages are written by strided assignment, numbers as columns, payloads by one copy, so
that a GSO buffer costs about as much as one message. If samples are a little longer than a number of fragments, the
last fragments of several share a message, which follows the others of these samples: such samples are a *group*::

    full messages of sample 1 | of sample 2 | ... | one message with the last fragment of each

All messages but the last one of a group have equal length. A group of one sample is its messages, one fragment each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..structure import ENTITYID_UNKNOWN
from ..value_classes import slotted
from .samples import U8, Samples
from .submessages import DATA_FRAG_HEADER_SIZE, DATA_FRAG_SN_AT, DataFrag


@slotted
class GsoFragments:
    """Whole messages, end to end, of ``count`` samples of ``sample_size`` bytes; never mutated.

    Each message begins with ``headers`` bytes before its first DATA_FRAG. ``per_message`` samples are a group, and the
    GSO buffer is divided between groups; the last one may have fewer.
    """

    first_sn: int
    count: int
    data: U8
    headers: int
    fragment_size: int
    sample_size: int
    per_message: int = 1
    is_key: bool = False

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    @property
    def full(self) -> int:
        """The number of messages that each sample has for itself."""
        return -(-self.sample_size // self.fragment_size) - 1

    @property
    def message_size(self) -> int:
        """Bytes of a message that is not the last of a group."""
        return self.headers + DATA_FRAG_HEADER_SIZE + self.fragment_size

    @property
    def segment(self) -> int:
        """Bytes of all messages of a group."""
        return gso_bytes(
            self.per_message, self.sample_size, self.fragment_size, self.headers, self.per_message
        )

    def messages_within(self, nbytes: int) -> int:
        """How many groups fit into ``nbytes`` together, which may be more than there are."""
        return nbytes // self.segment

    def part(self, first_sn: int, last_sn: int) -> GsoFragments:
        """The groups that have a sample of [first_sn, last_sn]; a view."""
        per, segment = self.per_message, self.segment
        low, high = (first_sn - self.first_sn) // per, (last_sn - self.first_sn) // per + 1
        return replace(
            self,
            first_sn=self.first_sn + low * per,
            count=min(high * per, self.count) - low * per,
            data=self.data[low * segment : high * segment],
        )

    def payload(self, sn: int) -> U8:
        """One sample; a copy."""
        group = self.part(sn, sn)
        i, full, size = sn - group.first_sn, self.full, self.fragment_size
        head, step = self.headers + DATA_FRAG_HEADER_SIZE, self.message_size
        payload = np.empty(self.sample_size, np.uint8)
        payload[: full * size].reshape(full, size)[:] = np.ndarray(
            (full, size), np.uint8, group.data, i * full * step + head, (step, 1)
        )
        rest = self.sample_size - full * size
        at = group.count * full * step + head + i * (DATA_FRAG_HEADER_SIZE + rest)
        payload[full * size :] = group.data[at : at + rest]
        return payload


def samples_per_group(sample_size: int, fragment_size: int) -> int:
    """The number of samples whose last fragments fit into one message that is no longer than the others; 1: they share
    none."""
    rest = (sample_size - 1) % fragment_size + 1
    return 1 if rest % 4 else (DATA_FRAG_HEADER_SIZE + fragment_size) // (DATA_FRAG_HEADER_SIZE + rest)


def gso_bytes(count: int, sample_size: int, fragment_size: int, headers: int, per_message: int = 1) -> int:
    """Bytes of the messages of ``count`` samples in groups of ``per_message``; each message begins with ``headers``
    bytes."""
    fragments = -(-sample_size // fragment_size)
    messages = count * (fragments - 1) + -(-count // per_message)
    return messages * headers + count * (fragments * DATA_FRAG_HEADER_SIZE + sample_size)


def frame_fragments(
    out: U8,
    headers: bytes,
    samples: Samples,
    writer_id: bytes,
    first_sn: int,
    fragment_size: int,
    *,
    per_message: int = 1,
    is_key: bool = False,
) -> GsoFragments:
    """Frame uniform samples, larger than ``fragment_size``, into ``out``, which has :func:`gso_bytes`.

    Each message begins with ``headers``. There is no inline QoS. ``per_message`` samples are a group, at most
    :func:`samples_per_group`.
    """
    count, size = samples.count, samples.size
    gso_buffer = GsoFragments(first_sn, count, out, len(headers), fragment_size, size, per_message, is_key)
    rest = size - gso_buffer.full * fragment_size
    heads = [
        np.frombuffer(plain_head(ENTITYID_UNKNOWN, writer_id, fragment_size, size, n, is_key), np.uint8)
        for n in (fragment_size, rest)
    ]
    start = np.frombuffer(headers, np.uint8)
    words = np.empty((count, gso_buffer.full + 1, 3), "<u4")
    numbers = np.arange(first_sn, first_sn + count)[:, None]
    words[..., 0], words[..., 1], words[..., 2] = numbers >> 32, numbers, np.arange(1, gso_buffer.full + 2)
    whole = count - count % per_message
    if whole:
        _frame(gso_buffer, 0, start, heads, samples, words[:whole], 0, per_message)
    if whole < count:
        at = whole // per_message * gso_buffer.segment
        _frame(gso_buffer, at, start, heads, samples, words[whole:], whole, count - whole)
    return gso_buffer


def _frame(
    gso_buffer: GsoFragments,
    at: int,
    headers: U8,
    heads: list[U8],
    samples: Samples,
    words: npt.NDArray[np.uint32],
    first: int,
    per: int,
) -> None:
    """Frame groups of ``per`` samples, from index ``first`` of ``samples`` on, at ``at``; ``words`` (count, fragments,
    3) are the numbers of samples and fragments."""
    out, size, full, step = (
        gso_buffer.data,
        gso_buffer.fragment_size,
        gso_buffer.full,
        gso_buffer.message_size,
    )
    groups, head = len(words) // per, len(headers) + DATA_FRAG_HEADER_SIZE
    group = gso_bytes(per, gso_buffer.sample_size, size, len(headers), per)
    words = words.reshape(groups, per, full + 1, 3)
    stride, taken = samples.stride, samples.start + first * samples.stride

    each, apart = (groups, per, full), (group, full * step, step)
    numbers = at + len(headers) + DATA_FRAG_SN_AT
    np.ndarray((*each, head), np.uint8, out, at, (*apart, 1))[:] = np.concatenate((headers, heads[0]))
    np.ndarray((*each, 3), "<u4", out, numbers, (*apart, 4))[:] = words[:, :, :-1]
    np.ndarray((*each, size), np.uint8, out, at + head, (*apart, 1))[:] = np.ndarray(
        (*each, size), np.uint8, samples.data, taken, (per * stride, stride, size, 1)
    )

    at, numbers = at + per * full * step, numbers + per * full * step
    rest = gso_buffer.sample_size - full * size
    last, between = (groups, per), (group, DATA_FRAG_HEADER_SIZE + rest)
    np.ndarray((groups, len(headers)), np.uint8, out, at, (group, 1))[:] = headers
    np.ndarray((*last, len(heads[1])), np.uint8, out, at + len(headers), (*between, 1))[:] = heads[1]
    np.ndarray((*last, 3), "<u4", out, numbers, (*between, 4))[:] = words[:, :, -1]
    np.ndarray((*last, rest), np.uint8, out, at + head, (*between, 1))[:] = np.ndarray(
        (*last, rest), np.uint8, samples.data, taken + full * size, (per * stride, stride, 1)
    )


@lru_cache(maxsize=64)
def plain_head(
    reader_id: bytes, writer_id: bytes, fragment_size: int, sample_size: int, length: int, is_key: bool
) -> bytes:
    """The bytes before a fragment of ``length`` bytes without inline QoS; its numbers are filled in later."""
    piece = bytes(length)
    return DataFrag(
        reader_id, writer_id, 1, 1, 1, fragment_size, sample_size, piece, None, is_key
    ).encode_head()
