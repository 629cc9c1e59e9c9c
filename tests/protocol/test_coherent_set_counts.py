"""Readers with coherent access count each sample once: as received, lost, irrelevant or rejected."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from spark_rtps.transport.qos import Qos
from tests.protocol.reader_script import RELIABLE, Script, started
from tests.support.campaigns import seeds

SIZE = 32


class Piece(NamedTuple):
    """``kind``: data, batch or end; ``of``: the coherent set, ``number``: that of the batch."""

    kind: str
    first: int
    last: int
    of: int = 0
    number: int = 0


def pieces(r: random.Random, first: int, count: int) -> Iterator[Piece]:
    """What a writer sends as about ``count`` samples from ``first`` on, most of them in sets."""
    sn, number, end = first, 0, first + count
    while sn < end:
        if r.random() < 0.2:
            yield Piece("data", sn, sn)
            sn += 1
            continue
        of = sn
        for _ in range(r.randint(1, 6)):
            last = sn + r.randint(0, 3)
            number += 1
            yield Piece("batch" if last > sn + 1 and r.random() < 0.3 else "data", sn, last, of, number)
            sn = last + 1
        if r.random() < 0.6:
            yield Piece("end", sn, sn)
            sn += 1
    yield Piece("data", sn, sn)


def arrive(s: Script, piece: Piece, r: random.Random) -> None:
    if piece.kind == "end":
        s.end_of_set(piece.first)
    elif piece.kind == "batch":
        without = (piece.first + 1,) if r.random() < 0.6 else ()
        s.batch(piece.number, piece.first, piece.last, without=without, of=piece.of)
    else:
        s.data(piece.first, piece.last, of=piece.of)


def narrow(s: Script, r: random.Random) -> None:
    """Bounds that sets exceed, each of them now and then."""
    if r.random() < 0.7:
        s.proxy.held.runs_max = r.randint(1, 4)
    if r.random() < 0.4:
        s.proxy.held.bytes_max = SIZE * r.randint(1, 8)
    if r.random() < 0.3:
        s.proxy.held.window.units_max = r.randint(1, 8)
    if r.random() < 0.3:
        s.reader.delivery.sample_size_max = SIZE * r.randint(2, 6)


@pytest.mark.parametrize("seed", seeds(100))
def test_each_sample_of_a_best_effort_writer(seed: int) -> None:
    """Sets that are too large for the buffer, with holes, in batches, repeated, taken back, without a window."""
    r = random.Random(seed)
    s = Script(Qos(coherent_access=True), reliable=False)
    narrow(s, r)
    s.data(1).taken()
    for piece in pieces(r, 2, 60):
        last = piece.last
        if r.random() < 0.15:
            continue
        if r.random() < 0.07:
            s.gap(piece.first, last + 1)
            continue
        for _ in range(r.choice((1, 1, 1, 2))):
            arrive(s, piece, r)
        s.reader.window = r.choice((0, 2 * SIZE, 1 << 20, 1 << 20, 1 << 20))
        s.taken()
    s.reader.window = 1 << 20
    s.data(last + 1).taken()
    c = s.reader.counters
    assert s.proxy.expected == last + 2
    assert c.received_samples + c.lost_samples + c.irrelevant_samples + c.window_closed == last + 1
    assert sum(s.reader.delivery.losses.take().values()) == c.lost_samples
    assert c.reorder_overflow == c.receive_window_overflow == 0, (
        "what finds no room is lost, and rejected by nobody"
    )


def test_a_set_of_a_reliable_writer_that_is_too_large() -> None:
    """It is lost, and not sent again; what gives way for it is sent again."""
    s = started(qos=replace(RELIABLE, coherent_access=True))
    s.proxy.held.window.units_max = 4
    s.data(1, 2, of=1).data(8, 9, of=8)
    s.data(3, 4, of=1)
    assert s.reader.counters.reorder_overflow == s.reader.counters.receive_window_overflow == 2
    s.data(5, of=1)
    assert s.reader.counters.coherent_sets_lost == 1 and s.reader.counters.lost_samples == 5
    assert s.reader.counters.reorder_overflow == s.reader.counters.receive_window_overflow == 2
    s.end_of_set(6).data(7).data(8, 9, of=8).data(10)
    assert s.taken() == [7, 8, 9, 10]
