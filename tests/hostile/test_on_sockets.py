"""The same over real sockets: our participants and those of Cyclone DDS at 127.0.0.1, an attacker at 127.0.0.66."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile import messages as m
from tests.hostile.attacker import FAR, READER, WRITER, Host
from tests.hostile.attacks import ATTACKS, batch_bomb, payload
from tests.hostile.honest_process import HonestProcess, StrangerSocket, honest_pair, wait_for
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Number
from tests.support import domains
from tests.support.waiting import PATIENCE, wait_until

#: Rows a second.
RATE = 5_000
#: Seconds without a row of a stream: a guard, which a loaded machine does not reach.
STALL_MAX = 3.0


class Scene:
    """``two`` streams rows to ``one``, which the attacker attacks in the name of ``two``."""

    def __init__(self, one: HonestProcess, two: HonestProcess, unmatched_peer: StrangerSocket) -> None:
        self.one, self.two, self.unmatched_peer = one, two, unmatched_peer
        self.on, self.other = one.host(), two.host()
        self.attacker = unmatched_peer.attacker

    def forge(self, *submessages: bytes) -> None:
        self.unmatched_peer.send(self.on, [self.attacker.to(self.on, *submessages, prefix=self.other.prefix)])

    def assert_rows_arrive(self) -> None:
        """All that were written, each once, and none that the attacker wrote."""
        written = self.two.call("end_stream")
        assert written
        wait_until(lambda: self.one.call("state")["rows"] >= written, "the last rows", 20)
        state = self.one.call("state")
        assert (state["rows"], state["lost"], state["again"], state["forged"]) == (written, 0, 0, 0)
        assert self.two.call("acknowledged", timeout=10.0)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with honest_pair(domains.HOSTILE) as (one, two), StrangerSocket() as unmatched_peer:
        two.call("stream", rate=RATE)
        assert wait_for(lambda: one.call("state")["rows"], PATIENCE) is not None
        one.call("begin")
        yield Scene(one, two, unmatched_peer)


def test_streams_go_on_in_anothers_name(scene: Scene) -> None:
    """HEARTBEAT, GAP and DATA far ahead, a dispose of the writer, ACKNACKs of what was never sent."""
    for _ in range(3):
        scene.forge(m.heartbeat(scene.other.writer, FAR, FAR + 1, 1 << 20))
        scene.forge(m.gap(scene.other.writer, 1, FAR))
        scene.forge(m.data(scene.other.writer, FAR, payload()))
        scene.forge(m.acknack(scene.other.reader, scene.on.writer, 10**6, 0, 1 << 20))
        for sn in (2, 3):
            qos = [m.status_info(disposed=True, unregistered=True)]
            key = m.endpoint_key(scene.other.writer_guid)
            disposed = scene.attacker.sedp(
                scene.on, m.PUBLICATIONS_WRITER, key, prefix=scene.other.prefix, sn=sn, inline_qos=qos
            )
            scene.unmatched_peer.send(scene.on, [disposed])
        time.sleep(0.1)
    assert scene.one.call("matched") == {"readers": 1, "writers": 1}
    scene.assert_rows_arrive()


def test_a_sink_waits_for_absent_receivers(scene: Scene) -> None:
    with scene.two.away():
        assert scene.one.call("write", count=100)["written"] == 100
        scene.forge(m.acknack(scene.other.reader, scene.on.writer, 10**6, 0, 1 << 20))
        scene.forge(m.status_message(scene.other.reader, scene.on.writer, 10**6, 1 << 20, 1 << 20, end=True))
        assert not scene.one.call("acknowledged", timeout=0.5)
    assert scene.one.call("acknowledged", timeout=PATIENCE)
    scene.assert_rows_arrive()


def test_batches_of_mixed_shapes_stall_nothing(scene: Scene) -> None:
    bomb = batch_bomb(WRITER)
    for _ in range(20):
        scene.unmatched_peer.send(scene.on, [scene.attacker.to(scene.on, bomb)])
        scene.forge(batch_bomb(scene.other.writer))
    time.sleep(0.5)
    assert scene.one.call("state")["longest"] < STALL_MAX
    scene.assert_rows_arrive()


def test_drawn_attacks(scene: Scene) -> None:
    """For some seconds, whatever an unmatched participant may say."""
    attacks = [each for each in ATTACKS.values() if "unmatched" in each.who and not each.heavy]
    drawn = random.Random(12)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        scene.attacker.written = scene.two.call("state")["written"]
        attack = drawn.choice(attacks)
        for _ in range(20):
            scene.unmatched_peer.send(scene.on, attack.function(scene.attacker, scene.on, scene.other))
        time.sleep(0.01)
    state = scene.one.call("state")
    assert state["longest"] < STALL_MAX
    assert state["peak"] < 400 << 20
    scene.assert_rows_arrive()
    assert scene.unmatched_peer.third_party_got() <= scene.unmatched_peer.sent_bytes
    with HonestProcess(domain=domains.HOSTILE, writes="t", reads="nothing") as newcomer:
        assert wait_for(lambda: newcomer.call("matched")["readers"] == 1, 20) is not None


def test_a_reader_elsewhere_gets_nothing(scene: Scene) -> None:
    victim = scene.attacker.victim
    scene.unmatched_peer.send(
        scene.on,
        [
            *scene.attacker.introduction(scene.on),
            scene.attacker.endpoint(scene.on, READER, scene.on.writes, reliable=False, unicast=[victim]),
        ],
        pace=0.05,
    )
    assert scene.one.call("write", count=5_000)["written"] == 5_000
    time.sleep(0.2)
    assert scene.unmatched_peer.third_party_got() <= scene.unmatched_peer.sent_bytes


def test_cyclones_stream_goes_on(tmp_path: Path) -> None:
    """Of a live Cyclone DDS to a receiver of ours, whose GUIDs the attacker has read from multicast."""
    domain = domains.HOSTILE
    with (
        HonestProcess(directory=str(tmp_path / "log"), domain=domain, topic="t", type_name=None) as receiver,
        HonestProcess(domain=domain, writes="nothing", reads="nothing else") as onlooker,
        CyclonePeer(domain) as cyclone,
        StrangerSocket() as unmatched_peer,
    ):
        cyclone.writer("t", Number)
        cyclone.wait_for_match("t")
        on, other = _aimed_at(onlooker, cyclone)
        cyclone.call("write_numbers", "t", 0, 200)
        wait_until(lambda: receiver.call("state")["log.rows"] >= 200, "the first rows")
        forged = [
            m.heartbeat(other.writer, FAR, FAR + 1, 1 << 20),
            m.gap(other.writer, 1, FAR),
            m.data(other.writer, FAR, payload()),
        ]
        for each in forged * 3:
            unmatched_peer.send(on, [unmatched_peer.attacker.to(on, each, prefix=other.prefix)])
        qos = [m.status_info(disposed=True, unregistered=True)]
        for sn in (1, 2, 3):
            key = m.endpoint_key(other.writer_guid)
            unmatched_peer.send(
                on,
                [
                    unmatched_peer.attacker.sedp(
                        on, m.PUBLICATIONS_WRITER, key, prefix=other.prefix, sn=sn, inline_qos=qos
                    )
                ],
            )
        cyclone.call("write_numbers", "t", 200, 200)
        wait_until(lambda: receiver.call("state")["log.rows"] >= 400, "all rows")
        time.sleep(0.2)
        assert receiver.call("state")["log.rows"] == 400
        cyclone.wait_for_acks("t")


def _aimed_at(onlooker: HonestProcess, cyclone: CyclonePeer) -> tuple[Host, Host]:
    """The receiver and the Cyclone participant, as an onlooker knows them."""
    wait_until(lambda: onlooker.call("participants")[1:] and onlooker.call("writers"), "both participants")
    reader, writer = bytes.fromhex(cyclone.matched("t")[0]), bytes.fromhex(onlooker.call("writers")[0])
    ports = {
        bytes.fromhex(each["prefix"]): (("127.0.0.1", each["metatraffic"]), ("127.0.0.1", each["user"]))
        for each in onlooker.call("participants")
    }
    on = Host(reader[:12], *ports[reader[:12]], b"", reader[12:], "", "t")
    return on, Host(writer[:12], *ports[writer[:12]], writer[12:], b"", "t", "")
