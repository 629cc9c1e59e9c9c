"""Whatever the road, a reader is told of DATA what reading it submessage by submessage tells.

The roads: `scan` over the message, and the message receiver. The oracle: `tests.wire.plain_data`.
"""

from __future__ import annotations

from random import Random
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire import runs as wire_runs
from spark_rtps.transport.wire.message import Header, submessage_at
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import HAS_KEY_HASH, NO_TIMESTAMP, Run
from spark_rtps.transport.wire.submessages import Data, InfoTimestamp
from tests.wire.plain_batches import BOTH_ORDERS
from tests.wire.plain_data import (
    ANYBODY,
    WRITER,
    D,
    K,
    N,
    Row,
    coherent,
    data,
    info_ts,
    read_plainly,
    rows_of,
    status,
)
from tests.wire.test_datagrams import _Routes, reported

PREFIX = b"\1" * 12
#: The reader that `told` has.
READER = b"\0\0\0\4"
OTHER_WRITER, OTHER_READER = b"\0\0\2\2", b"\0\0\7\4"


def runs_of(message: bytes, lookahead: int = 65_507) -> list[Run]:
    """As a message receiver scans a message without its header."""
    found, view = np.frombuffer(message, np.uint8), memoryview(message)
    pos, timestamp, stamped = 0, NO_TIMESTAMP, -1
    runs: list[Run] = []
    try:
        while pos < len(message):
            kind, flags, end = submessage_at(view, pos, len(message))
            if kind == InfoTimestamp.KIND:
                try:
                    stamp = InfoTimestamp.decode(flags, view[pos + 4 : end]).timestamp
                    timestamp = NO_TIMESTAMP if stamp is None else stamp
                except DecodeError:
                    pass
                stamped = end if end - pos == 12 else -1
            elif kind == Data.KIND:
                try:
                    some, end, timestamp = scan(
                        found,
                        pos,
                        len(message),
                        PREFIX,
                        timestamp,
                        after_info_ts=pos == stamped,
                        lookahead=lookahead,
                    )
                    runs += some
                except DecodeError:
                    pass
            pos = end
    except DecodeError:
        pass
    return runs


def rows_reported(message: bytes) -> list[Row]:
    """What a reader is told of a message without its header."""
    reader, _ = reported([Header((2, 1), b"\x01\x7e", PREFIX).encode() + message], 8, together=False)
    rows = []
    for writer, all_reported in reader.reported.items():
        for each in all_reported:
            sn, payload, stamp, flags, key, coherent_set, reader_id = cast(Any, each)
            key_hash = key if flags & HAS_KEY_HASH else b""
            rows.append(Row(writer.entity, sn, payload, stamp, flags, key_hash, coherent_set, reader_id))
    return rows


def check(message: bytes) -> None:
    plain = read_plainly(message)
    for lookahead in (65_507, 200):
        assert [row for run in runs_of(message, lookahead) for row in rows_of(run)] == plain
    ours = [row for row in plain if row.reader_id in (ANYBODY, READER)]
    assert sorted(rows_reported(message)) == sorted(ours)


def check_with_one_unread(message: bytes) -> None:
    """Nobody reads the other writer: its samples are passed over, and the times between them hold all the same."""
    ours = [row for row in read_plainly(message) if row.reader_id in (ANYBODY, READER)]
    get = _Routes.get
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            _Routes, "get", lambda self, key: None if key.entity == OTHER_WRITER else get(self, key)
        )
        assert sorted(rows_reported(message)) == sorted(row for row in ours if row.writer_id == WRITER)


# --- mixtures ------------------------------------------------------------------------------------

#: Words that look like the headers of what lies around them.
LOOK_ALIKES = (
    b"\x15\x05\x18\x00",
    b"\x09\x01\x08\x00",
    b"\x15\x04\x00\x18",
    b"\x09\x00\x00\x08",
    b"\x15\x07\x34\0",
)


def an_inline_qos(random: Random, little: bool, sn: int) -> tuple[tuple[int, bytes], ...]:
    choices = [
        (p.PID_KEY_HASH, random.randbytes(16)),
        (p.PID_KEY_HASH, random.randbytes(20)),
        (p.PID_KEY_HASH, random.randbytes(8)),  # shorter than one is
        status(random.choice((0, 1, 2, 3, 4, 0xF8))),
        coherent(little, random.choice((max(1, sn - 2), 0, 1 << 63))),
        (0x8000 | random.randrange(3), random.randbytes(4 * random.randrange(3))),
        (p.PID_PAD, bytes(4 * random.randrange(3))),
    ]
    return tuple(random.choice(choices) for _ in range(random.randrange(4)))


def a_payload(random: Random, words: int) -> bytes:
    head = b"\0" + bytes((random.choice((1, 1, 1, 7)),)) + b"\0" + bytes((random.randrange(4),))
    return head + b"".join(
        random.choice((*LOOK_ALIKES, random.randbytes(4), b"\0\0\1\2")) for _ in range(words)
    )


def a_range(random: Random, sn: int, count: int) -> tuple[bytes, int]:
    """DATA that are like each other but for what one row in so many changes, and the next sequence number."""
    little, odd_one_in = random.random() < 0.7, random.choice((4, 30, 1_000))
    words, sizes = random.randrange(12), random.choice(("equal", "equal", "ragged"))
    stamps = random.choice(("none", "all", "all", "some", "first"))
    with_qos, hashed = random.random() < 0.5, random.random() < 0.5
    qos = an_inline_qos(random, little, sn) if with_qos else None
    kind = random.choice((D, D, D, D, K, 0))
    ids = {
        "writer_id": random.choice((WRITER, WRITER, OTHER_WRITER)),
        "reader_id": random.choice((ANYBODY, ANYBODY, READER, OTHER_READER)),
    }
    extension = random.randbytes(random.choice((0, 0, 0, 4, 8)))
    out = b""
    for i in range(count):
        how: dict[str, object] = dict(ids, extension=extension, flags=kind)
        own_qos, own_little, size = qos, little, words if sizes == "equal" else random.randrange(12)
        if qos is not None and hashed:
            own_qos = tuple(
                (pid, random.randbytes(16) if (pid, len(value)) == (p.PID_KEY_HASH, 16) else value)
                for pid, value in qos
            )
        stamped = (
            stamps == "all" or (stamps == "some" and random.random() < 0.5) or (stamps == "first" and not i)
        )
        payload = a_payload(random, size) if kind else None
        if random.randrange(odd_one_in) == 0:
            match random.randrange(11):
                case 0:
                    how["writer_id"] = OTHER_WRITER
                case 1:
                    how["reader_id"] = READER
                case 2:
                    own_qos = an_inline_qos(random, little, sn)
                case 3:
                    own_little = not little
                case 4:
                    sn += random.choice((1, 5, 1 << 32))
                case 5:
                    sn = max(1, sn - random.randrange(3))
                case 6:
                    how["flags"], payload = random.choice(((0, None), (K, b"\0\1\0\0"), (D | K, b"\0\1\0\0")))
                case 7:
                    how["flags"], payload = N | kind, payload
                case 8:
                    how["extension"] = random.randbytes(4)
                case 9:
                    how["extra_flags"] = 1
                case 10:
                    stamped = not stamped
        if stamped:
            match random.randrange(12):
                case 0:
                    out += InfoTimestamp(None).encode(little)
                case 1:
                    out += info_ts(little, 5, flags=2)  # without time, and yet with room for one
                case 2:
                    out += info_ts(little, 0xFFFF_FFFF, 0xFFFF_FFFF)
                case 3:
                    out += info_ts(not little, i)
                case _:
                    out += info_ts(little, random.randrange(1 << 32), random.randrange(1 << 32))
        out += data(own_little, sn, payload, qos=own_qos, **how)
        sn += 1
    return out, sn


@settings(max_examples=600, deadline=None)
@given(
    seed=st.integers(0, 1 << 32),
    counts=st.lists(st.sampled_from([1, 2, 3, 9, 20]), min_size=1, max_size=5),
    first_sn=st.sampled_from([1, 7, (1 << 32) - 5, (1 << 33) - 11, 1 << 40]),
    end=st.sampled_from(["", "", "to the end", "unaligned", "cut"]),
)
def test_whatever_a_message_holds(seed: int, counts: list[int], first_sn: int, end: str) -> None:
    random, sn, message = Random(seed), first_sn, b""
    for count in counts:
        some, sn = a_range(random, sn, count)
        message += some
    if end == "to the end":
        message += data(True, sn, a_payload(random, 9), to_the_end=True)
    elif end == "unaligned":
        message += data(True, sn, a_payload(random, 5) + b"abc")
    elif end == "cut":
        message = message[: random.randrange(len(message))]
    check(message)
    check_with_one_unread(message)


# --- one difference at a time --------------------------------------------------------------------


def alike(little: bool, stamped: bool, shape: str, count: int, first_sn: int) -> list[bytes]:
    """Rows of equal length that make up one run."""
    rows = []
    for i in range(count):
        qos = {
            "plain": None,
            "hashed": ((p.PID_KEY_HASH, bytes((i,)) * 16), (0x8001, b"abcd")),
            "status": (status(1), (0x8001, b"abcd")),
            "extended": None,
        }[shape]
        extension = b"more" if shape == "extended" else b""
        payload = b"\0\1" + bytes((i % 2, i % 4)) + bytes((i,)) * 8
        row = data(little, first_sn + i, payload, qos=qos, extension=extension)
        rows.append((info_ts(little, 1000 + i, i) if stamped else b"") + row)
    return rows


SHAPES = pytest.mark.parametrize("shape", ["plain", "hashed", "status", "extended"])
STAMPED = pytest.mark.parametrize("stamped", [True, False], ids=["stamped", "unstamped"])


@BOTH_ORDERS
@STAMPED
@SHAPES
@pytest.mark.parametrize("first_sn", [1, (1 << 32) - 10, 1 << 32])
def test_equal_rows_are_one_uniform_run(little: bool, stamped: bool, shape: str, first_sn: int) -> None:
    """Up to where the low word of the number wraps."""
    message = b"".join(alike(little, stamped, shape, 30, first_sn))
    runs = runs_of(message)
    assert [run.count for run in runs] == ([10, 20] if first_sn == (1 << 32) - 10 else [30])
    assert all(run.stride for run in runs)
    check(message)


@BOTH_ORDERS
@STAMPED
@SHAPES
def test_whichever_byte_of_a_row_differs(little: bool, stamped: bool, shape: str) -> None:
    rows = alike(little, stamped, shape, 12, 7)
    for row in (1, 11):
        for at in range(len(rows[row])):
            for bits in (1, 0x80):
                changed = bytearray(rows[row])
                changed[at] ^= bits
                check(b"".join((*rows[:row], bytes(changed), *rows[row + 1 :])))


@BOTH_ORDERS
def test_more_rows_than_are_counted_beforehand(little: bool) -> None:
    rows = [data(little, 1 + i, b"\0\1\0\0") for i in range(5_000)]
    message = np.frombuffer(b"".join(rows), np.uint8)
    (run,) = scan(message, 0, len(message), PREFIX, 0, lookahead=len(message)).runs
    assert (run.count, run.stride) == (5_000, 28)


@BOTH_ORDERS
def test_a_payload_in_a_form_that_is_not_ours_is_no_sample(little: bool) -> None:
    """RTPS 2.5 §9.4.5.4.1: the N flag; in a row of its own, among others, and in all."""
    for odd in ({3}, set(range(12)), {0}):
        for words in ((2,), (2, 3)):  # equal lengths, and unequal
            message = b"".join(
                data(little, 1 + i, b"\0\1\0\0" + bytes(4 * words[i % len(words)]), flags=D | N * (i in odd))
                for i in range(12)
            )
            check(message)
            assert {row.sn for row in rows_reported(message)} == {1 + i for i in range(12) if i not in odd}


@BOTH_ORDERS
def test_a_status_is_understood_also_where_it_must_be(little: bool) -> None:
    """Any sender may set the must-understand bit of a parameter."""
    qos = (
        (p.PID_MUST_UNDERSTAND | p.PID_STATUS_INFO, b"\0\0\0\1"),
        (p.PID_MUST_UNDERSTAND | p.PID_KEY_HASH, b"k" * 16),
    )
    for shapes in ((qos,), (qos, None, None)):  # all alike, and mixed
        message = b"".join(data(little, 1 + i, b"\0\1\0\0", qos=shapes[i % len(shapes)]) for i in range(12))
        check(message)
        assert (rows_reported(message)[0].flags & 1, rows_reported(message)[0].key_hash) == (1, b"k" * 16)


@BOTH_ORDERS
@STAMPED
@pytest.mark.parametrize("high", [0, 1])
@pytest.mark.parametrize("sizes", [(2,), (2, 3)], ids=["equal", "unequal"])
def test_a_low_word_that_wraps_alone_is_not_the_next_number(
    little: bool, stamped: bool, high: int, sizes: tuple[int, ...]
) -> None:
    """Where the high word does not go on by one, as only a hostile sender writes it."""
    message = b"".join(
        (info_ts(little, 9) if stamped else b"")
        + data(
            little,
            high << 32 | (1 << 32) - 10 + i & 0xFFFF_FFFF,
            b"\0\1\0\0" + bytes(4 * sizes[i % len(sizes)]),
        )
        for i in range(20)
    )
    check(message)


@BOTH_ORDERS
@STAMPED
@pytest.mark.parametrize("sizes", [(2, 3), (99, *[2] * 11)], ids=["by turns", "a long one first"])
def test_rows_that_are_not_equal_make_one_ragged_run(
    little: bool, stamped: bool, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the walk through mixed shapes would not make up for it."""
    monkeypatch.setattr(wire_runs, "_SHORT", 0)
    message = b"".join(
        (info_ts(little, 9) if stamped else b"")
        + data(little, 1 + i, b"\0\1\0\0" + bytes(4 * sizes[i % len(sizes)]))
        for i in range(12)
    )
    assert [run.count for run in runs_of(message)] == [12]
    check(message)


@BOTH_ORDERS
@STAMPED
def test_a_sample_whose_payload_is_missing_is_no_sample_of_a_ragged_run(little: bool, stamped: bool) -> None:
    """It has the flag of a payload, and not even an encapsulation header."""
    message = b"".join(
        (info_ts(little, 9) if stamped else b"")
        + data(little, 1 + i, b"" if i == 5 else b"\0\1\0\0" + bytes(4 * (2 + i % 2)), flags=D)
        for i in range(12)
    )
    check(message)
    assert {row.sn for row in rows_reported(message)} == {1 + i for i in range(12) if i != 5}
