"""Consecutive fragments of large samples: the results of `large_fragments` for a burst."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from ..structure import Guid
from .samples import SAMPLE_INDEX, U8, Run
from .submessages import DataFrag, DataFrags

#: A DATA_FRAG: sequence number, first fragment, fragments, their size, the sample's size; offset and length of its
#: payload; the source timestamp in force. A plain tuple, since this is most of the cost of a datagram.
Piece: TypeAlias = tuple[int, int, int, int, int, int, int, int]

#: Reserves memory for a run of this many bytes and samples, if it is the next one to be delivered; None: that is not
#: known.
ReservedFrames: TypeAlias = Callable[[int, int], U8 | None]


class FragmentRange:
    """Consecutive fragments: all those of one sample or of several, or some of one.

    They have three forms: as a run (:meth:`run`), as if they had come in one DATA_FRAG (:meth:`together`), or one by
    one (:meth:`apart`).
    """

    __slots__ = ("_data", "_firsts", "_pieces", "_run", "is_whole", "nbytes", "reader_id", "writer")

    def __init__(
        self, data: U8, writer: Guid, reader_id: bytes, pieces: list[Piece], *, is_whole: bool
    ) -> None:
        self.writer = writer
        self.reader_id = reader_id
        #: Whether they are all fragments of their samples; otherwise there is one sample.
        self.is_whole = is_whole
        self._data = data
        self._pieces = pieces
        self._run: Run | None = None
        self._firsts = [piece for piece in pieces if piece[1] == 1] if is_whole else []
        #: Bytes of the run, in which each sample begins at a multiple of 4.
        self.nbytes = sum([(piece[4] + 3) & ~3 for piece in self._firsts])

    @property
    def count(self) -> int:
        """The number of complete samples."""
        return len(self._firsts)

    @property
    def first_sn(self) -> int:
        return self._pieces[0][0]

    @property
    def last_sn(self) -> int:
        return self._pieces[-1][0]

    @property
    def submessages(self) -> int:
        """The number of DATA_FRAGs that contained them."""
        return len(self._pieces)

    @property
    def fragments(self) -> int:
        return sum([piece[2] for piece in self._pieces])

    @property
    def longest(self) -> int:
        """The most bytes of a sample in one DATA_FRAG."""
        return max([piece[6] for piece in self._pieces])

    @property
    def timestamp(self) -> int:
        """The source timestamp of the first one."""
        return self._pieces[0][7]

    def run(self, place: U8 | None = None) -> Run:
        """The complete samples, put together at ``place``, which has ``nbytes``, or in memory of their own."""
        if place is not None:
            return self._join(place)
        if self._run is None:
            self._run = self._join(np.empty(self.nbytes, np.uint8))
        return self._run

    def _join(self, target: U8) -> Run:
        view, into = memoryview(self._data), memoryview(target)
        offsets = []
        at = 0
        for _, first, _, _, _, here, length, _ in self._pieces:
            if first == 1:
                if at & 3:
                    into[at : (at + 3) & ~3] = bytes(-at & 3)
                    at = (at + 3) & ~3
                offsets.append(at)
            into[at : at + length] = view[here : here + length]
            at += length
        if at < self.nbytes:
            into[at:] = bytes(self.nbytes - at)
        firsts = self._firsts
        index = np.zeros(len(firsts), SAMPLE_INDEX)
        index["offset"] = offsets
        index["length"] = [piece[4] for piece in firsts]
        index["timestamp"] = [piece[7] for piece in firsts]
        return Run(
            self.writer,
            self.first_sn,
            len(firsts),
            target,
            index=index,
            reader_id=self.reader_id,
            datagram_bytes=self.longest,
        )

    def together(self) -> DataFrag:
        """All fragments, which are of one sample, as one DATA_FRAG."""
        view = memoryview(self._data)
        sn, first, _, size, total, *_ = self._pieces[0]
        payloads = [view[at : at + length] for _, _, _, _, _, at, length, _ in self._pieces]
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
        for sn, first, fragments, size, total, at, length, timestamp in self._pieces:
            payload = view[at : at + length]
            frag = DataFrag(self.reader_id, self.writer.entity, sn, first, fragments, size, total, payload)
            yield frag, timestamp
