"""Bursts of mixed messages of several writers: no sample is lost that the datagrams one by one would have brought."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest

from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.batch import frame_batch
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.parameters import PID_KEY_HASH, ParameterList
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import (
    AckNack,
    Data,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    InfoDestination,
    InfoTimestamp,
    decode_submessage,
)
from tests.protocol.burst_scene import ENTITY, LASTING, SECOND, WRITERS, End
from tests.support.campaigns import seeds

ANY, MS = bytes(4), 1_000_000
#: Where unicast comes from, and where copies by multicast do.
SOURCES = ("10.0.0.2", "10.0.0.3")
RELIABLE, BEST_EFFORT = replace(LASTING, durability=Qos().durability), Qos()
READERS = (LASTING, RELIABLE, BEST_EFFORT)


@dataclass
class Kind:
    """What a writer is like."""

    reliable: bool
    transient_local: bool
    #: How many samples it keeps; of the others, it forgets those that were sent again.
    depth: int
    #: How often each of its datagrams comes twice, how often one is lost, or overtaken.
    copies: float
    loss: float
    overtaken: float


class Mixed(End):
    """Readers of all kinds; the three writers are as ``kinds`` says."""

    def __init__(self, kinds: list[Kind]) -> None:
        super().__init__()
        me = b"r" * 12
        self.readers[:] = [
            StatefulReader(Guid(me, bytes((0, 0, 2 + i, 4))), qos) for i, qos in enumerate(READERS)
        ]
        for guid, kind in zip(WRITERS, kinds, strict=True):
            self.receiver._endpoints.routes[guid] = self.readers
            for reader in self.readers:
                reader.match_writer(WriterInfo(guid, (), (), kind.reliable, kind.transient_local), now=SECOND)
        #: By reader and writer: what passed when a loss did not count yet, since its first HEARTBEAT was not heard.
        self.passed_early: dict[tuple[int, Guid], set[int]] = defaultdict(set)

    def take_in(self, datagrams: list[tuple[bytes, str]], *, now: int) -> None:
        proxies = [
            (number, proxy) for number, reader in enumerate(self.readers) for proxy in reader.writers.values()
        ]
        before = [(proxy.expected, proxy.counts_losses_from) for _, proxy in proxies]
        super().take_in(datagrams, now=now)
        for (number, proxy), (expected, counts_from) in zip(proxies, before, strict=True):
            if proxy.reliable:
                early = range(expected, min(proxy.expected, counts_from))
                self.passed_early[number, proxy.guid].update(early)

    def acknowledged(self, *, now: int) -> dict[tuple[int, Guid], AckNack]:
        """The last ACKNACK to each writer."""
        found: dict[tuple[int, Guid], AckNack] = {}
        for number, reader in enumerate(self.readers):
            while (at := reader.get_timer()) is not None and at <= now:
                reader.handle_timer(at)
            for out in reader.outgoing():
                for raw in out.submessages:
                    view = memoryview(bytes(raw))
                    each = decode_submessage(view[0], view[1], view[4:])
                    if isinstance(each, AckNack):
                        found[number, Guid(out.dest_prefix, each.writer_id)] = each
        return found


class Writer:
    """One writer, and its datagrams as a network brings them."""

    def __init__(self, guid: Guid, kind: Kind, rng: Random) -> None:
        self.guid, self.kind, self._rng = guid, kind, rng
        self.first, self.last, self._count, self._batch = 1, 0, 0, 0
        self._lost: list[int] = []
        #: Numbers that are irrelevant, and those of samples without a source timestamp.
        self._gaps: set[int] = set()
        self._unstamped: set[int] = set()

    def message(self, *submessages: bytes) -> bytes:
        return Header(prefix=self.guid.prefix).encode() + b"".join(submessages)

    def heartbeat(self, *, reader: bytes = ANY, ask: bool = False) -> bytes:
        rng = self._rng
        self._count += 1
        final = not ask and rng.random() < 0.4
        if self._batch and rng.random() < 0.3:
            return HeartbeatBatch(
                reader, ENTITY, 1, self._batch, self.first, self.last, self._count, final
            ).encode()
        liveliness = rng.random() < 0.05
        beat = Heartbeat(reader, ENTITY, self.first, self.last, self._count, final, liveliness)
        return beat.encode(rng.random() < 0.9)

    def sample(self, sn: int, *, reader: bytes = ANY, plain: bool = True) -> bytes:
        little, qos = True, None
        if not plain:
            little = self._rng.random() < 0.5
            qos = ParameterList(((PID_KEY_HASH, b"k" * 16),)) if little else None
        payload = b"\0\1\0\0" + sn.to_bytes(4, "little") * (1 + sn % 3)
        stamp = b"" if sn in self._unstamped else InfoTimestamp(sn * SECOND).encode()
        return stamp + Data(reader, ENTITY, sn, payload, inline_qos=qos).encode(little)

    def forget(self) -> None:
        """Keep no more than ``depth`` samples, and nothing is forgotten that got lost and was not sent again."""
        first = max(self.last + 1 - self.kind.depth, 1)
        self.first = max(self.first, min([first, *self._lost]))

    def next(self) -> list[bytes]:
        """The next datagrams, without those that are lost."""
        rng = self._rng
        how = rng.choices(
            ("single", "train", "equal", "batches", "fragments", "odd", "beat", "gap"),
            (60, 4, 3, 3, 2, 6, 4, 3),
        )[0]
        found: list[bytes] = []

        def send(sns: list[int], *submessages: bytes) -> None:
            if rng.random() < self.kind.loss:
                self._lost += sns
                self.first = min([self.first, *sns])  # as nobody has heard
            else:
                found.append(self.message(*submessages))

        if how == "single":
            steady, beats = rng.random() < 0.8, rng.random()
            for _ in range(rng.choice((1, 1, 4, 12, 30))):
                self.last += 1
                self.forget()
                tail = self.heartbeat() if rng.random() < beats and self.kind.reliable else b""
                if not steady and rng.random() < 0.1:
                    self._unstamped.add(self.last)
                send([self.last], self.sample(self.last), tail)
        elif how == "train":
            sns = [self.last + 1 + i for i in range(rng.randint(2, 6))]
            self.last += len(sns)
            self.forget()
            tail = self.heartbeat() if rng.random() < 0.5 and self.kind.reliable else b""
            send(sns, *map(self.sample, sns), tail)
        elif how == "equal":
            for _ in range(rng.randint(1, 6)):
                sns = [self.last + 1, self.last + 2]
                self.last += 2
                bodies = [
                    Data(ANY, ENTITY, sn, b"\0\1\0\0" + sn.to_bytes(4, "little")).encode() for sn in sns
                ]
                send(sns, InfoTimestamp(sns[0] * SECOND).encode(), *bodies)
            self.forget()
        elif how == "batches":
            for _ in range(rng.randint(1, 6)):
                sns = [self.last + 1 + i for i in range(3)]
                rows = np.zeros((3, 8), np.uint8)
                rows[:, 1], rows[:, 4:] = 1, np.array(sns, "<u4").view(np.uint8).reshape(3, 4)
                self._batch += 1
                samples = Samples.uniform(rows.reshape(-1), 3, 8)
                block = frame_batch(samples, ENTITY, self._batch, self.last + 1)
                self.last += 3
                stamp = InfoTimestamp(sns[0] * SECOND).encode()
                send(sns, stamp, block.data.tobytes())
            self.forget()
        elif how == "fragments":
            self.last += 1
            self.forget()
            stamp = InfoTimestamp(self.last * SECOND).encode()
            for i in (1, 2, 3):
                piece = b"\0\1\0\0" + bytes(60) if i == 1 else bytes([i]) * 64
                frag = DataFrag(ANY, ENTITY, self.last, i, 1, 64, 192, piece)
                send([self.last], stamp, frag.encode())
        elif how == "odd":
            for _ in range(rng.randint(1, 3)):
                self.last += 1
                self.forget()
                send([self.last], self.sample(self.last, plain=False))
        elif how == "beat" and self.kind.reliable:
            who = rng.choice((ANY, ANY, b"\0\0\2\4", b"\0\0\3\4"))
            send([], self.heartbeat(reader=who))
        elif how == "gap" and self.kind.reliable:
            some = [self.last + 1 + i for i in range(rng.randint(1, 3))]
            self.last += len(some)
            self._gaps.update(some)
            gap = Gap(ANY, ENTITY, some[0], SequenceNumberSet.from_numbers(some[-1] + 1, []))
            tail = self.heartbeat() if rng.random() < 0.5 else b""
            send(some, gap.encode(), tail)
        if self._lost and self.kind.reliable and rng.random() < 0.4:
            found += self.repairs()
        return found

    def repairs(self, *, all_of_them: bool = False) -> list[bytes]:
        """What was lost is sent again: to all, or to one who asked."""
        rng, found = self._rng, list[bytes]()
        again = sorted(set(self._lost))
        while again:
            some = [again.pop(0) for _ in range(min(rng.choice((1, 1, 3)), len(again)))]
            bodies = [b"" if rng.random() < 0.5 else InfoDestination(b"r" * 12).encode()]
            for sn in some:
                if sn in self._gaps:
                    gap = Gap(ANY, ENTITY, sn, SequenceNumberSet.from_numbers(sn + 1, []))
                    bodies.append(gap.encode())
                else:
                    bodies.append(self.sample(sn, plain=rng.random() < 0.8))
            found.append(self.message(*bodies, self.heartbeat() if rng.random() < 0.3 else b""))
        if not all_of_them:
            found = found[: rng.randint(1, len(found))] if rng.random() < 0.3 else found
        if len(found) and (all_of_them or rng.random() < 0.9):
            self._lost = []
        return found


def a_kind(rng: Random) -> Kind:
    depth = rng.choice((1, 1, 4, 20, 1 << 20))
    reliable = rng.random() < 0.8
    loss = rng.choice((0.0, 0.0, 0.05, 0.2))
    return Kind(
        reliable,
        reliable and rng.random() < 0.4,
        depth,
        rng.choice((0.0, 0.0, 1.0, 0.3)),
        loss,
        rng.choice((0.0, 0.0, 0.05)),
    )


def arriving(writers: list[Writer], rng: Random, count: int) -> list[tuple[bytes, str]]:
    """The datagrams of a burst."""
    streams: list[list[tuple[bytes, str]]] = []
    for writer in writers:
        found: list[tuple[bytes, str]] = []
        while len(found) < count:
            for datagram in writer.next():
                found.append((datagram, SOURCES[0]))
                if rng.random() < writer.kind.copies:
                    found.append((datagram, SOURCES[rng.random() < 0.5]))
        for i in range(1, len(found)):
            if rng.random() < writer.kind.overtaken:
                j = max(i - rng.randint(1, 4), 0)
                found.insert(j, found.pop(i))
        streams.append(found)
    turns = [number for number, found in enumerate(streams) for _ in found]
    if rng.random() < 0.7:
        rng.shuffle(turns)
    iterators = [iter(found) for found in streams]
    return [next(iterators[number]) for number in turns]


@pytest.mark.parametrize("seed", [317432842, *seeds(200)])
def test_a_mixed_burst_delivers_no_less_than_single_datagrams(seed: int) -> None:
    rng = Random(seed)
    kinds = [a_kind(rng) for _ in WRITERS]
    whole, apart = Mixed(kinds), Mixed(kinds)
    writers = [Writer(guid, kind, rng) for guid, kind in zip(WRITERS, kinds, strict=True)]
    writers = writers[: rng.randint(1, 3)]
    now = SECOND

    def arrive(datagrams: list[tuple[bytes, str]]) -> None:
        whole.take_in(datagrams, now=now)
        for each in datagrams:
            apart.take_in([each], now=now)

    for _ in range(8):
        now += 100 * MS
        arrive(arriving(writers, rng, rng.choice((3, 8, 20, 40))))
        output = whole.acknowledged(now=now)
        # what is missing may be asked for a moment later
        for to, each in apart.acknowledged(now=now).items():
            assert to in output or not each.missing.is_empty or kinds[WRITERS.index(to[1])].overtaken
    for writer in writers:  # at last nothing is lost any more
        if writer.kind.reliable:
            now += SECOND
            arrive([(each, SOURCES[0]) for each in writer.repairs(all_of_them=True)])
            arrive([(writer.message(writer.heartbeat(ask=True)), SOURCES[0])])
    now += SECOND
    output, answers_apart = (end.acknowledged(now=now) for end in (whole, apart))
    assert {to: each.missing.base for to, each in output.items()} == {
        to: each.missing.base for to, each in answers_apart.items()
    }
    assert whole.drops == apart.drops
    reordered = any(writer.kind.overtaken for writer in writers)
    for number, reader in enumerate(whole.readers):
        other, uncounted = apart.readers[number], 0
        for writer in writers:
            these, those = (end.delivered[number, writer.guid] for end in (whole, apart))
            assert not set(those) - set(these)
            proxy, its = reader.writers[writer.guid], other.writers[writer.guid]
            assert reordered or not proxy.reliable or these == those
            assert [each[0] for each in these] == sorted({each[0] for each in these})
            assert (proxy.expected, proxy.announced) == (its.expected, its.announced)
            more = {each[0] for each in these} - {each[0] for each in those}
            uncounted += len(more & apart.passed_early[number, writer.guid])
        mine, its_counters = reader.counters, other.counters
        assert mine.received_samples == sum(len(whole.delivered[number, w]) for w in WRITERS)
        assert mine.lost_samples <= its_counters.lost_samples
        passed = [c.received_samples + c.lost_samples + c.irrelevant_samples for c in (mine, its_counters)]
        assert passed[0] == passed[1] + uncounted
        arrived = [c.received_samples + c.duplicate_samples for c in (mine, its_counters)]
        assert reordered or arrived[0] == arrived[1]


def test_a_volatile_reader_begins_at_the_first_heartbeat_of_a_burst() -> None:
    """The writer keeps one sample, and has forgotten the others by the last HEARTBEAT."""
    kind = Kind(reliable=True, transient_local=False, depth=1, copies=0, loss=0, overtaken=0)
    end = Mixed([kind] * 3)
    writer = Writer(WRITERS[0], kind, Random(1))
    datagrams = []
    for sn in range(1, 41):
        writer.first = writer.last = sn
        datagrams.append((writer.message(writer.sample(sn), writer.heartbeat()), SOURCES[0]))
    end.take_in(datagrams, now=2 * SECOND)
    for number in range(len(READERS)):
        assert [each[0] for each in end.delivered[number, WRITERS[0]]] == list(range(1, 41))
