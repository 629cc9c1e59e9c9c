"""A writer that batches, and whole participants around it: DATA_BATCH to those that read it, DATA to the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError, WriterLimit
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    BatchWire,
    Compression,
    PublicationPolicy,
    WriterPolicy,
)
from spark_rtps.transport.protocol.writing.batching import BatchRequest, Interceptor
from spark_rtps.transport.qos import HistoryKind
from spark_rtps.transport.wire.samples import DISPOSED, REMOVED
from tests.protocol.batch_scene import (
    ACKNACK,
    ACKNACK_BATCH,
    BATCH,
    COMPRESSED,
    DATA,
    DATA_BATCH,
    DATA_FRAG,
    GAP,
    HEARTBEAT,
    HEARTBEAT_BATCH,
    LASTING,
    RELIABLE,
    Scene,
    numbers,
    samples,
)
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork


def test_our_readers_are_sent_batches_acknowledged_as_one() -> None:
    scene = Scene()
    scene.join()
    scene.network.log = []
    scene.write(samples(0, 5_000))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(5_000))
    sent, answered = scene.kinds(), scene.kinds(scene.readers[0][0])
    assert sent[DATA] == sent[HEARTBEAT] == 0
    assert sent[DATA_BATCH] == -(-5_000 // (64_000 // 24)) or sent[DATA_BATCH] in (2, 3)
    assert sent[HEARTBEAT_BATCH] >= 1
    assert answered[ACKNACK_BATCH] >= 1
    assert answered[ACKNACK] == 0


def test_other_readers_are_sent_coalesced_data() -> None:
    scene = Scene()
    scene.join(ours=False)
    scene.network.log = []
    scene.write(samples(0, 1_000))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(1_000))
    assert scene.kinds()[DATA] == 1_000
    assert scene.kinds()[DATA_BATCH] == 0


def test_each_reader_gets_its_own_form() -> None:
    scene = Scene()
    scene.join()
    scene.join(ours=False)
    scene.write(samples(0, 3_000))
    scene.settle()
    assert numbers(scene.taken[0]) == numbers(scene.taken[1]) == list(range(3_000))
    assert any(run.batch_sn for run in scene.taken[0])
    assert not any(run.batch_sn for run in scene.taken[1])


def test_batch_wire_data_sends_data_to_all() -> None:
    scene = Scene(replace(BATCH, wire=BatchWire.DATA))
    scene.join()
    scene.network.log = []
    scene.write(samples(0, 100))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(100))
    assert scene.kinds()[DATA_BATCH] == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("codec", list(Compression))
def test_mixed_readers_get_all_once_in_order_under_loss(seed: int, codec: Compression) -> None:
    scene = Scene(
        replace(BATCH, max_data_bytes=2_000, compression=codec),
        seed=seed,
        loss=0.2,
        duplicates=0.1,
        jitter=3 * MILLISECOND,
    )
    scene.join()
    scene.join(ours=False)
    scene.join()
    for block in range(20):
        scene.write(samples(block * 150, 150))
        scene.run(2 * MILLISECOND)
    scene.settle()
    for number in range(3):
        assert numbers(scene.taken[number]) == list(range(3_000)), number


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_batch_compression(codec: Compression) -> None:
    scene = Scene(replace(BATCH, compression=codec))
    scene.join()
    scene.network.log = []
    scene.write(samples(0, 2_000, size=60))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(2_000))
    sent = scene.kinds()
    assert sent[COMPRESSED] >= 1
    assert sent[DATA_BATCH] == 0
    assert sum(len(datagram) for _, _, datagram in scene.network.log) < 2_000 * 64 // 2


def test_batch_compression_threshold() -> None:
    scene = Scene(replace(BATCH, compression=Compression.LZ4, compression_threshold=10_000))
    scene.join()
    scene.network.log = []
    scene.write(samples(0, 50))
    scene.settle()
    assert scene.kinds()[COMPRESSED] == 0
    assert numbers(scene.taken[0]) == list(range(50))


def test_max_flush_delay_flushes_by_the_timer() -> None:
    scene = Scene(replace(BATCH, max_flush_delay=50 * MILLISECOND))
    scene.join()
    scene.write(samples(0, 3))
    scene.run(40 * MILLISECOND)
    assert scene.writer.intake.count == 3
    assert not scene.taken[0]
    scene.run(20 * MILLISECOND)
    assert numbers(scene.taken[0]) == [0, 1, 2]


def test_an_oversized_sample_goes_alone_fragmented_and_in_order() -> None:
    scene = Scene()
    scene.join()
    scene.network.log = []
    scene.write(samples(0, 10))
    scene.write(samples(10, 1, size=200_000))
    scene.write(samples(11, 10))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(21))
    assert scene.kinds()[DATA_FRAG] == 4
    assert scene.kinds()[DATA_BATCH] == 2


@pytest.mark.parametrize("seed", range(8))
def test_large_samples_between_batches_survive_loss(seed: int) -> None:
    scene = Scene(replace(BATCH, max_samples=7), seed=seed, loss=0.25, jitter=2 * MILLISECOND)
    scene.join()
    scene.join(ours=False)
    at = 0
    for turn in range(30):
        count = 1 + turn % 11
        scene.write(samples(at, count))
        at += count
        if turn % 5 == 4:
            scene.write(samples(at, 1, size=100_000))
            at += 1
        scene.run(MILLISECOND)
    scene.settle()
    assert numbers(scene.taken[0]) == numbers(scene.taken[1]) == list(range(at))


@pytest.mark.parametrize("ours", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_late_joiners_get_the_history_of_batches(seed: int, ours: bool) -> None:
    scene = Scene(replace(BATCH, max_samples=40), LASTING, seed=seed, loss=0.1)
    scene.join()
    scene.write(samples(0, 500))
    scene.settle()
    late = scene.join(LASTING, ours=ours)
    scene.write(samples(500, 100))
    scene.settle()
    scene.run(5 * SECOND, until=lambda: len(numbers(scene.taken[late])) >= 600)
    assert numbers(scene.taken[late]) == list(range(600))


def test_never_beyond_the_peers_limit() -> None:
    scene = Scene()
    scene.join(message_size_max=2_000)
    scene.network.log = []
    scene.write(samples(0, 2_000))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(2_000))
    assert max(len(datagram) for _, _, datagram in scene.network.log) <= 2_000


def test_message_size_max_drops_counts_and_names_the_sender() -> None:
    from spark_rtps.transport.errors import DropReason
    from spark_rtps.transport.protocol.participant.events import MessageTooLarge

    network = VirtualNetwork()
    one = network.add(message_size_max=1_000)
    network.deliver(one, b"RTPS" + bytes(1_200), source="10.0.0.9")
    assert one.drops[DropReason.MESSAGE_TOO_LARGE] == 1
    event = one.next_event()
    assert isinstance(event, MessageTooLarge)
    assert "10.0.0.9" in event.sender
    assert event.size == 1_204


def test_history_shallower_than_a_batch_marks_samples_removed() -> None:
    """They are dropped by default at the reader: ReaderCache counts them."""
    scene = Scene(BATCH, replace(RELIABLE, history=HistoryKind.KEEP_LAST, history_depth=4))
    scene.join()
    scene.write(samples(0, 10))
    scene.settle()
    (run,) = scene.taken[0]
    assert [bool(flags & REMOVED) for flags in run.sample_flags().tolist()] == [True] * 6 + [False] * 4


def test_history_shallower_than_a_batch_by_instance() -> None:
    scene = Scene(BATCH, replace(RELIABLE, history=HistoryKind.KEEP_LAST, history_depth=1), keyed=True)
    scene.join()
    hashes = np.zeros((6, 16), np.uint8)
    hashes[:, 0] = [1, 2, 1, 3, 2, 1]
    scene.write(samples(0, 6), key_hashes=hashes)
    scene.settle()
    (run,) = scene.taken[0]
    removed = [bool(flags & REMOVED) for flags in run.sample_flags().tolist()]
    assert removed == [True, True, True, False, False, False]


def test_lifespan_over_before_the_flush_is_not_sent() -> None:
    scene = Scene(replace(BATCH, source_timestamp_resolution=0), replace(RELIABLE, lifespan=20 * MILLISECOND))
    scene.join()
    scene.write(samples(0, 5))
    scene.run(30 * MILLISECOND)
    scene.write(samples(5, 5))
    scene.settle()
    kept = [run.select((run.sample_flags() & REMOVED) == 0) for run in scene.taken[0]]
    assert numbers(run for run in kept if run is not None) == [5, 6, 7, 8, 9]
    scene.write(samples(10, 5))
    scene.run(30 * MILLISECOND)
    scene.network.log = []
    scene.settle()
    assert scene.kinds()[DATA_BATCH] == 0
    assert scene.kinds()[GAP] == 1
    assert scene.readers[0][1].counters.lost_samples == 0


def test_disposed_samples_travel_in_batches() -> None:
    scene = Scene(BATCH, keyed=True)
    scene.join()
    scene.join(ours=False)
    hashes = np.arange(3, dtype=np.uint8)[:, None].repeat(16, axis=1)
    scene.write(samples(0, 3), key_hashes=hashes)
    scene.write(samples(3, 2), key_hashes=hashes[:2], flags=DISPOSED)
    scene.settle()
    for number in (0, 1):
        flags = np.concatenate([run.sample_flags() for run in scene.taken[number]])
        assert [bool(f & DISPOSED) for f in flags] == [False] * 3 + [True] * 2
        got = np.concatenate([run.key_hashes() for run in scene.taken[number]])
        assert (got == np.concatenate([hashes, hashes[:2]])).all()


def test_disable_inline_keyhash() -> None:
    scene = Scene(replace(BATCH, disable_inline_keyhash=True), keyed=True)
    scene.join()
    scene.write(samples(0, 3), key_hashes=np.ones((3, 16), np.uint8))
    scene.settle()
    assert scene.taken[0][0].key_hashes() is None


def test_resource_limits_max_samples_holds_writes_back() -> None:
    scene = Scene(BATCH, replace(RELIABLE, max_samples=10))
    scene.join()
    assert scene.writer.write_samples(samples(0, 25), timestamp=0, now=scene.network.now) == 10
    assert scene.writer.state.blocked_by == WriterLimit.MAX_SAMPLES
    scene.write(samples(10, 15))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(25))


def test_max_batches_holds_writes_back() -> None:
    scene = Scene(replace(BATCH, max_samples=5, max_batches=3))
    scene.join()
    written = 0
    while n := scene.writer.write_samples(samples(written, 5), timestamp=0, now=scene.network.now):
        written += n
    assert written == 15
    assert scene.writer.state.blocked_by == WriterLimit.MAX_BATCHES
    scene.write(samples(15, 30))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(45))


def test_a_batch_counts_as_one_sample_of_the_send_window() -> None:
    policy = WriterPolicy(min_send_window_size=4, max_send_window_size=4)
    scene = Scene(replace(BATCH, max_samples=10), writer_policy=policy)
    scene.join()
    before = scene.writer.window.samples
    scene.writer.write_samples(samples(0, 35), timestamp=0, now=scene.network.now)
    assert scene.writer.window.samples - before <= 4
    scene.write(samples(35, 100))
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(135))


def test_batching_cannot_be_changed_after_the_writer_is_enabled() -> None:
    scene = Scene()
    with pytest.raises(AttributeError):
        scene.writer.batch = BatchPolicy()  # type: ignore[misc]


def test_an_interceptor_flushes_and_what_it_raises_reaches_the_user() -> None:
    seen: list[tuple[int, int, int]] = []

    def intercept(request: BatchRequest) -> None:
        seen.append((request.size, request.queued_samples, request.queued_bytes))
        if request.queued_samples == 3:
            request.flush()
        if len(seen) == 9:
            raise ValueError("enough")
        request.enqueue()

    network = VirtualNetwork()
    one, two = network.add(), network.add()
    w = one.create_writer(
        WriterSpec("t", "T", RELIABLE, policy=PublicationPolicy(batch=BATCH)),
        interceptor=Interceptor(intercept),
        now=network.now,
    )
    r = two.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    network.run(SECOND)
    w.write_samples(samples(0, 7), timestamp=0, now=network.now)
    assert [count for _, count, _ in seen] == [0, 1, 2, 3, 1, 2, 3]
    w.write_samples(samples(7, 1), timestamp=0, now=network.now)
    with pytest.raises(ValueError, match="enough"):
        w.write_samples(samples(8, 1), timestamp=0, now=network.now)
    w.flush_batch(now=network.now)
    network.run(SECOND)
    assert numbers(r.take_runs()) == list(range(8))


def test_coherent_sets_flush_at_their_begin_and_end() -> None:
    scene = Scene(BATCH, replace(RELIABLE, coherent_access=True))
    scene.join(replace(RELIABLE, coherent_access=True))
    scene.write(samples(0, 3))
    assert scene.writer.intake.count == 3
    scene.writer.coherent_sets.begin(now=scene.network.now)
    assert scene.writer.intake.count == 0
    scene.write(samples(3, 4))
    scene.writer.flush_batch(now=scene.network.now)
    scene.run(SECOND)
    assert numbers(scene.taken[0]) == [0, 1, 2]
    scene.write(samples(7, 2))
    scene.writer.coherent_sets.end(now=scene.network.now)
    assert scene.writer.intake.count == 0
    scene.settle()
    assert numbers(scene.taken[0]) == list(range(9))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("batch", [BatchPolicy(), BATCH])
def test_coherent_sets_larger_than_the_send_window_under_loss(seed: int, batch: BatchPolicy) -> None:
    policy = WriterPolicy(send_window_bytes=20_000, max_send_window_size=30, min_send_window_size=30)
    coherent = replace(RELIABLE, coherent_access=True)
    scene = Scene(batch, coherent, seed=seed, loss=0.1, writer_policy=policy)
    scene.join(coherent)
    scene.join()
    for turn in range(3):
        scene.writer.coherent_sets.begin(now=scene.network.now)
        scene.write(samples(turn * 10_000, 5_000))
        scene.write(samples(turn * 10_000 + 5_000, 5_000))
        scene.run(20 * MILLISECOND)
        assert numbers(scene.taken[0]) == list(range(turn * 10_000))
        scene.writer.coherent_sets.end(now=scene.network.now)
        scene.settle()
    assert numbers(scene.taken[0]) == numbers(scene.taken[1]) == list(range(30_000))


def test_a_coherent_set_too_large_for_any_reader_is_refused() -> None:
    coherent = replace(RELIABLE, coherent_access=True)
    scene = Scene(BATCH, coherent, config={"message_size": 1_400})
    scene.join(coherent)
    scene.writer.coherent_sets.begin(now=scene.network.now)
    with pytest.raises(UsageError, match="too large"):
        scene.write(samples(0, 1_000_000))


def test_turbo_mode_is_ignored_when_batching_is_enabled() -> None:
    scene = Scene(replace(BATCH, turbo_mode=True))
    scene.join()
    scene.write(samples(0, 1))
    assert scene.writer.intake.count == 1


def test_turbo_mode_sends_single_samples_at_once_and_blocks_in_batches() -> None:
    scene = Scene(BatchPolicy(turbo_mode=True))
    scene.join()
    scene.write(samples(0, 1))
    assert scene.writer.intake.count == 0
    scene.network.log = []
    scene.write(samples(1, 10_000))
    scene.settle()
    assert scene.kinds()[DATA_BATCH] <= 5
    assert numbers(scene.taken[0]) == list(range(10_001))


@pytest.mark.parametrize("compress", [True, False, None])
def test_a_flush_chooses_whether_its_batch_is_compressed(compress: bool | None) -> None:
    """Whatever its size: the small batch is below the threshold, the large one is not."""
    scene = Scene(replace(BATCH, compression=Compression.ZSTD, compression_threshold=2_000))
    scene.join()
    for count, by_size in ((5, False), (500, True)):
        scene.network.log = []
        scene.write(samples(0, count, 60))
        scene.writer.flush_batch(now=scene.network.now, compress=compress)
        scene.settle()
        wanted = by_size if compress is None else compress
        assert (scene.kinds()[COMPRESSED], scene.kinds()[DATA_BATCH]) == (wanted, not wanted)
