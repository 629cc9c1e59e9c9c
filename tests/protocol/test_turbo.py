"""Turbo mode: batches sized by the write rate, simulated in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from spark_rtps.transport.protocol.policies import BatchPolicy
from spark_rtps.transport.protocol.writing.batching import Batcher, FlushReason, PendingBatch
from spark_rtps.transport.protocol.writing.batching.turbo import BLOCKED_DELAY_MAX, DELAY_MAX, Turbo
from spark_rtps.transport.structure import NANOSECONDS
from spark_rtps.transport.wire.samples import Samples
from tests.protocol.batcher_script import apart

MS = 1_000_000
LIMIT = 64_000
SIZE = 64
WIRE_SIZE = SIZE + 8


@dataclass
class Simulation:
    """A writer in virtual time; keeps how long each sample waited, and each batch with when it was sent."""

    batcher: Batcher = field(default_factory=lambda: Batcher(BatchPolicy(turbo_mode=True), limit=LIMIT))
    now: int = NANOSECONDS
    waiting: list[int] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)
    sent: list[tuple[int, PendingBatch]] = field(default_factory=list)

    def write(self, count: int = 1, size: int = SIZE) -> None:
        samples = Samples.uniform(np.zeros(count * size, np.uint8), count, size)
        self.waiting += [self.now] * count
        self._sent(self.batcher.add_samples(samples, timestamp=self.now, now=self.now))

    def wait(self, passed: int) -> None:
        until = self.now + passed
        while (due := self.batcher.get_timer()) is not None and due <= until:
            self.now = due
            self._sent(self.batcher.handle_timer(due))
        self.now = until

    def _sent(self, batches: list[PendingBatch]) -> None:
        for batch in apart(batches):
            self.sent.append((self.now, batch))
            self.delays += [self.now - written for written in self.waiting[: batch.count]]
            del self.waiting[: batch.count]
        self.batcher.leaving.sent()

    def run(self, rate: int, count: int, *, block: int = 1, size: int = SIZE) -> Simulation:
        """``count`` writes of ``block`` samples, evenly at ``rate`` samples per second."""
        for _ in range(count):
            self.write(block, size)
            self.wait(NANOSECONDS * block // rate)
        return self

    def counts(self, since: int = 0) -> list[int]:
        return [batch.count for _, batch in self.sent[since:]]


@pytest.mark.parametrize("rate", [1, 100, 1_000, 3_000])
def test_turbo_mode_sends_at_once_at_a_low_rate(rate: int) -> None:
    simulation = Simulation().run(rate, 200)
    assert simulation.counts() == [1] * 200
    assert simulation.delays == [0] * 200


def test_turbo_mode_sends_at_once_at_a_low_rate_with_jitter() -> None:
    simulation = Simulation()
    for gap in np.random.default_rng(1).exponential(10 * MS, 500).astype(int).tolist():
        simulation.write()
        simulation.wait(gap)
    assert simulation.delays == [0] * 500


def test_turbo_mode_fills_the_datagram_at_a_high_rate() -> None:
    simulation = Simulation().run(1_000_000, 50_000)
    warm = simulation.counts()[-20:]
    assert warm == [LIMIT // WIRE_SIZE] * 20
    assert len(simulation.sent) < 150, "few small ones while it warms up"


@pytest.mark.parametrize("size", [16, 64, 1024, 8192])
def test_turbo_mode_comes_near_the_largest_batch_whatever_the_size(size: int) -> None:
    rate = 200_000_000 // size
    simulation = Simulation().run(rate, max(1_000, rate * 5 // 1_000), size=size)
    largest = LIMIT // (size + 8)
    assert np.mean(simulation.counts()[-5:]) >= 0.85 * largest


def test_turbo_mode_in_between_sends_what_the_delay_brings() -> None:
    simulation = Simulation().run(50_000, 5_000)
    assert max(simulation.delays) <= DELAY_MAX
    warm = simulation.counts()[-30:]
    assert 40 <= min(warm) <= max(warm) <= 60


@pytest.mark.parametrize("rate", [5_000, 50_000, 1_000_000])
def test_turbo_mode_leaves_nothing_queued_after_a_sudden_stop(rate: int) -> None:
    simulation = Simulation().run(rate, 10_000)
    simulation.wait(DELAY_MAX)
    assert simulation.waiting == []
    assert max(simulation.delays) <= DELAY_MAX


def test_turbo_mode_sends_at_once_again_after_a_pause() -> None:
    simulation = Simulation().run(1_000_000, 10_000)
    simulation.wait(10 * MS)
    before = len(simulation.sent)
    simulation.run(100, 20)
    assert simulation.counts(before) == [1] * 20


def test_turbo_mode_blocked_makes_batches_larger() -> None:
    free, held = Simulation(), Simulation()
    held.batcher.blocked = True
    assert free.run(20_000, 2_000).delays
    held.run(20_000, 2_000)
    assert np.mean(held.counts()[-5:]) > 4 * np.mean(free.counts()[-5:])
    assert max(held.delays) <= BLOCKED_DELAY_MAX
    held.batcher.blocked = False
    held.run(20_000, 2_000)
    assert np.mean(held.counts()[-5:]) == pytest.approx(np.mean(free.counts()[-5:]), rel=0.2)


def test_turbo_mode_cuts_a_block_into_the_largest_batches_and_sends_the_rest_at_once() -> None:
    simulation = Simulation()
    simulation.write(10_000)
    largest = LIMIT // WIRE_SIZE
    assert simulation.counts() == [largest] * (10_000 // largest) + [10_000 % largest]
    assert simulation.sent[-1][1].reason is FlushReason.TURBO
    assert simulation.delays == [0] * 10_000


def test_turbo_mode_sends_the_rest_of_rare_blocks_at_once() -> None:
    simulation = Simulation().run(100_000, 100, block=1_000)
    assert set(simulation.delays) == {0}


def test_turbo_mode_keeps_the_rest_of_a_block_where_the_next_one_is_near() -> None:
    simulation = Simulation().run(10_000_000, 1_000, block=300)
    assert simulation.counts()[-20:] == [LIMIT // WIRE_SIZE] * 20


def test_turbo_mode_is_ignored_with_batch_enable() -> None:
    batcher = Batcher(BatchPolicy(enable=True, turbo_mode=True), limit=LIMIT)
    simulation = Simulation(batcher).run(100, 20)
    assert (simulation.sent[0][1].count, batcher.flushes) == (16, {FlushReason.MAX_DATA_BYTES: 1})
    assert batcher.get_timer() is None


def test_turbo_mode_does_not_use_max_data_bytes_but_keeps_the_other_limits() -> None:
    policy = BatchPolicy(turbo_mode=True, max_data_bytes=64, auto_flush_size=6_400)
    simulation = Simulation(Batcher(policy, limit=LIMIT)).run(1_000_000, 20_000)
    assert simulation.counts()[-5:] == [100] * 5
    policy = BatchPolicy(turbo_mode=True, max_samples=10)
    assert Simulation(Batcher(policy, limit=LIMIT)).run(1_000_000, 20_000).counts()[-5:] == [10] * 5


def test_turbo_mode_takes_a_clock_that_stands_still() -> None:
    turbo = Turbo()
    limits = [turbo.limit(5, 1, SIZE, False) for _ in range(1_000)]
    assert limits[0] == (0, 0)
    assert limits[-1][0] > 10_000
    assert turbo.limit(4, 1, SIZE, False)[1] == DELAY_MAX
