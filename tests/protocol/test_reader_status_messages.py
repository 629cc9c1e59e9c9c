"""When a reader tells a writer of ours how far it is, and how much more it takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_rtps.transport.protocol.policies import CongestionControlPolicy, ReaderPolicy
from spark_rtps.transport.protocol.reading.flow.congestion_control import WindowOutcome
from spark_rtps.transport.protocol.reading.flow.status_reporter import TERM_LENGTH
from spark_rtps.transport.protocol.reading.received_stream import DATAGRAM
from spark_rtps.transport.wire.status_messages import RttMeasurement, StatusMessage
from spark_rtps.transport.wire.submessages import AckNack
from tests.protocol.reader_script import IT, ME, MS, POLICY, RELIABLE, Script, samples

WINDOW = 64_000
STATIC = replace(POLICY, congestion_control=CongestionControlPolicy(max_window=WINDOW))
CUBIC = replace(POLICY, congestion_control=CongestionControlPolicy("cubic", measure_rtt=True))
TIMEOUT = POLICY.status_message_timeout


def script(policy: ReaderPolicy = STATIC, **options: bool) -> Script:
    """A reader and a writer of ours that know of each other and have nothing more to say."""
    each = Script(policy=policy, status_messages=True, **options)
    if each.proxy.reliable:
        each.heartbeat(1, 0)
    each.output()
    each.sleep(2 * TIMEOUT)
    each.output()
    return each


def output(each: Script) -> list[StatusMessage]:
    return [found for found in each.output() if isinstance(found, StatusMessage)]


class TestDue:
    def test_a_status_message_is_sent_at_the_match(self) -> None:
        [message] = output(Script(policy=STATIC, status_messages=True))
        assert message == StatusMessage(ME.entity, IT.entity, 0, WINDOW, message.count)

    def test_other_vendors_get_no_status_messages(self) -> None:
        other = Script(policy=STATIC)
        found = (
            output(other)
            + output(other.heartbeat(1, 0).data(1, 4000).sleep(TIMEOUT))
            + output(other.heartbeat(1, 9))
        )
        assert found == []

    def test_a_status_message_is_sent_with_the_answer_to_a_heartbeat(self) -> None:
        each = script()
        acknack, message = each.heartbeat(1, 0).output()
        assert isinstance(acknack, AckNack)
        assert isinstance(message, StatusMessage)

    def test_a_status_message_is_sent_without_positive_acknowledgements_too(self) -> None:
        each = script(replace(STATIC, disable_positive_acks=True))
        assert [type(found) for found in each.heartbeat(1, 0).output()] == [StatusMessage]

    def test_a_final_heartbeat_asks_for_nothing(self) -> None:
        assert output(script().heartbeat(1, 0, final=True)) == []

    def test_a_status_message_is_sent_after_a_quarter_of_the_window(self) -> None:
        each = script()
        each.data(1).sleep(TIMEOUT).output()  # the first one after a silence is told of at once
        assert output(each.data(2, 5, 4000)) == []  # a quarter, exactly
        [message] = output(each.data(6, 6))
        assert (message.consumption_sn, message.receiver_window) == (6, WINDOW)
        assert output(each.data(7, 10, 4000)) == []

    def test_counts_rise(self) -> None:
        each = script()
        counts = [output(each.data(i + 1, i + 1, WINDOW // 2))[0].count for i in range(9)]
        assert counts == sorted(set(counts))

    def test_a_status_message_is_sent_when_a_term_is_full(self) -> None:
        policy = replace(POLICY, congestion_control=CongestionControlPolicy(max_window=1 << 30))
        each = script(policy)
        each.data(1).sleep(TIMEOUT).output()
        each.proxy.stream.rcv_pos = each.proxy.stream.reported_pos = TERM_LENGTH - 64
        each.proxy.stream.due = TERM_LENGTH
        assert output(each.data(2)) == []
        assert len(output(each.data(3))) == 1

    def test_a_status_message_is_sent_after_the_time_and_a_consumption(self) -> None:
        each = script()
        assert len(output(each.data(1).sleep(0))) == 1
        assert output(each.data(2).sleep(TIMEOUT - 1)) == []
        [message] = output(each.sleep(1))
        assert message.consumption_sn == 2

    def test_an_idle_stream_says_nothing(self) -> None:
        each = script()
        each.data(1).sleep(10 * TIMEOUT).output()
        assert output(each.sleep(1_000 * TIMEOUT)) == []
        assert each.reader.get_timer() is None

    def test_best_effort_repeats_the_last_one_a_few_times(self) -> None:
        each = script(reliable=False)
        each.sleep(10 * TIMEOUT).output()
        each.data(1)
        found = [message for _ in range(20) for message in output(each.sleep(TIMEOUT))]
        assert [message.consumption_sn for message in found] == [1, 1, 1, 1]
        assert each.reader.get_timer() is None

    def test_whatever_made_it_due(self) -> None:
        each = script(reliable=False)
        each.data(1).sleep(0).output()
        assert len(output(each.data(2, 1000, 64))) == 1
        found = [message for _ in range(20) for message in output(each.sleep(TIMEOUT))]
        assert [message.consumption_sn for message in found] == [1000] * 3

    def test_a_gap_moves_the_consumption_too(self) -> None:
        each = script()
        each.gap(1, 8)
        assert [message.consumption_sn for message in output(each.sleep(TIMEOUT))] == [7]

    def test_the_tag(self) -> None:
        [message] = output(Script(policy=replace(STATIC, group_tag=-5), status_messages=True))
        assert message.group_tag == -5


class TestConsumption:
    def test_consumption_waits_for_missing_samples(self) -> None:
        each = script()
        [message] = output(each.data(1).data(3, 9, 4000).heartbeat(1, 9))
        assert message.consumption_sn == 1
        positions = each.reader.status.positions(each.proxy)
        assert (positions.rcv_pos, positions.sub_pos, positions.rcv_hwm) == (32, 32, 32 + 7 * 4000)
        [message] = output(each.data(2))
        assert message.consumption_sn == 9

    def test_consumption_waits_for_the_owner(self) -> None:
        each = script()
        each.reader.on_run(samples(1, 1000, 64), now=each.now)
        assert each.reader.outgoing() == []
        each.reader.take_runs()
        assert len(each.reader.outgoing()) == 1

    def test_consumption_waits_while_acknowledgements_are_held(self) -> None:
        each = script()
        each.reader.hold_acknowledgments = True
        assert output(each.data(1, 1000, 64)) == []
        each.reader.hold_acknowledgments = False
        [message] = output(each)
        assert message.consumption_sn == 1000

    def test_the_owner_says_what_is_consumed(self) -> None:
        each = script()
        each.reader.status.consumption_held = True
        each.data(1, 500, 64).sleep(TIMEOUT)
        assert [message.consumption_sn for message in output(each.heartbeat(1, 500))] == [0]
        each.reader.consumed(IT, 200, 200 * 64)
        [message] = output(each.sleep(0))
        assert message.consumption_sn == 200
        assert each.reader.status.positions(each.proxy).sub_pos == 200 * 64
        each.reader.consumed(IT, 500, 300 * 64)
        [message] = output(each.sleep(0))
        assert message.consumption_sn == 500
        assert (
            each.reader.status.positions(each.proxy).sub_pos
            == each.reader.status.positions(each.proxy).rcv_pos
            == 500 * 64
        )

    def test_consumption_of_a_gone_writer(self) -> None:
        each = script()
        each.reader.unmatch_writer(IT)
        each.reader.consumed(IT, 200, 200 * 64)
        assert each.reader.get_timer() is None


class TestWindow:
    def test_no_more_than_the_owner_takes(self) -> None:
        each = script()
        each.reader.window = 10_000
        assert output(each.heartbeat(1, 0))[0].receiver_window == 10_000

    def test_the_window_opens_when_the_owner_has_capacity(self) -> None:
        each = script()
        each.reader.window = 0
        assert output(each.heartbeat(1, 0))[0].receiver_window == 0
        each.reader.window = DATAGRAM - 1
        assert output(each.sleep(0)) == []
        each.reader.window = 1 << 30
        assert output(each.sleep(0))[0].receiver_window == WINDOW
        each.reader.window = 2 << 30
        assert output(each.sleep(0)) == []

    def test_a_closed_writer_is_offered_nothing_until_it_is_open(self) -> None:
        each = script()
        each.reader.window = 100
        assert output(each.data(1, 10))[0].receiver_window == 0
        each.reader.window = 1 << 30
        assert output(each.sleep(0))[0].receiver_window == WINDOW

    def test_samples_held_for_the_owner_count_in_the_window(self) -> None:
        """It is counted from the consumption on, and has its room already."""
        each = script()
        each.reader.status.consumption_held = True
        each.data(1, 100, 64)
        each.reader.window = 1_000
        assert output(each.heartbeat(1, 100))[0].receiver_window == 6_400 + 1_000

    def test_congestion_control_is_called_at_each_quarter(self) -> None:
        each = script(CUBIC)
        assert each.proxy.stream.offered_window == 10 * DATAGRAM
        for i in range(10):
            each.data(32 * i + 1, 32 * i + 32, DATAGRAM // 32).output()
        assert 17 * DATAGRAM <= each.proxy.stream.offered_window <= 20 * DATAGRAM

    def test_fragments_are_datagrams(self) -> None:
        each = script(CUBIC)
        each.frag(1, 1, size=60_000, total=120_000).frag(1, 2, size=60_000, total=120_000).output()
        assert each.proxy.stream.offered_window == (10 + 2) * 60_000

    def test_a_window_can_force_a_message(self) -> None:
        class Pushing:
            def on_track_rebuild(self, **_: object) -> WindowOutcome:
                return WindowOutcome(1 << 40, True)

            def on_rtt_measurement(self, rtt: int, *, now: int) -> None: ...

        each = script()
        each.reader.status.congestion_control = lambda policy, writer: Pushing()
        info = each.proxy.info
        each.reader.unmatch_writer(IT)
        each.reader.match_writer(info, now=each.now)
        assert output(each)[0].receiver_window == (1 << 32) - 1
        assert len(output(each.heartbeat(1, 0).data(1))) == 1


class TestLoss:
    def shrinks(self, each: Script) -> bool:
        before = each.proxy.stream.window
        each.sleep(5 * MS + POLICY.reorder_delay)
        each.output()
        return each.proxy.stream.window < before

    def test_the_window_shrinks_once_for_a_gap(self) -> None:
        each = script(CUBIC)
        each.data(1, 200, 64).output()
        assert self.shrinks(each.data(202, 300, 64))
        assert not self.shrinks(each.data(301, 400, 64).heartbeat(1, 400))
        assert not self.shrinks(each.data(201, 201, 64))
        assert self.shrinks(each.data(402, 500, 64))

    def test_gaps_of_one_round_trip_are_one_loss(self) -> None:
        each = script(CUBIC)
        each.data(1, 200, 64).data(202, 300, 64).data(302, 400, 64).data(402, 500, 64)
        assert self.shrinks(each)
        assert not self.shrinks(each.data(201, 201, 64))
        assert not self.shrinks(each.data(301, 301, 64))

    def test_reordered_samples_are_no_loss(self) -> None:
        each = script(CUBIC)
        each.data(1, 200, 64).data(202, 300, 64).data(201, 201, 64)
        assert not self.shrinks(each)

    def test_samples_written_before_the_match_are_no_loss(self) -> None:
        each = Script(policy=CUBIC, status_messages=True)
        assert not self.shrinks(each.heartbeat(1, 500))

    def test_samples_refused_by_a_full_window_are_no_loss(self) -> None:
        each = script(CUBIC)
        each.data(1, 200, 64).output()
        each.reader.window = 0
        each.data(201, 300, 64).output()
        each.reader.window = 1 << 30
        assert not self.shrinks(each)
        assert each.reader.counters.nacks_sent == 1

    def test_best_effort_sees_them_at_once(self) -> None:
        each = script(CUBIC, reliable=False)
        each.data(1, 22, 64).output()
        window = each.proxy.stream.window
        each.data(24, 44, 64)
        assert each.proxy.stream.window <= 0.8 * window
        assert len(output(each)) == 1


class TestOverruns:
    def test_beyond_what_was_offered_and_half_as_much(self) -> None:
        each = script()
        counters = each.reader.counters
        each.data(1, 1500, 64)
        assert counters.overruns == 0
        each.data(1501, 1501, 64)
        assert counters.overruns == 1

    def test_out_of_order_too(self) -> None:
        each = script()
        each.data(2, 1501, 64)
        assert each.reader.counters.overruns == 0
        each.data(1502, 1502, 64)
        assert each.reader.counters.overruns == 1

    def test_samples_consumed_before_are_an_underrun(self) -> None:
        each = script()
        each.data(1, 1000, 64).output()
        each.data(1, 1000, 64)
        assert each.reader.counters.underruns == 1


class TestRoundTrips:
    def question(self, each: Script) -> RttMeasurement | None:
        found = [message for message in each.output() if isinstance(message, RttMeasurement)]
        return found[0] if found else None

    def answer(self, each: Script, question: RttMeasurement, **changes: object) -> int:
        reply = replace(question, reply=True, **changes)
        each.reader.on_rtt_measurement(IT, reply, now=each.now)
        return each.reader.status.positions(each.proxy).rtt_ns

    def test_a_round_trip(self) -> None:
        each = script(CUBIC)
        question = self.question(each.data(1))
        assert question == RttMeasurement(ME.entity, IT.entity, each.now)
        each.sleep(3 * MS)
        assert self.answer(each, question, reception_delta=MS) == 2 * MS
        assert each.reader.counters.rtt_ns == 2 * MS
        assert each.reader.counters.rtt_measurements == 1
        assert self.answer(each, question) == 2 * MS, "a second answer is none"

    def test_no_more_often_than_ten_times_a_second(self) -> None:
        each = script(CUBIC)
        asked = 0
        for sn in range(1, 501):
            asked += self.question(each.data(sn, sn, 64_000).sleep(MS)) is not None
        assert asked == 5

    def test_only_if_the_policy_measures(self) -> None:
        assert self.question(script().data(1)) is None

    @pytest.mark.parametrize(
        "changes", [{"echo_timestamp": 7}, {"reception_delta": 4 * MS}, {"reception_delta": 1 << 62}]
    )
    def test_answers_to_nothing_we_asked(self, changes: dict[str, int]) -> None:
        each = script(CUBIC)
        question = self.question(each.data(1))
        assert question is not None
        each.sleep(3 * MS)
        assert self.answer(each, question, **changes) == 0

    def test_questions_are_no_answers(self) -> None:
        each = script(CUBIC)
        question = self.question(each.data(1))
        assert question is not None
        each.reader.on_rtt_measurement(IT, question, now=each.now)
        assert each.reader.status.positions(each.proxy).rtt_ns == 0

    def test_a_question_is_not_asked_late(self) -> None:
        each = script(CUBIC)
        each.reader.hold_acknowledgments = True
        assert self.question(each.data(1)) is None
        each.reader.hold_acknowledgments = False
        assert self.question(each.sleep(50 * MS)) is None


def test_a_writer_may_learn_and_unlearn_them() -> None:
    """Whatever a peer says of itself anew."""
    each = script()
    for knows in (False, True, False):
        each.reader.match_writer(replace(each.proxy.info, status_messages=knows), now=each.now)
        assert bool(output(each.heartbeat(1, 9).data(each.proxy.expected).sleep(TIMEOUT))) is knows


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("data"), st.integers(1, 60), st.integers(1, 20)),
            st.tuples(st.just("heartbeat"), st.integers(1, 60), st.integers(0, 1)),
            st.tuples(st.just("gap"), st.integers(1, 60), st.integers(1, 9)),
            st.tuples(st.just("sleep"), st.integers(0, 400), st.integers(0, 0)),
            st.tuples(st.just("window"), st.integers(0, 3000), st.integers(0, 0)),
            st.tuples(st.just("consumed"), st.integers(1, 60), st.integers(0, 4000)),
            st.tuples(st.just("take"), st.integers(0, 0), st.integers(0, 0)),
        ),
        max_size=40,
    ),
    held=st.booleans(),
    reliable=st.booleans(),
    cubic=st.booleans(),
)
@example(
    [("data", 1, 1), ("take", 0, 0), ("heartbeat", 1, 0), ("heartbeat", 1, 0), ("take", 0, 0)],
    False,
    True,
    False,
)
def test_whatever_happens(steps: list[tuple[str, int, int]], held: bool, reliable: bool, cubic: bool) -> None:
    """What is said rises, and is true; and no position is before another that follows it."""
    each = Script(RELIABLE, policy=CUBIC if cubic else STATIC, reliable=reliable, status_messages=True)
    each.reader.status.consumption_held = held
    reported = 0
    for what, a, b in steps:
        if what == "data":
            each.data(a, a + b, 64)
        elif what == "heartbeat":
            each.heartbeat(1, a, final=bool(b))
            reported = min(
                reported, each.proxy.expected - 1
            )  # said twice, it takes back what lies behind its last sample
        elif what == "gap":
            each.gap(a, a + b)
        elif what == "sleep":
            each.sleep(a * MS)
        elif what == "window":
            each.reader.window = a
        elif what == "consumed":
            each.reader.consumed(IT, min(a, each.proxy.expected - 1), b)
        else:
            for message in output(each):
                assert reported <= message.consumption_sn < max(each.proxy.expected, 1)
                reported = message.consumption_sn
        positions = each.reader.status.positions(each.proxy)
        assert 0 <= positions.sub_pos <= positions.rcv_pos <= positions.rcv_hwm
        assert each.proxy.stream.due > 0
