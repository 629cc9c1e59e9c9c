"""How long samples are kept: without positive acknowledgements, under LIFESPAN; and DEADLINE, which is offered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    FlowControllerPolicy,
    PublicationPolicy,
    WriterPolicy,
)
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.samples import DISPOSED, NO_TIMESTAMP, U8, Samples
from spark_rtps.transport.wire.submessages import Gap, Heartbeat
from tests.protocol.writer_script import LASTING, MS, RELIABLE, Script, reader_guid, sns, times
from tests.support.virtual_network import VirtualNetwork

SECOND = 1_000 * MS


def unacknowledging(**options: object) -> Script:
    s = Script(policy=WriterPolicy(disable_positive_acks=True, **options))
    s.acknack(1)
    s.sleep(SECOND)
    return s


# --- disable_positive_acks -----------------------------------------------------------------------


def test_disable_positive_acks() -> None:
    s = unacknowledging(disable_positive_acks_min_sample_keep_duration=40 * MS)
    s.write(5)
    s.sleep(30 * MS)
    s.write(2)
    assert s.writer.unacknowledged() == {reader_guid(1): 0}
    s.output()
    s.acknack(3, 3)
    assert sns(s.output()) == [3], "still there"
    s.writer._acks._keep.duration = 40 * MS  # as if that NACK had not been
    s.sleep(10 * MS)
    assert s.writer.unacknowledged() == {reader_guid(1): 5}
    assert s.writer.history.samples == 2
    s.sleep(30 * MS)
    assert s.writer.unacknowledged() == {}
    assert s.writer.unacknowledged_bytes == 0
    assert s.writer.history.samples == 0
    s.acknack(3, 3)
    (heartbeat,) = s.output()
    assert isinstance(heartbeat, Heartbeat)
    assert heartbeat.first_sn == 8, "the cost of it: it is lost, and not irrelevant"
    assert s.writer.get_timer() is None


@pytest.mark.parametrize("max_samples", [1, 3])
@pytest.mark.parametrize("seed", [0, 3])
def test_samples_abandoned_before_a_reader_had_them_are_counted_as_lost(seed: int, max_samples: int) -> None:
    network = VirtualNetwork(seed=seed, jitter=MS)
    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    policy = PublicationPolicy(
        writer=WriterPolicy(
            disable_positive_acks=True, disable_positive_acks_min_sample_keep_duration=10 * MS
        ),
        batch=BatchPolicy(enable=max_samples > 1, max_samples=max_samples, max_flush_delay=MS),
    )
    writer = network.add().create_writer(
        WriterSpec("t", "T", qos, keyed=False, policy=policy), now=network.now
    )
    reader = network.add().create_reader(ReaderSpec("t", "T", qos, keyed=False), now=network.now)
    network.run(2 * SECOND)
    sample, written, got = Samples.uniform(np.zeros(12, np.uint8), 1, 12), 0, 0
    for loss, count in ((0.0, 5), (0.4, 150), (0.0, 20)):
        network.loss = loss
        for _ in range(count):
            written += writer.write_samples(sample, timestamp=network.now, now=network.now)
            network.run(MS)
            got += sum(run.count for run in reader.take_runs())
    for _ in range(20):
        network.run(50 * MS)
        got += sum(run.count for run in reader.take_runs())
    assert 0 < written - got == reader.counters.lost_samples


def test_disable_positive_acks_what_had_to_wait_for_another_reader_is_kept_as_long() -> None:
    s = Script(readers=0, policy=WriterPolicy(disable_positive_acks_min_sample_keep_duration=10 * MS))
    s.match(1, status_messages=True).match(2, no_positive_acks=True)
    s.acknack(1, i=1).status(0, 128, i=1).acknack(1, i=2)
    s.write(1)
    s.write(1)
    assert sns(s.output()) == [1]
    s.sleep(100 * MS)
    s.acknack(2, i=1).status(1, 1_000, i=1)
    assert sns(s.output()) == [2]
    s.acknack(3, i=1)
    s.sleep(9 * MS)
    assert s.writer.unacknowledged() == {reader_guid(2): 1}
    s.sleep(MS)
    assert s.writer.unacknowledged() == {}
    assert s.writer.unacknowledged_bytes == 0


def test_disable_positive_acks_of_one_reader() -> None:
    s = Script(policy=WriterPolicy(disable_positive_acks_min_sample_keep_duration=10 * MS))
    s.match(2, no_positive_acks=True).acknack(1, i=1).acknack(1, i=2)
    s.write(5)
    s.sleep(9 * MS)
    assert set(s.writer.unacknowledged()) == {reader_guid(1), reader_guid(2)}
    s.sleep(MS)
    assert set(s.writer.unacknowledged()) == {reader_guid(1)}
    assert s.writer.history.samples == 5, "kept for the other"
    s.acknack(6, i=1)
    assert s.writer.history.samples == 0
    s.write(1)
    s.writer.unmatch_reader(reader_guid(2))
    s.acknack(7, i=1)
    assert s.writer.get_timer() is None


def test_disable_positive_acks_opens_the_window_in_time() -> None:
    s = unacknowledging(
        min_send_window_size=10,
        max_send_window_size=10,
        disable_positive_acks_min_sample_keep_duration=20 * MS,
    )
    assert s.write(15) == 10
    s.sleep(20 * MS)
    assert s.write(5) == 5


def test_disable_positive_acks_sends_two_heartbeats_while_they_help() -> None:
    s = unacknowledging(disable_positive_acks_min_sample_keep_duration=60 * MS)
    s.write(1)
    assert times(s.sleep(SECOND), Heartbeat) == [20, 40], "and none for what is given up"


@pytest.mark.parametrize("loss", [0, 0.1])
@pytest.mark.parametrize("tokens", [2_000, INFINITE])
def test_disable_positive_acks_keeps_what_waits_for_tokens(tokens: int, loss: float) -> None:
    """The duration begins when it leaves: before, no reader can request it. HEARTBEATs that wait begin it not again."""
    network = VirtualNetwork(seed=1)
    qos = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
    bucket = FlowControllerPolicy(
        "slow",
        max_tokens=tokens,
        tokens_added_per_period=tokens,
        tokens_leaked_per_period=tokens,
        period=20 * MS,
        bytes_per_token=1,
    )
    policy = PublicationPolicy(
        writer=WriterPolicy(
            disable_positive_acks=True, disable_positive_acks_enable_adaptive_sample_keep_duration=False
        ),
        flow_controller=bucket,
        coalescing=False,
    )
    spec = WriterSpec("t", "T", qos, keyed=False, policy=policy)
    writer = network.add().create_writer(spec, now=network.now)
    reader = network.add().create_reader(ReaderSpec("t", "T", qos, keyed=False), now=network.now)
    network.run(3 * SECOND)
    network.loss = loss
    count = 60 if loss else 6
    samples = Samples.uniform(np.zeros(count * 1_000, np.uint8), count, 1_000)
    assert writer.write_samples(samples, timestamp=1, now=network.now) == count
    got = 0
    for _ in range(70 if loss else 20):
        network.run(20 * MS)
        got += sum(run.count for run in reader.take_runs()) if loss else 0
    got += sum(run.count for run in reader.take_runs())
    assert (got, reader.counters.lost_samples) == (count, 0)
    assert writer.unacknowledged() == {}
    assert writer.history.samples == 0


def test_disable_positive_acks_leaves_nobody_inactive() -> None:
    s = unacknowledging(
        max_heartbeat_retries=2, disable_positive_acks_min_sample_keep_duration=800 * MS, heartbeat_period=MS
    )
    s.write(1)
    s.sleep(500 * MS)
    assert s.reader().active


def test_disable_positive_acks_and_a_late_joiner() -> None:
    policy = WriterPolicy(disable_positive_acks=True, disable_positive_acks_min_sample_keep_duration=20 * MS)
    s = Script(LASTING, readers=0, policy=policy)
    s.write(5)
    s.match(1, transient_local=True).acknack(1, final=False)
    assert s.writer.unacknowledged() == {reader_guid(1): 0}
    s.sleep(20 * MS)
    assert s.writer.unacknowledged() == {}
    s.acknack(1, 1, 2)
    assert sns(s.output()) == [1, 2], "history is kept for everybody"


def test_disable_positive_acks_a_set_that_is_aborted_is_waited_for_no_longer() -> None:
    s = unacknowledging(disable_positive_acks_min_sample_keep_duration=20 * MS)
    s.writer.coherent_sets.begin(now=s.now)
    s.write(2)
    s.sleep(20 * MS)
    s.writer.coherent_sets.abort(now=s.now)
    s.sleep(20 * MS)
    assert s.writer.unacknowledged() == {}, "the number that ends it counts as the samples do"


def test_a_reader_that_stops_to_acknowledge_is_matched_anew() -> None:
    s = Script()
    s.acknack(1)
    s.match(1, no_positive_acks=True)
    assert not s.reader().positive_acks


# --- disable_positive_acks_*_sample_keep_duration ------------------------------------------------


def keep(**options: object) -> Script:
    names = {f"disable_positive_acks_{name}": value for name, value in options.items()}
    return unacknowledging(**names)


def duration(s: Script) -> int:
    return s.writer._acks._keep.duration // MS


def test_increase_sample_keep_duration_factor() -> None:
    s = keep(min_sample_keep_duration=40 * MS, increase_sample_keep_duration_factor=150)
    s.write(3)
    s.acknack(1, 1)
    assert duration(s) == 60
    s.acknack(1, 1)
    assert duration(s) == 90
    s.sleep(89 * MS)
    assert s.writer.history.samples == 3
    s.sleep(MS)
    assert s.writer.history.samples == 0


def test_max_sample_keep_duration() -> None:
    s = keep(min_sample_keep_duration=40 * MS, max_sample_keep_duration=100 * MS)
    s.write(3)
    for _ in range(9):
        s.acknack(1, 1)
    assert duration(s) == 100


def test_decrease_sample_keep_duration_factor() -> None:
    s = keep(min_sample_keep_duration=40 * MS, decrease_sample_keep_duration_factor=80)
    s.write(3)
    s.acknack(1, 1).acknack(1, 1)
    assert duration(s) == 90
    durations = []
    for _ in range(5):
        s.write(1)
        s.sleep(100 * MS)
        durations.append(duration(s))
    assert durations == [72, 57, 46, 40, 40], "down to the minimum"


def test_decrease_is_once_in_a_duration_however_much_is_written() -> None:
    s = keep(min_sample_keep_duration=40 * MS, decrease_sample_keep_duration_factor=50)
    s.write(3)
    s.acknack(1, 1).acknack(1, 1)
    durations = []
    for _ in range(15):
        s.sleep(10 * MS)
        s.write(1)
        durations.append(duration(s))
    assert durations == [90] * 8 + [45] * 5 + [40] * 2


def test_enable_adaptive_sample_keep_duration() -> None:
    s = keep(min_sample_keep_duration=40 * MS, enable_adaptive_sample_keep_duration=False)
    s.write(3)
    s.acknack(1, 1).acknack(1, 1)
    assert duration(s) == 40
    s.sleep(SECOND)
    assert duration(s) == 40


# --- LIFESPAN ------------------------------------------------------------------------------------


def test_lifespan() -> None:
    s = Script(replace(RELIABLE, lifespan=200 * MS))
    s.acknack(1)
    s.write(5)
    s.sleep(100 * MS)
    s.write(5)
    s.output()
    s.acknack(1, 2, 7)
    assert sns(s.output()) == [2, 7]
    s.sleep(100 * MS)
    assert s.writer.history.samples == 5
    assert s.writer.counters.expired_samples == 5
    assert s.writer.window.samples == 5, "nobody is waited for to have them"
    s.acknack(1, 2, 7)
    output = s.output()
    (gap,) = [each for each in output if isinstance(each, Gap)]
    assert (gap.start_sn, gap.irrelevant.base) == (2, 6)
    assert sns(output) == [7]
    assert s.writer.unacknowledged() == {reader_guid(1): 0}, "until it says so"


def test_lifespan_of_what_is_kept_for_late_joiners() -> None:
    s = Script(replace(LASTING, lifespan=200 * MS), readers=0)
    s.write(5)
    s.sleep(150 * MS)
    s.write(3)
    assert s.writer.get_timer() == s.now + 50 * MS
    s.sleep(60 * MS)
    s.match(1, transient_local=True)
    (heartbeat,) = s.output()
    assert isinstance(heartbeat, Heartbeat)
    assert (heartbeat.first_sn, heartbeat.last_sn) == (6, 8)
    s.sleep(200 * MS)
    assert s.writer.history.samples == 0


def test_lifespan_counts_from_the_source_timestamp() -> None:
    s = Script(replace(LASTING, lifespan=200 * MS), readers=0)
    samples = s.samples(3)
    s.writer.write_samples(samples, timestamp=10 * SECOND, now=s.now)
    s.writer.write_samples(samples, timestamp=10 * SECOND - 150 * MS, now=s.now)  # the clock was set back
    s.writer.write_samples(samples, timestamp=10 * SECOND, now=s.now)
    s.sleep(60 * MS)
    s.match(1, transient_local=True).acknack(1, *range(1, 10))
    assert sns(s.output()) == [1, 2, 3, 7, 8, 9], "what lies behind a younger one waits, but is not sent"


def test_lifespan_without_timestamps_never_ends() -> None:
    s = Script(replace(LASTING, lifespan=200 * MS), readers=0)
    s.writer.write_samples(s.samples(3), timestamp=NO_TIMESTAMP, now=s.now)
    s.sleep(SECOND)
    s.match(1, transient_local=True).acknack(1, 1, 2, 3)
    assert sns(s.output()) == [1, 2, 3]


def test_lifespan_makes_room() -> None:
    s = Script(replace(LASTING, lifespan=200 * MS, max_samples=5), readers=0)
    assert s.write(9) == 5
    s.sleep(200 * MS)
    assert s.write(4) == 4


# --- DEADLINE ------------------------------------------------------------------------------------


def keys(*numbers: int) -> U8:
    return np.array([[n] * 16 for n in numbers], np.uint8)


def missed(s: Script) -> int:
    return s.writer.counters.offered_deadline_missed


def test_deadline_of_a_topic_without_key() -> None:
    s = Script(replace(RELIABLE, deadline=100 * MS), readers=0)
    s.sleep(SECOND)
    assert missed(s) == 0, "it begins with the first write"
    for _ in range(5):
        s.write(1)
        s.sleep(99 * MS)
    assert missed(s) == 0
    s.sleep(MS)
    assert missed(s) == 1
    s.sleep(350 * MS)
    assert missed(s) == 4
    s.write(1)
    s.sleep(99 * MS)
    assert missed(s) == 4


def test_deadline_of_each_instance() -> None:
    s = Script(replace(RELIABLE, deadline=100 * MS), readers=0)
    s.write(4, key_hashes=keys(1, 2, 3, 1))
    s.sleep(60 * MS)
    s.write(1, key_hashes=keys(2))
    s.sleep(50 * MS)
    assert missed(s) == 2, "1 and 3"
    s.write(1, key_hashes=keys(3), flags=DISPOSED)
    s.sleep(50 * MS)
    assert missed(s) == 3, "2 too"
    s.sleep(50 * MS)
    assert missed(s) == 4, "1 again; 3 is no more"


def test_deadline_when_the_timer_is_late() -> None:
    s = Script(replace(RELIABLE, deadline=100 * MS), readers=0)
    s.write(1, key_hashes=keys(1))
    s.now += 50 * MS
    s.write(1, key_hashes=keys(2))
    s.now += 190 * MS
    s.writer.handle_timer(s.now)
    assert missed(s) == 3
    s.sleep(10 * MS)
    assert missed(s) == 4
    s.sleep(50 * MS)
    assert missed(s) == 5


def test_deadline_of_what_is_disposed_and_written_again() -> None:
    s = Script(replace(RELIABLE, deadline=100 * MS), readers=0)
    for _ in range(50):
        s.write(1, key_hashes=keys(1))
        s.write(1, key_hashes=keys(1), flags=DISPOSED)
    s.write(1, key_hashes=keys(1))
    s.sleep(150 * MS)
    assert missed(s) == 1
    assert len(s.writer._deadline._instances) == 1


def test_deadline_instances_that_have_ended_are_forgotten() -> None:
    s = Script(replace(RELIABLE, deadline=100 * MS), readers=0)
    s.write(3, key_hashes=keys(1, 2, 3))
    for number in range(4, 200):
        s.write(1, key_hashes=keys(number))
        s.write(1, key_hashes=keys(number), flags=DISPOSED)
    assert len(s.writer._deadline._instances) <= 8
    s.sleep(100 * MS)
    assert missed(s) == 3


def test_deadline_many_instances_are_not_looked_at_all_the_time() -> None:
    s = Script(replace(RELIABLE, deadline=SECOND), readers=0)
    count = 20_000
    hashes = np.zeros((count, 16), np.uint8)
    hashes[:, :4] = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 4)
    for i in range(0, count, 100):  # a deadline each 100 µs
        s.write(100, key_hashes=hashes[i : i + 100])
        s.now += MS // 10
    s.now = s.writer.get_timer() or 0
    looks = 0
    while missed(s) < count:
        s.writer.handle_timer(s.now)
        looks += 1
        s.now = s.writer.get_timer() or 0
    assert looks <= 12, "20 ms for all deadlines, 2 ms from one look to the next"


@pytest.mark.parametrize("written", [False, True])
def test_deadline_infinite_needs_no_timer(*, written: bool) -> None:
    s = Script(readers=0)
    if written:
        s.write(1, key_hashes=keys(1))
    assert s.writer.get_timer() is None
