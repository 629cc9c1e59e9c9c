"""A burst of small datagrams, taken in one pass, holds what each datagram holds."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.participant.endpoints import LocalEndpoints
from spark_rtps.transport.protocol.receiving.burst_receiver import BurstReceiver
from spark_rtps.transport.protocol.receiving.message_receiver import MessageReceiver
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire import datagrams as wire_datagrams
from spark_rtps.transport.wire.datagrams import DATAGRAMS_MIN, DatagramRun, scan_datagrams
from spark_rtps.transport.wire.framing import frame
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.numbers import SequenceNumberSet
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, Run, Samples
from spark_rtps.transport.wire.status_messages import RttMeasurement, StatusMessage
from spark_rtps.transport.wire.submessages import Data, Gap, Heartbeat, InfoTimestamp

ENCAPSULATION = b"\x00\x01\x00\x00"
#: Bytes; 0: the datagrams lie one behind another.
SLOTS = st.sampled_from([0, 64, 80, 88, 96, 104, 400])


def lay_out(datagrams: Sequence[bytes], alignment: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Datagrams one behind another as the sockets receive them: each start a multiple of 8, or of 4 in GSO buffers."""
    return in_slots(datagrams, 0, alignment)


def in_slots(
    datagrams: Sequence[bytes], slot: int, alignment: int = 8
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Datagrams as one call for many receives them: those that are longer than ``slot`` lie behind the slots."""
    data, starts, stops = b"".join(each[:slot].ljust(slot, b"\0") for each in datagrams), [], []
    for i, datagram in enumerate(datagrams):
        starts.append(len(data) if len(datagram) > slot or not slot else slot * i)
        stops.append(starts[-1] + len(datagram))
        if starts[-1] == len(data):
            data += datagram
            data += bytes(-len(data) % alignment)
    return np.frombuffer(data, np.uint8), np.array(starts, np.int64), np.array(stops, np.int64)


def datagram(
    writer: int, sn: int, payload: bytes, stamp: int, tail: bytes = b"", little: bool = True
) -> bytes:
    header = Header((2, 1), b"\x01\x10", bytes([writer]) * 12).encode()
    data = Data(bytes(4), b"\0\0\1\3", sn, ENCAPSULATION + payload)
    return header + InfoTimestamp(stamp).encode(little) + data.encode(little) + tail


@st.composite
def bursts(draw: st.DrawFn) -> tuple[list[bytes], dict[tuple[int, int], tuple[bytes, int]]]:
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
@given(bursts(), SLOTS)
def test_a_burst_holds_what_its_datagrams_hold(
    case: tuple[list[bytes], dict[tuple[int, int], tuple[bytes, int]]], slot: int
) -> None:
    datagrams, expected = case
    data, starts, stops = in_slots(datagrams, slot)
    found = scan_datagrams(data, starts, stops)
    seen = {}
    for _, run, heartbeats in found.runs:
        for behind, at in heartbeats:
            assert data[at] == Heartbeat.KIND and starts[behind] < at < stops[behind]
        for i in range(run.count):
            stamp = int(run.timestamps()[i])
            seen[run.writer.prefix[0], run.first_sn + i] = (bytes(run.samples().payload(i)), stamp)
    if found.runs:
        assert seen == expected
    left = set(range(len(datagrams))) - set(found.rest)
    assert len(left) == len(seen)


def test_samples_of_one_writer_are_one_run_that_views_the_burst() -> None:
    datagrams = [datagram(1, sn, bytes(64), sn) for sn in range(1, 101)]
    data, starts, stops = lay_out(datagrams)
    (found,), rest = scan_datagrams(data, starts, stops)
    assert not rest and not found.heartbeats
    assert (found.run.first_sn, found.run.count) == (1, 100)
    assert np.shares_memory(found.run.data, data)


def test_a_run_has_one_source() -> None:
    """Datagrams of one sample, and GSO buffers: what differs in the address alone is told apart."""
    singles = [datagram(1, sn, bytes(64), sn) for sn in range(1, 41)]
    data, starts, stops = lay_out(singles)
    sources = np.arange(40) // 20
    found, rest = scan_datagrams(data, starts, stops, sources)
    assert not rest
    assert [(each.first, each.run.first_sn, each.run.count) for each in found] == [(0, 1, 20), (20, 21, 20)]
    turns = scan_datagrams(data, starts, stops, np.arange(40) % 2)
    assert [each.run.count for each in turns.runs] == [1] * 40
    datagrams, _ = gso_buffer(1, 1, 80, 8, 150)
    data, starts, stops = lay_out(datagrams, 4)
    half = len(datagrams) // 2
    found, rest = scan_datagrams(data, starts, stops, (np.arange(len(datagrams)) >= half).astype(np.int64))
    assert [each.first for each in found] == [0, half]
    assert found[0].run.last_sn + 1 == found[1].run.first_sn
    assert not rest and found[1].run.last_sn == 80


@pytest.mark.parametrize("little", [True, False])
def test_nothing_that_follows_a_vendors_submessage_is_passed_over(little: bool) -> None:
    vendor = b"\x80\x01\x04\x00abcd" if little else b"\x80\x00\x00\x04abcd"
    more = Data(bytes(4), b"\0\0\1\3", 1_000, ENCAPSULATION).encode()
    datagrams = [datagram(1, sn, bytes(64), sn, vendor + more * (sn == 7)) for sn in range(1, 101)]
    found, rest = scan_datagrams(*lay_out(datagrams))
    assert rest == [6]
    assert [(each.run.first_sn, each.run.count) for each in found] == [(1, 6), (8, 93)]


@pytest.mark.parametrize(
    "ours",
    [
        RttMeasurement(bytes(4), b"\0\0\1\3", 1, reply=True),
        StatusMessage(b"\0\0\1\4", b"\0\0\1\3", 1, 1, 1),
    ],
    ids=["RTT measurement", "status message"],
)
@pytest.mark.parametrize("little", [True, False])
def test_a_submessage_of_ours_behind_a_sample_is_left(
    ours: RttMeasurement | StatusMessage, little: bool
) -> None:
    tails = {7: ours.encode(little)}
    datagrams = [datagram(1, sn, bytes(64), sn, tails.get(sn, b"")) for sn in range(1, 101)]
    found, rest = scan_datagrams(*lay_out(datagrams))
    assert rest == [6]
    assert [(each.run.first_sn, each.run.count) for each in found] == [(1, 6), (8, 93)]


def heartbeats_of(data: np.ndarray, found: DatagramRun) -> list[Heartbeat]:
    beats = [data[at:][:32].tobytes() for _, at in found.heartbeats]
    return [Heartbeat.decode(beat[1], memoryview(beat)[4:]) for beat in beats]


@pytest.mark.parametrize(
    ("final", "named"),
    [
        ({5: False, 12: False, 20: True}, [5, 12]),
        ({5: False, 12: True, 20: True}, [5]),
        ({5: True, 12: True, 20: True}, [5, 20]),
        ({5: True, 12: True, 20: False}, [5, 20]),
        ({5: True}, [5]),
    ],
)
def test_the_first_heartbeat_is_named_and_the_last_that_asks_for_an_answer(
    final: dict[int, bool], named: list[int]
) -> None:
    beats = {
        sn: Heartbeat(bytes(4), b"\0\0\1\3", 1, sn, sn, final=is_final).encode()
        for sn, is_final in final.items()
    }
    datagrams = [datagram(1, sn, bytes(8), sn, beats.get(sn, b"")) for sn in range(1, 31)]
    data, starts, stops = lay_out(datagrams)
    (found,), _ = scan_datagrams(data, starts, stops)
    assert [beat.last_sn for beat in heartbeats_of(data, found)] == named


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize(
    "other",
    [
        Heartbeat(bytes(4), b"\0\0\2\3", 1, 77, 77),
        Heartbeat(b"\0\0\1\4", b"\0\0\1\3", 1, 77, 77),
        Heartbeat(bytes(4), b"\0\0\1\3", 1, 77, 77, final=True, liveliness=True),
        Heartbeat(bytes(4), b"\0\0\1\3", 9, 7, 77),
        Heartbeat(bytes(4), b"\0\0\1\3", 1 << 32, 7, 77),
        Heartbeat(bytes(4), b"\0\0\1\3", 0, 7, 77),
        Heartbeat(bytes(4), b"\0\0\1\3", -1 << 63, 7, 77),
    ],
    ids=[
        "of another writer",
        "to one reader",
        "that asserts liveliness",
        "backwards",
        "far",
        "zero",
        "below",
    ],
)
@pytest.mark.parametrize("first", [1, 10, (1 << 32) - 1, 1 << 32, (1 << 63) - 1])
def test_a_heartbeat_that_another_cannot_stand_for_is_left(
    other: Heartbeat, first: int, little: bool
) -> None:
    own = Heartbeat(bytes(4), b"\0\0\1\3", first, max(first - 1, 9), 9)
    tails = {9: other.encode(little), 3: own.encode(little)}
    datagrams = [datagram(1, sn, bytes(8), sn, tails.get(sn, b"")) for sn in range(1, 13)]
    data, starts, stops = lay_out(datagrams)
    found, rest = scan_datagrams(data, starts, stops)
    assert rest == [8]
    assert [beat for each in found for beat in heartbeats_of(data, each)] == [own]


@pytest.mark.parametrize("little", [True, False])
def test_whichever_bit_of_a_heartbeats_header_differs(little: bool) -> None:
    """A HEARTBEAT that says another length or byte order than it has is heard as if its datagram had come alone."""
    beat = Heartbeat(bytes(4), b"\0\0\1\3", 1, 5, 9).encode(little)
    for bit in range(32):
        tail = flip(beat, [bit // 8], 1 << bit % 8)
        datagrams = [datagram(1, sn, bytes(8), sn, tail if sn == 5 else b"") for sn in range(1, 13)]
        alone, drops = reported(datagrams, 8, together=False)
        reader, dropped = reported(datagrams, 8, together=True)
        writer = Guid(b"\1" * 12, b"\0\0\1\3")
        received = [
            [each for each in all.reported[writer] if isinstance(each, Heartbeat)] for all in (alone, reader)
        ]
        assert (received[1], dropped) == (received[0], drops), bit


def test_datagrams_too_short_to_hold_a_sample_are_left() -> None:
    data, starts, stops = np.zeros(40, np.uint8), np.arange(0, 40, 4), np.arange(4, 44, 4)
    assert scan_datagrams(data, starts, stops) == ([], list(range(10)))


# --- datagrams of many samples -------------------------------------------------------------------


class Recorder:
    """A reader that writes down what it is told, in order, by writer."""

    def __init__(self) -> None:
        self.guid = Guid(bytes(12), b"\0\0\0\4")
        self.reported: defaultdict[Guid, list[object]] = defaultdict(list)
        self.runs = 0

    def on_run(self, run: Run, *, now: int) -> None:
        self.runs += 1
        samples, stamps, hashes = run.samples(), run.timestamps(), run.key_hashes()
        if run.stride and run.payload_length:  # whoever decodes looks at one of them
            assert len(np.unique(samples.rows()[:, :2], axis=0)) == 1
        for i, sn in enumerate(run.sequence_numbers().tolist()):
            key = b"" if hashes is None else hashes[i].tobytes()
            flags, stamp = int(run.sample_flags()[i]), int(stamps[i])
            payload = bytes(samples.payload(i))
            self.reported[run.writer].append(
                (sn, payload, stamp, flags, key, run.coherent_set, run.reader_id)
            )

    def on_heartbeat(self, writer: Guid, heartbeat: Heartbeat, *, now: int) -> None:
        self.reported[writer].append(heartbeat)

    def on_gap(self, writer: Guid, gap: Gap, *, now: int) -> None:
        self.reported[writer].append(gap)

    fragment_bytes = 0

    def on_data_frag(self, writer: Guid, *submessage: object, now: int) -> None:
        self.reported[writer].append(submessage)

    on_batch = on_heartbeat_batch = on_heartbeat_frag = on_rtt_measurement = on_gap


class _Routes(dict[Guid, Any]):
    """Every writer is matched with the same readers."""

    def __init__(self, readers: list[Recorder]) -> None:
        super().__init__()
        self._readers = readers

    def get(self, key: Guid, default: object = None) -> Any:
        return self._readers


def reported(
    datagrams: Sequence[bytes], alignment: int, *, together: bool, slot: int = 0
) -> tuple[Recorder, Counter[DropReason]]:
    """What readers are told of the datagrams of a burst, taken together or each alone."""
    data, starts, stops = in_slots(datagrams, slot, alignment)
    reader, drops = Recorder(), Counter[DropReason]()
    endpoints = cast(
        LocalEndpoints,
        SimpleNamespace(
            routes=_Routes([reader]), other_slices={}, hears_itself=False, hears=lambda prefix: False
        ),
    )
    receiver = MessageReceiver(bytes(12), endpoints, {}, {}, drops, trust=Trust.ANY)
    spans = [(a, b, "") for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    bursts = BurstReceiver(receiver.router, {}, drops)
    for span in bursts.receive_runs(data, spans, now=1) if together else spans:
        if span is not None:
            receiver.receive(data, memoryview(data), *span, now=1)
    return reader, drops


def many(writer: int, stamp: int, body: bytes) -> bytes:
    return Header((2, 1), b"\x01\x7e", bytes([writer]) * 12).encode() + InfoTimestamp(stamp).encode() + body


def gso_buffer(
    writer: int, sn: int, count: int, size: int, budget: int, stamp: int = 0, **how: Any
) -> tuple[list[bytes], int]:
    """Datagrams of equal samples of ``size`` bytes, as our writers send them, and the next sequence number."""
    rows = (np.arange(count * size, dtype=np.uint32) * 7).astype(np.uint8).reshape(count, size)
    rows[:, :4] = list(ENCAPSULATION)
    blocks = frame(Samples.uniform(rows.reshape(-1), count, size), b"\0\0\1\2", sn, budget=budget, **how)
    return [many(writer, stamp, block.data.tobytes()) for block in blocks], sn + count


@st.composite
def gso_buffers(draw: st.DrawFn) -> list[bytes]:
    """Bursts in which ranges of equal datagrams are common, cut in every way."""
    writers = draw(st.integers(1, 2))
    next_sn = {w: draw(st.sampled_from([1, (1 << 32) - 40, 1 << 33])) for w in range(1, writers + 1)}
    datagrams: list[bytes] = []
    for i in range(draw(st.integers(1, 6))):
        w = draw(st.integers(1, writers))
        size, budget = draw(st.sampled_from([8, 12, 68])), draw(st.sampled_from([150, 300]))
        count = draw(st.integers(1, 60))
        how: dict[str, Any] = {}
        if draw(st.integers(0, 2)) == 0:
            hashes = np.arange(count * 16, dtype=np.uint32).astype(np.uint8).reshape(count, 16)
            how = {"key_hashes": hashes, "flags": draw(st.sampled_from([0, DISPOSED | KEY_ONLY]))}
        elif draw(st.integers(0, 4)) == 0:
            how = {"coherent_set": next_sn[w]}
        if draw(st.integers(0, 5)) == 0:
            next_sn[w] += 3
        some, next_sn[w] = gso_buffer(w, next_sn[w], count, size, budget, i, **how)
        if draw(st.integers(0, 3)) == 0:  # as if each had been written alone
            some = [
                each[:20] + InfoTimestamp(stamp * 1_000_000_000).encode() + each[32:]
                for stamp, each in enumerate(some)
            ]
        tail = draw(st.sampled_from(["", "", "beat", "own beat", "gap", "noise"]))
        beat = Heartbeat(bytes(4), b"\0\0\1\2", 1, next_sn[w] - 1, i).encode()
        if tail == "beat":
            some[-1] += beat
        elif tail == "own beat":
            some.append(many(w, 0, beat))
        elif tail == "gap":
            gap = Gap(bytes(4), b"\0\0\1\2", next_sn[w], SequenceNumberSet.from_numbers(next_sn[w] + 1, []))
            some.append(many(w, 0, gap.encode()))
            next_sn[w] += 1
        elif tail == "noise":
            some.append(draw(st.binary(max_size=60)))
        datagrams += some
    return datagrams


def flip(datagram: bytes, places: Sequence[int], bits: int) -> bytes:
    """The datagram with bits of some of its bytes the other way round."""
    flipped = bytearray(datagram)
    for at in places:
        if at < len(flipped):
            flipped[at] ^= bits
    return bytes(flipped)


def rows_of(datagram: bytes) -> range:
    """Where its DATA begin, if all are as long as the first."""
    size = int.from_bytes(datagram[34:36], "little") + 4
    return range(32, len(datagram), size)


@st.composite
def disturbed(draw: st.DrawFn) -> list[bytes]:
    """Such bursts after a bad network and a hostile hand."""
    datagrams = draw(gso_buffers())
    for _ in range(draw(st.integers(0, 4))):
        i = draw(st.integers(0, len(datagrams) - 1))
        bits = draw(st.sampled_from([1, 2, 4, 8, 0x10, 0x80, 0xFF]))
        # header, INFO_TS, and what the header of a DATA, its inline QoS and its payload's header take up
        at, in_row = draw(st.integers(0, 31)), draw(st.integers(0, 27) | st.integers(0, 60))
        match draw(st.sampled_from(["head", "row", "rows", "all", "lose", "repeat", "swap", "cut"])):
            case "head":
                datagrams[i] = flip(datagrams[i], [at], bits)
            case "row":
                rows = rows_of(datagrams[i])
                row = rows[draw(st.integers(0, len(rows) - 1))] if rows else 0
                datagrams[i] = flip(datagrams[i], [row + in_row], bits)
            case "rows":
                datagrams[i] = flip(datagrams[i], [row + in_row for row in rows_of(datagrams[i])], bits)
            case "all":
                place = draw(st.sampled_from([at, 32 + in_row]))
                datagrams = [flip(each, [place], bits) for each in datagrams]
            case "lose" if len(datagrams) > 1:
                del datagrams[i]
            case "repeat":
                datagrams.insert(i, datagrams[draw(st.integers(0, len(datagrams) - 1))])
            case "swap":
                j = draw(st.integers(0, len(datagrams) - 1))
                datagrams[i], datagrams[j] = datagrams[j], datagrams[i]
            case "cut":
                datagrams[i] = datagrams[i][: draw(st.integers(0, len(datagrams[i])))]
    return datagrams


def reported_in_order(
    datagrams: Sequence[bytes], alignment: int = 8, slot: int = 0
) -> tuple[Recorder, Counter[DropReason]]:
    """What readers are told of a burst taken together, those of one sample, which may come sooner, aside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_datagrams, "_SINGLES_MIN", 1 << 30)
        return reported(datagrams, alignment, together=True, slot=slot)


@settings(max_examples=500, deadline=None)
@given(disturbed(), st.sampled_from([4, 8]), SLOTS)
def test_readers_get_the_same_from_a_burst_as_from_single_datagrams(
    datagrams: list[bytes], alignment: int, slot: int
) -> None:
    alone, drops = reported(datagrams, alignment, together=False)
    reader, dropped = reported_in_order(datagrams, alignment, slot)
    assert reader.reported == alone.reported  # in the same order
    assert dropped == drops


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("where", ["a row", "a datagram", "all"])
def test_whichever_byte_differs(hashed: bool, where: str) -> None:
    hashes = {"key_hashes": np.zeros((40, 16), np.uint8)} if hashed else {}
    datagrams, _ = gso_buffer(1, 1, 40, 8, 256, **hashes)
    rows = rows_of(datagrams[2])
    for at in range(-32, rows.step):
        for bits in (1, 0x80):
            changed = {2} if where != "all" else range(len(datagrams))
            places = [32] if at < 0 else [rows[1]] if where == "a row" else rows  # < 0: header and INFO_TS
            hostile = [
                flip(each, [place + at for place in places], bits) if i in changed else each
                for i, each in enumerate(datagrams)
            ]
            alone, drops = reported(hostile, 8, together=False)
            reader, dropped = reported_in_order(hostile)
            assert (reader.reported, dropped) == (alone.reported, drops), (at, bits)


@settings(max_examples=200, deadline=None)
@given(bursts(), disturbed(), st.randoms(use_true_random=False), SLOTS)
def test_both_forms_in_one_burst(
    case: tuple[list[bytes], Any], datagrams: list[bytes], random: Any, slot: int
) -> None:
    """As above, but for the order of datagrams of one sample, and their heartbeats, of which one counts."""
    mixed = [*case[0], *datagrams]
    random.shuffle(mixed)

    def samples(reader: Recorder) -> dict[Guid, Counter[object]]:
        found = {
            w: Counter(each for each in all if isinstance(each, tuple)) for w, all in reader.reported.items()
        }
        return {w: each for w, each in found.items() if each}  # type: ignore[misc]

    assert samples(reported(mixed, 8, together=True, slot=slot)[0]) == samples(
        reported(mixed, 8, together=False)[0]
    )


@pytest.mark.parametrize("hashed", [False, True])
def test_a_gso_buffer_is_a_run_of_its_valid_samples(hashed: bool) -> None:
    hashes = (
        {"key_hashes": np.arange(280 * 16, dtype=np.uint32).astype(np.uint8).reshape(280, 16)}
        if hashed
        else {}
    )
    datagrams, _ = gso_buffer(1, 5, 280, 68, 1400, stamp=9, **hashes)
    data, starts, stops = lay_out(datagrams, 4)
    (found,), rest = scan_datagrams(data, starts, stops)
    assert rest == [len(datagrams) - 1]  # shorter
    whole = 276 if hashed else 270
    assert (found.first, found.run.first_sn, found.run.count, found.run.timestamp) == (0, 5, whole, 9)
    assert found.run.nbytes == whole * (84 if hashed else 68)


def test_a_hole_cuts_a_gso_buffer_and_loses_no_other_sample() -> None:
    datagrams, _ = gso_buffer(1, 1, 15 * 40, 68, 1400)
    del datagrams[17]
    data, starts, stops = lay_out(datagrams)
    runs, rest = scan_datagrams(data, starts, stops)
    assert [(each.first, each.run.first_sn, each.run.count) for each in runs] == [(0, 1, 255), (17, 271, 330)]
    assert not rest


def test_a_run_is_no_longer_than_a_datagram_could_be() -> None:
    """Else a window that is smaller would refuse what it would take piece by piece."""
    datagrams, _ = gso_buffer(1, 1, 15 * 400, 68, 1400)
    data, starts, stops = lay_out(datagrams)
    runs, rest = scan_datagrams(data, starts, stops)
    assert not rest and sum(each.run.count for each in runs) == 6000  # type: ignore[misc]
    assert all(each.run.nbytes < 1 << 16 for each in runs)


def test_another_range_begins_where_the_pitch_changes() -> None:
    """GSO buffers of 44 bytes: the kernel packs the datagrams of one buffer, and a burst aligns each buffer."""
    datagrams, _ = gso_buffer(1, 1, 80, 12, 80)
    data, starts, stops = np.zeros(8192, np.uint8), [], []
    assert len(datagrams) == 40 and len(datagrams[0]) == 104
    at = 0
    for i, each in enumerate(datagrams):
        data[at : at + 104] = np.frombuffer(each, np.uint8)
        starts.append(at)
        stops.append(at + 104)
        at += 104 if i < 10 else 112 if i == 20 else 108
    runs, rest = scan_datagrams(data, np.array(starts), np.array(stops))
    assert [(each.first, each.run.count) for each in runs] == [(0, 22), (11, 20), (21, 38)]
    assert not rest


@pytest.mark.parametrize("step", [-288, -304])
def test_datagrams_in_reverse_order_are_no_range(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else memory would be looked at that is not theirs."""
    monkeypatch.setattr("spark_rtps.transport.wire.equal_datagrams.comparable", None)
    datagrams, _ = gso_buffer(1, 1, 8 * 8, 8, 256)
    assert {len(each) for each in datagrams} == {288}
    starts = np.arange(len(datagrams) - 1, -1, -1) * -step
    data = np.zeros(int(starts[0]) + 288, np.uint8)
    for start, each in zip(starts.tolist(), datagrams, strict=True):
        data[start : start + 288] = np.frombuffer(each, np.uint8)
    found, rest = scan_datagrams(data, starts, starts + 288)
    assert not found and rest == list(range(len(datagrams)))


def test_a_number_that_wraps_where_it_must_not_is_not_the_next() -> None:
    """Its high word has to go on by one."""
    sn = (2 << 32) - 2
    datagrams, _ = gso_buffer(1, sn, 8 * 12, 8, 256)
    assert datagrams[0][32 + 2 * 32 + 16 :][:8] == b"\2\0\0\0\0\0\0\0"
    wrong = flip(datagrams[0], [row + 16 for row in rows_of(datagrams[0])[2:]], 3)
    for first in (datagrams[0], wrong):
        alone, _ = reported([first, *datagrams[1:]], 8, together=False)
        reader, _ = reported([first, *datagrams[1:]], 8, together=True)
        assert reader.reported == alone.reported
        numbers = [cast(Any, each)[0] for each in reader.reported[Guid(b"\1" * 12, b"\0\0\1\2")]]
        third_is = 2 << 32 if first == datagrams[0] else 1 << 32
        assert numbers[:3] == [sn, sn + 1, third_is]


def test_builtin_writers_are_left_to_the_general_way() -> None:
    """Who sent it matters."""
    datagrams, _ = gso_buffer(1, 1, 15 * 40, 68, 1400)
    each = [flip(datagram, [row + 15 for row in rows_of(datagram)], 0xC0) for datagram in datagrams]
    data, starts, stops = lay_out(each)
    assert scan_datagrams(data, starts, stops) == ([], list(range(40)))


def test_a_writer_of_small_and_large_writes_keeps_its_order() -> None:
    """Nothing is held, nor asked for again, because it was taken sooner than what was sent before."""
    datagrams: list[bytes] = []
    sn, singles = 1, 0
    for i in range(40):
        some, sn = gso_buffer(1, sn, [1, 75, 3, 40, 1][i % 5], 68, 1400, stamp=i)
        singles += [each[32:].count(b"\x15\x05\x58\0") for each in some].count(1)
        datagrams += some
    assert singles >= DATAGRAMS_MIN
    reader, _ = reported(datagrams, 8, together=True)
    (numbers,) = ([cast(Any, each)[0] for each in all] for all in reader.reported.values())
    assert numbers == list(range(1, sn))
