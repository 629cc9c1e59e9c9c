"""DATA_BATCH of any content: the fast road against a plain one that steps from sample to sample; damage; noise."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.wire.batch import DATA_BATCH, frame_batch
from spark_rtps.transport.wire.framing import frame
from spark_rtps.transport.wire.samples import DISPOSED, UNREGISTERED
from tests.wire.plain_batches import (
    CDR_LE,
    NOON,
    PREFIX,
    WRITER,
    Sample,
    encode,
    expected,
    framed,
    ragged,
    rows_of,
    scanned,
)

# --- there and back ---------------------------------------------------------------------------------

key_hashes = st.binary(min_size=16, max_size=16)
stamps = st.integers(0, (2**32 - 2) * 10**9)
contents = st.none() | st.sampled_from([0, 1, 4, 8, 13]).map(lambda n: bytes(range(7, 7 + n)))


@st.composite
def foreign_samples(draw: st.DrawFn) -> list[Sample]:
    """Stretches of samples that look alike, now and then with one that does not."""
    samples: list[Sample] = []
    number = -1
    for _ in range(draw(st.integers(1, 5))):
        like = Sample(
            draw(contents),
            draw(st.booleans()),
            draw(st.sampled_from([0, 0, DISPOSED, UNREGISTERED])),
            draw(st.none() | key_hashes),
            draw(st.none() | stamps),
        )
        with_offsets = draw(st.booleans())
        for _ in range(draw(st.integers(1, 9))):
            number += 1
            sample = replace(like, removed=draw(st.integers(0, 5)) == 0)
            if draw(st.integers(0, 5)) == 0:
                sample = replace(sample, payload=draw(contents))
            if with_offsets:
                number += draw(st.sampled_from([0, 0, 0, 1, 1000]))
                sample = replace(sample, offset=number)
            if sample.key_hash is not None:
                sample = replace(sample, key_hash=draw(key_hashes))
            if sample.timestamp is not None:
                sample = replace(sample, timestamp=draw(stamps))
            samples.append(sample)
    return samples


@given(
    samples=foreign_samples(),
    little=st.booleans(),
    first_sn=st.sampled_from([1, 100, 2**32 - 3, 2**62]),
    count=st.none() | st.integers(0, 2**32 - 1),
)
@example([Sample()] * 40, True, 100, None)
@example([Sample(), *[Sample(timestamp=NOON + i) for i in range(40)]], True, 100, None)
def test_whatever_others_write_is_read(
    samples: list[Sample], little: bool, first_sn: int, count: int | None
) -> None:
    found = scanned(encode(samples, little, first_sn=first_sn, count=count))
    assert rows_of(found.runs) == expected(samples, first_sn)
    assert found.last_sn == found.runs[-1].last_sn
    assert all(run.batch_sn == 5 and not run.sparse for run in found.runs)
    for run in found.runs:
        assert run.sequence_numbers().tolist() == list(range(run.first_sn, run.last_sn + 1))


@st.composite
def our_samples(draw: st.DrawFn) -> list[Sample]:
    """What frame_batch can be asked for: key hashes of all or none, no offsets."""
    keyed = draw(st.booleans())
    alike = draw(st.booleans())
    sample = Sample(draw(contents), draw(st.booleans()), draw(st.sampled_from([0, 0, DISPOSED, 3])))
    samples = []
    for i in range(draw(st.integers(1, 30))):
        if not alike:
            sample = Sample(draw(contents), draw(st.booleans()), draw(st.sampled_from([0, 0, DISPOSED, 3])))
        if sample.status and not sample.key:
            sample = replace(sample, payload=None)  # it would not be sent
        samples.append(
            replace(
                sample,
                key_hash=draw(key_hashes) if keyed else None,
                timestamp=draw(st.none() | stamps) if i else None,
                removed=draw(st.booleans()),
            )
        )
    return samples


@given(samples=our_samples())
def test_written_batches_are_read_back(samples: list[Sample]) -> None:
    """Byte for byte: padding that the encapsulation headers told is told again."""
    block = framed(samples)
    assert rows_of(block.to_run(PREFIX, NOON)) == expected(samples)
    uniform = len({0 if sample.payload is None else 4 + len(sample.payload) for sample in samples}) == 1
    if uniform and samples[0].payload is not None and len({bool(s.status) for s in samples}) == 1:
        assert (
            framed(samples, uniform=len(samples[0].payload) % 4 == 0).data.tobytes() == block.data.tobytes()
        )


@given(samples=our_samples(), lengths=st.data())
def test_removed_later_is_as_if_removed_before(samples: list[Sample], lengths: st.DataObject) -> None:
    first = lengths.draw(st.integers(90, 140))
    last = lengths.draw(st.integers(first - 1, 140))
    block = framed([replace(sample, removed=False) for sample in samples])
    block.mark_removed(first, last)
    marked = [replace(s, removed=first <= 100 + i <= last) for i, s in enumerate(samples)]
    assert block.data.tobytes() == framed(marked).data.tobytes()
    assert (block.last_sn, block.nbytes) == (99 + len(samples), len(block.data))


def test_a_batch_becomes_plain_data_again() -> None:
    payloads = [CDR_LE + bytes((0, i & 3)) + bytes([i] * 8) for i in range(6)]
    block = frame_batch(ragged(payloads), WRITER, 1, 7)
    [run] = block.to_run(PREFIX, NOON)
    [plain] = frame(run.samples(), WRITER, run.first_sn, budget=1000)
    assert plain.data.tobytes() == frame(ragged(payloads), WRITER, 7, budget=1000)[0].data.tobytes()


@given(samples=foreign_samples(), little=st.booleans(), data=st.data())
def test_damage_is_a_decode_error_or_another_batch(
    samples: list[Sample], little: bool, data: st.DataObject
) -> None:
    whole = bytearray(encode(samples, little))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(1, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        found = scanned(bytes(whole))
        rows = rows_of(found.runs)
        assert sum(len(row[1]) for row in rows) <= 8 * len(whole)
        assert all(found.first_sn <= row[0] <= found.last_sn for row in rows)


@given(flags=st.integers(0, 255), body=st.binary(max_size=200))
def test_noise_is_a_decode_error_or_a_batch(flags: int, body: bytes) -> None:
    with suppress(DecodeError):
        scanned(bytes((DATA_BATCH, flags, 0, 0)) + body)
