"""Messages full of small samples, looked at together: each is the run that it is by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.structure import ENTITYID_SPDP_WRITER
from spark_rtps.transport.wire.equal_datagrams import find_equal
from spark_rtps.transport.wire.framing import frame_messages, message_shape
from spark_rtps.transport.wire.info import InfoTimestamp
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, U8, Run, Samples
from tests.wire.plain_data import rows_of

WRITER = bytes((0, 0, 1, 2))
PREFIX = bytes(range(12))
NOON = 43_200_000_000_000
BODY = 32
SECOND = 1_000_000_000


def gso_buffer(
    messages: int, *, each: int = 5, size: int = 68, first_sn: int = 1, flags: int = 0, hashed: bool = False
) -> tuple[U8, int]:
    """Messages that lie end to end, of other times each, and the bytes of one."""
    random = np.random.default_rng(1)
    count = messages * each
    stride = message_shape(size, 1 << 16, BODY, flags=flags, with_key_hash=hashed, coherent_set=0).stride
    shape = message_shape(size, each * stride, BODY, flags=flags, with_key_hash=hashed, coherent_set=0)
    headers = Header(prefix=PREFIX).encode() + InfoTimestamp(NOON).encode()
    payloads = random.integers(0, 256, (count, size), np.uint8)
    payloads[:, :4] = 0, 1, 0, 0
    samples = Samples.uniform(payloads.reshape(-1), count, size)
    hashes = random.integers(0, 256, (count, 16), np.uint8) if hashed else None
    out = np.empty(shape.nbytes(count), np.uint8)
    frame_messages(out, shape, headers, samples, WRITER, first_sn, flags=flags, key_hashes=hashes)
    nbytes = out.nbytes // messages
    for i in range(messages):
        out[i * nbytes + 20 : i * nbytes + BODY] = np.frombuffer(
            InfoTimestamp(NOON + i * SECOND).encode(), "u1"
        )
    return out, nbytes


def scan_messages(data: U8, start: int, size: int, pitch: int, count: int) -> tuple[list[Run], int]:
    """The run of each message that is found, and how many messages were looked at."""
    found, looked_at = find_equal(data, start, size, pitch, count)
    return [] if found is None else found.runs(), looked_at


def alone(data: U8, start: int, nbytes: int, i: int) -> list[object]:
    """What message ``i`` holds by itself."""
    found = scan(data, start + BODY, start + nbytes, PREFIX, NOON + i * SECOND)
    return [rows_of(run) for run in found.runs] if found.pos == start + nbytes else []


@given(
    messages=st.integers(2, 9),
    each=st.sampled_from([1, 2, 7, 40]),
    size=st.sampled_from([4, 8, 68]),
    first_sn=st.sampled_from([1, 7, (1 << 32) - 20, 1 << 32]),
    flags=st.sampled_from([0, DISPOSED | KEY_ONLY]),
    hashed=st.booleans(),
    broken=st.none() | st.integers(0, 1 << 20),
)
def test_each_message_is_the_run_that_it_is_by_itself(
    messages: int, each: int, size: int, first_sn: int, flags: int, hashed: bool, broken: int | None
) -> None:
    data, nbytes = gso_buffer(messages, each=each, size=size, first_sn=first_sn, flags=flags, hashed=hashed)
    if broken is not None:
        data[broken // 8 % data.nbytes] ^= 1 << broken % 8
    runs, looked_at = scan_messages(data, 0, nbytes, nbytes, messages)
    assert 0 < looked_at <= messages
    assert len(runs) <= looked_at
    assert len(runs) != 1
    fits = ((1 << 32) - first_sn % (1 << 32)) // each
    if broken is None and fits >= messages:
        assert len(runs) == messages
    for i, run in enumerate(runs):
        at = i * nbytes
        moved = data[at + 20 : at + BODY].tobytes() != InfoTimestamp(NOON + i * SECOND).encode()
        if moved or data[at : at + 20].tobytes() != Header(prefix=PREFIX).encode():
            continue  # its time or its writer is another one
        assert [rows_of(run)] == alone(data, at, nbytes, i)


def test_bytes_between_messages_are_skipped() -> None:
    data, nbytes = gso_buffer(4, hashed=True)
    apart = np.zeros((4, nbytes + 8), np.uint8)
    apart[:, :nbytes] = data.reshape(4, nbytes)
    runs, looked_at = scan_messages(apart.reshape(-1), 0, nbytes, nbytes + 8, 4)
    assert looked_at == 4
    together, _ = scan_messages(data, 0, nbytes, nbytes, 4)
    assert [rows_of(run) for run in runs] == [rows_of(run) for run in together]


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 0), (4, 3), (8, 99), (20, 1), (BODY + 1, 1), (BODY + 7, 1), (BODY + 12, 9), (BODY + 20, 9)],
    ids=["magic", "version", "writer", "INFO_TS", "flags", "octets", "entity", "number"],
)
def test_a_message_that_is_not_like_the_first_ends_them(at: int, value: int) -> None:
    data, nbytes = gso_buffer(5)
    data[3 * nbytes + at] = value
    runs, looked_at = scan_messages(data, 0, nbytes, nbytes, 5)
    assert (len(runs), looked_at) == (3, 3)


def test_a_sample_unlike_the_others_ends_the_run() -> None:
    data, nbytes = gso_buffer(5)
    data[3 * nbytes + BODY + 92 + 20] ^= 1
    runs, looked_at = scan_messages(data, 0, nbytes, nbytes, 5)
    assert (len(runs), looked_at) == (3, 5)  # those behind it are not looked at again and again


@pytest.mark.parametrize("first_sn", [(1 << 32) - 12, (1 << 32) - 3])
def test_numbers_whose_high_word_changes_are_left(first_sn: int) -> None:
    data, nbytes = gso_buffer(5, first_sn=first_sn)
    runs, _ = scan_messages(data, 0, nbytes, nbytes, 5)
    assert [run.first_sn for run in runs] == (
        [first_sn, first_sn + 5] if first_sn % (1 << 32) < (1 << 32) - 5 else []
    )


def test_samples_of_built_in_writers_are_left() -> None:
    data, nbytes = gso_buffer(3)
    for i in range(3):
        rows = data[i * nbytes + BODY : (i + 1) * nbytes].reshape(5, -1)
        rows[:, 12:16] = np.frombuffer(ENTITYID_SPDP_WRITER, np.uint8)
    assert scan_messages(data, 0, nbytes, nbytes, 3) == ([], 1)


def test_messages_that_overlap_are_left() -> None:
    data, nbytes = gso_buffer(3)
    assert scan_messages(data, 0, nbytes, nbytes - 4, 3)[0] == []
