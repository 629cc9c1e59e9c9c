"""Slices: a reader reads its part of the writers, and the others still get their acknowledgements."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason, UsageError
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData
from spark_rtps.transport.protocol.discovery.type_matching import TypeMatching
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.participant.slices import Slice, slice_of
from spark_rtps.transport.protocol.policies import BatchPolicy, Compression, PublicationPolicy
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, LivelinessKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid, Locator
from spark_rtps.transport.wire.batch import Batch, scan_batch
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import (
    AckNack,
    Data,
    Gap,
    Heartbeat,
    InfoTimestamp,
    decode_submessage,
)
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

TOPIC = ("topic", "Type")
KEEP_ALL = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
#: A writer that blocks when this many samples are unacknowledged.
NARROW = replace(KEEP_ALL, max_samples=8)
LASTING = replace(KEEP_ALL, durability=DurabilityKind.TRANSIENT_LOCAL)
ANY = bytes(4)


# --- which writer is in which slice ---------------------------------------------------------------


def test_the_slice_of_a_writer_is_the_same_on_every_host_and_for_ever() -> None:
    """Computed by: printf '%s' <GUID in hexadecimal> | xxd -r -p | sha256sum, of which the first 16 digits."""
    guid = Guid.from_bytes(bytes.fromhex("0110ab54c49fe21d3e2acfab00000103"))
    assert slice_of(guid, 1 << 64) == 0x84710BBBD46BB9AB
    assert [slice_of(guid, count) for count in (1, 2, 3, 4, 7, 64, 1000)] == [0, 1, 2, 3, 4, 43, 243]
    assert [slice_of(Guid(bytes(12), bytes((0, 0, n, 3))), 4) for n in range(8)] == [2, 0, 1, 2, 1, 0, 0, 1]


@pytest.mark.parametrize("place", range(16))
@pytest.mark.parametrize("count", [2, 3, 4, 10])
def test_writers_whose_guids_differ_in_one_octet_are_spread_well(place: int, count: int) -> None:
    raw = bytearray.fromhex("0110ab54c49fe21d3e2acfab00000103")
    found: Counter[int] = Counter()
    for octet in range(256):
        raw[place] = octet
        found[slice_of(Guid.from_bytes(bytes(raw)), count)] += 1
    assert set(found) == set(range(count))
    assert max(found.values()) < 1.6 * 256 / count


def test_every_writer_is_in_one_slice() -> None:
    guids = [Guid(number.to_bytes(12, "big"), b"\0\0\1\3") for number in range(200)]
    for count in (1, 2, 5):
        slices = [Slice(index, count) for index in range(count)]
        assert all(sum(each.has(guid) for each in slices) == 1 for guid in guids)


def test_the_text_of_a_slice() -> None:
    assert Slice.parse("0/4") == Slice(0, 4)
    assert str(Slice.parse("3/4")) == "3/4"
    for text, why in {
        "4/4": "must have an index from 0 to 3",
        "0/0": "must have an index of at least 1",
        "1": "must be index/count",
        "-1/2": "must be index/count",
        "1/2/3": "must be index/count",
        "": "must be index/count",
        " 0/2": "must be index/count",
    }.items():
        with pytest.raises(ValueError, match=why):
            Slice.parse(text)
    with pytest.raises(UsageError, match="from 0 to 1"):
        Slice(2, 2)


# --- participants ---------------------------------------------------------------------------------


def samples(*numbers: int) -> Samples:
    data = b"".join(b"\0\1\0\0" + number.to_bytes(4, "little") for number in numbers)
    return Samples.uniform(np.frombuffer(data, np.uint8), len(numbers), 8)


def received(reader: StatefulReader) -> list[tuple[Guid, int]]:
    """Each sample as its writer and the number in it."""
    runs = [(run.writer, run.samples()) for run in reader.take_runs()]
    return [
        (guid, int.from_bytes(each.payload(i)[4:8], "little"))
        for guid, each in runs
        for i in range(each.count)
    ]


class Pair:
    """A sliced reader, and writers of its slice and of the other one."""

    def __init__(
        self,
        qos: Qos = KEEP_ALL,
        writer_qos: Qos | None = None,
        policy: PublicationPolicy | None = None,
        **network: object,
    ) -> None:
        self.network = VirtualNetwork(**network)
        self.reading, self.writing = self.network.add(), self.network.add()
        spec = ReaderSpec(*TOPIC, qos, slice=Slice(0, 2))
        self.reader = self.reading.create_reader(spec, now=self.network.now)
        made = WriterSpec(*TOPIC, writer_qos or qos, policy=policy or PublicationPolicy())
        self.writers: dict[int, StatefulWriter] = {}
        while len(self.writers) < 2:
            writer = self.writing.create_writer(made, now=self.network.now)
            if self.writers.setdefault(slice_of(writer.guid, 2), writer) is not writer:
                self.writing.delete_endpoint(writer.guid, self.network.now)
        self.ours, self.others = self.writers[0], self.writers[1]
        assert self.network.run(5 * SECOND, until=lambda: self.is_matched)

    @property
    def is_matched(self) -> bool:
        both = len(self.ours.readers) == len(self.others.readers) == 1
        return both and list(self.reader.writers) == [self.ours.guid]

    def run(self, duration: int = SECOND) -> list[tuple[Guid, int]]:
        found: list[tuple[Guid, int]] = []
        self.network.run(duration, until=lambda: bool(found.extend(received(self.reader))))
        return found


def test_only_the_writers_of_the_slice_are_read_and_no_writer_blocks() -> None:
    pair = Pair(KEEP_ALL, NARROW)
    for first in range(0, 40, 4):
        for writer in (pair.ours, pair.others):
            result = writer.write_samples(
                samples(*range(first, first + 4)), timestamp=0, now=pair.network.now
            )
            assert result == 4
        assert pair.run() == [(pair.ours.guid, number) for number in range(first, first + 4)]
    assert pair.others.unacknowledged() == {}
    assert pair.reader.counters.of_other_slices == 40
    assert pair.reader.counters.received_samples == 40
    assert pair.reader.counters.lost_samples == pair.reader.counters.unknown_writer == 0
    assert not pair.reading.drops


def test_other_slices_have_no_statuses() -> None:
    lease = replace(
        KEEP_ALL, liveliness=LivelinessKind.MANUAL_BY_TOPIC, liveliness_lease_duration=SECOND, deadline=SECOND
    )
    pair = Pair(lease)
    pair.run(5 * SECOND)  # the leases of both are over
    reported = [
        each
        for each in pair.network.events[pair.reading.prefix]
        if isinstance(
            each,
            events.Matched
            | events.Unmatched
            | events.LivelinessLost
            | events.LivelinessGained
            | events.IncompatibleQos,
        )
    ]
    assert [getattr(each, "remote", getattr(each, "writer", None)) for each in reported] == [
        pair.ours.guid
    ] * 2
    assert [type(each) for each in reported] == [events.Matched, events.LivelinessLost]
    pair.writing.delete_endpoint(pair.others.guid, pair.network.now)
    pair.network.run(SECOND)
    assert pair.reading.endpoints.other_slices == {}
    assert not pair.reader._responder.other_slices
    assert (
        len([each for each in pair.network.events[pair.reading.prefix] if isinstance(each, events.Unmatched)])
        == 0
    )


def test_an_incompatible_writer_of_another_slice_is_no_news_and_gets_no_answer() -> None:
    pair = Pair(KEEP_ALL)
    strict = replace(KEEP_ALL, deadline=SECOND)
    reader = pair.reading.create_reader(ReaderSpec(*TOPIC, strict, slice=Slice(0, 2)), now=pair.network.now)
    pair.run(SECOND)
    reported = [e for e in pair.network.events[pair.reading.prefix] if isinstance(e, events.IncompatibleQos)]
    assert [(each.local, each.remote) for each in reported] == [(reader.guid, pair.ours.guid)]
    assert list(pair.reading.endpoints.incompatible(reader.guid)) == [pair.ours.guid]
    assert not reader._responder.other_slices


def test_a_participant_whose_writers_are_all_of_other_slices_leaves() -> None:
    pair = Pair()
    pair.writing.close(pair.network.now)
    pair.run(SECOND)
    assert pair.reading.endpoints.other_slices == {}
    assert not pair.reader._responder.other_slices
    assert not pair.reading.endpoints.matches(pair.writing.prefix)


def test_a_reader_that_is_deleted_acknowledges_nothing_more() -> None:
    pair = Pair()
    pair.reading.delete_endpoint(pair.reader.guid, pair.network.now)
    assert pair.reading.endpoints.other_slices == {}
    assert not pair.reader._responder.other_slices


def test_two_readers_of_one_participant_with_different_slices() -> None:
    pair = Pair()
    rest = pair.reading.create_reader(ReaderSpec(*TOPIC, KEEP_ALL, slice=Slice(1, 2)), now=pair.network.now)
    pair.run(SECOND)
    for writer in (pair.ours, pair.others):
        writer.write_samples(samples(1, 2, 3), timestamp=0, now=pair.network.now)
    assert pair.run(SECOND) == [(pair.ours.guid, number) for number in (1, 2, 3)]
    assert received(rest) == [(pair.others.guid, number) for number in (1, 2, 3)]
    pair.run(SECOND)
    assert pair.ours.unacknowledged() == pair.others.unacknowledged() == {}


def test_slices_of_writers_in_the_same_participant() -> None:
    network = VirtualNetwork()
    both = network.add()
    spec = ReaderSpec(*TOPIC, KEEP_ALL, slice=Slice(0, 2))
    reader = both.create_reader(spec, now=network.now)
    writers = [both.create_writer(WriterSpec(*TOPIC, NARROW), now=network.now) for _ in range(6)]
    network.run(SECOND)
    found = []
    for number in range(30):
        assert [w.write_samples(samples(number), timestamp=0, now=network.now) for w in writers] == [1] * 6
        network.run(SECOND)
        found += received(reader)
        network.run(SECOND)
    mine = {w.guid for w in writers if slice_of(w.guid, 2) == 0}
    assert 0 < len(mine) < 6
    assert Counter(guid for guid, _ in found) == dict.fromkeys(mine, 30)


def test_a_participant_that_reads_none_of_its_own_writers_acknowledges_them() -> None:
    network = VirtualNetwork()
    both = network.add()
    writer = both.create_writer(WriterSpec(*TOPIC, NARROW), now=network.now)
    part = Slice(1 - slice_of(writer.guid, 2), 2)
    reader = both.create_reader(ReaderSpec(*TOPIC, KEEP_ALL, slice=part), now=network.now)
    network.run(SECOND)
    for number in range(30):
        assert writer.write_samples(samples(number), timestamp=0, now=network.now) == 1
        network.run(SECOND)
    assert reader.counters.acknacks_sent > 0
    assert received(reader) == []


def test_the_types_of_other_slices_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Guid] = []
    real = TypeMatching.mismatches

    def spied(types: TypeMatching, writer: EndpointData, *rest: Any, **more: Any) -> Any:
        asked.append(writer.guid)
        return real(types, writer, *rest, **more)

    pair = Pair()
    monkeypatch.setattr(TypeMatching, "mismatches", spied)
    for writer in pair.writers.values():
        data = pair.reading._sedp.remote.get(writer.guid)
        assert data is not None
        pair.reading.endpoints.consider(data, now=pair.network.now)
    assert asked == [pair.ours.guid]


def test_news_of_a_writer_of_another_slice() -> None:
    """Its addresses count when they are proven, as those of any other; what else it announces counts at once."""
    pair = Pair()
    endpoints, guid = pair.reading.endpoints, pair.others.guid
    data = pair.reading._sedp.remote.get(guid)
    assert data is not None
    endpoints.consider(replace(data, unicast=(Locator("10.0.0.200", 7410),)), now=pair.network.now)
    assert endpoints.other_slices == {guid: [pair.reader]}
    silent = replace(data.abilities, no_positive_acks=True)
    endpoints.consider(replace(data, abilities=silent), now=pair.network.now)
    pair.network.run(SECOND)
    sent = pair.reader.counters.acknacks_sent
    heartbeat = Heartbeat(ANY, guid.entity, 1, 0, 70_000, final=False)
    pair.reader.on_heartbeat_of_other_slice(guid, heartbeat, now=pair.network.now)
    pair.reader.outgoing()
    assert pair.reader.counters.acknacks_sent == sent
    endpoints.consider(replace(data, topic="another"), now=pair.network.now)
    assert endpoints.other_slices == {}


def test_messages_addressed_to_another_reader_are_not_answered() -> None:
    pair = Pair()
    beat = Heartbeat(b"\0\0\x77\4", pair.others.guid.entity, 1, 9, 5_000).encode()
    message = Header((2, 1), b"\x01\x10", pair.writing.prefix).encode() + beat
    pair.network.deliver(pair.reading, message, pair.network.address_of(pair.writing))
    assert not pair.reader.has_more_to_say


def test_a_late_joiner_does_not_ask_for_the_history_of_other_slices() -> None:
    pair = Pair(LASTING)
    for writer in (pair.ours, pair.others):
        writer.write_samples(samples(*range(300)), timestamp=0, now=pair.network.now)
    pair.run(SECOND)
    pair.network.log = []
    late = pair.network.add()
    reader = late.create_reader(ReaderSpec(*TOPIC, LASTING, slice=Slice(0, 2)), now=pair.network.now)
    pair.network.run(5 * SECOND, until=lambda: reader.counters.received_samples == 300)
    pair.network.run(SECOND)
    assert reader.counters.received_samples == 300
    assert reader.counters.of_other_slices == 0
    assert pair.others.unacknowledged() == {}


@pytest.mark.parametrize("compression", list(Compression))
def test_batches_of_other_slices_are_not_opened(
    compression: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = BatchPolicy(enable=True, max_samples=4, compression=compression, compression_threshold=0)
    pair = Pair(KEEP_ALL, NARROW, PublicationPolicy(batch=batch))
    opened: set[Guid] = set()

    def spied(*args: Any, **rest: Any) -> Batch:
        batch = scan_batch(*args, **rest)
        opened.add(batch.writer)
        return batch

    monkeypatch.setattr("spark_rtps.transport.protocol.receiving.message_receiver.scan_batch", spied)
    for first in range(0, 40, 4):
        for writer in (pair.ours, pair.others):
            assert (
                writer.write_samples(samples(*range(first, first + 4)), timestamp=0, now=pair.network.now)
                == 4
            )
        assert pair.run() == [(pair.ours.guid, number) for number in range(first, first + 4)]
    assert pair.others.unacknowledged() == {}
    assert pair.reader.counters.of_other_slices >= 10
    assert not pair.reading.drops
    assert opened == {pair.ours.guid}


def test_fragments_and_gaps_of_other_slices_are_dropped() -> None:
    pair = Pair()
    big = Samples.uniform(np.zeros(200_000, np.uint8), 1, 200_000)
    pair.others.write_samples(big, timestamp=0, now=pair.network.now)
    pair.run(SECOND)
    assert pair.others.unacknowledged() == {}
    assert pair.reader.counters.of_other_slices >= 4
    assert pair.reader.delivery.reassembly.budget.taken == pair.reader.counters.fragments == 0
    before = pair.reader.counters.of_other_slices
    gap = Gap(ANY, pair.others.guid.entity, 1, SequenceNumberSet(500)).encode()
    message = Header((2, 1), b"\x01\x10", pair.writing.prefix).encode() + gap
    pair.network.deliver(pair.reading, message, pair.network.address_of(pair.writing))
    assert pair.reader.counters.of_other_slices == before + 1
    assert pair.reader.counters.gaps == pair.reader.counters.irrelevant_samples == 0


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("each", [1, 12])
def test_a_burst_of_other_slices_is_dropped_together(
    each: int, little: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Datagrams of one sample, some with a HEARTBEAT, and of many: none is gathered, all are counted and answered."""
    pair = Pair()
    gathered: list[object] = []
    for name in ("_body", "scan_equal"):
        monkeypatch.setattr(f"spark_rtps.transport.wire.datagrams.{name}", lambda *a, **k: gathered.append(a))
    header = Header((2, 1), b"\x01\x10", pair.writing.prefix).encode()
    stamp, entity = InfoTimestamp(5).encode(little), pair.others.guid.entity
    burst, sn = [], 0
    for number in range(40):
        rows = [Data(ANY, entity, sn + i + 1, b"\0\1\0\0" + bytes(8)).encode(little) for i in range(each)]
        sn += each
        tail = (
            Heartbeat(ANY, entity, 1, sn, 1000 + number).encode(little)
            if each == 1 and number % 4 == 3
            else b""
        )
        burst.append((header + stamp + b"".join(rows) + tail, pair.network.address_of(pair.writing)))
    pair.network.deliver_burst(pair.reading, burst)
    assert pair.reader.counters.of_other_slices == 40 * each
    assert received(pair.reader) == []
    assert not gathered
    assert not pair.reading.drops
    if each == 1:
        (packed,) = pair.reader.outgoing()
        raw = memoryview(bytes(packed.submessages[0]))
        acknack = decode_submessage(raw[0], raw[1], raw[4:])
        assert isinstance(acknack, AckNack)
        assert acknack.missing.base == 41


def test_forged_messages_of_another_slices_writer_are_not_answered() -> None:
    pair = Pair()
    beat = Heartbeat(ANY, pair.others.guid.entity, 1, 10**12, 5_000).encode()
    message = Header((2, 1), b"\x01\x10", pair.writing.prefix).encode() + beat
    pair.network.deliver(pair.reading, message, "10.0.0.77")
    assert not pair.reader.has_more_to_say
    assert pair.reading.drops[DropReason.FOREIGN_ADDRESS] == 1


# --- many receivers -------------------------------------------------------------------------------


def participants_with_writers(
    network: VirtualNetwork, participants: int, writers: int
) -> dict[RtpsParticipant, list[StatefulWriter]]:
    return {
        participant: [
            participant.create_writer(WriterSpec(*TOPIC, NARROW), now=network.now) for _ in range(writers)
        ]
        for participant in [network.add() for _ in range(participants)]
    }


@pytest.mark.parametrize(("seed", "count", "participants"), [(1, 64, 4), (2, 7, 2), (3, 2, 2), (4, 5, 2)])
def test_many_receivers_share_hundreds_of_writers(seed: int, count: int, participants: int) -> None:
    """Under loss, repetition and reordering: together they get everything, once, and in order of each writer."""
    per_writer = 20
    network = VirtualNetwork(seed=seed, bursts=True, tick=2 * MILLISECOND)
    readings = [network.add() for _ in range(count)]
    readers = [
        each.create_reader(ReaderSpec(*TOPIC, KEEP_ALL, slice=Slice(index, count)), now=network.now)
        for index, each in enumerate(readings)
    ]
    writing = participants_with_writers(network, participants, 50)
    writers = [each for some in writing.values() for each in some]
    addresses = [network.address_of(each) for each in readings]
    network.blocked = {
        (one, other) for one in addresses for other in addresses
    }  # they are nothing to each other
    assert network.run(60 * SECOND, until=lambda: all(len(each.readers) == count for each in writers))
    network.loss, network.duplicates, network.jitter = 0.1, 0.05, 8 * MILLISECOND
    written = dict.fromkeys(writers, 0)
    got: dict[Guid, list[int]] = {each.guid: [] for each in writers}
    places: dict[Guid, set[int]] = {each.guid: set() for each in writers}

    def goes_on() -> bool:
        for writer in writers:
            begun = written[writer]
            if begun < per_writer:
                more = samples(*range(begun, min(begun + 8, per_writer)))
                written[writer] += writer.write_samples(more, timestamp=0, now=network.now)
        for index, reader in enumerate(readers):
            for guid, number in received(reader):
                got[guid].append(number)
                places[guid].add(index)
        return all(len(each) >= per_writer for each in got.values())

    assert network.run(300 * SECOND, until=goes_on)
    network.run(30 * SECOND)
    goes_on()
    assert set(written.values()) == {per_writer}
    assert all(numbers == list(range(per_writer)) for numbers in got.values())
    assert all(places[each.guid] == {slice_of(each.guid, count)} for each in writers)
    assert all(each.unacknowledged() == {} for each in writers)
    assert sum(each.counters.lost_samples for each in readers) == 0
