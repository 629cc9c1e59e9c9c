"""GSO buffers of datagrams: how they are put together, sent, refused, received and taken apart."""

from __future__ import annotations

import errno
import itertools
import os
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.limits import UDP_PAYLOAD_MAX
from spark_rtps.transport.net import offload
from spark_rtps.transport.net.interfaces import Interface
from spark_rtps.transport.net.offload import GSO_CAPACITY, SEGMENT_SIZE_MAX, SEGMENTS_MAX, Routes, gso_buffers
from spark_rtps.transport.net.sockets import Sockets
from spark_rtps.transport.protocol.outgoing import OutgoingDatagrams
from spark_rtps.transport.structure import VENDOR_ID, Locator
from spark_rtps.transport.wire.message import HEADER_SIZE
from spark_rtps.transport.wire.submessages import HEARTBEAT_SIZE
from tests.support import domains

LOOPBACK = [Interface("lo", "127.0.0.1", 65_536)]
HERE, THERE = Locator("127.0.0.1", 9), Locator("127.0.0.2", 9)


class Sender:
    """Stands before a socket: notes each system call, and refuses some."""

    def __init__(self, sender: socket.socket) -> None:
        self.sender = sender
        #: (destination, segments) of each call that went through.
        self.calls: list[tuple[str, int]] = []
        #: What a GSO buffer to an address fails with, and what anything does.
        self.refuses: dict[str, int] = {}
        self.fails: dict[str, int] = {}
        self.segment_max = UDP_PAYLOAD_MAX
        self.refused = self.short = 0

    def sendmsg(self, buffers: Any, control: Any, flags: int, address: tuple[str, int]) -> int:
        size = sum(map(len, buffers))
        segment = int.from_bytes(control[0][2], "little") if control else size
        error = self.fails.get(address[0]) or (control and self.refuses.get(address[0]))
        if control and segment > self.segment_max:
            error = errno.EMSGSIZE
        if error:
            self.refused += 1
            raise OSError(error, os.strerror(error))
        self.calls.append((address[0], -(-size // segment)))
        return self.sender.sendmsg(buffers, control, flags, address) - self.short


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    sockets = Sockets.open(domains.NET_OFFLOAD, LOOPBACK, multicast=True, receive_buffer=1 << 20)
    yield sockets
    sockets.close()


@pytest.fixture
def sender(sockets: Sockets) -> Sender:
    if not sockets._sends_gso:
        pytest.skip("this kernel has no UDP_SEGMENT")
    sender = Sender(sockets._senders[0])
    sockets._senders = [sender]  # type: ignore[list-item]
    return sender


def message(number: int, size: int, vendor: bytes = VENDOR_ID) -> bytes:
    header = b"RTPS\x02\x05" + vendor + bytes(12)
    return (header + number.to_bytes(4, "little") * size)[:size]


def to(destination: Locator | tuple[Locator, ...], *messages: bytes) -> list[OutgoingDatagrams]:
    """Each message as a header and the rest."""
    destinations = (destination,) if isinstance(destination, Locator) else destination
    return [OutgoingDatagrams([m[:20], np.frombuffer(m[20:], np.uint8)], destinations) for m in messages]


def received(sockets: Sockets, source: socket.socket | None = None) -> list[bytes]:
    spans = sockets.drain(source or sockets.user)
    assert all(start % 4 == 0 for start, stop, _ in spans if stop - start >= 20)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    assert {address for _, _, address in spans} <= {"127.0.0.1"}
    return [sockets.buffer[start:stop].tobytes() for start, stop, _ in spans]


# --- putting together ------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 20, 21, 100, 1_408, SEGMENT_SIZE_MAX, SEGMENT_SIZE_MAX + 1, 64_512]),
            st.sampled_from([(HERE,), (THERE,), (HERE, THERE)]),
            st.integers(1, 100),
        ),
        max_size=8,
    )
)
def test_datagrams_go_in_order_in_gso_buffers_of_the_kernels_limit(parts: Any) -> None:
    datagrams = [
        OutgoingDatagrams([bytes(size)], destinations)
        for size, destinations, count in parts
        for _ in range(count)
    ]
    made = list(gso_buffers(datagrams))
    assert [id(each) for gso_buffer, _, _ in made for each in gso_buffer] == [id(each) for each in datagrams]
    for gso_buffer, segment, nbytes in made:
        sizes = [len(each.buffers[0]) for each in gso_buffer]
        assert sum(sizes) == nbytes and sizes[0] == segment
        if len(sizes) > 1:
            assert set(sizes[:-1]) == {segment} and 0 < sizes[-1] <= segment <= SEGMENT_SIZE_MAX
            assert len(sizes) <= SEGMENTS_MAX and nbytes <= UDP_PAYLOAD_MAX
            assert len({each.destinations for each in gso_buffer}) == 1


@pytest.mark.parametrize(
    ("segment", "group", "nbytes"),
    [(1_400, 3_000, 8_500), (1_400, 200_000, 450_000), (9_000, 30_000, 60_000), (33_000, 70_000, 175_000)],
)
def test_the_last_message_of_each_group_may_be_shorter(segment: int, group: int, nbytes: int) -> None:
    whole = np.arange(nbytes, dtype=np.uint32).astype(np.uint8)
    gso_buffer = OutgoingDatagrams([whole], (HERE,), segment, group)
    expected = [
        whole[at : min(at + segment, start + group, nbytes)].tobytes()
        for start in range(0, nbytes, group)
        for at in range(start, min(start + group, nbytes), segment)
    ]
    assert gso_buffer.messages() == expected
    made = list(gso_buffers([gso_buffer]))
    assert [m for (each,), _, _ in made for m in each.messages()] == expected
    assert all(size <= UDP_PAYLOAD_MAX for _, _, size in made) == (segment <= SEGMENT_SIZE_MAX)


@given(st.sampled_from([24, 1_400, 9_000, 33_000, 64_512]), st.integers(2, 300), st.integers(0, 64_508))
def test_a_ready_made_gso_buffer_is_cut_between_messages(segment: int, count: int, less: int) -> None:
    whole = np.arange(segment * count - less % segment, dtype=np.uint32).astype(np.uint8)
    made = list(gso_buffers([OutgoingDatagrams([whole], (HERE,), segment)]))
    assert b"".join(bytes(each.buffers[0]) for (each,), _, _ in made) == whole.tobytes()
    for (each,), size, nbytes in made:
        assert each.destinations == (HERE,) and len(each.buffers[0]) == nbytes >= size
        assert size == min(segment, nbytes)
        if segment <= SEGMENT_SIZE_MAX:  # else the kernel cuts nothing, and messages leave one by one
            assert nbytes <= UDP_PAYLOAD_MAX and -(-nbytes // segment) <= SEGMENTS_MAX
    assert all(nbytes % segment == 0 for _, _, nbytes in made[:-1])
    assert b"".join(m for (each,), _, _ in made for m in each.messages()) == whole.tobytes()


@pytest.mark.parametrize(
    ("sizes", "together"),
    [
        ([1_408] * 100, [46, 46, 8]),
        ([100] * 100, [64, 36]),
        ([1_408] * 3 + [1_000] * 2, [4, 1]),
        ([1_000, 1_408, 1_408], [1, 2]),
        ([64_512] * 2, [1, 1]),
        ([8_972] * 8, [7, 1]),
        ([0, 0], [1, 1]),
        ([], []),
    ],
)
def test_gso_buffers_join_equal_lengths_and_end_with_a_shorter_one(
    sizes: list[int], together: list[int]
) -> None:
    found = [
        len(gso_buffer)
        for gso_buffer, _, _ in gso_buffers([OutgoingDatagrams([bytes(n)], (HERE,)) for n in sizes])
    ]
    assert found == together


def test_few_large_pieces_are_gathered_and_many_small_ones_copied() -> None:
    large, small = [b"a" * 1_408] * 46, [b"a" * 100, memoryview(b"b" * 100)] * 46
    assert offload.pieces(large, 46 * 1_408) is large
    assert offload.pieces(small, 46 * 200) == [(b"a" * 100 + b"b" * 100) * 46]
    assert len(offload.pieces(small[:8], 800)) == 8


# --- sending ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 101, 1_407, 1_408, 1_410, 8_192])
def test_a_gso_buffer_arrives_as_its_datagrams(sockets: Sockets, sender: Sender, size: int) -> None:
    messages = [message(i, size) for i in range(20)] + [message(20, size - 7)]
    for _ in range(3):  # received one by one, and then as GSO buffers
        sender.calls.clear()
        assert sockets.send(to(sockets.default_unicast[0], *messages)) == 21
        assert len(sender.calls) == -(-21 // (UDP_PAYLOAD_MAX // size))
        assert received(sockets) == messages
    assert sockets.user in sockets._gso_sockets
    assert (sockets.sent, sockets.send_failures.count, sockets.short_sends) == (63, 0, 0)


def test_a_gso_buffer_to_a_group_reaches_all_members(sockets: Sockets, sender: Sender) -> None:
    other = Sockets.open(domains.NET_OFFLOAD, LOOPBACK, multicast=True, receive_buffer=1 << 20)
    try:
        messages = [message(i, 1_000) for i in range(10)]
        sockets.send(to(sockets.metatraffic_multicast[0], *messages))
        assert [segments for _, segments in sender.calls] == [10]
        for each in (sockets, other):
            assert received(each, each.receivers[-1]) == messages
    finally:
        other.close()


def test_every_destination_gets_the_gso_buffer(sockets: Sockets, sender: Sender) -> None:
    sockets.send(to((HERE, THERE), *[message(i, 1_000) for i in range(10)]))
    assert sender.calls == [("127.0.0.1", 10), ("127.0.0.2", 10)]
    assert sockets.sent == 20


def test_a_datagram_of_more_buffers_than_a_system_call_takes(sockets: Sockets) -> None:
    datagram = OutgoingDatagrams(
        [message(0, 20)] + [bytes([i & 0xFF]) for i in range(3_000)], sockets.default_unicast
    )
    assert sockets.send([datagram]) == 1
    assert received(sockets) == [b"".join(map(bytes, datagram.buffers))]


@pytest.mark.parametrize("error", [errno.EIO, errno.EINVAL, errno.EMSGSIZE])
def test_a_destination_without_gso_falls_back_alone(sockets: Sockets, sender: Sender, error: int) -> None:
    sender.refuses = {"127.0.0.1": error}
    for _ in range(2):
        assert sockets.send(to((HERE, THERE), *[message(i, 1_000) for i in range(10)])) == 20
    assert sender.calls == ([("127.0.0.1", 1)] * 10 + [("127.0.0.2", 10)]) * 2
    assert sender.refused == 1  # not asked again
    assert (sockets.sent, sockets.send_failures.count) == (40, 0)


def test_segments_that_exceed_the_routes_mtu_do_not_keep_shorter_ones_from_it(
    sockets: Sockets, sender: Sender
) -> None:
    sender.segment_max = 1_472
    for size in (8_192, 8_972, 1_472):
        sockets.send(to(HERE, *[message(i, size) for i in range(7)]))
    assert [segments for _, segments in sender.calls] == [1] * 14 + [7]
    assert sender.refused == 1


def test_a_failure_that_is_not_the_routes_is_counted_for_each_datagram(
    sockets: Sockets, sender: Sender
) -> None:
    sender.fails = {"127.0.0.1": errno.ENETUNREACH}
    messages = [message(i, 1_000) for i in range(10)]
    assert sockets.send(to((HERE, THERE), *messages)) == 10
    assert (sockets.sent, sockets.send_failures.count) == (10, 10)
    causes = sockets.send_failures.causes({HERE}, 4)
    assert len(causes) == 6 and "127.0.0.1" in causes[0] and os.strerror(errno.ENETUNREACH) in causes[0]
    sender.fails = {}
    assert sockets.send(to(HERE, *messages)) == 10
    assert sender.calls[-1] == ("127.0.0.1", 10)  # GSO buffers go there again


def test_short_sends_are_counted(sockets: Sockets, sender: Sender) -> None:
    sender.short = 1
    sockets.send(to(HERE, *[message(i, 1_000) for i in range(10)], message(0, 2_000)))
    assert sockets.short_sends == 2


def test_without_the_kernels_help_every_datagram_goes_by_itself(
    sockets: Sockets, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets._sends_gso = False
    messages = [message(i, 1_000) for i in range(20)] + [message(20, 30)]
    assert sockets.send(to(sockets.default_unicast[0], *messages)) == 21
    assert sender.calls == [("127.0.0.1", 1)] * 21
    assert received(sockets) == messages


def test_a_kernel_that_knows_neither_is_asked() -> None:
    class Old:
        def setsockopt(self, *option: int) -> None:
            raise OSError(errno.ENOPROTOOPT, "")

    assert not offload.takes_gso(Old())
    assert not offload.receive_coalesced(Old())


def test_remembered_refusals_of_routes_are_bounded(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "_ROUTES_MAX", 10)
    routes, sender = Routes(), sockets._senders[0]
    for port in range(1, 100):
        routes.refused(sender, Locator("127.0.0.1", port), 1_000, OSError(errno.EIO, ""))
        assert not routes.takes(sender, Locator("127.0.0.1", port), 20)
        assert len(routes._refused) <= 10


# --- receiving -------------------------------------------------------------------------------------------


def send_plainly(sockets: Sockets, messages: list[bytes]) -> None:
    for each in messages:
        sockets.send(to(sockets.default_unicast[0], each))


def test_gro_is_enabled_only_where_spark_rtps_participants_send(sockets: Sockets) -> None:
    cyclone = b"\x01\x10"
    send_plainly(sockets, [message(i, 1_000, cyclone) for i in range(20)])
    received(sockets)
    send_plainly(sockets, [message(i, 1_000 + 4 * (i % 5)) for i in range(20)])
    received(sockets)
    send_plainly(sockets, [message(i, 20_000) for i in range(10)])
    received(sockets)
    send_plainly(sockets, [message(i, 1_000) for i in range(8)])
    received(sockets)
    assert sockets.user not in sockets._gso_sockets
    send_plainly(sockets, [message(i, 1_000) for i in range(9)])
    received(sockets)
    assert sockets.user in sockets._gso_sockets or not offload.receive_coalesced(sockets.user)


def test_heartbeats_of_equal_length_are_no_gso_buffer() -> None:
    size = HEADER_SIZE + HEARTBEAT_SIZE
    data = np.frombuffer(b"".join(message(number, size) for number in range(20)), np.uint8)
    spans = [(number * size, (number + 1) * size, "") for number in range(20)]
    assert not offload.is_gso(data, spans)


def test_gso_buffers_and_single_datagrams_mix(sockets: Sockets) -> None:
    if not offload.receive_coalesced(sockets.user):
        pytest.skip("this kernel has no UDP_GRO")
    sockets._gso_sockets.add(sockets.user)
    messages = [message(1, 64_512), *[message(i, 1_001) for i in range(9)], message(2, 3), message(3, 30_000)]
    messages += [message(i, 5) for i in range(9)]
    sockets.send(to(sockets.default_unicast[0], *messages))
    assert received(sockets) == messages
    assert received(sockets) == []


def test_a_burst_of_gso_buffers_ends_with_the_receive_buffer(sockets: Sockets, sender: Sender) -> None:
    if not offload.receive_coalesced(sockets.user):
        pytest.skip("this kernel has no UDP_GRO")
    sockets._gso_sockets.add(sockets.user)
    messages = [message(i, 1_405) for i in range(46 * 18)]  # more than the buffer holds
    sockets.send(to(sockets.default_unicast[0], *messages))
    found: list[bytes] = []
    while got := received(sockets):
        found += got
    assert found == messages


@given(
    st.integers(1, UDP_PAYLOAD_MAX),
    st.one_of(st.integers(1, 64), st.integers(1, SEGMENT_SIZE_MAX), st.none()),
    st.sampled_from([0, 4, 1_000]),
)
def test_split_datagrams_are_aligned_whole_and_within_their_capacity(
    size: int, segment: int | None, at: int
) -> None:
    sent = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    data = np.zeros(at + GSO_CAPACITY, np.uint8)
    data[at : at + size] = sent
    control = [] if segment is None else [(17, 104, segment.to_bytes(4, "little"))]
    spans: list[tuple[int, int, str]] = []
    end = offload.take_apart(data, at, size, control, "10.0.0.2", spans)
    segment = segment or size
    assert [stop - start for start, stop, _ in spans] == [
        min(segment, size - done) for done in range(0, size, segment)
    ]
    assert b"".join(data[start:stop].tobytes() for start, stop, _ in spans) == sent.tobytes()
    assert end == spans[-1][1] <= at + GSO_CAPACITY
    assert segment < 20 or all(start % 4 == 0 for start, _, _ in spans)


def test_a_segment_of_no_length_is_one_datagram() -> None:
    spans: list[tuple[int, int, str]] = []
    assert offload.take_apart(np.zeros(100, np.uint8), 0, 50, [(17, 104, bytes(4))], "10.0.0.2", spans) == 50
    assert spans == [(0, 50, "10.0.0.2")]
