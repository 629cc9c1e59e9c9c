"""Streams of large samples, as DATA and in fragments, and of messages full of small ones, and what a bad network makes
of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.info import InfoTimestamp
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.parameters import PID_KEY_HASH, ParameterList
from spark_rtps.transport.wire.submessages import Data, DataFrag, Gap, Heartbeat
from tests.protocol.burst_scene import ENTITY, SECOND, WRITERS

ANY = bytes(4)
FRAGMENT = 12_000
LARGE = ("fragments", "fragments", "fragments", "data", "gap", "odd")
MIXED = ("small", "small", "small", "data", "fragments", "gap")


def message(writer: Guid, stamp: int | None, *bodies: bytes) -> bytes:
    info = b"" if stamp is None else InfoTimestamp(stamp).encode()
    return Header(prefix=writer.prefix).encode() + info + b"".join(bodies)


def payload(writer: Guid, sn: int, size: int) -> bytes:
    return b"\0\1\0\0" + random.Random(f"{writer} {sn} {size}").randbytes(size - 4)


class Stream:
    """What one writer sends: large samples, as DATA or in fragments, and now and then something else."""

    def __init__(self, writer: Guid, chance: random.Random, kinds: Sequence[str] = LARGE) -> None:
        self.writer, self.chance, self.kinds, self.sn = writer, chance, kinds, 0
        self.count = 0

    def heartbeat(self) -> bytes:
        self.count += 1
        return Heartbeat(ANY, ENTITY, 1, self.sn, self.count, final=self.chance.random() < 0.5).encode()

    def next(self) -> list[bytes]:
        """The datagrams of the next samples."""
        chance = self.chance
        stamp = SECOND * (1 + self.sn) if chance.random() < 0.9 else None
        kind = chance.choice(self.kinds)
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
        if kind == "small":
            return self.small(chance.randrange(1, 8), stamp)
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

    def small(self, messages: int, stamp: int | None) -> list[bytes]:
        """Messages full of small samples, of which now and then one is not like the others."""
        chance, size = self.chance, self.chance.choice((100, 1_000))
        each, found = FRAGMENT // size, []
        key = ParameterList(((PID_KEY_HASH, b"k" * 16),)) if chance.random() < 0.3 else None
        for _ in range(messages):
            strange = chance.randrange(each) if chance.random() < 0.1 else -1
            bodies = []
            for i in range(each):
                self.sn += 1
                whole = payload(self.writer, self.sn, size + 4 * (i == strange))
                little = key is not None or chance.random() < 0.999
                bodies.append(Data(ANY, ENTITY, self.sn, whole, inline_qos=key).encode(little))
            if chance.random() < 0.1:
                bodies.append(self.heartbeat())
            found.append(message(self.writer, stamp, *bodies))
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


def gso_buffer(writer: Guid, first_sn: int, count: int, size: int, stamps: list[int]) -> list[bytes]:
    """Samples as our writers send several at once: the end of each lies in a datagram with the others' ends, behind
    those with all else. ``stamps``: the source timestamps of the samples."""
    full, found = (size - 1) // FRAGMENT, []
    for i in range(count):
        whole = payload(writer, first_sn + i, size)
        for first in range(1, full + 1):
            piece = whole[(first - 1) * FRAGMENT : first * FRAGMENT]
            frag = DataFrag(ANY, ENTITY, first_sn + i, first, 1, FRAGMENT, size, piece)
            found.append(message(writer, stamps[i], frag.encode()))
    ends, stamp = b"", stamps[0]
    for i in range(count):
        if stamps[i] != stamp:
            stamp = stamps[i]
            ends += InfoTimestamp(stamp).encode()
        piece = payload(writer, first_sn + i, size)[full * FRAGMENT :]
        ends += DataFrag(ANY, ENTITY, first_sn + i, full + 1, 1, FRAGMENT, size, piece).encode()
    return [*found, message(writer, stamps[0], ends)]


def gso_buffers_arriving(seed: int, *, lossy: bool) -> list[tuple[bytes, str]]:
    """Datagrams of GSO buffers, with HEARTBEATs between and behind them."""
    chance, sn, found = random.Random(seed), 1, list[tuple[bytes, str]]()
    stream = Stream(WRITERS[0], chance)
    for _ in range(chance.randrange(3, 9)):
        count, size = (
            chance.choice((1, 2, 5, 16)),
            FRAGMENT * chance.choice((1, 1, 3)) + chance.choice((97, 300)),
        )
        alike = chance.random() < 0.5
        stamps = [SECOND * (1 if alike else 1 + i // 2) for i in range(count)]
        datagrams = gso_buffer(WRITERS[0], sn, count, size, stamps)
        sn += count
        stream.sn = sn - 1
        if chance.random() < 0.3:
            datagrams[-1] += stream.heartbeat()
        elif chance.random() < 0.7:
            datagrams.append(message(WRITERS[0], None, stream.heartbeat()))
        found += [(each, "10.0.0.1") for each in datagrams]
    if lossy:
        found = [each for each in found if chance.random() < 0.95] + [
            each for each in found if chance.random() < 0.2
        ]
        datagram, _ = found[chance.randrange(len(found))]
        broken = bytearray(datagram)
        broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        # All copies of it: which of two copies that differ counts depends on their order.
        found = [(bytes(broken) if each == datagram else each, source) for each, source in found]
    return found


def arriving(seed: int, kinds: Sequence[str] = LARGE) -> list[tuple[bytes, str]]:
    """Datagrams with their senders as a bad network brings them."""
    chance = random.Random(seed)
    streams = [Stream(writer, chance, kinds) for writer in WRITERS[: chance.choice((1, 1, 3))]]
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
