"""Whose feedback paces a writer: windows, strategies, who is dropped, who is waited for; step by step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError, WriterLimit
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.policies import BatchPolicy, FlowControlPolicy, WriterPolicy
from spark_rtps.transport.protocol.writing.flow import FlowControl, Receiver, flow_control_of
from spark_rtps.transport.structure import INFINITE, Guid
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.status_messages import RttMeasurement
from spark_rtps.transport.wire.submessages import Data, Gap, Heartbeat, HeartbeatBatch
from tests.protocol.writer_script import LASTING, MS, RELIABLE, Script, reader_guid, sns
from tests.support.publication_frames import data_frames

#: One sample of a change of its own: 32 of frame, 32 of RTPS and INFO_TS, 24 of DATA, 40 of payload.
SIZE, PLACE = 40, 128


def script(strategy: str = "min", readers: int = 1, *, lasting: bool = False, **policy: object) -> Script:
    """A writer whose readers send status messages."""
    flow_control = flow_control_of(FlowControlPolicy(strategy=strategy, **policy))
    s = Script(LASTING if lasting else RELIABLE, 0, flow_control=flow_control)
    for i in range(1, readers + 1):
        s.match(i, status_messages=True, transient_local=lasting)
    s.writer.outgoing()
    return s


def write(s: Script, count: int) -> None:
    """Each in a change of its own."""
    for _ in range(count):
        assert s.write(1, SIZE) == 1


def reported(output: list[object]) -> list[tuple[int, int]]:
    return [(each.first_sn, each.last_sn) for each in output if isinstance(each, Heartbeat)]


# --- one reader --------------------------------------------------------------------------------------


def test_no_more_is_sent_than_the_readers_window_takes() -> None:
    s = script().acknack(1).status(0, 3 * PLACE)
    write(s, 5)
    assert sns(s.output()) == [1, 2, 3]
    positions = s.writer.positions
    assert (positions.pub_pos, positions.snd_pos) == (5 * PLACE, 3 * PLACE)
    assert s.writer.pacing.send_limit == (3 * PLACE, reader_guid(1))
    assert positions.snd_bpe == s.writer.counters.flow_control_limits == 1, "each limit once"
    s.acknack(4).status(3, 1 * PLACE)
    assert sns(s.output()) == [4]
    s.acknack(5).status(4, 10 * PLACE)
    assert sns(s.output()) == [5]


def test_samples_acknowledged_but_not_consumed_still_count() -> None:
    s = script().acknack(1).status(0, 2 * PLACE)
    write(s, 4)
    assert sns(s.output()) == [1, 2]
    s.acknack(3)
    assert sns(s.output()) == [], "the reader has them, and no room for more"
    s.status(1, 2 * PLACE)
    assert sns(s.output()) == [3]


def test_a_heartbeat_excludes_waiting_samples() -> None:
    s = script().acknack(1).status(0, 2 * PLACE)
    write(s, 4)
    output = s.output() + [each for _, each in s.sleep(250 * MS)]
    assert reported(output) and all(last == 2 for _, last in reported(output))
    assert s.writer.unacknowledged() == {reader_guid(1): 0}


def test_heartbeats_go_on_while_a_window_is_closed_for_its_opening_may_be_lost() -> None:
    s = script().acknack(1).status(0, 2 * PLACE)
    write(s, 4)
    s.output()
    s.acknack(3).status(2, 0)
    assert reported([each for _, each in s.sleep(350 * MS)]), "somebody has to ask"
    s.status(2, 2 * PLACE)
    assert sns(s.output()) == [3, 4]


def test_a_closed_window_lets_nothing_pass() -> None:
    s = script().acknack(1).status(0, 0)
    write(s, 2)
    assert sns(s.output()) == []


def test_a_sample_larger_than_the_window_goes_alone() -> None:
    s = script().acknack(1).status(0, 100)
    write(s, 3)
    assert sns(s.output()) == [1]
    s.acknack(2)
    assert sns(s.output()) == [], "it is not consumed"
    s.status(1, 100)
    assert sns(s.output()) == [2]


def test_a_window_may_shrink_but_what_it_allowed_stays_allowed() -> None:
    s = script().acknack(1).status(0, 3 * PLACE).status(0, PLACE)
    write(s, 4)
    assert sns(s.output()) == [1, 2, 3]


def test_a_coherent_set_is_sent_whole() -> None:
    s = script().acknack(1).status(0, 2 * PLACE)
    s.writer.coherent_sets.begin(now=s.now)
    write(s, 6)
    s.writer.coherent_sets.end(now=s.now)
    write(s, 1)
    assert sns(s.output()) == [1, 2, 3, 4, 5, 6, 7]
    s.acknack(8).status(7, 2 * PLACE)
    assert sns(s.output()) == [8]


def test_a_coherent_set_behind_which_another_is_begun_is_sent_whole_once_it_is_begun() -> None:
    """Readers consume nothing of it before its end: the writer and they would wait for each other."""
    s = script().acknack(1).status(0, 2 * PLACE)
    write(s, 3)
    for _ in range(2):
        s.writer.coherent_sets.begin(now=s.now)
        write(s, 4)
        s.writer.coherent_sets.end(now=s.now)
    s.writer.coherent_sets.begin(now=s.now)
    write(s, 4)
    assert sns(s.output()) == [1, 2]
    s.acknack(3).status(2, 3 * PLACE)
    assert sns(s.output()) == [3, 4, 5, 6, 7, 8]
    s.acknack(9).status(8, 2 * PLACE)
    assert sns(s.output()) == list(range(9, 18))


def test_after_an_aborted_coherent_set_windows_count_again() -> None:
    s = script().acknack(1).status(0, 3 * PLACE)
    s.writer.coherent_sets.begin(now=s.now)
    write(s, 1)
    s.writer.coherent_sets.abort(now=s.now)
    write(s, 5)
    assert sns(s.output()) == [1, 3]
    s.acknack(4).status(3, 2 * PLACE)
    assert sns(s.output()) == [4, 5]


def test_waiting_samples_past_their_lifespan_are_not_sent() -> None:
    flow_control = FlowControl(FlowControlPolicy())
    s = Script(replace(RELIABLE, lifespan=50 * MS), 0, flow_control=flow_control).match(
        1, status_messages=True
    )
    s.acknack(1).status(0, PLACE)
    write(s, 3)
    assert sns(s.output()) == [1]
    s.sleep(60 * MS)
    write(s, 1)
    s.output()
    s.acknack(2).status(1, 10 * PLACE)
    assert sns(s.output()) == [4]


def test_publishing_stops_a_window_ahead_of_the_sender() -> None:
    policy = FlowControlPolicy(term_length=64 << 10)
    s = Script(flow_control=FlowControl(policy), readers=0).match(1, status_messages=True)
    s.acknack(1).status(0, PLACE)
    taken = 0
    while s.write(1, 1000):
        taken += 1
        assert taken < 100
    positions = s.writer.positions
    assert s.writer.state.blocked_by == "publication limit"
    assert positions.snd_pos + positions.term_window // 2 < positions.pub_pos <= positions.pub_lmt
    assert positions.pub_lmt == positions.snd_pos + (32 << 10)


def test_an_aborted_set_is_not_sent_later() -> None:
    s = script().acknack(1).status(0, PLACE)
    write(s, 2)
    assert sns(s.output()) == [1]
    s.writer.coherent_sets.begin(now=s.now)
    write(s, 3)
    s.writer.coherent_sets.abort(now=s.now)
    s.output()
    s.acknack(2).status(1, 100 * PLACE)
    assert 3 not in sns(s.output())
    write(s, 1)
    assert sns(s.output()) == [7]


def test_readers_may_acknowledge_an_aborted_set_in_front_of_what_waits() -> None:
    """Its GAP is all they need: if that were refused, the writer and they would wait for each other."""
    s = script().acknack(1).status(0, PLACE)
    write(s, 2)
    s.writer.coherent_sets.begin(now=s.now)
    write(s, 3)
    s.writer.coherent_sets.abort(now=s.now)
    write(s, 1)
    assert sns(s.output()) == [1]
    s.acknack(2).status(1, PLACE)
    assert sns(s.output()) == [2]
    s.acknack(7).status(6, PLACE)
    assert sns(s.output()) == [7]
    assert s.writer.counters.unsent_acknowledged == 0


def test_a_reader_of_batches_goes_on_when_what_waits_has_outlived_its_lifespan() -> None:
    batch = BatchPolicy(enable=True, max_samples=2)
    s = Script(
        replace(RELIABLE, lifespan=50 * MS), 0, batch=batch, flow_control=FlowControl(FlowControlPolicy())
    )
    s.match(1, status_messages=True, batches=True)
    s.acknack(1).status(0, 2 * PLACE)
    for _ in range(4):
        s.write(2, SIZE)
    s.output()
    announced = [each for _, each in s.sleep(20_000 * MS) if isinstance(each, HeartbeatBatch)]
    first, last = announced[-1].first_batch_sn, announced[-1].last_batch_sn
    assert first == last + 1, "nothing of what was sent is left"


def test_a_reader_without_status_messages_is_paced_by_its_acknowledgements() -> None:
    s = Script(policy=WriterPolicy(send_window_bytes=4_000), message_size=480)
    taken = s.write(1000)
    assert len(sns(s.output())) == taken == 100
    s.acknack(51)
    assert s.write(900) > 0


def test_without_reliable_readers_nothing_is_held_back() -> None:
    s = script().acknack(1).status(0, PLACE)
    write(s, 5)
    assert sns(s.output()) == [1]
    s.match(2, reliable=False)
    s.writer.unmatch_reader(reader_guid(1))
    assert sns(s.output()) == [2, 3, 4, 5]


def test_an_rtt_measurement_is_answered_to_the_readers_own_address() -> None:
    s = script().acknack(1)
    s.output()
    ask = RttMeasurement(reader_guid(1).entity, s.writer.guid.entity, 12345, 0)
    s.writer.feedback.on_rtt_measurement(reader_guid(1), ask, now=s.now)
    s.writer.feedback.on_rtt_measurement(reader_guid(9), ask, now=s.now)
    s.writer.feedback.on_rtt_measurement(reader_guid(1), replace(ask, reply=True), now=s.now)
    assert s.output() == [replace(ask, reply=True)]


# --- several -----------------------------------------------------------------------------------------


def both(s: Script, base: int, window: int, *, i: int) -> None:
    """Acknowledged and consumed below ``base``."""
    s.acknack(base, i=i).status(base - 1, window, i=i)


def test_min_the_slowest_sets_the_pace() -> None:
    s = script("min", 2)
    both(s, 1, 4 * PLACE, i=1)
    both(s, 1, 2 * PLACE, i=2)
    write(s, 6)
    assert sns(s.output()) == [1, 2]
    both(s, 3, 4 * PLACE, i=1)
    assert sns(s.output()) == []
    both(s, 2, 2 * PLACE, i=2)
    assert sns(s.output()) == [3]


def test_max_the_fastest_sets_the_pace() -> None:
    s = script("max", 2)
    both(s, 1, 2 * PLACE, i=1)
    both(s, 1, 0, i=2)
    write(s, 6)
    assert sns(s.output()) == [1, 2]
    both(s, 3, 2 * PLACE, i=1)
    assert sns(s.output()) == [3, 4]
    assert s.writer.unacknowledged_bytes < 5 * PLACE, "nobody waits for the slow one"


def test_max_a_slow_reader_is_repaired_for_a_term_and_then_rejoins_at_the_newest() -> None:
    policy = FlowControlPolicy(strategy="max", term_length=64 << 10)
    s = Script(readers=0, flow_control=flow_control_of(policy))
    for i in (1, 2):
        s.match(i, status_messages=True)
        both(s, 1, 1 << 20, i=i)
    s.output()

    def burst(upto: int) -> None:
        while s.writer.last_sn < upto:
            assert s.write(1, 1000) == 1
            s.output()
            both(s, s.writer.last_sn + 1, 1 << 20, i=1)

    burst(20)
    s.acknack(1, 1, i=2)
    assert sns(s.output()) == [1], "what lies less than a term back is sent again"
    burst(200)
    assert s.writer.counters.dropped_readers >= 1
    s.now += 10 * MS
    burst(201)
    output = s.output() + [each for _, each in s.sleep(200 * MS)]
    assert s.reader(2).first_relevant > 100
    assert max(first for first, _ in reported(output)) >= s.reader(2).first_relevant
    s.acknack(s.reader(2).first_relevant, i=2)
    burst(202)
    s.acknack(202, 202, i=2)
    assert 202 in sns(s.output())


def test_max_what_a_reader_that_fell_behind_has_lost_is_no_gap() -> None:
    """A GAP would make it irrelevant, and nobody would count it."""
    policy = FlowControlPolicy(strategy="max", term_length=64 << 10)
    s = Script(readers=2, flow_control=flow_control_of(policy))
    s.acknack(1, i=1).acknack(1, i=2)
    while not s.reader(2).rejoins_at:
        s.write(1, 3000)
        s.output()
        s.acknack(s.writer.last_sn + 1, i=1)
    s.sleep(200 * MS)
    for ask in (lambda: s.nack_frag(1, 2, i=2), lambda: s.acknack(1, 1, i=2)):
        ask()  # type: ignore[no-untyped-call]
        output = s.output()
        assert reported(output) == [(s.reader(2).rejoins_at, s.writer.last_sn)]
        assert not any(isinstance(each, Gap) for each in output)


def test_tagged_only_the_tagged_set_the_pace() -> None:
    s = script("tagged", 3, group_tag=7)
    for i, tag, window in ((1, 7, 3 * PLACE), (2, 8, 0), (3, None, 100 * PLACE)):
        s.acknack(1, i=i).status(0, window, i=i, tag=tag)
    write(s, 6)
    assert sns(s.output()) == [1, 2, 3]
    s.acknack(4, i=1).status(3, PLACE, i=1, tag=7)
    assert sns(s.output()) == [4]


def test_tagged_without_any_the_fastest_does() -> None:
    s = script("tagged", 2, group_tag=7)
    both(s, 1, 2 * PLACE, i=1)
    both(s, 1, 1 * PLACE, i=2)
    write(s, 6)
    assert sns(s.output()) == [1, 2]


@pytest.mark.parametrize("strategy", ["min", "tagged"])
def test_nothing_is_written_before_the_group_is_there(strategy: str) -> None:
    s = script(strategy, 1, group_tag=7, group_min_size=2)
    s.acknack(1, i=1).status(0, 100 * PLACE, i=1, tag=7)
    assert s.write(1) == 0
    assert s.writer.state.blocked_by == WriterLimit.GROUP
    assert not s.writer.positions.is_connected
    s.match(2, status_messages=True)
    s.acknack(1, i=2).status(0, 100 * PLACE, i=2, tag=7)
    assert s.writer.positions.is_connected
    assert s.write(1) == 1
    s.writer.unmatch_reader(reader_guid(2))
    assert s.write(1) == 0


def test_a_reader_that_stays_silent_for_receiver_timeout_paces_no_more() -> None:
    s = script("min", 2, receiver_timeout=500 * MS)
    both(s, 1, 2 * PLACE, i=1)
    both(s, 1, 2 * PLACE, i=2)
    write(s, 4)
    assert sns(s.output()) == [1, 2]
    both(s, 3, 2 * PLACE, i=1)
    quiet = s.sleep(400 * MS)
    assert not sns([each for _, each in quiet])
    late = s.sleep(600 * MS)
    assert sns([each for _, each in late]) == [3, 4]
    assert s.writer.counters.inactive_readers == 1
    both(s, 3, 2 * PLACE, i=2)
    assert s.writer.counters.inactive_readers == 0


def test_samples_held_by_a_window_are_announced_until_acknowledged() -> None:
    s = script().acknack(1).status(0, PLACE)
    write(s, 1)
    s.output()
    s.acknack(2).status(1, 0)
    s.output()
    s.write(1, SIZE)
    assert sns(s.output()) == [], "the reader has all that was sent"
    s.status(1, PLACE)
    assert sns(s.output()) == [2]
    assert (2, 2) in reported([each for _, each in s.sleep(200 * MS)]), "the network may have lost it"


@pytest.mark.parametrize("written", [False, True])
def test_samples_held_for_a_silent_reader_leave_when_it_is_let_go(written: bool) -> None:
    """Else a flush ends, since all is acknowledged, and others are not sent what is closed then."""
    s = script("min", 1, receiver_timeout=500 * MS)
    s.match(2, reliable=False)
    write(s, 1)
    s.output()
    s.write(1, 60_000)
    s.write(1, 60_000)
    s.write(1, 60_000)
    assert s.writer._unsent.queue
    s.writer.request_acknowledgment(s.now)
    for _ in range(1_000):
        if not s.writer.unacknowledged():
            break
        if written:
            s.now += 10 * MS
            s.write(1, SIZE)
        else:
            s.now = s.writer.get_timer() or 0
            s.writer.handle_timer(s.now)
    assert not s.writer.unacknowledged() and not s.writer._unsent.queue


def test_a_reader_that_rests_is_not_waited_for_until_it_says_otherwise() -> None:
    s = script("min", 2)
    both(s, 1, 100 * PLACE, i=1)
    both(s, 1, PLACE, i=2)
    write(s, 4)
    assert sns(s.output()) == [1]
    s.status(0, 0, i=2, end=True)
    assert sns(s.output()) == [2, 3, 4]
    s.acknack(5, i=2)
    both(s, 5, 100 * PLACE, i=1)
    assert s.writer.unacknowledged() == {}
    assert s.writer.counters.inactive_readers == 1, "what it acknowledges meanwhile wakes it not"
    s.status(4, PLACE, i=2)
    write(s, 3)
    assert sns(s.output()) == [5, 6, 7], "what others allowed meanwhile stays allowed"
    assert s.writer.unacknowledged() == {reader_guid(1): 4, reader_guid(2): 4}


def test_a_reader_of_another_vendor_among_ours_is_waited_for_by_min() -> None:
    s = script("min", 1)
    s.match(2)
    both(s, 1, 1 << 20, i=1)
    s.acknack(1, i=2)
    s.write(1, SIZE)
    both(s, 2, 1 << 20, i=1)
    assert s.writer.unacknowledged() == {reader_guid(2): 0}


def test_a_reader_with_a_window_that_joins_readers_without_is_not_overrun() -> None:
    s = Script(RELIABLE, 1, flow_control=FlowControl(FlowControlPolicy()))
    write(s, 5)
    s.acknack(6)
    s.output()
    s.match(2, status_messages=True)
    both(s, 6, 2 * PLACE, i=2)
    write(s, 5)
    assert sns(s.output()) == [6, 7]


def test_a_late_joiner_never_takes_back_what_was_allowed() -> None:
    s = script("min", 1, lasting=True)
    both(s, 1, 100 * PLACE, i=1)
    write(s, 50)
    s.output()
    both(s, 51, 100 * PLACE, i=1)
    limit = s.writer.pacing.send_limit[0]
    s.match(2, status_messages=True, transient_local=True)
    s.status(0, PLACE, i=2)
    assert s.writer.pacing.send_limit[0] == limit


def test_a_strategy_of_the_users_own() -> None:
    class First(FlowControl):
        """Whoever came first."""

        def limit(self, receivers: dict[Guid, Receiver]) -> int:  # type: ignore[override]
            return next(iter(receivers.values())).limit

    s = Script(readers=0, flow_control=First(FlowControlPolicy(strategy="mine:First")))
    for i, window in ((1, 2 * PLACE), (2, 0)):
        s.match(i, status_messages=True)
        both(s, 1, window, i=i)
    write(s, 4)
    assert sns(s.output()) == [1, 2]


def test_a_strategy_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="unicast, min, max, tagged"):
        flow_control_of(FlowControlPolicy(strategy="fastest"))
    with pytest.raises(UsageError, match="group_tag"):
        flow_control_of(FlowControlPolicy(strategy="tagged"))


# --- the log -----------------------------------------------------------------------------------------


def test_the_history_is_the_publication_log() -> None:
    log = PublicationLog.create(64 << 10)
    s = Script(log=log)
    payload = np.arange(10 * 100, dtype=np.uint8)
    s.writer.write_samples(Samples.uniform(payload, 10, 100), timestamp=s.now, now=s.now)
    (change,) = s.writer.history.changes()
    assert np.shares_memory(change.content.data, log.data)
    (frame,) = data_frames(log, 0, log.position)
    assert (frame.first_sn, frame.count, frame.end) == (1, 10, s.writer.positions.pub_pos)
    message = frame.data.tobytes()
    assert message[:4] == b"RTPS" and message[20:24] == b"\x09\x01\x08\x00", "a whole message, with INFO_TS"
    assert message[32:] == change.content.data.tobytes()
    s.output()
    s.acknack(3, 3)
    assert sns(s.output()) == [3]


def test_samples_for_late_joiners_outlive_their_frame_in_the_log() -> None:
    s = Script(LASTING, 0, log=PublicationLog.create(64 << 10))
    rows = np.arange(3000, dtype="<u4").repeat(25).view(np.uint8)
    for i in range(0, 3000, 100):
        part = rows[i * 100 : (i + 100) * 100]
        assert s.writer.write_samples(Samples.uniform(part, 100, 100), timestamp=1, now=s.now) == 100
        s.writer.outgoing()
    part[:] = 0  # the caller's memory is the caller's
    assert s.writer.positions.pub_pos > 4 * (64 << 10)
    s.match(1, transient_local=True)
    held = [change.content.data.reshape(-1, 124)[:, 24:28] for change in s.writer.history.changes()]
    assert np.concatenate(held).copy().view("<u4").ravel().tolist() == list(range(3000))


def test_a_sample_too_large_for_a_frame_keeps_its_place_by_an_empty_one() -> None:
    log = PublicationLog.create(64 << 10)
    s = Script(log=log)
    assert s.write(1, 20_000) == 1
    assert s.write(1, 16) == 1
    frames = data_frames(log, 0, log.position)
    assert [(frame.first_sn, len(frame.data) > 0) for frame in frames] == [(1, False), (2, True)]


def test_a_large_sample_to_readers_on_this_host_is_one_message(tmp_path: Path) -> None:
    log = PublicationLog.create(1 << 20, path=tmp_path / "log")
    s = Script(log=log, message_size=1_400)
    payload = np.arange(9_000, dtype=np.uint16).view(np.uint8)
    s.writer.write_samples(Samples.uniform(payload, 1, payload.nbytes), timestamp=s.now, now=s.now)
    (frame,) = data_frames(log, 0, log.position)
    assert frame.data[-payload.nbytes :].tobytes() == payload.tobytes()
    assert frame.data[34:36].tobytes() == b"\0\0", "octetsToNextHeader 0: to the end"


def test_readers_of_the_log_have_a_window_of_their_own(tmp_path: Path) -> None:
    flow_control = flow_control_of(FlowControlPolicy(ipc=True, term_length=64 << 10, ipc_term_window=4_096))
    log = PublicationLog.create(64 << 10, path=tmp_path / "log")
    s = Script(RELIABLE, 0, flow_control=flow_control, log=log).match(1, status_messages=True).acknack(1)
    s.writer.feedback.on_log_positions({reader_guid(1): 0}, [], now=s.now)
    write(s, 100)
    assert s.writer.positions.snd_pos == 4_096 == 32 * PLACE
    s.writer.feedback.on_log_positions({reader_guid(1): 10 * PLACE}, [], now=s.now)
    assert s.writer.positions.snd_pos == 42 * PLACE
    assert s.writer.positions.pub_pos == 100 * PLACE, "the other window bounds what is published"


def test_without_readers_the_log_is_no_limit() -> None:
    s = Script(replace(LASTING), 0, log=PublicationLog.create(64 << 10))
    for _ in range(100):
        assert s.write(10, 1000) > 0
        s.writer.outgoing()
    assert s.writer.pacing.send_limit == (INFINITE, None)


def test_a_gso_buffer_is_divided_where_the_window_ends() -> None:
    s = Script(readers=0, message_size=1_400, log=PublicationLog.create(1 << 20))
    s.match(1, status_messages=True)
    s.acknack(1).status(0, 5_000)
    assert s.write(200, 64) == 200  # 14 in a message of 1,264 bytes
    assert sns(s.output()) == list(range(1, 43))
    assert s.writer.positions.snd_pos == 32 + 3 * 1_264
    s.acknack(43).status(42, 1_000)
    assert sns(s.output()) == list(range(43, 57)), "one message, larger than the window, goes alone"
    s.acknack(50, 50).status(49, 0)
    assert sns(s.output()) == [50], "what was divided is sent again"
    s.acknack(57).status(56, 1 << 20)
    assert sns(s.output()) == list(range(57, 201))
    s.acknack(201).status(200, 1 << 20)
    assert s.writer.unacknowledged() == {} and not list(s.writer.history.changes())


def test_parts_of_a_gso_buffer_stay_for_late_joiners() -> None:
    qos = replace(LASTING, history_depth=1)
    log = PublicationLog.create(64 << 10)
    s = Script(qos, 0, message_size=1_400, log=log)
    rng = np.random.default_rng(3)
    kept: dict[int, bytes] = {}
    for _ in range(60):
        rows = rng.integers(0, 255, (100, 64), dtype=np.uint8)
        first = s.writer.last_sn + 1
        assert (
            s.writer.write_samples(Samples.uniform(rows.ravel(), 100, 64), timestamp=s.now, now=s.now) == 100
        )
        kept |= {first + i: rows[i].tobytes() for i in range(100)}
        s.writer.outgoing()
    s.match(1, transient_local=True)
    got: dict[Any, Any] = {}
    for base in range(1, 6_000, 256):
        s.now += 10 * MS
        s.acknack(base, *range(base, min(base + 256, 6_001)))
        got |= {each.sn: bytes(each.payload or b"") for each in s.output() if isinstance(each, Data)}
    assert got == kept


def test_nothing_is_left_of_best_effort_readers_of_the_log() -> None:
    s = script(readers=0)
    for i in range(1, 20):
        s.match(i, reliable=False)
        s.writer.feedback.on_log_positions({reader_guid(i): 0}, [], now=s.now)
        s.writer.unmatch_reader(reader_guid(i))
    assert not s.writer.pacing._reporting
