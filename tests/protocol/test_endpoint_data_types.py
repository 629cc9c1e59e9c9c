"""What endpoints announce of their types and filters: both ways, as Wireshark reads it, and broken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.limits import FILTER_PARAMETERS_MAX, MESSAGE_SIZE_LEAST
from spark_rtps.transport.protocol.discovery.endpoint_data import (
    EndpointData,
    decode_endpoint,
    encode_endpoint,
)
from spark_rtps.transport.protocol.endpoint_info import ContentFilterProperty
from spark_rtps.transport.qos import TypeConsistency, TypeConsistencyKind
from spark_rtps.transport.structure import ENTITYID_SEDP_SUBSCRIPTIONS_WRITER, ENTITYID_UNKNOWN
from spark_rtps.transport.types.xtypes.type_objects import type_objects_of
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.submessages import Data
from tests.protocol.type_scene import RELIABLE, guid, large, objects
from tests.support import pcap
from tests.support.wireshark import tshark

READER = EndpointData(guid(1, writer=False), "t", "lab::Rich", RELIABLE)
WRITER = EndpointData(guid(1), "t", "lab::Rich", RELIABLE)
FILTER = ContentFilterProperty("t filtered", "t", "DDSSQL", "x > %0 AND y = %1", ("5", "'a b'"))
text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
flags = st.booleans()


@given(
    st.builds(TypeConsistency, st.sampled_from(TypeConsistencyKind), flags, flags, flags, flags, flags),
    st.builds(ContentFilterProperty, text, text, text, text, st.lists(text, max_size=4).map(tuple)),
)
def test_a_reader_announcement_is_read_as_sent(
    consistency: TypeConsistency, given_filter: ContentFilterProperty
) -> None:
    qos = replace(RELIABLE, type_consistency=consistency)
    data = replace(READER, qos=qos, content_filter=given_filter)
    data = replace(data, type_information=objects("Rich").information)
    assert decode_endpoint(encode_endpoint(data), writer=False) == data


def announced(data: EndpointData) -> dict[int, bytes]:
    return dict(p.decode_parameter_payload(memoryview(encode_endpoint(data))))


def decoded(data: EndpointData, *more: tuple[int, bytes], little_endian: bool = True) -> EndpointData:
    """What ``data`` reads as, with other values for some parameters."""
    parameters = {**announced(data), **dict(more)}
    payload = p.encode_parameter_payload(parameters.items(), little_endian)
    return decode_endpoint(payload, writer=data.is_writer)


def test_a_writer_announces_neither_consistency_nor_filter() -> None:
    assert not announced(WRITER).keys() & {
        p.PID_TYPE_CONSISTENCY_ENFORCEMENT,
        p.PID_CONTENT_FILTER_PROPERTY,
        p.PID_TYPE_INFORMATION,
    }
    with_type = replace(WRITER, type_information=objects("Rich").information)
    assert decode_endpoint(encode_endpoint(with_type), writer=True) == with_type


def test_the_bytes_of_type_consistency_are_those_of_cyclone() -> None:
    qos = replace(READER.qos, type_consistency=TypeConsistency(ignore_member_names=True))
    value = announced(replace(READER, qos=qos))[p.PID_TYPE_CONSISTENCY_ENFORCEMENT]
    assert value == bytes.fromhex("0100 01 01 01 00 00 00")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0000 0000", TypeConsistency(TypeConsistencyKind.DISALLOW_TYPE_COERCION)),
        ("0100 0000", TypeConsistency()),
        ("0200 0000", TypeConsistency()),  # RTI Connext: AUTO_TYPE_COERCION
        ("0100 0000000001 00", TypeConsistency(TypeConsistencyKind(1), False, False, False, False, True)),
    ],
)
def test_type_consistency_of_others(value: str, expected: TypeConsistency) -> None:
    found = decoded(READER, (p.PID_TYPE_CONSISTENCY_ENFORCEMENT, bytes.fromhex(value)))
    assert found.qos.type_consistency == expected


def test_big_endian_values() -> None:
    content_filter = p.encode_content_filter(("f", "t", "DDSSQL", "x > 1"), ("7",), little_endian=False)
    payload = p.encode_parameter_payload(
        [
            (p.PID_ENDPOINT_GUID, READER.guid.to_bytes()),
            (p.PID_TOPIC_NAME, p.encode_string("t", False)),
            (p.PID_TYPE_NAME, p.encode_string("T", False)),
            (p.PID_TYPE_CONSISTENCY_ENFORCEMENT, p.encode_type_consistency(1, [False] * 5, False)),
            (p.PID_CONTENT_FILTER_PROPERTY, content_filter),
        ],
        little_endian=False,
    )
    found = decode_endpoint(payload, writer=False)
    assert found.content_filter == ContentFilterProperty("f", "t", "DDSSQL", "x > 1", ("7",))
    assert found.qos.type_consistency == TypeConsistency(TypeConsistencyKind(1), *[False] * 5)


@pytest.mark.parametrize("value", [b"", b"\1", b"garbage!", b"\xff" * 40, bytes(64)])
def test_broken_type_information_drops_nobody(value: bytes) -> None:
    found = decoded(WRITER, (p.PID_TYPE_INFORMATION, value))
    assert found.type_information is None or found.type_information.complete is None
    assert replace(found, type_error="", type_information=None) == WRITER
    if found.type_information is None:
        assert found.type_error


def test_every_truncation_of_type_information_drops_nobody() -> None:
    value = announced(replace(WRITER, type_information=objects("Rich").information))[p.PID_TYPE_INFORMATION]
    for stop in range(0, len(value), 4):
        found = decoded(WRITER, (p.PID_TYPE_INFORMATION, value[:stop]))
        assert found.type_error
        assert found.type_information is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        p.encode_string("a"),
        p.encode_content_filter(("a", "b", "c", "d"), ())[:-4],
        p.encode_content_filter(("a", "b", "c", "d"), ("1",))[:-4],
        p.encode_content_filter(("a", "b", "c", "d"), ["1"] * (FILTER_PARAMETERS_MAX + 1)),
        p.encode_content_filter(("a", "b", "c", "d"), ())[:-4] + b"\xff\xff\xff\xff",
    ],
)
def test_a_broken_filter_drops_nobody(value: bytes) -> None:
    assert decoded(READER, (p.PID_CONTENT_FILTER_PROPERTY, value)).content_filter is None


def test_a_filter_that_must_be_understood_is() -> None:
    value = announced(replace(READER, content_filter=FILTER))[p.PID_CONTENT_FILTER_PROPERTY]
    pid = p.PID_CONTENT_FILTER_PROPERTY | p.PID_MUST_UNDERSTAND
    assert decoded(READER, (pid, value)).content_filter == FILTER


def test_an_announcement_fits_one_small_datagram_however_many_types_it_is_made_of() -> None:
    information = type_objects_of(large(500)).information
    payload = encode_endpoint(replace(READER, type_information=information))
    assert len(payload) < MESSAGE_SIZE_LEAST - 100
    found = decode_endpoint(payload, writer=False).type_information
    assert found is not None and found.complete is not None and information.complete is not None
    assert found.complete.type == information.complete.type
    assert found.complete.dependent_count == 500
    assert found.complete.dependents == information.complete.dependents[:8]


def test_type_objects_are_read_when_they_are_wanted() -> None:
    for pid, compressed in ((p.PID_TYPE_OBJECT_V1, False), (p.PID_TYPE_OBJECT_COMPRESSED, True)):
        found = decoded(WRITER, (pid, b"garbage!"))
        assert found.type_object_v1 is not None
        assert found.type_object_v1.value == b"garbage!"
        assert found.type_object_v1.compressed is compressed
        with pytest.raises(DecodeError):
            found.type_object_v1.struct()


def test_wireshark_reads_what_we_meant() -> None:
    qos = replace(RELIABLE, type_consistency=TypeConsistency(ignore_member_names=True))
    data = replace(READER, qos=qos, content_filter=FILTER, type_information=objects("Rich").information)
    submessage = Data(ENTITYID_UNKNOWN, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER, 1, encode_endpoint(data))
    # It takes type consistency apart only in messages of RTI Connext.
    header = Header(vendor=b"\x01\x01", prefix=READER.guid.prefix)
    capture = pcap.write_pcap([header.encode() + submessage.encode()])
    output = tshark(capture, "-V")
    for line in (
        "PID_TYPE_CONSISTENCY",
        "Type Consistency Kind: ALLOW_TYPE_COERCION",
        "Ignore Member Names: True",
        "Prevent Type Widening: False",
        "contentFilterTopicName: t filtered",
        "relatedTopicName: t",
        "filterClassName: DDSSQL",
        "filterExpression: x > %0 AND y = %1",
        "Number of expression params: 2",
        "expressionParameters[0]: 5",
        "expressionParameters[1]: 'a b'",
    ):
        assert line in output, output
    assert "alformed" not in output
    assert "nvalid" not in output
