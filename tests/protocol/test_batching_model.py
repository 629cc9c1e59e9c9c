"""The batcher against a plain list: writes, flushes, limits and time in any order."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from spark_rtps.transport.protocol.policies import BatchPolicy
from spark_rtps.transport.protocol.writing.batching import BatchRequest, Interceptor
from spark_rtps.transport.protocol.writing.batching.batcher import (
    Batcher,
    FlushReason,
    PendingBatch,
    sample_metadata,
)
from spark_rtps.transport.protocol.writing.batching.turbo import BLOCKED_DELAY_MAX
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.samples import DISPOSED, U8, Samples
from tests.protocol.batcher_script import apart

#: Payload, source timestamp as written, flags, key hash.
Sample = tuple[bytes, int, int, bytes]

UNLIMITED = st.just(INFINITE)
SIZES = st.sampled_from([0, 4, 8, 40, 100, 400])


class BatcherMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 10**9
        self.written: list[Sample] = []
        #: When each sample was written.
        self.times: list[int] = []
        self.sent = 0
        self.largest = 0

    @initialize(
        max_data_bytes=UNLIMITED | st.sampled_from([4, 64, 300, 1024]),
        max_samples=UNLIMITED | st.integers(1, 20),
        auto_flush_size=UNLIMITED | st.sampled_from([100, 500]),
        max_flush_delay=st.sampled_from([0, 50, 1_000, INFINITE]),
        resolution=st.sampled_from([0, 30, INFINITE]),
        disable_inline_keyhash=st.booleans(),
        turbo_mode=st.booleans(),
        resource_limits=UNLIMITED | st.integers(1, 20),
        per_instance=UNLIMITED | st.integers(1, 4),
        limit=st.sampled_from([60, 200, 2_000]),
        flush_every=st.sampled_from([0, 0, 3]),
    )
    def create(
        self,
        resource_limits: int,
        per_instance: int,
        limit: int,
        flush_every: int,
        turbo_mode: bool,
        resolution: int,
        **policy: int,
    ) -> None:
        self.policy = BatchPolicy(
            enable=not turbo_mode,
            turbo_mode=turbo_mode,
            source_timestamp_resolution=resolution,
            **policy,
        )
        self.max_samples = resource_limits
        self.per_instance = per_instance

        def intercept(request: BatchRequest) -> None:
            assert (request.queued_samples, request.queued_bytes) == (self.batcher.count, self.batcher.nbytes)
            if request.queued_samples >= flush_every:
                request.flush()
            request.enqueue()

        self.batcher = Batcher(
            self.policy,
            limit=limit,
            interceptor=Interceptor(intercept) if flush_every else None,
            max_samples=resource_limits,
            max_samples_per_instance=per_instance,
        )

    # --- what happens ----------------------------------------------------------------------------

    @rule(
        count=st.integers(0, 40),
        size=SIZES,
        gap=st.sampled_from([0, 4, 100]),
        keyed=st.booleans(),
        seed=st.integers(0, 99),
    )
    def add_uniform(self, count: int, size: int, gap: int, keyed: bool, seed: int) -> None:
        if size:
            stride = size + gap
            data = np.random.default_rng(seed).integers(0, 256, count * stride, np.uint8)
            samples = Samples.uniform(data, count, size, stride=stride)
        else:
            samples = Samples(np.empty(0, np.uint8), count)
        self._add(samples, 0, keyed, seed)

    @rule(
        sizes=st.lists(SIZES, max_size=40),
        shuffle=st.booleans(),
        keyed=st.booleans(),
        seed=st.integers(0, 99),
    )
    def add_ragged(self, sizes: list[int], shuffle: bool, keyed: bool, seed: int) -> None:
        random = np.random.default_rng(seed)
        lengths = np.array(sizes, np.int64)
        order = random.permutation(len(sizes)) if shuffle else np.arange(len(sizes))
        offsets = np.empty(len(sizes), np.int64)
        offsets[order] = np.cumsum(lengths[order]) - lengths[order]
        data = random.integers(0, 256, int(lengths.sum()), np.uint8)
        # two encapsulations at the most
        for at in offsets[lengths > 0].tolist():
            data[at : at + 2] = (0, 7 if seed % 10 == 0 else 1)
        self._add(Samples.ragged(data, offsets, lengths), DISPOSED if seed % 2 else 0, keyed, seed)

    def _add(self, samples: Samples, flags: int, keyed: bool, seed: int) -> None:
        key_hashes: U8 | None = None
        if keyed:
            key_hashes = np.zeros((samples.count, 16), np.uint8)
            key_hashes[:, 3] = np.random.default_rng(seed).integers(0, 4, samples.count)
        stamp = self.now + seed % 7 - 3
        data = samples.data.tobytes()
        for i, (at, size) in enumerate(
            zip(samples.all_offsets().tolist(), samples.all_lengths().tolist(), strict=True)
        ):
            key = b"" if key_hashes is None else key_hashes[i].tobytes()
            self.written.append((data[at : at + size], stamp, flags, key))
            self.times.append(self.now)
        self._sent(
            self.batcher.add_samples(
                samples, timestamp=stamp, now=self.now, flags=flags, key_hashes=key_hashes
            )
        )

    @rule()
    def flush(self) -> None:
        self._sent(self.batcher.flush_batch())
        assert self.batcher.count == 0

    @rule(limit=st.sampled_from([30, 60, 200, 2_000]))
    def set_limit(self, limit: int) -> None:
        self.batcher.limit = limit

    @rule(blocked=st.booleans())
    def block(self, blocked: bool) -> None:
        self.batcher.blocked = blocked

    @rule(passed=st.sampled_from([0, 1, 49, 1_000, 10_000_000]))
    def wait(self, passed: int) -> None:
        """Time passes, and the timer is obeyed."""
        until = self.now + passed
        while (due := self.batcher.get_timer()) is not None and due <= until:
            self.now = max(self.now, due)
            self._sent(self.batcher.handle_timer(self.now))
            assert self.batcher.get_timer() is None or self.batcher.get_timer() != due
        self.now = until

    # --- what must hold --------------------------------------------------------------------------

    def _sent(self, batches: list[PendingBatch]) -> None:
        for batch in apart(batches):
            expected = self.written[self.sent : self.sent + batch.count]
            assert batch.count > 0
            self._check_samples(batch, expected)
            self._check_timestamps(batch, expected)
            self._check_limits(batch, expected)
            self.sent += batch.count
            self.largest = max(self.largest, batch.nbytes)
        self.batcher.leaving.sent()

    def _check_samples(self, batch: PendingBatch, expected: list[Sample]) -> None:
        data = batch.samples.data.tobytes()
        offsets, lengths = batch.samples.all_offsets().tolist(), batch.samples.all_lengths().tolist()
        got = [data[at : at + size] for at, size in zip(offsets, lengths, strict=True)]
        assert got == [payload for payload, *_ in expected]
        assert len({payload[:2] for payload in got if payload}) <= 1
        flags = [batch.flags] * batch.count if isinstance(batch.flags, int) else batch.flags.tolist()
        assert flags == [flag for _, _, flag, _ in expected]
        keys = [b""] * batch.count if batch.key_hashes is None else [k.tobytes() for k in batch.key_hashes]
        assert keys == [key for *_, key in expected]

    def _check_timestamps(self, batch: PendingBatch, expected: list[Sample]) -> None:
        stamps = [batch.timestamp] * batch.count if batch.timestamps is None else batch.timestamps.tolist()
        assert stamps[0] == batch.timestamp
        inherited = {stamps[0]} | {stamp for _, stamp, *_ in self.written[: self.sent]}
        if batch.timestamp != expected[0][1]:
            # what was queued was cut by a limit made smaller
            assert batch.timestamp in inherited
        for before, stamp, (_, written, *_) in zip(stamps, stamps[1:], expected[1:], strict=False):
            late = self.policy.source_timestamp_resolution < INFINITE and (
                written - before > self.policy.source_timestamp_resolution
            )
            assert stamp == (written if late else before)

    def _check_limits(self, batch: PendingBatch, expected: list[Sample]) -> None:
        if batch.alone:
            assert batch.count == 1
            return
        policy = self.policy
        bounds = [
            (policy.auto_flush_size, batch.nbytes),
            (INFINITE if policy.turbo_mode else policy.max_data_bytes, batch.nbytes),
            (policy.max_samples, batch.count),
            (self.max_samples, batch.count),
        ]
        keys = [key for *_, key in expected if key]
        if keys:
            bounds.append((self.per_instance, max(keys.count(key) for key in keys)))
        for bound, value in bounds:
            assert bound == INFINITE or value <= bound
        # and none was cut too early
        if batch.reason is FlushReason.MAX_SAMPLES:
            assert batch.count == policy.max_samples
        if batch.reason is FlushReason.MAX_DATA_BYTES and batch.nbytes != policy.max_data_bytes:
            newest, *_ = self.written[self.sent + batch.count]
            assert batch.nbytes + len(newest) > policy.max_data_bytes

    def wire_bytes(self, samples: list[Sample]) -> int:
        own = self.policy.source_timestamp_resolution < INFINITE
        return sum(
            len(payload)
            + sample_metadata(
                flags, key_hash=bool(key) and not self.policy.disable_inline_keyhash, own_timestamp=own
            )
            for payload, _, flags, key in samples
        )

    @invariant()
    def all_is_sent_or_queued(self) -> None:
        if not hasattr(self, "batcher"):
            return
        waiting = sum(batch.count for batch in self.batcher.leaving.ready)
        assert self.sent + waiting + self.batcher.count == len(self.written)
        queued = self.written[len(self.written) - self.batcher.count :]
        assert self.batcher.nbytes == sum(len(payload) for payload, *_ in queued)
        assert self.wire_bytes(queued) <= self.batcher.limit

    @invariant()
    def nothing_waits_longer_than_its_delay(self) -> None:
        if not hasattr(self, "batcher") or not self.batcher.count:
            return
        first = self.times[len(self.written) - self.batcher.count]
        delay = min(self.policy.max_flush_delay, BLOCKED_DELAY_MAX if self.policy.turbo_mode else INFINITE)
        due = self.batcher.get_timer()
        if delay < INFINITE:
            assert due is not None and due <= first + delay
        elif due is not None:
            assert self.batcher.leaving.ready

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "batcher"):
            largest = max(self.largest, self.batcher.nbytes, 2_000)
            assert self.batcher.queue._buffer.nbytes <= max(4_096, 2 * largest)

    def teardown(self) -> None:
        if hasattr(self, "batcher"):
            self._sent(self.batcher.flush_batch())
            assert self.sent == len(self.written)


BatcherMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestBatcherModel = BatcherMachine.TestCase
