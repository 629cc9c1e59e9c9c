"""A drain of small datagrams, taken in one pass, holds what each datagram holds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.wire.datagrams import DATAGRAMS_MIN, scan_datagrams
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.submessages import Data, Heartbeat, InfoTimestamp

ENCAPSULATION = b"\x00\x01\x00\x00"


def lay_out(datagrams: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Datagrams one behind another as the sockets drain them: each start a multiple of 8."""
    data, starts, stops = b"", [], []
    for datagram in datagrams:
        starts.append(len(data))
        data += datagram
        stops.append(len(data))
        data += bytes(-len(data) % 8)
    return np.frombuffer(data, np.uint8), np.array(starts, np.int64), np.array(stops, np.int64)


def datagram(
    writer: int, sn: int, payload: bytes, stamp: int, tail: bytes = b"", little: bool = True
) -> bytes:
    header = Header((2, 1), b"\x01\x10", bytes([writer]) * 12).encode()
    data = Data(bytes(4), b"\0\0\1\3", sn, ENCAPSULATION + payload)
    return header + InfoTimestamp(stamp).encode(little) + data.encode(little) + tail


@st.composite
def drains(draw: st.DrawFn) -> tuple[list[bytes], dict[tuple[int, int], tuple[bytes, int]]]:
    """Datagrams of up to three writers, some odd ones between, and what the plain ones hold."""
    writers = draw(st.integers(1, 3))
    next_sn = {w: draw(st.sampled_from([1, (1 << 32) - 2])) for w in range(1, writers + 1)}
    datagrams, expected = [], {}
    for i in range(draw(st.integers(DATAGRAMS_MIN, 40))):
        kind = draw(
            st.sampled_from(["plain"] * 6 + ["beat", "vendor", "big endian", "short", "noise", "gap"])
        )
        w = draw(st.integers(1, writers))
        if kind == "noise":
            datagrams.append(draw(st.binary(max_size=100)))
            continue
        if kind == "gap":
            next_sn[w] += 3
        payload, stamp = bytes([i]) * (4 * draw(st.integers(0, 5))), i * 1_000_000_000
        tail = b""
        if kind == "beat":
            tail = Heartbeat(bytes(4), b"\0\0\1\3", 1, next_sn[w], i).encode()
        elif kind == "vendor":
            tail = b"\x80\x01\x04\x00abcd"
        one = datagram(w, next_sn[w], payload, stamp, tail, little=kind != "big endian")
        datagrams.append(one[:30] if kind == "short" else one)
        if kind not in ("big endian", "short"):
            expected[w, next_sn[w]] = (ENCAPSULATION + payload, stamp)
        next_sn[w] += 1
    return datagrams, expected


@settings(max_examples=300, deadline=None)
@given(drains())
def test_a_drain_holds_what_its_datagrams_hold(
    case: tuple[list[bytes], dict[tuple[int, int], tuple[bytes, int]]],
) -> None:
    datagrams, expected = case
    data, starts, stops = lay_out(datagrams)
    found = scan_datagrams(data, starts, stops)
    seen = {}
    for run, heartbeat_at in found.runs:
        assert heartbeat_at < 0 or data[heartbeat_at] == Heartbeat.KIND
        for i in range(run.count):
            stamp = int(run.timestamps()[i])
            seen[run.writer.prefix[0], run.first_sn + i] = (bytes(run.samples().payload(i)), stamp)
    if found.runs:
        assert seen == expected
    left = set(range(len(datagrams))) - set(found.rest)
    assert len(left) == len(seen)


def test_one_writer_is_one_run_that_views_the_drain() -> None:
    datagrams = [datagram(1, sn, bytes(64), sn) for sn in range(1, 101)]
    data, starts, stops = lay_out(datagrams)
    (found,), rest = scan_datagrams(data, starts, stops)
    assert not rest and found.heartbeat_at == -1
    assert (found.run.first_sn, found.run.count) == (1, 100)
    assert np.shares_memory(found.run.data, data)


def test_the_heartbeat_that_asks_for_an_answer_is_the_one_named() -> None:
    beats = {5: False, 20: True}
    datagrams = [
        datagram(
            1,
            sn,
            bytes(8),
            sn,
            Heartbeat(bytes(4), b"\0\0\1\3", 1, sn, sn, final=beats[sn]).encode() if sn in beats else b"",
        )
        for sn in range(1, 31)
    ]
    data, starts, stops = lay_out(datagrams)
    (found,), _ = scan_datagrams(data, starts, stops)
    beat = data[found.heartbeat_at :][:32].tobytes()
    assert Heartbeat.decode(beat[1], memoryview(beat)[4:]).last_sn == 5


def test_datagrams_too_short_to_hold_a_sample_are_left() -> None:
    data, starts, stops = np.zeros(40, np.uint8), np.arange(0, 40, 4), np.arange(4, 44, 4)
    assert scan_datagrams(data, starts, stops) == ([], list(range(10)))
