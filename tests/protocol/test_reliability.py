"""Writer and reader over a bad network: every reliable sample once, in order, for thousands of seeds."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.protocol.policies import ReaderPolicy, WriterPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import INFINITE, Guid
from spark_rtps.transport.wire.samples import Samples
from tests.protocol.lossy_link import MS, SECOND, LossyLink, Node

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
LASTING = replace(RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL)
BEST_EFFORT = Qos()
WRITER, READER = b"\x00\x00\x01\x03", b"\x00\x00\x02\x04"


def numbered(first: int, count: int, size: int = 16) -> Samples:
    """``count`` payloads of ``size`` bytes: an encapsulation header, their number, and padding."""
    rows = np.zeros((count, size), np.uint8)
    rows[:, 1] = 1
    rows[:, 4:8] = np.arange(first, first + count, dtype="<u4").view(np.uint8).reshape(count, 4)
    rows[:, 8:] = rows[:, 4:5]
    return Samples.uniform(rows.reshape(-1), count, size)


def ragged(first: int, count: int, rng: random.Random, largest: int) -> Samples:
    lengths = np.array([8 + 4 * rng.randrange(largest // 4) for _ in range(count)], np.int64)
    offsets = np.cumsum(lengths) - lengths
    data = np.zeros(int(lengths.sum()), np.uint8)
    for i, offset in enumerate(offsets.tolist()):
        data[offset + 4 : offset + 8] = np.array([first + i], "<u4").view(np.uint8)
        data[offset + 8 : offset + lengths[i]] = (first + i) & 0xFF
    return Samples.ragged(data, offsets, lengths)


def received(node: Node, reader: StatefulReader, writer: Guid | None = None) -> list[int]:
    """The numbers of the samples taken, in order; checks sequence numbers and payloads on the way."""
    numbers: list[int] = []
    for run in node.taken.get(reader.guid, []):
        if writer is not None and run.writer != writer:
            continue
        samples = run.samples()
        for i in range(samples.count):
            payload = bytes(samples.payload(i))
            number = int.from_bytes(payload[4:8], "little")
            assert set(payload[8:]) <= {number & 0xFF}
            numbers.append(number)
    return numbers


def sequence_numbers(node: Node, reader: StatefulReader) -> list[int]:
    runs = node.taken.get(reader.guid, [])
    return [sn for run in runs for sn in range(run.first_sn, run.last_sn + 1)]


class Feed:
    """Writes a supply of samples as the window lets it."""

    def __init__(self, link: LossyLink, writer: StatefulWriter, batches: list[Samples]) -> None:
        self.link, self.writer, self.batches = link, writer, batches

    def __call__(self) -> None:
        while self.batches:
            samples = self.batches[0]
            taken = self.writer.write_samples(samples, timestamp=self.link.now, now=self.link.now)
            if taken < samples.count:
                self.batches[0] = samples.take_range(taken, samples.count)
                return
            self.batches.pop(0)


def pair(link: LossyLink, **writer_options: object) -> tuple[Node, Node, StatefulWriter, StatefulReader]:
    a, b = link.node(), link.node()
    writer = StatefulWriter(Guid(a.prefix, WRITER), RELIABLE, **writer_options)
    reader = StatefulReader(Guid(b.prefix, READER), RELIABLE)
    a.writers.append(writer)
    b.readers.append(reader)
    return a, b, writer, reader


SMALL_WINDOW = WriterPolicy(send_window_bytes=4096, max_bytes_per_nack_response=2048, max_repair_bytes=8192)


@pytest.mark.parametrize("block", range(20))
def test_all_arrives_once_and_in_order(block: int) -> None:
    for seed in range(block * 75, block * 75 + 75):
        rng = random.Random(seed)
        link = LossyLink(
            seed,
            loss=rng.choice((0.0, 0.05, 0.3)),
            duplicate=rng.choice((0.0, 0.2)),
            delay=rng.choice(((50_000, 50_000), (10_000, 4_000_000))),
        )
        _, b, writer, reader = pair(link, policy=SMALL_WINDOW, message_size=rng.choice((400, 1400)))
        writer.qos = RELIABLE
        link.match(writer, reader)
        sizes = [rng.randrange(1, 40) for _ in range(5)]
        firsts = [sum(sizes[:i]) for i in range(5)]
        batches = [
            numbered(first, count)
            if rng.random() < 0.5
            else ragged(first, count, rng, rng.choice((40, 600)))  # 600 does not fit 400: fragments
            for first, count in zip(firsts, sizes, strict=True)
        ]
        feed = Feed(link, writer, batches)
        total = sum(sizes)

        def done(
            feed: Feed = feed,
            writer: StatefulWriter = writer,
            reader: StatefulReader = reader,
            total: int = total,
        ) -> bool:
            finished = reader.counters.received_samples >= total
            return not feed.batches and finished and not writer.unacknowledged()

        link.run(60 * SECOND, each=feed, until=done)
        assert received(b, reader) == list(range(total)), seed
        assert sequence_numbers(b, reader) == list(range(1, total + 1)), seed
        assert reader.counters.lost_samples == 0
        assert writer.unacknowledged_bytes == 0
        assert writer.history.samples == writer.history.nbytes == 0
        proxy = reader.writers[writer.guid]
        assert not proxy.held
        assert not proxy.fragments
        assert reader.delivery.reassembly.budget.nbytes == 0
        link.run(5 * SECOND)
        assert writer.get_timer() is None, "nothing is left to say"
        assert reader.get_timer() is None
        assert received(b, reader) == list(range(total)), seed


def test_two_writers_two_readers() -> None:
    for seed in range(40):
        link = LossyLink(seed, loss=0.2, duplicate=0.1, delay=(10_000, 2_000_000))
        nodes = [link.node() for _ in range(4)]
        writers = [StatefulWriter(Guid(n.prefix, WRITER), RELIABLE, policy=SMALL_WINDOW) for n in nodes[:2]]
        readers = [StatefulReader(Guid(n.prefix, READER), RELIABLE) for n in nodes[2:]]
        for node, writer in zip(nodes, writers, strict=False):
            node.writers.append(writer)
        for node, reader in zip(nodes[2:], readers, strict=True):
            node.readers.append(reader)
        for writer in writers:
            for reader in readers:
                link.match(writer, reader)
        feeds = [Feed(link, writer, [numbered(0, 300)]) for writer in writers]
        link.run(30 * SECOND, each=lambda feeds=feeds: [feed() for feed in feeds] and None)  # type: ignore[misc]
        for node, reader in zip(nodes[2:], readers, strict=True):
            for writer in writers:
                assert received(node, reader, writer.guid) == list(range(300)), seed


def test_a_large_sample_through_loss() -> None:
    link = LossyLink(3, loss=0.1)
    _, b, writer, reader = pair(link)
    link.match(writer, reader)
    payload = np.random.default_rng(1).integers(0, 256, 16 << 20, np.uint8)
    payload[:4] = (0, 1, 0, 0)
    feed = Feed(link, writer, [Samples.uniform(payload, 1, payload.nbytes)])
    link.run(20 * SECOND, each=feed, until=lambda: reader.counters.received_samples == 1)
    (run,) = b.taken[reader.guid]
    assert run.count == 1
    assert np.array_equal(run.data, payload)
    assert writer.counters.repaired_fragments < 200, "only what is lost is sent again"


def test_a_fast_link_needs_no_repair() -> None:
    link = LossyLink(1)
    _, b, writer, reader = pair(link)
    link.match(writer, reader)
    feed = Feed(link, writer, [numbered(0, 200_000, 64)])
    link.run(20 * SECOND, each=feed, until=lambda: reader.counters.received_samples == 200_000)
    assert sequence_numbers(b, reader) == list(range(1, 200_001))
    assert writer.counters.repaired_samples == 0
    assert reader.counters.held_samples == 0
    assert link.now - SECOND < 20 * MS, "acknowledgements keep the window open"


def test_one_lost_datagram_costs_little() -> None:
    link = LossyLink(1)
    _, b, writer, reader = pair(link)
    link.match(writer, reader)
    link.run(10 * MS)
    dropped = []

    def lose_third_large(sender: Node, message: bytes) -> bool:
        if len(message) > 60_000:
            dropped.append(message)
            return len(dropped) != 3
        return True

    link.filter = lose_third_large
    feed = Feed(link, writer, [numbered(0, 100_000, 64)])
    start = link.now
    link.run(20 * SECOND, each=feed, until=lambda: reader.counters.received_samples == 100_000)
    assert sequence_numbers(b, reader) == list(range(1, 100_001))
    assert writer.counters.repaired_samples < 1_600, "about the datagram, which holds 730"
    assert link.now - start < 50 * MS


def test_late_joiner_gets_history() -> None:
    for seed in range(30):
        link = LossyLink(seed, loss=0.2, delay=(10_000, 1_000_000))
        a, b = link.node(), link.node()
        writer = StatefulWriter(Guid(a.prefix, WRITER), LASTING, message_size=1400)
        early = StatefulReader(Guid(b.prefix, READER), LASTING)
        late = StatefulReader(Guid(b.prefix, b"\x00\x00\x03\x04"), LASTING)
        volatile = StatefulReader(Guid(b.prefix, b"\x00\x00\x04\x04"), RELIABLE)
        a.writers.append(writer)
        b.readers += [early, late, volatile]
        link.match(writer, early)
        Feed(link, writer, [numbered(0, 2000)])()
        link.run(SECOND)
        link.match(writer, late)
        link.match(writer, volatile)
        link.run(
            20 * SECOND,
            until=lambda w=writer, v=volatile: w.readers[v.guid].is_ready,  # type: ignore[misc]
        )
        Feed(link, writer, [numbered(2000, 50)])()
        link.run(20 * SECOND)
        assert received(b, early) == list(range(2050)), seed
        assert received(b, late) == list(range(2050)), seed
        recent = received(b, volatile)
        assert recent[-50:] == list(range(2000, 2050)), seed
        assert recent == list(range(recent[0], 2050))
        assert not writer.unacknowledged()


def test_late_joiner_of_keep_last_by_instance() -> None:
    link = LossyLink(5, loss=0.1)
    a, b = link.node(), link.node()
    qos = replace(LASTING, history=HistoryKind.KEEP_LAST, history_depth=2)
    writer = StatefulWriter(Guid(a.prefix, WRITER), qos)
    reader = StatefulReader(Guid(b.prefix, READER), LASTING)
    a.writers.append(writer)
    b.readers.append(reader)
    hashes = np.zeros((1000, 16), np.uint8)
    hashes[:, 0] = np.arange(1000) % 7
    hashes[500:510, 0] = 99
    assert writer.write_samples(numbered(0, 1000), timestamp=1, now=link.now, key_hashes=hashes) == 1000
    assert writer.write_samples(numbered(1000, 1), timestamp=2, now=link.now, key_hashes=hashes[:1]) == 1
    link.match(writer, reader)
    link.run(5 * SECOND)
    newest = [i for i in range(1000) if i >= 1000 - 14 and i != 987]  # instance 0: 994 and 1000
    expected = sorted([508, 509, *[i for i in newest if i % 7 or i >= 994], 1000])
    got = received(b, reader)
    assert got == expected
    assert reader.counters.lost_samples == 0
    assert writer.history.samples == 16
    assert writer.history.nbytes < 16 * 80


def test_resume_goes_on_after_what_was_delivered() -> None:
    link = LossyLink(2)
    a, b, writer, reader = pair(link)
    link.match(writer, reader)
    Feed(link, writer, [numbered(0, 100)])()
    link.run(SECOND)
    # The process dies; what is written now is lost. Its successor has the same GUID and knows what it logged.
    link.filter = lambda sender, message: False
    Feed(link, writer, [numbered(100, 50)])()
    link.run(SECOND)
    link.filter = lambda sender, message: True
    b.readers[:] = [StatefulReader(reader.guid, RELIABLE, resume={writer.guid: 80})]
    successor = b.readers[0]
    link.match(writer, successor)
    link.run(5 * SECOND)
    numbers = received(b, successor)
    assert numbers[:100] == list(range(100))
    assert numbers[100:] == list(range(100, 150)), (
        "80..99 were acknowledged, hence gone: counted, not repeated"
    )
    assert successor.counters.irrelevant_samples + successor.counters.lost_samples == 20
    assert not writer.unacknowledged()
    del a


def test_a_closed_window_holds_the_writer_back_and_opens_at_once() -> None:
    link = LossyLink(4)
    _, b, writer, reader = pair(link, policy=WriterPolicy(send_window_bytes=1 << 16))
    link.match(writer, reader)
    reader.window = 100_000
    feed = Feed(link, writer, [numbered(0, 20_000)])
    link.run(3 * SECOND, each=feed)
    held_back_at = reader.counters.received_samples
    assert 0 < held_back_at * 40 <= 100_000
    assert feed.batches, "the writer feels it"
    assert reader.counters.window_closed > 0
    assert reader.counters.nacks_sent == 0, "nothing is requested while closed"
    reader.window = 1 << 30
    assert reader.get_timer() == 0
    start = link.now
    link.run(SECOND, each=feed, until=lambda: reader.counters.received_samples == 20_000)
    assert link.now - start < 100 * MS
    assert received(b, reader) == list(range(20_000))


def test_best_effort_delivers_in_order_and_counts_what_is_lost() -> None:
    link = LossyLink(6, loss=0.2, duplicate=0.1, delay=(10_000, 200_000))
    a, b = link.node(), link.node()
    writer = StatefulWriter(Guid(a.prefix, WRITER), RELIABLE, message_size=1400)
    reader = StatefulReader(Guid(b.prefix, READER), BEST_EFFORT)
    a.writers.append(writer)
    b.readers.append(reader)
    link.match(writer, reader)
    for i in range(200):
        writer.write_samples(numbered(10 * i, 10), timestamp=link.now, now=link.now)
        link.run(100_000)
    link.run(SECOND)
    numbers = received(b, reader)
    assert numbers == sorted(set(numbers))
    assert 100 < len(numbers) < 2000
    sns = sequence_numbers(b, reader)
    assert reader.counters.lost_samples == sns[-1] - sns[0] + 1 - len(sns)
    assert writer.get_timer() is None
    assert writer.history.samples == 0
    assert link.datagrams == 200, "no heartbeats, no acknowledgements"


def test_a_reader_that_vanishes_blocks_until_it_is_unmatched() -> None:
    link = LossyLink(7)
    a, b, writer, reader = pair(link, policy=SMALL_WINDOW)
    link.match(writer, reader)
    link.run(10 * MS)
    link.filter = lambda sender, message: sender is a
    feed = Feed(link, writer, [numbered(0, 1000)])
    link.run(20 * SECOND, each=feed)
    assert feed.batches
    fast = 20 * SECOND // writer.policy.fast_heartbeat_period
    assert fast <= writer.counters.heartbeats_sent <= fast + 10, "the window is full: as fast as allowed"
    assert list(writer.unacknowledged()) == [reader.guid]
    writer.unmatch_reader(reader.guid)
    feed()
    assert not feed.batches
    assert writer.unacknowledged() == {}
    assert writer.history.samples == 0
    assert writer.get_timer() is None
    del b


def test_a_writer_that_comes_back_after_a_partition_repeats_nothing() -> None:
    link = LossyLink(8)
    a, b = link.node(), link.node()
    writer = StatefulWriter(Guid(a.prefix, WRITER), LASTING)
    reader = StatefulReader(Guid(b.prefix, READER), LASTING)
    a.writers.append(writer)
    b.readers.append(reader)
    link.match(writer, reader)
    Feed(link, writer, [numbered(0, 100)])()
    link.run(SECOND)
    writer.unmatch_reader(reader.guid)
    reader.unmatch_writer(writer.guid)
    Feed(link, writer, [numbered(100, 100)])()
    link.match(writer, reader)
    link.run(SECOND)
    assert received(b, reader) == list(range(200))


def test_preemptive_acknacks_back_off_and_end_with_the_first_heartbeat() -> None:
    link = LossyLink(9)
    _, _, writer, reader = pair(link)
    link.match(writer, reader, only="reader")
    link.run(20 * SECOND)
    assert 8 <= reader.counters.acknacks_sent <= 14
    link.match(writer, reader, only="writer")
    link.run(4 * SECOND)
    assert writer.readers[reader.guid].is_ready
    assert reader.get_timer() is None
    assert reader.counters.heartbeats >= 1


def test_policies_are_reasonable() -> None:
    policy = ReaderPolicy()
    assert policy.nack_delay < policy.reorder_delay < policy.round_trip_time < policy.nack_period


def drawn(rng: random.Random) -> WriterPolicy:
    """Any policy that makes some sense."""
    low = rng.choice((INFINITE, 1, 3, 10))
    high = rng.choice((INFINITE, 10, 40)) if low < INFINITE else rng.choice((INFINITE, 5))
    period = rng.choice((1, 20, 100)) * MS
    return WriterPolicy(
        heartbeat_period=period,
        fast_heartbeat_period=rng.choice((1, 10)) * MS,
        low_watermark=rng.choice((0, 2)),
        high_watermark=rng.choice((INFINITE, 3, 8)),
        heartbeats_per_max_samples=rng.choice((0, 1, 8, 40)),
        max_heartbeat_retries=rng.choice((INFINITE, 60 * SECOND // period)),
        min_send_window_size=low,
        max_send_window_size=high,
        send_window_update_period=rng.choice((1, 50)) * MS,
        send_window_bytes=rng.choice((1_000, 4 << 20)),
        min_nack_response_delay=rng.choice((0, 3 * MS)),
        max_nack_response_delay=rng.choice((0, 5 * MS, 50 * MS)),
        max_bytes_per_nack_response=rng.choice((1, 500, 1 << 18)),
        max_samples_per_repair=rng.choice((1, 5, 32)),
        max_repair_bytes=rng.choice((500, 4 << 20)),
    )


@pytest.mark.parametrize("block", range(10))
def test_all_arrives_under_any_policy(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        rng = random.Random(seed)
        link = LossyLink(seed, loss=rng.choice((0.0, 0.1, 0.3)), delay=(10_000, 4_000_000))
        _, b, writer, reader = pair(link, policy=drawn(rng), message_size=rng.choice((400, 1400)))
        link.match(writer, reader)
        batches = [numbered(0, 60), numbered(60, 1, 2_000), numbered(61, 1), numbered(62, 60)]
        feed = Feed(link, writer, batches)
        link.run(
            300 * SECOND,
            each=feed,
            until=lambda f=feed, w=writer: not f.batches and not w.unacknowledged(),  # type: ignore[misc]
        )
        assert received(b, reader) == list(range(122)), seed
        assert writer.window.samples == writer.window.nbytes == 0
        assert writer.history.samples == 0
        assert writer.counters.unacknowledged_samples == 0
        assert writer.activity.take_events() == []
        link.run(5 * SECOND)
        assert writer.get_timer() is None, "nothing is left to say"
