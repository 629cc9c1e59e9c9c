"""The stateful writer, submessage by submessage; and what hostile readers cannot make it do."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError, WriterLimit
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.policies import WriterPolicy
from spark_rtps.transport.qos import HistoryKind
from spark_rtps.transport.structure import Locator
from spark_rtps.transport.wire.numbers import FragmentNumberSet
from spark_rtps.transport.wire.samples import DISPOSED, NO_TIMESTAMP, U8, Samples
from spark_rtps.transport.wire.submessages import (
    Data,
    DataFrag,
    Gap,
    Heartbeat,
    InfoTimestamp,
    NackFrag,
)
from tests.protocol.writer_script import (
    LASTING,
    ME,
    MS,
    RELIABLE,
    Script,
    reader_guid,
    sns,
    submessages,
    where,
)


def test_a_match_is_greeted_with_a_heartbeat() -> None:
    s = Script(readers=0)
    s.match(1)
    (out,) = s.writer.outgoing()
    assert out.dest_prefix == reader_guid(1).prefix
    (heartbeat,) = submessages(out)
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.first_sn, heartbeat.last_sn, heartbeat.final) == (1, 0, False)
    assert heartbeat.reader_id == reader_guid(1).entity
    proxy = s.writer.readers[reader_guid(1)]
    assert not proxy.is_ready
    s.acknack(1, final=False)
    assert len(s.output()) == 1, "a pre-emptive ACKNACK is answered"
    assert not proxy.is_ready, "where it starts is settled by its answer to a HEARTBEAT"
    s.acknack(1)
    assert proxy.is_ready


def test_blocks_go_once_to_the_union_of_destinations() -> None:
    s = Script(readers=3)
    s.writer.match_reader(
        ReaderInfo(reader_guid(4), (where(1), where(9)), (Locator("239.1.1.1", 7401),), True, False),
        now=s.now,
    )
    s.writer.match_reader(
        ReaderInfo(reader_guid(5), (), (Locator("239.255.0.1", 7401),), False, False), now=s.now
    )
    s.writer.outgoing()
    assert s.write(10_000, 60) == 10_000
    out = s.writer.outgoing()
    assert len(out) == 5, "four GSO buffers, and a HEARTBEAT"
    expected = {where(1), where(2), where(3), where(9), Locator("239.255.0.1", 7401)}
    for each in out:
        assert set(each.destinations) == expected
        assert len(each.destinations) == 5
        assert each.dest_prefix is None
    assert [sn for each in out for sn in sns(submessages(each))] == list(range(1, 10_001))
    assert s.writer.outgoing() == []


def test_without_readers_nothing_is_kept_or_sent() -> None:
    s = Script(readers=0)
    assert s.write(100_000, 400) == 100_000
    assert s.writer.last_sn == 100_000
    assert s.writer.outgoing() == []
    assert s.writer.history.samples == 0
    s.match(1)
    (heartbeat,) = s.output()
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.first_sn, heartbeat.last_sn) == (100_001, 100_000)
    assert s.writer.unacknowledged() == {}


def test_small_writes_share_a_datagram_with_their_own_timestamps() -> None:
    s = Script()
    for _ in range(3):
        s.write(2)
        s.now += MS
    s.writer.write_samples(Samples.uniform(np.zeros(16, np.uint8), 1, 16), timestamp=NO_TIMESTAMP, now=s.now)
    first, second = s.writer.outgoing()
    output = submessages(first)
    assert sns(output) == [1, 2, 3, 4, 5, 6]
    stamps = [each.timestamp for each in output if isinstance(each, InfoTimestamp)]
    assert [first.timestamp, *stamps] == [1_000 * MS, 1_001 * MS, 1_002 * MS]
    assert second.timestamp is None
    assert sns(submessages(second)) == [7]


@pytest.mark.parametrize("stamp", [-1, (1 << 32) * 1_000_000_000])
def test_a_timestamp_that_rtps_cannot_carry_is_refused_before_anything_is_taken(stamp: int) -> None:
    """It would be found only when messages are made, of which none could then be sent."""
    s = Script()
    for count in (1, 500):
        samples = Samples.uniform(np.zeros(16 * count, np.uint8), count, 16)
        with pytest.raises(UsageError, match="1970 to 2106"):
            s.writer.write_samples(samples, timestamp=stamp, now=s.now)
        assert (s.writer.last_sn, s.writer.outgoing()) == (0, [])
    s.write(1)
    assert sns(s.output()) == [1]


def test_the_send_window_closes_and_opens() -> None:
    s = Script(policy=WriterPolicy(send_window_bytes=4_000), message_size=480)
    taken = s.write(1000)  # 40 bytes each on the wire, ten in a datagram
    assert taken == 100
    output = s.output()
    heartbeats = [each for each in output if isinstance(each, Heartbeat)]
    assert 4 <= len(heartbeats) <= 9
    assert isinstance(output[-1], Heartbeat), "the last word asks for an acknowledgement"
    assert output[-1].last_sn == 100
    assert s.write(900) == 0
    s.acknack(51)
    assert s.write(900) == 0 or s.writer.unacknowledged_bytes <= 4_000
    s.acknack(s.writer.last_sn + 1)
    assert s.writer.unacknowledged_bytes == 0
    assert s.writer.history.samples == 0
    assert s.write(900) == 100
    assert s.writer.counters.back_pressured >= 2


def test_the_slowest_reader_counts() -> None:
    s = Script(readers=2, policy=WriterPolicy(send_window_bytes=4_000))
    s.write(1000)
    s.acknack(101, i=1)
    assert s.writer.unacknowledged() == {reader_guid(2): 0}
    assert s.writer.unacknowledged(0) == {}
    assert s.writer.unacknowledged_bytes == 4_000
    s.writer.unmatch_reader(reader_guid(2))
    assert s.writer.unacknowledged() == {}
    assert s.writer.unacknowledged_bytes == 0
    assert s.write(100) == 100
    s.writer.unmatch_reader(reader_guid(2))


def test_a_sample_larger_than_the_window_goes_alone() -> None:
    s = Script(policy=WriterPolicy(send_window_bytes=4_000))
    assert s.write(2, 10_000) == 1
    assert s.write(1, 10_000) == 0
    s.acknack(2)
    assert s.write(1, 10_000) == 1


def test_resource_limits_hold_back() -> None:
    s = Script(replace(RELIABLE, max_samples=10))
    assert s.write(30) == 10
    assert s.write(20) == 0
    assert s.writer.state.blocked_by == WriterLimit.MAX_SAMPLES
    s.acknack(8)
    assert s.write(20) == 7
    s.acknack(18)
    assert s.write(5) == 5
    assert s.writer.state.blocked_by == ""
    lasting = Script(replace(LASTING, max_samples=10))
    assert lasting.write(30) == 10
    lasting.acknack(11)
    assert lasting.write(20) == 0, "and for ever: late joiners are promised all of them"
    assert lasting.writer.state.blocked_by == WriterLimit.MAX_SAMPLES


def test_the_limit_that_blocks_a_writer_is_named() -> None:
    policy = WriterPolicy(send_window_bytes=4_000)
    s = Script(replace(RELIABLE, max_samples=150), policy=policy, message_size=480)
    assert s.writer.state.blocked_by == ""
    assert s.write(1000) == 100
    assert s.writer.state.blocked_by == "send window"
    s = Script(replace(RELIABLE, max_samples=50), policy=policy, message_size=480)
    assert s.write(1000) == 50
    assert s.writer.state.blocked_by == WriterLimit.MAX_SAMPLES
    s.acknack(51)
    assert s.write(1000) == 50
    s.acknack(101)
    assert s.write(10) == 10
    assert s.writer.state.blocked_by == ""


def test_numbers_may_start_above_one() -> None:
    s = Script(LASTING, readers=0, first_sn=1000)
    assert s.writer.last_sn == 999
    s.match(1, transient_local=True)
    (heartbeat,) = s.output()
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.first_sn, heartbeat.last_sn) == (1000, 999)
    assert s.writer.unacknowledged() == {}
    s.write(5)
    assert sns(s.output()) == [1000, 1001, 1002, 1003, 1004]
    s.acknack(1, *range(1, 257), final=False)
    (heartbeat,) = s.output()
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.first_sn, heartbeat.last_sn) == (1000, 1004)


def test_requests_are_answered_with_exactly_what_is_missing() -> None:
    s = Script()
    s.write(100)
    s.output()
    s.acknack(11, 12, 13, 50, final=False)
    (out,) = s.writer.outgoing()
    assert out.destinations == (where(1),)
    assert out.dest_prefix == reader_guid(1).prefix
    output = submessages(out)
    assert sns(output) == [12, 13, 50]
    assert isinstance(output[-1], Heartbeat)
    assert s.writer.history.first_sn == 11
    s.acknack(11, 12, 51)
    assert sns(s.output()) == [51], "12 was sent just now"
    s.now += 20 * MS
    s.acknack(11, 12)
    assert sns(s.output()) == [12]


def test_a_full_bitmap_gets_the_rest_of_the_block() -> None:
    s = Script()
    s.write(2000)
    s.output()
    s.acknack(1, *range(1, 257))
    got = sns(s.output())
    assert got == list(range(1, len(got) + 1))
    assert 1600 < len(got) < 1700, "the datagram it lost"


def test_late_joiner_is_served_in_large_pieces() -> None:
    s = Script(LASTING, readers=0)
    s.write(100_000)
    s.match(1, transient_local=True)
    (heartbeat,) = s.output()
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.first_sn, heartbeat.last_sn) == (1, 100_000)
    base, rounds = 1, 0
    while base <= 100_000:
        s.acknack(base, *range(base, min(base + 256, 100_001)))
        got = sns(s.output())
        assert got[0] == base
        base = got[-1] + 1
        s.now += MS
        rounds += 1
    assert rounds < 30


def test_gap_for_what_is_no_more() -> None:
    s = Script(replace(LASTING, history=HistoryKind.KEEP_LAST, history_depth=5), readers=0)
    s.write(1000)
    s.match(1, transient_local=True)
    s.output()
    s.acknack(1, *range(1, 257))
    gap, heartbeat = s.output()
    assert isinstance(gap, Gap)
    assert (gap.start_sn, gap.irrelevant.base, gap.irrelevant.is_empty) == (1, 996, True)
    assert gap.reader_id == reader_guid(1).entity
    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.first_sn == 996


def test_a_volatile_reader_gets_no_history() -> None:
    s = Script(LASTING, readers=0)
    s.write(100)
    s.match(1)
    s.write(10)
    s.output()
    s.acknack(1, *range(1, 111, 2))
    output = s.output()
    assert not [each for each in output if isinstance(each, Gap)]
    assert isinstance(output[-1], Heartbeat) and output[-1].first_sn == 101
    assert sns(output) == [101, 103, 105, 107, 109]


def test_a_volatile_reader_of_a_lasting_writer_is_ready_once_settled() -> None:
    s = Script(LASTING, readers=0)
    s.match(1)
    proxy = s.writer.readers[reader_guid(1)]
    s.acknack(1, final=False)
    assert not proxy.is_ready
    s.acknack(1, final=True)
    assert proxy.is_ready


def test_heartbeats_while_something_is_unacknowledged() -> None:
    s = Script(readers=2)
    s.acknack(1, i=1).acknack(1, i=2)
    assert s.writer.get_timer() is None
    s.write(5)
    s.output()
    assert s.writer.get_timer() == s.now + s.writer.policy.heartbeat_period
    sent = []
    for _ in range(2000):
        s.now += 10 * MS
        if (at := s.writer.get_timer()) is not None and at <= s.now:
            s.writer.handle_timer(s.now)
        for out in s.writer.outgoing():
            assert set(out.destinations) == {where(1), where(2)}
            sent.append(s.now)
    assert sent == [1_000 * MS + (i + 1) * s.writer.policy.heartbeat_period for i in range(200)]
    s.acknack(6, i=1)
    s.writer.handle_timer(s.writer.get_timer() or 0)
    (out,) = s.writer.outgoing()
    assert out.destinations == (where(2),)
    s.acknack(6, i=2)
    assert s.writer.get_timer() is None


def test_request_acknowledgment() -> None:
    s = Script()
    s.write(5)
    s.writer.request_acknowledgment(s.now)
    output = s.output()
    assert sns(output) == [1, 2, 3, 4, 5]
    assert isinstance(output[-1], Heartbeat)
    assert not output[-1].final
    s.acknack(6)
    s.writer.request_acknowledgment(s.now)
    assert s.output() == []


def test_large_samples_travel_as_fragments() -> None:
    s = Script(message_size=1_400)
    hashes = np.full((1, 16), 7, np.uint8)
    s.write(1, 10_000, key_hashes=hashes, flags=DISPOSED)
    out = s.writer.outgoing()
    frags = [each for o in out for each in submessages(o) if isinstance(each, DataFrag)]
    assert len(frags) == len(out) == -(-10_000 // frags[0].fragment_size)
    assert b"".join(frag.payload for frag in frags) == bytes(10_000)
    for frag in frags:
        assert frag.inline_qos is not None
        assert frag.inline_qos.key_hash == b"\7" * 16
        assert frag.inline_qos.status_info == DISPOSED
    nack = NackFrag(reader_guid(1).entity, ME.entity, 1, FragmentNumberSet.from_numbers(2, [2, 5, 250]), 1)
    s.writer.feedback.on_nack_frag(reader_guid(1), nack, now=s.now)
    output = s.output()
    assert [each.first_fragment for each in output if isinstance(each, DataFrag)] == [2, 5]
    s.writer.feedback.on_nack_frag(reader_guid(1), replace(nack, count=2), now=s.now)
    assert s.output() == [], "sent just now"
    s.writer.feedback.on_nack_frag(reader_guid(1), replace(nack, count=2), now=s.now)
    assert s.writer.counters.stale_counts == 1
    s.acknack(2)
    s.now += 20 * MS
    s.writer.feedback.on_nack_frag(reader_guid(1), replace(nack, count=3), now=s.now)
    (output,) = s.output()  # type: ignore[assignment]
    assert isinstance(output, Heartbeat) and output.first_sn == 2, "acknowledged, hence gone"


def test_whoever_asks_for_a_large_sample_as_a_whole_gets_all_of_it_in_turns() -> None:
    s = Script(policy=WriterPolicy(max_bytes_per_nack_response=200_000))
    s.write(1, 1 << 20)
    s.output()
    got: list[int] = []
    for _ in range(20):
        s.acknack(1, 1)
        frags = [each.first_fragment for each in s.output() if isinstance(each, DataFrag)]
        assert len(frags) <= 4
        got += frags
        s.now += 20 * MS
    assert set(got[:17]) == set(range(1, 18))


def test_mixed_sizes() -> None:
    s = Script(message_size=1_400)
    lengths = np.array([8, 5000, 12, 16, 2000, 2000, 4])
    samples = Samples.ragged(np.zeros(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths, lengths)
    assert s.writer.write_samples(samples, timestamp=5, now=s.now) == 7
    output = s.output()
    assert sns(output) == [1, 3, 4, 7]
    assert {each.sn for each in output if isinstance(each, DataFrag)} == {2, 5, 6}


def test_samples_without_payload() -> None:
    s = Script()
    nothing = Samples(np.zeros(0, np.uint8), 3)
    hashes: U8 = np.arange(48, dtype=np.uint8).reshape(3, 16)
    assert s.writer.write_samples(nothing, timestamp=5, now=s.now, flags=DISPOSED, key_hashes=hashes) == 3
    data = [each for each in s.output() if isinstance(each, Data)]
    assert [each.payload for each in data] == [None] * 3
    assert [each.inline_qos.key_hash for each in data if each.inline_qos] == [bytes(row) for row in hashes]


def test_misuse() -> None:
    s = Script()
    with pytest.raises(UsageError, match="multiple of 4"):
        s.write(1, 7)
    with pytest.raises(UsageError, match="too small"):
        Script(message_size=100)
    assert s.writer.last_sn == 0


def test_rematching_changes_locators_only() -> None:
    s = Script()
    s.write(5)
    s.acknack(4)
    s.writer.match_reader(ReaderInfo(reader_guid(1), (where(8),), (), True, False), now=s.now)
    s.output()
    assert s.writer.unacknowledged() == {reader_guid(1): 3}
    s.write(1)
    (out,) = s.writer.outgoing()
    assert out.destinations == (where(8),)


def test_best_effort_pairs_have_no_heartbeats() -> None:
    s = Script(readers=0)
    s.match(1, reliable=False)
    assert s.output() == []
    assert s.writer.readers[reader_guid(1)].is_ready
    assert s.write(200_000, 64) == 200_000
    assert not any(isinstance(each, Heartbeat) for each in s.output())
    assert s.writer.history.samples == 0
    s.acknack(1, 1)
    assert s.writer.counters.unknown_reader == 1
    assert s.output() == []


# --- hostile readers ---------------------------------------------------------------------------------


def test_acknowledging_what_was_never_written() -> None:
    s = Script()
    s.write(5)
    s.output()
    s.acknack(1 << 62, (1 << 62) + 5)
    assert [type(each) for each in s.output()] == [Heartbeat], (
        "which shows a reader that was led astray the way"
    )
    s.now += 10 * MS
    assert s.writer.readers[reader_guid(1)].acked == 0
    assert s.writer.counters.unsent_acknowledged == 1
    s.acknack(6)
    s.write(5)
    assert s.writer.unacknowledged() == {reader_guid(1): 5}
    s.acknack(3)
    assert s.writer.unacknowledged() == {reader_guid(1): 5}, "never falls"
    s.output()
    s.acknack(0, final=False)
    assert len(s.output()) == 1


def test_requests_beyond_the_last_are_ignored() -> None:
    s = Script()
    s.write(5)
    s.output()
    s.acknack(5, *range(5, 261))
    output = s.output()
    assert sns(output) == [5]
    assert not any(isinstance(each, Gap) for each in output)


def test_stale_counts_are_ignored() -> None:
    s = Script()
    s.write(5)
    s.output()
    s.acknack(1, 1, count=50).acknack(1, 2, count=50).acknack(1, 3, count=49)
    assert sns(s.output()) == [1]
    assert s.writer.counters.stale_counts == 2


def test_an_acknack_storm_is_bounded() -> None:
    s = Script(LASTING, readers=0)
    s.write(60_000, 1000)
    s.match(1, transient_local=True)
    s.output()
    started, sent = time.process_time(), 0
    for i in range(2_000):
        base = 1 + (i * 97) % 59_000
        s.acknack(base, *range(base, base + 256))
        sent += sum(len(each) for out in s.writer.outgoing() for each in out.submessages)
        s.now += 5_000  # 10 ms in all
    assert sent < 3 * (s.writer.policy.max_repair_bytes + (1 << 16)) + 2_000 * 32
    assert s.writer.counters.repairs_bounded > 0
    assert time.process_time() - started < 3


def test_nonsense_from_unmatched_readers_is_ignored() -> None:
    s = Script()
    s.write(5)
    s.output()
    s.acknack(1, 1, i=9)
    nack = NackFrag(reader_guid(9).entity, ME.entity, 1, FragmentNumberSet(1), 1)
    s.writer.feedback.on_nack_frag(reader_guid(9), nack, now=s.now)
    s.writer.feedback.on_nack_frag(reader_guid(1), replace(nack, sn=1 << 60), now=s.now)
    assert [type(each) for each in s.output()] == [Heartbeat]
    s.writer.feedback.on_nack_frag(reader_guid(1), replace(nack, count=2), now=s.now)
    assert s.output() == []
    assert s.writer.counters.unknown_reader == 2
