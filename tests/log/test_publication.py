"""A writer with a publication log: windows, back-pressure, cleaning, and claims that are given up by time."""

from __future__ import annotations

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.publication_log import FrameClaim, PublicationLog
from spark_rtps.transport.protocol.policies import FlowControlPolicy
from spark_rtps.transport.protocol.writing.flow import FlowControl
from spark_rtps.transport.protocol.writing.intake import SampleClaim
from spark_rtps.transport.protocol.writing.publication import PublicationPositions
from tests.log.publishing_scene import data_in, read_all
from tests.protocol.writer_script import Script, reader_guid, sns
from tests.support.publication_frames import DATA, PAD, FrameAt, frame_at, scan_frames

TERM = 64 << 10
WINDOW = TERM // 2
S = 1_000_000_000
#: Frame, RTPS header with INFO_TS, and DATA around a payload.
AROUND = 32 + 32 + 24


class Scene(Script):
    """A writer with a log and a reader that sends status messages."""

    def __init__(self, *, term_window: int = 0, unblock_timeout: int = 15 * S, window: int = WINDOW) -> None:
        self.log = PublicationLog.create(TERM, initial_term_id=1005)
        policy = FlowControlPolicy(
            strategy="unicast", term_window=term_window, unblock_timeout=unblock_timeout
        )
        super().__init__(readers=0, flow_control=FlowControl(policy), log=self.log)
        self.positions = self.writer.positions
        self.match(1, status_messages=True).consumed(0, window)  # type: ignore[attr-defined]

    def consumed(self, sn: int, window: int = WINDOW) -> Scene:
        """The reader has everything that was sent, and has consumed it up to ``sn``."""
        self.acknack(self.writer.state.sent_sn + 1).status(sn, window)
        return self

    def claim(self, size: int = 16) -> SampleClaim:
        claim = self.writer.claims.make(size, timestamp=self.now, now=self.now)
        assert claim is not None
        return claim

    def frames(self) -> list[FrameAt | int]:
        return list(scan_frames(self.log, 0, self.log.position))


@pytest.fixture
def scene() -> Scene:
    return Scene()


# --- what the application may publish --------------------------------------------------------------


def test_nothing_is_published_beyond_the_window() -> None:
    scene = Scene(window=0)
    while scene.write(1, 1_000):
        assert scene.positions.pub_pos <= scene.positions.pub_lmt == WINDOW
    assert scene.writer.state.blocked_by == "publication limit"
    assert scene.positions.pub_pos > WINDOW // 2
    assert (scene.positions.snd_pos, sns(scene.output())) == (0, [])


def test_a_rotation_is_padding_that_is_passed(scene: Scene) -> None:
    sent = 0
    while scene.log.position <= TERM:
        assert scene.write(1, 5_000) == 1
        sent += 1
        assert sns(scene.output()) == [sent]
        scene.consumed(sent)
    last, padding = scene.frames()[-1], scene.frames()[-2]
    assert isinstance(last, FrameAt) and isinstance(padding, FrameAt)
    assert (padding.type, padding.end, last.type, last.start) == (PAD, TERM, DATA, TERM)
    assert scene.positions.snd_pos == scene.positions.pub_pos == scene.log.position


def test_a_publication_without_readers_left() -> None:
    scene = Scene(window=AROUND + 16)
    scene.write(1)
    scene.consumed(0, AROUND + 16)
    scene.write(1)
    assert (len(scene.writer._unsent.queue), scene.writer.positions.is_connected) == (1, True)
    scene.writer.unmatch_reader(reader_guid(1))
    p = scene.positions
    assert p.snd_pos == p.pub_pos == p.pub_lmt, "what was taken still leaves, and no more is let in"
    assert not scene.writer.positions.is_connected
    scene.match(2, status_messages=True).acknack(3, i=2).status(2, WINDOW, i=2)
    assert scene.writer.positions.is_connected and scene.write(1) == 1


def test_samples_that_no_frame_holds_cannot_be_claimed(scene: Scene) -> None:
    with pytest.raises(UsageError, match="too large to be claimed"):
        scene.claim(8_193)
    assert scene.log.position == 0


def test_a_small_window_gets_around_the_terms() -> None:
    """Padding and the frame behind it need not fit the window together."""
    scene = Scene(term_window=20_000)
    scene.write(1, 4)
    scene.output()
    while scene.log.position < 5 * TERM:
        assert scene.write(1, 8_000) == 1
        scene.output()
        scene.consumed(scene.writer.last_sn)


def test_term_windows() -> None:
    assert PublicationPositions(TERM).term_window == WINDOW
    assert PublicationPositions(TERM, 4096).term_window == 4096
    assert PublicationPositions(TERM, TERM).term_window == WINDOW, "half a term is the most"
    with pytest.raises(UsageError, match="-1 is negative"):
        PublicationPositions(TERM, -1)
    assert Scene().positions.term_length == TERM, "a writer's positions have the terms of its log"


# --- the sender ------------------------------------------------------------------------------------


def test_the_sender_stops_at_its_limit_and_counts_it_once() -> None:
    place = AROUND + 40
    scene = Scene(window=place + 72)
    for _ in range(3):
        scene.write(1, 40)
    assert sns(scene.output()) == [1]
    for _ in range(5):
        scene.sleep(1_000_000)
    assert (scene.positions.snd_pos, scene.positions.snd_bpe) == (place, 1)
    assert scene.writer.counters.flow_control_limits == 1
    scene.log.record(scene.positions)
    assert scene.log.metadata.positions()["snd_bpe"] == 1
    scene.consumed(0, place + 82)  # still not enough, but another limit
    assert sns(scene.output()) == [] and scene.positions.snd_bpe == 2
    scene.consumed(1, place)
    assert sns(scene.output()) == [2]
    limit = scene.positions.snd_lmt
    scene.consumed(1, 0)
    assert scene.positions.snd_lmt == limit, "what was allowed stays allowed"


def test_nothing_to_send_is_no_back_pressure() -> None:
    scene = Scene(window=AROUND + 40)
    scene.write(1, 40)
    assert sns(scene.output()) == [1]
    scene.consumed(0, AROUND + 40)
    assert scene.positions.snd_bpe == 0


def test_a_frame_beyond_the_whole_window_still_leaves() -> None:
    scene = Scene(window=2_000)
    scene.write(1, 5_000)
    scene.write(1, 5_000)
    assert sns(scene.output()) == [1], "and uses up the window"
    assert scene.positions.snd_bpe == 1
    scene.consumed(1, 2_000)
    assert sns(scene.output()) == [2]


def test_a_claim_holds_up_later_frames(scene: Scene) -> None:
    image = Image(scene.log, 0, CopyBuffer())
    claim = scene.claim()
    scene.write(1)
    assert sns(scene.output()) == [] and list(read_all(image)) == []
    claim.data[:] = 1
    assert scene.writer.claims.commit_claim(claim, now=scene.now)
    assert sns(scene.output()) == [1, 2]
    assert list(read_all(image)) == [(1, b"\1" * 16), (2, bytes(16))]


def test_an_aborted_claim_is_passed(scene: Scene) -> None:
    image = Image(scene.log, 0, CopyBuffer())
    claim = scene.claim(300)
    scene.writer.claims.abort(claim, now=scene.now)
    assert sns(scene.output()) == [] and scene.positions.snd_pos == scene.log.position > 300
    assert list(read_all(image)) == [] and image.position == scene.log.position


# --- the conductor ---------------------------------------------------------------------------------


def test_cleaning_stays_a_term_behind_the_sender(scene: Scene) -> None:
    first = np.full(1_000, 1, np.uint8)
    samples = scene.samples(1, 1_000)
    samples.data[:] = first
    scene.writer.write_samples(samples, timestamp=1, now=scene.now)
    while scene.positions.snd_pos < TERM + 3_000:
        scene.write(1, 1_000)
        scene.output()
        scene.consumed(scene.writer.last_sn)
        expected = max(scene.positions.snd_pos - TERM, 0)
        assert scene.positions.clean_pos == scene.log.clean_position == expected
        if not expected:
            frame = frame_at(scene.log, 0)
            assert frame is not None
            assert data_in(frame.data.tobytes()) == [(1, first.tobytes())], "a term back can be sent again"
    assert not scene.log.data[: scene.positions.clean_pos].any()
    assert scene.log.data[scene.positions.clean_pos :].any()


def test_a_claim_that_is_never_committed_is_given_up(scene: Scene) -> None:
    image = Image(scene.log, 0, CopyBuffer())
    dead = scene.claim(48)
    scene.write(1)
    assert sns([each for _, each in scene.sleep(15 * S - 1)]) == []
    assert scene.writer.counters.unblocked_publications == 0 and list(read_all(image)) == []
    assert sns([each for _, each in scene.sleep(1)]) == [2]
    assert scene.writer.counters.unblocked_publications == 1
    frame = frame_at(scene.log, 0)
    assert frame is not None and frame.type == PAD
    assert [sn for sn, _ in read_all(image)] == [2]
    assert not scene.writer.claims.commit_claim(dead, now=scene.now)
    assert not dead.claim.commit()


def test_each_claim_has_its_time() -> None:
    scene = Scene(unblock_timeout=S)
    scene.claim()
    scene.sleep(S // 2)
    scene.claim()
    scene.sleep(S // 2)
    assert scene.writer.counters.unblocked_publications == 1
    scene.sleep(S // 2 - 1)
    assert scene.writer.counters.unblocked_publications == 1
    scene.sleep(1)
    assert scene.writer.counters.unblocked_publications == 2


def test_an_idle_writer_does_not_age(scene: Scene) -> None:
    scene.sleep(100 * S)
    scene.claim()
    scene.sleep(10 * S)
    assert scene.writer.counters.unblocked_publications == 0


def test_flow_control_is_not_taken_for_a_claim() -> None:
    scene = Scene(window=AROUND + 40)
    scene.write(1, 40)
    assert sns(scene.output()) == [1]
    scene.write(1)
    assert sns([each for _, each in scene.sleep(100 * S)]) == []
    assert scene.writer.counters.unblocked_publications == 0
    scene.consumed(1)
    assert sns(scene.output()) == [2]


# --- interruptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
def test_a_write_that_is_interrupted_blocks_nobody(
    scene: Scene, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of the log would wait at its claim for ever."""
    image = Image(scene.log, 0, CopyBuffer())
    scene.write(1)
    scene.output()
    with monkeypatch.context() as patch:
        patch.setattr(FrameClaim, "commit", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        for _ in range(count):
            with pytest.raises(KeyboardInterrupt):
                scene.write(1)
    assert isinstance(scene.frames()[-1], int), "it lies there"
    scene.write(2)
    assert sns(scene.output()) == [2, 3]
    assert [sn for sn, _ in read_all(image)] == [1, 2, 3] and image.position == scene.log.position
    assert scene.writer.counters.unblocked_publications == count


def test_a_claim_that_is_still_open_outlives_an_interrupted_write(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = Image(scene.log, 0, CopyBuffer())
    claim = scene.claim()
    with monkeypatch.context() as patch:
        patch.setattr(FrameClaim, "commit", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            scene.write(1)
    scene.write(1)
    assert scene.writer.claims.commit_claim(claim, now=scene.now)
    assert sns(scene.output()) == [1, 2]
    assert [sn for sn, _ in read_all(image)] == [1, 2]
