"""Large samples whose last fragments share datagrams: for which readers they do, and what is repaired of them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from spark_rtps.transport.limits import GROUP_SAMPLES_MAX, MESSAGE_SIZE_MAX
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.participant.packing import pack
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import DataFrag
from tests.protocol.writer_script import ME, MS, Script
from tests.support.pcap import write_pcap
from tests.support.wireshark import tshark

SIZE = (64 << 10) + 4
WINDOW = 16 << 20


def messages(s: Script) -> list[bytes]:
    """Each datagram that was sent."""
    return [message for each in pack(ME.prefix, s.writer.outgoing()) for message in each.messages()]


def fragments(message: bytes) -> list[tuple[int, int]]:
    """The numbers of the samples, and of their fragments, in a datagram."""
    view = memoryview(message)
    found = [
        DataFrag.decode(flags, view[start:stop])
        for kind, flags, start, stop in iter_submessages(view)
        if kind == DataFrag.KIND
    ]
    return [(each.sn, each.first_fragment) for each in found]


def payloads(sent: list[bytes]) -> dict[int, bytes]:
    """What was sent of each sample."""
    pieces: dict[int, dict[int, bytes]] = {}
    for message in sent:
        view = memoryview(message)
        for kind, flags, start, stop in iter_submessages(view):
            if kind == DataFrag.KIND:
                frag = DataFrag.decode(flags, view[start:stop])
                pieces.setdefault(frag.sn, {})[frag.first_fragment] = bytes(frag.payload)
    return {sn: b"".join(found[n] for n in sorted(found)) for sn, found in pieces.items()}


def script(*, logged: bool = True, window: int = WINDOW) -> Script:
    """A writer with a reader of ours that takes so much."""
    log = PublicationLog.create(32 << 20, zeroes=False) if logged else None
    s = Script(readers=0, log=log)
    s.match(1, status_messages=True).acknack(1).status(0, window)
    s.writer.outgoing()
    return s


def write(s: Script, count: int, size: int = SIZE) -> dict[int, bytes]:
    """Write so many samples in one call; what each holds, by its number."""
    data = np.frombuffer(Random(size).randbytes(count * size), np.uint8)
    first = s.writer.last_sn + 1
    taken = s.writer.write_samples(Samples.uniform(data, count, size), timestamp=s.now, now=s.now)
    assert taken == count
    return {first + i: data[i * size : (i + 1) * size].tobytes() for i in range(count)}


@pytest.mark.parametrize("logged", [True, False])
def test_the_last_fragments_of_a_group_share_a_datagram(logged: bool) -> None:
    s = script(logged=logged)
    wrote = write(s, 19)
    sent = [each for each in messages(s) if fragments(each)]
    assert payloads(sent) == wrote
    groups = [range(1, 9), range(9, 17), range(17, 20)]
    assert [fragments(each) for each in sent] == [
        found for group in groups for found in (*([(sn, 1)] for sn in group), [(sn, 2) for sn in group])
    ]
    assert max(map(len, sent)) <= MESSAGE_SIZE_MAX
    s.acknack(20)
    assert s.writer.history.samples == s.writer.window.samples == 0


def test_groups_are_no_more_than_fit_a_datagram() -> None:
    s = script()
    wrote = write(s, 20, 90_000)  # two last fragments fill one
    sent = [each for each in messages(s) if fragments(each)]
    assert payloads(sent) == wrote
    assert max(len(fragments(each)) for each in sent) == 2
    assert len(sent) == 30
    assert max(map(len, sent)) <= MESSAGE_SIZE_MAX


def test_no_more_samples_are_unfinished_at_a_time_than_a_reader_puts_together() -> None:
    s = script()
    write(s, 100)
    begun: set[int] = set()
    ended: set[int] = set()
    for message in messages(s):
        for sn, number in fragments(message):
            (begun if number == 1 else ended).add(sn)
        assert len(begun - ended) <= GROUP_SAMPLES_MAX
    assert begun == ended == set(range(1, 101))


@pytest.mark.parametrize("other", ["foreign", "best-effort", "not heard of yet", "of little room"])
def test_no_datagram_is_shared_where_some_reader_may_not_take_it(other: str) -> None:
    s = script()
    if other == "foreign":  # some put one sample together at a time
        s.match(2).acknack(1, i=2)
    elif other == "best-effort":  # a lost datagram would take eight samples along
        s.match(2, reliable=False, status_messages=True)
    elif other == "not heard of yet":
        s.match(2, status_messages=True)
    else:  # a group is sent as a whole
        s.match(2, status_messages=True).acknack(1, i=2).status(0, 4 * SIZE, i=2)
    s.writer.outgoing()
    wrote = write(s, 10)
    sent = messages(s)
    for _ in range(len(wrote)):
        for i in (1, 2):
            s.status(
                s.writer.state.sent_sn, 4 * SIZE if i == 2 and other == "of little room" else WINDOW, i=i
            )
        sent += messages(s)
    sent = [each for each in sent if fragments(each)]
    assert [fragments(each) for each in sent] == [[(sn, n)] for sn in wrote for n in (1, 2)]


def test_a_group_that_a_reader_lost_is_repaired_fragment_by_fragment() -> None:
    s = script()
    wrote = write(s, 16)
    messages(s)
    s.now += 100 * MS
    s.nack_frag(3, 2)
    assert [found for each in messages(s) if (found := fragments(each))] == [[(3, 2)]]
    s.now += 100 * MS
    s.acknack(5, 6, 11)
    again: list[bytes] = []
    for _ in range(10):
        again += messages(s)
        s.now += 100 * MS
        s.acknack(5, 6, 11)
    assert payloads(again) == {sn: wrote[sn] for sn in (6, 11)}
    assert s.writer.history.first_sn == 5


def test_a_closing_window_divides_a_gso_buffer_between_groups() -> None:
    s = script()
    s.status(0, 9 * SIZE)
    s.writer.pacing.begin_anew()
    s.writer.pacing.update()
    s.writer._framer._group_bytes = lambda: 8 * SIZE  # type: ignore[method-assign]  # as it was when the window was wide
    wrote = write(s, 16)
    sent = messages(s)
    assert set(payloads(sent)) == set(range(1, 9))
    s.status(8, 9 * SIZE).acknack(9)
    sent += messages(s)
    assert payloads(sent) == wrote


def test_a_history_that_keeps_a_part_of_a_group_has_that_part() -> None:
    s = script()
    wrote = write(s, 16)
    messages(s)
    s.acknack(16)  # the last one alone is kept, in memory of its own
    (change,) = s.writer.history.changes()
    assert (change.first_sn, change.last_sn) == (16, 16)
    s.now += 100 * MS
    s.acknack(16, 16)
    assert payloads(messages(s)) == {16: wrote[16]}


def test_wireshark_reads_a_shared_datagram() -> None:
    s = script()
    write(s, 8)
    shared = next(each for each in messages(s) if len(fragments(each)) > 1)
    capture = write_pcap([shared])
    assert tshark(capture, "-Y", "!rtps || _ws.malformed || _ws.expert") == ""
    assert tshark(capture, "-T", "fields", "-e", "rtps.sm.id") == "0x09," + ",".join(["0x16"] * 8) + "\n"
