"""Every sample once, in order, or counted, and everything acknowledged at the end, whatever policies and network."""

from __future__ import annotations

from random import Random, SystemRandom

import pytest

from tests.protocol.random_network import KINDS, complaints

#: Seeds that once delivered samples twice, lost some without a count or waited for ever, and others of each kind.
KNOWN = [
    ("small room", 111),
    ("small room", 522),
    ("reliable", 2294),
    ("reliable", 2609),
    ("reliable", 2764),
    ("reliable", 4106),
    ("reliable", 8388),
    ("best effort mixed in", 1),
    ("outages", 1),
    ("forgetful", 1),
    ("forgetful", 1136),
    ("forgetful", 2063),
    ("given up", 0),
    ("given up", 61),
]
#: In this process; a failure shows the seed.
_FRESH = SystemRandom().randrange(1 << 30)


@pytest.mark.parametrize(("kind", "seed"), KNOWN)
def test_known_networks_deliver_every_sample_once(kind: str, seed: int) -> None:
    assert complaints(kind, seed) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_network_delivers_every_sample_once(kind: str) -> None:
    seed = Random(f"{_FRESH} {kind}").randrange(1 << 30)
    assert complaints(kind, seed) == [], f"complaints({kind!r}, {seed})"
