"""The hot path against the plain one: whatever `scan` makes of a message, `Data.decode` makes too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, UsageError
from spark_rtps.transport.wire.framing import frame
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import (
    DISPOSED,
    HAS_KEY_HASH,
    KEY_ONLY,
    NO_TIMESTAMP,
    Run,
    Samples,
)
from spark_rtps.transport.wire.submessages import Data, InfoTimestamp

PREFIX = bytes(range(12))
WRITER = b"\x00\x00\x01\x03"
ENCAPSULATION = b"\x00\x01\x00\x00"


def scan_all(message: bytes, timestamp: int = NO_TIMESTAMP) -> list[Run]:
    """Every run of a message of DATA and INFO_TS, as a message receiver would collect them."""
    data = np.frombuffer(message, np.uint8)
    pos, runs = 0, []
    stamped = False
    while pos < len(message):
        if message[pos] == InfoTimestamp.KIND:
            body = memoryview(message)[pos + 4 : pos + 12]
            stamp = InfoTimestamp.decode(message[pos + 1], body).timestamp
            timestamp = NO_TIMESTAMP if stamp is None else stamp
            pos += 12
            stamped = True
            continue
        found = scan(data, pos, len(message), PREFIX, timestamp, after_info_ts=stamped)
        stamped = False
        assert found.pos > pos
        runs += found.runs
        pos, timestamp = found.pos, found.timestamp
    return runs


def flatten(runs: list[Run]) -> list[tuple[int, bytes, int]]:
    rows = []
    for run in runs:
        samples, stamps = run.samples(), run.timestamps()
        for i in range(run.count):
            rows.append((run.first_sn + i, bytes(samples.payload(i)), int(stamps[i])))
    return rows


@st.composite
def messages(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, bytes, int]]]:
    """A message of DATA of two writers, with or without INFO_TS between them, and what it holds."""
    little = draw(st.booleans())
    sn = draw(st.sampled_from([1, 7, (1 << 32) - 3, (1 << 40)]))
    same_length = draw(st.booleans())
    length = draw(st.integers(0, 8)) * 4
    out, expected, stamp = b"", [], NO_TIMESTAMP
    for i in range(draw(st.integers(1, 40))):
        if draw(st.sampled_from([False, True, same_length])):
            stamp = draw(st.integers(0, 2**31)) * 1_000_000_000
            out += InfoTimestamp(stamp).encode(little)
        if draw(st.integers(0, 15)) == 0:
            sn += draw(st.integers(1, 5))
        size = length if same_length else draw(st.integers(0, 8)) * 4
        # words that look like submessage headers inside payloads must not fool the chain
        filler = draw(st.sampled_from([b"\x15\x05\x00\x00", b"\x09\x01\x08\x00", bytes([i] * 4)]))
        payload = ENCAPSULATION + filler * (size // 4)
        writer = draw(st.sampled_from([WRITER] * 9 + [b"\x00\x00\x02\x03"]))
        out += Data(bytes(4), writer, sn, payload).encode(little)
        expected.append((sn, payload, stamp))
        sn += 1
    return out, expected


@settings(max_examples=400, deadline=None)
@given(messages())
def test_scan_finds_what_is_there(case: tuple[bytes, list[tuple[int, bytes, int]]]) -> None:
    message, expected = case
    assert flatten(scan_all(message)) == expected


def test_a_datagram_of_equal_samples_is_one_run() -> None:
    payloads = np.arange(700 * 68, dtype=np.uint8).reshape(700, 68)
    payloads[:, :4] = list(ENCAPSULATION)
    (block,) = frame(Samples.uniform(payloads.reshape(-1), 700, 68), WRITER, 41, budget=64_512)
    (run,) = scan_all(block.data.tobytes(), timestamp=5)
    assert (run.first_sn, run.count, run.timestamp) == (41, 700, 5)
    assert (run.samples().rows() == payloads).all()


def test_a_timestamp_before_each_sample_stays_one_run() -> None:
    message = b"".join(
        InfoTimestamp(i * 1_000_000_000).encode()
        + Data(bytes(4), WRITER, i, ENCAPSULATION + bytes(8)).encode()
        for i in range(1, 127)
    )
    (run,) = scan_all(message)
    assert run.count == 126
    assert run.timestamps().tolist() == [i * 1_000_000_000 for i in range(1, 127)]


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.parametrize("flags", [0, DISPOSED | KEY_ONLY])
def test_frame_and_scan_agree(uniform: bool, hashed: bool, flags: int) -> None:
    rng = np.random.default_rng(3)
    n = 1000
    lengths = np.full(n, 24) if uniform else rng.integers(1, 12, n) * 4
    offsets = np.cumsum(lengths) - lengths
    data = rng.integers(0, 256, int(lengths.sum()), dtype=np.uint8)
    for at in offsets:
        data[at : at + 4] = list(ENCAPSULATION)
    samples = Samples.uniform(data, n, 24) if uniform else Samples.ragged(data, offsets, lengths)
    hashes = rng.integers(0, 256, (n, 16), dtype=np.uint8) if hashed else None
    blocks = frame(samples, WRITER, 9, budget=8_000, flags=flags, key_hashes=hashes)
    assert all(b.nbytes <= 8_000 for b in blocks)
    assert [b.first_sn for b in blocks[1:]] == [b.last_sn + 1 for b in blocks[:-1]]
    at = 0
    for block in blocks:
        (run,) = scan_all(block.data.tobytes())
        assert run.first_sn == block.first_sn and run.count == block.count
        for i in range(run.count):
            assert bytes(run.samples().payload(i)) == bytes(samples.payload(at + i))
        if hashes is not None:
            found = run.key_hashes()
            assert found is not None and (found == hashes[at : at + run.count]).all()
        assert (run.sample_flags() == flags | (HAS_KEY_HASH if hashed else 0)).all()
        # any range of a block is a message of its own: that is what a repair sends
        (part,) = scan_all(bytes(block.slice(block.first_sn, block.last_sn - block.count // 2)))
        assert (part.first_sn, part.last_sn) == (block.first_sn, block.last_sn - block.count // 2)
        at += block.count


def test_fitting_is_the_longest_range_within_a_budget() -> None:
    lengths = np.array([4, 40, 4, 400, 4]) * 4
    samples = Samples.ragged(np.zeros(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths, lengths)
    (block,) = frame(samples, WRITER, 1, budget=60_000)
    for budget in (0, 39, 40, 200, 2_000, 60_000):
        last = block.fitting(2, budget)
        assert last == 1 or len(block.slice(2, last)) <= budget
        assert last == block.last_sn or len(block.slice(2, last + 1)) > budget


def test_a_sample_beyond_the_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="does not fit"):
        frame(Samples.uniform(np.zeros(2000, np.uint8), 1, 2000), WRITER, 1, budget=1000)


def test_truncation_at_every_length_is_a_decode_error_or_fewer_samples() -> None:
    message = b"".join(
        Data(bytes(4), WRITER, i, ENCAPSULATION + bytes(i % 3 * 4)).encode() for i in range(1, 9)
    )
    whole = flatten(scan_all(message))
    for cut in range(len(message)):
        data = np.frombuffer(message, np.uint8)
        pos, runs = 0, []
        try:
            while pos < cut:
                found = scan(data, pos, cut, PREFIX, NO_TIMESTAMP)
                runs += found.runs
                pos = found.pos
        except DecodeError:
            pass
        rows = flatten(runs)
        assert rows == whole[: len(rows)]


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=24, max_size=400), st.integers(0, 15))
def test_random_bytes_never_raise_anything_else(noise: bytes, flags: int) -> None:
    message = bytes([0x15, flags]) + noise
    try:
        scan(np.frombuffer(message, np.uint8), 0, len(message), PREFIX, 0)
    except DecodeError:
        pass


def test_an_invalid_time_is_no_time_however_samples_are_batched() -> None:
    invalid = bytes((InfoTimestamp.KIND, 1, 8, 0)) + b"\xff" * 8
    for sizes in ([8, 8, 8], [8, 12, 16]):
        message = b"".join(
            invalid + Data(bytes(4), WRITER, i + 1, ENCAPSULATION + bytes(size)).encode()
            for i, size in enumerate(sizes)
        )
        data = np.frombuffer(message, np.uint8)
        (run,) = scan(data, 12, len(message), PREFIX, NO_TIMESTAMP, after_info_ts=True).runs
        assert run.count == 3
        assert run.timestamps().tolist() == [NO_TIMESTAMP] * 3


def test_octets_to_inline_qos_must_be_aligned() -> None:
    message = bytearray(Data(bytes(4), WRITER, 1, ENCAPSULATION + bytes(8)).encode())
    message[6] = 18
    with pytest.raises(DecodeError):
        scan(np.frombuffer(bytes(message), np.uint8), 0, len(message), PREFIX, 0)


def test_a_short_lookahead_cuts_runs_and_nothing_else() -> None:
    message = b"".join(
        Data(bytes(4), WRITER, i, ENCAPSULATION + bytes(i % 3 * 4)).encode() for i in range(1, 99)
    )
    whole = flatten(scan_all(message))
    data = np.frombuffer(message, np.uint8)
    for lookahead in (0, 30, 100, 1000):
        pos, runs = 0, []
        while pos < len(message):
            found = scan(data, pos, len(message), PREFIX, NO_TIMESTAMP, lookahead=lookahead)
            runs += found.runs
            pos = found.pos
        assert flatten(runs) == whole
        assert lookahead < 1000 or len(runs) < 9


@pytest.mark.parametrize("sizes", [(0,), (0, 4)], ids=["equal", "unequal"])
def test_no_more_is_compared_than_is_looked_ahead(sizes: tuple[int, ...]) -> None:
    """Else a message of many short runs would be compared over and over."""
    rows = [
        Data(bytes(4), WRITER, i + 1, ENCAPSULATION + bytes(sizes[i % len(sizes)])).encode()
        for i in range(500)
    ]
    data = np.frombuffer(b"".join(rows), np.uint8)
    (run,) = scan(data, 0, len(data), PREFIX, NO_TIMESTAMP, lookahead=2_000).runs
    assert 60 < run.count <= 2_000 // 28


def test_numbers_that_do_not_run_on_are_not_searched_for_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of 1, 3, 5, … must not be compared with itself over and over."""
    for search in ("_uniform", "_ragged"):
        monkeypatch.setattr(f"spark_rtps.transport.wire.runs.{search}", None)
    message = b"".join(Data(bytes(4), WRITER, 2 * i + 1, ENCAPSULATION).encode() for i in range(100))
    assert [sn for sn, _, _ in flatten(scan_all(message))] == list(range(1, 201, 2))
