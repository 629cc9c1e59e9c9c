"""Wall clocks that are set by an hour, forwards and backwards, while samples stream: whole participants, virtual time.

Leases, liveliness, deadlines, repairs: the protocol knows monotonic time alone, so a step moves none of them. LIFESPAN
and DESTINATION_ORDER compare source timestamps with a clock, as DDS has it (DDS 1.4 §2.2.3.16: the clocks are taken
for synchronized). What that costs while they are not is exactly what the oracle says, and all of it is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.reading.cache.reader_cache import ReaderCache
from spark_rtps.transport.qos import DestinationOrderKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import INFINITE, Guid
from spark_rtps.transport.wire.samples import Samples
from tests.protocol.runs_of_samples import WALL
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

HOUR = 3_600 * SECOND
LIFESPAN = 2 * SECOND
PERIOD = 100 * MILLISECOND
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
#: Everything that may end when nothing is heard of a writer, each a little longer than PERIOD.
WATCHED = replace(RELIABLE, deadline=3 * PERIOD, liveliness_lease_duration=5 * PERIOD)
LOST = (events.LivelinessLost, events.ParticipantLost, events.Unmatched)


@dataclass
class Stream:
    """A writer that writes every PERIOD and a reader with its cache, on hosts with wall clocks of their own."""

    qos: Qos
    loss: float = 0.0
    #: How far the clock of the writer's host is from the true time, and that of the reader's.
    writer_step: int = 0
    reader_step: int = 0
    #: By number: the time that it was stamped with.
    stamps: list[int] = field(default_factory=list)
    #: Number and reception by the reader's clock of what passed the protocol, and the numbers that passed the cache.
    received: list[tuple[int, int]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.network = VirtualNetwork(loss=self.loss)
        now = self.network.now
        self.one, self.two = self.network.add(), self.network.add()
        qos_of_reader = replace(self.qos, lifespan=INFINITE)
        self.reader = self.one.create_reader(ReaderSpec("t", "T", qos_of_reader), now=now)
        self.writer = self.two.create_writer(WriterSpec("t", "T", self.qos), now=now)

        def qos_of(writer: Guid) -> Qos:
            return self.qos

        self.cache = ReaderCache(qos_of_reader, keys=None, writer_qos=qos_of)
        assert self.network.run(60 * SECOND, lambda: bool(self.reader.writers and self.writer.readers))

    def write(self, count: int) -> None:
        for _ in range(count):
            number, now = len(self.stamps), self.network.now
            self.stamps.append(WALL + now + self.writer_step)
            payload = np.frombuffer(number.to_bytes(8, "little"), np.uint8)
            assert (
                self.writer.write_samples(Samples.uniform(payload, 1, 8), timestamp=self.stamps[-1], now=now)
                == 1
            )
            self._pass(PERIOD)

    def _pass(self, duration: int) -> None:
        end = self.network.now + duration
        while self.network.now < end:
            self.network.run(min(MILLISECOND, end - self.network.now))
            self._take()

    def _take(self) -> None:
        now = self.network.now
        reception = WALL + now + self.reader_step
        for run in self.reader.take_runs():
            first = run.first_sn - 1
            self.received += [(number, reception) for number in range(first, first + run.count)]
            if (passed := self.cache.accept(run, reception=reception, now=now)) is not None:
                self.kept += (passed.sequence_numbers() - 1).tolist()
        timer = self.cache.get_timer()
        if timer is not None and timer <= now:
            self.cache.handle_timer(now)

    def settle(self) -> None:
        """What is still under way arrives."""
        for _ in range(600):
            self._pass(PERIOD)
            if all(proxy.acked >= self.writer.last_sn for proxy in self.writer.readers.values()):
                return
        raise AssertionError("not acknowledged")

    @property
    def lost(self) -> list[events.Event]:
        return [each for found in self.network.events.values() for each in found if isinstance(each, LOST)]


STEPS = [
    pytest.param(writer, reader, id=f"writer {writer // HOUR:+} h, reader {reader // HOUR:+} h")
    for writer in (-HOUR, 0, HOUR)
    for reader in (-HOUR, 0, HOUR)
    if writer or reader
]


@pytest.mark.parametrize(("writer", "reader"), STEPS)
@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_without_lifespan_every_row_arrives_and_nothing_ends(writer: int, reader: int, loss: float) -> None:
    stream = Stream(WATCHED if not loss else RELIABLE, loss)
    stream.write(20)
    stream.writer_step, stream.reader_step = writer, reader
    stream.write(20)
    stream.writer_step = stream.reader_step = 0
    stream.write(20)
    missed = stream.cache.counters.requested_deadline_missed
    stream.settle()
    assert stream.kept == [number for number, _ in stream.received] == list(range(60))
    assert stream.lost == [] and missed == 0
    assert stream.writer.counters.offered_deadline_missed <= 1  # at the end nobody writes


@pytest.mark.parametrize(("writer", "reader"), STEPS)
def test_a_deadline_that_is_missed_is_missed_whatever_the_clock_says(writer: int, reader: int) -> None:
    stream = Stream(WATCHED)
    stream.write(10)
    stream.writer_step, stream.reader_step = writer, reader
    stream._pass(7 * PERIOD)  # with the PERIOD before, two and a half deadlines
    assert stream.cache.counters.requested_deadline_missed == 2
    assert stream.writer.counters.offered_deadline_missed == 2
    assert stream.lost == []  # liveliness is asserted without samples


@pytest.mark.parametrize(("writer", "reader"), STEPS)
def test_lifespan_drops_what_is_older_by_the_readers_clock_and_counts_it(writer: int, reader: int) -> None:
    stream = Stream(replace(WATCHED, lifespan=LIFESPAN))
    stream.write(20)
    stream.writer_step, stream.reader_step = writer, reader
    stream.write(20)
    stream.writer_step = stream.reader_step = 0
    stream.write(20)
    stream.settle()
    # On a network that loses nothing everything is received, and a reader that runs ahead of the writer drops it.
    assert [number for number, _ in stream.received] == list(range(60))
    ahead = range(20, 40) if reader > writer else range(0)
    assert stream.kept == [number for number in range(60) if number not in ahead]
    assert stream.cache.counters.expired_dropped_sample_count == len(ahead)
    assert stream.lost == []


MOMENTS = st.lists(
    st.tuples(
        st.sampled_from(["writer_step", "reader_step"]), st.sampled_from([-HOUR, 0, HOUR]), st.integers(1, 12)
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25, deadline=None)
@given(MOMENTS, st.sampled_from([0.0, 0.1, 0.3]), st.sampled_from(DestinationOrderKind))
def test_any_steps_against_the_oracle(
    moments: Sequence[tuple[str, int, int]], loss: float, order: DestinationOrderKind
) -> None:
    qos = replace(RELIABLE, lifespan=LIFESPAN, destination_order=order)
    stream = Stream(replace(qos, source_timestamp_tolerance=30 * SECOND), loss)
    stream.write(3)
    for clock, step, count in moments:
        setattr(stream, clock, step)
        stream.write(count)
    stream.settle()
    expected, expired, far_ahead, old, newest = [], 0, 0, 0, 0
    by_source = order is DestinationOrderKind.BY_SOURCE_TIMESTAMP
    for number, reception in stream.received:
        stamp, latest = stream.stamps[number], reception + 30 * SECOND
        newest = newest if newest <= latest else 0
        if stamp + LIFESPAN <= reception:
            expired += 1
        elif by_source and stamp > latest:
            far_ahead += 1
        elif by_source and stamp < newest:
            old += 1
        else:
            expected.append(number)
            newest = stamp
    assert stream.kept == expected
    counters = stream.cache.counters
    assert counters.expired_dropped_sample_count == expired
    assert counters.tolerance_source_timestamp_dropped_sample_count == far_ahead
    assert counters.old_source_timestamp_dropped_sample_count == old
    # What did not come at all has expired at its writer, which says so and counts it.
    numbers = [number for number, _ in stream.received]
    assert numbers == sorted(set(numbers))
    missing = len(stream.stamps) - len(numbers)
    assert missing == stream.reader.counters.irrelevant_samples + stream.reader.counters.lost_samples
    assert missing <= stream.writer.counters.expired_samples
    assert missing == 0 or loss
