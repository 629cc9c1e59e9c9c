"""What a writer sends again, when, and how much of it: parameter by parameter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spark_rtps.transport.limits import REORDER_RUNS_MAX
from spark_rtps.transport.protocol.policies import WriterPolicy
from spark_rtps.transport.protocol.writing.readers.reader_repairs import RecentRepairs, Requested
from spark_rtps.transport.qos import HistoryKind
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import Data, DataFrag, Gap, Heartbeat
from tests.protocol.writer_script import LASTING, MS, Script, reader_guid, sns, submessages, times


def started(count: int, size: int = 16, readers: int = 1, **options: object) -> Script:
    """A writer that has written ``count`` samples, which are all on their way."""
    s = Script(readers=readers, policy=WriterPolicy(**options))
    for i in range(1, readers + 1):
        s.acknack(1, i=i)
    assert s.write(count, size) == count
    s.output()
    return s


def fragments(output: list[object]) -> list[int]:
    return [each.first_fragment for each in output if isinstance(each, DataFrag)]


# --- max_bytes_per_nack_response -----------------------------------------------------------------


def test_max_bytes_per_nack_response() -> None:
    """The example of the manual: 20 samples of 10 K are requested, an answer has 100 K."""
    s = started(20, 10_000, max_bytes_per_nack_response=102_400)
    s.acknack(1, *range(1, 21))
    output = s.output()
    assert sns(output) == list(range(1, 11))
    assert isinstance(output[-1], Heartbeat), "which makes the reader ask for the rest"
    assert s.writer.counters.repairs_bounded == 1
    s.acknack(11, *range(11, 21))
    assert sns(s.output()) == list(range(11, 21))


def test_max_bytes_per_nack_response_takes_at_least_one_sample() -> None:
    s = started(3, 10_000, max_bytes_per_nack_response=100)
    s.acknack(1, 1, 2, 3)
    assert sns(s.output()) == [1]
    s.acknack(2, 2, 3)
    assert sns(s.output()) == [2]


def test_max_bytes_per_nack_response_is_of_samples_not_of_gaps() -> None:
    qos = replace(LASTING, history=HistoryKind.KEEP_LAST, history_depth=2)
    s = Script(qos, readers=0, policy=WriterPolicy(max_bytes_per_nack_response=20))
    s.write(7)
    s.match(1, transient_local=True)
    s.output()
    s.acknack(1, *range(1, 8))
    output = s.output()
    assert isinstance(output[0], Gap)
    assert sns(output) == [6]


def test_max_bytes_per_nack_response_of_fragments() -> None:
    s = started(1, 1 << 20, max_bytes_per_nack_response=150_000)
    s.nack_frag(1, *range(1, 18))
    assert fragments(s.output()) == [1, 2]
    s.nack_frag(1, *range(3, 18))
    assert fragments(s.output()) == [3, 4]


# --- max_samples_per_repair ----------------------------------------------------------------------


def test_max_samples_per_repair() -> None:
    s = started(100)
    s.acknack(1, *range(1, 71))
    out = s.writer.outgoing()
    assert [len(sns(submessages(each))) for each in out] == [32, 32, 6]
    output = [each for datagram in out for each in submessages(datagram)]
    assert sns(output) == list(range(1, 71))
    assert [isinstance(each, Heartbeat) for each in output].count(True) == 1
    assert isinstance(output[-1], Heartbeat)


def test_max_samples_per_repair_fills_datagrams_over_holes() -> None:
    s = started(100, max_samples_per_repair=5)
    s.acknack(1, 1, 2, 3, 10, 11, 12, 13, 20)
    assert [sns(submessages(each)) for each in s.writer.outgoing()] == [[1, 2, 3, 10, 11], [12, 13, 20]]


def test_max_samples_per_repair_where_a_datagram_holds_less() -> None:
    s = Script(message_size=600)
    s.write(40, 100)
    s.output()
    s.acknack(1, *range(1, 41))
    out = s.writer.outgoing()
    assert [sn for each in out for sn in sns(submessages(each))] == list(range(1, 41))
    assert max(len(sns(submessages(each))) for each in out) == 4


def test_repairs_go_to_the_requesting_reader() -> None:
    s = started(3)
    s.acknack(1, 2)
    (data, *_) = s.output()
    assert isinstance(data, Data)
    assert data.reader_id == reader_guid(1).entity


# --- min_nack_response_delay ---------------------------------------------------------------------


def test_min_nack_response_delay() -> None:
    s = started(20, heartbeat_period=1_000 * MS, min_nack_response_delay=10 * MS)
    s.acknack(1, 2, 3)
    assert s.sleep(4 * MS) == []
    s.acknack(1, 3, 9)
    output = s.sleep(100 * MS)
    assert times(output, Data) == [6, 6, 6], "ten milliseconds after the first request"
    assert sns([each for _, each in output]) == [2, 3, 9], "with what was requested meanwhile"
    assert times(output, Heartbeat) == [6]
    s.acknack(1, 12)
    assert times(s.sleep(100 * MS), Data) == [10]


def test_min_nack_response_delay_0_answers_at_once() -> None:
    s = started(20)
    s.acknack(1, 2)
    assert sns(s.output()) == [2]


def test_min_nack_response_delay_what_came_meanwhile_is_not_sent() -> None:
    s = started(20, heartbeat_period=1_000 * MS, min_nack_response_delay=10 * MS)
    s.acknack(1, 2, 3, 4)
    s.acknack(4, 4)
    assert sns([each for _, each in s.sleep(20 * MS)]) == [4]
    s.acknack(5, 5)
    s.acknack(21)
    assert s.sleep(100 * MS) == []


def test_min_nack_response_delay_of_fragments() -> None:
    s = started(1, 1 << 20, heartbeat_period=1_000 * MS, min_nack_response_delay=10 * MS)
    s.nack_frag(1, 2, 4)
    s.nack_frag(1, 4, 7)
    assert s.output() == []
    output = [each for _, each in s.sleep(10 * MS)]
    assert fragments(output) == [2, 4, 7]
    s.nack_frag(1, 3)
    s.acknack(2)
    assert s.sleep(100 * MS) == []


def test_min_nack_response_delay_of_a_reader_that_left() -> None:
    s = started(20, min_nack_response_delay=10 * MS)
    s.acknack(1, 2)
    s.writer.unmatch_reader(reader_guid(1))
    assert s.sleep(100 * MS) == []
    assert s.writer.get_timer() is None


def test_min_nack_response_delay_holds_no_pre_emptive_acknack_up() -> None:
    s = started(20, min_nack_response_delay=10 * MS)
    s.acknack(1, final=False)
    assert [type(each) for each in s.output()] == [Heartbeat]


# --- max_nack_response_delay, nack_suppression_duration ------------------------------------------


def test_max_nack_response_delay() -> None:
    s = started(20, heartbeat_period=1_000 * MS, max_nack_response_delay=50 * MS)
    s.acknack(1, 2, 3)
    assert sns(s.output()) == [2, 3]
    s.sleep(30 * MS)
    s.acknack(1, 2, 3, 5)
    assert sns(s.output()) == [5], "2 and 3 were sent again just now"
    assert s.writer.counters.repairs_suppressed == 2
    s.sleep(20 * MS - 1)
    s.acknack(1, 2, 3)
    assert s.output() == []
    assert s.writer.counters.repairs_suppressed == 4
    s.sleep(1)
    s.acknack(1, 2, 3, 5)
    assert sns(s.output()) == [2, 3], "not longer than the delay"
    assert s.writer.counters.repairs_suppressed == 5


def test_nack_suppression_duration() -> None:
    s = started(20, heartbeat_period=1_000 * MS, nack_suppression_duration=80 * MS)
    s.acknack(1, 2)
    assert sns(s.output()) == [2]
    s.sleep(79 * MS)
    s.acknack(1, 2)
    assert s.output() == []
    s.sleep(MS)
    s.acknack(1, 2)
    assert sns(s.output()) == [2]


def test_nack_suppression_duration_is_by_reader() -> None:
    s = started(20, readers=2)
    s.acknack(1, 2, i=1).acknack(1, 2, i=2)
    assert sns(s.output()) == [2, 2]
    assert s.writer.counters.repairs_suppressed == 0


def test_nack_suppression_duration_of_fragments() -> None:
    s = started(1, 1 << 20, heartbeat_period=1_000 * MS, nack_suppression_duration=80 * MS)
    s.nack_frag(1, 2, 3)
    s.nack_frag(1, 3, 4)
    assert fragments(s.output()) == [2, 3, 4]
    assert s.writer.counters.repairs_suppressed == 1
    s.sleep(80 * MS)
    s.nack_frag(1, 3)
    assert fragments(s.output()) == [3]


def test_without_suppression_every_request_is_answered() -> None:
    s = started(20, max_nack_response_delay=0)
    for _ in range(5):
        s.acknack(1, 2)
        assert sns(s.output()) == [2]
    assert s.writer.counters.repairs_suppressed == 0


def test_max_repair_bytes() -> None:
    s = started(200, 1_000, max_repair_bytes=20_000, max_nack_response_delay=10 * MS)
    sent = 0
    for i in range(50):  # two milliseconds apart
        s.acknack(1, *range(1 + i, 150))
        sent += sum(len(each) for out in s.writer.outgoing() for each in out.submessages)
        s.now += 2 * MS
    assert 100_000 <= sent < 11 * 20_000 + 50 * 64
    assert s.writer.counters.repairs_bounded > 40


# --- what of it is remembered --------------------------------------------------------------------


def test_requests_that_wait_are_bounded() -> None:
    requested = Requested()
    for i in range(100):
        base = 1 + 256 * i
        requested.add_missing(SequenceNumberSet.from_numbers(base, range(base, base + 256, 2)))
        requested.samples.add_range(base, base)
    assert len(requested.samples) <= REORDER_RUNS_MAX
    assert not Requested()


def test_repairs_that_are_remembered_are_bounded() -> None:
    s = started(40_000, max_bytes_per_nack_response=1 << 30, max_repair_bytes=1 << 30)
    for base in range(1, 40_000, 256):
        s.acknack(base, *range(base, base + 256, 2))
        s.output()
    recent = s.reader().repairs.recent
    assert recent.is_full
    assert s.writer.counters.repairs_bounded > 0
    s.now += 5 * MS
    recent.forget_before(s.now - 5 * MS)
    assert not recent.is_full
    assert recent.nbytes == 0
    assert recent.unsent(1, 40_000) == [(1, 40_000)]


def test_recent_repairs() -> None:
    recent = RecentRepairs()
    recent.add_repair(1, 5, 50, now=10)
    recent.add_repair(8, 9, 20, now=20)
    recent.add_repair(1, 3, 30, now=20, of=7)
    assert recent.unsent(4, 10) == [(6, 7), (10, 10)]
    assert recent.unsent(1, 5, of=7) == [(4, 5)]
    assert recent.nbytes == 100
    recent.forget_before(10)
    assert recent.unsent(1, 9) == [(1, 7)]
    assert recent.nbytes == 50
    recent.forget_before(20)
    assert recent.unsent(1, 9, of=7) == [(1, 9)]
    assert recent.nbytes == 0


def test_repairs_of_ragged_samples() -> None:
    s = Script()
    lengths = np.arange(1, 51, dtype=np.int64) * 4
    from_ = np.cumsum(lengths) - lengths
    samples = Samples.ragged(np.zeros(int(lengths.sum()), np.uint8), from_, lengths)
    s.writer.write_samples(samples, timestamp=5, now=s.now)
    s.output()
    s.acknack(3, 3, 4, 40)
    output = s.output()
    assert sns(output) == [3, 4, 40]
    assert [len(each.payload or b"") for each in output if isinstance(each, Data)] == [12, 16, 160]
