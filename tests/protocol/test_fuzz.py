"""Noise of every kind: random bytes, random submessages, broken captures. Nothing of it raises or piles up."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import ParticipantConfig, RtpsParticipant
from spark_rtps.transport.qos import DurabilityKind, ReliabilityKind
from spark_rtps.transport.structure import (
    ENTITYID_SEDP_PUBLICATIONS_READER,
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SEDP_SUBSCRIPTIONS_READER,
    ENTITYID_SEDP_SUBSCRIPTIONS_WRITER,
    ENTITYID_SPDP_WRITER,
    ENTITYID_UNKNOWN,
    Locator,
)
from spark_rtps.transport.wire.submessages import (
    InfoDestination,
)
from tests.protocol.hostile_scene import EVIL_IP, EVIL_READER, EVIL_WRITER, RELIABLE, Scene, message
from tests.support import pcap
from tests.support.virtual_network import MILLISECOND, SECOND


def live() -> RtpsParticipant:
    """A participant with a reader and a writer, and a peer matched with both."""
    return Scene().one


PARTICIPANT = live()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes(noise: bytes, headed: bool) -> None:
    datagram = message(InfoDestination(PARTICIPANT.prefix).encode(), noise) if headed else noise
    feed(PARTICIPANT, datagram, 10 * SECOND)


submessage = st.builds(
    lambda kind, flags, body, extra: struct.pack("<BBH", kind, flags, len(body) + extra) + body,
    st.sampled_from([0x01, 0x06, 0x07, 0x08, 0x09, 0x0C, 0x0D, 0x0E, 0x0F, 0x12, 0x13, 0x15, 0x16, 0x80]),
    st.integers(0, 15),
    st.builds(
        lambda ids, rest: ids + rest,
        st.sampled_from(
            [
                ENTITYID_UNKNOWN + EVIL_WRITER,
                b"\0\0\x10\0" + ENTITYID_UNKNOWN + EVIL_WRITER,
                EVIL_READER + b"\0\0\2\3",
                b"\0\0\x10\0" + ENTITYID_UNKNOWN + ENTITYID_SPDP_WRITER,
                b"\0\0\x10\0" + ENTITYID_UNKNOWN + ENTITYID_SEDP_PUBLICATIONS_WRITER,
                ENTITYID_SEDP_PUBLICATIONS_READER + ENTITYID_SEDP_PUBLICATIONS_WRITER,
                ENTITYID_SEDP_SUBSCRIPTIONS_READER + ENTITYID_SEDP_SUBSCRIPTIONS_WRITER,
            ]
        ),
        st.binary(max_size=120).map(lambda rest: rest + bytes(-len(rest) % 4)),
    ),
    st.sampled_from([0, 0, 0, 4, -4, 1]),
)


@settings(max_examples=500, deadline=None)
@given(st.lists(submessage, min_size=1, max_size=4))
def test_random_submessages(submessages: list[bytes]) -> None:
    datagram = message(InfoDestination(PARTICIPANT.prefix).encode(), *submessages)
    feed(PARTICIPANT, datagram, 10 * SECOND)


def feed(participant: RtpsParticipant, datagram: bytes, now: int) -> None:
    """Receive and do all that may follow."""
    # at an odd place of a larger buffer, so that reading beyond the end would find something
    buffer = np.frombuffer(bytearray(b"\xa5" * 64 + datagram + b"\xa5" * 64), np.uint8)
    participant.receive(buffer, [(64, 64 + len(datagram), EVIL_IP)], now=now)
    for reader in participant.readers:
        for run in reader.take_runs():
            run.samples(), run.timestamps(), run.key_hashes(), run.sample_flags()
    timer = participant.get_timer()
    if timer is not None and timer <= now:
        participant.handle_timer(now)
    participant.datagrams_to_send(now)
    while participant.next_event() is not None:
        pass


def mutations(datagram: bytes, rng: random.Random) -> Iterator[bytes]:
    broken = bytearray(datagram)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(broken) or 1)
        if at >= len(broken):
            break
        choice = rng.random()
        if choice < 0.5:
            broken[at] = rng.choice(
                (0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256), broken[at] ^ 1 << rng.randrange(8))
            )
        elif choice < 0.7:
            broken[at : at + 4] = rng.choice((b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f", b"\0\0\0\x80"))
        elif choice < 0.8:
            del broken[at : at + 4]
        elif choice < 0.9:
            broken[at:at] = broken[at : at + rng.choice((4, 8, 24))]
        elif len(broken) > 24:
            del broken[max(at, 21) :]
    yield bytes(broken)


@pytest.mark.parametrize("seed", range(2))
def test_mutated_captures_many_at_once(seed: int) -> None:
    rng = random.Random(seed)
    pool = [each.payload for path in rng.sample(pcap.captures(), 4) for each in pcap.read_pcap(path)[:200]]
    for _ in range(300):
        base = rng.choice(pool)
        buffer, spans = b"", []
        for _ in range(rng.randint(1, 20)):
            datagram = base if rng.random() < 0.7 else rng.choice(pool)
            if rng.random() < 0.3:
                datagram = datagram[: rng.randrange(len(datagram) + 1)]
            if rng.random() < 0.5:
                datagram = next(mutations(datagram, rng))
            spans.append((len(buffer), len(buffer) + len(datagram), EVIL_IP))
            buffer += datagram + bytes(-len(datagram) % 4)
        data = np.frombuffer(bytearray(buffer + bytes(64)), np.uint8)
        PARTICIPANT.receive(data, spans, now=10 * SECOND)
        PARTICIPANT.datagrams_to_send(10 * SECOND)


@pytest.mark.parametrize("seed", range(6))
def test_mutated_captures(seed: int) -> None:
    rng = random.Random(seed)
    paths = rng.sample([path for path in pcap.captures() if path.stat().st_size < 400_000], 6)
    tracemalloc.start()
    for path in paths:
        datagrams = [each for each in pcap.read_pcap(path) if each.payload[:4] == b"RTPS"]
        # we stand in for one of the participants, so that what is addressed to it is for us
        prefix = rng.choice(datagrams).payload[8:20]
        here = (Locator("127.0.0.1", 7410),)
        config = ParticipantConfig(prefix, metatraffic_unicast=here, default_unicast=here)
        participant = RtpsParticipant(config, now=0)
        for name in ("Rich", "Small", "Blob", "RichA", "SKey", "OptApp"):
            topic, type_name = f"lab_{name}", f"lab::{name}"
            for key in range(1, 3):
                number = len(participant._keys._keys) + 1
                qos = replace(RELIABLE, reliability=ReliabilityKind(key), durability=DurabilityKind.VOLATILE)
                participant.create_reader(
                    ReaderSpec(topic, type_name, qos, keyed=True, entity_key=number), now=0
                )
            participant.create_writer(WriterSpec(topic, type_name, RELIABLE, keyed=True), now=0)
        now = 0
        for datagram in datagrams[:250]:
            now += 2 * MILLISECOND
            for payload in (datagram.payload, *mutations(datagram.payload, rng)):
                buffer = np.frombuffer(bytearray(payload), np.uint8)
                participant.receive(buffer, [(0, len(payload), datagram.source)], now=now)
                for reader in participant.readers:
                    reader.take_runs()
            timer = participant.get_timer()
            if timer is not None and timer <= now:
                participant.handle_timer(now)
            sent = participant.datagrams_to_send(now)
            assert sum(len(buffer) for each in sent for buffer in each.buffers) < 4 << 20
        assert any(isinstance(each, events.Matched) for each in iter(participant.next_event, None))
        assert sum(participant.drops.values()) > 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
