"""Frames uniform samples as GSO buffers of whole messages, in the memory from which they are sent by one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ....limits import (
    GROUP_SAMPLES_MAX,
    GSO_BYTES_MAX,
    GSO_FRAGMENT_BYTES_MAX,
    GSO_MESSAGES_MAX,
    UDP_PAYLOAD_MAX,
)
from ....wire.framing import DataBlock, frame_messages, message_shape
from ....wire.gso_batches import gso_batch_framer
from ....wire.gso_fragments import frame_fragments, gso_bytes, samples_per_group
from ....wire.samples import KEY_ONLY
from ..batching import PendingBatch
from ..changes import (
    Change,
    DataContent,
    Framing,
    GsoBatchContent,
    GsoFragmentContent,
    GsoMessageContent,
)
from ..state import WriterState
from .log_frames import LogFrames

#: A GSO buffer is at most this fraction of the bytes in flight, since HEARTBEATs follow only whole buffers.
_GSO_IN_WINDOW: Final = 16
#: Placeholder for content that is not framed yet.
_EMPTY: Final = DataContent(DataBlock(0, 0, np.zeros(0, np.uint8), 0))


class GsoFramer:
    """Frames GSO buffers of one writer in its publication log, if it has one."""

    def __init__(self, state: WriterState, frames: LogFrames) -> None:
        self._state = state
        self._frames = frames
        self._log = frames.log
        self._writer_id = state.guid.entity

    def gso_messages_of(
        self, pending: PendingBatch, first_sn: int, budget: int, *, batch_sn: int, coherent_set: int
    ) -> Iterator[Change]:
        """Uniform samples framed in place, as GSO buffers of whole messages."""
        headers = self._frames.headers_of(pending.timestamp)
        samples, hashes = pending.samples, pending.key_hashes
        flags = int(pending.flags)
        shape = message_shape(
            samples.size,
            budget,
            len(headers),
            flags=flags,
            with_key_hash=hashes is not None,
            coherent_set=coherent_set,
        )
        step = shape.per_message * self._messages_max(shape.segment)
        for start in range(0, samples.count, step):
            part = samples.take_range(start, min(start + step, samples.count))
            last_sn = first_sn + start + part.count - 1
            change = Change(first_sn + start, last_sn, pending.timestamp, _EMPTY, batch_sn)
            out, claim = self._frames.reserve(change, shape.nbytes(part.count), shape.segment)
            gso_buffer = frame_messages(
                out,
                shape,
                headers,
                part,
                self._writer_id,
                change.first_sn,
                flags=flags,
                key_hashes=None if hashes is None else hashes[start : start + part.count],
            )
            change.content = GsoMessageContent(gso_buffer)
            yield self._frames.placed(change, claim)

    def gso_batches_of(
        self, pending: PendingBatch, first_sn: int, batch_sn: int, framing: Framing, *, coherent_set: int
    ) -> Iterator[Change]:
        """Uniform batches framed in place; ``first_sn`` and ``batch_sn`` are the numbers of the first batch."""
        per, timestamp = pending.per_batch, pending.timestamp
        framer = gso_batch_framer(
            self._frames.headers_of(timestamp),
            pending.samples,
            per,
            self._writer_id,
            flags=int(pending.flags),
            key_hashes=None if framing.policy.disable_inline_keyhash else pending.key_hashes,
            coherent_set=coherent_set,
        )
        step, batches = self._messages_max(framer.segment), pending.batches
        for start in range(0, batches, step):
            count = min(step, batches - start)
            first, number = first_sn + start * per, batch_sn + start
            change = Change(first, first + count * per - 1, timestamp, _EMPTY, number + count - 1)
            out, claim = self._frames.reserve(change, count * framer.segment, framer.segment)
            gso_buffer = framer.frame(out, start, count, batch_sn=number, first_sn=first)
            change.content = GsoBatchContent(gso_buffer, timestamp, framing.policy, framing.budget)
            yield self._frames.placed(change, claim)

    def gso_fragments_of(
        self, pending: PendingBatch, first_sn: int, framing: Framing, *, batch_sn: int, group_bytes: int
    ) -> Iterator[Change]:
        """Uniform samples too large for a datagram, framed in place as GSO buffers of fragments.

        The last fragments of samples with at most ``group_bytes`` in all may share a datagram.
        """
        headers, samples = self._frames.headers_of(pending.timestamp), pending.samples
        size = framing.fragment_size
        step = max(1, GSO_FRAGMENT_BYTES_MAX // samples.size)
        per = min(samples_per_group(samples.size, size), GROUP_SAMPLES_MAX, step)
        per = max(1, min(per, group_bytes // samples.size))
        step += per // 2  # the nearest number of whole groups
        step -= step % per
        for start in range(0, samples.count, step):
            part = samples.take_range(start, min(start + step, samples.count))
            change = Change(
                first_sn + start, first_sn + start + part.count - 1, pending.timestamp, _EMPTY, batch_sn
            )
            nbytes = gso_bytes(part.count, samples.size, size, len(headers), per)
            out, claim = self._frames.reserve(change, nbytes, 0)
            gso_buffer = frame_fragments(
                out,
                headers,
                part,
                self._writer_id,
                change.first_sn,
                size,
                per_message=per,
                is_key=bool(int(pending.flags) & KEY_ONLY),
            )
            change.content = GsoFragmentContent(gso_buffer)
            yield self._frames.placed(change, claim)

    @property
    def takes_gso_fragments(self) -> bool:
        """Whether samples go to the network only: readers on this host read a large sample as one DATA."""
        return self._log is None or self._log.path is None

    def _messages_max(self, segment: int) -> int:
        """How many messages of ``segment`` bytes a GSO buffer has at most."""
        log = self._log
        longest = min(GSO_BYTES_MAX, self._state.policy.window_bytes // _GSO_IN_WINDOW)
        if log is not None:
            longest = min(longest, log.max_message_length)
            if (
                log.path is not None
            ):  # readers on this host accept only whole frames, if they have the capacity
                longest = min(longest, UDP_PAYLOAD_MAX)
        return max(1, min(longest // segment, GSO_MESSAGES_MAX))
