"""GSO buffers of batches: a writer that frames and keeps them together against one that does each batch by itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from spark_rtps.transport.limits import GSO_MESSAGES_MAX, MESSAGE_SIZE_MAX
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.participant.packing import pack
from spark_rtps.transport.protocol.policies import BatchPolicy, BatchWire, Compression, WriterPolicy
from spark_rtps.transport.protocol.writing.changes import Change, GsoBatchContent
from spark_rtps.transport.qos import HistoryKind, Qos
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.compressed import COMPRESSED
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import AckNackBatch
from tests.protocol.batch_scene import BATCH, DATA, DATA_BATCH, GAP, Scene, numbers, samples
from tests.protocol.writer_script import LASTING, ME, MS, RELIABLE, Script, reader_guid, where
from tests.support.campaigns import seeds
from tests.support.virtual_network import MILLISECOND

INFO_TS, HEARTBEATS = 0x09, (0x07, 0x19)
SMALL = BatchPolicy(enable=True, max_data_bytes=400)


class Batching(Script):
    """A writer with readers of batches; ``gso_buffers`` False: each batch is framed and kept by itself."""

    def __init__(self, *, gso_buffers: bool = True, paced: bool = False, **options: object) -> None:
        options.setdefault("batch", SMALL)
        super().__init__(readers=0, **options)
        if not gso_buffers:
            self.writer._framer.together = lambda pending: pending.apart()  # type: ignore[method-assign]
        self.join(1, status_messages=paced)
        self.writer.outgoing()

    def join(
        self,
        i: int,
        *,
        batches: bool = True,
        status_messages: bool = False,
        lasting: bool = False,
        message_size_max: int = MESSAGE_SIZE_MAX,
        codecs: frozenset[str] = frozenset(),
    ) -> None:
        info = ReaderInfo(
            reader_guid(i),
            (where(i),),
            (),
            True,
            lasting,
            batches=batches,
            status_messages=status_messages,
            message_size_max=message_size_max,
            codecs=codecs,
        )
        self.writer.match_reader(info, now=self.now)

    def acknack_batch(self, base: int, *missing: int, i: int = 1, final: bool = True) -> None:
        self.count += 1
        wanted = SequenceNumberSet.from_numbers(base, missing)
        acknack = AckNackBatch(reader_guid(i).entity, ME.entity, wanted, self.count, final)
        self.writer.feedback.on_acknack_batch(reader_guid(i), acknack, now=self.now)

    def packets(self) -> list[tuple[bytes, bytes]]:
        """What was sent of samples, in order: the INFO_TS in force, and the submessage. Of HEARTBEATs nothing, which
        ride in a datagram or alone."""
        found = []
        for datagrams in pack(ME.prefix, self.writer.outgoing()):
            for message in datagrams.messages():
                stamp = b""
                for kind, _, start, stop in iter_submessages(memoryview(message)):
                    if kind == INFO_TS:
                        stamp = message[start:stop]
                    elif kind not in (*HEARTBEATS, 0x0E):
                        found.append((stamp, message[start - 4 : stop]))
        return found

    def changes(self) -> list[Change]:
        """What is held; each batch by itself."""
        return [
            part
            for change in self.writer.history.changes()
            for part in (change.apart() if isinstance(change.content, GsoBatchContent) else (change,))
        ]

    @property
    def gso_buffers_held(self) -> int:
        return sum(isinstance(change.content, GsoBatchContent) for change in self.writer.history.changes())


def kinds(packets: list[tuple[bytes, bytes]]) -> Counter[int]:
    return Counter(packet[0] for _, packet in packets)


def block_of(random: Random, count: int) -> Samples:
    size = 4 * random.randint(1, 30)
    rows = np.frombuffer(random.randbytes(count * (4 + size)), np.uint8).copy().reshape(count, -1)
    rows[:, :3] = (0, 1, 0)
    rows[:, 3] = 0
    return Samples.uniform(rows.reshape(-1), count, 4 + size)


def policy_of(random: Random) -> BatchPolicy:
    return BatchPolicy(
        enable=True,
        max_data_bytes=random.choice([100, 400, 2_000, INFINITE]),
        max_samples=random.choice([INFINITE, 1, 7, 30]),
        disable_inline_keyhash=random.random() < 0.3,
        auto_flush_size=random.choice([INFINITE, 700]),
        source_timestamp_resolution=random.choice([INFINITE, 0]),
        compression_threshold=INFINITE,
    )


def twins(random: Random, with_log: bool) -> list[Batching]:
    """The same writer twice: with GSO buffers, and with each batch by itself."""
    depth = random.choice([0, 0, 3, 40])
    qos: Qos = replace(
        random.choice([RELIABLE, LASTING]),
        history=HistoryKind.KEEP_LAST if depth else HistoryKind.KEEP_ALL,
        history_depth=depth or 1,
        lifespan=random.choice([INFINITE, INFINITE, 40 * MS]),
    )
    batch, message_size = policy_of(random), random.choice([64_512, 1_400, 9_000])
    return [
        Batching(
            gso_buffers=gso_buffers,
            qos=qos,
            batch=batch,
            message_size=message_size,
            policy=WriterPolicy(max_repair_bytes=1 << 26),
            log=PublicationLog.create(1 << 20) if with_log else None,
        )
        for gso_buffers in (True, False)
    ]


def answers(it: Batching, random: Random) -> list[object]:
    """What a writer and its history say of themselves."""
    history, state = it.writer.history, it.writer.state
    last, last_batch = state.last_sn, state.last_batch_sn
    output: list[object] = [last, last_batch, state.sent_batch_sn, history.samples, history.batches]
    output += [history.first_sn, history.capacity, it.writer.window.samples, it.writer.unacknowledged()]
    for _ in range(6):
        output.append(history.held_batches.first_from(random.randint(1, last + 2)))
        base = random.randint(1, last_batch + 2)
        missing = [sn for sn in range(base, base + 9) if random.random() < 0.4]
        wanted = history.held_batches.missing_samples(
            SequenceNumberSet.from_numbers(base, missing), random.randint(0, last)
        )
        covered = {sn for first, stop in wanted.spans for sn in range(first, stop + 1)}
        output += [wanted.base, covered]
    output += [
        (change.first_sn, change.last_sn, change.batch_sn, bytes(change.content.data))
        for change in it.changes()
    ]
    return output


@pytest.mark.parametrize("with_log", [False, True])
@pytest.mark.parametrize("seed", seeds(25))
def test_a_gso_buffer_equals_separate_batches(seed: int, with_log: bool) -> None:
    random = Random(seed)
    pair = twins(random, with_log)
    keyed = random.random() < 0.4
    for step in range(25):
        action, choice = (
            random.choice(["write"] * 4 + ["acknack"] * 3 + ["data", "time", "flush"]),
            random.random(),
        )
        count = random.choice([1, 20, 60, 300])
        block, hashes = block_of(random, count), None
        if keyed:
            hashes = np.zeros((count, 16), np.uint8)
            hashes[:, 0] = [random.randrange(3) for _ in range(count)]
        shared = random.random()
        for it in pair:
            own, last = Random(shared), it.writer.state.sent_batch_sn
            if action == "write":
                it.now += MS
                taken = it.writer.write_samples(block, timestamp=it.now, now=it.now, key_hashes=hashes)
                assert taken == count
            elif action == "acknack":
                base = own.randint(max(1, last - 40), last + 1)
                missing = [sn for sn in range(base, min(base + 30, last + 1)) if own.random() < 0.2]
                it.now += 20 * MS
                it.acknack_batch(base, *missing)
            elif action == "data":  # of samples: they may end within a batch
                base = own.randint(1, it.writer.state.sent_sn + 1)
                it.now += 20 * MS
                it.acknack(base, *([base] if base <= it.writer.state.sent_sn else []))
            elif action == "time":
                it.now += int(choice * 60) * MS
                it.writer.handle_timer(it.now)
            else:
                it.writer.flush_batch(now=it.now)
        assert pair[0].packets() == pair[1].packets(), (step, action)
        assert answers(pair[0], Random(shared)) == answers(pair[1], Random(shared)), (step, action)


def same(pair: list[Batching]) -> None:
    """Both writers say the same, and hold the same."""
    assert pair[0].packets() == pair[1].packets()
    assert answers(pair[0], Random(1)) == answers(pair[1], Random(1))


def test_instances_whose_samples_are_replaced_from_within_a_batch_on() -> None:
    qos = replace(LASTING, history=HistoryKind.KEEP_LAST, history_depth=25)
    pair = [Batching(gso_buffers=gso_buffers, qos=qos) for gso_buffers in (True, False)]
    hashes = np.zeros((1_000, 16), np.uint8)
    hashes[2:, 0] = 1  # the first two are all there is of an instance
    for it in pair:
        it.write(1_000, key_hashes=hashes)
        assert it.gso_buffers_held == (it is pair[0])
        it.acknack_batch(41)
        assert it.writer.history.samples == 27
    same(pair)


def test_a_gso_buffer_beyond_max_samples_goes_batch_by_batch() -> None:
    qos = replace(LASTING, history=HistoryKind.KEEP_LAST, history_depth=1_000, max_samples=100)
    pair = [Batching(gso_buffers=gso_buffers, qos=qos) for gso_buffers in (True, False)]
    for it in pair:
        it.write(140, key_hashes=np.zeros((140, 16), np.uint8))
        assert it.gso_buffers_held == (it is pair[0])
        it.writer.flush_batch(now=it.now)
        it.acknack_batch(7)
        assert it.writer.history.samples == 90
    same(pair)


def test_a_lifespan_that_is_over_at_once() -> None:
    pair = [
        Batching(gso_buffers=gso_buffers, qos=replace(RELIABLE, lifespan=0)) for gso_buffers in (True, False)
    ]
    for it in pair:
        it.write(1_000)
        assert it.writer.history.samples == 0
    same(pair)


def test_gso_buffer_samples_go_in_fragments_to_a_small_message_reader() -> None:
    pair = [
        Batching(gso_buffers=gso_buffers, qos=LASTING, batch=replace(SMALL, max_data_bytes=8_000))
        for gso_buffers in (True, False)
    ]
    for it in pair:
        it.write(40, 3_000)
        it.packets()
        it.join(2, lasting=True, message_size_max=1_000)
        it.now += 100 * MS
        it.nack_frag(6, 2, 3, i=2)
        assert it.writer.counters.repaired_fragments == 2
    same(pair)


def test_gso_buffers_fit_the_frames_of_a_small_log() -> None:
    pair = [
        Batching(gso_buffers=gso_buffers, log=PublicationLog.create(64 << 10))
        for gso_buffers in (True, False)
    ]
    for it in pair:
        it.write(700)
        assert it.gso_buffers_held == 2 * (it is pair[0]), "a frame has an eighth of a term"
    same(pair)


def test_a_large_write_is_a_few_changes() -> None:
    s = Batching()
    s.write(10_000)
    batches = 10_000 // 25 - 1  # the last one may become fuller
    assert s.gso_buffers_held == -(-batches // GSO_MESSAGES_MAX)
    assert kinds(s.packets()) == {DATA_BATCH: 400}


def test_acknowledged_parts_of_a_gso_buffer_are_freed_without_unpacking() -> None:
    s = Batching()
    s.write(1_000)  # 39 batches in a GSO buffer, and one by itself
    s.packets()
    s.acknack_batch(11)
    assert (s.gso_buffers_held, s.writer.history.batches, s.writer.history.first_sn) == (1, 30, 251)
    assert s.writer.history.held_batches.first_from(1) == 11
    s.acknack_batch(38)
    (first, second) = s.writer.history.changes()
    assert (first.count, first.batch_sn, second.batch_sn) == (50, 39, 40)
    s.acknack_batch(41)
    assert (s.writer.history.samples, s.writer.history.nbytes, s.writer.window.nbytes) == (0, 0, 0)


def test_small_rests_do_not_keep_whole_gso_buffers_in_memory() -> None:
    s = Batching()
    s.write(1_000)
    s.acknack_batch(38)
    (rest, _) = s.writer.history.changes()
    assert rest.content.data.base is None or rest.content.data.base.nbytes <= 4 * rest.content.data.nbytes


def test_one_batch_of_a_gso_buffer_is_repaired_alone() -> None:
    s = Batching()
    s.write(1_000)
    before = s.packets()
    s.now += 100 * MS
    s.acknack_batch(1, 7, 9)
    again = s.packets()
    readers = [each[:8] + bytes(4) + each[12:] for _, each in again]  # they name the reader that asks
    assert readers == [before[6][1], before[8][1]]
    assert s.writer.counters.repaired_samples == 50


def test_a_requested_batch_256_samples_behind_the_base_is_repaired_alone() -> None:
    """An ACKNACK that requests the last of its 256 numbers gets what follows, too. An ACKNACK_BATCH has 256 batches."""
    pair = [
        Batching(gso_buffers=gso_buffers, batch=replace(SMALL, max_samples=16))
        for gso_buffers in (True, False)
    ]
    for it in pair:
        it.write(1_000)
        it.packets()
        it.now += 100 * MS
        it.acknack_batch(1, 16)
        assert it.writer.counters.repaired_samples == 16
    same(pair)


def test_a_data_reader_that_joins_while_a_gso_buffer_waits_is_sent_data() -> None:
    s = Batching(paced=True)
    s.acknack(1).status(0, 2_000)
    s.write(1_000)
    first = s.packets()
    assert kinds(first)[DATA_BATCH] == 3, "as many messages as the window holds"
    s.join(2, batches=False)
    s.acknack(1, i=2)
    s.status(75, 1 << 20)
    sent = s.packets()
    assert kinds(sent) == {DATA_BATCH: 37, DATA: 925}
    assert s.writer.positions.snd_pos == s.writer.positions.pub_pos


def test_a_gso_buffer_is_divided_where_the_window_ends() -> None:
    s = Batching(paced=True)
    s.acknack(1).status(0, 2_000)
    s.write(1_000)
    assert (s.writer.state.sent_sn, s.writer.state.sent_batch_sn) == (75, 3)
    s.packets()
    s.status(75, 4_000)
    assert s.writer.state.sent_batch_sn == s.writer.state.sent_sn // 25 > 3
    assert len(s.packets()) == s.writer.state.sent_batch_sn - 3
    s.status(s.writer.state.sent_sn, 1 << 20)
    assert (
        len(s.packets()) == 40 - s.writer.state.sent_batch_sn + len([]) or s.writer.state.sent_batch_sn == 40
    )


@pytest.mark.parametrize("how", ["compressed", "data", "windowed", "mixed"])
def test_samples_checked_batch_by_batch_are_not_sent_by_gso(how: str) -> None:
    batch, policy = SMALL, WriterPolicy()
    if how == "data":
        batch = replace(SMALL, wire=BatchWire.DATA)
    if how == "compressed":
        batch = replace(SMALL, compression=Compression.LZ4, compression_threshold=0)
    if how == "windowed":
        policy = WriterPolicy(min_send_window_size=256, max_send_window_size=256)
    s = Batching(batch=batch, policy=policy)
    if how == "mixed":
        s.join(2, batches=False)
        s.acknack(1, i=2)
    if how == "compressed":
        s.join(2, codecs=frozenset({"lz4"}))
        s.acknack(1, i=2)
    s.write(1_000)
    assert s.gso_buffers_held == 0
    assert (COMPRESSED in kinds(s.packets())) == (how == "compressed")
    assert s.writer.last_sn + s.writer.intake.count == 1_000


@pytest.mark.parametrize("seed", range(4))
def test_gso_buffers_arrive_once_and_in_order_under_loss(seed: int) -> None:
    scene = Scene(
        replace(BATCH, max_data_bytes=400), seed=seed, loss=0.2, duplicates=0.1, jitter=3 * MILLISECOND
    )
    scene.join()
    gso_buffers = 0
    for block in range(10):
        scene.write(samples(block * 900, 900))
        held = scene.writer.history.changes()
        gso_buffers += sum(isinstance(change.content, GsoBatchContent) for change in held)
        scene.run(2 * MILLISECOND)
    scene.settle()
    assert gso_buffers
    assert numbers(scene.taken[0]) == list(range(9_000))
    assert scene.kinds()[GAP] == 0
