"""Requests back off at random where a group of readers sees a loss at once."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from spark_rtps.transport.protocol.policies import ReaderPolicy
from spark_rtps.transport.wire.submessages import AckNack
from tests.protocol.reader_script import MS, POLICY, Script

GROUP = replace(POLICY, nack_group_size=10, nack_backoff_max=10 * MS)


def waits_for_a_hole(policy: ReaderPolicy, seed: int) -> int:
    """From a hole to the request for it, in ns."""
    script = Script(policy=policy, random=Random(seed))
    script.heartbeat(1, 0, final=True).output()
    script.data(1).data(3).output()
    at = script.reader.get_timer()
    assert at is not None
    waited = at - script.now
    script.now = at
    script.reader.handle_timer(script.now)
    [acknack] = [each for each in script.output() if isinstance(each, AckNack)]
    assert list(acknack.missing.numbers()) == [2]
    return waited


def test_alone_nobody_backs_off() -> None:
    assert {waits_for_a_hole(POLICY, seed) for seed in range(10)} == {POLICY.reorder_delay}

    class Unused(Random):
        def random(self) -> float:
            raise AssertionError("nothing is drawn")

    Script(policy=POLICY, random=Unused()).heartbeat(1, 0).data(1).data(3).heartbeat(1, 5)


def test_readers_of_a_group_wait_within_bounds_and_differently() -> None:
    waits = [waits_for_a_hole(GROUP, seed) for seed in range(50)]
    assert all(0 <= wait - POLICY.reorder_delay <= GROUP.nack_backoff_max for wait in waits)
    assert len(set(waits)) == 50


@pytest.mark.parametrize("group", [2, 10, 100])
def test_the_longest_are_the_likeliest(group: int) -> None:
    """So that few ask first: the delay has the density of a truncated exponential that rises towards the end."""
    policy = replace(GROUP, nack_group_size=group)
    for seed in range(20):
        steepness = math.log(group) + 1
        drawn = Random(seed).random()
        wanted = policy.nack_backoff_max / steepness * math.log(drawn * (math.e**steepness - 1) + 1)
        assert waits_for_a_hole(policy, seed) - policy.reorder_delay == pytest.approx(wanted, abs=2)


def test_arrivals_during_the_backoff_do_not_draw_again() -> None:
    """The shortest of many draws would be none at all."""
    script = Script(policy=GROUP, random=Random(3))
    script.heartbeat(1, 0, final=True).data(1).data(3)
    at = script.reader.get_timer()
    for sn in range(4, 50):
        script.data(sn)
        assert script.reader.get_timer() == at


def test_a_heartbeat_that_proves_a_loss_lets_the_group_draw_too() -> None:
    waits = set()
    for seed in range(20):
        script = Script(policy=GROUP, random=Random(seed))
        script.heartbeat(1, 0, final=True).data(1).output()
        script.heartbeat(1, 3, final=True)
        at = script.reader.get_timer()
        assert at is not None
        waits.add(at - script.now)
    assert len(waits) == 20


def test_a_repair_that_comes_first_saves_the_request() -> None:
    script = Script(policy=GROUP)
    script.heartbeat(1, 0, final=True).data(1).data(3).output()
    script.now += MS
    script.data(2).output()
    script.now += 100 * MS
    script.reader.handle_timer(script.now)
    assert not [each for each in script.output() if isinstance(each, AckNack)]
    assert script.reader.counters.nacks_sent == 0
