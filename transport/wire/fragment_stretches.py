"""Fragments of large samples that follow one another, a DATA_FRAG a datagram: what `large_datagrams` finds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..structure import Guid
from .samples import SAMPLE_INDEX, U8, Run
from .submessages import DataFrag, DataFrags


class Piece(NamedTuple):
    """The DATA_FRAG of one datagram; ``at`` is where its payload lies."""

    sn: int
    first: int
    fragments: int
    fragment_size: int
    sample_size: int
    at: int
    length: int
    timestamp: int


class FragmentStretch:
    """Fragments that follow one another: all those of one sample or of several, or some of one.

    They are looked at in one of three ways: as a run (:meth:`run`), as if they had come in one DATA_FRAG
    (:meth:`together`), or as they came (:meth:`apart`).
    """

    __slots__ = ("_data", "_pieces", "_run", "is_whole", "reader_id", "writer")

    def __init__(
        self, data: U8, writer: Guid, reader_id: bytes, pieces: list[Piece], *, is_whole: bool
    ) -> None:
        self.writer = writer
        self.reader_id = reader_id
        #: Whether they are all fragments of their samples; else there is one sample.
        self.is_whole = is_whole
        self._data = data
        self._pieces = pieces
        self._run: Run | None = None

    @property
    def datagrams(self) -> int:
        """How many datagrams brought them."""
        return len(self._pieces)

    @property
    def fragments(self) -> int:
        return sum(piece.fragments for piece in self._pieces)

    @property
    def longest(self) -> int:
        """Bytes of a sample in one datagram, at most."""
        return max(piece.length for piece in self._pieces)

    @property
    def timestamp(self) -> int:
        """The source timestamp of the first one."""
        return self._pieces[0].timestamp

    def run(self) -> Run:
        """The whole samples, where they were received: what follows a sample's first fragment is moved up to it."""
        if self._run is None:
            self._run = self._join()
        return self._run

    def _join(self) -> Run:
        data = self._data
        if not data.flags.writeable:
            data = self._data = data.copy()
        view, moved = memoryview(data), []
        firsts: list[Piece] = []
        begin = at = 0
        for piece in self._pieces:
            if piece.first == 1:
                firsts.append(piece)
                begin = at = piece.at
            if piece.at != at:
                view[at : at + piece.length] = view[piece.at : piece.at + piece.length]
            moved.append(piece._replace(at=begin + (piece.first - 1) * piece.fragment_size))
            at += piece.length
        self._pieces = moved
        low = firsts[0].at
        index = np.zeros(len(firsts), SAMPLE_INDEX)
        index["offset"] = [each.at - low for each in firsts]
        index["length"] = [each.sample_size for each in firsts]
        index["timestamp"] = [each.timestamp for each in firsts]
        return Run(
            self.writer,
            firsts[0].sn,
            len(firsts),
            data[low:at],
            index=index,
            reader_id=self.reader_id,
            datagram_bytes=self.longest,
        )

    def together(self) -> DataFrag:
        """All of them, which are of one sample, as one DATA_FRAG would bring them."""
        first, view = self._pieces[0], memoryview(self._data)
        payloads = [view[piece.at : piece.at + piece.length] for piece in self._pieces]
        return DataFrags(
            self.reader_id,
            self.writer.entity,
            first.sn,
            first.first,
            self.fragments,
            first.fragment_size,
            first.sample_size,
            payloads[0],
            pieces=payloads,
        )

    def apart(self) -> Iterator[tuple[DataFrag, int]]:
        """Each DATA_FRAG, with its source timestamp."""
        view = memoryview(self._data)
        for piece in self._pieces:
            payload = view[piece.at : piece.at + piece.length]
            frag = DataFrag(
                self.reader_id,
                self.writer.entity,
                piece.sn,
                piece.first,
                piece.fragments,
                piece.fragment_size,
                piece.sample_size,
                payload,
            )
            yield frag, piece.timestamp
