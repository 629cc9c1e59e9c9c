"""SPDP and SEDP: the data both ways, what peers really send, and participants that find each other."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.limits import LEASE_MAX_NS, LOCATORS_MAX
from spark_rtps.transport.protocol.discovery.endpoint_data import (
    EndpointData,
    decode_endpoint,
    decode_endpoint_key,
    encode_endpoint,
    encode_endpoint_key,
)
from spark_rtps.transport.protocol.discovery.matching import usable_unicast
from spark_rtps.transport.protocol.discovery.participant_data import (
    BUILTIN_ENDPOINTS,
    ParticipantData,
    decode_participant,
    decode_participant_key,
    encode_participant,
    encode_participant_key,
)
from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec
from spark_rtps.transport.protocol.participant.participant import ParticipantConfig, RtpsParticipant
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.qos import (
    DestinationOrderKind,
    DurabilityKind,
    HistoryKind,
    LivelinessKind,
    OwnershipKind,
    PresentationScope,
    Qos,
    ReliabilityKind,
    incompatibilities,
)
from spark_rtps.transport.structure import (
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SEDP_SUBSCRIPTIONS_WRITER,
    ENTITYID_SPDP_WRITER,
    INFINITE,
    LOCATOR_KIND_UDPV6,
    Guid,
    Locator,
)
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.message import header_at, iter_submessages
from spark_rtps.transport.wire.samples import Run
from spark_rtps.transport.wire.submessages import Data, decode_submessage
from tests.support import pcap
from tests.support.virtual_network import MILLISECOND, SECOND

PREFIX = bytes(range(12))
WRITER = Guid(PREFIX, b"\x00\x00\x01\x02")
READER = Guid(PREFIX, b"\x00\x00\x01\x07")
RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE)

# --- the data -------------------------------------------------------------------------------------

text = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
durations = st.one_of(st.just(INFINITE), st.integers(0, 10**15))
addresses = st.ip_addresses(v=4).map(str)
locator = st.builds(Locator, addresses, st.integers(1, 65_535), st.just(1), st.just(""))
locators = st.lists(locator, max_size=3).map(tuple)
i32 = st.integers(-(2**31), 2**31 - 1)
#: A limit of -1 on the wire is no limit.
limits = i32.map(lambda limit: INFINITE if limit == -1 else limit)
qos = st.builds(
    Qos,
    reliability=st.sampled_from(ReliabilityKind),
    max_blocking_time=durations,
    durability=st.sampled_from(DurabilityKind),
    history=st.sampled_from(HistoryKind),
    history_depth=i32,
    max_samples=limits,
    max_instances=limits,
    max_samples_per_instance=limits,
    deadline=durations,
    latency_budget=durations,
    liveliness=st.sampled_from(LivelinessKind),
    liveliness_lease_duration=durations,
    ownership=st.sampled_from(OwnershipKind),
    destination_order=st.sampled_from(DestinationOrderKind),
    presentation_scope=st.sampled_from(PresentationScope),
    coherent_access=st.booleans(),
    ordered_access=st.booleans(),
    partition=st.lists(text, max_size=3).map(tuple),
    data_representation=st.lists(st.integers(0, 2), max_size=3).map(tuple),
    user_data=st.binary(max_size=9),
    topic_data=st.binary(max_size=9),
    group_data=st.binary(max_size=9),
)


@given(qos, text, text, durations, i32, locators)
def test_a_writer_announcement_is_read_as_sent(
    qos: Qos, topic: str, type_name: str, lifespan: int, strength: int, unicast: tuple[Locator, ...]
) -> None:
    qos = replace(qos, lifespan=lifespan, ownership_strength=strength)
    data = EndpointData(WRITER, topic, type_name, qos, unicast)
    assert decode_endpoint(encode_endpoint(data), writer=True) == data


@given(qos, text, text, durations)
def test_a_reader_announcement_is_read_as_sent(qos: Qos, topic: str, type_name: str, separation: int) -> None:
    data = EndpointData(READER, topic, type_name, replace(qos, time_based_filter=separation))
    assert decode_endpoint(encode_endpoint(data), writer=False) == data


@given(
    st.builds(
        ParticipantData,
        st.binary(min_size=12, max_size=12),
        lease_duration=st.integers(10**8, LEASE_MAX_NS),
        metatraffic_unicast=locators,
        metatraffic_multicast=locators,
        default_unicast=locators,
        default_multicast=locators,
        domain=st.one_of(st.none(), st.integers(0, 232)),
        domain_tag=text,
        name=text,
        properties=st.lists(st.tuples(text, text), max_size=3).map(tuple),
        user_data=st.binary(max_size=9),
    )
)
def test_a_participant_announcement_is_read_as_sent(data: ParticipantData) -> None:
    assert decode_participant(encode_participant(data)) == data


def test_builtin_endpoint_set() -> None:
    assert BUILTIN_ENDPOINTS == 0xFC3F  # RTPS 2.5 table 9.4, XTypes 1.3 table 66


def test_required_parameters_are_always_sent() -> None:
    sent = p.decode_parameter_payload(memoryview(encode_endpoint(EndpointData(WRITER, "t", "T", RELIABLE))))
    pids = {pid for pid, _ in sent}
    assert {p.PID_DURABILITY, p.PID_RELIABILITY, p.PID_DATA_REPRESENTATION, p.PID_ENDPOINT_GUID} <= pids
    assert not pids & {p.PID_TYPE_INFORMATION, p.PID_TYPE_OBJECT_V1, p.PID_TYPE_ID_V1}


def test_absent_policies_have_the_defaults_of_dds() -> None:
    names = [(p.PID_TOPIC_NAME, p.encode_string("t")), (p.PID_TYPE_NAME, p.encode_string("T"))]
    for guid, default in ((WRITER, RELIABLE), (READER, Qos())):
        payload = p.encode_parameter_payload([(p.PID_ENDPOINT_GUID, guid.to_bytes()), *names])
        assert decode_endpoint(payload, writer=guid is WRITER).qos == default


def test_a_reader_may_request_whatever_scope_is_offered() -> None:
    """RTI Connext's HIGHEST_OFFERED (3): its readers match writers of every scope, and no writer offers it."""
    for guid in (READER, WRITER):
        full = p.decode_parameter_payload(memoryview(encode_endpoint(EndpointData(guid, "t", "T", RELIABLE))))
        scope = p.encode_u32(3) + b"\0\1\0\0"
        payload = p.encode_parameter_payload(
            [(pid, scope if pid == p.PID_PRESENTATION else value) for pid, value in full]
        )
        if guid is WRITER:
            with pytest.raises(DecodeError):
                decode_endpoint(payload, writer=True)
            continue
        requested = decode_endpoint(payload, writer=False).qos
        assert requested == replace(RELIABLE, ordered_access=True)
        for offered in PresentationScope:
            offer = replace(RELIABLE, presentation_scope=offered, ordered_access=True)
            assert not incompatibilities(offer, requested)


def test_big_endian_announcements() -> None:
    payload = p.encode_parameter_payload(
        [
            (p.PID_ENDPOINT_GUID, WRITER.to_bytes()),
            (p.PID_TOPIC_NAME, p.encode_string("t", False)),
            (p.PID_TYPE_NAME, p.encode_string("T", False)),
            (p.PID_DURABILITY, p.encode_u32(1, False)),
            (p.PID_RELIABILITY, p.encode_u32(2, False) + p.encode_duration(7, False)),
            (p.PID_PARTITION, p.encode_strings(("a", "bc"), False)),
            (p.PID_DATA_REPRESENTATION, p.encode_i16_sequence((2,), False)),
            (p.PID_UNICAST_LOCATOR, p.encode_locator(Locator("10.1.2.3", 7411), False)),
        ],
        little_endian=False,
    )
    data = decode_endpoint(payload, writer=True)
    assert data.unicast == (Locator("10.1.2.3", 7411),)
    assert data.qos == replace(
        RELIABLE,
        max_blocking_time=7,
        durability=DurabilityKind.TRANSIENT_LOCAL,
        partition=("a", "bc"),
        data_representation=(2,),
    )


@pytest.mark.parametrize("missing", [p.PID_ENDPOINT_GUID, p.PID_TOPIC_NAME, p.PID_TYPE_NAME])
def test_an_endpoint_without_a_name_is_refused(missing: int) -> None:
    full = p.decode_parameter_payload(memoryview(encode_endpoint(EndpointData(WRITER, "t", "T", RELIABLE))))
    payload = p.encode_parameter_payload([each for each in full if each[0] != missing])
    with pytest.raises(DecodeError) as error:
        decode_endpoint(payload, writer=True)
    assert error.value.reason is DropReason.BAD_PARAMETER


@pytest.mark.parametrize("writer", [True, False])
def test_an_unknown_must_understand_parameter_is_refused(writer: bool) -> None:
    guid = WRITER if writer else READER
    known = p.decode_parameter_payload(memoryview(encode_endpoint(EndpointData(guid, "t", "T", RELIABLE))))
    for pid, fine in ((0x3123, True), (0x7123, False), (0xFFF0, False), (0x8123, True)):
        payload = p.encode_parameter_payload([*known, (pid, bytes(4))])
        if fine:
            decode_endpoint(payload, writer=writer)
        else:
            with pytest.raises(DecodeError, match="must understand"):
                decode_endpoint(payload, writer=writer)


@pytest.mark.parametrize("entity", [b"\x00\x00\x03\xc2", b"\x00\x00\x01\x07", b"\x00\x00\x01\x00"])
def test_an_entity_that_is_no_user_writer_is_refused_as_one(entity: bytes) -> None:
    payload = encode_endpoint(EndpointData(Guid(PREFIX, entity), "t", "T", RELIABLE))
    with pytest.raises(DecodeError):
        decode_endpoint(payload, writer=True)


def test_every_truncation_is_a_decode_error() -> None:
    data = ParticipantData(PREFIX, name="n", properties=(("a", "b"),), user_data=b"xyz")
    endpoint = encode_endpoint(EndpointData(WRITER, "topic", "Type", replace(RELIABLE, partition=("a",))))
    participant = encode_participant(data)
    for stop in range(len(endpoint)):
        with pytest.raises(DecodeError):
            decode_endpoint(endpoint[:stop], writer=True)
    for stop in range(len(participant)):
        with pytest.raises(DecodeError):
            decode_participant(participant[:stop])


def test_short_values_are_decode_errors() -> None:
    full = p.decode_parameter_payload(memoryview(encode_endpoint(EndpointData(WRITER, "t", "T", RELIABLE))))
    ignored = {p.PID_PARTICIPANT_GUID, p.PID_PROTOCOL_VERSION, p.PID_VENDOR_ID}
    for i, (pid, value) in enumerate(full):
        if pid in ignored:
            continue
        parameters = list(full)
        parameters[i] = (pid, value[:-4] if len(value) > 4 else b"")
        with pytest.raises(DecodeError):
            decode_endpoint(p.encode_parameter_payload(parameters), writer=True)


def test_keys() -> None:
    assert decode_endpoint_key(encode_endpoint_key(WRITER)) == WRITER
    assert decode_participant_key(encode_participant_key(PREFIX)).prefix == PREFIX


@pytest.mark.parametrize(
    ("lease", "taken"), [(0, 10**8), (1, 10**8), (INFINITE, LEASE_MAX_NS), (10**10, 10**10)]
)
def test_leases_are_clamped(lease: int, taken: int) -> None:
    assert (
        decode_participant(encode_participant(ParticipantData(PREFIX, lease_duration=lease))).lease_duration
        == taken
    )


def test_locators_that_cannot_be_used_are_left_out() -> None:
    full = p.decode_parameter_payload(memoryview(encode_participant(ParticipantData(PREFIX))))
    pid = p.PID_METATRAFFIC_UNICAST_LOCATOR
    good = p.encode_locator(Locator("10.0.0.1", 7410))
    shared_memory = (16).to_bytes(4, "little") + good[4:]
    port_zero = good[:4] + bytes(4) + good[8:]
    values = (shared_memory, port_zero, good[:20], good)
    payload = p.encode_parameter_payload([*full, *((pid, value) for value in values)])
    assert decode_participant(payload).metatraffic_unicast == (Locator("10.0.0.1", 7410),)


def test_locators_that_cannot_be_used_take_no_room_from_those_that_can() -> None:
    """A host with many addresses of IPv6 may name those first."""
    good = p.encode_locator(Locator("10.0.0.1", 7410))
    kinds = (LOCATOR_KIND_UDPV6, 16)  # 16: shared memory
    values = [kind.to_bytes(4, "little") + good[4:] for kind in kinds for _ in range(LOCATORS_MAX)]
    pids = (p.PID_METATRAFFIC_UNICAST_LOCATOR, p.PID_DEFAULT_UNICAST_LOCATOR)
    full = p.decode_parameter_payload(memoryview(encode_participant(ParticipantData(PREFIX))))
    payload = p.encode_parameter_payload(
        [*full, *((pid, value) for pid in pids for value in (*values, good))]
    )
    data = decode_participant(payload)
    for locators in (data.metatraffic_unicast, data.default_unicast):
        assert usable_unicast(locators, "10.0.0.1") == (Locator("10.0.0.1", 7410),)
        assert len(locators) == LOCATORS_MAX + 1


# --- what peers send ------------------------------------------------------------------------------


def builtin_samples(capture: Path) -> list[tuple[bytes, Data]]:
    """(source prefix, DATA) of the discovery topics."""
    found = []
    wanted = (ENTITYID_SPDP_WRITER, ENTITYID_SEDP_PUBLICATIONS_WRITER, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER)
    for datagram in pcap.read_pcap(capture):
        view = memoryview(datagram.payload)
        if bytes(view[:4]) != b"RTPS":
            continue
        _, _, source = header_at(view, 0, len(view))
        for kind, flags, start, stop in iter_submessages(view):
            submessage = decode_submessage(kind, flags, view[start:stop])
            if isinstance(submessage, Data) and submessage.writer_id in wanted:
                found.append((source, submessage))
    return found


TYPES = ("Rich", "RichA", "OptFinal", "OptApp", "OptMut", "Blob", "SKey", "Small")


def what_it_shows(capture: Path) -> tuple[str, str, ReliabilityKind, DurabilityKind]:
    """Topic, type name and QoS of a capture, which its name tells."""
    words = re.sub(r"blob\d+k", "blob", capture.stem).lower().split("_")
    rest = "Rich" if "typeinfo" in words else "Small"
    shown = next((each for each in TYPES if each.lower() in words), rest)
    return (
        f"lab_{shown}",
        f"lab::{shown}",
        ReliabilityKind.BEST_EFFORT if "besteffort" in words else ReliabilityKind.RELIABLE,
        DurabilityKind.TRANSIENT_LOCAL if "tl" in words else DurabilityKind.VOLATILE,
    )


ALL = pcap.captures()


@pytest.mark.parametrize("capture", ALL, ids=lambda path: path.stem)
def test_announcements_of_cyclone_and_fast_dds(capture: Path) -> None:
    topic, type_name, reliability, durability = what_it_shows(capture)
    participants, endpoints = {}, {}
    for source, data in builtin_samples(capture):
        if data.key or (data.inline_qos is not None and data.inline_qos.status_info):
            continue
        assert data.payload is not None
        if data.writer_id == ENTITYID_SPDP_WRITER:
            participant = participants[source] = decode_participant(data.payload)
            assert participant.guid_prefix == source
        else:
            endpoint = decode_endpoint(
                data.payload, writer=data.writer_id == ENTITYID_SEDP_PUBLICATIONS_WRITER
            )
            assert endpoint.guid.prefix == source
            endpoints[endpoint.guid] = endpoint
    assert len(participants) >= 2
    for participant in participants.values():
        assert participant.vendor in (b"\x01\x10", b"\x01\x0f")
        assert participant.lease_duration in (10 * SECOND, 20 * SECOND)
        assert participant.metatraffic_unicast
        # Fast DDS 2 has the TypeLookup service only where its types are registered for it.
        expected = BUILTIN_ENDPOINTS if participant.vendor == b"\x01\x10" else BUILTIN_ENDPOINTS & ~0xF000
        assert participant.builtin_endpoints & expected == expected
    ours = [endpoint for endpoint in endpoints.values() if endpoint.topic == topic]
    assert {endpoint.is_writer for endpoint in ours} >= (
        {True} if "typelookup" in capture.stem else {True, False}
    )
    for endpoint in ours:
        assert endpoint.type_name == type_name
        assert (endpoint.qos.reliability, endpoint.qos.durability) == (reliability, durability)
        if participants[endpoint.guid.prefix].vendor == b"\x01\x10" and not endpoint.is_writer:
            assert set(endpoint.qos.data_representation) == {0, 2}
    if "xcdr2" in capture.stem:
        assert all(2 in endpoint.qos.data_representation for endpoint in ours)


def impersonate(capture: Path) -> tuple[RtpsParticipant, list[Run]]:
    """Replay a capture to a participant of ours that takes the place of the first reader in it."""
    topic, type_name, _, _ = what_it_shows(capture)
    readers = [
        decode_endpoint(data.payload, writer=False)
        for _, data in builtin_samples(capture)
        if data.writer_id == ENTITYID_SEDP_SUBSCRIPTIONS_WRITER and data.payload is not None and not data.key
    ]
    played = next(reader for reader in readers if reader.topic == topic)
    here = (Locator("127.0.0.1", 7410),)
    config = ParticipantConfig(played.guid.prefix, metatraffic_unicast=here, default_unicast=here)
    participant = RtpsParticipant(config, now=0)
    participant.create_reader(
        ReaderSpec(
            topic,
            type_name,
            played.qos,
            keyed=played.guid.entity[3] == 0x07,
            entity_key=int.from_bytes(played.guid.entity[:3], "big"),
        ),
        now=0,
    )
    reader = next(reader for reader in participant.readers if reader.guid == played.guid)
    runs: list[Run] = []
    now = 0
    for datagram in pcap.read_pcap(capture):
        now += MILLISECOND
        data = np.frombuffer(bytearray(datagram.payload), np.uint8)
        participant.receive(data, [(0, len(data), datagram.source)], now=now)
        runs += [run.copy() for run in reader.take_runs()]
        timer = participant.get_timer()
        if timer is not None and timer <= now:
            participant.handle_timer(now)
        participant.datagrams_to_send(now)
    return participant, runs


@pytest.mark.parametrize(("stem", "base"), [("f02_rich_notypeinfo", 0), ("c01_py_rich_final_xcdr1", 1)])
def test_preemptive_acknacks_have_the_base_that_the_vendor_answers(
    stem: str, base: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all its writers, built-in ones too: Fast DDS answers ACKNACKs of base 0, Cyclone DDS those of base 1."""
    bases = set()
    match = StatefulReader.match_writer

    def noted(reader: StatefulReader, info: WriterInfo, *, now: int) -> None:
        bases.add(info.preemptive_base)
        match(reader, info, now=now)

    monkeypatch.setattr(StatefulReader, "match_writer", noted)
    impersonate(next(each for each in ALL if each.stem == stem))
    assert bases == {base}


@pytest.mark.parametrize(
    "capture", [each for each in ALL if "typelookup" not in each.stem], ids=lambda path: path.stem
)
def test_a_captured_writer_matches_a_reader_in_the_place_of_the_original(capture: Path) -> None:
    expected = json.loads(capture.with_suffix(".expected.json").read_text())
    participant, runs = impersonate(capture)
    reported = list(iter(participant.next_event, None))
    discovered = [each for each in reported if isinstance(each, events.ParticipantDiscovered)]
    matched = [each for each in reported if isinstance(each, events.Matched)]
    assert len(discovered) >= 1
    assert {each.topic for each in matched} == {what_it_shows(capture)[0]}
    sns = [sn for run in runs for sn in range(run.first_sn, run.last_sn + 1)]
    assert sns == sorted(set(sns))
    if capture.stem.startswith("x03"):
        return
    assert sns == sorted({entry["sn"] for entry in expected})
