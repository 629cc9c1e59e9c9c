"""Batches, compressed submessages and odd datagrams on their way through a participant to its reader."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.receiving import message_receiver
from spark_rtps.transport.protocol.writing.feedback import Feedback
from spark_rtps.transport.qos import Qos, ReliabilityKind
from spark_rtps.transport.structure import VENDOR_ID, VENDOR_RTI, Guid
from spark_rtps.transport.wire.batch import DATA_BATCH, BatchBlock, frame_batch
from spark_rtps.transport.wire.compressed import COMPRESSED, compress
from spark_rtps.transport.wire.message import Header, encode_submessage
from spark_rtps.transport.wire.numbers import SequenceNumberSet, pair
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import (
    AckNackBatch,
    Data,
    DataFrag,
    Heartbeat,
    HeartbeatBatch,
    InfoDestination,
    InfoSource,
    InfoTimestamp,
)
from tests.support.campaigns import seeds
from tests.support.virtual_network import SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE)
ANY = bytes(4)
SENDER = "10.0.0.2"


class Scene:
    """A participant with a reader, matched with a writer whose datagrams are made here."""

    def __init__(self, qos: Qos = RELIABLE) -> None:
        self.network = VirtualNetwork()
        self.one, self.two = self.network.add(), self.network.add()
        now = self.network.now
        self.reader: StatefulReader = self.one.create_reader(ReaderSpec("t", "T", qos), now=now)
        offered = replace(RELIABLE, coherent_access=True)
        writer = self.two.create_writer(WriterSpec("t", "T", offered), now=now)
        self.writer: Guid = writer.guid
        self.network.run(SECOND)
        self.reader.take_runs()
        self.one.drops.clear()
        assert self.writer in self.reader.writers

    @property
    def receiver(self) -> message_receiver.MessageReceiver:
        return self.one._receiver

    def deliver(
        self, *submessages: bytes, vendor: bytes = VENDOR_ID, to: RtpsParticipant | None = None
    ) -> None:
        datagram = Header(vendor=vendor, prefix=self.two.prefix).encode() + b"".join(submessages)
        self.network.deliver(to or self.one, datagram, SENDER)

    def batch(self, number: int, first: int, count: int, *, size: int = 16, **options: object) -> BatchBlock:
        rows = np.zeros((count, size), np.uint8)
        rows[:, 1] = 1
        rows[:, 4:8] = np.arange(first, first + count, dtype="<u4").view(np.uint8).reshape(count, 4)
        samples = Samples.uniform(rows.reshape(-1), count, size)
        return frame_batch(samples, self.writer.entity, number, first, **options)

    def taken(self) -> list[int]:
        payloads = (run.samples().payload(i) for run in self.reader.take_runs() for i in range(run.count))
        return [int.from_bytes(payload[4:8], "little") for payload in payloads]


def inside(submessage: bytes, codec: str = "lz4") -> bytes:
    packed = compress(submessage, codec)
    assert packed is not None
    return packed


@pytest.mark.parametrize("qos", [RELIABLE, Qos()])
def test_batches_find_their_readers(qos: Qos) -> None:
    s = Scene(qos)
    s.deliver(InfoTimestamp(0).encode(), bytes(s.batch(1, 1, 5).data), bytes(s.batch(2, 6, 5).data))
    assert s.taken() == list(range(1, 11))
    s.deliver(bytes(s.batch(3, 11, 5, reader_id=b"\0\0\x99\4").data))
    assert s.taken() == []
    s.deliver(bytes(s.batch(3, 11, 5, reader_id=s.reader.guid.entity).data))
    assert s.taken() == list(range(11, 16))
    s.deliver(InfoDestination(bytes(11) + b"\x09").encode(), bytes(s.batch(4, 16, 5).data))
    assert s.taken() == []


def test_batches_of_unknown_writers_are_counted_unread() -> None:
    s = Scene()
    s.writer = Guid(s.two.prefix, b"\0\0\x77\3")
    s.deliver(bytes(s.batch(1, 1, 5).data))
    assert s.one.drops == {DropReason.UNKNOWN_WRITER: 1}


def test_malformed_batches_are_counted_and_what_follows_is_read() -> None:
    s = Scene()
    broken = bytearray(bytes(s.batch(1, 1, 5).data))
    broken[16:24] = bytes(8)  # batch 0
    s.deliver(bytes(broken), bytes(s.batch(1, 1, 5).data))
    assert s.one.drops == {DropReason.BAD_SEQUENCE_NUMBER: 1}
    assert s.taken() == [1, 2, 3, 4, 5]


def test_heartbeat_batch_reaches_the_reader() -> None:
    s = Scene()
    beats = s.reader.counters.heartbeats
    s.deliver(HeartbeatBatch(ANY, s.writer.entity, 1, 3, 1, 30, 1).encode())
    assert s.reader.counters.heartbeats == beats + 1
    assert s.reader.writers[s.writer].last_sn == 30


def test_acknack_batch_reaches_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    s = Scene()
    writer = s.one.create_writer(WriterSpec("u", "T", RELIABLE), now=s.network.now)
    reported: list[tuple[Guid, AckNackBatch]] = []
    monkeypatch.setattr(
        Feedback,
        "on_acknack_batch",
        lambda self, reader, acknack, *, now: reported.append((reader, acknack)),
        raising=False,
    )
    acknack = AckNackBatch(b"\0\0\2\4", writer.guid.entity, SequenceNumberSet(7), 1, True)
    s.deliver(acknack.encode())
    assert reported == [(Guid(s.two.prefix, b"\0\0\2\4"), acknack)]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_is_read_as_what_is_inside(codec: str) -> None:
    s = Scene()
    batch = bytes(s.batch(1, 1, 500).data)
    data = Data(ANY, s.writer.entity, 501, b"\0\1\0\0" + (501).to_bytes(4, "little") + bytes(500)).encode()
    stamp = InfoTimestamp(5_000_000_000).encode()
    s.deliver(stamp, inside(batch, codec), inside(data, codec))
    runs = s.reader.take_runs()
    assert [(run.first_sn, run.count) for run in runs] == [(1, 500), (501, 1)]
    assert [int(run.timestamps()[0]) for run in runs] == [5_000_000_000] * 2
    for number in (1, 2):
        frag = DataFrag(ANY, s.writer.entity, 502, number, 1, 500, 1000, bytes(500)).encode()
        s.deliver(inside(frag, codec))
    assert [run.first_sn for run in s.reader.take_runs()] == [502]
    assert not s.one.drops


def test_compressed_of_another_vendor_is_theirs() -> None:
    s = Scene()
    packed = inside(bytes(s.batch(1, 1, 500).data))
    s.deliver(packed, vendor=VENDOR_RTI)
    s.deliver(InfoSource((2, 5), VENDOR_RTI, s.two.prefix).encode(), packed)
    assert s.taken() == []
    s.deliver(InfoDestination(bytes(11) + b"\x09").encode(), packed)
    assert s.taken() == []
    assert not s.one.drops
    s.deliver(InfoSource((2, 5), VENDOR_ID, s.two.prefix).encode(), packed, vendor=VENDOR_RTI)
    assert len(s.taken()) == 500


def test_compressed_holds_nothing_but_data() -> None:
    s = Scene()
    heartbeat = Heartbeat(ANY, s.writer.entity, 1, 3, 1).encode() + bytes(200)
    heartbeat = heartbeat[:2] + (len(heartbeat) - 4).to_bytes(2, "little") + heartbeat[4:]
    s.deliver(inside(heartbeat), encode_submessage(COMPRESSED, 0, True, b"1234"))
    assert s.one.drops == {DropReason.BAD_ENCAPSULATION: 1, DropReason.TRUNCATED_SUBMESSAGE: 1}


def test_the_decompressed_size_of_a_message_is_bounded() -> None:
    s = Scene()
    rows = np.zeros((3000, 16), np.uint8)
    batch = frame_batch(Samples.uniform(rows.reshape(-1), 3000, 16), s.writer.entity, 1, 1)
    packed = inside(bytes(batch.data), "zstd")
    assert len(packed) * 100 < 65_000, "a hundred fit a datagram"
    s.deliver(*[packed] * 100)
    read = 64 * 65_507 // batch.nbytes
    assert s.one.drops == {DropReason.OVER_LIMIT: 100 - read}
    assert s.reader.counters.received_batches == read


def test_batches_of_mixed_shapes_end_with_the_work_of_their_message() -> None:
    s = Scene()
    plain, stamped = b"\0\0\4\0" + bytes(4), b"\0\1\x0c\0" + bytes(12)
    infos = (plain + stamped) * 2500
    packed = []
    for sn in range(1, 10):
        head = struct.pack("<HH4s4siIiI", 0, 32, ANY, s.writer.entity, 0, sn, 0, 5000 * sn - 4999)
        head += struct.pack("<III", 4999, 1, len(infos))
        packed.append(inside(encode_submessage(DATA_BATCH, 0, True, head, infos, b"\0\1\0\0"), "zstd"))
    s.deliver(*packed)
    # of 60,000 bytes each, a unit for every twelve: two and a half are what a message may cost
    assert s.reader.counters.received_batches == 2
    assert s.one.drops == {DropReason.OVER_LIMIT: 2}, "the third batch, and the rest of the message"


def test_keep_alives_shorter_than_a_header_are_ignored() -> None:
    s = Scene()
    s.network.deliver(s.one, b"RTPS" + bytes(12), SENDER)
    assert s.one.drops == {DropReason.SHORT_MESSAGE: 1}


def test_message_size_max_drops_counts_and_logs() -> None:
    s = Scene()
    reported: list[tuple[str, int]] = []
    s.one._bursts.message_size_max = 300
    s.one._bursts.on_oversized = lambda source_ip, size: reported.append((source_ip, size))
    large, small = bytes(s.batch(1, 1, 20).data), bytes(s.batch(1, 1, 5).data)
    s.deliver(large)
    assert s.one.drops == {DropReason.MESSAGE_TOO_LARGE: 1}
    assert reported == [(f"{SENDER} ({s.two.prefix.hex()})", 20 + len(large))]
    s.deliver(small)
    assert s.taken() == [1, 2, 3, 4, 5]
    s.one._bursts.on_oversized = None
    s.deliver(large)
    assert s.one.drops == {DropReason.MESSAGE_TOO_LARGE: 2}


def test_message_size_max_holds_for_small_datagrams_read_together() -> None:
    s = Scene()
    s.one._bursts.message_size_max = 100
    header = Header(prefix=s.two.prefix).encode() + InfoTimestamp(0).encode()
    buffer, spans = bytearray(), []
    for sn in range(1, 21):
        payload = b"\0\1\0\0" + sn.to_bytes(4, "little") + bytes(60 if sn == 11 else 0)
        datagram = header + Data(ANY, s.writer.entity, sn, payload).encode()
        spans.append((len(buffer), len(buffer) + len(datagram), SENDER))
        buffer += datagram
    s.one.receive(np.frombuffer(buffer, np.uint8), spans, now=s.network.now)
    assert s.taken() == list(range(1, 11))
    assert s.one.drops == {DropReason.MESSAGE_TOO_LARGE: 1}


def test_compressed_of_big_endian_senders() -> None:
    s = Scene()
    packed = inside(bytes(s.batch(1, 1, 500).data))
    head = pair("BBBBII")
    body = head[0].pack(*head[1].unpack_from(packed, 4)) + packed[16:]
    s.deliver(encode_submessage(COMPRESSED, 0, False, body))
    assert len(s.taken()) == 500


@pytest.mark.parametrize("seed", seeds(20))
def test_whatever_becomes_of_batches_nothing_is_raised(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    s = Scene(replace(RELIABLE, coherent_access=seed % 2 == 0))
    r = random.Random(seed)
    # What the real writer would make of it is not the matter here.
    monkeypatch.setattr(Feedback, "on_acknack_batch", lambda *_, now: None, raising=False)
    for number in range(1, 100):
        first = 10 * number - 9 + r.randint(0, 20)
        submessages = [
            InfoTimestamp(0).encode(),
            bytes(s.batch(number, first, 10, coherent_set=r.choice([0, 1, first])).data),
            HeartbeatBatch(ANY, s.writer.entity, 1, number, 1, first + 9, number).encode(),
            inside(bytes(s.batch(number + 1, first + 10, 40, size=64).data), r.choice(["lz4", "zstd"])),
            AckNackBatch(ANY, s.writer.entity, SequenceNumberSet(1), number).encode(),
        ]
        message = bytearray(b"".join(submessages))
        for _ in range(r.randint(0, 6)):
            message[r.randrange(len(message))] = r.choice([0, 1, 0x7F, 0x80, 0xFF, r.randrange(256)])
        s.deliver(bytes(message[: r.randint(0, len(message))] if r.random() < 0.2 else message))
        s.reader.take_runs()
        s.network.run(10_000_000)
    assert sum(s.one.drops.values()) > 0


def test_a_submessage_ends_unaligned_only_at_the_end_of_its_message() -> None:
    s = Scene()
    whole = Data(ANY, s.writer.entity, 1, b"\0\1\0\0\7\0\0\0").encode()
    cut = whole[:2] + (len(whole) - 5).to_bytes(2, "little") + whole[4:-1]
    s.deliver(cut, Heartbeat(ANY, s.writer.entity, 1, 1, 1).encode())
    assert (s.taken(), s.one.drops) == ([], {DropReason.TRUNCATED_SUBMESSAGE: 1})
    s.deliver(cut)
    assert (s.taken(), s.one.drops) == ([7], {DropReason.TRUNCATED_SUBMESSAGE: 1})
