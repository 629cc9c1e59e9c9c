"""A publication and its agents: the worked example to the byte, back-pressure, cleaning and unblocking by time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from publication_agents import (
    ADMIN_ACTION,
    BACK_PRESSURED,
    CLOSED,
    MAX_POSITION_EXCEEDED,
    NOT_CONNECTED,
    UNBLOCK_TIMEOUT,
    Conductor,
    Publication,
    PublicationCounters,
    Sender,
)

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.log.publication_log import Claim, PublicationLog
from spark_rtps.transport.log.term_frames import PAD, Frame
from spark_rtps.transport.protocol.writing.positions import PublicationPositions

TERM = 64 << 10
WINDOW = TERM // 2
MTU = 1408
S = 1_000_000_000


class Scene:
    """One publication, its agents, and a network that takes whole frames or refuses."""

    def __init__(
        self, *, term_window: int = 0, unblock_timeout: int = UNBLOCK_TIMEOUT, mtu: int = MTU
    ) -> None:
        self.log = PublicationLog.create(TERM, initial_term_id=1005)
        self.counters = PublicationCounters()
        self.positions = PublicationPositions(TERM, term_window)
        self.publication = Publication(
            self.log, self.positions, unblock_timeout=unblock_timeout, counters=self.counters
        )
        self.conductor = Conductor()
        self.conductor.add(self.publication)
        self.sender = Sender(mtu)
        self.sender.add(self.publication, self.transmit)
        self.packets: list[list[bytes]] = []
        self.short = False

    def transmit(self, frames: Sequence[Frame]) -> bool:
        if self.short:
            return False
        self.packets.append([frame.data.tobytes() for frame in frames])
        return True

    def status_message(self, consumption: int, window: int) -> None:
        """As Aeron's unicast flow control takes it."""
        self.publication.on_limit(consumption + window)

    def told(self) -> dict[str, int]:
        """What whoever maps the log sees."""
        return self.log.metadata.positions()

    def connect(self, window: int = WINDOW) -> None:
        self.status_message(0, window)
        self.conductor.do_work(0)


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- the worked example ----------------------------------------------------------------------------


def test_the_worked_example(scene: Scene) -> None:
    p = scene.positions
    message = bytes(608)  # a frame of 640: two fit the MTU, three do not

    # Initial state: zeroed terms, not connected, all counters zero.
    assert not scene.log.data.any()
    assert list(scene.log.metadata.words[12:15]) == [0x3ED00000000, 0, 0]
    assert scene.log.metadata.words[11] == 0, "activeTermCount"
    everything = (
        "pub_pos",
        "pub_lmt",
        "snd_pos",
        "snd_lmt",
        "snd_bpe",
        "clean_pos",
        "is_connected",
        "unblocked",
    )
    assert scene.told() == dict.fromkeys(everything, 0)
    assert scene.publication.offer(message) is NOT_CONNECTED
    assert scene.sender.do_work(0) == 0
    scene.conductor.do_work(0)
    assert (p.pub_pos, p.pub_lmt, p.snd_pos, p.snd_lmt, p.snd_bpe) == (0, 0, 0, 0, 0)

    # A status message of a receiver that has consumed nothing: the sender may send, nobody may publish yet.
    scene.status_message(0, WINDOW)
    assert p.is_connected
    assert (p.pub_pos, p.pub_lmt, p.snd_pos, p.snd_lmt, p.snd_bpe) == (0, 0, 0, 32768, 0)
    assert scene.publication.offer(message) is BACK_PRESSURED

    # The conductor updates the publisher's limit: half a term.
    assert scene.conductor.do_work(0) == 1
    assert (p.pub_pos, p.pub_lmt, p.snd_pos, p.snd_lmt, p.snd_bpe) == (0, 32768, 0, 32768, 0)

    # The application publishes three messages; pub-pos waits for the conductor.
    assert [scene.publication.offer(message) for _ in range(3)] == [640, 1280, 1920]
    assert scene.log.metadata.words[12] == 0x3ED00000780
    assert (p.pub_pos, p.pub_lmt, p.snd_pos, p.snd_lmt, p.snd_bpe) == (0, 32768, 0, 32768, 0)

    # The sender sends two of them in one packet.
    assert scene.sender.do_work(0) == 1280
    assert scene.packets == [[message, message]]
    assert (p.pub_pos, p.pub_lmt, p.snd_pos, p.snd_lmt, p.snd_bpe) == (0, 32768, 1280, 32768, 0)

    # The conductor again.
    scene.conductor.do_work(0)
    assert (p.pub_pos, p.pub_lmt, p.snd_pos, p.snd_lmt, p.snd_bpe) == (1920, 34048, 1280, 32768, 0)

    # A second status message: the slowest subscriber has read one of the two.
    scene.status_message(640, WINDOW)
    assert (p.pub_pos, p.pub_lmt, p.snd_pos, p.snd_lmt, p.snd_bpe) == (1920, 34048, 1280, 33408, 0)

    # And so on: the third leaves, and everybody can see it.
    assert scene.sender.do_work(0) == 640
    scene.conductor.do_work(0)
    assert scene.told() == {
        "pub_pos": 1920,
        "pub_lmt": 34688,
        "snd_pos": 1920,
        "snd_lmt": 33408,
        "snd_bpe": 0,
        "clean_pos": 0,
        "is_connected": 1,
        "unblocked": 0,
    }
    assert scene.counters == PublicationCounters()


# --- what an offer answers -------------------------------------------------------------------------


def test_the_codes_are_aerons() -> None:
    assert (NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION, CLOSED, MAX_POSITION_EXCEEDED) == (
        -1,
        -2,
        -3,
        -4,
        -5,
    )


def test_offers_fill_the_window_and_no_more(scene: Scene) -> None:
    scene.connect()
    taken = 0
    while (position := scene.publication.offer(bytes(1000))) > 0:
        taken = position
    assert position is BACK_PRESSURED
    assert taken == WINDOW // 1056 * 1056  # 1000 + 32, aligned
    assert scene.publication.offer(bytes(WINDOW - taken - 32)) == WINDOW, (
        "a shorter one still fits, to the byte"
    )
    assert scene.publication.offer(b"") is BACK_PRESSURED


def test_a_rotation_asks_to_call_again(scene: Scene) -> None:
    scene.connect(10 * TERM)
    answers = []
    while scene.log.position < TERM:
        answers.append(scene.publication.offer(bytes(5000)))
        scene.sender.do_work(0)
        scene.conductor.do_work(0)
    assert answers[-1] is ADMIN_ACTION and all(answer > 0 for answer in answers[:-1])
    assert scene.publication.offer(bytes(5000)) == TERM + 5056
    while scene.sender.do_work(0):
        pass
    assert scene.positions.snd_pos == TERM + 5056, "the PAD was passed"
    assert sum(map(len, scene.packets)) == len(answers)


def test_what_is_closed_takes_nothing(scene: Scene) -> None:
    scene.connect()
    scene.log.close()
    assert scene.publication.offer(b"x") is CLOSED


def test_nobody_left(scene: Scene) -> None:
    scene.connect()
    scene.publication.offer(bytes(96))
    scene.sender.do_work(0)
    scene.publication.offer(bytes(96))
    scene.positions.disconnect()
    scene.conductor.do_work(0)
    p = scene.positions
    assert (p.pub_pos, p.pub_lmt, p.snd_pos) == (256, 128, 128)
    assert scene.publication.offer(b"x") is NOT_CONNECTED
    assert scene.sender.do_work(0) == 128, "what was taken still leaves"
    scene.status_message(128, WINDOW)
    scene.conductor.do_work(0)
    assert scene.publication.offer(b"x") == 320


def test_messages_that_no_window_lets_pass_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"the longest has 8192 here \(term length 65536, term window 32768\)"
    ):
        Scene().publication.offer(bytes(8193))
    small = Scene(term_window=128)
    with pytest.raises(UsageError, match="the longest has 96 here"):
        small.publication.try_claim(97)
    small.connect()
    assert small.publication.offer(bytes(96)) == 128


def test_the_smallest_window_gets_around_the_terms() -> None:
    """A PAD and the frame behind it need not fit the window together."""
    scene = Scene(term_window=8192 + 32)
    scene.connect(1 << 40)
    scene.publication.offer(bytes(0))
    sent = 0
    while sent < 40:
        sent += scene.publication.offer(bytes(8192)) > 0
        scene.sender.do_work(0)
        scene.conductor.do_work(0)
    assert scene.log.position > 5 * TERM


def test_term_windows() -> None:
    assert PublicationPositions(TERM).term_window == WINDOW
    assert PublicationPositions(TERM, 4096).term_window == 4096
    assert PublicationPositions(TERM, TERM).term_window == WINDOW, "half a term is the most"
    with pytest.raises(UsageError, match="cannot have -1 bytes"):
        PublicationPositions(TERM, -1)
    with pytest.raises(UsageError, match="positions for terms of 131072 bytes with a log of 65536"):
        Publication(PublicationLog.create(TERM), PublicationPositions(2 * TERM))


def test_what_can_be_offered(scene: Scene) -> None:
    scene.connect()
    views = [b"ab", bytearray(b"ab"), memoryview(b"xab")[1:], np.frombuffer(b"ab", np.uint8).data, b""]
    for view in views:
        assert scene.publication.offer(view) > 0
    scene.sender.do_work(0)
    assert scene.packets == [[b"ab"] * 4 + [b""]]


# --- the sender ------------------------------------------------------------------------------------


def test_the_sender_stops_at_its_limit_and_counts_it_once(scene: Scene) -> None:
    scene.connect(window=200)
    for _ in range(3):
        scene.publication.offer(bytes(96))
    assert scene.sender.do_work(0) == 128
    for _ in range(5):
        assert scene.sender.do_work(0) == 0
    assert (scene.positions.snd_pos, scene.positions.snd_bpe) == (128, 1)
    assert scene.counters.sender_flow_control_limits == 1
    assert scene.told()["snd_bpe"] == 1
    scene.status_message(10, 200)  # still not enough, but another limit
    assert scene.sender.do_work(0) == 0 and scene.positions.snd_bpe == 2
    scene.status_message(128, 200)
    assert scene.sender.do_work(0) == 128
    scene.status_message(0, 200)
    assert scene.positions.snd_lmt == 328, "what was allowed stays allowed"


def test_nothing_to_send_is_no_back_pressure(scene: Scene) -> None:
    scene.connect(window=128)
    scene.publication.offer(bytes(96))
    assert scene.sender.do_work(0) == 128
    assert scene.sender.do_work(0) == 0
    assert scene.positions.snd_bpe == 0


def test_a_short_send_comes_again(scene: Scene) -> None:
    scene.connect()
    scene.publication.offer(b"one")
    scene.short = True
    assert scene.sender.do_work(0) == 0 and scene.sender.do_work(0) == 0
    assert (scene.positions.snd_pos, scene.counters.short_sends) == (0, 2)
    scene.short = False
    assert scene.sender.do_work(0) == 64
    assert scene.packets == [[b"one"]]


def test_a_frame_beyond_the_mtu_leaves_alone(scene: Scene) -> None:
    scene.connect()
    for length in (10, 5000, 10):
        scene.publication.offer(bytes(length))
    while scene.sender.do_work(0):
        pass
    assert [[len(body) for body in packet] for packet in scene.packets] == [[10], [5000], [10]]


def test_a_frame_beyond_the_whole_window_still_leaves(scene: Scene) -> None:
    scene.connect(window=2000)
    scene.publication.offer(bytes(5000))
    scene.publication.offer(bytes(5000))
    assert scene.sender.do_work(0) == 5056
    assert scene.sender.do_work(0) == 0, "it has used up the window"
    assert scene.positions.snd_bpe == 1
    scene.status_message(5056, 2000)
    assert scene.sender.do_work(0) == 5056


def test_what_is_claimed_holds_up_what_comes_behind(scene: Scene) -> None:
    scene.connect()
    claim = scene.publication.try_claim(3)
    assert isinstance(claim, Claim)
    scene.publication.offer(b"two")
    assert scene.sender.do_work(0) == 0
    claim.data[:] = np.frombuffer(b"one", np.uint8)
    claim.commit()
    assert scene.sender.do_work(0) == 128
    assert scene.packets == [[b"one", b"two"]]


def test_an_aborted_claim_is_passed(scene: Scene) -> None:
    scene.connect()
    claim = scene.publication.try_claim(300)
    assert isinstance(claim, Claim)
    claim.abort()
    assert scene.sender.do_work(0) == 352 and not scene.packets


def test_publications_take_turns() -> None:
    scenes = [Scene(), Scene(), Scene()]
    order: list[int] = []
    sender = Sender(64)
    for number, scene in enumerate(scenes):
        scene.connect()
        sender.add(scene.publication, lambda frames, number=number: order.append(number) is None)  # type: ignore[misc]
        for _ in range(3):
            scene.publication.offer(b"x")
    assert [sender.do_work(0) for _ in range(4)] == [192, 192, 192, 0]
    assert order == [1, 2, 0, 2, 0, 1, 0, 1, 2]
    sender.remove(scenes[0].publication)
    for scene in scenes:
        scene.publication.offer(b"x")
    assert sender.do_work(0) == 128
    assert Sender(64).do_work(0) == 0


# --- the conductor ---------------------------------------------------------------------------------


def test_cleaning_stays_a_term_behind_the_sender(scene: Scene) -> None:
    scene.connect(1 << 40)
    first = b"\x01" * 1000
    scene.publication.offer(first)
    while scene.positions.snd_pos < TERM + 3000:
        scene.publication.offer(b"\x02" * 1000)
        scene.sender.do_work(0)
        scene.conductor.do_work(0)
        expected = max(scene.positions.snd_pos - TERM, 0)
        assert scene.positions.clean_pos == scene.log.clean_position == scene.told()["clean_pos"] == expected
        if not expected:
            frame = scene.log.frame(0)
            assert frame is not None and frame.data.tobytes() == first, "a term back can be sent again"
    assert not scene.log.data[: scene.positions.clean_pos].any()
    assert scene.log.data[scene.positions.clean_pos :].any()


def test_a_claim_that_is_never_committed_is_unblocked(scene: Scene) -> None:
    scene.connect()
    dead = scene.publication.try_claim(50)
    scene.publication.offer(b"behind it")
    assert isinstance(dead, Claim)
    for now in (1 * S, 16 * S - 1):
        scene.conductor.do_work(now)
        assert scene.sender.do_work(now) == 0
    assert scene.counters.unblocked_publications == 0
    assert scene.conductor.do_work(16 * S) == 1
    assert scene.counters.unblocked_publications == scene.told()["unblocked"] == 1
    frame = scene.log.frame(0)
    assert frame is not None and frame.type == PAD
    assert scene.sender.do_work(16 * S) == 96 + 64
    assert scene.packets == [[b"behind it"]]
    assert not dead.commit()


def test_each_blocked_claim_has_its_time() -> None:
    scene = Scene(unblock_timeout=S)
    scene.connect()
    for _ in range(2):
        scene.publication.try_claim(50)
    scene.conductor.do_work(S)
    scene.conductor.do_work(2 * S)
    assert scene.counters.unblocked_publications == 1
    scene.sender.do_work(2 * S)
    scene.conductor.do_work(2 * S)
    scene.conductor.do_work(3 * S - 1)
    assert scene.counters.unblocked_publications == 1
    scene.conductor.do_work(3 * S)
    assert scene.counters.unblocked_publications == 2


def test_an_idle_publication_does_not_age(scene: Scene) -> None:
    scene.connect()
    scene.publication.try_claim(50)
    scene.conductor.do_work(100 * S)  # its first look since
    scene.conductor.do_work(110 * S)
    assert scene.counters.unblocked_publications == 0


def test_flow_control_is_not_taken_for_a_blocked_claim(scene: Scene) -> None:
    scene.connect(window=32)
    scene.publication.offer(b"waits")
    for now in range(0, 100 * S, 10 * S):
        scene.sender.do_work(now)
        scene.conductor.do_work(now)
    assert scene.counters.unblocked_publications == 0
    scene.status_message(0, WINDOW)
    assert scene.sender.do_work(0) == 64


def test_a_conductor_lets_go(scene: Scene) -> None:
    scene.conductor.remove(scene.publication)
    scene.status_message(0, WINDOW)
    assert scene.conductor.do_work(0) == 0 and scene.positions.pub_lmt == 0
