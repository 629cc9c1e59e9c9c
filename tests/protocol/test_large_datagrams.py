"""Large datagrams of a drain, looked at together: readers end up as if each datagram had come alone."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.reading.ordering import fragments, reassembly
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.info import InfoTimestamp
from spark_rtps.transport.wire.large_datagrams import LargeFragments, LargeRun, scan_large
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.parameters import PID_KEY_HASH, ParameterList
from spark_rtps.transport.wire.submessages import Data, DataFrag, Gap, Heartbeat
from tests.protocol.drain_scene import ENTITY, WRITERS, End

ANY = bytes(4)
FRAGMENT = 12_000
SECOND = 1_000_000_000


def message(writer: Guid, stamp: int | None, *bodies: bytes) -> bytes:
    info = b"" if stamp is None else InfoTimestamp(stamp).encode()
    return Header(prefix=writer.prefix).encode() + info + b"".join(bodies)


def payload(writer: Guid, sn: int, size: int) -> bytes:
    return b"\0\1\0\0" + random.Random(f"{writer} {sn} {size}").randbytes(size - 4)


class Stream:
    """What one writer sends: large samples, as DATA or in fragments, and now and then something else."""

    def __init__(self, writer: Guid, chance: random.Random) -> None:
        self.writer, self.chance, self.sn = writer, chance, 0
        self.count = 0

    def heartbeat(self) -> bytes:
        self.count += 1
        return Heartbeat(ANY, ENTITY, 1, self.sn, self.count, final=self.chance.random() < 0.5).encode()

    def next(self) -> list[bytes]:
        """The datagrams of the next samples."""
        chance = self.chance
        stamp = SECOND * (1 + self.sn) if chance.random() < 0.9 else None
        kind = chance.choice(("fragments", "fragments", "fragments", "data", "gap", "odd"))
        if kind == "data":
            size, each = chance.choice((3_000, 12_000)), chance.choice((1, 4))
            found = []
            for _ in range(chance.randrange(1, 8)):
                sns = range(self.sn + 1, self.sn + 1 + each)
                self.sn += each
                little = chance.random() < 0.97
                found.append(
                    message(
                        self.writer,
                        stamp,
                        *(Data(ANY, ENTITY, sn, payload(self.writer, sn, size)).encode(little) for sn in sns),
                    )
                )
            return found
        self.sn += 1
        if kind == "gap":
            nothing = SequenceNumberSet.from_numbers(self.sn + 1, [])
            return [message(self.writer, None, Gap(ANY, ENTITY, self.sn, nothing).encode())]
        size = chance.choice((FRAGMENT + 300, FRAGMENT * 2, FRAGMENT * 3 - 5, FRAGMENT * 9 + 1))
        found = self.fragments(self.sn, size, stamp, odd=kind == "odd")
        for _ in range(chance.randrange(3)):  # of the same size, and stamped at the same time
            self.sn += 1
            found += self.fragments(self.sn, size, stamp)
        if chance.random() < 0.5:
            found[-1] += b"" if len(found[-1]) % 4 else self.heartbeat()
        else:
            found.append(message(self.writer, None, self.heartbeat()))
        return found

    def fragments(self, sn: int, size: int, stamp: int | None, *, odd: bool = False) -> list[bytes]:
        """The DATA_FRAG of a sample; ``odd``: one of them is not like the others, or lies."""
        whole, found, first = payload(self.writer, sn, size), [], 1
        count = -(-size // FRAGMENT)
        strange = self.chance.randrange(1, count + 1) if odd else 0
        while first <= count:
            some = 1 if self.chance.random() < 0.8 else min(2, count + 1 - first)
            piece = whole[(first - 1) * FRAGMENT : (first - 1 + some) * FRAGMENT]
            frag = DataFrag(ANY, ENTITY, sn, first, some, FRAGMENT, size, piece)
            little, time = True, stamp
            if first == strange:
                how = self.chance.randrange(9)
                key = ParameterList(((PID_KEY_HASH, b"k" * 16),))
                frag = replace(
                    frag,
                    sample_size=size + (4 if how == 0 else 0),
                    fragment_size=FRAGMENT - (4 if how == 1 else 0),
                    key=how == 2,
                    inline_qos=key if how == 3 else None,
                    payload=piece[:-100] if how == 4 else piece + (b"more" if how == 5 else b""),
                )
                little, time = how != 6, 7 * SECOND if how == 7 else stamp
            found.append(message(self.writer, time, frag.encode(little)))
            first += some
        return found


def arriving(seed: int) -> list[tuple[bytes, str]]:
    """Datagrams with their senders as a bad network brings them."""
    chance = random.Random(seed)
    streams = [Stream(writer, chance) for writer in WRITERS[: chance.choice((1, 1, 3))]]
    lossy, datagrams = chance.random() < 0.7, []
    for _ in range(chance.randrange(3, 14)):
        stream = chance.choice(streams)
        datagrams += [(datagram, "10.0.0.1") for datagram in stream.next()]
    if lossy:
        kept = [each for each in datagrams if chance.random() < 0.93]
        again = [each for each in datagrams if chance.random() < 0.3]  # repairs, and duplicates
        datagrams = kept + again
        for _ in range(chance.randrange(4)):
            i, j = chance.randrange(len(datagrams)), chance.randrange(len(datagrams))
            datagrams[i], datagrams[j] = datagrams[j], datagrams[i]
        for _ in range(chance.randrange(3)):
            i = chance.randrange(len(datagrams))
            broken = bytearray(datagrams[i][0])
            broken[chance.randrange(min(len(broken), 100))] ^= 1 << chance.randrange(8)
            datagrams[i] = bytes(broken), datagrams[i][1]
    return datagrams


def check(seed: int, *, sample_size_max: int = 1 << 20) -> None:
    datagrams, chance = arriving(seed), random.Random(seed)
    together, alone = (End(sample_size_max=sample_size_max) for _ in range(2))
    at, now = 0, SECOND
    while at < len(datagrams):
        count = chance.choice((2, 5, 16, 40))
        together.take_in(datagrams[at : at + count], now=now)
        for each in datagrams[at : at + count]:
            alone.take_in([each], now=now)
        at, now = at + count, now + 1_000_000
    assert together.state() == alone.state()


@pytest.mark.parametrize("seed", range(80))
def test_as_if_each_had_come_alone(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", range(12))
def test_where_samples_are_too_large(seed: int) -> None:
    check(seed, sample_size_max=FRAGMENT * 3)


@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_where_there_is_little_room_for_fragments(
    seed: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (fragments, reassembly):
        monkeypatch.setattr(module, "FRAGMENTED_SAMPLES_MAX", 2)
    monkeypatch.setattr(fragments, "FRAGMENTED_BYTES_MAX", blocks << 16)
    check(seed)


def test_streams_as_our_writers_send_them_are_looked_at_together() -> None:
    """The comparison above would hold if nothing ever was."""
    stream = Stream(WRITERS[0], random.Random(1))
    datagrams = [each for sn in (1, 2, 3) for each in stream.fragments(sn, FRAGMENT * 2 + 100, SECOND)]
    size = 12_000
    datagrams += [
        message(WRITERS[0], SECOND, Data(ANY, ENTITY, sn, payload(WRITERS[0], sn, size)).encode())
        for sn in (4, 5, 6)
    ]
    buffer, spans = bytearray(), []
    for each in datagrams:
        spans.append((len(buffer), len(buffer) + len(each), ""))
        buffer += each + bytes(-len(each) % 8)
    found = scan_large(np.frombuffer(buffer, np.uint8), spans)
    assert [type(each) for each in found] == [LargeFragments, LargeRun]
    assert [(each.first, each.stop) for each in found] == [(0, len(spans) - 3), (len(spans) - 3, len(spans))]


def test_a_stretch_that_is_not_believed_is_dropped_datagram_by_datagram() -> None:
    stream = Stream(WRITERS[0], random.Random(1))
    datagrams = [(each, "10.0.0.1") for each in stream.fragments(1, FRAGMENT * 8, SECOND)]
    end = End(sample_size_max=1 << 20)
    end.receiver._looks_at_addresses = True  # and the sender is unknown
    end.take_in(datagrams, now=SECOND)
    assert end.drops == {DropReason.UNKNOWN_WRITER: len(datagrams)}
    assert not end.delivered and not end.readers[0].counters.fragments


def test_what_lies_between_two_fragments_is_not_overwritten() -> None:
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


def test_numbers_that_go_on_with_another_writer_are_no_run() -> None:
    end = End(sample_size_max=1 << 20)
    sent = [(WRITERS[0], 1), (WRITERS[0], 2), (WRITERS[1], 3), (WRITERS[1], 4)]
    datagrams = [
        message(writer, SECOND, Data(ANY, ENTITY, sn, payload(writer, sn, 12_000)).encode())
        for writer, sn in sent
    ]
    end.take_in([(each, "10.0.0.1") for each in datagrams], now=SECOND)
    assert [each[0] for each in end.delivered[0, WRITERS[0]]] == [1, 2]
    assert list(end.readers[0].writers[WRITERS[1]].held.within(1, 9)) == [(3, 4)]
