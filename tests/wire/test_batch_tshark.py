"""Wireshark judges our batches: every sample found where it is, as long as it is, and nothing to remark."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from spark_rtps.transport.wire.batch import AckNackBatch, BatchBlock, HeartbeatBatch, frame_batch
from spark_rtps.transport.wire.compressed import compress
from spark_rtps.transport.wire.framing import frame, frame_end_of_coherent_set
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, UNREGISTERED, Samples
from spark_rtps.transport.wire.submessages import Heartbeat, InfoDestination, InfoTimestamp
from tests.support.pcap import write_pcap
from tests.support.wireshark import tshark

PREFIX = bytes.fromhex("017e0102030405060708090a")
READER, KEYED_WRITER, WRITER = b"\x00\x00\x01\x07", b"\x00\x00\x02\x02", b"\x00\x00\x02\x03"
NOON = 1_700_000_000_000_000_000
HEAD = Header(prefix=PREFIX).encode() + InfoTimestamp(NOON).encode()
BOTH_ORDERS = pytest.mark.parametrize("little_endian", [True, False], ids=["LE", "BE"])


def remarks(*messages: bytes) -> list[str]:
    return tshark(write_pcap(messages), "-V", "-Y", "!rtps || _ws.malformed || _ws.expert").splitlines()


def fields(messages: Iterable[bytes], *names: str) -> list[list[list[str]]]:
    """The values of these fields, of each message, in their order."""
    lines = tshark(
        write_pcap(messages), "-T", "fields", *(part for name in names for part in ("-e", name))
    ).splitlines()
    return [[value.split(",") if value else [] for value in line.split("\t")] for line in lines]


def payload(i: int, length: int) -> bytes:
    """Encapsulation header, so many bytes that no other payload has, padding."""
    return bytes((0, 1, 0, -length & 3)) + bytes([1 + i % 255] * length) + bytes(-length & 3)


def uniform(count: int, length: int = 8) -> Samples:
    data = np.frombuffer(b"".join(payload(i, length) for i in range(count)), np.uint8)
    return Samples.uniform(data, count, len(data) // count)


def ragged(count: int, first: int = 1) -> Samples:
    payloads = [payload(i, first + i % 50) for i in range(count)]
    lengths = np.array([len(each) for each in payloads], np.int64)
    return Samples.ragged(np.frombuffer(b"".join(payloads), np.uint8), np.cumsum(lengths) - lengths, lengths)


def hashes(count: int) -> np.ndarray:
    return np.arange(16 * count, dtype=np.uint32).astype(np.uint8).reshape(count, 16)


def every_kind() -> dict[str, BatchBlock]:
    mixed = np.array([0, DISPOSED, UNREGISTERED, 0, DISPOSED | UNREGISTERED, DISPOSED | KEY_ONLY], np.uint32)
    stamps = NOON + 1_000_000_000 * np.array([0, 0, 1, 2, 2, 3])
    removed = np.array([True, False, False, True, False, False])
    return {
        "unkeyed": frame_batch(uniform(6), WRITER, 1, 1),
        "full": frame_batch(uniform(895, 64), WRITER, 2, 2**32 + 7),
        "ragged": frame_batch(ragged(200), WRITER, 2**32 + 3, 7),
        "keyed": frame_batch(uniform(400, 40), KEYED_WRITER, 3, 1, key_hashes=hashes(400)),
        "keyed, no key hash": frame_batch(uniform(6), KEYED_WRITER, 3, 1),
        "disposed": frame_batch(uniform(6), KEYED_WRITER, 4, 1, flags=DISPOSED, key_hashes=hashes(6)),
        "unregistered": frame_batch(uniform(6), KEYED_WRITER, 4, 1, flags=UNREGISTERED),
        "mixed": frame_batch(ragged(6), KEYED_WRITER, 5, 1, flags=mixed, key_hashes=hashes(6)),
        "keys": frame_batch(ragged(6), KEYED_WRITER, 6, 1, flags=DISPOSED | KEY_ONLY),
        "own timestamps": frame_batch(ragged(6), WRITER, 7, 1, timestamps=stamps),
        "removed": frame_batch(uniform(6), WRITER, 8, 1, removed=removed),
        "coherent": frame_batch(uniform(6), WRITER, 9, 11, coherent_set=11),
        "all at once": frame_batch(
            ragged(6),
            KEYED_WRITER,
            10,
            11,
            flags=mixed,
            key_hashes=hashes(6),
            timestamps=stamps,
            removed=removed,
            coherent_set=11,
            reader_id=READER,
        ),
    }


@pytest.fixture(scope="module")
def blocks() -> dict[str, BatchBlock]:
    return every_kind()


def test_no_batch_gives_cause_for_a_remark(blocks: dict[str, BatchBlock]) -> None:
    assert remarks(*(HEAD + block.data.tobytes() for block in blocks.values())) == []


def test_this_judge_can_condemn(blocks: dict[str, BatchBlock]) -> None:
    """A length that reaches beyond the batch, and an inline QoS that does."""
    for name, at in (("unkeyed", 48), ("keyed", 54)):
        broken = blocks[name].data.copy()
        broken[at : at + 2] = 0xFF
        assert remarks(HEAD + broken.tobytes()) != []


def test_every_sample_is_where_wireshark_looks_for_it(blocks: dict[str, BatchBlock]) -> None:
    found = fields(
        (HEAD + block.data.tobytes() for block in blocks.values()),
        "rtps.data_batch.serialized_data_length",
        "rtps.serialized_data",
        "rtps.serialized_key",
    )
    for (name, block), [lengths, payloads, keys] in zip(blocks.items(), found, strict=True):
        [run] = block.to_run(PREFIX, NOON)
        samples = run.samples()
        ours = [bytes(samples.payload(i))[4:] for i in range(block.count)]
        assert [int(length) for length in lengths] == [len(each) for each in ours], name
        is_key = run.sample_flags() & KEY_ONLY != 0
        for shown, wanted in ((payloads, ~is_key), (keys, is_key)):
            theirs = [bytes.fromhex(each) for each in shown if each != "<MISSING>"]
            assert theirs == [each for each, want in zip(ours, wanted, strict=True) if each and want], name


def test_wireshark_reads_what_we_meant(blocks: dict[str, BatchBlock]) -> None:
    text = tshark(write_pcap([HEAD + blocks["all at once"].data.tobytes()]), "-V", "-O", "rtps")
    for wanted, count in (
        ("batchSeqNumber: 10", 1),
        ("firstSampleSeqNumber: 11", 1),
        ("offsetToLastSampleSN: 5", 1),
        ("batchSampleCount: 6", 1),
        ("batchInlineQos:", 1),
        ("PID_COHERENT_SET\n", 1),
        ("sequenceNumber: 11", 1),
        ("encapsulation kind: CDR_LE (0x0001)", 1),
        ("Invalid sample: Set", 2),
        ("Serialized Key: Set", 1),
        ("Data present: Set", 2),
        ("Timestamp present: Set", 3),
        ("Inline QoS: Set", 7),  # of the batch and of each sample
        ("Timestamp: Nov 14, 2023 22:13:20", 1),
        ("Timestamp: Nov 14, 2023 22:13:21", 1),
        ("Timestamp: Nov 14, 2023 22:13:22", 1),
        ("Timestamp: Nov 14, 2023 22:13:23", 1),
        ("PID_KEY_HASH\n", 6),
        ("guid: 10111213:14151617:18191a1b:1c1d1e1f", 1),
        ("Flags: 0x00000001, Disposed", 2),
        ("Flags: 0x00000002, Unregistered", 1),
        ("Flags: 0x00000003, Unregistered, Disposed", 1),
        ("serializedKey[5]", 1),
    ):
        assert text.count(wanted) == count, f"{wanted!r} is not {count} times in:\n{text}"


@BOTH_ORDERS
def test_heartbeat_batch_and_acknack_batch(little_endian: bool) -> None:
    heartbeats = [
        HeartbeatBatch(READER, WRITER, 2, 9, 20, 2**32 + 1, 3, final=True, liveliness=True),
        HeartbeatBatch(bytes(4), WRITER, 1, 0, 1, 0, 1),
    ]
    acknacks = [
        AckNackBatch(READER, WRITER, SequenceNumberSet.from_numbers(5, [5, 7, 40]), 2),
        AckNackBatch(READER, WRITER, SequenceNumberSet(1), 1, final=True),
        AckNackBatch(READER, WRITER, SequenceNumberSet(0), 1),
    ]
    encoded = [each.encode(little_endian) for each in (*heartbeats, *acknacks)]  # type: ignore[attr-defined]
    head = Header(prefix=PREFIX).encode()
    assert remarks(head + b"".join(encoded), *(head + each for each in encoded)) == []
    text = tshark(write_pcap([head + b"".join(encoded)]), "-V", "-O", "rtps")
    for wanted in (
        "HEARTBEAT_BATCH (0x19)",
        "firstBatchSN: 2",
        "lastBatchSN: 9",
        "firstSeqNumber: 20",
        "lastSeqNumber: 4294967297",
        "ACKNACK_BATCH (0x17)",
        "Lost samples 5, 7, 40 in range [5,40]",
    ):
        assert wanted in text, f"{wanted!r} is not in:\n{text}"


def test_a_repair(blocks: dict[str, BatchBlock]) -> None:
    """INFO_DST, per batch INFO_TS and DATA_BATCH to one reader, HEARTBEAT_BATCH."""
    batches = [frame_batch(uniform(9), WRITER, sn, 9 * sn, reader_id=READER) for sn in (3, 4)]
    message = Header(prefix=PREFIX).encode() + InfoDestination(PREFIX).encode()
    for batch in batches:
        message += InfoTimestamp(NOON).encode() + batch.data.tobytes()
    message += HeartbeatBatch(READER, WRITER, 1, 4, 1, 44, 7).encode()
    assert remarks(message) == []
    assert fields([message], "rtps.sm.id") == [[["0x0e", "0x09", "0x18", "0x09", "0x18", "0x19"]]]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_submessage_is_skipped(blocks: dict[str, BatchBlock], codec: str) -> None:
    packed = compress(blocks["full"].data.data, codec)
    assert packed is not None
    heartbeat = Heartbeat(bytes(4), WRITER, 1, 9, 1).encode()
    message = HEAD + packed + heartbeat
    assert remarks(HEAD + packed, message) == []
    assert fields([message], "rtps.sm.id") == [[["0x09", "0xb0", "0x07"]]]


def test_coherent_sets_of_plain_data() -> None:
    [block] = frame(uniform(3), WRITER, 2**32 + 5, budget=1000, coherent_set=2**32 + 5)
    message = HEAD + block.data.tobytes() + frame_end_of_coherent_set(WRITER, 2**32 + 8).data.tobytes()
    [keyed] = frame(uniform(3), KEYED_WRITER, 5, budget=1000, key_hashes=hashes(3), coherent_set=5)
    assert remarks(message, HEAD + keyed.data.tobytes()) == []
    text = tshark(write_pcap([message]), "-V", "-O", "rtps")
    assert text.count("sequenceNumber: 4294967301\n") == 3
    assert text.count("PID_COHERENT_SET\n") == 4
