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
    heartbeat_period=33_000_000,
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


@pytest.mark.parametrize(("output", "trusted"), [(0, MESSAGE_SIZE_LEAST), (1 << 31, UDP_PAYLOAD_MAX)])
def test_a_message_size_that_cannot_be_is_brought_within_bounds(output: int, trusted: int) -> None:
    payload = encode_endpoint(replace(READER, abilities=replace(ALL, message_size_max=output)))
    assert decode_endpoint(payload, writer=False).abilities.message_size_max == trusted


@pytest.mark.parametrize(("output", "trusted"), [(0, 0), (1, TERM_WINDOW_LEAST), (1 << 40, 0xFFFF_FFFF)])
def test_a_tiny_announced_window_is_ignored(output: int, trusted: int) -> None:
    payload = encode_endpoint(replace(READER, abilities=replace(ALL, term_window=output)))
    assert decode_endpoint(payload, writer=False).abilities.term_window == trusted


@pytest.mark.parametrize(
    ("period", "read"), [(0, 0), (1, 1_000), (33_000_000, 33_000_000), (1 << 62, 4_294_967_295_000)]
)
def test_a_period_is_announced_in_microseconds(period: int, read: int) -> None:
    payload = encode_endpoint(replace(READER, abilities=replace(ALL, heartbeat_period=period)))
    assert decode_endpoint(payload, writer=False).abilities.heartbeat_period == read


def test_an_older_version_announces_no_period() -> None:
    payload = encode_endpoint(replace(READER, abilities=ALL))
    pid, period = (0x8A01).to_bytes(2, "little"), (33_000).to_bytes(4, "little")
    assert payload.count(pid + b"\x10\0") == payload.count(period) == 1
    older = payload.replace(pid + b"\x10\0", pid + b"\x0c\0").replace(period, b"")
    assert decode_endpoint(older, writer=False).abilities == replace(ALL, heartbeat_period=0)
