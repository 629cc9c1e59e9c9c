"""Large datagrams of a burst, looked at together: readers end up as if each datagram had come alone."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.reading.ordering import fragments, reassembly
from spark_rtps.transport.wire.large_datagrams import LargeFragments, LargeMessages, LargeRun, scan_large  # type: ignore[attr-defined]
from spark_rtps.transport.wire.large_fragments import FRAGMENTS_AT
from spark_rtps.transport.wire.submessages import Data
from tests.protocol.burst_scene import ENTITY, SECOND, WRITERS, End
from tests.protocol.large_streams import (
    ANY,
    FRAGMENT,
    MIXED,
    Stream,
    arriving,
    gso_buffer,
    gso_buffers_arriving,
    message,
    payload,
)
from tests.support.campaigns import seeds


def check(
    seed: int, datagrams: list[tuple[bytes, str]], *, sample_size_max: int = 1 << 20, counts: bool = True
) -> End:
    """Take datagrams in by bursts and alone: both ends are the same, ``counts`` too. Returns the first one."""
    together, alone = receive(seed, datagrams, sample_size_max=sample_size_max)
    (one, *counters, delivered), (other, *counted, expected) = together.state(), alone.state()
    assert (one, delivered) == (other, expected)
    assert not counts or counters == counted
    return together


def receive(
    seed: int, datagrams: list[tuple[bytes, str]], *, sample_size_max: int = 1 << 20
) -> tuple[End, End]:
    """Take datagrams in by bursts, and one by one at another end."""
    chance = random.Random(seed)
    together, alone = (End(sample_size_max=sample_size_max) for _ in range(2))
    at, now = 0, SECOND
    while at < len(datagrams):
        count = chance.choice((2, 5, 16, 40))
        together.take_in(datagrams[at : at + count], now=now)
        for each in datagrams[at : at + count]:
            alone.take_in([each], now=now)
        at, now = at + count, now + 1_000_000
    return together, alone


@pytest.mark.parametrize("seed", seeds(80))
def test_a_burst_of_large_datagrams_equals_single_ones(seed: int) -> None:
    check(seed, arriving(seed))


@pytest.mark.parametrize("seed", seeds(80))
def test_messages_full_of_small_samples_among_them(seed: int) -> None:
    check(seed, arriving(seed, MIXED))


@pytest.mark.parametrize("seed", range(12))
def test_bursts_with_too_large_samples_equal_single_datagrams(seed: int) -> None:
    check(seed, arriving(seed), sample_size_max=FRAGMENT * 3)


@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_bursts_with_little_capacity_for_fragments_equal_single_datagrams(
    seed: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (fragments, reassembly):
        monkeypatch.setattr(module, "FRAGMENTED_SAMPLES_MAX", 2)
    monkeypatch.setattr(fragments, "FRAGMENTED_BYTES_MAX", blocks << 16)
    check(seed, arriving(seed))


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("seed", seeds(40))
def test_ends_of_samples_that_share_a_datagram(seed: int, lossy: bool) -> None:
    # what comes twice may count as a sample or as its fragments, as they are taken in another order
    together = check(seed, gso_buffers_arriving(seed, lossy=lossy), counts=not lossy)
    if not lossy:
        assert not together.readers[0].writers[WRITERS[0]].fragments
        assert all(
            each == payload(WRITERS[0], sn, len(each))
            for (_, writer), samples in together.delivered.items()
            for sn, _, each in samples
        )
        assert together.drops == {}


@pytest.mark.parametrize("seed", [796553254, 1025682140, *seeds(40)])
def test_of_two_copies_that_differ_in_a_bit_either_may_count(seed: int) -> None:
    """Nothing else differs: neither which samples are delivered nor what is still missing."""
    chance, datagrams = random.Random(seed), gso_buffers_arriving(seed, lossy=True)
    full = [i for i, (each, _) in enumerate(datagrams) if len(each) == FRAGMENTS_AT + FRAGMENT]
    for i in full:  # all are sent twice; the second copy comes a little later
        each, source = datagrams[i]
        datagrams.insert(min(i + chance.randrange(1, 30), len(datagrams)), (each, source))
    i = chance.choice([i for i, (each, _) in enumerate(datagrams) if len(each) == FRAGMENTS_AT + FRAGMENT])
    broken = bytearray(datagrams[i][0])
    broken[chance.randrange(FRAGMENTS_AT + 4, len(broken))] ^= 1 << chance.randrange(8)  # in a payload
    datagrams[i] = bytes(broken), datagrams[i][1]
    together, alone = receive(seed, datagrams)
    assert together.state()[0] == alone.state()[0]
    for to in {*together.delivered, *alone.delivered}:
        these, those = together.delivered[to], alone.delivered[to]
        assert [(*each[:2], len(each[2])) for each in these] == [(*each[:2], len(each[2])) for each in those]
        bits = [
            (a ^ b).bit_count()
            for each, other in zip(these, those, strict=True)
            for a, b in zip(each[2], other[2], strict=True)
        ]
        assert sum(bits) <= 1


def test_a_gso_buffer_whose_ends_share_a_datagram_is_one_run() -> None:
    stamps = [SECOND, SECOND, SECOND * 2, SECOND * 2]
    datagrams = gso_buffer(WRITERS[0], 1, 4, FRAGMENT * 2 + 101, stamps)
    beat = message(WRITERS[0], None, Stream(WRITERS[0], random.Random(1)).heartbeat())
    datagrams += [beat, *gso_buffer(WRITERS[0], 5, 4, FRAGMENT * 2 + 101, stamps)]
    buffer, spans = bytearray(), []
    for each in datagrams:
        spans.append((len(buffer), len(buffer) + len(each), ""))
        buffer += each + bytes(-len(each) % 8)
    (found,) = scan_large(np.frombuffer(buffer, np.uint8), spans)
    assert isinstance(found, LargeFragments) and found.is_divided and len(found.heartbeats) == 1
    (range_,) = found.equal_ranges
    run = range_.run()
    assert (found.first, found.stop, range_.is_whole, run.count) == (0, len(spans), True, 8)
    assert run.timestamps().tolist() == stamps * 2
    for i in range(8):
        assert bytes(run.samples().payload(i)) == payload(WRITERS[0], 1 + i, FRAGMENT * 2 + 101)
    apart = scan_large(np.frombuffer(buffer, np.uint8), spans, joins_heartbeats=False)
    assert [(each.first, each.stop) for each in apart] == [(0, 10), (10, 19)]


def test_streams_as_our_writers_send_them_are_looked_at_together() -> None:
    """The comparison above would hold if nothing ever was."""
    stream = Stream(WRITERS[0], random.Random(1))
    datagrams = [each for sn in (1, 2, 3) for each in stream.fragments(sn, FRAGMENT * 2 + 100, SECOND)]
    size = 12_000
    datagrams += [
        message(WRITERS[0], SECOND, Data(ANY, ENTITY, sn, payload(WRITERS[0], sn, size)).encode())
        for sn in (4, 5, 6)
    ]
    datagrams += [
        message(
            WRITERS[0],
            SECOND,
            *(
                Data(ANY, ENTITY, sn, payload(WRITERS[0], sn, 100)).encode()
                for sn in range(first, first + 90)
            ),
        )
        for first in (7, 97, 187)
    ]
    buffer, spans = bytearray(), []
    for each in datagrams:
        spans.append((len(buffer), len(buffer) + len(each), ""))
        buffer += each + bytes(-len(each) % 8)
    found = scan_large(np.frombuffer(buffer, np.uint8), spans)
    assert [type(each) for each in found] == [LargeFragments, LargeRun, LargeMessages]
    ends = [0, len(spans) - 6, len(spans) - 3, len(spans)]
    assert [(each.first, each.stop) for each in found] == list(pairwise(ends))


def test_an_untrusted_range_is_dropped_datagram_by_datagram() -> None:
    stream = Stream(WRITERS[0], random.Random(1))
    datagrams = [(each, "10.0.0.1") for each in stream.fragments(1, FRAGMENT * 8, SECOND)]
    end = End(sample_size_max=1 << 20)
    end.receiver.router._looks_at_addresses = True  # and the sender is unknown
    end.take_in(datagrams, now=SECOND)
    assert end.drops == {DropReason.UNKNOWN_WRITER: len(datagrams)}
    assert not end.delivered and not end.readers[0].counters.fragments


def test_bytes_between_two_fragments_are_not_overwritten() -> None:
    """Datagrams that share a system call may lie in another order than they came."""
    first, second = Stream(WRITERS[0], random.Random(3)).fragments(1, FRAGMENT + 2_000, SECOND)
    other = message(WRITERS[1], SECOND, Data(ANY, ENTITY, 1, payload(WRITERS[1], 1, 20_000)).encode())
    buffer, places = bytearray(), []
    for each in (first, other, second):
        places.append((len(buffer), len(buffer) + len(each), ""))
        buffer += each + bytes(-len(each) % 8)
    data, end = np.frombuffer(buffer, np.uint8), End(sample_size_max=1 << 20)
    end.take_in_at(data, [places[0], places[2], places[1]], now=SECOND)
    assert [each[2] for each in end.delivered[0, WRITERS[1]]] == [payload(WRITERS[1], 1, 20_000)]
    assert [each[2] for each in end.delivered[0, WRITERS[0]]] == [payload(WRITERS[0], 1, FRAGMENT + 2_000)]


def test_numbers_continued_by_another_writer_are_no_run() -> None:
    end = End(sample_size_max=1 << 20)
    sent = [(WRITERS[0], 1), (WRITERS[0], 2), (WRITERS[1], 3), (WRITERS[1], 4)]
    datagrams = [
        message(writer, SECOND, Data(ANY, ENTITY, sn, payload(writer, sn, 12_000)).encode())
        for writer, sn in sent
    ]
    end.take_in([(each, "10.0.0.1") for each in datagrams], now=SECOND)
    assert [each[0] for each in end.delivered[0, WRITERS[0]]] == [1, 2]
    assert list(end.readers[0].writers[WRITERS[1]].held.covered.within(1, 9)) == [(3, 4)]
