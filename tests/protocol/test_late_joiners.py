"""What a late joiner is sent by a TRANSIENT_LOCAL writer with KEEP_LAST, whatever was done to the writer before."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.intake import SampleClaim
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import DISPOSED, U8, UNREGISTERED
from tests.protocol.lossy_link import MS, SECOND, LossyLink
from tests.protocol.test_reliability import numbered
from tests.protocol.writer_script import LASTING, Script
from tests.support.campaigns import seeds

WALL = 1_700_000_000 * SECOND
KEEP_LAST = Qos(
    reliability=ReliabilityKind.RELIABLE,
    history=HistoryKind.KEEP_LAST,
    durability=DurabilityKind.TRANSIENT_LOCAL,
)
KEYED, KEYLESS = (b"\0\0\1\2", b"\0\0\2\7"), (b"\0\0\1\3", b"\0\0\2\4")


class Topic:
    """A writer, and readers that join."""

    def __init__(self, qos: Qos, *, keyed: bool = True) -> None:
        self.link = LossyLink()
        self.keyed = keyed
        node = self.link.node()
        self._writer_id, self._reader_id = KEYED if keyed else KEYLESS
        log = PublicationLog.create(1 << 20, zeroes=False)
        self.writer = StatefulWriter(Guid(node.prefix, self._writer_id), qos, log=log)
        node.writers.append(self.writer)

    def join(self, *, reliable: bool = True) -> StatefulReader:
        node = self.link.node()
        qos = replace(KEEP_LAST, history=HistoryKind.KEEP_ALL)
        if not reliable:
            qos = Qos()
        reader = StatefulReader(Guid(node.prefix, self._reader_id), qos)
        node.readers.append(reader)
        self.link.match(self.writer, reader)
        return reader

    def write(self, *keys: int, flags: int = 0, stamp: int = 0) -> None:
        """A sample of each key, of which the payload is its sequence number."""
        samples = numbered(self.writer.last_sn + 1, len(keys))
        now = self.link.now
        hashes = hashes_of(*keys) if self.keyed else None
        wall = WALL + now
        stamp = stamp or wall
        taken = self.writer.write_samples(
            samples, timestamp=stamp, now=now, flags=flags, key_hashes=hashes, wall_clock=wall
        )
        assert taken == len(keys), self.writer.state.blocked_by

    def claim(self, stamp: int = 0) -> SampleClaim:
        now = self.link.now
        claim = self.writer.claims.make(16, timestamp=stamp or WALL + now, now=now, wall_clock=WALL + now)
        assert claim is not None
        claim.data[:] = numbered(claim.sn, 1).data
        return claim

    def commit(self, claim: SampleClaim, key: int = 0) -> None:
        if claim.key_hash is not None:
            claim.key_hash[:] = hashes_of(key)
        assert self.writer.claims.commit_claim(claim, now=self.link.now)

    def abort(self, claim: SampleClaim) -> None:
        self.writer.claims.abort(claim, now=self.link.now)

    def late(self) -> list[int]:
        """What one more reader gets, once the others have all; it leaves again."""
        self.link.run(SECOND)
        reader = self.join()
        self.link.run(2 * SECOND)
        node = self.link.nodes.pop()
        self.writer.unmatch_reader(reader.guid)
        runs = node.taken.get(reader.guid, [])
        numbers = [sn for run in runs for sn in run.sequence_numbers().tolist()]
        payloads = [bytes(run.samples().payload(i)) for run in runs for i in range(run.count)]
        assert [int.from_bytes(each[4:8], "little") for each in payloads] == numbers
        return numbers


def hashes_of(*keys: int) -> U8:
    hashes = np.zeros((len(keys), 16), np.uint8)
    hashes[:, :4] = np.array(keys, ">u4").view(np.uint8).reshape(-1, 4)
    return hashes


def test_a_claim_committed_behind_many_others_is_found() -> None:
    topic = Topic(KEEP_LAST)
    topic.join(reliable=False)
    topic.write(1)
    claim = topic.claim()
    for key in range(2, 402):
        topic.write(key)
    topic.commit(claim, 1_000)
    for key in range(402, 702):
        topic.write(key)
    assert topic.late() == list(range(1, 703))


@pytest.mark.parametrize("depth", [1, 3])
def test_a_claim_committed_after_its_instance_was_unregistered_does_not_revive_it(depth: int) -> None:
    topic = Topic(replace(KEEP_LAST, history_depth=depth))
    topic.join()
    claim, other = topic.claim(), topic.claim()
    topic.write(1, flags=UNREGISTERED)
    topic.commit(claim, 1)
    topic.commit(other, 2)
    assert topic.late() == [2]
    topic.write(1)
    assert topic.late() == [2, 4]


def test_a_claim_without_key_replaces_nothing_before_it_is_committed() -> None:
    topic = Topic(KEEP_LAST, keyed=False)
    topic.join()
    topic.write(1)
    topic.link.run(SECOND)
    claim = topic.claim()
    topic.link.run(100 * MS)
    topic.abort(claim)
    assert topic.late() == [1]
    claim = topic.claim()
    topic.commit(claim)
    assert topic.late() == [3]


def test_a_claim_committed_in_an_aborted_coherent_set_is_replaced() -> None:
    topic = Topic(KEEP_LAST)
    topic.join()
    claim = topic.claim()
    topic.writer.coherent_sets.begin(now=topic.link.now)
    topic.write(2)
    topic.commit(claim, 1)
    topic.writer.coherent_sets.abort(now=topic.link.now)
    topic.write(1)
    assert topic.late() == [topic.writer.last_sn]


@pytest.mark.parametrize("seed", seeds(40))
def test_any_order_of_writes_claims_and_sets_leaves_the_newest_of_each_instance(seed: int) -> None:
    rng = random.Random(seed)
    depth, keyed, instances = rng.choice((1, 1, 2, 3)), rng.random() < 0.7, rng.choice((2, 5, 60))
    topic = Topic(replace(KEEP_LAST, history_depth=depth), keyed=keyed)
    for _ in range(rng.randrange(1, 3)):
        topic.join(reliable=rng.random() < 0.6)
    topic.link.run(SECOND)
    #: Of each number that is a sample: its instance and its flags.
    written: dict[int, tuple[int, int]] = {}
    claims: list[SampleClaim] = []
    in_set: list[int] = []
    writer = topic.writer

    def key() -> int:
        return rng.randrange(instances) if keyed else 0

    for _ in range(rng.choice((10, 60, 120))):
        what, now = rng.random(), topic.link.now
        is_open = writer.state.set_begun > 0
        if what < 0.4:
            keys = [key() for _ in range(rng.choice((1, 1, 3, 20)))]
            flags = rng.choice((0, 0, 0, 0, DISPOSED, UNREGISTERED)) if keyed else 0
            first = writer.last_sn + 1
            topic.write(*keys, flags=flags)
            numbers = range(first, first + len(keys))
            written |= {sn: (each, flags) for sn, each in zip(numbers, keys, strict=True)}
            if is_open:
                in_set += numbers
        elif what < 0.55 and not is_open:
            claims.append(topic.claim())
        elif what < 0.75 and claims:
            claim = claims.pop(rng.randrange(len(claims)))
            if rng.random() < 0.3:
                topic.abort(claim)
            else:
                written[claim.sn] = key(), 0
                topic.commit(claim, written[claim.sn][0])
        elif what < 0.8 and not is_open:
            writer.coherent_sets.begin(now=now)
            in_set = []
        elif what < 0.9 and is_open and rng.random() < 0.7:
            writer.coherent_sets.end(now=now)
        elif what < 0.9 and is_open:
            writer.coherent_sets.abort(now=now)
            for sn in in_set:
                del written[sn]
        else:
            topic.link.run(rng.choice((1, 20, 300)) * MS)
    if writer.state.set_begun:
        writer.coherent_sets.end(now=topic.link.now)
    for claim in claims:
        topic.abort(claim)
    kept: dict[int, list[int]] = {}
    for sn, (each, flags) in sorted(written.items()):
        if flags == UNREGISTERED:
            kept.pop(each, None)
        else:
            kept[each] = [*kept.get(each, []), sn][-depth:]
    assert topic.late() == sorted(sn for numbers in kept.values() for sn in numbers)


# --- LIFESPAN -------------------------------------------------------------------------------------------

LIFESPAN = 10 * SECOND
MORTAL = replace(KEEP_LAST, history=HistoryKind.KEEP_ALL, lifespan=LIFESPAN)


def test_the_lifespan_of_claimed_samples_ends_as_that_of_written_ones() -> None:
    topic = Topic(MORTAL, keyed=False)
    for _ in range(20):
        topic.commit(topic.claim())
        topic.link.run(SECOND)
    assert topic.late() == list(range(13, 21))
    assert topic.writer.history.samples < 12


@pytest.mark.parametrize("ahead", [3_600 * SECOND, -5 * SECOND])
def test_a_source_timestamp_that_is_not_now_changes_no_other_samples_lifespan(ahead: int) -> None:
    topic = Topic(MORTAL, keyed=False)
    topic.write(0, 0)
    topic.write(0, stamp=WALL + topic.link.now + ahead)
    topic.link.run(LIFESPAN // 2 - 4 * SECOND)
    topic.commit(topic.claim(stamp=WALL + topic.link.now + ahead))
    assert topic.late() == [1, 2, 3, 4]
    topic.link.run(LIFESPAN)
    topic.write(0)
    assert topic.late() == ([3, 4, 5] if ahead > 0 else [5])


def test_a_source_timestamp_far_ahead_does_not_keep_later_samples() -> None:
    topic = Topic(MORTAL, keyed=False)
    topic.write(0, stamp=WALL + 10**6 * SECOND)
    for _ in range(1_000):
        topic.write(0)
        topic.link.run(SECOND)
    assert topic.writer.history.samples < 300


def test_a_source_timestamp_far_ahead_does_not_use_up_max_samples() -> None:
    topic = Topic(replace(MORTAL, max_samples=8), keyed=False)
    topic.join()
    topic.write(0, stamp=WALL + 10**6 * SECOND)
    for _ in range(20):
        topic.write(0)
        topic.link.run(LIFESPAN // 3)


# --- memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("bound", [{"max_samples": 100}, {"lifespan": LIFESPAN}])
def test_instances_of_which_nothing_is_held_are_forgotten(depth: int, bound: dict[str, int]) -> None:
    topic = Topic(replace(KEEP_LAST, history_depth=depth, **bound))
    for i in range(100):
        topic.write(*range(100 * i, 100 * i + 100))
        topic.link.run(10 * SECOND)
    keep_last = topic.writer.history.keep_last
    assert keep_last is not None
    assert len(keep_last._newest) + len(keep_last._instances) < 5_000


@pytest.mark.parametrize("keyed", [False, True])
def test_nothing_is_left_of_coherent_sets_that_are_sent(keyed: bool) -> None:
    topic = Topic(KEEP_LAST, keyed=keyed)
    sets, keep_last = topic.writer.coherent_sets, topic.writer.history.keep_last
    topic.join()
    assert keep_last is not None
    for _ in range(100):
        sets.begin(now=topic.link.now)
        topic.write(1)
        sets.end(now=topic.link.now)
        topic.link.run(10 * MS)
    assert len(topic.writer.state.sets) == 1 and len(keep_last._hollow) <= 1


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
def test_instances_noted_twice_replace_no_more_samples(depth: int, together: bool) -> None:
    """An exception may come while instances are noted; they are then noted from the beginning."""
    writer = Script(replace(LASTING, history=HistoryKind.KEEP_LAST, history_depth=depth)).writer
    keep_last = writer.history.keep_last
    assert keep_last is not None
    writer.state.last_sn = depth
    count = depth if together else 1
    for first_sn in range(1, depth + 1, count):
        for _ in range(2):
            keep_last.note_instances(first_sn, np.zeros((count, 16), np.uint8), 0)
    assert [each.size for each in keep_last.take_replaced(depth)] == [0, 0]
