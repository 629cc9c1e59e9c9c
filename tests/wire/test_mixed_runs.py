"""DATA of mixed shapes: the walk finds what reading them one by one finds, and makes one run of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.structure import ENTITYID_UNKNOWN
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire import runs, unread_samples
from spark_rtps.transport.wire.info import InfoTimestamp
from spark_rtps.transport.wire.message import submessage_at
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import NO_TIMESTAMP, Run
from spark_rtps.transport.wire.submessages import Data, Heartbeat
from spark_rtps.transport.wire.unread_samples import pass_over
from tests.wire.plain_batches import BOTH_ORDERS, PREFIX, WRITER, rows_of

BARE = b"\0\1\0\0"
KEY = (p.PID_KEY_HASH, bytes(range(16)))
DISPOSED = (p.PID_STATUS_INFO, b"\0\0\0\1")
OTHER = (0x8000, b"abcd")


def qos(little: bool, *parameters: tuple[int, bytes]) -> p.ParameterList | None:
    return p.ParameterList(parameters, little) if parameters else None


def sample(kind: int, sn: int, little: bool) -> bytes:
    """A DATA of one of the shapes that a writer mixes, or of one that ends a run."""
    coherent = (p.PID_COHERENT_SET, (0).to_bytes(4) + (9).to_bytes(4, "little" if little else "big"))
    parameters = [(), (), (), (KEY,), (DISPOSED,), (KEY, DISPOSED), (OTHER, KEY), (coherent,), ()][kind]
    payload = [
        b"\0\1\0\0",
        b"\0\1\0\0abcd",
        b"\0\1\0\1abcdefgh",
        b"\0\1\0\0",
        None,
        None,
        b"\0\1\0\0",
        b"\0\1\0\0",
        None,
    ]
    return Data(
        ENTITYID_UNKNOWN, WRITER, sn, payload[kind], qos(little, *parameters), key=kind == 2
    ).encode(little)  # fmt: skip


part = st.tuples(
    st.sampled_from([0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
    st.sampled_from([1, 1, 1, 1, 1, 1, 1, 2, 0]),  # how far the number goes on
    st.sampled_from([None, None, 5, 5_000_000_000, -1]),  # an INFO_TS before it, or one without time
)


def read(message: bytes, *, mixed: bool, lookahead: int = 65_507) -> list[object]:
    """All samples of a message, scan by scan, and the timestamp in force behind them."""
    data = np.frombuffer(message, np.uint8)
    view = memoryview(message)
    rows: list[object] = []
    pos, stamp, stamped = 0, NO_TIMESTAMP, -1
    with pytest.MonkeyPatch.context() as patch:
        if not mixed:
            patch.setattr(runs, "_SHORT", 0)
        while pos < len(message):
            kind, flags, end = submessage_at(view, pos, len(message))
            if kind == Data.KIND:
                try:
                    found, end, stamp = scan(
                        data,
                        pos,
                        len(message),
                        PREFIX,
                        stamp,
                        after_info_ts=pos == stamped,
                        lookahead=lookahead,
                    )
                    for run in found:
                        rows += rows_of([run])
                        rows += [("set", run.coherent_set)] * run.count
                except DecodeError as error:
                    rows.append(error.reason)
            elif kind == InfoTimestamp.KIND:
                new = InfoTimestamp.decode(flags, view[pos + 4 : end]).timestamp
                stamp = NO_TIMESTAMP if new is None else new
                stamped = end if end - pos == 12 else -1
            pos = end
    samples = [row for row in rows if not (isinstance(row, tuple) and row[0] == "set")]
    sets = [row for row in rows if isinstance(row, tuple) and row[0] == "set"]
    return [*samples, *sets, stamp]


@given(
    parts=st.lists(part, min_size=1, max_size=40),
    little=st.booleans(),
    tail=st.sampled_from([b"", Heartbeat(ENTITYID_UNKNOWN, WRITER, 1, 9, 1).encode()]),
    lookahead=st.sampled_from([1, 200, 65_507]),
    damage=st.none() | st.tuples(st.integers(0, 5_000), st.integers(0, 255)),
)
def test_whatever_the_mixture(
    parts: list[tuple[int, int, int | None]],
    little: bool,
    tail: bytes,
    lookahead: int,
    damage: tuple[int, int] | None,
) -> None:
    sn, message = 2**32 - 10, b""
    for kind, step, stamp in parts:
        sn += step
        if stamp is not None:
            message += InfoTimestamp(None if stamp < 0 else stamp).encode(little)
        message += sample(kind, sn, little)
    broken = bytearray(message + tail)
    if damage is not None:
        at = damage[0] % len(broken)
        if at + 1 < len(broken):
            broken[at] = damage[1]
    try:
        plain = read(bytes(broken), mixed=False)
    except DecodeError:  # of the framing: both stop there
        with pytest.raises(DecodeError):
            read(bytes(broken), mixed=True, lookahead=lookahead)
        return
    assert read(bytes(broken), mixed=True, lookahead=lookahead) == plain


@BOTH_ORDERS
def test_disposals_between_samples_make_one_run(little: bool) -> None:
    message = b"".join(
        InfoTimestamp(i * 1_000).encode(little) + sample((0, 5, 3)[i % 3], 100 + i, little)
        for i in range(900)
    )
    data = np.frombuffer(message, np.uint8)
    found, end, stamp = scan(data, 12, len(message), PREFIX, 0)
    (run,) = found
    assert isinstance(run, Run)
    assert (run.first_sn, run.count, end) == (100, 900, len(message))
    assert abs(stamp - 899_000) < 2
    assert int(run.sample_flags()[1]) & 1


def test_samples_of_a_writer_that_nobody_reads_are_passed_over() -> None:
    stamp = InfoTimestamp(7).encode()
    heartbeat = Heartbeat(ENTITYID_UNKNOWN, WRITER, 1, 9, 1).encode()
    ours = b"".join(stamp + sample(i % 7, 10 + i, True) for i in range(50))[len(stamp) :]
    other = Data(ENTITYID_UNKNOWN, b"\0\0\3\3", 1, b"\0\1\0\0").encode()
    for tail in (b"", heartbeat, stamp + other):
        data = np.frombuffer(ours + tail, np.uint8)
        end, count, stamp_at = pass_over(data, memoryview(data), 0, len(data))
        assert count == 50
        assert end == len(ours) + (len(stamp) if tail[:4] == stamp[:4] else 0)
        assert (ours + tail)[stamp_at : stamp_at + 12] == stamp


@BOTH_ORDERS
def test_each_end_of_a_coherent_set_stays_a_run_of_its_own(little: bool) -> None:
    """It is nothing for the user, which only a run of one can say; also where several follow each other."""
    ends = (p.PID_COHERENT_SET, b"\xff" * 4 + bytes(4))  # SEQUENCENUMBER_UNKNOWN
    rows = [Data(ENTITYID_UNKNOWN, WRITER, 1 + i, None, qos(little, ends)).encode(little) for i in range(12)]
    data = np.frombuffer(b"".join(rows), np.uint8)
    pos, found = 0, []
    while pos < len(data):
        some, pos, _ = scan(data, pos, len(data), PREFIX, NO_TIMESTAMP)
        found += some
    assert [(run.count, run.ends_coherent_set) for run in found] == [(1, True)] * 12


@given(st.data())
def test_runs_skipped_together_equal_those_skipped_one_by_one(data: st.DataObject) -> None:
    """Samples alike, with and without INFO_TS, in ranges; others, other writers and damage between them."""
    little = data.draw(st.booleans())
    stamp = InfoTimestamp(7).encode(little)
    other = Data(ENTITYID_UNKNOWN, b"\0\0\3\3", 1, b"\0\1\0\0").encode(little)
    parts = data.draw(
        st.lists(
            st.tuples(st.sampled_from([0, 1, 2, 4, 5, 9, 10, 11]), st.integers(1, 20), st.booleans()),
            min_size=1,
            max_size=6,
        )
    )
    message = sample(1, 1, little)
    for kind, count, stamped in parts:
        alike = {9: other, 10: stamp, 11: sample(1, 3, little)[:10]}.get(kind) or sample(kind, 2, little)
        message += (stamp * stamped + alike) * count + stamp * (kind == 5)
    raw = np.frombuffer(message, np.uint8)
    found = pass_over(raw, memoryview(raw), 0, len(raw))
    pos, count, stamp_at = 0, 0, -1
    try:
        while pos < len(raw):
            kind, _, end = submessage_at(memoryview(raw), pos, len(raw))
            if kind == Data.KIND and message[pos + 12 : pos + 16] == WRITER:
                count += 1
            elif kind == InfoTimestamp.KIND:
                stamp_at = pos
            else:
                break
            pos = end
    except DecodeError:
        pass
    assert found == (pos, count, stamp_at)


def test_many_samples_alike_are_passed_over_without_a_step_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def counted(*place: Any) -> tuple[int, int, int]:
        steps.append(1)
        return submessage_at(*place)

    monkeypatch.setattr(unread_samples, "submessage_at", counted)
    for stamp in (b"", InfoTimestamp(7).encode()):
        message = b"".join(stamp + sample(1, 1 + i, True) for i in range(500))[len(stamp) :]
        data = np.frombuffer(message, np.uint8)
        assert pass_over(data, memoryview(data), 0, len(data))[1] == 500
        assert len(steps) < 5
        steps.clear()
