"""COMPRESSED: there and back, smaller or not at all, and nothing that a peer could make of it."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, DropReason, UsageError
from spark_rtps.transport.limits import UDP_PAYLOAD_MAX
from spark_rtps.transport.wire import compressed
from spark_rtps.transport.wire.batch import frame_batch, scan_batch
from spark_rtps.transport.wire.compressed import COMPRESSED, compress, decompress
from spark_rtps.transport.wire.message import encode_submessage, iter_submessages
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import decode_submessage

CODEC = pytest.mark.parametrize("codec", ["lz4", "zstd"])
NUMBERS = {"lz4": 1, "zstd": 2}


def body_of(
    packed: bytes,
    size: int,
    *,
    number: int = 1,
    kind: int = 0x18,
    flags: int = 1,
    packed_size: int | None = None,
) -> bytes:
    head = struct.pack(
        "<BBBBII", number, kind, flags, 0, size, len(packed) if packed_size is None else packed_size
    )
    return head + packed


def packed_with(codec: str, content: bytes) -> bytes:
    packed: bytes = pa.Codec({"lz4": "lz4_raw", "zstd": "zstd"}[codec]).compress(content, asbytes=True)
    return packed


def batch(count: int = 500) -> bytes:
    rows = np.zeros((count, 68), np.uint8)
    rows[:, 1] = 1
    rows[:, 4:8] = np.arange(count, dtype=np.uint32).view(np.uint8).reshape(-1, 4)
    samples = Samples.uniform(rows.reshape(-1), count, 68)
    return frame_batch(samples, b"\x00\x00\x01\x03", 1, 1).data.tobytes()


@CODEC
@pytest.mark.parametrize("level", [None, 1, 9])
def test_there_and_back(codec: str, level: int | None) -> None:
    whole = batch()
    packed = compress(whole, codec, level)
    assert packed is not None
    assert len(packed) < len(whole) / 3
    [(kind, flags, _, stop)] = iter_submessages(memoryview(bytes(20) + packed))
    assert (kind, flags) == (COMPRESSED, 1)
    inside = decompress(memoryview(packed)[4 : stop - 20])
    assert inside == whole
    found = scan_batch(np.frombuffer(inside, np.uint8), 0, len(inside), bytes(12), 0)
    assert found.runs[0].count == 500


@CODEC
@given(
    content=st.binary(min_size=1, max_size=60).flatmap(lambda b: st.integers(1, 100).map(lambda n: b * n)),
    kind=st.integers(0, 0x7F),
    little_endian=st.booleans(),
)
def test_round_trip(codec: str, content: bytes, kind: int, little_endian: bool) -> None:
    whole = encode_submessage(kind, 0x06, little_endian, content)
    packed = compress(memoryview(whole), codec)
    if packed is None:
        assert len(packed_with(codec, whole[4:])) + 16 > len(whole) - 4
    else:
        assert len(packed) < len(whole)
        assert len(packed) % 4 == 0
        assert decompress(packed[4:]) == whole


@CODEC
def test_incompressible_data_stays_as_it_is(codec: str) -> None:
    noise = random.Random(1).randbytes(2000)
    assert compress(encode_submessage(0x15, 0, True, noise), codec) is None
    assert compress(encode_submessage(0x15, 0, True, b""), codec) is None
    assert compress(encode_submessage(0x15, 0, True, bytes(16)), codec) is None


def test_vector() -> None:
    packed = compress(encode_submessage(0x15, 0x04, True, b"abcd" * 20), "lz4")
    assert packed is not None
    assert packed[:16] == bytes.fromhex("b0011c00 01150500 50000000 0e000000")
    assert decompress(packed[4:]) == bytes.fromhex("15055000") + b"abcd" * 20


def test_the_other_byte_order() -> None:
    packed = packed_with("zstd", b"abcd" * 20)
    body = struct.pack(">BBBBII", 2, 0x15, 0x04, 0, 80, len(packed)) + packed
    assert decompress(body, little_endian=False) == bytes.fromhex("15040050") + b"abcd" * 20


def test_other_vendors_skip_compressed_submessages() -> None:
    assert COMPRESSED >= 0x80
    assert decode_submessage(COMPRESSED, 1, memoryview(bytes(40))) is None


def test_no_such_codec() -> None:
    with pytest.raises(UsageError, match="lz4, zstd"):
        compress(batch(), "none")


# --- what is wrong -----------------------------------------------------------------------------------


@CODEC
def test_cut_at_every_length(codec: str) -> None:
    packed = compress(batch(20), codec)
    assert packed is not None
    padding = len(packed) - 16 - struct.unpack_from("<I", packed, 12)[0]
    for length in range(len(packed) - 4 - padding):
        with pytest.raises(DecodeError):
            decompress(packed[4 : 4 + length])


@CODEC
@pytest.mark.parametrize("difference", [-1, 1, 2, 5, 8, 12, 13, 100, 1000])
def test_the_size_must_be_true(codec: str, difference: int) -> None:
    content = batch(20)
    packed = packed_with(codec, content)
    number = NUMBERS[codec]
    assert decompress(body_of(packed, len(content), number=number))[4:] == content
    with pytest.raises(DecodeError):
        decompress(body_of(packed, len(content) + difference, number=number))


def test_an_lz4_block_that_ends_early_shows_no_memory() -> None:
    """The last five bytes have to be literals: a match right before the end leaves less than is told."""
    # 4 literals, a match of 20 bytes, and so many literals at the end
    for last in range(5):
        literals = b"wxyz!"[:last]
        packed = b"\x4f" + b"abcd" + b"\x04\x00" + b"\x01" + bytes((last << 4,)) + literals
        for size in range(1, 60):
            with suppress(DecodeError):
                found = decompress(body_of(packed, size))[4:]
                assert found == (b"abcd" * 6 + literals)[:size]
                assert size == 24 + last


@CODEC
def test_nothing_is_allocated_from_a_declared_size(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    largest = UDP_PAYLOAD_MAX - 24
    bomb = packed_with(codec, bytes(10_000_000))
    for size in (10_000_000, 2**32 - 1, largest + 1, 0):
        with monkeypatch.context() as patched:
            patched.setattr(compressed, "_codec", None)  # it is not even asked
            with pytest.raises(DecodeError) as refused:
                decompress(body_of(bomb, size, number=NUMBERS[codec]))
        assert refused.value.reason is DropReason.OVER_LIMIT
    with pytest.raises(DecodeError):
        decompress(body_of(bomb, largest, number=NUMBERS[codec]))
    fits = packed_with(codec, bytes(largest))
    assert decompress(body_of(fits, largest, number=NUMBERS[codec]))[4:] == bytes(largest)


@pytest.mark.parametrize("number", [0, 3, 255])
def test_codecs_that_are_not_known(number: int) -> None:
    with pytest.raises(DecodeError):
        decompress(body_of(packed_with("lz4", bytes(100)), 100, number=number))


def test_no_compressed_submessage_inside_another() -> None:
    with pytest.raises(DecodeError):
        decompress(body_of(packed_with("lz4", bytes(100)), 100, kind=COMPRESSED))


@CODEC
@given(data=st.data())
def test_damage_is_a_decode_error_or_another_submessage(codec: str, data: Any) -> None:
    packed = compress(batch(5), codec)
    assert packed is not None
    body = bytearray(packed[4:])
    for _ in range(data.draw(st.integers(1, 5))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        found = decompress(bytes(body))
        assert len(found) <= UDP_PAYLOAD_MAX
        assert int.from_bytes(found[2:4], "little" if found[1] & 1 else "big") == len(found) - 4


@given(number=st.integers(0, 3), size=st.integers(0, 2000), noise=st.binary(max_size=100))
def test_noise_is_a_decode_error_or_a_submessage(number: int, size: int, noise: bytes) -> None:
    for body in (noise, body_of(noise, size, number=number)):
        with suppress(DecodeError):
            decompress(body)
