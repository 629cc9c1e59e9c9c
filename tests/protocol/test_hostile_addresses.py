"""What a host cannot do that speaks, from an address of its own, in the names of others.

It has read everybody's GUIDs and sequence numbers from multicast. Whatever it sends, every sample of the honest writer
arrives once and in order, and the writer takes nothing for acknowledged or requested that its reader did not say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.discovery.endpoint_data import encode_endpoint_key
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind
from spark_rtps.transport.structure import (
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SEDP_SUBSCRIPTIONS_WRITER,
    ENTITYID_UNKNOWN,
    Guid,
)
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.numbers import FragmentNumberSet, SequenceNumberSet
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.status_messages import StatusMessage
from spark_rtps.transport.wire.submessages import (
    AckNack,
    Data,
    Gap,
    Heartbeat,
    InfoDestination,
    InfoSource,
    InfoTimestamp,
    NackFrag,
)
from tests.protocol.hostile_scene import EVIL, EVIL_IP, RELIABLE, message
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

FAR = 10**12
#: ``one`` reads and ``two`` writes; both are known to whoever attacks.
Attack = Callable[["Pair"], bytes]


class Pair:
    """A writer and a reader that know each other, on 10.0.0.2 and 10.0.0.1."""

    def __init__(self, trust: Trust = Trust.ADDRESS) -> None:
        self.network = VirtualNetwork()
        self.one, self.two = self.network.add(trust=trust), self.network.add(trust=trust)
        now = self.network.now
        qos = replace(RELIABLE, durability=DurabilityKind.VOLATILE)
        self.reader: StatefulReader = self.one.create_reader(ReaderSpec("t", "T", qos), now=now)
        self.writer: StatefulWriter = self.two.create_writer(WriterSpec("t", "T", qos), now=now)
        assert self.network.run(5 * SECOND, until=lambda: bool(self.reader.writers and self.writer.readers))
        self.network.run(SECOND)
        self.written = 0
        self.received: list[int] = []

    def attack(self, datagram: bytes, source: str = EVIL_IP) -> None:
        for participant in (self.one, self.two):
            self.network.deliver(participant, datagram, source)

    def write(self, count: int) -> None:
        numbers = np.arange(self.written, self.written + count, dtype="<u4")
        rows = np.zeros((count, 8), np.uint8)
        rows[:, 1] = 1
        rows[:, 4:] = numbers.view(np.uint8).reshape(count, 4)
        self.writer.write_samples(
            Samples.uniform(rows.reshape(-1), count, 8), timestamp=0, now=self.network.now
        )
        self.written += count

    def take(self) -> None:
        for run in self.reader.take_runs():
            for i in range(run.count):
                self.received.append(int.from_bytes(bytes(run.samples().payload(i))[4:], "little"))

    def assert_all_arrived_once(self) -> None:
        def done() -> bool:
            self.take()
            return len(self.received) >= self.written

        self.network.run(10 * SECOND, until=done)
        self.network.run(SECOND)
        self.take()
        assert self.received == list(range(self.written))


def as_writer(pair: Pair, *submessages: bytes) -> bytes:
    return message(InfoDestination(pair.one.prefix).encode(), *submessages, prefix=pair.two.prefix)


def as_reader(pair: Pair, *submessages: bytes) -> bytes:
    return message(InfoDestination(pair.two.prefix).encode(), *submessages, prefix=pair.one.prefix)


def heartbeat_far_off(pair: Pair) -> bytes:
    return as_writer(
        pair, Heartbeat(ENTITYID_UNKNOWN, pair.writer.guid.entity, FAR, FAR + 5, 1 << 20).encode()
    )


def gap_over_everything(pair: Pair) -> bytes:
    end = SequenceNumberSet.from_numbers(FAR, [])
    return as_writer(pair, Gap(ENTITYID_UNKNOWN, pair.writer.guid.entity, 1, end).encode())


def data_far_off(pair: Pair) -> bytes:
    entity = pair.writer.guid.entity
    row = Data(ENTITYID_UNKNOWN, entity, FAR, b"\0\1\0\0evil").encode()
    return as_writer(pair, row, Heartbeat(ENTITYID_UNKNOWN, entity, FAR, FAR, 1 << 20).encode())


def data_that_is_next(pair: Pair) -> bytes:
    row = Data(ENTITYID_UNKNOWN, pair.writer.guid.entity, pair.writer.last_sn + 1, b"\0\1\0\0evil").encode()
    return as_writer(pair, InfoTimestamp(1).encode(), row)


def data_in_two_names(pair: Pair) -> bytes:
    """Behind INFO_SRC, in a message of its own."""
    row = Data(ENTITYID_UNKNOWN, pair.writer.guid.entity, pair.writer.last_sn + 1, b"\0\1\0\0evil").encode()
    return message(InfoSource(prefix=pair.two.prefix).encode(), row)


def dispose_of_the_writer(pair: Pair) -> bytes:
    return disposed(pair, pair.two.prefix, pair.writer.guid, ENTITYID_SEDP_PUBLICATIONS_WRITER)


def dispose_of_the_reader(pair: Pair) -> bytes:
    return disposed(pair, pair.one.prefix, pair.reader.guid, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER)


def disposed(pair: Pair, prefix: bytes, guid: Guid, writer_id: bytes) -> bytes:
    qos = p.ParameterList(((p.PID_KEY_HASH, guid.to_bytes()), (p.PID_STATUS_INFO, p.encode_status_info(3))))
    sample = Data(ENTITYID_UNKNOWN, writer_id, 2, encode_endpoint_key(guid), qos, key=True).encode()
    return message(sample, Heartbeat(ENTITYID_UNKNOWN, writer_id, 2, 2, 1 << 20).encode(), prefix=prefix)


def acknack_of_everything(pair: Pair) -> bytes:
    end = SequenceNumberSet.from_numbers(pair.writer.last_sn + 1, [])
    return as_reader(pair, AckNack(pair.reader.guid.entity, pair.writer.guid.entity, end, 1 << 20).encode())


def acknack_far_off(pair: Pair) -> bytes:
    end = SequenceNumberSet.from_numbers(10**6, [])
    return as_reader(pair, AckNack(pair.reader.guid.entity, pair.writer.guid.entity, end, 1 << 20).encode())


def nack_of_fragments(pair: Pair) -> bytes:
    every = FragmentNumberSet.from_numbers(1, range(1, 200))
    return as_reader(pair, NackFrag(pair.reader.guid.entity, pair.writer.guid.entity, 1, every, 9).encode())


def status_message_without_room(pair: Pair) -> bytes:
    ids = pair.reader.guid.entity, pair.writer.guid.entity
    return as_reader(pair, StatusMessage(*ids, FAR, 0, 1 << 20, end_of_stream=True).encode())


IN_THE_WRITERS_NAME = (
    heartbeat_far_off,
    gap_over_everything,
    data_far_off,
    data_that_is_next,
    data_in_two_names,
    dispose_of_the_writer,
)
IN_THE_READERS_NAME = (
    dispose_of_the_reader,
    acknack_of_everything,
    acknack_far_off,
    nack_of_fragments,
    status_message_without_room,
)


@pytest.mark.parametrize("attack", IN_THE_WRITERS_NAME + IN_THE_READERS_NAME)
def test_messages_from_a_foreign_address_under_anothers_guid_are_untrusted(attack: Attack) -> None:
    pair = Pair()
    before = {each.prefix: each.drops.copy() for each in (pair.one, pair.two)}
    for _ in range(20):
        pair.attack(attack(pair))
        pair.write(5)
        pair.attack(attack(pair))
        pair.network.run(10 * MILLISECOND)
        pair.take()
    assert pair.reader.writers and pair.writer.readers
    pair.assert_all_arrived_once()
    victim = pair.two if attack in IN_THE_READERS_NAME else pair.one
    assert victim.drops[DropReason.FOREIGN_ADDRESS] - before[victim.prefix][DropReason.FOREIGN_ADDRESS] >= 40


@pytest.mark.parametrize("attack", [data_that_is_next])
def test_trust_any_accepts_a_foreign_address(attack: Attack) -> None:
    """Or else the tests above show nothing. Numbers that are far off are not believed then either."""
    pair = Pair(Trust.ANY)
    pair.attack(attack(pair))
    pair.write(5)
    pair.network.run(SECOND)
    pair.take()
    assert pair.received != list(range(5))
    assert not pair.one.drops[DropReason.FOREIGN_ADDRESS]


def test_a_forged_acknowledgment_frees_nothing() -> None:
    pair = Pair()
    pair.network.unplug(pair.one)
    pair.write(5)
    for _ in range(3):
        pair.attack(acknack_of_everything(pair))
        pair.network.run(10 * MILLISECOND)
    assert pair.writer.unacknowledged(pair.writer.last_sn) == {pair.reader.guid: 0}


def test_a_storm_of_requests_in_anothers_name_brings_no_repairs() -> None:
    pair = Pair()
    pair.write(100)
    pair.assert_all_arrived_once()
    sent = pair.network.sent
    every = SequenceNumberSet.from_numbers(1, range(1, 101))
    for count in range(1, 1_000):
        storm = AckNack(pair.reader.guid.entity, pair.writer.guid.entity, every, 1_000 + count)
        pair.attack(as_reader(pair, storm.encode()))
    pair.network.run(SECOND)
    assert pair.network.sent - sent < 50


def test_a_burst_of_small_datagrams_is_judged_by_the_address_of_each() -> None:
    """As the fast path takes them: true ones and forged ones in one burst, and the other way round."""
    for order in (0, 1):
        pair = Pair()
        pair.network.log = log = []  # type: ignore[var-annotated]
        pair.write(64)
        pair.network.run(0)
        (honest,) = [each for _, to, each in log if to.address == "10.0.0.1"][-1:]
        assert honest
        entity, first = pair.writer.guid.entity, pair.writer.last_sn + 1
        buffer, spans = bytearray(), []
        for i in range(64):
            for source in ("10.0.0.2", EVIL_IP)[:: 1 - 2 * order]:
                payload = b"\0\1\0\0" + (64 + i if source == "10.0.0.2" else 9_999).to_bytes(4, "little")
                row = Data(ENTITYID_UNKNOWN, entity, first + i, payload).encode()
                datagram = message(InfoTimestamp(1).encode(), row, prefix=pair.two.prefix)
                spans.append((len(buffer), len(buffer) + len(datagram), source))
                buffer += datagram
        pair.assert_all_arrived_once()
        pair.one.receive(np.frombuffer(buffer, np.uint8), spans, now=pair.network.now)
        pair.take()
        assert pair.received == list(range(128))
        assert pair.one.drops[DropReason.FOREIGN_ADDRESS] == 64


def test_messages_under_our_own_guid_from_elsewhere_are_untrusted() -> None:
    network = VirtualNetwork()
    one = network.add()
    reader = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    writer = one.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    network.run(SECOND)
    forged = Heartbeat(ENTITYID_UNKNOWN, writer.guid.entity, FAR, FAR + 5, 1 << 20).encode()
    network.deliver(one, message(forged, prefix=one.prefix), EVIL_IP)
    assert one.drops == {DropReason.FOREIGN_ADDRESS: 1}
    writer.write_samples(Samples.uniform(np.zeros(8, np.uint8), 1, 8), timestamp=0, now=network.now)
    network.run(SECOND)
    assert [run.first_sn for run in reader.take_runs()] == [1]


def test_a_message_in_many_names_is_looked_through_only_so_far() -> None:
    pair = Pair()
    drops = pair.one.drops.copy()
    row = Data(ENTITYID_UNKNOWN, b"\0\0\1\3", 1, b"\0\1\0\0evil").encode()
    pair.attack(message(row * 1_000, prefix=EVIL))
    assert pair.one.drops - drops == {DropReason.UNKNOWN_WRITER: 16}
