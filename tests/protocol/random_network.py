"""Whole participants on a network that loses, repeats and reorders, with policies and writes drawn by a seed.

One writer and up to three readers, one of which may join late, in virtual time. What each sample holds names it, so
that what comes out shows what was written. The order of the draws is part of a seed's meaning: new draws come behind
the old ones, or in kinds of their own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import numpy as np

from spark_rtps.transport.errors import CoherentSetError, UsageError
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.policies import (
    BATCH_POLICY,
    READER_POLICY,
    WRITER_POLICY,
    BatchPolicy,
    BatchWire,
    Compression,
    FlowControllerPolicy,
    FlowControlPolicy,
    PublicationPolicy,
)
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.intake.sample_claims import SampleClaim
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import INFINITE
from spark_rtps.transport.wire.samples import U8, Samples
from tests.support.virtual_network import MILLISECOND as MS
from tests.support.virtual_network import SECOND, VirtualNetwork

_INSTANCES = 5
_HEAD = 12


@dataclass(frozen=True)
class Kind:
    """What is drawn in addition, or otherwise."""

    losses: tuple[float, ...] = (0, 0, 0.05, 0.2, 0.35)
    lease: int = 60 * SECOND
    outage: float = 0.01
    outages: tuple[int, ...] = (1, 5)
    #: Seconds after an outage in which nothing is written; none: they are not drawn.
    pauses: tuple[int, ...] = ()
    #: Readers of coherent sets have room for less than a set, too.
    small_room_for_sets: bool = False
    mixes_best_effort: bool = False
    #: The history is KEEP_LAST, or samples have a LIFESPAN: what is replaced or over is not sent.
    forgets: bool = False
    #: Readers that leave so many HEARTBEATs unanswered are not waited for; what they lose, they have to count.
    retries: tuple[int, ...] = ()


KINDS = {
    "reliable": Kind(),
    "small room": Kind(small_room_for_sets=True),
    "best effort mixed in": Kind(mixes_best_effort=True),
    "outages": Kind(
        losses=(0, 0, 0.02, 0.1), lease=6 * SECOND, outage=0.03, outages=(1, 5, 9, 20), pauses=(0, 1, 8)
    ),
    "forgetful": Kind(forgets=True),
    "given up": Kind(retries=(2, 5)),
}


def payload(number: int, size: int) -> bytes:
    """A sample of at least 12 bytes that names itself, and of which each byte can be checked."""
    raw = b"\0\1\0\0" + struct.pack("<Q", number) + bytes([number % 251]) * max(size - _HEAD, 0)
    return raw[: max(size, _HEAD)]


@dataclass
class Listener:
    """A reader, the room it has, and what came: (sequence number, number of the sample)."""

    reader: StatefulReader
    room: int
    is_slow: bool
    is_reliable: bool
    is_late: bool = False
    got: list[tuple[int, int]] = field(default_factory=list)
    wrong: list[int] = field(default_factory=list)
    first_expected: int = 0


class RandomNetwork:
    """One run; ``complaints`` are what an oracle of delivery finds wrong."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind, self.seed = kind, seed
        self.random = d = Random(seed)
        pick = d.choice
        self.network = VirtualNetwork(
            seed=seed,
            loss=pick(kind.losses),
            duplicates=pick((0, 0, 0.1)),
            jitter=pick((0, 0, 2 * MS, 30 * MS)),
            bursts=d.random() < 0.5,
            multicast=True,
            tick=pick((1, 1, MS)),
        )
        self.loss, self.network.loss = self.network.loss, 0
        self.host = self.network.add(lease_duration=kind.lease)
        self.keyed = d.random() < 0.4
        self.lasting = d.random() < 0.25
        self.coherent = d.random() < 0.2
        self.policy, self.log, max_samples = self._policy()
        self.qos = Qos(
            reliability=ReliabilityKind.RELIABLE,
            history=HistoryKind.KEEP_ALL,
            durability=DurabilityKind.TRANSIENT_LOCAL if self.lasting else DurabilityKind.VOLATILE,
            coherent_access=self.coherent,
            max_samples=max_samples,
        )
        if kind.forgets:
            extra = Random(seed)
            if extra.random() < 0.5 and not self.coherent:
                self.qos = replace(
                    self.qos,
                    history=HistoryKind.KEEP_LAST,
                    history_depth=extra.choice((1, 3, 20)),
                    max_samples=INFINITE,
                )
            else:
                self.qos = replace(self.qos, lifespan=extra.choice((5 * MS, 50 * MS, SECOND)))
        spec = WriterSpec("t", "T", self.qos, keyed=self.keyed, policy=self.policy)
        self.writer = self.host.create_writer(spec, now=self.network.now, log=self.log)
        self.listeners: list[Listener] = []
        for _ in range(pick((1, 1, 2, 3))):
            self._join()
        self.network.run(3 * SECOND)
        assert len(self.writer.readers) == len(self.listeners), "not matched"
        self.network.loss = self.loss
        for each in self.listeners:
            self._note_beginning(each)
        #: What is written, by number, in order; of these what was aborted.
        self.written: list[int] = []
        self.aborted: set[int] = set()
        self.outages = 0
        self._set: list[int] | None = None
        self._set_left = 0
        self._claims: list[tuple[SampleClaim, int, int, bool]] = []

    # --- what is drawn before ------------------------------------------------------------------------

    def _policy(self) -> tuple[PublicationPolicy, PublicationLog | None, int]:
        d, pick = self.random, self.random.choice
        term = pick((0, 0, 1 << 16, 1 << 18, 1 << 20))
        flow = None
        if d.random() < 0.2:
            flow = FlowControllerPolicy(
                "fc",
                max_tokens=pick((50_000, 200_000)),
                tokens_added_per_period=pick((20_000, 100_000)),
                period=10 * MS,
                bytes_per_token=1,
            )
            if term:
                term = 1 << 24
        batch = BATCH_POLICY
        if d.random() < 0.5:
            batch = BatchPolicy(
                enable=True,
                max_data_bytes=pick((100, 1024, 30000)),
                max_samples=pick((INFINITE, 3, 10)),
                max_flush_delay=pick((MS, 20 * MS)),
                compression=pick((Compression.NONE, Compression.LZ4)),
                wire=pick((BatchWire.AUTO, BatchWire.DATA)),
                max_batches=pick((INFINITE, INFINITE, 8))
                if not self.lasting and not self.coherent
                else INFINITE,
            )
        writer = replace(
            WRITER_POLICY,
            send_window_bytes=pick((0, 0, 1 << 16, 8000)),
            max_send_window_size=(most := pick((INFINITE, INFINITE, 64))),
            min_send_window_size=INFINITE if most == INFINITE else 16,
            max_bytes_per_nack_response=pick((256 << 10, 2000)),
            min_nack_response_delay=pick((0, 2 * MS)),
        )
        if self.kind.retries:
            writer = replace(writer, max_heartbeat_retries=Random(self.seed).choice(self.kind.retries))
        max_samples = INFINITE
        if not self.lasting and not self.coherent and d.random() < 0.3:
            max_samples = pick((5, 50))
        policy = PublicationPolicy(
            writer=writer,
            batch=batch,
            flow_controller=flow,
            coalescing=d.random() < 0.8,
            flow_control=FlowControlPolicy(term_length=term),
        )
        return policy, PublicationLog.create(term, zeroes=False) if term else None, max_samples

    def _join(self) -> Listener:
        d, pick = self.random, self.random.choice
        host = self.network.add(lease_duration=self.kind.lease)
        policy = replace(
            READER_POLICY,
            receive_window_size=pick((INFINITE, INFINITE, 4, 64)) if not self.coherent else INFINITE,
            max_heartbeat_response_delay=pick((0, 0, 20 * MS)),
            disable_positive_acks=False,
        )
        qos = replace(self.qos, max_samples=INFINITE)
        if is_best_effort := self.kind.mixes_best_effort and d.random() < 0.5:
            qos = replace(qos, reliability=ReliabilityKind.BEST_EFFORT, durability=DurabilityKind.VOLATILE)
        reader = host.create_reader(
            ReaderSpec("t", "T", qos, keyed=self.keyed, policy=policy), now=self.network.now
        )
        is_capped = not self.coherent or self.kind.small_room_for_sets
        room = pick((INFINITE, INFINITE, 200_000, 40_000)) if is_capped else INFINITE
        reader.window = room
        if room < INFINITE:
            reader.delivery.sample_size_max = room
        made = Listener(reader, room, d.random() < 0.5, not is_best_effort)
        self.listeners.append(made)
        return made

    def _note_beginning(self, listener: Listener) -> None:
        proxy = listener.reader.writers[self.writer.guid]
        listener.first_expected = proxy.expected if proxy.synced else 1

    # --- what happens ----------------------------------------------------------------------------------

    def run(self) -> list[str]:
        """Write, let everything arrive, and complain."""
        d, network = self.random, self.network
        biggest = d.choice((64, 64, 2000, 5000, 30_000))
        total = d.choice((20, 100, 300))
        number = stalled = 0
        began = network.now
        while number < total:
            if self.coherent and self._set is None and not self._claims and d.random() < 0.4:
                self.writer.coherent_sets.begin(now=network.now)
                self._set, self._set_left = [], d.randint(0, 12)
            number += self._claim(number)
            try:
                took = self._write(number, biggest)
            except CoherentSetError:
                return []  # it is refused by name: larger than the publication window
            number += took
            self._end_set()
            self._end_claims(all_of_them=False)
            if took == 0 or d.random() < 0.3:
                network.run(d.choice((1, 5, 20)) * MS)
                self._take()
            if d.random() < self.kind.outage:
                self._outage()
            stalled = stalled + 1 if not took else 0
            if stalled > 20_000 or network.now - began > 3_000 * SECOND:
                return [f"writing stands still at {number} of {total}: {self.writer.state.blocked_by}"]
        if self._set is not None:
            self.writer.coherent_sets.end(now=network.now)
        self._end_claims(all_of_them=True)
        self.writer.flush_batch(now=network.now)
        if self.lasting and d.random() < 0.7:
            self._join().is_late = True
            network.run(10 * SECOND)
        end = network.now + 300 * SECOND
        while network.now < end and not self._is_done(end):
            network.run(50 * MS)
            self._take()
        network.run(SECOND)
        self._take(final=True)
        return self._complaints()

    def _claim(self, number: int) -> int:
        """Perhaps claim a sample; returns how many were."""
        d, now = self.random, self.network.now
        if self.log is None or self._set is not None or d.random() >= 0.1 or not self.writer.readers:
            return 0
        if self.kind.pauses and not self.writer.positions.is_connected:
            return 0
        try:
            claim = self.writer.claims.make(16, timestamp=now, now=now)
        except UsageError:
            claim = None
        if claim is None:
            return 0
        claim.data[:] = np.frombuffer(payload(number, 16), np.uint8)
        if claim.key_hash is not None:
            claim.key_hash[0] = 7
        self._claims.append((claim, number, now + d.randint(0, 200) * MS, d.random() < 0.2))
        self.written.append(number)
        return 1

    def _write(self, number: int, biggest: int) -> int:
        """Write some samples; returns how many were taken."""
        d, now = self.random, self.network.now
        count = d.choice((1, 1, 3, 20))
        size = (d.choice((12, 16, 64, biggest)) + 3) & ~3
        if d.random() < 0.5:
            data = b"".join(payload(number + i, size) for i in range(count))
            samples = Samples.uniform(np.frombuffer(data, np.uint8), count, max(size, _HEAD))
        else:
            parts = [payload(number + i, (d.choice((12, 20, size)) + 3) & ~3) for i in range(count)]
            lengths = np.array([len(part) for part in parts], np.int64)
            data = b"".join(parts)
            samples = Samples.ragged(np.frombuffer(data, np.uint8), np.cumsum(lengths) - lengths, lengths)
        hashes: U8 | None = None
        if self.keyed:
            of = [(number + i) % _INSTANCES for i in range(count)]
            hashes = np.repeat(np.array(of, np.uint8)[:, None], 16, axis=1)
        took = self.writer.write_samples(samples, timestamp=now, now=now, key_hashes=hashes)
        numbers = range(number, number + took)
        self.written += numbers
        if self._set is not None:
            self._set += numbers
            self._set_left -= took
        return took

    def _end_set(self) -> None:
        if self._set is None or self._set_left > 0:
            return
        if self.random.random() < 0.2:
            self.writer.coherent_sets.abort(now=self.network.now)
            self.aborted |= set(self._set)
        else:
            self.writer.coherent_sets.end(now=self.network.now)
        self._set = None

    def _end_claims(self, *, all_of_them: bool) -> None:
        now = self.network.now
        for each in [each for each in self._claims if all_of_them or each[2] <= now]:
            claim, number, _, is_aborted = each
            self._claims.remove(each)
            if is_aborted and not all_of_them:
                self.writer.claims.abort(claim, now=now)
                self.aborted.add(number)
            elif not self.writer.claims.commit_claim(claim, now=now):
                self.aborted.add(number)

    def _outage(self) -> None:
        network = self.network
        network.loss = 1.0
        network.run(self.random.choice(self.kind.outages) * SECOND)
        network.loss = self.loss
        if self.kind.pauses:
            self.outages += 1
            network.run(self.random.choice(self.kind.pauses) * SECOND)

    def _take(self, *, final: bool = False) -> None:
        for each in self.listeners:
            if each.is_slow and not final and self.random.random() < 0.7:
                continue
            while runs := each.reader.take_runs():
                for run in runs:
                    samples = run.samples()
                    for i, sn in enumerate(run.sequence_numbers().tolist()):
                        got = bytes(samples.payload(i))
                        number = struct.unpack_from("<Q", got, 4)[0]
                        each.got.append((sn, number))
                        if got != payload(number, len(got)):
                            each.wrong.append(number)
                each.reader.window = each.room
            each.reader.window = each.room

    # --- what has to come of it ------------------------------------------------------------------------

    def _is_done(self, end: int) -> bool:
        if self.writer.unacknowledged():
            return False
        may_lack = self.outages or self.kind.retries
        if self.kind.forgets or (may_lack and self.network.now > end - 260 * SECOND):
            return True
        wanted = len(self.written) - len(self.aborted)
        return all(
            not each.is_reliable or sum(number not in self.aborted for _, number in each.got) >= wanted
            for each in self.listeners
        )

    def _complaints(self) -> list[str]:
        found = []
        for i, each in enumerate(self.listeners):
            found += [f"reader {i}: {what}" for what in self._complaints_of(each)]
        if behind := self.writer.unacknowledged():
            found.append(f"not acknowledged: {list(behind.values())} of {self.writer.last_sn}")
        return found

    def _complaints_of(self, listener: Listener) -> list[str]:
        found = []
        sns = [sn for sn, _ in listener.got]
        numbers = [number for _, number in listener.got]
        if any(b <= a for a, b in pairwise(sns)):
            found.append("sequence numbers do not rise")
        if len(set(numbers)) != len(numbers):
            found.append(f"{len(numbers) - len(set(numbers))} samples twice")
        if nobody := set(numbers) - set(self.written):
            found.append(f"samples that nobody wrote: {sorted(nobody)[:5]}")
        if listener.wrong:
            found.append(f"samples with other bytes: {listener.wrong[:5]}")
        if self.coherent and (aborted := self.aborted & set(numbers)):
            found.append(f"samples of aborted sets: {sorted(aborted)[:5]}")
        if not listener.is_reliable or self.outages:
            return found
        counters = listener.reader.counters
        missing = set(self.written) - self.aborted - set(numbers)
        if self.kind.forgets:
            proxy = listener.reader.writers.get(self.writer.guid)
            if proxy is not None and not listener.is_late:
                below = proxy.expected - listener.first_expected
                counted = counters.received_samples + counters.lost_samples + counters.irrelevant_samples
                if counted != below:
                    found.append(f"{counted} of {below} numbers are counted")
        elif self.kind.retries:
            # Who was not waited for cannot know which of what is gone had been aborted, or ended a coherent set.
            no_samples = self.writer.last_sn - len(self.written) + len(self.aborted)
            if not len(missing) <= counters.lost_samples <= len(missing) + no_samples:
                first = sorted(missing)[:5]
                found.append(f"{len(missing)} missing, {counters.lost_samples} counted as lost: {first}")
        elif len(missing) != counters.lost_samples:
            first = sorted(missing)[:5]
            found.append(f"{len(missing)} missing, {counters.lost_samples} counted as lost: {first}")
        elif missing and not self.kind.small_room_for_sets:
            found.append(f"missing: {sorted(missing)[:5]}")
        return found


def complaints(kind: str, seed: int) -> list[str]:
    """What is wrong with one run."""
    return RandomNetwork(KINDS[kind], seed).run()
