"""DATA_BATCH that is wrong, and misuse by our own caller."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.errors import DecodeError, DropReason, UsageError
from spark_rtps.transport.structure import ENTITYID_UNKNOWN
from spark_rtps.transport.wire.batch import frame_batch, scan_batch
from spark_rtps.transport.wire.batch_scan import _alike
from spark_rtps.transport.wire.runs import Words
from spark_rtps.transport.wire.samples import NO_TIMESTAMP, Samples
from tests.wire.plain_batches import (
    CDR_LE,
    NOON,
    PREFIX,
    READER,
    WRITER,
    D,
    K,
    Sample,
    encode,
    expected,
    ragged,
    rows_of,
    scanned,
)

# --- what is wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("submessage", "reason"),
    [
        (encode([Sample()], batch_sn=0), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample()], batch_sn=-5), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample()], first_sn=0), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample()], first_sn=2**63 - 1, to_last=1), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample()] * 3, to_last=1), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample(offset=3), Sample(offset=3)]), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([Sample(offset=3), Sample(offset=2)], to_last=9), DropReason.BAD_SEQUENCE_NUMBER),
        (encode([], to_last=0), DropReason.TRUNCATED_SUBMESSAGE),
        (encode([Sample()], qos=b"\x56\x00\x08\x00" + bytes(4)), DropReason.BAD_PARAMETER_LIST),
    ],
)
def test_refused(submessage: bytes, reason: DropReason) -> None:
    with pytest.raises(DecodeError) as refused:
        scanned(submessage)
    assert refused.value.reason is reason


@pytest.mark.parametrize("at", [0, 1])
def test_data_and_key_together_are_refused(at: int) -> None:
    whole = bytearray(encode([Sample(), Sample()]))
    for i in range(at, 2):
        whole[44 + 8 * i + 1] |= D | K
    with pytest.raises(DecodeError):
        scanned(bytes(whole))


def test_a_declared_size_allocates_nothing() -> None:
    """Lengths of 4 GiB each, in a batch that has room for none."""
    whole = bytearray(encode([Sample()] * 1000))
    infos = np.frombuffer(whole, np.uint8)[44 : 44 + 8000].reshape(1000, 8)
    infos[:, 4:] = 0xFF
    with pytest.raises(DecodeError):
        scanned(bytes(whole))
    infos[500:, 4:] = 0
    with pytest.raises(DecodeError):
        scanned(bytes(whole))


def test_a_list_of_many_shapes_is_read_in_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two neighbours alike: each is then compared with a few only."""
    samples = [Sample(b"", timestamp=NOON + i if i % 2 else None) for i in range(4000)]
    compared = 0

    def alike(words: Words, shape: Any, ahead: int, little: int) -> Words:
        nonlocal compared
        compared += min(len(words) // shape.size, ahead)
        return _alike(words, shape, ahead, little)

    monkeypatch.setattr(f"{scan_batch.__module__}._alike", alike)
    assert rows_of(scanned(encode(samples)).runs) == expected(samples)
    assert compared < 2 * 6000 + 4 * 4000


# --- misuse ------------------------------------------------------------------------------------------


def test_misuse() -> None:
    def uniform(count: int, size: int) -> Samples:
        return Samples.uniform(np.zeros(count * size, np.uint8), count, size)

    with pytest.raises(UsageError, match="without samples"):
        frame_batch(uniform(0, 8), WRITER, 1, 1)
    with pytest.raises(UsageError, match="a submessage has at most"):
        frame_batch(uniform(1000, 64), WRITER, 1, 1)
    with pytest.raises(UsageError, match="not padded"):
        frame_batch(uniform(4, 6), WRITER, 1, 1)
    with pytest.raises(UsageError, match="not padded"):
        frame_batch(ragged([bytes(6)]), WRITER, 1, 1)
    mixed = [CDR_LE + bytes(6), b"\x00\x07" + bytes(6)]
    for samples in (ragged(mixed), Samples.uniform(np.frombuffer(b"".join(mixed), np.uint8), 2, 8)):
        with pytest.raises(UsageError, match="encapsulations"):
            frame_batch(samples, WRITER, 1, 1)
    with pytest.raises(UsageError, match="timestamp"):
        frame_batch(uniform(2, 8), WRITER, 1, 1, timestamps=np.array([0, -5]))


def test_a_timestamp_that_is_none_goes_as_time_invalid() -> None:
    samples = Samples.uniform(np.zeros(16, np.uint8), 2, 8)
    block = frame_batch(samples, WRITER, 1, 1, timestamps=np.array([NOON, NO_TIMESTAMP]))
    assert block.to_run(PREFIX, NOON)[0].timestamps().tolist() == [NOON, NO_TIMESTAMP]


def test_reader_id() -> None:
    samples = Samples.uniform(np.zeros(16, np.uint8), 2, 8)
    assert frame_batch(samples, WRITER, 1, 1).to_run(PREFIX, NOON)[0].reader_id == ENTITYID_UNKNOWN
    assert frame_batch(samples, WRITER, 1, 1, reader_id=READER).to_run(PREFIX, NOON)[0].reader_id == READER
