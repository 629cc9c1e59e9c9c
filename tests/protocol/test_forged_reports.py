"""What forged reports of a matched reader cannot do: acknowledge what was never sent, or cost without bound.

Bytes are those of datagrams, with their headers, out per time or out per bytes in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_rtps.transport.protocol.counts import FORGET_NS, STEP, CountFilter
from spark_rtps.transport.protocol.outgoing import HEADER_ROOM
from spark_rtps.transport.protocol.policies import WriterPolicy
from spark_rtps.transport.protocol.writing.readers.reader_repairs import HEARTBEAT_ANSWER_MIN
from spark_rtps.transport.protocol.writing.readers.repeated_repairs import (
    REPETITIONS_AT_ONCE,
    REPETITIONS_PER_SECOND,
)
from spark_rtps.transport.wire.numbers import FragmentNumberSet, SequenceNumberSet
from spark_rtps.transport.wire.status_messages import RttMeasurement
from spark_rtps.transport.wire.submessages import AckNackBatch, Heartbeat, NackFrag
from tests.protocol.writer_script import LASTING, ME, MS, Script, reader_guid, sns

SECOND = 1_000 * MS


def batch_acknack(s: Script, base: int, *missing: int) -> None:
    s.count += 1
    numbers = SequenceNumberSet.from_numbers(base, missing)
    acknack = AckNackBatch(reader_guid(1).entity, ME.entity, numbers, s.count, True)
    s.writer.feedback.on_acknack_batch(reader_guid(1), acknack, now=s.now)


FORGED: dict[str, Callable[[Script], object]] = {
    "ACKNACK": lambda s: s.acknack(1_000_000),
    "ACKNACK of one more than was sent": lambda s: s.acknack(7),
    "ACKNACK that requests": lambda s: s.acknack(1_000_000, 1_000_000, 1_000_005),
    "ACKNACK near 2 ** 63": lambda s: s.acknack((1 << 63) - 1),
    "ACKNACK_BATCH": lambda s: batch_acknack(s, 1_000),
    "status message": lambda s: s.status(1_000_000, 1 << 20),
    "NACK_FRAG": lambda s: s.nack_frag(6, 1, 2),
}


@pytest.mark.parametrize("name", FORGED)
def test_samples_never_written_cannot_be_acknowledged(name: str) -> None:
    s = Script(readers=0)
    s.match(1, status_messages=name == "status message")
    s.acknack(1).acknack(1)
    assert s.write(5) == 5
    s.output()
    for _ in range(10):
        FORGED[name](s)
        s.count += STEP // 2  # nor does its count matter
    assert s.writer.counters.unsent_acknowledged == 10
    assert s.writer.counters.stale_counts == 0
    assert s.writer.unacknowledged() == {reader_guid(1): 0}, "no task succeeds for what nobody has"
    assert s.writer.history.samples == 5
    s.count = 2
    s.acknack(1, *range(1, 6))
    assert sns(s.output()) == [1, 2, 3, 4, 5], "the honest reader still gets everything"
    s.acknack(6)
    assert s.writer.unacknowledged() == {}


def test_unsent_samples_cannot_be_acknowledged() -> None:
    s = Script(readers=0)
    s.match(1, status_messages=True).acknack(1).acknack(1)
    s.status(0, 0)
    s.write(2_000, 1_000)
    s.output()
    sent = s.writer.state.sent_sn
    assert sent < 2_000
    s.acknack(2_001)
    assert s.writer.readers[reader_guid(1)].acked == 0
    s.acknack(sent + 1)
    assert s.writer.readers[reader_guid(1)].acked == sent


def test_an_acknack_below_what_was_acknowledged_brings_nothing_back() -> None:
    s = Script()
    s.write(5)
    s.acknack(6).output()
    s.acknack(1, 1, 2)
    assert s.writer.unacknowledged() == {}
    assert sns(s.output()) == []


# --- counts ------------------------------------------------------------------------------------------------


def test_forged_counts_do_not_make_honest_ones_look_old() -> None:
    counts, now = CountFilter(), 0
    honest = 100
    assert counts.accept(honest, now)
    for i in range(1_000):
        now += FORGET_NS // 100
        forged = honest + (i * 7_919 << 12) + (1 << 30)
        counts.accept(forged & 0xFFFFFFFF, now)
        honest += 1
        assert counts.accept(honest, now)
        assert not counts.accept(honest, now), "a repetition"
        assert not counts.accept(honest - 5, now)


def test_forged_counts_after_a_silence_cost_one_honest_message_at_most() -> None:
    counts, now = CountFilter(), 0
    assert counts.accept(100, now)
    for i in range(1, 6):  # more lines than are followed
        now += FORGET_NS
        assert counts.accept(100 + (i << 28), now)
    counts.accept(101, now)
    assert counts.accept(102, now)


def test_forged_counts_a_little_ahead_do_not_make_honest_ones_look_old() -> None:
    counts, now = CountFilter(), 0
    assert counts.accept(100, now)
    for honest in range(101, 1_000):
        now += FORGET_NS // 100
        for i in range(20):
            counts.accept(honest + 1_000 + i * 37, now)
        assert counts.accept(honest, now)
        assert not counts.accept(honest, now), "a repetition"


def test_a_restarted_endpoint_is_received() -> None:
    counts = CountFilter()
    assert counts.accept(50_000, 0)
    assert not counts.accept(1, FORGET_NS - 1)
    assert counts.accept(2, FORGET_NS)
    assert counts.accept(3, FORGET_NS)


def test_counts_wrap() -> None:
    counts = CountFilter()
    assert counts.accept(0xFFFFFFFF, 0)
    assert counts.accept(3, 0)
    assert not counts.accept(0xFFFFFFFE, 0)


# --- storms ------------------------------------------------------------------------------------------------


def out_bytes(s: Script) -> int:
    out = s.writer.outgoing()
    return sum(len(bytes(part)) for each in out for part in each.submessages) + HEADER_ROOM * len(out)


def storm(s: Script, ask: Callable[[], int], *, every: int, duration: int) -> tuple[int, int]:
    """Bytes in and out of a storm of what ``ask`` sends; it returns its bytes."""
    received = sent = 0
    stop = s.now + duration
    while s.now < stop:
        received += ask()
        sent += out_bytes(s)
        s.now += every
        timer = s.writer.get_timer()
        if timer is not None and timer <= s.now:
            s.writer.handle_timer(s.now)
            sent += out_bytes(s)
    return received, sent


def asking_everything(s: Script, last: int) -> Iterator[int]:
    while True:
        for first in range(1, last + 1, 256):
            s.acknack(1, *range(1, 257)) if first == 1 else s.acknack(first, *range(first, first + 256))
            yield 20 + 16 + 28 + 32


def test_a_nack_storm_costs_a_bounded_multiple() -> None:
    """1,800 ACKNACKs a second that ask for 256 samples again: 46 bytes went out for each that came in."""
    s = Script()
    s.acknack(1)
    written = s.write(256, 100) * 128
    s.output()
    asking = asking_everything(s, 256)
    received, sent = storm(s, lambda: next(asking), every=SECOND // 1_800, duration=4 * SECOND)
    bound = written * 3 // 2 + REPETITIONS_AT_ONCE + 4 * REPETITIONS_PER_SECOND
    assert sent < 1.3 * bound  # headers, and a HEARTBEAT behind each answer
    assert sent < 2.5 * received
    assert s.writer.counters.repetitions_bounded > 0
    s.now += SECOND
    s.acknack(1, 7)
    assert sns(s.output()) == [7], "whoever has been quiet for a second is answered at once"


def test_a_nack_storm_over_a_long_history_costs_a_bounded_multiple() -> None:
    s = Script(LASTING, readers=0)
    s.write(20_000, 100)
    s.match(1, transient_local=True).output()
    asking = asking_everything(s, 19_900)
    _, sent = storm(s, lambda: next(asking), every=SECOND // 1_000, duration=4 * SECOND)
    bound = s.writer.counters.written_bytes * 3 // 2 + REPETITIONS_AT_ONCE + 4 * REPETITIONS_PER_SECOND
    assert sent < 1.3 * bound


def test_scattered_requests_cost_a_bounded_multiple() -> None:
    """Every second sample is asked for: what is remembered of them is bounded, what they cost too."""
    s = Script(LASTING, readers=0)
    s.write(10_000, 100)
    s.match(1, transient_local=True).output()

    def asking() -> Iterator[int]:
        while True:
            for first in range(1, 9_000, 256):
                s.acknack(1, 1) if first == 1 else s.acknack(first, *range(first, first + 256, 2))
                yield 96

    generator = asking()
    _, sent = storm(s, lambda: next(generator), every=SECOND // 1_000, duration=SECOND)
    bound = s.writer.counters.written_bytes * 3 // 2 + REPETITIONS_AT_ONCE + REPETITIONS_PER_SECOND
    assert sent < 1.6 * bound  # single samples: each carries its own headers


def test_a_nack_frag_storm_costs_a_bounded_multiple() -> None:
    s = Script()
    s.acknack(1)
    s.write(1, 1 << 20)
    s.output()
    s.count = 0

    def ask() -> int:
        s.count += 1
        nack = NackFrag(
            reader_guid(1).entity, ME.entity, 1, FragmentNumberSet.from_numbers(1, range(1, 18)), s.count
        )
        s.writer.feedback.on_nack_frag(reader_guid(1), nack, now=s.now)
        return 20 + 16 + 40

    _, sent = storm(s, ask, every=SECOND // 1_000, duration=10 * SECOND)
    bound = (1 << 20) * 5 // 2 + REPETITIONS_AT_ONCE + 10 * REPETITIONS_PER_SECOND
    assert sent < 1.3 * bound


def test_a_storm_for_what_is_no_more_costs_a_bounded_multiple() -> None:
    s = Script(readers=0)
    s.write(1_000)
    s.match(1).acknack(1).output()
    s.write(1)
    s.output()

    def ask() -> int:
        s.acknack(1, *range(1, 257, 2))
        return 96

    received, sent = storm(s, ask, every=SECOND // 1_000, duration=2 * SECOND)
    assert sent < 3 * received


def test_a_storm_of_acknacks_that_ask_for_heartbeats() -> None:
    s = Script()
    s.write(5)
    s.output()

    def ask() -> int:
        s.acknack(1, final=False)
        return 64

    received, sent = storm(s, ask, every=SECOND // 20_000, duration=SECOND)
    heartbeats = SECOND // HEARTBEAT_ANSWER_MIN + 20
    assert sent <= heartbeats * (HEADER_ROOM + 32)
    assert sent < received / 50


def test_a_heartbeat_that_is_put_off_still_comes() -> None:
    s = Script(policy=WriterPolicy(heartbeat_period=SECOND))
    s.acknack(1, final=False)
    assert [type(each) for each in s.output()] == [Heartbeat]
    s.acknack(1, final=False).acknack(1, final=False)
    output = s.sleep(20 * MS)
    assert [(at // MS, type(each)) for at, each in output] == [(HEARTBEAT_ANSWER_MIN // MS, Heartbeat)]
    s.acknack(1, final=False)
    assert [type(each) for each in s.output()] == [Heartbeat]


def test_a_storm_of_measurements() -> None:
    s = Script()
    s.acknack(1).output()

    def ask() -> int:
        question = RttMeasurement(reader_guid(1).entity, ME.entity, s.now)
        s.writer.feedback.on_rtt_measurement(reader_guid(1), question, now=s.now)
        return 60

    received, sent = storm(s, ask, every=SECOND // 20_000, duration=SECOND)
    assert 0 < sent < received / 50


def test_a_storm_of_status_messages_is_not_answered() -> None:
    s = Script(readers=0)
    s.match(1, status_messages=True).acknack(1).acknack(1)
    s.write(5)
    s.output()

    def ask() -> int:
        s.status(s.count % 3, (s.count % 5) << 16, end=s.count % 7 == 0)
        return 64

    received, sent = storm(s, ask, every=SECOND // 10_000, duration=SECOND)
    assert sent < received / 50
