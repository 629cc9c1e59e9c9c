"""Batching as a whole, by seeds: random policies, QoS, readers, losses and writes, and what must hold of them all.

Every reader gets each sample that it has to get once, in order, as it was written; everything ends acknowledged
in bounded time; then nothing is held and nobody speaks any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.limits import REORDER_RUNS_MAX
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.policies import (
    BatchPolicy,
    BatchWire,
    Compression,
    FlowControllerPolicy,
    PublicationPolicy,
    ReaderPolicy,
    Scheduling,
    WriterPolicy,
)
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.batching.batcher import PendingBatch
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, REMOVED, UNREGISTERED, Run, Samples
from tests.support.campaigns import seeds
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
EPOCH = 1_700_000_000 * SECOND
#: Long enough for nobody to be given up by mistake.
LEASE = 60 * SECOND
STATUS = DISPOSED | UNREGISTERED | KEY_ONLY


@dataclass(slots=True)
class Written:
    payload: bytes
    timestamp: int
    flags: int
    key_hash: bytes | None
    coherent_set: int = 0
    sn: int = 0
    stamp: int = 0  # as it is to arrive
    aborted: bool = False


@dataclass
class Subscriber:
    participant: RtpsParticipant
    reader: StatefulReader
    qos: Qos
    batches: bool
    #: Has to get everything from here on (an index of what was written).
    owed: int
    gone: bool = False
    got: list[int] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    window: int = 0


class Story:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = r = Random(seed)
        self.network = VirtualNetwork(
            seed=seed,
            loss=r.choice([0, 0, 0.05, 0.15, 0.3]),
            duplicates=r.choice([0, 0, 0.1]),
            jitter=r.choice([0, 0, MILLISECOND, 5 * MILLISECOND]),
        )
        self.keyed = r.random() < 0.5
        self.coherent = r.random() < 0.3
        self.lasting = r.random() < 0.4
        self.depth = r.choice([0, 0, 0, 1, 3, 20])
        self.lifespan = r.choice([INFINITE] * 4 + [50 * MILLISECOND, 2 * SECOND])
        self.qos = replace(
            RELIABLE,
            durability=DurabilityKind.TRANSIENT_LOCAL if self.lasting else DurabilityKind.VOLATILE,
            history=HistoryKind.KEEP_LAST if self.depth else HistoryKind.KEEP_ALL,
            history_depth=self.depth or 1,
            lifespan=self.lifespan,
            coherent_access=self.coherent,
            max_samples=r.choice([INFINITE, INFINITE, 30, 200])
            if not self.lasting and not self.coherent
            else INFINITE,
            max_samples_per_instance=r.choice([INFINITE, INFINITE, 4]) if self.keyed else INFINITE,
        )
        self.batch = self.batch_policy()
        self.flow = self.flow_controller() if r.random() < 0.25 else None
        self.one = self.network.add(
            message_size=r.choice([64_512, 64_512, 9_000, 1_400, 576]), lease_duration=LEASE
        )
        self.writer = self.one.create_writer(
            WriterSpec(
                "t",
                "T",
                self.qos,
                keyed=self.keyed,
                policy=PublicationPolicy(
                    batch=self.batch,
                    writer=self.writer_policy(),
                    flow_controller=self.flow,
                    coalescing=r.random() < 0.8,
                ),
            ),
            log=PublicationLog.create(16 << 20 if self.flow else 64 << 10) if seed % 3 else None,
            now=self.network.now,
        )
        self.subscribers: list[Subscriber] = []
        self.written: list[Written] = []
        self.unsent = 0
        self.by_sn: dict[int, Written] = {}
        self.sets = 0
        send = self.writer._send_pending

        def note(pending: PendingBatch, *rest: Any) -> None:
            self.note_sent(pending)
            send(pending, *rest)

        self.writer._send_pending = note  # type: ignore[assignment, method-assign]

    # --- what is random --------------------------------------------------------------------------

    def batch_policy(self) -> BatchPolicy:
        r = self.random
        turbo = r.random() < 0.15
        return BatchPolicy(
            enable=not turbo,
            turbo_mode=turbo,
            max_data_bytes=r.choice([200, 1_024, 8_000, 60_000]),
            max_samples=r.choice([INFINITE, 1, 3, 7, 50]),
            max_flush_delay=r.choice([INFINITE, MILLISECOND, 20 * MILLISECOND]),
            source_timestamp_resolution=r.choice([INFINITE, 0, MILLISECOND]),
            wire=r.choice([BatchWire.AUTO] * 4 + [BatchWire.DATA]),
            disable_inline_keyhash=r.random() < 0.3,
            auto_flush_size=r.choice([INFINITE, INFINITE, 700]),
            compression=r.choice(list(Compression)),
            compression_threshold=r.choice([0, 512]),
            max_batches=r.choice([INFINITE, INFINITE, 2, 10])
            if not self.lasting and not self.coherent
            else INFINITE,
        )

    def writer_policy(self) -> WriterPolicy:
        r = self.random
        window = r.choice([INFINITE, INFINITE, 1, 5, 40])
        return WriterPolicy(
            min_send_window_size=window,
            max_send_window_size=window if r.random() < 0.5 else INFINITE,
            heartbeats_per_max_samples=r.choice([0, 1, 8, 8]),
            send_window_bytes=r.choice([4 << 20, 30_000, 2_000]),
            min_nack_response_delay=r.choice([0, 0, 2 * MILLISECOND]),
            max_nack_response_delay=r.choice([0, 5 * MILLISECOND]),
            max_bytes_per_nack_response=r.choice([256 << 10, 1, 5_000]),
            max_samples_per_repair=r.choice([32, 1]),
        )

    def reader_policy(self) -> ReaderPolicy:
        r = self.random
        delay = r.choice([0, 0, 5 * MILLISECOND])
        return ReaderPolicy(
            min_heartbeat_response_delay=0,
            max_heartbeat_response_delay=delay,
            heartbeat_suppression_duration=r.choice([0, 0, 3 * MILLISECOND]),
            receive_window_size=r.choice([INFINITE, INFINITE, 1, 10]) if not self.coherent else INFINITE,
        )

    def flow_controller(self) -> FlowControllerPolicy:
        r = self.random
        return FlowControllerPolicy(
            scheduling=r.choice(list(Scheduling)),
            max_tokens=r.choice([1, 10, 100]),
            tokens_added_per_period=r.choice([1, 5, 100]),
            period=10 * MILLISECOND,
            bytes_per_token=r.choice([INFINITE, 1_400, 100_000]),
        )

    # --- the readers -----------------------------------------------------------------------------

    def join(self) -> None:
        r = self.random
        foreign, lasting = r.random() < 0.3, self.lasting and r.random() < 0.6
        qos = replace(
            RELIABLE,
            durability=DurabilityKind.TRANSIENT_LOCAL if lasting else DurabilityKind.VOLATILE,
            coherent_access=self.coherent and r.random() < 0.7,
            reliability=ReliabilityKind.BEST_EFFORT if r.random() < 0.1 else ReliabilityKind.RELIABLE,
        )
        config = {"lease_duration": LEASE}
        if r.random() < 0.2:
            config["message_size_max"] = r.choice([1_200, 1_400, 3_000])
        self.subscribe(self.network.add(**config), qos, owed=INFINITE, batches=not foreign)

    def subscribe(
        self, participant: RtpsParticipant, qos: Qos, *, owed: int, batches: bool, key: int | None = None
    ) -> Subscriber:
        network = self.network
        if not batches:
            quiet(participant)
        reader = participant.create_reader(
            ReaderSpec("t", "T", qos, keyed=self.keyed, policy=self.reader_policy(), entity_key=key),
            now=network.now,
        )
        it = Subscriber(participant, reader, qos, batches, owed)
        if not self.coherent and self.random.random() < 0.2:
            it.window = reader.window = 300_000
        self.subscribers.append(it)
        proxies = self.writer.readers
        self.run(60 * SECOND, lambda: reader.guid in proxies and proxies[reader.guid].is_ready)
        it.owed = min(it.owed, self.unsent)
        if qos.durability is DurabilityKind.TRANSIENT_LOCAL and qos.is_reliable:
            it.owed = 0
        return it

    def leave(self) -> None:
        here = [it for it in self.subscribers if not it.gone]
        if not here:
            return
        it = self.random.choice(here)
        it.gone = True
        how = self.random.random()
        if how < 0.4:
            it.participant.delete_endpoint(it.reader.guid, self.network.now)
        else:
            self.network.unplug(it.participant)
            if how < 0.7:  # and comes back under its GUID
                self.run(self.random.choice([0, 300]) * MILLISECOND)
                entity = int.from_bytes(it.reader.guid.entity[:3], "big")
                participant = self.restarted(it.participant)
                again = self.subscribe(participant, it.qos, owed=INFINITE, batches=it.batches, key=entity)
                again.owed = INFINITE
                self.settle()
                self.run(3 * SECOND)
                self.settle()
                again.owed = len(self.written)

    def restarted(self, old: RtpsParticipant) -> RtpsParticipant:
        """Another one with its GUID prefix, at its address."""
        where, hosts = old.config.default_unicast, self.network._hosts
        new = self.network.add(
            guid_prefix=old.prefix,
            metatraffic_unicast=where,
            default_unicast=where,
            message_size_max=old.config.message_size_max,
            lease_duration=LEASE,
        )
        hosts[where[0].address] = hosts.pop(self.network.address_of(new))
        return new

    # --- the writes ------------------------------------------------------------------------------

    def note_sent(self, pending: PendingBatch) -> None:
        """What is written next has these numbers; and what rule gives its timestamp."""
        stamp = 0
        for i in range(pending.count):
            it = self.written[self.unsent]
            self.unsent += 1
            it.sn = self.writer.last_sn + 1 + i
            self.by_sn[it.sn] = it
            inherits = it.timestamp - stamp <= self.batch.source_timestamp_resolution
            it.stamp = stamp if i and inherits else it.timestamp
            stamp = it.stamp

    def write(self) -> None:
        r = self.random
        count = r.choice([1, 1, 2, 10, 60])
        flags = (
            r.choice([DISPOSED, UNREGISTERED, DISPOSED | KEY_ONLY]) if self.keyed and r.random() < 0.15 else 0
        )
        kind = r.choice([1, 1, 7])
        sizes = [4 * r.randint(1, 20)] * count
        if r.random() < 0.4:
            sizes = [4 * r.choice([1, 2, 30, r.randint(1, 200)]) for _ in range(count)]
        if r.random() < 0.1:
            sizes[r.randrange(count)] = 4 * r.choice([400, 3_000, 20_000])
        if r.random() < 0.1:
            self.writer.flush_batch(now=self.network.now)
        payloads = []
        hashes = np.zeros((count, 16), np.uint8)
        hashes[:, 3] = [r.randrange(5) for _ in range(count)]
        padding = r.choice([0, 0, 3])
        for size in sizes:
            payloads.append(bytes((0, kind, 0, r.randint(0, padding))) + r.randbytes(size))
        lengths = np.array([len(payload) for payload in payloads])
        data = np.frombuffer(b"".join(payloads), np.uint8)
        samples = Samples.ragged(data, np.cumsum(lengths) - lengths, lengths)
        if len(set(sizes)) == 1:
            samples = Samples.uniform(data, count, 4 + sizes[0])
        taken, waited = 0, self.network.now
        while taken < count:
            stamp = EPOCH + self.network.now
            n_before = len(self.written)
            for i in range(taken, count):
                key = hashes[i].tobytes() if self.keyed else None
                self.written.append(Written(payloads[i], stamp, flags, key, self.sets))
            n = self.writer.write_samples(
                samples.take_range(taken, count),
                timestamp=stamp,
                now=self.network.now,
                flags=flags,
                key_hashes=hashes[taken:] if self.keyed else None,
            )
            del self.written[n_before + n :]
            taken += n
            assert bool(self.writer.state.blocked_by) == (taken < count)
            if not n:
                assert self.network.now - waited < 120 * SECOND, f"stalled: {self.writer.state.blocked_by}"
                self.run(self.random.choice([1, 5]) * MILLISECOND)
            else:
                waited = self.network.now

    def coherent_set(self) -> None:
        now = self.network.now
        self.writer.coherent_sets.begin(now=now)
        self.sets = max((it.coherent_set for it in self.written), default=0) + 1
        begun = len(self.written)
        for _ in range(self.random.randint(0, 4)):
            self.write()
            self.run(self.random.choice([0, 1, 30]) * MILLISECOND)
        if self.random.random() < 0.4:
            self.writer.coherent_sets.abort(now=self.network.now)
            for it in self.written[begun:]:
                it.aborted = True
            self.unsent = len(self.written)
        else:
            self.writer.coherent_sets.end(now=self.network.now)
        self.sets = 0

    # --- time ------------------------------------------------------------------------------------

    def run(self, duration: int, until: Callable[[], bool] | None = None) -> None:
        def look() -> bool:
            self.take()
            return until is not None and until()

        reached = self.network.run(duration, look)
        assert reached or until is None, "waited in vain"

    def take(self) -> None:
        for it in self.subscribers:
            for run in it.reader.take_runs():
                self.check(it, run)
            if it.window:
                it.reader.window = it.window

    def settle(self) -> None:
        self.writer.flush_batch(now=self.network.now)
        assert not self.writer.intake.count
        self.run(300 * SECOND, lambda: not self.writer.unacknowledged() and not self.one._flow.queued_bytes)

    # --- what must hold --------------------------------------------------------------------------

    def check(self, it: Subscriber, run: Run) -> None:
        payloads, flags, stamps = run.samples(), run.sample_flags(), run.timestamps()
        hashes = run.key_hashes()
        for i, sn in enumerate(run.sequence_numbers().tolist()):
            wrote = self.by_sn[sn]
            assert not it.got or sn > it.got[-1], f"{sn} behind {it.got[-1]}"
            it.got.append(sn)
            if flags[i] & REMOVED:
                it.removed.add(sn)
            assert flags[i] & STATUS == wrote.flags or not run.payload_length, (sn, flags[i], wrote.flags)
            carries = not wrote.flags & (DISPOSED | UNREGISTERED) or wrote.flags & KEY_ONLY
            payload = bytes(payloads.payload(i))
            assert payload == wrote.payload or not carries, sn
            assert abs(int(stamps[i]) - wrote.stamp) <= 1, (sn, int(stamps[i]) - wrote.stamp)
            if hashes is not None and hashes[i].any():
                assert hashes[i].tobytes() == wrote.key_hash
            else:
                assert not self.keyed or self.batch.disable_inline_keyhash or not any(wrote.key_hash or b"")

    def may_lack(self, at: int) -> bool:
        """Whether HISTORY or LIFESPAN may have taken it away."""
        it = self.written[at]
        if self.lifespan < INFINITE:
            return True
        if not self.depth:
            return False
        if it.coherent_set:  # gone with a part of it
            return True
        later = [o for o in self.written[at + 1 :] if o.key_hash == it.key_hash]
        return len(later) >= self.depth or any(o.flags & UNREGISTERED for o in [it, *later])

    def check_end(self) -> None:
        for number, it in enumerate(self.subscribers):
            if it.gone:
                continue
            got = set(it.got)
            if it.qos.coherent_access:
                aborted = [o.sn for o in self.written if o.aborted and o.sn in got]
                assert not aborted, (number, "aborted", aborted)
            lossless = not (self.network.loss or self.network.duplicates or self.network.jitter)
            if not it.qos.is_reliable and not (lossless and not it.window):
                continue
            missing = [
                o.sn
                for at, o in enumerate(self.written)
                if at >= it.owed
                and not o.aborted
                and (o.sn not in got or o.sn in it.removed)
                and not self.may_lack(at)
            ]
            assert not missing, (number, it.batches, missing[:20], len(missing))
            # Who joins later may hear first of what only others lack.
            if it.qos.is_reliable and not it.owed and not self.depth and self.lifespan == INFINITE:
                assert it.reader.counters.lost_samples == 0, number

    def check_nothing_held(self) -> None:
        writer = self.writer
        assert (writer.window.samples, writer.window.nbytes) == (0, 0)
        assert writer._requests.get_timer() is None
        assert not self.one._flow.queued_bytes
        if not self.lasting:
            assert (writer.history.samples, writer.history.nbytes, writer.history.batches) == (0, 0, 0)
        else:
            held = list(writer.history.changes())
            assert writer.history.nbytes == sum(change.nbytes for change in held)
        for it in self.subscribers:
            if (
                it.gone or not it.qos.is_reliable
            ):  # a best-effort one may wait for a set's end, or for fragments
                continue
            assert it.reader.delivery.reorder_budget.nbytes == 0
            for proxy in it.reader.writers.values():
                assert not proxy.fragments
                assert not len(proxy.held)
                if proxy.batches is not None:
                    assert len(proxy.batches._ends) <= REORDER_RUNS_MAX

    def check_silence(self) -> None:
        self.network.log = log = []  # type: ignore[var-annotated]
        self.run(3 * SECOND)
        entity = self.writer.guid.entity
        kinds = []
        for source, _, datagram in log:
            view = memoryview(datagram)
            for kind, _, start, _ in iter_submessages(view):
                where = (0, 4, 8) if kind in (0x15, 0x16, 0x18) else (0, 4)
                if kind >= 0x80 or entity in [bytes(view[start + at : start + at + 4]) for at in where]:
                    kinds.append((source, hex(kind)))
        assert not kinds, kinds[:10]

    def play(self) -> None:
        r = self.random
        for _ in range(r.randint(1, 3)):
            self.join()
        for _ in range(r.randint(3, 14)):
            what = r.random()
            if what < 0.6:
                self.write()
            elif what < 0.72:
                if self.coherent:
                    self.coherent_set()
            elif what < 0.8 and len(self.subscribers) < 6:
                self.join()
            elif what < 0.85:
                self.leave()
            elif what < 0.92:
                self.settle()
            self.run(r.choice([0, 0, 1, 10, 60]) * MILLISECOND)
        self.settle()
        self.run(20 * SECOND)
        self.settle()
        self.run(3 * SECOND)
        self.check_end()
        self.check_nothing_held()
        self.check_silence()


def quiet(participant: RtpsParticipant) -> None:
    """Its readers say nothing of batches, as other vendors' do."""
    announce = participant._sedp.announce

    def without(data: Any, *, now: int) -> None:
        size = type(data.abilities)(message_size_max=data.abilities.message_size_max)
        announce(replace(data, abilities=size), now=now)

    participant._sedp.announce = without  # type: ignore[assignment, method-assign]


@pytest.mark.parametrize("seed", seeds(30))
def test_all_readers_get_all_samples_once_and_the_network_falls_silent(seed: int) -> None:
    Story(seed).play()
