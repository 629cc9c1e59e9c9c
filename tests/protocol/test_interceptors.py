"""Batch interceptors: what they see of a sample, and what becomes of it (Ice's BatchRequestInterceptor)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import PublicationPolicy, WriterCounters, WriterPolicy
from spark_rtps.transport.protocol.writing.batching import Batcher, BatchRequest, FlushReason, Interceptor
from spark_rtps.transport.protocol.writing.batching.batcher import PendingBatch
from spark_rtps.transport.protocol.writing.batching.interceptor import HELD_BYTES_MAX, HELD_MAX
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, Samples
from tests.protocol import batch_scene
from tests.protocol.batcher_script import (
    LIMIT,
    OPEN,
    apart,
    counts,
    hashes,
    payload,
    payloads,
    ragged,
    reasons,
    timestamps,
    uniform,
)
from tests.support.virtual_network import SECOND, VirtualNetwork

WRITER = Guid(b"writer prefx", b"\0\0\1\2")

Decide = Callable[[BatchRequest], object]


def let_through(request: BatchRequest) -> None:
    request.enqueue()


class Script:
    """A batcher whose samples are numbered from 0, and what it sends."""

    def __init__(self, decide: Decide, **options: object) -> None:
        self.counters = WriterCounters()
        given: dict[str, object] = {"policy": OPEN, "limit": LIMIT, **options}
        self.batcher = Batcher(
            interceptor=Interceptor(decide, "t"),
            writer=WRITER,
            counters=self.counters,
            **given,
        )
        self.written = 0

    def write(self, count: int, *, timestamp: int = 0) -> list[list[int]]:
        memory = uniform(self.written, count).data.copy()
        self.written += count
        found = numbers(
            self.batcher.add_samples(Samples.uniform(memory, count, 16), timestamp=timestamp, now=0)
        )
        self.batcher.leaving.sent()
        memory[:] = 0xEE  # it is the caller's again
        return found

    def flush(self) -> list[list[int]]:
        found = numbers(self.batcher.flush_batch())
        self.batcher.leaving.sent()
        return found


def numbers(batches: list[PendingBatch]) -> list[list[int]]:
    return [[int.from_bytes(each[4:8], "little") for each in payloads(batch)] for batch in apart(batches)]


def number(request: BatchRequest) -> int:
    return int.from_bytes(request.payload[4:8], "little")


# --- what it sees -----------------------------------------------------------------------------------------


def test_an_interceptor_gets_each_sample_before_it_is_queued() -> None:
    seen: list[tuple[str, Guid, int, int, int]] = []

    def see(request: BatchRequest) -> None:
        seen.append(
            (request.topic, request.writer, request.size, request.queued_samples, request.queued_bytes)
        )
        request.enqueue()

    s = Script(see, policy=replace(OPEN, max_samples=3))
    s.write(2)
    s.batcher.add_samples(ragged(2, [8, 20]), timestamp=0, now=0)
    assert [each[2:] for each in seen] == [(16, 0, 0), (16, 1, 16), (8, 2, 32), (20, 0, 0)]
    assert {each[:2] for each in seen} == {("t", WRITER)}


def test_an_interceptor_gets_key_payload_and_kind_of_a_sample() -> None:
    seen: list[tuple[bytes | None, bytes, bool, int]] = []

    def see(request: BatchRequest) -> None:
        seen.append((request.key, request.payload, request.is_dispose, request.timestamp))
        request.enqueue()

    s = Script(see)
    s.batcher.add_samples(uniform(0, 2), timestamp=7, now=0, key_hashes=hashes(1, 2))
    s.batcher.add_samples(uniform(2, 1), timestamp=8, now=0, flags=DISPOSED | KEY_ONLY, key_hashes=hashes(3))
    s.batcher.add_samples(uniform(3, 1), timestamp=9, now=0)
    keys = [b"\0" * 15 + bytes([key]) for key in (1, 2, 3)]
    assert seen == [
        (keys[0], payload(0, 16), False, 7),
        (keys[1], payload(1, 16), False, 7),
        (keys[2], payload(2, 16), True, 8),
        (None, payload(3, 16), False, 9),
    ]


def test_a_row_is_decoded_only_when_it_is_asked_for() -> None:
    decoded: list[int] = []
    rows: list[object] = []

    def decide(request: BatchRequest) -> None:
        if number(request) == 1:
            rows.append(request.row())
        request.enqueue()

    def row(samples: object) -> dict[str, object]:
        decoded.append(1)
        return {"number": 1}

    batcher = Batcher(OPEN, limit=LIMIT, interceptor=Interceptor(decide, "t", row))
    batcher.add_samples(uniform(0, 3), timestamp=0, now=0)
    assert (decoded, rows) == ([1], [{"number": 1}])
    batcher.add_samples(uniform(1, 1), timestamp=0, now=0, flags=DISPOSED | KEY_ONLY, key_hashes=hashes(3))
    assert (decoded, rows[1:]) == ([1], [None])


# --- what it decides --------------------------------------------------------------------------------------


def test_an_interceptor_may_flush_before_a_sample() -> None:
    def limit_to_40(request: BatchRequest) -> None:
        if request.queued_bytes + request.size > 40:
            request.flush()
        request.enqueue()

    s = Script(limit_to_40)
    batches = apart(s.batcher.add_samples(uniform(0, 5), timestamp=0, now=0))
    assert counts(batches) == [2, 2]
    assert reasons(batches) == [FlushReason.INTERCEPTOR] * 2
    assert s.batcher.count == 1


def test_an_interceptor_may_flush_after_a_sample() -> None:
    def send_every_third(request: BatchRequest) -> None:
        request.enqueue()
        if number(request) % 3 == 2:
            request.flush()

    assert Script(send_every_third).write(7) == [[0, 1, 2], [3, 4, 5]]


def test_dropped_samples_are_never_sent_and_counted() -> None:
    s = Script(lambda request: request.drop() if number(request) % 2 else request.enqueue())
    assert s.write(6) == []
    assert s.flush() == [[0, 2, 4]]
    assert s.counters.dropped_by_interceptor == 3
    assert s.batcher.count == 0


@pytest.mark.parametrize("says_so", [True, False])
def test_held_samples_wait_for_a_later_call(says_so: bool) -> None:
    held: list[BatchRequest] = []

    def hold_odd(request: BatchRequest) -> None:
        if number(request) == 5:
            for each in held:
                each.enqueue()
        if number(request) % 2:
            held.append(request)
            if says_so:
                request.hold()
        else:
            request.enqueue()

    s = Script(hold_odd)
    s.write(5, timestamp=1)
    assert (s.batcher.queue.count, held[0].held_samples, s.batcher.count) == (3, 2, 5)
    s.write(1, timestamp=2)
    assert (s.batcher.queue.count, s.batcher.count, s.batcher.nbytes) == (5, 6, 96)
    s.batcher.flush_intercepted()
    assert numbers(s.batcher.handle_timer(0)) == [[0, 2, 4, 1, 3]]
    s.batcher.leaving.sent()
    assert s.batcher.count == 1  # the sixth is still held
    assert s.flush() == [[5]]


def test_held_samples_may_be_dropped_later() -> None:
    held: list[BatchRequest] = []
    s = Script(held.append)
    s.write(3)
    held[1].drop()
    assert s.flush() == [[0, 2]]
    assert s.counters.dropped_by_interceptor == 1


def test_a_flush_by_anybody_else_sends_what_is_held_too() -> None:
    s = Script(lambda request: request.enqueue() if number(request) == 0 else request.hold())
    s.write(4)
    assert s.flush() == [[0, 1, 2, 3]]
    assert s.batcher.nbytes == s.batcher.count == 0


def test_the_flush_delay_sends_what_is_queued_alone() -> None:
    s = Script(
        lambda request: request.enqueue() if number(request) == 0 else request.hold(),
        policy=replace(OPEN, max_flush_delay=5),
    )
    s.write(2)
    assert numbers(s.batcher.handle_timer(5)) == [[0]]
    s.batcher.leaving.sent()
    assert s.batcher.count == 1


def test_a_sample_is_decided_on_once() -> None:
    kept: list[BatchRequest] = []

    def decide(request: BatchRequest) -> None:
        kept.append(request)
        request.enqueue()

    s = Script(decide)
    s.write(1)
    for again in (kept[0].enqueue, kept[0].hold, kept[0].drop):
        with pytest.raises(UsageError, match="'t': this sample is already queued"):
            again()
    assert s.flush() == [[0]]


@pytest.mark.parametrize(("size", "most"), [(16, HELD_MAX), (40_000, HELD_BYTES_MAX // 40_000)])
def test_held_samples_are_bounded(size: int, most: int) -> None:
    s = Script(lambda request: None)
    sent = 0
    for _ in range(most):
        sent += len(s.batcher.add_samples(uniform(0, 1, size), timestamp=0, now=0))
    assert (sent, s.batcher.queue.count, s.batcher.count) == (0, 0, most)
    batches = apart(s.batcher.add_samples(uniform(0, 1, size), timestamp=0, now=0))
    assert sum(counts(batches)) + s.batcher.queue.count == most + 1


def test_held_samples_have_the_timestamp_of_their_batch() -> None:
    """Within a batch timestamps never go back."""
    held: list[BatchRequest] = []

    def decide(request: BatchRequest) -> None:
        if request.timestamp == 1:
            held.append(request)
            return
        request.enqueue()
        held[0].enqueue()

    s = Script(decide, policy=replace(OPEN, source_timestamp_resolution=0))
    s.write(1, timestamp=1)
    s.write(1, timestamp=2)
    (batch,) = s.batcher.flush_batch()
    assert numbers([batch]) == [[1, 0]]
    assert timestamps(batch) == [2, 2]


# --- what it raises ---------------------------------------------------------------------------------------


def test_an_exception_reaches_the_writer_and_loses_no_sample() -> None:
    kept: list[BatchRequest] = []

    def refuse_fourth(request: BatchRequest) -> None:
        if number(request) == 3:
            kept.append(request)
            raise RuntimeError("no more")
        request.enqueue()

    s = Script(refuse_fourth, policy=replace(OPEN, max_samples=2))
    with pytest.raises(RuntimeError, match="no more") as caught:
        s.write(5)
    assert caught.value.__notes__ == ["raised by the batch interceptor, at a sample of 16 bytes"]
    assert s.batcher.get_timer() == 0
    assert numbers(s.batcher.handle_timer(0)) == [[0, 1]]
    s.batcher.leaving.sent()
    with pytest.raises(UsageError, match="void"):
        kept[0].enqueue()
    assert s.flush() == [[2]]


def test_a_writer_that_is_given_up_forgets_what_is_held() -> None:
    held: list[BatchRequest] = []
    s = Script(held.append)
    s.write(2)
    s.batcher.discard()
    assert (s.batcher.count, s.batcher.nbytes, s.flush()) == (0, 0, [])
    with pytest.raises(UsageError, match="void"):
        held[0].enqueue()


def test_empty_samples_can_be_held() -> None:
    s = Script(lambda request: None)
    s.batcher.add_samples(uniform(0, 1, 0), timestamp=0, now=0)
    s.batcher.add_samples(ragged(0, [0, 8]), timestamp=0, now=0)
    (batch,) = s.batcher.flush_batch()
    assert [len(each) for each in payloads(batch)] == [0, 0, 8]


def test_all_orders_of_decisions_lose_and_double_nothing() -> None:
    for seed in range(40):
        random = np.random.default_rng(seed)
        held: list[BatchRequest] = []
        dropped: list[int] = []
        sent: list[int] = []

        def decide(
            request: BatchRequest, random: Any = random, held: Any = held, dropped: Any = dropped
        ) -> None:
            if held and random.random() < 0.3:
                earlier = held.pop(int(random.integers(len(held))))
                if earlier.held_samples and random.random() < 0.5:
                    earlier.enqueue()
                else:
                    dropped.append(number(earlier))
                    earlier.drop()
            match int(random.integers(4)):
                case 0:
                    request.hold()
                    held.append(request)
                case 1:
                    request.drop()
                    dropped.append(number(request))
                case _:
                    request.enqueue()
            if random.random() < 0.1:
                request.flush()

        s = Script(decide, policy=replace(OPEN, max_samples=5))
        for _ in range(30):
            for batch in s.write(int(random.integers(6))):
                sent += batch
            if random.random() < 0.1:
                for batch in s.flush():
                    sent += batch
                held.clear()
        for batch in s.flush():
            sent += batch
        assert sorted(sent + dropped) == list(range(s.written)), seed
        assert s.counters.dropped_by_interceptor == len(dropped)


def test_admission_counts_what_is_held() -> None:
    """A writer whose window is full of held samples sends them, rather than waiting for ever."""
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    policy = PublicationPolicy(batch=batch_scene.BATCH, writer=WriterPolicy(send_window_bytes=4_096))
    w = one.create_writer(
        WriterSpec("t", "T", batch_scene.RELIABLE, policy=policy),
        interceptor=Interceptor(lambda request: None, "t"),
        now=network.now,
    )
    reader = two.create_reader(ReaderSpec("t", "T", batch_scene.RELIABLE), now=network.now)
    network.run(SECOND)
    taken, got = 0, []
    for _ in range(100):
        taken += w.write_samples(batch_scene.samples(taken, 200 - taken), timestamp=0, now=network.now)
        network.run(SECOND // 10)
        got += batch_scene.numbers(reader.take_runs())
        if taken == 200:
            break
    assert taken == 200 and len(got) > 100
    w.flush_batch(now=network.now)
    network.run(SECOND)
    got += batch_scene.numbers(reader.take_runs())
    assert got == list(range(200))
