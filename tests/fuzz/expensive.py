"""Datagrams made to cost as much as they can: one for each submessage kind, form and mixture that was thought of.

Each is well formed, or as malformed as it takes, fills a datagram, and comes from a participant that is matched with
the receiver: what an unmatched participant sends costs less.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from spark_rtps.transport.limits import UDP_PAYLOAD_MAX
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData, encode_endpoint
from spark_rtps.transport.structure import (
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SEDP_SUBSCRIPTIONS_WRITER,
    ENTITYID_SPDP_WRITER,
    ENTITYID_UNKNOWN,
    Guid,
)
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.batch import DATA_BATCH
from spark_rtps.transport.wire.compressed import compress
from spark_rtps.transport.wire.message import HEADER_SIZE, encode_submessage
from spark_rtps.transport.wire.numbers import FragmentNumberSet, SequenceNumberSet
from spark_rtps.transport.wire.status_messages import RttMeasurement, StatusMessage
from spark_rtps.transport.wire.submessages import (
    AckNack,
    AckNackBatch,
    Data,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatFrag,
    InfoDestination,
    InfoSource,
    InfoTimestamp,
    NackFrag,
)
from tests.protocol.hostile_scene import (
    EVIL,
    EVIL_READER,
    EVIL_WRITER,
    RELIABLE,
    Scene,
    announcement,
    message,
)

#: What a datagram takes behind its header and an INFO_DST.
ROOM: Final = UDP_PAYLOAD_MAX - HEADER_SIZE - 16
UNKNOWN_WRITER: Final = b"\0\x66\x66\3"
_ALTERNATING_SET: Final = tuple(range(0, 256, 2))
_VENDOR_KIND: Final = 0xA0


def fill(parts: Iterator[bytes]) -> list[bytes]:
    """As many of the submessages as find room."""
    filled, room = [], ROOM
    for part in parts:
        room -= len(part)
        if room < 0:
            break
        filled.append(part)
    return filled


def data(sn: int, size: int = 4, *, writer: bytes = EVIL_WRITER, qos: p.ParameterList | None = None) -> bytes:
    payload = b"\0\1\0\0" + bytes(size)
    return Data(ENTITYID_UNKNOWN, writer, sn, payload, qos).encode()


def disposal(sn: int, *, writer: bytes = EVIL_WRITER) -> bytes:
    """A DATA without payload, by its key hash."""
    qos = p.ParameterList(((p.PID_KEY_HASH, bytes(16)), (p.PID_STATUS_INFO, b"\0\0\0\1")))
    return Data(ENTITYID_UNKNOWN, writer, sn, None, qos).encode()


# --- DATA_BATCH --------------------------------------------------------------------------------------

#: Sample infos of different shapes, without payload.
_PLAIN_INFO: Final = b"\0\0" + struct.pack("<HI", 4, 0)
_STAMPED_INFO: Final = b"\0\1" + struct.pack("<HIII", 12, 0, 1, 1)
_SENTINEL_INFO: Final = b"\0\2" + struct.pack("<HIHH", 4, 0, 1, 0)
_STATUS_INFO: Final = b"\0\2" + struct.pack("<HIHHIHH", 4, 0, 0x71, 4, 0x01000000, 1, 0)


def numbered_info(number: int) -> bytes:
    return b"\0\4" + struct.pack("<HII", 8, 0, number)


def batch(
    infos: bytes, payload: bytes = b"", *, sn: int = 1, first: int = 1, writer: bytes = EVIL_WRITER
) -> bytes:
    head = struct.pack("<HH4s4s", 0, 32, ENTITYID_UNKNOWN, writer)
    head += struct.pack("<iIiI", 0, sn, 0, first) + struct.pack("<III", 1 << 30, 1, len(infos))
    return encode_submessage(DATA_BATCH, 0, True, head, infos, b"\0\1\0\0", payload)


def infos_of(*shapes: bytes, room: int = ROOM - 64) -> bytes:
    """Sample infos of these shapes by turns."""
    each = b"".join(shapes)
    return each * (room // len(each))


def packed(submessage: bytes, codec: str = "zstd") -> bytes:
    found = compress(submessage, codec)
    assert found is not None
    return found


def batches() -> Iterator[tuple[str, list[bytes]]]:
    shapes = {
        "alike": infos_of(_PLAIN_INFO),
        "stamped by turns": infos_of(_PLAIN_INFO, _STAMPED_INFO),
        "inline QoS by turns": infos_of(_PLAIN_INFO, _SENTINEL_INFO),
        "status by turns": infos_of(_PLAIN_INFO, _STATUS_INFO),
        "three shapes": infos_of(_PLAIN_INFO, _STAMPED_INFO, _SENTINEL_INFO),
        "numbers left out": b"".join(numbered_info(2 * i) for i in range((ROOM - 64) // 12)),
        "numbers left out by turns": b"".join(
            numbered_info(3 * i) + _PLAIN_INFO for i in range((ROOM - 64) // 20)
        ),
        "sets by turns": b"".join(
            b"\0\2" + struct.pack("<HIHHiIHH", 4, 0, 0x56, 8, 0, 1 + i % 2, 1, 0) for i in range((ROOM - 64) // 24)
        ),
        "one parameter list of nothing": b"\0\2" + struct.pack("<HI", 4, 0)
        + struct.pack("<HH", 0x8000, 0) * ((ROOM - 128) // 4) + struct.pack("<HH", 1, 0),
        "no sentinel": b"\0\2" + struct.pack("<HI", 4, 0) + struct.pack("<HH", 0x8000, 0) * ((ROOM - 128) // 4),
        "no sentinel, again and again": infos_of(b"\0\2" + struct.pack("<HI", 4, 0)),
    }  # fmt: skip
    for name, infos in shapes.items():
        one = batch(infos)
        yield f"DATA_BATCH, {name}", [one]
        for codec in ("lz4", "zstd"):
            squeezed = packed(one, codec)
            yield f"DATA_BATCH, {name}, {codec}", [squeezed]
            yield f"DATA_BATCH, {name}, {codec}, many", fill(squeezed for _ in range(1000))
    yield "DATA_BATCH, small ones", fill(batch(_PLAIN_INFO * 2, sn=i, first=2 * i) for i in count(1))
    yield (
        "DATA_BATCH, small ones of two shapes",
        fill(batch(_PLAIN_INFO + _STAMPED_INFO, sn=i, first=3 * i) for i in count(1)),
    )
    yield (
        "DATA_BATCH, unknown writer",
        fill(batch(_PLAIN_INFO + _STAMPED_INFO, sn=i, first=3 * i, writer=UNKNOWN_WRITER) for i in count(1)),
    )
    zeros = batch(_PLAIN_INFO, bytes(ROOM - 80))
    for codec in ("lz4", "zstd"):
        yield f"COMPRESSED, zeros, {codec}, many", fill(packed(zeros, codec) for _ in range(1000))
        few = batch(_PLAIN_INFO * 30, sn=1)
        yield f"COMPRESSED, small ones, {codec}", fill(packed(few, codec) for _ in range(3000))


# --- DATA --------------------------------------------------------------------------------------------


def datas() -> Iterator[tuple[str, list[bytes]]]:
    stamp = InfoTimestamp(1_000_000_000).encode()
    key = p.ParameterList(((p.PID_KEY_HASH, bytes(16)),))
    filler = p.ParameterList(tuple((0x8000, b"") for _ in range(ROOM // 4 - 40)))
    yield "DATA, alike", fill(data(i) for i in count(1))
    yield "DATA, lengths by turns", fill(data(i, 4 + 4 * (i % 2)) for i in count(1))
    yield "DATA, key hash by turns", fill(data(i, qos=key if i % 2 else None) for i in count(1))
    yield "DATA, disposed by turns", fill(disposal(i) if i % 2 else data(i) for i in count(1))
    yield "DATA, disposed, all", fill(disposal(i) for i in count(1))
    yield "DATA, every other number", fill(data(2 * i) for i in count(1))
    yield "DATA, every other number, none before", fill(data(2 * i) for i in count(100))
    yield "DATA, backwards", fill(data(10_000 - i) for i in count(1))
    yield "DATA, pairs backwards", fill(data(10_000 - i + 2 * (i % 2)) for i in count(1))
    yield "DATA, the same number", fill(data(1) for _ in count())
    yield (
        "DATA, without payload",
        fill(Data(ENTITYID_UNKNOWN, EVIL_WRITER, i, None).encode() for i in count(1)),
    )
    yield (
        "DATA, byte order by turns",
        fill(Data(ENTITYID_UNKNOWN, EVIL_WRITER, i, b"\0\1\0\0").encode(i % 2 == 0) for i in count(1)),
    )
    yield "DATA, pairs alike", fill(data(i, 4 * (i // 2 % 2)) for i in count(1))
    yield (
        "DATA, stamped by turns",
        fill(part for i in count(1) for part in ((stamp, data(i)) if i % 2 else (data(i),))),
    )
    yield (
        "DATA, writers by turns",
        fill(data(i // 2 + 1, writer=EVIL_WRITER if i % 2 else UNKNOWN_WRITER) for i in count(1)),
    )
    yield "DATA, unknown writer", fill(data(i, writer=UNKNOWN_WRITER) for i in count(1))
    yield (
        "DATA, unknown writer, every other number",
        fill(data(2 * i, writer=UNKNOWN_WRITER) for i in count(1)),
    )
    yield "DATA, unknown writers", fill(data(i, writer=struct.pack(">HBB", i, 9, 3)) for i in count(1))
    yield "DATA, much inline QoS", [Data(ENTITYID_UNKNOWN, EVIL_WRITER, 1, b"\0\1\0\0", filler).encode()]
    yield (
        "DATA, malformed",
        fill(encode_submessage(Data.KIND, 4, True, data(i)[4:20], bytes(4)) for i in count(1)),
    )
    # each looks like the head of a chain that breaks at its second link
    yield (
        "DATA, chains that break",
        fill(
            part for i in count(0) for part in (data(3 * i + 1, 4), data(3 * i + 2, 8), disposal(3 * i + 3))
        ),
    )


# --- all others --------------------------------------------------------------------------------------


def others() -> Iterator[tuple[str, list[bytes]]]:
    evens = SequenceNumberSet.from_numbers(2, (2 + n for n in _ALTERNATING_SET))
    yield "PAD", fill(struct.pack("<BBH", 1, 1, 0) for _ in count())
    yield "unknown kinds", fill(struct.pack("<BBHI", _VENDOR_KIND, 1, 4, 0) for _ in count())
    yield "INFO_TS", fill(InfoTimestamp(1).encode() for _ in count())
    yield "INFO_TS, none", fill(InfoTimestamp(None).encode() for _ in count())
    yield "INFO_SRC", fill(InfoSource(prefix=EVIL).encode() for _ in count())
    yield "INFO_DST, malformed", fill(struct.pack("<BBHI", 0x0E, 1, 4, 0) for _ in count())
    yield "INFO_REPLY", fill(encode_submessage(0x0F, 0, True, struct.pack("<I", 0)) for _ in count())
    yield "HEARTBEAT", fill(Heartbeat(ENTITYID_UNKNOWN, EVIL_WRITER, 1, 2**40, i).encode() for i in count(1))
    yield (
        "HEARTBEAT, alive",
        fill(Heartbeat(ENTITYID_UNKNOWN, EVIL_WRITER, 1, i, i, liveliness=True).encode() for i in count(1)),
    )
    yield (
        "HEARTBEAT, unknown writer",
        fill(Heartbeat(ENTITYID_UNKNOWN, UNKNOWN_WRITER, 1, 9, i).encode() for i in count(1)),
    )
    yield (
        "HEARTBEAT_BATCH",
        fill(HeartbeatBatch(ENTITYID_UNKNOWN, EVIL_WRITER, 1, i, 1, 10 * i, i).encode() for i in count(1)),
    )
    yield (
        "HEARTBEAT_FRAG",
        fill(HeartbeatFrag(ENTITYID_UNKNOWN, EVIL_WRITER, i, 5, i).encode() for i in count(1)),
    )
    yield (
        "GAP, holes",
        fill(
            Gap(
                ENTITYID_UNKNOWN,
                EVIL_WRITER,
                2 + 256 * i,
                SequenceNumberSet(2 + 256 * i, 256, (0xAAAAAAAA,) * 8),
            ).encode()
            for i in count(0)
        ),
    )
    yield (
        "GAP, far",
        fill(
            Gap(ENTITYID_UNKNOWN, EVIL_WRITER, 10 * i, SequenceNumberSet(10 * i + 1)).encode()
            for i in count(1)
        ),
    )
    yield "GAP, the same", fill(Gap(ENTITYID_UNKNOWN, EVIL_WRITER, 2, evens).encode() for _ in count())
    yield (
        "GAP, unknown writer",
        fill(Gap(ENTITYID_UNKNOWN, UNKNOWN_WRITER, 2, evens).encode() for _ in count()),
    )
    ours = b"\0\0\2\3"
    yield "ACKNACK", fill(AckNack(EVIL_READER, ours, evens, i).encode() for i in count(1))
    yield (
        "ACKNACK, empty",
        fill(AckNack(EVIL_READER, ours, SequenceNumberSet(1), i).encode() for i in count(1)),
    )
    yield "ACKNACK_BATCH", fill(AckNackBatch(EVIL_READER, ours, evens, i).encode() for i in count(1))
    yield (
        "NACK_FRAG",
        fill(
            NackFrag(EVIL_READER, ours, i, FragmentNumberSet(1, 256, (0xAAAAAAAA,) * 8), i).encode()
            for i in count(1)
        ),
    )
    yield (
        "NACK_FRAG, small",
        fill(NackFrag(EVIL_READER, ours, i, FragmentNumberSet(1), i).encode() for i in count(1)),
    )
    yield "STATUS_MESSAGE", fill(StatusMessage(EVIL_READER, ours, i, 1 << 20, i).encode() for i in count(1))
    yield "RTT_MEASUREMENT", fill(RttMeasurement(EVIL_READER, ours, i).encode() for i in count(1))
    yield (
        "RTT_MEASUREMENT, replies",
        fill(RttMeasurement(ENTITYID_UNKNOWN, EVIL_WRITER, i, 5, reply=True).encode() for i in count(1)),
    )
    big = 64 << 20
    yield (
        "DATA_FRAG, new samples",
        fill(DataFrag(ENTITYID_UNKNOWN, EVIL_WRITER, i, 1, 1, 4, big, bytes(4)).encode() for i in count(1)),
    )
    yield (
        "DATA_FRAG, new samples backwards",
        fill(
            DataFrag(ENTITYID_UNKNOWN, EVIL_WRITER, 10_000 - i, 1, 1, 4, big, bytes(4)).encode()
            for i in count(1)
        ),
    )
    yield (
        "DATA_FRAG, scattered",
        fill(
            DataFrag(
                ENTITYID_UNKNOWN, EVIL_WRITER, 1, 2 * (i * 7919 % 100_000) + 1, 1, 4, big, bytes(4)
            ).encode()
            for i in count(1)
        ),
    )
    huge = 256 << 20
    yield (
        "DATA_FRAG, scattered far",
        fill(
            DataFrag(
                ENTITYID_UNKNOWN,
                EVIL_WRITER,
                1 + i // 100,
                1 + (i * 37 % 100) * (1 << 19),
                1,
                4,
                huge,
                bytes(4),
            ).encode()
            for i in count(1)
        ),
    )
    yield (
        "DATA_FRAG, whole samples",
        fill(DataFrag(ENTITYID_UNKNOWN, EVIL_WRITER, i, 1, 1, 4, 4, b"\0\1\0\0").encode() for i in count(1)),
    )
    yield (
        "DATA_FRAG, unknown writer",
        fill(
            DataFrag(ENTITYID_UNKNOWN, UNKNOWN_WRITER, i, 1, 1, 4, big, bytes(4)).encode() for i in count(1)
        ),
    )
    filler = p.ParameterList(tuple((0x8000, b"") for _ in range(1000)))
    yield (
        "DATA_FRAG, much inline QoS",
        fill(
            DataFrag(ENTITYID_UNKNOWN, EVIL_WRITER, i, 1, 1, 4, 8, bytes(4), filler).encode()
            for i in count(1)
        ),
    )


# --- discovery ---------------------------------------------------------------------------------------


def discovery() -> Iterator[tuple[str, list[bytes]]]:
    def endpoint(number: int, topic: str, *, kind: int = 3) -> bytes:
        guid = Guid(EVIL, struct.pack(">BHB", 1, number, kind))
        writer = kind in (2, 3)
        which = ENTITYID_SEDP_PUBLICATIONS_WRITER if writer else ENTITYID_SEDP_SUBSCRIPTIONS_WRITER
        payload = encode_endpoint(EndpointData(guid, topic, "T", RELIABLE))
        return Data(ENTITYID_UNKNOWN, which, number, payload).encode()

    yield "SEDP, writers of our topic", fill(endpoint(i, "t") for i in count(2))
    yield "SEDP, readers of our topic", fill(endpoint(i, "s", kind=4) for i in count(2))
    yield "SEDP, writers of another topic", fill(endpoint(i, "x") for i in count(2))
    small = struct.pack("<HH", 1, 0)
    yield (
        "SEDP, empty lists",
        fill(
            Data(ENTITYID_UNKNOWN, ENTITYID_SEDP_PUBLICATIONS_WRITER, i, b"\0\3\0\0" + small).encode()
            for i in count(2)
        ),
    )
    guid = struct.pack("<HH", p.PID_ENDPOINT_GUID, 16) + EVIL
    yield (
        "SEDP, only a GUID",
        fill(
            Data(
                ENTITYID_UNKNOWN,
                ENTITYID_SEDP_PUBLICATIONS_WRITER,
                i,
                b"\0\3\0\0" + guid + struct.pack(">BHB", 1, i, 3) + small,
            ).encode()
            for i in count(2)
        ),
    )
    one = announcement()[HEADER_SIZE:]
    yield "SPDP, the same", fill(one for _ in count())
    yield "SPDP, changing", fill(announcement(name=f"n{i}")[HEADER_SIZE:] for i in count())
    yield (
        "SPDP, many participants",
        fill(
            part
            for i in count()
            for prefix in (struct.pack(">HI", 0xABCD, i) * 2,)
            for part in (InfoSource(prefix=prefix).encode(), announcement(prefix)[HEADER_SIZE:])
        ),
    )
    yield (
        "SPDP, empty lists",
        fill(Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, i, b"\0\3\0\0" + small).encode() for i in count(1)),
    )
    # Locators are given by tens and hundreds.
    locator = (p.PID_METATRAFFIC_UNICAST_LOCATOR, struct.pack("<iI16s", 1, 7410, bytes(12) + b"\x0a\0\0\x42"))
    many = b"\0\3\0\0" + p.encode_parameters(
        [(p.PID_PARTICIPANT_GUID, EVIL + b"\0\0\1\xc1"), *[locator] * 1000]
    )
    yield (
        "SPDP, locators",
        fill(Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, i, many).encode() for i in count(1)),
    )
    properties = tuple((f"a{i}", "") for i in range(400))
    yield "SPDP, properties", fill(announcement(properties=properties)[HEADER_SIZE:] for _ in count())


def datagrams(scene: Scene) -> Iterator[tuple[str, bytes]]:
    """(what it is, the datagram), each for a scene as it is at first."""
    for family in (batches, datas, others, discovery):
        for name, parts in family():
            yield name, scene.to_us(*parts)
    for name, parts in datas():
        yield (
            f"{name}, from an unmatched participant",
            message(InfoDestination(scene.one.prefix).encode(), *parts, prefix=b"\x77" * 12),
        )


Make = Callable[[], Scene]
