"""What an unmatched participant could do by discovery, each attack by itself, in virtual time (see ``test_table``)."""

from __future__ import annotations

import struct

import pytest

from spark_rtps.transport import limits
from tests.hostile import messages as m
from tests.hostile.attacker import READER, Datagram
from tests.hostile.scene import ATTACKER, VICTIM, HostileScene
from tests.hostile.work import calls_of
from tests.support.virtual_network import MILLISECOND, SECOND


@pytest.fixture
def scene() -> HostileScene:
    scene = HostileScene()
    scene.assert_rows_arrive()
    return scene


# --- reflection ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", ["names itself too", "names others only"])
@pytest.mark.parametrize("proves", [True, False], ids=["proves", "does not prove"])
@pytest.mark.parametrize("again", ["the same", "another each time", "restarted each time"])
def test_an_announcement_reflects_no_more_than_it_has(
    scene: HostileScene, own: str, proves: bool, again: str
) -> None:
    unmatched_peer = scene.attackers["unmatched"]
    victims = tuple((VICTIM, 53 + i) for i in range(16))
    at = ((unmatched_peer.here,) if own == "names itself too" else ()) + victims
    for i in range(50):
        prefix = unmatched_peer.prefix if again != "another each time" else unmatched_peer.fresh_prefix()
        sn = 1 + i * 1_000 if again == "restarted each time" else i + 1
        scene.send("unmatched", [unmatched_peer.announcement(prefix, at=at, default=victims, sn=sn)])
        if proves:
            scene.send("unmatched", [Datagram(unmatched_peer.to(scene.on, prefix=prefix))])
        scene.work(1)
        scene.rest(100 * MILLISECOND)
    assert scene.bytes_to(VICTIM) <= scene.attacked_bytes
    scene.rest(60 * SECOND)
    assert scene.bytes_to(VICTIM) <= scene.attacked_bytes
    scene.assert_rows_arrive()


def test_a_small_announcement_is_not_answered_with_a_larger_one(scene: HostileScene) -> None:
    """As much goes to an address that has proved nothing as came from there, the sender's own included."""
    unmatched_peer = scene.attackers["unmatched"]
    for _ in range(100):
        payload = m.parameter_payload(
            [
                (0x0015, b"\x02\x05\0\0"),
                (0x0016, m.VENDOR + b"\0\0"),
                (0x0050, (prefix := unmatched_peer.fresh_prefix()) + m.PARTICIPANT),
                (0x0058, b"\x3f\0\0\0"),
                (0x0032, m.locator(unmatched_peer.here)),
            ]
        )
        scene.send("unmatched", [Datagram(m.message(prefix, m.data(m.SPDP_WRITER, 1, payload)), user=False)])
        scene.run(MILLISECOND)
    scene.rest(30 * SECOND)
    assert scene.bytes_to(ATTACKER) <= scene.attacked_bytes


@pytest.mark.parametrize("through", ["the endpoint", "the participant", "a group", "discovery's group"])
def test_a_reader_elsewhere_gets_nothing(scene: HostileScene, through: str) -> None:
    """Rows go only where the participant of their reader has proved to be."""
    unmatched_peer, victim = scene.attackers["unmatched"], (VICTIM, 7411)
    group = {"a group": "239.9.9.9", "discovery's group": "239.255.0.1"}.get(through)
    before = scene.bytes_to("239.255.0.1")
    default = [victim] if through == "the participant" else [unmatched_peer.here]
    scene.send(
        "unmatched", [unmatched_peer.announcement(default=default), Datagram(unmatched_peer.to(scene.on))]
    )
    scene.send(
        "unmatched",
        [
            unmatched_peer.endpoint(
                scene.on,
                READER,
                scene.on.writes,
                reliable=False,
                unicast=[victim] if through == "the endpoint" else [],
                multicast=[(group, 7411)] if group else [],
            )
        ],
    )
    for _ in range(100):
        scene.work(20, size=200)
        scene.run(10 * MILLISECOND)
    assert scene.bytes_to(VICTIM) <= scene.attacked_bytes
    assert scene.bytes_to("239.9.9.9") == 0
    assert scene.bytes_to("239.255.0.1") - before < 5_000
    scene.assert_rows_arrive()


# --- crowds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("proves", [True, False], ids=["proven", "unproven"])
def test_a_newcomer_is_found_in_a_crowd(scene: HostileScene, proves: bool) -> None:
    """1,100 participants of one address, announced for as long as may be: they make way."""
    unmatched_peer = scene.attackers["unmatched"]
    for _ in range(1_100):
        prefix = unmatched_peer.fresh_prefix()
        scene.send("unmatched", [unmatched_peer.announcement(prefix, lease=m.INFINITE_LEASE)])
        if proves:
            scene.send("unmatched", [Datagram(unmatched_peer.to(scene.on, prefix=prefix), user=False)])
        if unmatched_peer._made % 50 == 0:
            scene.work(1)
            scene.run(MILLISECOND)
    scene.run(100 * MILLISECOND)
    scene.assert_rows_arrive()
    scene.assert_newcomers_are_found()


def test_a_crowd_of_endpoints_costs_little_while_it_lasts(scene: HostileScene) -> None:
    """Of six participants with 3,600 endpoints each, as many are kept as one address may have."""
    unmatched_peer = scene.attackers["unmatched"]
    idle = calls_of(lambda: scene.rest(SECOND))
    for _ in range(6):
        prefix = unmatched_peer.fresh_prefix()
        scene.send("unmatched", unmatched_peer.introduction(scene.on, prefix))
        for i in range(3_600):
            entity = struct.pack(">I", (i + 16) << 8 | (3, 4)[i % 2])
            scene.send("unmatched", [unmatched_peer.endpoint(scene.on, entity, f"x{i}", prefix=prefix)])
            if i % 500 == 0:
                scene.run(MILLISECOND)
        scene.work(1)
        scene.run(10 * MILLISECOND)
    scene.assert_rows_arrive()
    kept = [each for each in scene.one.database.endpoints if each.guid.prefix[:1] == b"\xee"]
    assert len(kept) <= limits.ENDPOINTS_PER_ADDRESS_MAX
    scene.rest(30 * SECOND)
    busy = calls_of(lambda: scene.rest(SECOND))
    assert busy < 10 * idle + 60_000
    scene.assert_newcomers_are_found()
