"""Each attack by itself, again and again between rows, in virtual time: whatever its author knows."""

from __future__ import annotations

import pytest

from tests.hostile.attacks import ATTACKS
from tests.hostile.scene import VICTIM, HostileScene
from tests.support.virtual_network import MILLISECOND, SECOND

CASES = [(name, who) for name, each in ATTACKS.items() for who in each.who]


@pytest.mark.parametrize(("name", "who"), CASES, ids=["-".join(case) for case in CASES])
def test_honest_rows_arrive_and_newcomers_are_found(name: str, who: str) -> None:
    scene = HostileScene()
    if who == "peer":
        scene.let_the_peer_match()
    for _ in range(20):
        scene.work()
        scene.attack(name, who, 1 if ATTACKS[name].heavy else 5)
        scene.run(10 * MILLISECOND)
    scene.assert_rows_arrive()
    scene.assert_newcomers_are_found()
    scene.rest(20 * SECOND)
    scene.assert_rows_arrive()
    assert scene.bytes_to_third_parties() <= scene.attacked_bytes


@pytest.mark.parametrize("proves", [True, False], ids=["proves", "does not prove"])
def test_a_name_is_free_again_once_its_squatter_is_silent(proves: bool) -> None:
    """While an honest participant was away, an attacker announced itself under its name; then it comes back."""
    scene = HostileScene()
    scene.assert_rows_arrive()
    unmatched_peer, other = scene.attackers["unmatched"], scene.other
    host = scene.network._hosts.pop(other.user[0])
    assert scene.run(60 * SECOND, until=lambda: other.prefix not in scene.one.database.participants)
    forged = [unmatched_peer.announcement(other.prefix, lease=(1 << 30, 0))]
    if proves:
        forged += unmatched_peer.introduction(scene.on, other.prefix)[1:]
    scene.send("unmatched", forged)
    scene.rest(SECOND)
    scene.network._hosts[other.user[0]] = host
    assert scene.run(120 * SECOND, until=scene.is_matched)
    scene.assert_rows_arrive(20 * SECOND)
    assert scene.bytes_to(VICTIM) <= scene.attacked_bytes
