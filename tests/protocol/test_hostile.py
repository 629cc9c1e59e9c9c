"""What peers must not be able to do with a submessage: the attack classes seen against DDS stacks.

A participant never raises on what it receives, never holds more than its limits say, and goes on serving honest
peers meanwhile.
"""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from spark_rtps.transport import limits
from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData, encode_endpoint
from spark_rtps.transport.protocol.discovery.participant_data import ParticipantData, encode_participant
from spark_rtps.transport.structure import (
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SPDP_WRITER,
    ENTITYID_UNKNOWN,
    Guid,
)
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.submessages import (
    AckNack,
    Data,
    Gap,
    Heartbeat,
    InfoDestination,
    InfoTimestamp,
)
from tests.protocol.hostile_scene import EVIL, EVIL_READER, EVIL_WRITER, RELIABLE, Scene, message
from tests.support.virtual_network import MILLISECOND, SECOND


@pytest.fixture
def scene() -> Scene:
    return Scene()


def heartbeat(first: int = 1, last: int = 5, count: int = 1) -> bytes:
    return Heartbeat(ENTITYID_UNKNOWN, EVIL_WRITER, first, last, count).encode()


def data(sn: int = 1, payload: bytes = b"\0\1\0\0abcd") -> bytes:
    return Data(ENTITYID_UNKNOWN, EVIL_WRITER, sn, payload).encode()


# --- 1: lengths -----------------------------------------------------------------------------------


def test_every_truncation_and_every_wrong_length(scene: Scene) -> None:
    key_hash = p.ParameterList(((p.PID_KEY_HASH, bytes(16)), (p.PID_STATUS_INFO, bytes((0, 0, 0, 1)))))
    whole = scene.to_us(
        InfoTimestamp(1).encode(),
        data(1),
        heartbeat(1, 1, 1),
        Data(ENTITYID_UNKNOWN, EVIL_WRITER, 2, b"\0\1\0\0", key_hash, key=True).encode(),
        Gap(ENTITYID_UNKNOWN, EVIL_WRITER, 3, SequenceNumberSet.from_numbers(5, [5, 7])).encode(),
        AckNack(
            EVIL_READER, scene.one_writer.guid.entity, SequenceNumberSet.from_numbers(1, [1]), 1
        ).encode(),
    )
    for stop in range(len(whole)):
        scene.attack(whole[:stop])
    for at in range(20, len(whole), 4):
        for length in (0, 1, 3, 4, 0x7FFF, 0xFFFF):
            scene.attack(whole[: at + 2] + struct.pack("<H", length) + whole[at + 4 :])
    dropped = scene.dropped()
    assert dropped[DropReason.SHORT_MESSAGE] == 20
    assert dropped[DropReason.TRUNCATED_SUBMESSAGE] > 100
    scene.assert_honest_work_goes_on()


def test_submessages_before_a_truncated_one_count(scene: Scene) -> None:
    scene.attack(scene.to_us(heartbeat(1, 1), data(1), b"\x15\x05\xff\x00"))
    assert [run.first_sn for run in scene.reader.take_runs()] == [1]
    assert scene.dropped() == {DropReason.TRUNCATED_SUBMESSAGE: 1}


@pytest.mark.parametrize(
    ("datagram", "reason"),
    [
        (b"", DropReason.SHORT_MESSAGE),
        (bytes(16), DropReason.SHORT_MESSAGE),  # as Cyclone DDS probes with
        (bytes(64), DropReason.NOT_RTPS),
        (b"RTPX" + bytes(60), DropReason.NOT_RTPS),
        (b"RTPS\x01\x00" + bytes(60), DropReason.UNSUPPORTED_VERSION),
        (b"RTPS\x03\x00" + bytes(60), DropReason.UNSUPPORTED_VERSION),
    ],
)
def test_datagrams_that_are_not_rtps_are_dropped(scene: Scene, datagram: bytes, reason: DropReason) -> None:
    scene.attack(datagram)
    assert scene.dropped() == {reason: 1}


# --- 2: counts inside parameter lists -------------------------------------------------------------


@pytest.mark.parametrize(
    "pid", [p.PID_PARTITION, p.PID_USER_DATA, p.PID_TOPIC_NAME, p.PID_DATA_REPRESENTATION]
)
@pytest.mark.parametrize("count", [5, 0x7FFFFFFF, 0xFFFFFFFF])
def test_huge_counts(scene: Scene, pid: int, count: int) -> None:
    good = p.decode_parameter_payload(
        memoryview(encode_endpoint(EndpointData(Guid(EVIL, b"\0\0\2\3"), "t", "T", RELIABLE)))
    )
    value = struct.pack("<I", count) + bytes(4)
    payload = p.encode_parameter_payload([(pid, value), *(each for each in good if each[0] != pid)])
    tracemalloc.start()
    scene.announce(Guid(EVIL, b"\0\0\2\3"), "t", payload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    assert sum(scene.dropped().values()) == 1
    assert Guid(EVIL, b"\0\0\2\3") not in scene.reader.writers
    scene.assert_honest_work_goes_on()


# --- 3: number sets -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "bits"), [(1, 257), (1, 0xFFFFFFFF), (-1, 0), (-(1 << 63), 32), (1, 64), ((1 << 63) - 1, 256)]
)
@pytest.mark.parametrize("kind", [0x06, 0x08])
def test_number_sets_that_are_none(scene: Scene, kind: int, base: int, bits: int) -> None:
    if kind == 0x06:
        ids = EVIL_READER + scene.one_writer.guid.entity
    else:
        ids = ENTITYID_UNKNOWN + EVIL_WRITER + struct.pack("<iI", 0, 1)
    body = ids + struct.pack("<iII", base >> 32, base & 0xFFFFFFFF, bits) + b"\xff" * 4
    scene.attack(scene.to_us(struct.pack("<BBH", kind, 1, len(body)) + body))
    scene.attack(scene.to_us(struct.pack(">BBH", kind, 0, len(body)) + body))
    scene.network.run(SECOND)
    assert sum(scene.dropped().values()) >= 1
    scene.assert_honest_work_goes_on()


# --- 4, 5, 6: huge ranges, far futures, fragments --------------------------------------------------


def test_a_gap_over_everything_costs_nothing(scene: Scene) -> None:
    tracemalloc.start()
    for start, base in ((1, (1 << 62)), (1 << 40, (1 << 63) - 300), (5, 6)):
        gap = Gap(
            ENTITYID_UNKNOWN,
            EVIL_WRITER,
            start,
            SequenceNumberSet.from_numbers(base, range(base, base + 256)),
        )
        scene.attack(scene.to_us(heartbeat(1, 1 << 62, start & 0xFFFF), gap.encode()))
        scene.network.run(100 * MILLISECOND)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()
    scene.assert_honest_work_goes_on()


def test_heartbeats_from_the_far_future(scene: Scene) -> None:
    sent = scene.network.sent
    for count, last in enumerate((1 << 20, 1 << 40, 1 << 62, (1 << 63) - 1), 1):
        scene.attack(scene.to_us(heartbeat(1, last, count)))
        scene.attack(scene.to_us(heartbeat(last, last, count + 100)))
        scene.network.run(SECOND)
    assert scene.network.sent - sent < 200
    scene.assert_honest_work_goes_on()


def data_frag(sn: int, first: int, count: int, size: int, total: int, payload: bytes) -> bytes:
    body = struct.pack(
        "<HH4s4siIIHHI", 0, 28, ENTITYID_UNKNOWN, EVIL_WRITER, 0, sn, first, count, size, total
    )
    body += payload
    return struct.pack("<BBH", 0x16, 1, len(body)) + body


def test_fragments_of_every_kind_of_wrong(scene: Scene) -> None:
    scene.attack(scene.to_us(heartbeat(1, 1)))
    values = (0, 1, 2, 0xFFFF)
    tracemalloc.start()
    for first in (0, 1, 0xFFFFFFFF):
        for count in values:
            for size in values:
                for total in (0, 1, 100, 200 << 20, 0xFFFFFFFF):
                    scene.attack(scene.to_us(data_frag(5, first, count, size, total, bytes(64))))
    scene.attack(scene.to_us(data_frag(6, 1, 1, 64, 0xFFFFFFFF, bytes(64))))
    # overlapping, contradicting, and never finished
    for sn in range(10, 3_000):
        scene.attack(scene.to_us(data_frag(sn, 2, 1, 64, 250 << 20, bytes(64))))
        scene.attack(scene.to_us(data_frag(sn, 2, 1, 32, 1_000, bytes(64))))
        scene.attack(scene.to_us(data_frag(sn, 2, 2, 64, 250 << 20, bytes(128))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < limits.FRAGMENTED_BYTES_MAX
    assert scene.dropped()[DropReason.BAD_FRAGMENT] > 50
    assert scene.reader.counters.oversized_samples > 0
    scene.assert_honest_work_goes_on()


def test_out_of_order_floods_are_bounded(scene: Scene) -> None:
    scene.attack(scene.to_us(heartbeat(1, 1)))
    payload = b"\0\1\0\0" + bytes(60_000)
    tracemalloc.start()
    for sn in range(3, 2_000, 2):
        scene.attack(scene.to_us(data(sn, payload)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < limits.REORDER_WRITER_BYTES_MAX + (4 << 20)
    scene.assert_honest_work_goes_on()


# --- 7: encapsulation -----------------------------------------------------------------------------


@pytest.mark.parametrize("encapsulation", [b"\0\0", b"\0\1", b"\0\7", b"\0\x0b", b"\xff\xff"])
def test_builtin_topics_speak_parameter_lists_only(scene: Scene, encapsulation: bytes) -> None:
    guid = Guid(EVIL, b"\0\0\2\3")
    payload = encapsulation + encode_endpoint(EndpointData(guid, "t", "T", RELIABLE))[2:]
    scene.announce(guid, "t", payload)
    spdp = encapsulation + encode_participant(ParticipantData(b"\xaa" * 12))[2:]
    scene.attack(message(Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, 9, spdp).encode(), prefix=b"\xaa" * 12))
    assert scene.dropped() == {DropReason.BAD_ENCAPSULATION: 2}
    assert guid not in scene.reader.writers


def test_data_and_key_together(scene: Scene) -> None:
    broken = bytearray(data(1))
    broken[1] |= 0x08
    scene.attack(scene.to_us(bytes(broken), heartbeat(1, 1)))
    assert sum(scene.dropped().values()) == 1
    scene.assert_honest_work_goes_on()


def test_samples_without_a_payload_on_builtin_topics(scene: Scene) -> None:
    for writer_id in (ENTITYID_SPDP_WRITER, ENTITYID_SEDP_PUBLICATIONS_WRITER):
        scene.attack(scene.to_us(Data(ENTITYID_UNKNOWN, writer_id, 2, None).encode()))
    assert scene.dropped() == {DropReason.BAD_ENCAPSULATION: 2}


# --- 10: replayed counts --------------------------------------------------------------------------


def test_replayed_heartbeats_are_not_answered_again(scene: Scene) -> None:
    scene.attack(scene.to_us(heartbeat(1, 5, 7)))
    scene.network.run(MILLISECOND // 2)
    sent = scene.network.sent
    for _ in range(500):
        scene.attack(scene.to_us(heartbeat(1, 5, 7)))
    scene.network.run(MILLISECOND // 2)
    assert scene.network.sent - sent <= 2


# --- 11: the unknown ------------------------------------------------------------------------------


def test_unknown_submessages_parameters_and_vendors_are_passed_over(scene: Scene) -> None:
    unknown = b"".join(struct.pack("<BBH", kind, 1, 8) + bytes(8) for kind in (0x02, 0x30, 0x7F, 0x80, 0xFF))
    datagram = bytearray(scene.to_us(unknown, heartbeat(1, 1), unknown, data(1), unknown))
    datagram[5:8] = b"\x63\xff\xff"  # version 2.99 of vendor ff.ff
    scene.attack(bytes(datagram))
    assert [run.first_sn for run in scene.reader.take_runs()] == [1]
    good = p.decode_parameter_payload(
        memoryview(encode_endpoint(EndpointData(Guid(EVIL, b"\0\0\2\3"), "t", "T", RELIABLE)))
    )
    odd = [(0x3ABC, bytes(40)), (0x8123, bytes(4)), (0x0075, b"garbage!"), (0x0072, bytes(8))]
    scene.announce(Guid(EVIL, b"\0\0\2\3"), "t", p.encode_parameter_payload([*odd, *good]))
    assert Guid(EVIL, b"\0\0\2\3") in scene.reader.writers
    assert scene.dropped() == {DropReason.BAD_PARAMETER: 2}  # its type information, and its type object


def test_messages_for_others_are_skipped(scene: Scene) -> None:
    others = InfoDestination(b"\x99" * 12).encode()
    scene.attack(message(others, heartbeat(1, 1), data(1)))
    assert scene.reader.take_runs() == []
    for everybody in (InfoDestination(bytes(12)).encode(), InfoDestination(scene.one.prefix).encode(), b""):
        scene.attack(message(others, heartbeat(1, 9, 3), everybody or others, heartbeat(1, 1), data(1)))
    assert [run.first_sn for run in scene.reader.take_runs()] == [1]


def test_user_data_of_writers_nobody_asked_for_is_counted(scene: Scene) -> None:
    unmatched_peer = b"\xab" * 12
    scene.attack(message(data(1) + data(2) + data(3), prefix=unmatched_peer))
    scene.attack(message(heartbeat(), prefix=unmatched_peer))
    assert scene.dropped() == {DropReason.UNKNOWN_WRITER: 3}
