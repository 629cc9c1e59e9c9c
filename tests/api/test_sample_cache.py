"""The cache of a subscription against a plain model of it: one list of samples, one step a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_rtps.api.sample_cache import SampleCache, memory_of
from spark_rtps.transport.log.frame import Frame
from spark_rtps.transport.structure import INFINITE, Guid
from spark_rtps.transport.wire.samples import DISPOSED, NO_TIMESTAMP, SAMPLE_INDEX, Run

WRITER = Guid(bytes(12), b"\0\0\1\2")


@dataclass(frozen=True)
class Sample:
    """A sample of the model."""

    number: int
    instance: int
    disposes: bool
    expires: int
    is_read: bool = False


class Model:
    """What the cache does, sample by sample."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.samples: list[Sample] = []

    def bound(self) -> None:
        if self.depth == INFINITE:
            return
        kept: list[Sample] = []
        for each in reversed(self.samples):
            alike = [s for s in kept if (s.instance, s.disposes) == (each.instance, each.disposes)]
            if len(alike) < (1 if each.disposes else self.depth):
                kept.append(each)
        self.samples = kept[::-1]

    def get(self, count: int, *, unread: bool, take: bool) -> list[int]:
        self.bound()
        chosen = [each for each in self.samples if not (unread and each.is_read)][:count]
        self.samples = [
            replace(each, is_read=True) if each in chosen else each
            for each in self.samples
            if not (take and each in chosen)
        ]
        return [each.number for each in chosen]


def frame_of(samples: list[Sample], payload: int) -> Frame:
    """A frame with these samples, whose payloads are their numbers."""
    data = np.zeros(len(samples) * payload, np.uint8)
    index = np.zeros(len(samples), SAMPLE_INDEX)
    for i, each in enumerate(samples):
        data[i * payload : i * payload + 8] = np.frombuffer(each.number.to_bytes(8, "little"), np.uint8)
        index[i]["offset"], index[i]["length"] = i * payload, 8
        index[i]["timestamp"] = each.expires - 100 if each.expires != INFINITE else NO_TIMESTAMP
        index[i]["flags"] = DISPOSED if each.disposes else 0
    first = samples[0].number
    reception = 1 << 40  # after all of their timestamps
    return Frame(0, 0, reception, first, Run(WRITER, first + 1, len(samples), data, index=index))


def numbers(frames: list[Frame]) -> list[int]:
    found = []
    for frame in frames:
        samples = frame.run.samples()
        payloads = [int.from_bytes(samples.payload(i), "little") for i in range(samples.count)]
        assert (frame.run.sequence_numbers() - 1).tolist() == payloads
        found += payloads
    return found


RUNS = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), RUNS),
        st.tuples(st.just("read"), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("take"), st.integers(1, 5), st.booleans()),
        st.tuples(st.just("expire"), st.integers(1, 60)),
    ),
    max_size=25,
)


#: All that has come since HISTORY was applied is gone when it is applied again.
EXPIRED: list[tuple[object, ...]] = [("add", [(0, False)]), ("expire", 60), ("expire", 60), ("read", 1, True)]


@settings(deadline=None, max_examples=200)
@example(steps=EXPIRED, depth=1, payload=8)
@given(steps=STEPS, depth=st.sampled_from([INFINITE, 1, 2]), payload=st.sampled_from([8, 12, 64]))
def test_the_cache_equals_the_model(steps: list[tuple[object, ...]], depth: int, payload: int) -> None:
    cache, model, now, number = SampleCache(depth=depth), Model(depth), 1000, 0
    for step in steps:
        match step:
            case "add", list(of):
                samples = [
                    Sample(number + i, instance, disposes, INFINITE if disposes else now + 100)
                    for i, (instance, disposes) in enumerate(of)
                ]
                number += len(of)
                model.samples += samples
                instances = np.array([each.instance for each in samples], np.int64)
                cache.add_frames([frame_of(samples, payload)], [instances], [100])
            case "read", int(count), bool(unread):
                assert numbers(cache.read_samples(count, unread=unread).frames) == model.get(
                    count, unread=unread, take=False
                )
            case "take", int(count), bool(unread):
                if unread:
                    # who takes what is unread leaves what was read before it; DDS has no other order either
                    assert numbers(cache.take_samples(count, unread=True).frames) == model.get(
                        count, unread=True, take=True
                    )
                else:
                    assert numbers(cache.take_samples(count, unread=False).frames) == model.get(
                        count, unread=False, take=True
                    )
            case "expire", int(ahead):
                now += ahead
                cache.expire(now)
                model.samples = [each for each in model.samples if each.expires > now]
    entries = cache._entries()
    assert cache.nbytes == sum(memory_of(entry.run) for entry in entries)
    assert numbers(cache.take_samples(1000, unread=False).frames) == model.get(1000, unread=False, take=True)
    assert len(cache) == cache.nbytes == 0


def test_a_sample_stamped_far_ahead_expires_as_if_written_when_it_was_received() -> None:
    cache = SampleCache()
    frames = [
        frame_of([Sample(number, 0, False, expires)], 8) for number, expires in ((0, 100), (1, 1 << 60))
    ]
    cache.add_frames([replace(frame, reception=50) for frame in frames], None, [100, 100])
    cache.expire(100)
    assert numbers(cache.read_samples(9, unread=False).frames) == [1]
    cache.expire(150)
    assert numbers(cache.read_samples(9, unread=False).frames) == []


def test_read_samples_are_bounded_by_bytes() -> None:
    cache = SampleCache(read_bytes_max=10_000)
    for first in range(0, 100, 4):
        cache.add_frames(
            [frame_of([Sample(first + i, 0, False, INFINITE) for i in range(4)], 8)], None, [INFINITE]
        )
        cache.read_samples(4, unread=True)
    kept = numbers(cache.read_samples(1000, unread=False).frames)
    assert kept == list(range(100))[-len(kept) :] and 0 < len(kept) < 100
    assert cache.nbytes <= 10_000 and cache.forgotten == 100 - len(kept)


def test_a_single_remaining_sample_keeps_no_memory_of_others() -> None:
    cache = SampleCache(depth=1)
    samples = [Sample(i, 0, False, INFINITE) for i in range(1000)]
    cache.add_frames([frame_of(samples, 64)], [np.zeros(1000, np.int64)], [INFINITE])
    cache.bound()
    assert cache.replaced == 999 and cache.nbytes < 700
    (frame,) = cache.take_samples(1, unread=False).frames
    assert frame.run.data.base is None or frame.run.data.base.nbytes < 200


def test_samples_displaced_by_a_read_return_when_it_is_given_back() -> None:
    samples = [Sample(number, 0, False, INFINITE) for number in range(4)]
    frames = [frame_of([each], 8) for each in samples]
    cache = SampleCache(read_bytes_max=2 * memory_of(frames[0].run))
    cache.add_frames(frames, None, [INFINITE] * 4)
    assert numbers(cache.read_samples(1, unread=True).frames) == [0]
    lent = cache.read_samples(4, unread=True)
    cache.give_back(lent)
    assert (cache.forgotten, cache.nbytes) == (0, sum(memory_of(each.run) for each in frames))
    assert numbers(cache.read_samples(4, unread=True).frames) == [1, 2, 3]


def test_a_run_that_history_divided_meanwhile_is_unread_again_when_it_is_given_back() -> None:
    cache = SampleCache(depth=1)
    of = [Sample(0, 0, False, INFINITE), Sample(1, 1, False, INFINITE)]
    cache.add_frames([frame_of(of, 8)], [np.array([0, 1])], [INFINITE])
    lent = cache.read_samples(2, unread=True)
    cache.add_frames([frame_of([Sample(2, 1, False, INFINITE)], 8)], [np.array([1])], [INFINITE])
    cache.bound()  # as another thread's read does
    cache.give_back(lent)
    assert numbers(cache.read_samples(3, unread=True).frames) == [0, 2]
