"""Fragments of large samples that follow one another: what `large_fragments` finds in a drain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ..structure import Guid
from .samples import I64, SAMPLE_INDEX, U8, Run
from .submessages import DataFrag, DataFrags

#: The rows of the pieces of a stretch: of each DATA_FRAG what it says, where its payload lies and how long that is, and
#: the source timestamp in force.
SN, FIRST, FRAGMENTS, FRAGMENT_SIZE, SAMPLE_SIZE, AT, LENGTH, TIMESTAMP = range(8)
_ALIGNMENT: Final = 4


class FragmentStretch:
    """Fragments that follow one another: all those of one sample or of several, or some of one.

    They are looked at in one of three ways: as a run (:meth:`run`), as if they had come in one DATA_FRAG
    (:meth:`together`), or one by one (:meth:`apart`). ``pieces``: (8, n) int64, a column for each DATA_FRAG.
    """

    __slots__ = (
        "_begins",
        "_data",
        "_offsets",
        "_pieces",
        "_run",
        "is_whole",
        "nbytes",
        "reader_id",
        "writer",
    )

    def __init__(self, data: U8, writer: Guid, reader_id: bytes, pieces: I64, *, is_whole: bool) -> None:
        self.writer = writer
        self.reader_id = reader_id
        #: Whether they are all fragments of their samples; else there is one sample.
        self.is_whole = is_whole
        self._data = data
        self._pieces = pieces
        self._run: Run | None = None
        if is_whole:
            self._begins = np.flatnonzero(pieces[FIRST] == 1)
            sizes = pieces[SAMPLE_SIZE, self._begins]
            stops = np.cumsum((sizes + _ALIGNMENT - 1) & -_ALIGNMENT)
            #: Where each sample begins in the run.
            self._offsets = np.concatenate(([0], stops[:-1]))
            #: Bytes of the run.
            self.nbytes = int(self._offsets[-1] + sizes[-1])

    @property
    def count(self) -> int:
        """How many samples are whole."""
        return len(self._begins)

    @property
    def first_sn(self) -> int:
        return int(self._pieces[SN, 0])

    @property
    def submessages(self) -> int:
        """How many DATA_FRAG brought them."""
        return len(self._pieces[SN])

    @property
    def fragments(self) -> int:
        return int(self._pieces[FRAGMENTS].sum())

    @property
    def longest(self) -> int:
        """Bytes of a sample in one DATA_FRAG, at most."""
        return int(self._pieces[LENGTH].max())

    @property
    def timestamp(self) -> int:
        """The source timestamp of the first one."""
        return int(self._pieces[TIMESTAMP, 0])

    def run(self, place: U8 | None = None) -> Run:
        """The whole samples, put together at ``place``, which has ``nbytes``, or in memory of their own."""
        if place is None:
            if self._run is None:
                self._run = self._join(np.empty(self.nbytes, np.uint8))
            return self._run
        return self._join(place)

    def _join(self, target: U8) -> Run:
        pieces, begins = self._pieces, self._begins
        sizes = pieces[SAMPLE_SIZE, begins]
        per_sample = np.diff(begins, append=pieces.shape[1])
        to = np.repeat(self._offsets, per_sample) + (pieces[FIRST] - 1) * pieces[FRAGMENT_SIZE]
        view, into = memoryview(self._data), memoryview(target)
        for there, here, length in zip(
            to.tolist(), pieces[AT].tolist(), pieces[LENGTH].tolist(), strict=True
        ):
            into[there : there + length] = view[here : here + length]
        padded = self._offsets[:-1] + sizes[:-1]
        for stop, next_at in zip(padded.tolist(), self._offsets[1:].tolist(), strict=True):
            if stop < next_at:
                target[stop:next_at] = 0
        index = np.zeros(len(begins), SAMPLE_INDEX)
        index["offset"] = self._offsets
        index["length"] = sizes
        index["timestamp"] = pieces[TIMESTAMP, begins]
        return Run(
            self.writer,
            self.first_sn,
            len(begins),
            target,
            index=index,
            reader_id=self.reader_id,
            datagram_bytes=self.longest,
        )

    def together(self) -> DataFrag:
        """All of them, which are of one sample, as one DATA_FRAG would bring them."""
        view = memoryview(self._data)
        sn, first, _, size, total = self._pieces[:AT, 0].tolist()
        payloads = [
            view[at : at + length]
            for at, length in zip(self._pieces[AT].tolist(), self._pieces[LENGTH].tolist(), strict=True)
        ]
        return DataFrags(
            self.reader_id,
            self.writer.entity,
            sn,
            first,
            self.fragments,
            size,
            total,
            payloads[0],
            pieces=payloads,
        )

    def apart(self) -> Iterator[tuple[DataFrag, int]]:
        """Each DATA_FRAG, with its source timestamp."""
        view = memoryview(self._data)
        for sn, first, fragments, size, total, at, length, timestamp in self._pieces.T.tolist():
            payload = view[at : at + length]
            frag = DataFrag(self.reader_id, self.writer.entity, sn, first, fragments, size, total, payload)
            yield frag, timestamp
