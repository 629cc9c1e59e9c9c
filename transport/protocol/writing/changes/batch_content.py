"""A batch as a writer keeps it: one DATA_BATCH, and DATA for readers that accept nothing else.

Each form is created when it is first needed, and kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ....structure import ENTITYID_UNKNOWN, PREFIX_UNKNOWN
from ....value_classes import value
from ....wire.batch import BatchBlock
from ....wire.compressed import compress
from ....wire.framing import DataBlock, frame
from ....wire.samples import HAS_KEY_HASH, I64, REMOVED, U8, Run, equal_ranges
from ...outgoing import HEARTBEAT_ROOM, Buffer
from ...policies import BatchPolicy
from .content import Content, Resending
from .data_content import DataContent
from .large_sample import LargeSample
from .stream_packer import BATCH, DATA, StreamPacker

#: Octets of readerId and writerId in a DATA_BATCH.
_READER_ID: Final = slice(8, 12)
_WRITER_ID: Final = slice(12, 16)
_NOT_ON_THE_WIRE: Final = np.uint32(HAS_KEY_HASH | REMOVED)


class SampleBlock(NamedTuple):
    """Samples first..last as DATA, with their source timestamp; ``block`` is None where they are removed."""

    first: int
    last: int
    block: DataBlock | None
    timestamp: int


@value
class MissingSamples:
    """The samples of missing batches."""

    base: int
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.spans

    def ranges(self) -> list[tuple[int, int]]:
        return list(self.spans)


class BatchContent(Content):
    """One batch.

    ``timestamp`` is the source timestamp of its first sample; ``timestamps``, ascending, are those of all samples if
    they differ. ``budget`` is the number of bytes that a datagram has for DATA submessages.
    """

    __slots__ = (
        "_budget",
        "_compressed",
        "_policy",
        "_sample_blocks",
        "batch",
        "last_batch_sn",
        "removed",
        "timestamp",
        "timestamps",
    )

    batches = 1
    can_be_cut = False

    def __init__(
        self,
        batch: BatchBlock,
        timestamp: int,
        policy: BatchPolicy,
        budget: int,
        timestamps: I64 | None = None,
    ) -> None:
        self.batch = batch
        self.timestamp = timestamp
        self.timestamps = timestamps
        self.last_batch_sn = batch.batch_sn
        self.removed = 0
        self._policy = policy
        self._budget = budget
        self._sample_blocks: list[SampleBlock] | None = None
        self._compressed: dict[str, Buffer] = {}

    @property
    def data(self) -> U8:
        """The DATA_BATCH."""
        return self.batch.data

    @data.setter
    def data(self, data: U8) -> None:
        self.batch = replace(self.batch, data=data)

    def nbytes_of(self, first: int, last: int) -> int:
        return self.batch.nbytes

    def pack(self, packer: StreamPacker, first: int, last: int, timestamp: int) -> None:
        if packer.form != DATA:
            packer.begin_datagram()  # one batch in each packet: a lost packet costs one batch
            packer.add_submessage(self.encoded(packer.form), self.timestamp, reserve=HEARTBEAT_ROOM)
            return
        for part in self.sample_blocks():
            if part.block is None:
                packer.add_gap(part.first, part.last)
            else:
                packer.add_block(part.block, part.first, part.last, part.timestamp)

    def resend(self, answer: Resending, first: int, last: int, timestamp: int) -> bool:
        """Send the whole batch to a reader that accepts batches of its size, else the requested samples."""
        batch = self.batch
        if answer.form != DATA and batch.nbytes <= answer.fits:
            if not answer.may_add(batch.nbytes):
                return False
            data = self.encoded(answer.form, answer.reader_id)
            answer.resend_batch(data, timestamp, batch.first_sn, batch.last_sn)
            return True
        for part in self.sample_blocks():
            a, b = max(first, part.first), min(last, part.last)
            if a > b:
                continue
            if part.block is None:
                answer.announce_gap(a, b)
            elif not answer.resend_block(part.block, part.timestamp, a, b):
                return False
        return True

    def in_fragments(self, sn: int, timestamp: int, fits: int) -> tuple[LargeSample, int] | None:
        part = next(each for each in self.sample_blocks() if each.last >= sn)
        if part.block is None:
            return None
        return DataContent(part.block).in_fragments(sn, part.timestamp, fits)

    def encoded(self, form: str, reader_id: bytes = ENTITYID_UNKNOWN) -> Buffer:
        """The DATA_BATCH, or a submessage that holds it compressed if that is smaller."""
        data = self.batch.data
        if reader_id != ENTITYID_UNKNOWN:
            data = data.copy()
            data[_READER_ID] = np.frombuffer(reader_id, np.uint8)
        if form == BATCH or self.batch.nbytes < self._policy.compression_threshold:
            return data
        if reader_id != ENTITYID_UNKNOWN:
            return self._compress(data, form)
        if form not in self._compressed:
            self._compressed[form] = self._compress(data, form)
        return self._compressed[form]

    def _compress(self, data: U8, codec: str) -> Buffer:
        return compress(memoryview(data), codec, self._policy.compression_level) or data

    def newest(self, timestamp: int) -> int:
        return timestamp if self.timestamps is None else int(self.timestamps[-1])

    def expire(self, over: int) -> int:
        before = self.removed
        if self.timestamps is not None and (count := int(self.timestamps.searchsorted(over, side="right"))):
            self.remove_range(self.batch.first_sn, self.batch.first_sn + count - 1)
        return self.removed - before

    def remove_range(self, first: int, last: int) -> bool:
        """Mark samples as removed; readers of batches see the mark. Returns False when no sample is left."""
        newly_removed = sum(
            max(0, min(part.last, last) - max(part.first, first) + 1)
            for part in self.sample_blocks()
            if part.block is not None
        )
        if newly_removed:
            self.removed += newly_removed
            # A copy: the bytes that are still to be sent, or wait for tokens, must not change.
            self.batch = replace(self.batch, data=self.batch.data.copy())
            self.batch.mark_removed(first, last)
            self._compressed.clear()
            self._sample_blocks = None
        return self.removed < self.batch.count

    def end_of_batch(self, sn: int) -> int:
        return self.batch.last_sn

    def span_of(self, first_batch: int, last_batch: int) -> tuple[int, int] | None:
        batch = self.batch
        return (batch.first_sn, batch.last_sn) if batch.batch_sn == first_batch else None

    def sample_blocks(self) -> list[SampleBlock]:
        """The samples as DATA submessages, in order and without gaps."""
        if self._sample_blocks is None:
            runs = self.batch.to_run(PREFIX_UNKNOWN, self.timestamp)
            self._sample_blocks = [part for run in runs for part in self._of_run(run)]
        return self._sample_blocks

    def _of_run(self, run: Run) -> Iterator[SampleBlock]:
        writer_id = self.batch.data[_WRITER_ID].tobytes()
        flags, stamps = run.sample_flags(), run.timestamps()
        changed = (flags[1:] != flags[:-1]) | (stamps[1:] != stamps[:-1])
        for start, stop in equal_ranges(changed):
            part, timestamp = run.take_range(start, stop), int(stamps[start])
            if flags[start] & REMOVED:
                yield SampleBlock(part.first_sn, part.last_sn, None, timestamp)
                continue
            for block in frame(
                part.samples(),
                writer_id,
                part.first_sn,
                budget=self._budget,
                flags=int(flags[start] & ~_NOT_ON_THE_WIRE),
                key_hashes=part.key_hashes(),
                coherent_set=run.coherent_set,
            ):
                yield SampleBlock(block.first_sn, block.last_sn, block, timestamp)
