"""Submessages of any content, there and back; damaged ones, and noise."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.structure import Locator
from spark_rtps.transport.wire.numbers import FragmentNumberSet, SequenceNumberSet
from spark_rtps.transport.wire.parameters import ParameterList
from spark_rtps.transport.wire.submessages import (
    SUBMESSAGES,
    AckNack,
    AckNackBatch,
    Data,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatFrag,
    InfoDestination,
    InfoReply,
    InfoReplyIp4,
    InfoSource,
    InfoTimestamp,
    NackFrag,
    Pad,
    RttMeasurement,
    StatusMessage,
    Submessage,
    decode_submessage,
)
from tests.wire.submessage_vectors import decode, in_order

# --- there and back ---------------------------------------------------------------------------------

ids = st.binary(min_size=4, max_size=4)
prefixes = st.binary(min_size=12, max_size=12)
sequence_numbers = st.one_of(st.integers(1, 1000), st.integers(1, 2**63 - 1))
counts = st.integers(0, 2**32 - 1)
payloads = st.integers(1, 50).flatmap(lambda words: st.binary(min_size=4 * words, max_size=4 * words))
values = st.integers(0, 8).flatmap(lambda words: st.binary(min_size=4 * words, max_size=4 * words))
pids = st.integers(2, 0xFFFF)
qos = st.none() | st.builds(ParameterList, st.lists(st.tuples(pids, values), max_size=4).map(tuple))
ports = st.integers(1, 65535)
locators4 = st.builds(Locator, st.ip_addresses(v=4).map(str), ports, st.just(1), st.just(""))
locators = locators4 | st.builds(Locator, st.ip_addresses(v=6).map(str), ports, st.just(2), st.just(""))
locator_lists = st.lists(locators, max_size=16).map(tuple)


@st.composite
def sequence_sets(draw: st.DrawFn, least: int = 1) -> SequenceNumberSet:
    base = draw(st.one_of(st.integers(least, 1000), st.integers(least, 2**63 - 256)))
    return SequenceNumberSet.from_numbers(base, draw(st.sets(st.integers(max(base, 1), base + 255))))


@st.composite
def fragment_sets(draw: st.DrawFn) -> FragmentNumberSet:
    base = draw(st.integers(1, 2**32 - 256))
    return FragmentNumberSet.from_numbers(base, draw(st.sets(st.integers(base, base + 255))))


@st.composite
def data_submessages(draw: st.DrawFn) -> Data:
    payload = draw(st.none() | payloads)
    key = draw(st.booleans()) if payload is not None else False
    return Data(draw(ids), draw(ids), draw(sequence_numbers), payload, draw(qos), key)


@st.composite
def data_frag_submessages(draw: st.DrawFn) -> DataFrag:
    size = draw(st.integers(1, 64))
    total = draw(st.integers(size, 2000))
    count = -(-total // size)
    first = draw(st.integers(1, count))
    fragments = draw(st.integers(1, min(count - first + 1, 8)))
    length = min((first - 1 + fragments) * size, total) - (first - 1) * size
    payload = draw(st.binary(min_size=length, max_size=length))
    sn, key = draw(sequence_numbers), draw(st.booleans())
    return DataFrag(draw(ids), draw(ids), sn, first, fragments, size, total, payload, draw(qos), key)


@st.composite
def heartbeats(draw: st.DrawFn) -> Heartbeat:
    first = draw(sequence_numbers)
    last = draw(st.integers(first - 1, 2**63 - 1))
    return Heartbeat(
        draw(ids), draw(ids), first, last, draw(counts), draw(st.booleans()), draw(st.booleans())
    )


@st.composite
def heartbeat_batches(draw: st.DrawFn) -> HeartbeatBatch:
    one, two = draw(heartbeats()), draw(heartbeats())
    return HeartbeatBatch(
        one.reader_id,
        one.writer_id,
        one.first_sn,
        one.last_sn,
        two.first_sn,
        two.last_sn,
        one.count,
        one.final,
    )


submessages: st.SearchStrategy[Submessage] = st.one_of(
    data_submessages(),
    data_frag_submessages(),
    heartbeats(),
    heartbeat_batches(),
    st.builds(AckNackBatch, ids, ids, sequence_sets(least=0), counts, st.booleans()),
    st.builds(HeartbeatFrag, ids, ids, sequence_numbers, st.integers(1, 2**32 - 1), counts),
    st.builds(AckNack, ids, ids, sequence_sets(least=0), counts, st.booleans()),
    st.builds(NackFrag, ids, ids, sequence_numbers, fragment_sets(), counts),
    st.builds(Gap, ids, ids, sequence_numbers, sequence_sets()),
    st.builds(InfoTimestamp, st.none() | st.integers(0, 2**32 * 10**9 - 1)),
    st.builds(InfoDestination, prefixes),
    st.builds(
        InfoSource,
        st.tuples(st.integers(0, 255), st.integers(0, 255)),
        st.binary(min_size=2, max_size=2),
        prefixes,
    ),
    st.builds(InfoReply, locator_lists, st.none() | locator_lists),
    st.builds(InfoReplyIp4, locators4, st.none() | locators4),
    st.builds(Pad, st.integers(0, 10).map(lambda words: 4 * words)),
    st.builds(
        StatusMessage,
        ids,
        ids,
        st.integers(0, 2**63 - 1),
        counts,
        counts,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.booleans(),
    ),
    st.builds(
        RttMeasurement,
        ids,
        ids,
        st.integers(-(2**63), 2**63 - 1),
        st.integers(0, 2**63 - 1),
        st.booleans(),
        st.booleans(),
    ),
)


@given(message=submessages, little_endian=st.booleans())
def test_round_trip(message: Submessage, little_endian: bool) -> None:
    message = in_order(message, little_endian)
    encoded = message.encode(little_endian)
    assert len(encoded) % 4 == 0
    assert int.from_bytes(encoded[2:4], "little" if little_endian else "big") == len(encoded) - 4
    assert decode(encoded) == message


@given(message=submessages, little_endian=st.booleans(), data=st.data())
def test_damage_is_a_decode_error_or_another_message(
    message: Submessage, little_endian: bool, data: st.DataObject
) -> None:
    encoded = bytearray(in_order(message, little_endian).encode(little_endian))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(4, len(encoded)))
    with suppress(DecodeError):
        decode_submessage(encoded[0], encoded[1], memoryview(encoded)[4:cut])


@given(kind=st.sampled_from(sorted(SUBMESSAGES)), flags=st.integers(0, 255), body=st.binary(max_size=200))
def test_noise_is_a_decode_error_or_a_message(kind: int, flags: int, body: bytes) -> None:
    with suppress(DecodeError):
        decode_submessage(kind, flags, memoryview(body))
