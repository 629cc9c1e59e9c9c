"""Batches of a burst, looked at together: readers end up as if each datagram had come alone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.qos import HistoryKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire import batch_ranges
from spark_rtps.transport.wire.batch import frame_batch
from spark_rtps.transport.wire.batch_ranges import scan_batches
from spark_rtps.transport.wire.info import InfoTimestamp
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.samples import DISPOSED, Samples
from spark_rtps.transport.wire.submessages import Heartbeat, HeartbeatBatch
from tests.protocol.burst_scene import ENTITY, LASTING, SECOND, WRITERS, End
from tests.support.campaigns import seeds

ALL = replace(LASTING, history=HistoryKind.KEEP_ALL)


class Stream:
    """What one writer sends: batches, many of them alike, and now and then something else."""

    def __init__(self, writer: Guid, chance: random.Random, *, size: int) -> None:
        self.writer, self.chance, self.size = writer, chance, size
        self.sn = self.batch_sn = self.count = 0
        self.keyed = chance.random() < 0.3

    def message(self, stamp: int | None, *bodies: bytes) -> bytes:
        info = b"" if stamp is None else InfoTimestamp(stamp).encode()
        return Header(prefix=self.writer.prefix).encode() + info + b"".join(bodies)

    def batch(self, count: int, stamp: int | None, **given: object) -> bytes:
        """The datagram of a batch of so many samples."""
        size = self.size
        rows = np.frombuffer(self.chance.randbytes(count * size), np.uint8).reshape(count, size).copy()
        rows[:, :4] = (0, 1, 0, given.pop("padding", 0))  # type: ignore[assignment]
        keys = np.frombuffer(self.chance.randbytes(16 * count), np.uint8).reshape(count, 16)
        given = {"key_hashes": keys if self.keyed else None, **given}
        samples = Samples.uniform(rows.reshape(-1), count, size)
        self.batch_sn += 1
        block = frame_batch(samples, ENTITY, self.batch_sn, self.sn + 1, **given)
        self.sn += count
        return self.message(stamp, block.data.tobytes())

    def heartbeat(self) -> bytes:
        self.count += 1
        if self.chance.random() < 0.5:
            beat = HeartbeatBatch(bytes(4), ENTITY, 1, self.batch_sn, 1, self.sn, self.count)
            return self.message(None, beat.encode())
        return self.message(None, Heartbeat(bytes(4), ENTITY, 1, self.sn, self.count).encode())

    def next(self) -> list[bytes]:
        chance = self.chance
        stamp, count = SECOND * (1 + self.sn), chance.choice((1, 3, 7))
        found = []
        for _ in range(chance.randrange(1, 12)):
            stamp += chance.random() < 0.1
            odd = chance.random() < 0.06
            how = chance.randrange(6) if odd else -1
            given: dict[str, object] = {}
            if how == 0:
                given["flags"] = DISPOSED
            elif how == 1:
                given["removed"] = np.arange(count) == 0
            elif how == 2:
                given["padding"] = 2
            elif how == 3:
                given["coherent_set"] = self.sn + 1
            elif how == 4:
                given["timestamps"] = stamp + np.arange(count)
            found.append(self.batch(count + (how == 5), stamp if chance.random() < 0.98 else None, **given))
        return found + ([self.heartbeat()] if chance.random() < 0.3 else [])


def arriving(seed: int, size: int) -> list[tuple[bytes, str]]:
    """Datagrams with their senders as a bad network brings them."""
    chance = random.Random(seed)
    streams = [Stream(writer, chance, size=size) for writer in WRITERS[: chance.choice((1, 1, 3))]]
    datagrams = []
    for _ in range(chance.randrange(3, 14)):
        datagrams += [(datagram, "10.0.0.1") for datagram in chance.choice(streams).next()]
    if chance.random() < 0.6:
        kept = [each for each in datagrams if chance.random() < 0.93]
        datagrams = kept + [each for each in datagrams if chance.random() < 0.3]
        for _ in range(chance.randrange(4)):
            i, j = chance.randrange(len(datagrams)), chance.randrange(len(datagrams))
            datagrams[i], datagrams[j] = datagrams[j], datagrams[i]
        for _ in range(chance.randrange(4)):
            i = chance.randrange(len(datagrams))
            broken = bytearray(datagrams[i][0])
            broken[chance.randrange(min(len(broken), 120))] ^= 1 << chance.randrange(8)
            datagrams[i] = bytes(broken), datagrams[i][1]
    return datagrams


@pytest.mark.parametrize("history", [ALL, replace(ALL, max_samples=5), LASTING], ids=["all", "some", "last"])
@pytest.mark.parametrize("size", [24, 4_004])
@pytest.mark.parametrize("seed", seeds(25))
def test_a_burst_of_batches_equals_single_datagrams(seed: int, size: int, history: object) -> None:
    datagrams, chance = arriving(seed, size), random.Random(seed)
    together, alone = (End(qos=history) for _ in range(2))
    at, now = 0, SECOND
    while at < len(datagrams):
        count = chance.choice((5, 16, 40))
        together.take_in(datagrams[at : at + count], now=now)
        for each in datagrams[at : at + count]:
            alone.take_in([each], now=now)
        at, now = at + count, now + 1_000_000
    assert together.state() == alone.state()


@pytest.mark.parametrize("size", [24, 4_004])
@pytest.mark.parametrize("seed", range(4))
def test_batches_as_our_writers_send_them_are_one_run(seed: int, size: int) -> None:
    """The comparison above would hold if nothing ever was looked at together."""
    stream = Stream(WRITERS[0], random.Random(seed), size=size)
    end, runs = End(qos=ALL), []
    for reader in end.readers:
        take = reader.take_runs
        reader.take_runs = lambda take=take: [runs.append(run) or run for run in take()]  # type: ignore[method-assign, misc]
    end.take_in([(stream.batch(3, SECOND), "10.0.0.1") for _ in range(20)], now=SECOND)
    assert [(run.first_sn, run.count, run.batch_sn) for run in runs] == [(1, 60, 0)] * 2
    assert end.readers[0].counters.received_batches == 20


def test_untrusted_batches_are_dropped_one_by_one() -> None:
    stream = Stream(WRITERS[0], random.Random(1), size=24)
    datagrams = [(stream.batch(3, SECOND), "10.0.0.1") for _ in range(20)]
    end, alone = End(qos=ALL), End(qos=ALL)
    for each in (end, alone):
        each.receiver.router._looks_at_addresses = True  # and the sender is unknown
    end.take_in(datagrams, now=SECOND)
    for datagram in datagrams:
        alone.take_in([datagram], now=SECOND)
    assert end.drops == alone.drops and end.drops[DropReason.UNKNOWN_WRITER] == 20
    assert not end.delivered


@pytest.mark.parametrize("size", [24, 4_004])
def test_batches_that_nobody_reads_are_not_gathered(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(WRITERS[0], random.Random(1), size=size)
    end = End(qos=ALL)
    cast(dict[Guid, object], end.receiver.router.routes).clear()

    def gather(*_: object) -> object:
        raise AssertionError

    monkeypatch.setattr(batch_ranges._Layout, "gather", gather)
    end.take_in([(stream.batch(3, SECOND), "10.0.0.1") for _ in range(20)], now=SECOND)
    assert end.drops[DropReason.UNKNOWN_WRITER] == 20


def test_a_jump_of_sequence_numbers_ends_a_range() -> None:
    stream = Stream(WRITERS[0], random.Random(1), size=24)
    datagrams = [stream.batch(3, SECOND) for _ in range(4)]
    stream.sn += 1
    datagrams += [stream.batch(3, SECOND) for _ in range(4)]
    size = len(datagrams[0])
    data = np.frombuffer(b"".join(datagrams), np.uint8)
    found = scan_batches(data, 0, size, size, 8)
    assert [(each.first, each.stop) for each in found] == [(0, 4), (4, 8)]
    assert [each.range_.run().first_sn for each in found] == [1, 14]
    assert [each.range_.batch_sn for each in found] == [1, 5]
