"""Honest traffic over a lossy network, and attacks drawn between its rows: every honest row arrives once, in time.

What is drawn is well formed: it is what the messages say that does harm. Hypothesis draws the steps (:func:`stories`),
and makes a story that ends badly shorter; :class:`Campaign` plays it.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import strategies as st

from tests.hostile.attacks import ATTACKS
from tests.hostile.scene import HostileScene
from tests.support.virtual_network import MILLISECOND, SECOND

#: In virtual time, on a network that loses every twentieth datagram: rows arrive, and newcomers are matched.
BOUND = 20 * SECOND
#: CPU seconds for one message, on average of a story: a guard that no slow machine reaches.
CPU_MAX = 0.05
#: What unmatched participants may have here, whatever they say.
PARTICIPANTS_MAX, ENDPOINTS_MAX = 1_024, 16_384


class Step(NamedTuple):
    """So many attacks of this name; or what honest participants do, "work", "rest" and "newcomer"."""

    what: str
    who: str
    times: int


class Story(NamedTuple):
    seed: int
    steps: list[Step]


_ATTACKS = [(each.name, who) for each in ATTACKS.values() for who in each.who]
_HONEST = [("work", "honest"), ("rest", "honest"), ("newcomer", "honest")]


def stories(*, steps: int = 40) -> st.SearchStrategy[Story]:
    step = st.builds(
        lambda what, times: Step(*what, min(times, most(what[0]))),  # type: ignore[call-arg]
        st.sampled_from(_ATTACKS + _HONEST),
        st.sampled_from([1, 20, 100]),
    )
    return st.builds(Story, st.integers(0, 1 << 32), st.lists(step, min_size=steps // 2, max_size=steps))


def most(name: str) -> int:
    """How often a step does it at most."""
    return 100 if name in ATTACKS and not ATTACKS[name].heavy else 2 if name in ATTACKS else 20


@dataclass
class Tally:
    """What campaigns have done so far."""

    stories: int = 0
    messages: int = 0
    rows: int = 0
    slowest: float = 0.0


class Campaign:
    """One story, from a matched pair to its end."""

    def __init__(self, seed: int) -> None:
        self.scene = HostileScene(seed=seed, loss=0.05, duplicates=0.02, jitter=2 * MILLISECOND)
        self.scene.send("peer", self.scene.attackers["peer"].matches(self.scene.on))
        self.scene.run(100 * MILLISECOND)

    def play(self, story: Story, tally: Tally) -> None:
        scene, began = self.scene, time.process_time()
        for step in story.steps:
            self.take(step, tally)
        scene.assert_rows_arrive(BOUND)
        self.assert_bounded()
        scene.assert_newcomers_are_found(BOUND)
        scene.rest(15 * SECOND)
        scene.assert_rows_arrive(BOUND)
        self.assert_bounded()
        tally.stories += 1
        tally.messages += scene.attacked
        tally.rows += sum(each.arrived for each in scene.streams)
        spent = time.process_time() - began
        assert spent < CPU_MAX * (scene.attacked + 200), f"{spent:.1f} s for {scene.attacked} messages"

    def take(self, step: Step, tally: Tally) -> None:
        scene, began = self.scene, time.process_time()
        if step.what == "work":
            scene.work(step.times * 4)
        elif step.what == "rest":
            scene.rest(step.times * SECOND // 10)
        elif step.what == "newcomer":
            scene.assert_newcomers_are_found(BOUND)
        else:
            scene.work(2)
            scene.attack(step.what, step.who, step.times)
        scene.run(3 * MILLISECOND)
        tally.slowest = max(tally.slowest, time.process_time() - began)
        for events in scene.network.events.values():
            events.clear()

    def assert_bounded(self) -> None:
        """Traffic to others, and what is held of unmatched participants."""
        scene = self.scene
        assert scene.bytes_to_third_parties() <= scene.attacked_bytes
        assert len(scene.one.database.participants) <= PARTICIPANTS_MAX
        assert len(scene.one.database.endpoints) <= ENDPOINTS_MAX


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
