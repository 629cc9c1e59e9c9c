"""What our endpoints say of themselves beyond DDS: read from ours, ignored from anybody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.limits import MESSAGE_SIZE_LEAST, TERM_WINDOW_LEAST, UDP_PAYLOAD_MAX
from spark_rtps.transport.protocol.discovery.endpoint_data import (
    EndpointData,
    decode_endpoint,
    encode_endpoint,
)
from spark_rtps.transport.protocol.endpoint_info import NO_ABILITIES, Abilities
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.structure import VENDOR_ID, VENDOR_RTI, Guid

READER = EndpointData(Guid(b"\1" * 12, b"\0\0\1\4"), "t", "T", Qos())
ALL = Abilities(
    batches=True,
    codecs=frozenset({"lz4", "zstd"}),
    message_size_max=9_000,
    no_positive_acks=True,
    status_messages=True,
    term_window=1 << 20,
    publication_log="7-8-9.log",
    publication_token=1 << 63,
)


@pytest.mark.parametrize(
    "abilities", [NO_ABILITIES, ALL, Abilities(batches=True), Abilities(codecs=frozenset({"zstd"}))]
)
def test_abilities_are_read_back(abilities: Abilities) -> None:
    payload = encode_endpoint(replace(READER, abilities=abilities))
    assert decode_endpoint(payload, writer=False).abilities == abilities


def test_the_same_parameter_of_another_vendor_means_something_else() -> None:
    payload = encode_endpoint(replace(READER, abilities=ALL))
    assert payload.count(VENDOR_ID) == 1
    assert decode_endpoint(payload.replace(VENDOR_ID, VENDOR_RTI), writer=False).abilities == NO_ABILITIES


@pytest.mark.parametrize(("said", "believed"), [(0, MESSAGE_SIZE_LEAST), (1 << 31, UDP_PAYLOAD_MAX)])
def test_a_message_size_that_cannot_be_is_brought_within_bounds(said: int, believed: int) -> None:
    payload = encode_endpoint(replace(READER, abilities=replace(ALL, message_size_max=said)))
    assert decode_endpoint(payload, writer=False).abilities.message_size_max == believed


@pytest.mark.parametrize(("said", "believed"), [(0, 0), (1, TERM_WINDOW_LEAST), (1 << 40, 0xFFFF_FFFF)])
def test_a_window_that_is_hardly_one_is_not_believed(said: int, believed: int) -> None:
    payload = encode_endpoint(replace(READER, abilities=replace(ALL, term_window=said)))
    assert decode_endpoint(payload, writer=False).abilities.term_window == believed
