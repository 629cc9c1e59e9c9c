"""When a writer speaks up, parameter by parameter, and whom it waits for no longer."""

from __future__ import annotations

from itertools import pairwise

import pytest

from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.policies import WRITER_POLICY, BatchPolicy, WriterPolicy
from spark_rtps.transport.protocol.writing.readers import ReaderActivityChanged
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.batch import DATA_BATCH
from spark_rtps.transport.wire.submessages import Data, Heartbeat, HeartbeatBatch
from tests.protocol.writer_script import LASTING, MS, Script, reader_guid, sns, times, where


def received(readers: int = 1, **options: object) -> Script:
    """A writer whose readers have answered its greeting."""
    s = Script(readers=readers, **options)
    for i in range(1, readers + 1):
        s.acknack(1, i=i)
    s.output()
    return s


def shape(output: list[object]) -> list[int | str]:
    """Sequence numbers of DATA, and "HB" with the last number of each HEARTBEAT."""
    found: list[int | str] = []
    for each in output:
        if isinstance(each, Data):
            found.append(each.sn)
        elif isinstance(each, Heartbeat):
            found.append(f"HB {each.last_sn}")
    return found


# --- heartbeat_period ----------------------------------------------------------------------------


def test_heartbeat_period() -> None:
    s = received(policy=WriterPolicy(heartbeat_period=30 * MS))
    assert s.sleep(1_000 * MS) == [], "nothing is unacknowledged"
    s.write(2)
    assert times(s.sleep(200 * MS), Heartbeat) == [30, 60, 90, 120, 150, 180]
    s.acknack(2)
    assert times(s.sleep(60 * MS), Heartbeat) == [10, 40], "one sample is still missing; the rate is the same"
    s.acknack(3)
    assert s.sleep(1_000 * MS) == []


def test_heartbeat_period_of_a_reader_that_never_answered_grows_to_three_seconds() -> None:
    s = Script(policy=WriterPolicy(heartbeat_period=100 * MS))
    output = times(s.sleep(20_000 * MS), Heartbeat)
    assert output == [100, 300, 700, 1500, 3100, 6100, 9100, 12100, 15100, 18100]
    s.acknack(1, 1)
    s.write(1)
    assert len(times(s.sleep(1_000 * MS), Heartbeat)) == 10, "it proved that it is there"


def test_heartbeat_period_counts_from_the_heartbeat_that_rode_along() -> None:
    s = received(policy=WriterPolicy(heartbeat_period=100 * MS))
    s.write(1)
    s.sleep(60 * MS)
    s.writer.request_acknowledgment(s.now)
    assert times(s.sleep(250 * MS), Heartbeat) == [0, 100, 200]


def test_heartbeat_period_of_a_reader_that_answers_no_more() -> None:
    s = received(policy=WriterPolicy(heartbeat_period=500 * MS, fast_heartbeat_period=500 * MS))
    s.write(2)
    assert len(times(s.sleep(30_000 * MS), Heartbeat)) == 60, "half a minute long as ever"
    assert times(s.sleep(10_000 * MS), Heartbeat) == [500, 3500, 6800], "a tenth of the silence"
    s.sleep(290_000 * MS)
    output = times(s.sleep(300_000 * MS), Heartbeat)
    assert [b - a for a, b in pairwise(output)] == [30_000] * 9
    s.acknack(2)
    assert times(s.sleep(2_000 * MS), Heartbeat) == [500, 1000, 1500, 2000]


# --- fast_heartbeat_period, watermarks -----------------------------------------------------------


def test_fast_heartbeat_period() -> None:
    policy = WriterPolicy(
        heartbeat_period=100 * MS, fast_heartbeat_period=10 * MS, low_watermark=2, high_watermark=5
    )
    s = received(policy=policy)
    s.write(4)
    assert times(s.sleep(200 * MS), Heartbeat) == [100, 200]
    s.write(1)
    assert times(s.sleep(50 * MS), Heartbeat) == [10, 20, 30, 40, 50], "high_watermark"
    s.acknack(3)  # 3, 4 and 5 are left: not low yet
    assert times(s.sleep(30 * MS), Heartbeat) == [10, 20, 30]
    s.acknack(4)
    assert times(s.sleep(210 * MS), Heartbeat) == [10, 110, 210], "low_watermark: slow again"


def test_fast_heartbeat_period_while_the_send_window_is_full() -> None:
    s = received(policy=WriterPolicy(min_send_window_size=3, max_send_window_size=3))
    assert s.write(5) == 3
    s.output()
    assert times(s.sleep(30 * MS), Heartbeat) == [10, 20, 30]
    s.acknack(4)
    s.write(1)
    assert times(s.sleep(200 * MS), Heartbeat) == [0, 100, 200]


def test_low_and_high_watermark() -> None:
    s = received(policy=WriterPolicy(low_watermark=1, high_watermark=3))
    counters = s.writer.counters
    s.write(2)
    assert (counters.high_watermark_reached, counters.low_watermark_reached) == (0, 0)
    s.write(2)
    assert (counters.high_watermark_reached, counters.unacknowledged_samples) == (1, 4)
    s.write(1)
    assert counters.high_watermark_reached == 1, "it was above already"
    s.acknack(4)
    assert (counters.low_watermark_reached, counters.unacknowledged_samples) == (0, 2)
    s.acknack(5)
    assert (counters.low_watermark_reached, counters.empty_reached) == (1, 0)
    s.acknack(6)
    assert (counters.low_watermark_reached, counters.empty_reached) == (1, 1)
    s.write(4)
    s.acknack(10)
    assert (counters.high_watermark_reached, counters.low_watermark_reached) == (2, 2)
    assert (counters.empty_reached, counters.unacknowledged_samples_peak) == (2, 5)
    assert counters.full_reached == 0


# --- late_joiner_heartbeat_period ----------------------------------------------------------------


def test_late_joiner_heartbeat_period() -> None:
    policy = WriterPolicy(heartbeat_period=100 * MS, late_joiner_heartbeat_period=20 * MS)
    s = Script(LASTING, readers=0, policy=policy)
    s.write(10)
    s.match(1, transient_local=True).match(2)
    s.acknack(1, i=1).acknack(11, i=2).output()
    assert times(s.sleep(60 * MS), Heartbeat) == [20, 40, 60]
    s.acknack(8, i=1)
    assert times(s.sleep(40 * MS), Heartbeat) == [20, 40], "it has not caught up yet"
    s.write(1)
    s.acknack(11, i=1).acknack(11, i=2)
    assert times(s.sleep(190 * MS), Heartbeat) == [20, 100, 120], "caught up: as everybody"


# --- heartbeats_per_max_samples ------------------------------------------------------------------


def test_heartbeats_per_max_samples() -> None:
    policy = WriterPolicy(heartbeats_per_max_samples=4, min_send_window_size=12, max_send_window_size=12)
    s = received(policy=policy)
    for _ in range(2):
        s.write(1)
        s.write(1)
        assert not any(isinstance(each, Heartbeat) for each in s.output())
        s.write(1)
        assert shape(s.output())[-1] == f"HB {s.writer.last_sn}"
    s.write(5)
    assert shape(s.output()) == [7, 8, 9, "HB 9", 10, 11], "written together or one by one"


def test_heartbeats_per_max_samples_by_bytes() -> None:
    s = received(policy=WriterPolicy(heartbeats_per_max_samples=4, send_window_bytes=4_000))
    s.write(24)  # 40 bytes each
    assert "HB" not in str(shape(s.output()))
    s.write(1)
    assert shape(s.output()) == [25, "HB 25"]


def test_heartbeats_per_max_samples_0_is_none() -> None:
    window = {"min_send_window_size": 10, "max_send_window_size": 10}
    s = received(policy=WriterPolicy(heartbeats_per_max_samples=0, **window))
    assert s.write(100) == 10
    assert "HB" not in str(shape(s.output()))
    assert times(s.sleep(10 * MS), Heartbeat) == [10], "but the send window is full"


def test_heartbeats_per_max_samples_of_max_send_window_size_is_with_each_sample() -> None:
    policy = WriterPolicy(heartbeats_per_max_samples=20, min_send_window_size=10, max_send_window_size=20)
    s = received(policy=policy)
    s.write(3)
    assert shape(s.output()) == [1, "HB 1", 2, "HB 2", 3, "HB 3"]
    s.write(1, 100_000)
    assert shape(s.output()) == ["HB 4"], "behind the last fragment"


def test_heartbeats_per_max_samples_with_the_current_window() -> None:
    policy = WriterPolicy(
        heartbeats_per_max_samples=2,
        min_send_window_size=8,
        max_send_window_size=100,
        send_window_increase_factor=200,
    )
    s = received(policy=policy)
    s.write(8)
    assert shape(s.output()) == [1, 2, 3, 4, "HB 4", 5, 6, 7, 8, "HB 8"]
    s.acknack(9)
    s.sleep(policy.send_window_update_period)
    s.write(9)
    assert shape(s.output()) == [*range(9, 17), "HB 16", 17]


@pytest.mark.parametrize("at_once", [1, 5, 45])
def test_heartbeats_per_max_samples_counts_batches(at_once: int) -> None:
    """A batch counts as one sample: a HEARTBEAT with every third of 12, however many samples each has."""
    policy = WriterPolicy(heartbeats_per_max_samples=4, min_send_window_size=12, max_send_window_size=12)
    s = Script(readers=0, policy=policy, batch=BatchPolicy(enable=True, max_samples=5))
    s.writer.match_reader(
        ReaderInfo(reader_guid(1), (where(1),), (), reliable=True, transient_local=False, batches=True),
        now=s.now,
    )
    s.acknack(1)
    s.writer.outgoing()
    for _ in range(45 // at_once):
        s.write(at_once)
    kinds = [
        "HB" if buffer[0] == HeartbeatBatch.KIND else "batch"
        for out in s.writer.outgoing()
        for buffer in map(bytes, out.submessages)
        if buffer[0] in (HeartbeatBatch.KIND, DATA_BATCH)
    ]
    assert kinds == 3 * ["batch", "batch", "batch", "HB"]


# --- max_heartbeat_retries -----------------------------------------------------------------------


def test_max_heartbeat_retries() -> None:
    s = received(2, policy=WriterPolicy(max_heartbeat_retries=3))
    s.write(5)
    s.acknack(6, i=2)
    assert times(s.sleep(399 * MS), Heartbeat) == [100, 200, 300]
    assert s.reader(1).active, "it has a period to answer the third"
    assert s.writer.activity.take_events() == []
    s.sleep(MS)
    assert not s.reader(1).active
    assert s.writer.activity.take_events() == [ReaderActivityChanged(reader_guid(1), False, 1, 1)]
    assert s.writer.activity.take_events() == []
    assert (s.writer.counters.active_readers, s.writer.counters.inactive_readers) == (1, 1)
    # nothing is kept or waited for
    assert s.writer.unacknowledged() == {}
    assert s.writer.unacknowledged_bytes == 0
    assert s.writer.history.samples == 0
    assert s.reader(1).acked == 0
    # data and heartbeats are still sent
    s.write(1)
    s.acknack(7, i=2)
    (out,) = s.writer.outgoing()
    assert len(out.destinations) == 2
    assert times(s.sleep(200 * MS), Heartbeat) == [100, 200]
    # active again with the next ACKNACK
    s.acknack(3, 3, i=1)
    assert s.reader(1).active
    assert s.writer.activity.take_events() == [ReaderActivityChanged(reader_guid(1), True, 2, 0)]
    assert s.writer.counters.reader_activity_changes == 2
    (heartbeat,) = s.output()
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.first_sn, heartbeat.last_sn) == (7, 6), "what it lacks is lost, and not irrelevant"
    assert s.writer.unacknowledged() == {reader_guid(1): 2}
    s.acknack(7, i=1)
    assert s.writer.unacknowledged() == {}


def test_max_heartbeat_retries_counts_a_burst_once() -> None:
    window = {"min_send_window_size": 100, "max_send_window_size": 100}
    s = received(policy=WriterPolicy(max_heartbeat_retries=2, heartbeats_per_max_samples=100, **window))
    s.write(50)
    assert s.writer.counters.heartbeats_sent > 50
    s.sleep(99 * MS)
    s.write(1)
    assert s.reader().active
    for _ in range(30):  # they ride along with data, a period after another
        s.sleep(10 * MS)
        s.write(1)
    assert not s.reader().active
    assert s.write(1_000) == 1_000, "it holds nobody back"


def test_max_heartbeat_retries_starts_anew_with_each_answer() -> None:
    s = received(policy=WriterPolicy(max_heartbeat_retries=3))
    s.write(5)
    for _ in range(5):
        s.sleep(350 * MS)
        s.acknack(1, 1)
    assert s.reader().active


def test_max_heartbeat_retries_unblocks() -> None:
    window = {"min_send_window_size": 3, "max_send_window_size": 3}
    s = received(policy=WriterPolicy(max_heartbeat_retries=2, heartbeats_per_max_samples=0, **window))
    assert s.write(10) == 3
    assert len(times(s.sleep(200 * MS), Heartbeat)) == 20
    assert s.reader().active, "twenty HEARTBEATs, but two periods"
    s.sleep(20 * MS)
    assert not s.reader().active
    assert s.write(7) == 7
    assert s.writer.state.blocked_by == ""


@pytest.mark.parametrize("transient_local", [False, True])
def test_max_heartbeat_retries_and_history(*, transient_local: bool) -> None:
    """What is kept for late joiners is there for a reader that comes back too."""
    s = Script(LASTING, readers=0, policy=WriterPolicy(max_heartbeat_retries=1))
    s.match(1, transient_local=transient_local).acknack(1)
    s.write(4)
    s.sleep(500 * MS)
    assert not s.reader().active
    s.acknack(2, 2, 3, 4)
    assert sns(s.output()) == [2, 3, 4]


def test_max_heartbeat_retries_of_an_inactive_reader_that_leaves() -> None:
    s = received(policy=WriterPolicy(max_heartbeat_retries=1))
    s.write(4)
    s.sleep(500 * MS)
    s.writer.unmatch_reader(reader_guid(1))
    assert (s.writer.counters.active_readers, s.writer.counters.inactive_readers) == (0, 0)
    assert s.writer.get_timer() is None


def test_max_heartbeat_retries_is_unlimited_by_default() -> None:
    assert WRITER_POLICY.max_heartbeat_retries == INFINITE
    assert not WRITER_POLICY.inactivate_nonprogressing_readers
    s = received()
    s.write(4)
    s.sleep(900_000 * MS)
    assert s.reader().active
    assert s.writer.unacknowledged() == {reader_guid(1): 0}
    assert s.writer.activity.take_events() == []


# --- inactivate_nonprogressing_readers -----------------------------------------------------------


@pytest.mark.parametrize("inactivate", [False, True])
def test_inactivate_nonprogressing_readers(*, inactivate: bool) -> None:
    policy = WriterPolicy(max_heartbeat_retries=3, inactivate_nonprogressing_readers=inactivate)
    s = received(policy=policy)
    s.write(5)
    for sn in (2, 3, 4):  # it gets on, by one sample a time
        s.sleep(350 * MS)
        s.acknack(sn, sn, 5)
    assert s.reader().active
    s.sleep(350 * MS)
    s.acknack(4, 4, 5)  # as before
    s.sleep(350 * MS)
    assert s.reader().active is not inactivate
    s.output()
    s.acknack(4, 4, 5)
    assert s.reader().active is not inactivate, "the same is no answer"
    if inactivate:
        announced = [each.first_sn for each in s.output() if isinstance(each, Heartbeat)]
        assert 6 in announced, "but what it lacks is announced as lost"
    s.acknack(6)
    assert s.reader().active


def test_inactivate_nonprogressing_readers_knows_a_closed_window() -> None:
    """A reader whose queue is full acknowledges the same again and again, and requests nothing."""
    s = received(policy=WriterPolicy(max_heartbeat_retries=3, inactivate_nonprogressing_readers=True))
    s.write(5)
    for _ in range(10):
        s.sleep(100 * MS)
        s.acknack(3)
    assert not s.reader().active


def test_a_reader_that_has_all_is_active_whatever_it_repeats() -> None:
    s = received(policy=WriterPolicy(max_heartbeat_retries=1, inactivate_nonprogressing_readers=True))
    s.write(5)
    for _ in range(10):
        s.sleep(90 * MS)
        s.acknack(6)
    s.sleep(5_000 * MS)
    assert s.reader().active
    assert s.writer.activity.take_events() == []


def test_events_nobody_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_rtps.transport.protocol.writing.readers.reader_activity.EVENTS_MAX", 3)
    s = received(policy=WriterPolicy(max_heartbeat_retries=0))
    s.write(1)
    for _ in range(10):
        s.sleep(100 * MS)
        s.acknack(1)
    assert len(s.writer.activity.take_events()) == 3
    assert s.writer.counters.reader_activity_changes == 20


def test_the_timer_of_many_waiting_readers_sends_one_datagram() -> None:
    s = received(5)
    s.write(3)
    s.output()
    s.now += 100 * MS
    s.writer.handle_timer(s.now)
    (out,) = s.writer.outgoing()
    assert len(out.destinations) == 5
