"""What batches, coherent sets and limits of readers do to repairs, history and windows: each was wrong once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    BatchWire,
    FlowControllerPolicy,
    PublicationPolicy,
    WriterPolicy,
)
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid, Locator
from spark_rtps.transport.wire.batch import DATA_BATCH, scan_batch
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import REMOVED
from spark_rtps.transport.wire.submessages import AckNack
from tests.protocol.batch_scene import BATCH, LASTING, RELIABLE, Scene, numbers, samples
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

COHERENT = replace(RELIABLE, coherent_access=True)
KEEP_ONE = replace(LASTING, history=HistoryKind.KEEP_LAST, history_depth=1)


def hashes(*keys: int) -> np.ndarray:
    found = np.zeros((len(keys), 16), np.uint8)
    found[:, 0] = keys
    return found


# --- repairs -------------------------------------------------------------------------------------


def test_a_late_joiner_gets_gaps_for_removed_batches() -> None:
    """Between two batches that are kept lie some that KEEP_LAST has replaced."""
    scene = Scene(BATCH, KEEP_ONE, keyed=True)
    scene.join()
    for i, key in enumerate([1, 2, 2, 2, 2, 2, 3]):
        scene.write(samples(i, 1), key_hashes=hashes(key))
        scene.writer.flush_batch(now=scene.network.now)
    scene.settle()
    late = scene.join(KEEP_ONE)
    scene.settle()
    assert numbers(scene.taken[late]) == [0, 5, 6]


def test_a_late_joiner_asks_for_a_sample_outside_of_batches() -> None:
    scene = Scene(BATCH, LASTING)
    scene.join()
    for i in range(0, 20, 2):
        scene.write(samples(i, 1))
        scene.write(samples(i + 1, 1, size=100_000))
    scene.settle()
    late = scene.join(LASTING)
    scene.settle()
    assert numbers(scene.taken[late]) == list(range(20))


@pytest.mark.parametrize("batch", [BatchPolicy(), BATCH, replace(BATCH, wire=BatchWire.DATA)])
def test_a_reader_with_a_low_limit_gets_what_was_framed_for_others(batch: BatchPolicy) -> None:
    """Larger DATA goes to it in fragments, and fragments in smaller ones."""
    scene = Scene(batch, LASTING)
    scene.join()
    scene.write(samples(0, 5))
    scene.write(samples(5, 1, size=5_000))
    scene.write(samples(6, 1, size=150_000))
    scene.write(samples(7, 3, size=2_000))
    scene.settle()
    scene.network.log = []
    late = scene.join(LASTING, message_size_max=1_400)
    scene.settle()
    assert numbers(scene.taken[late]) == list(range(10))
    address = scene.network.address_of(scene.readers[late][0])
    sizes = [len(data) for _, to, data in scene.network.log if to.address == address]
    assert max(sizes) <= 1_400


@pytest.mark.parametrize("seed", range(4))
def test_a_reader_with_a_low_limit_under_loss(seed: int) -> None:
    scene = Scene(BatchPolicy(), LASTING, seed=seed)
    scene.join()
    scene.write(samples(0, 4, size=9_000))
    scene.settle()
    scene.network.loss = 0.3
    late = scene.join(LASTING, message_size_max=1_200)
    scene.settle()
    assert numbers(scene.taken[late]) == list(range(4))


def test_combined_answers_stay_within_the_readers_message_size() -> None:
    """Answers to an ACKNACK and a NACK_FRAG do not share a datagram that is too large for the reader."""
    scene = Scene(BatchPolicy(), LASTING, writer_policy=WriterPolicy(max_bytes_per_nack_response=1))
    scene.join()
    scene.write(samples(0, 3, size=3_600))
    scene.settle()
    scene.network.log = []
    late = scene.join(LASTING, message_size_max=1_200)
    scene.settle()
    assert numbers(scene.taken[late]) == [0, 1, 2]
    address = scene.network.address_of(scene.readers[late][0])
    user = [
        data
        for _, to, data in scene.network.log
        if to.address == address and any(kind == 0x16 for kind, *_ in iter_submessages(memoryview(data)))
    ]
    assert max(len(data) for data in user) <= 1_200


def test_repairs_and_heartbeats_wait_while_data_waits_for_tokens() -> None:
    """Else what waits would be asked for again and again, and the queue would grow."""
    slow = FlowControllerPolicy(max_tokens=1, tokens_added_per_period=1, period=200 * MILLISECOND)
    network = VirtualNetwork(seed=3, loss=0.3)
    one, two = network.add(), network.add()
    policy = PublicationPolicy(batch=replace(BATCH, max_samples=2), flow_controller=slow)
    w = one.create_writer(WriterSpec("t", "T", RELIABLE, policy=policy), now=network.now)
    r = two.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    assert network.run(60 * SECOND, lambda: any(proxy.is_ready for proxy in w.readers.values()))
    before = w.counters.heartbeats_sent
    assert w.write_samples(samples(0, 40), timestamp=0, now=network.now) == 40
    got: list[int] = []

    def look() -> bool:
        got.extend(numbers(r.take_runs()))
        return not w.unacknowledged()

    assert network.run(120 * SECOND, look)
    assert got == list(range(40))
    assert w.counters.repaired_samples <= 80
    assert w.counters.heartbeats_sent - before <= 120


# --- joining -------------------------------------------------------------------------------------


def test_a_volatile_joiner_loses_nothing_that_only_others_lack() -> None:
    scene = Scene(BATCH)
    scene.join()
    scene.readers[0][1].hold_acknowledgments = True
    scene.write(samples(0, 10))
    scene.writer.flush_batch(now=scene.network.now)
    scene.run(SECOND // 10)
    late = scene.join()
    scene.readers[0][1].hold_acknowledgments = False
    scene.write(samples(10, 5))
    scene.settle()
    assert numbers(scene.taken[late]) == list(range(10, 15))
    assert scene.readers[late][1].counters.lost_samples == 0


def test_a_volatile_joiner_of_a_lasting_writer_is_asked_until_it_is_ready() -> None:
    """Its pre-emptive ACKNACK does not tell where it starts, and its answer to the first HEARTBEAT may be lost."""
    network = VirtualNetwork()
    w = network.add().create_writer(WriterSpec("t", "T", LASTING), now=0)
    guid = Guid(bytes(range(12)), b"\0\0\1\4")
    w.match_reader(ReaderInfo(guid, (Locator("10.0.0.9", 7410),), (), True, False), now=0)
    w.feedback.on_acknack(
        guid, AckNack(guid.entity, w.guid.entity, SequenceNumberSet(1), 1, final=False), now=0
    )
    assert not w.readers[guid].is_ready
    for _ in range(3):
        w.outgoing()
        timer = w.get_timer()
        assert timer is not None
        w.handle_timer(timer)
        assert w.outgoing()
    w.feedback.on_acknack(
        guid, AckNack(guid.entity, w.guid.entity, SequenceNumberSet(1), 2, final=True), now=timer
    )
    assert w.readers[guid].is_ready
    assert w.get_timer() is None


# --- coherent sets -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_the_end_of_a_set_may_overtake_the_set(seed: int) -> None:
    scene = Scene(replace(BATCH, max_samples=3), COHERENT, seed=seed, jitter=5 * MILLISECOND)
    scene.join(COHERENT)
    scene.writer.coherent_sets.begin(now=scene.network.now)
    scene.write(samples(0, 12))
    scene.writer.coherent_sets.end(now=scene.network.now)
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(12))


def abort(scene: Scene, first: int, count: int, *, flush: Callable[[], bool] = lambda: True) -> None:
    scene.writer.coherent_sets.begin(now=scene.network.now)
    scene.write(samples(first, count))
    if flush():
        scene.writer.flush_batch(now=scene.network.now)
        scene.run(5 * MILLISECOND)
    scene.writer.coherent_sets.abort(now=scene.network.now)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("batch", [BatchPolicy(), replace(BATCH, max_samples=4)])
@pytest.mark.parametrize("ours", [True, False])
def test_an_aborted_coherent_set_is_not_seen(seed: int, batch: BatchPolicy, ours: bool) -> None:
    qos = replace(COHERENT, durability=LASTING.durability if seed % 3 else RELIABLE.durability)
    scene = Scene(batch, qos, seed=seed, jitter=seed % 2 * 3 * MILLISECOND)
    scene.join(qos, ours=ours)
    scene.join()
    scene.network.loss = [0, 0.1, 0.3, 0.5][seed % 4]
    scene.write(samples(0, 5))
    abort(scene, 1_000, 10)
    scene.writer.coherent_sets.begin(now=scene.network.now)
    scene.write(samples(5, 6))
    scene.writer.coherent_sets.end(now=scene.network.now)
    abort(scene, 2_000, 7)
    abort(scene, 3_000, 7)
    scene.write(samples(11, 2))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(13))
    assert [n for n in numbers(scene.taken[1]) if n < 1_000] == list(range(13))
    scene.network.loss = 0
    late = scene.join(qos, ours=ours)
    scene.network.loss = [0, 0.1, 0.3, 0.5][seed % 4]
    abort(scene, 4_000, 3)
    scene.settle()
    seen = numbers(scene.taken[late])
    assert seen == (list(range(13)) if seed % 3 else [])
    for number in (0, late):
        counters = scene.readers[number][1].counters
        assert (counters.lost_samples, counters.coherent_sets_lost) == (0, 0)
        assert scene.readers[number][1].delivery.reorder_budget.nbytes == 0
    assert scene.writer.unacknowledged_bytes == 0


def test_an_aborted_coherent_set_of_which_nothing_was_sent_leaves_no_trace() -> None:
    scene = Scene(BATCH, COHERENT)
    scene.join(COHERENT)
    last = scene.writer.last_sn
    abort(scene, 0, 3, flush=lambda: False)
    assert (scene.writer.last_sn, scene.writer.intake.count) == (last, 0)
    scene.write(samples(0, 3))
    scene.settle()
    assert numbers(scene.taken[0]) == [0, 1, 2]
    with pytest.raises(UsageError, match="no coherent set is open"):
        scene.writer.coherent_sets.abort(now=scene.network.now)


@pytest.mark.parametrize("keyed", [False, True])
def test_an_aborted_coherent_set_replaces_nothing_in_the_history(keyed: bool) -> None:
    qos = replace(KEEP_ONE, coherent_access=True)
    scene = Scene(BatchPolicy(), qos, keyed=keyed)
    how = {"key_hashes": hashes(1)} if keyed else {}
    scene.join(RELIABLE)
    scene.write(samples(7, 1), **how)
    scene.writer.coherent_sets.begin(now=scene.network.now)
    scene.write(samples(8, 1), **how)
    scene.run(SECOND)
    scene.writer.coherent_sets.abort(now=scene.network.now)
    scene.settle()
    late = scene.join(qos)
    scene.settle()
    assert numbers(scene.taken[late]) == [7]


@pytest.mark.parametrize("keyed", [False, True])
def test_end_markers_take_no_place_in_the_history(keyed: bool) -> None:
    qos = replace(KEEP_ONE, coherent_access=True)
    scene = Scene(BatchPolicy(), qos, keyed=keyed)
    scene.join()
    for i in range(50):
        scene.writer.coherent_sets.begin(now=scene.network.now)
        scene.write(samples(i, 1), **({"key_hashes": hashes(1)} if keyed else {}))
        scene.writer.coherent_sets.end(now=scene.network.now)
        scene.settle()
    assert len(list(scene.writer.history.changes())) == 2
    late = scene.join(qos)
    scene.settle()
    assert numbers(scene.taken[late]) == [49]


# --- history and windows -------------------------------------------------------------------------


def test_lifespan_ends_for_each_sample_of_a_batch_by_itself() -> None:
    qos = replace(LASTING, lifespan=SECOND)
    scene = Scene(replace(BATCH, source_timestamp_resolution=0), qos)
    scene.join()
    scene.write(samples(0, 2))
    scene.run(600 * MILLISECOND)
    scene.write(samples(2, 2))
    scene.settle()
    scene.run(420 * MILLISECOND)
    participant = scene.network.add()
    reader = participant.create_reader(ReaderSpec("t", "T", LASTING), now=scene.network.now)
    scene.readers.append((participant, reader))
    scene.taken[1] = []
    scene.run(300 * MILLISECOND)
    kept = [run.select((run.sample_flags() & REMOVED) == 0) for run in scene.taken[1]]
    assert numbers(run for run in kept if run is not None) == [2, 3]
    scene.run(2 * SECOND)
    assert not list(scene.writer.history.changes())
    assert scene.writer.counters.expired_samples == 4


def test_a_batch_that_is_queued_is_not_changed_by_what_replaces_it() -> None:
    best_effort = Qos(reliability=ReliabilityKind.BEST_EFFORT)
    scene = Scene(BATCH, replace(KEEP_ONE, history_depth=3))
    scene.join(best_effort)
    scene.write(samples(0, 3))
    scene.writer.flush_batch(now=scene.network.now)
    scene.write(samples(3, 2))
    scene.writer.flush_batch(now=scene.network.now)
    scene.run(SECOND)
    assert numbers(scene.taken[0]) == list(range(5))
    assert not any((run.sample_flags() & REMOVED).any() for run in scene.taken[0])
    held = [change.content for change in scene.writer.history.changes()]
    runs = [
        run
        for each in held
        for run in scan_batch(each.batch.data, 0, each.batch.nbytes, bytes(12), 0).runs  # type: ignore[attr-defined]
    ]
    flags = [bool(flag & REMOVED) for run in runs for flag in run.sample_flags()]
    assert flags == [True, True, False, False, False]
    assert held[0].batch.data[0] == DATA_BATCH  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [12, 5_000])
def test_one_large_write_keeps_to_max_batches_and_to_the_send_window(size: int) -> None:
    few = replace(BATCH, max_samples=5, max_batches=3)
    scene = Scene(few)
    scene.join()
    assert scene.writer.write_samples(samples(0, 1_000, size), timestamp=0, now=scene.network.now) <= 15
    assert scene.writer.history.batches <= 3
    assert scene.writer.state.blocked_by == "max_batches"
    four = WriterPolicy(min_send_window_size=4, max_send_window_size=4)
    scene = Scene(replace(BATCH, max_samples=10), writer_policy=four)
    scene.join()
    scene.writer.write_samples(samples(0, 1_000, size), timestamp=0, now=scene.network.now)
    assert 0 < scene.writer.window.samples <= 4
    assert scene.writer.state.blocked_by == "send window"
