"""Requests and replies of the TypeLookup service: Cyclone's bytes, ours, and broken ones."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.limits import CONTINUATION_POINT_MAX, TYPE_LOOKUP_IDS_MAX
from spark_rtps.transport.types.xtypes.information import SizedIdentifier
from spark_rtps.transport.types.xtypes.lookup_messages import (
    GetTypeDependencies,
    GetTypes,
    Reply,
    RequestId,
    TypeDependencies,
    TypeLookupRequest,
    Types,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    instance_name,
    reply_is_for,
)
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.submessages import Data, decode_submessage
from tests.support import pcap

REQUESTS, REPLIES = b"\x00\x03\x00\xc3", b"\x00\x03\x01\xc3"
ME = RequestId(bytes(range(16)), 7 << 32 | 5)

hashed = st.builds(
    lambda kind, digest: kind + digest,
    st.sampled_from([b"\xf1", b"\xf2"]),
    st.binary(min_size=14, max_size=14),
)
identifiers = st.lists(hashed, max_size=5).map(tuple)
points = st.binary(max_size=CONTINUATION_POINT_MAX)
request_ids = st.builds(RequestId, st.binary(min_size=16, max_size=16), st.integers(0, 2**63 - 1))
objects = st.binary(max_size=40).map(lambda body: len(body).to_bytes(4, "little") + body)


def captured(writer: bytes) -> list[bytes]:
    """The samples of Cyclone's type lookup."""
    found = []
    for datagram in pcap.read_pcap(pcap.CAPTURES / "c19_typelookup_rich.pcap"):
        view = memoryview(datagram.payload)
        if bytes(view[:4]) == b"RTPS":
            for kind, flags, start, stop in iter_submessages(view):
                data = decode_submessage(kind, flags, view[start:stop])
                if isinstance(data, Data) and data.writer_id == writer:
                    assert data.payload is not None
                    found.append(bytes(data.payload))
    assert len(found) == 3
    return found


def test_requests_of_cyclone_are_read_and_written_to_the_byte() -> None:
    for payload in captured(REQUESTS):
        request = decode_request(payload)
        assert encode_request(request) == payload
        assert isinstance(request.call, GetTypes)
        assert [each[0] for each in request.call.ids] == [0xF2]
        assert request.id.writer[12:] == REQUESTS
        assert request.id.number == 1
        assert request.instance == instance_name(bytes(16))


def test_replies_of_cyclone_are_read_and_written_to_the_byte() -> None:
    for payload in captured(REPLIES):
        reply = decode_reply(payload)
        assert encode_reply(reply) == payload
        assert isinstance(reply.result, Types)
        ((identifier, data),) = reply.result.objects
        assert identifier[1:] == hashlib.md5(data, usedforsecurity=False).digest()[:14]
        assert reply_is_for(payload, reply.id.writer)
        assert not reply_is_for(payload, bytes(16))


@given(request_ids, identifiers, points)
def test_requests(number: RequestId, ids: tuple[bytes, ...], point: bytes) -> None:
    for call in (GetTypes(ids), GetTypeDependencies(ids, point)):
        request = TypeLookupRequest(number, "dds.builtin.TOS.00", call)
        payload = encode_request(request)
        assert decode_request(payload) == request
        assert len(payload) % 4 == 0


@given(
    request_ids,
    st.lists(st.tuples(hashed, objects), max_size=4).map(tuple),
    points,
    st.integers(0, 2**32 - 1),
)
def test_replies(number: RequestId, pairs: tuple[tuple[bytes, bytes], ...], point: bytes, size: int) -> None:
    dependents = tuple(SizedIdentifier(identifier, size) for identifier, _ in pairs)
    for result in (Types(pairs), TypeDependencies(dependents, point)):
        payload = encode_reply(Reply(number, result))
        assert decode_reply(payload) == Reply(number, result)
        assert len(payload) % 4 == 0


def test_every_truncation_is_a_decode_error() -> None:
    request = encode_request(TypeLookupRequest(ME, "x", GetTypes((b"\xf1" + bytes(14),))))
    reply = encode_reply(Reply(ME, Types(((b"\xf1" + bytes(14), b"\x04\0\0\0abcd"),))))
    for stop in range(0, len(request) - 4, 1):
        with pytest.raises(DecodeError):
            decode_request(request[:stop])
    for stop in range(0, len(reply) - 4, 1):
        with pytest.raises(DecodeError):
            decode_reply(reply[:stop])


@given(st.binary(max_size=120), st.sampled_from([b"\0\x07\0\0", b"\0\x09\0\0", b""]))
def test_noise_is_a_decode_error_or_means_something(noise: bytes, encapsulation: bytes) -> None:
    for decode in (decode_request, decode_reply):
        try:
            decode(encapsulation + noise)
        except DecodeError:
            pass


def test_other_encapsulations_are_refused() -> None:
    payload = encode_request(TypeLookupRequest(ME, "x", GetTypes(())))
    for encapsulation in (b"\0\0", b"\0\1", b"\0\6", b"\0\3"):
        with pytest.raises(DecodeError) as error:
            decode_request(encapsulation + payload[2:])
        assert error.value.reason is DropReason.BAD_ENCAPSULATION


def test_an_operation_that_nobody_knows() -> None:
    known = (0x018252D3).to_bytes(4, "little")
    request = encode_request(TypeLookupRequest(ME, "x", GetTypes(())))
    assert decode_request(request.replace(known, b"\1\2\3\4")).call is None
    reply = encode_reply(Reply(ME, Types(())))
    assert decode_reply(reply.replace(known, b"\1\2\3\4")).result is None


def test_a_call_that_failed() -> None:
    reply = bytearray(encode_reply(Reply(ME, Types(()))))
    exception_at = 4 + 16 + 8
    reply[exception_at] = 2  # REMOTE_EX_INVALID_ARGUMENT
    assert decode_reply(bytes(reply)).result is None


def test_more_types_than_anybody_asks_for() -> None:
    ids = tuple(b"\xf1" + i.to_bytes(14, "big") for i in range(TYPE_LOOKUP_IDS_MAX + 1))
    with pytest.raises(DecodeError) as error:
        decode_request(encode_request(TypeLookupRequest(ME, "x", GetTypes(ids))))
    assert error.value.reason is DropReason.OVER_LIMIT
    decode_request(encode_request(TypeLookupRequest(ME, "x", GetTypes(ids[1:]))))


def test_a_continuation_point_that_is_too_long() -> None:
    point = bytes(CONTINUATION_POINT_MAX + 1)
    with pytest.raises(DecodeError):
        decode_request(encode_request(TypeLookupRequest(ME, "x", GetTypeDependencies((), point))))
    with pytest.raises(DecodeError):
        decode_reply(encode_reply(Reply(ME, TypeDependencies((), point))))


def test_the_name_of_a_service() -> None:
    assert instance_name(bytes(range(16))) == "dds.builtin.TOS.000102030405060708090a0b0c0d0e0f"
