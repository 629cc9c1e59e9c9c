"""Types of remote endpoints, found out: participants that ask each other, with and without loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.limits import TYPE_LOOKUP_REPLY_BYTES
from spark_rtps.transport.protocol.discovery import type_matching
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.structure import (
    ENTITYID_TYPE_LOOKUP_REPLY_READER,
    ENTITYID_TYPE_LOOKUP_REPLY_WRITER,
    ENTITYID_TYPE_LOOKUP_REQUEST_READER,
    ENTITYID_TYPE_LOOKUP_REQUEST_WRITER,
    Guid,
)
from spark_rtps.transport.types.xtypes.information import SizedIdentifier
from spark_rtps.transport.types.xtypes.lookup_messages import (
    GetTypeDependencies,
    GetTypes,
    RequestId,
    TypeDependencies,
    TypeLookupRequest,
    Types,
    instance_name,
)
from spark_rtps.transport.types.xtypes.type_objects import type_objects_of
from tests.protocol.type_pair import Pair, reader, writer
from tests.protocol.type_scene import large, struct
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

# --- finding out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_types_are_known_in_spite_of_loss(seed: int) -> None:
    network = VirtualNetwork(seed=seed, loss=0.3, duplicates=0.1, jitter=20 * MILLISECOND)
    pair = Pair(struct("Wide"), struct("Rich"), network=network)
    wanted = (pair.writer.guid, pair.reader.guid)
    assert network.run(
        20 * SECOND,
        lambda: bool(pair.one.database.type_of(wanted[0]) and pair.two.database.type_of(wanted[1])),
    )
    assert pair.one.database.type_of(pair.writer.guid) == struct("Rich")
    assert pair.two.database.type_of(pair.reader.guid) == struct("Wide")
    network.run(20 * SECOND, lambda: bool(pair.reader.writers and pair.writer.readers))
    assert pair.matched


def test_changes_are_counted() -> None:
    """Whoever waits for a type lists the endpoints again only when there is something new."""
    network = VirtualNetwork(seed=3, loss=0.2)
    one, two = network.add(resolve_types=True), network.add()
    w = writer(two, network.now, struct("Rich"))
    reader(two, network.now, None)
    found: list[tuple[int, dict[Guid, object]]] = []

    def look() -> bool:
        output = {
            e.guid: one.database.type_of(e.guid) or one.database.type_failure(e.guid)
            for e in one.database.endpoints
        }
        if not found or found[-1] != (one.changes, output):
            found.append((one.changes, output))
        return False

    network.run(5 * SECOND, look)
    before = one.changes
    network.run(5 * SECOND, look)
    assert one.changes == before
    two.delete_endpoint(w.guid, network.now)
    network.run(5 * SECOND, look)
    reported = [output for _, output in found]
    assert (
        {} in reported
        and any(output.get(w.guid) == struct("Rich") for output in reported)
        and len(reported[-1]) == 1
    )
    assert len({changes for changes, _ in found}) == len(found)


@pytest.mark.parametrize("seed", range(2))
def test_many_ask_each_other_in_spite_of_loss(seed: int) -> None:
    """What goes to one is a gap to all others; nobody waits for it, and nobody misses what is its own."""
    network = VirtualNetwork(seed=seed, loss=0.2, jitter=10 * MILLISECOND)
    everybody = [network.add(resolve_types=True) for _ in range(6)]
    for number, participant in enumerate(everybody, 1):
        for each in range(2):
            writer(participant, network.now, large(4 * number + each), topic=f"t{number}{each}")

    def all_known() -> bool:
        return all(
            len(one.database.endpoints) == 10
            and all(one.database.type_of(e.guid) for e in one.database.endpoints)
            for one in everybody
        )

    assert network.run(30 * SECOND, all_known)
    network.loss = 0.0
    network.run(5 * SECOND)
    for one in everybody:
        assert one.discovery.types.request_writer.unacknowledged() == {}
        assert one.discovery.types.reply_writer.unacknowledged() == {}
        assert one.discovery.types.reply_writer.unacknowledged_bytes == 0


def test_a_large_type_comes_in_several_replies() -> None:
    size = sum(len(data) for data in type_objects_of(large(400)).objects.values()) // 2
    assert size > 2 * TYPE_LOOKUP_REPLY_BYTES // 2
    network = VirtualNetwork(loss=0.05, seed=1)
    pair = Pair(None, large(400), network=network)
    assert network.run(4 * SECOND, lambda: pair.one.database.type_of(pair.writer.guid) is not None)
    assert pair.one.database.type_of(pair.writer.guid) == large(400)


def test_no_one_asks_for_types_that_nobody_wants() -> None:
    pair = Pair(struct("Rich"), struct("Rich"))
    other = writer(pair.two, pair.network.now, struct("Wide"), topic="other")
    pair.run()
    assert pair.matched
    assert pair.sent(ENTITYID_TYPE_LOOKUP_REQUEST_WRITER) == []  # equal types match by their hashes
    assert pair.one.database.type_of(pair.writer.guid) == struct("Rich")
    assert pair.one.database.type_of(other.guid) is None
    assert pair.one.database.type_failure(other.guid) is None
    reader(pair.one, pair.network.now, None, topic="other", name="lab::Wide")
    pair.run()
    assert pair.one.database.type_of(other.guid) == struct("Wide")


def test_a_participant_that_wants_all_types() -> None:
    network = VirtualNetwork()
    one = network.add(resolve_types=True)
    two = network.add()
    reported = [
        writer(two, network.now, struct(name), topic=name) for name in ("Rich", "Wide", "Other", "Plain")
    ]
    silent = writer(two, network.now, None, topic="silent")
    network.run(SECOND)
    assert [one.database.type_of(each.guid) for each in reported] == [
        struct(name) for name in ("Rich", "Wide", "Other", "Plain")
    ]
    assert one.database.type_of(silent.guid) is None
    assert one.database.type_failure(silent.guid) == "it does not announce its type"
    by_guid = {each.guid: each for each in one.database.endpoints}
    assert by_guid[reported[0].guid].type_information == type_objects_of(struct("Rich")).information
    assert by_guid[silent.guid].type_information is None


def test_requests_and_replies_go_to_their_addressee() -> None:
    network = VirtualNetwork()
    bystanders = [network.add() for _ in range(5)]
    for each in bystanders:
        reader(each, network.now, None, topic="elsewhere")
    pair = Pair(struct("Wide"), struct("Rich"), network=network).run()
    assert pair.matched
    one, two = network.address_of(pair.one), network.address_of(pair.two)
    for entity in (ENTITYID_TYPE_LOOKUP_REQUEST_WRITER, ENTITYID_TYPE_LOOKUP_REPLY_WRITER):
        assert set(pair.sent(entity)) == {(one, two), (two, one)}
    # What was not for them leaves them without a loss, and the writers without anything to wait for.
    third = reader(bystanders[0], network.now, struct("Wide"))
    network.run(SECOND)
    assert bystanders[0].database.type_of(pair.writer.guid) == struct("Rich")
    assert pair.writer.guid in third.writers
    for participant in (pair.one, pair.two, bystanders[0]):
        for each in (participant.discovery.types.request_writer, participant.discovery.types.reply_writer):  # type: ignore[assignment]
            assert each.unacknowledged() == {}  # type: ignore[attr-defined]


def test_many_endpoints_of_one_type_cost_one_question() -> None:
    network = VirtualNetwork()
    pair = Pair(struct("Wide"), struct("Rich"), network=network)
    writers = [writer(pair.two, network.now, struct("Rich")) for _ in range(300)]
    network.run(5 * SECOND, lambda: len(pair.reader.writers) == 301)
    assert len(pair.reader.writers) == 301
    assert len(pair.sent(ENTITYID_TYPE_LOOKUP_REQUEST_WRITER)) <= 4
    assert all(pair.one.database.type_of(each.guid) is not None for each in writers)


def test_types_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    compare = type_matching.incompatibilities_of_types  # type: ignore[attr-defined]

    def count(*arguments: Any, **more: Any) -> tuple[str, ...]:
        nonlocal compared
        compared += 1
        return compare(*arguments, **more)

    monkeypatch.setattr(type_matching, "incompatibilities_of_types", count)
    network = VirtualNetwork()
    pair = Pair(struct("Wide"), struct("Rich"), network=network)
    for _ in range(100):
        writer(pair.two, network.now, struct("Rich"))
    network.run(5 * SECOND, lambda: len(pair.reader.writers) == 101)
    network.run(SECOND)
    assert compared == 2  # once by each participant


def test_a_participant_that_goes_takes_its_types_along() -> None:
    pair = Pair(struct("Wide"), struct("Rich")).run()
    pair.two.close(pair.network.now)
    pair.run()
    assert pair.one.database.type_of(pair.writer.guid) is None
    assert pair.one.database.type_failure(pair.writer.guid) is None
    assert pair.one.discovery.lookup.get_timer() is None


# --- telling --------------------------------------------------------------------------------------


def results(
    participant: RtpsParticipant, call: GetTypes | GetTypeDependencies, instance: str = ""
) -> list[Any]:
    request = TypeLookupRequest(RequestId(bytes(16), 1), instance, call)
    return list(participant.discovery.types._results(request))


def test_own_types_are_served_while_they_have_endpoints() -> None:
    network = VirtualNetwork()
    one = network.add()
    own = type_objects_of(struct("Rich"))
    first, second = (writer(one, network.now, struct("Rich")) for _ in range(2))
    wide = writer(one, network.now, struct("Wide"))
    ids = tuple(own.objects)
    for gone in (None, first, wide):
        if gone is not None:
            one.delete_endpoint(gone.guid, network.now)
        (types,) = results(one, GetTypes((*ids, *ids, b"\xf1" + bytes(14))))
        assert dict(types.objects) == dict(own.objects)
        assert len(types.objects) == len(ids)
    one.delete_endpoint(second.guid, network.now)
    assert results(one, GetTypes(ids)) == []
    assert results(one, GetTypes(ids), instance_name(one.prefix + b"\0\0\1\xc1")) == [Types(())]


def test_dependencies_are_sent_with_a_continuation_point() -> None:
    network = VirtualNetwork()
    one = network.add()
    writer(one, network.now, large(1_500))
    information = type_objects_of(large(1_500)).information
    assert information.complete is not None
    call = GetTypeDependencies((information.complete.type.id,))
    found: list[SizedIdentifier] = []
    replies = 0
    while True:
        (reported,) = results(one, call)
        assert isinstance(reported, TypeDependencies)
        found += reported.dependents
        replies += 1
        if not reported.continuation_point:
            break
        call = replace(call, continuation_point=reported.continuation_point)
    assert replies == 2
    assert len(found) == 1_500 == len(set(found))
    assert {each.id for each in found} == {each.id for each in information.complete.dependents}
    assert results(one, replace(call, continuation_point=b"\xff" * 32)) == [TypeDependencies(())]


def test_dependencies_of_dependencies() -> None:
    network = VirtualNetwork()
    one = network.add()
    writer(one, network.now, struct("Outer"))
    information = type_objects_of(struct("Outer")).information
    for form in (information.complete, information.minimal):
        assert form is not None
        (reported,) = results(one, GetTypeDependencies((form.type.id,)))
        assert set(reported.dependents) == set(form.dependents)
        assert len(reported.dependents) == 2


def test_an_unproven_participant_gets_no_type_reply() -> None:
    pair = Pair(struct("Rich"), None).run()
    (remote,) = [each for each in pair.one._spdp.remotes.values() if each.prefix == pair.two.prefix]
    ids = tuple(type_objects_of(struct("Rich")).objects)
    request = TypeLookupRequest(RequestId(bytes(16), 1), "", GetTypes(ids))
    for proven in (False, True):
        remote.proven_from = frozenset(remote.addresses) if proven else frozenset()
        before = pair.one.discovery.types.reply_writer.last_sn
        pair.one.discovery.types._on_request(pair.two.prefix, request, pair.network.now)
        assert (pair.one.discovery.types.reply_writer.last_sn > before) is proven


def test_a_peer_that_acknowledges_nothing_does_not_pile_up_replies() -> None:
    network = VirtualNetwork()
    pair = Pair(large(1_000), None, network=network).run()
    ids = tuple(type_objects_of(large(1_000)).objects)
    request = TypeLookupRequest(RequestId(bytes(16), 1), "", GetTypes(ids))
    network.unplug(pair.two)
    refused = 0
    for _ in range(200):
        try:
            pair.one.discovery.types._on_request(pair.two.prefix, request, network.now)
        except DecodeError:
            refused += 1
    assert refused > 100
    assert pair.one.discovery.types.reply_writer.unacknowledged_bytes < 5 << 20


def test_entity_ids() -> None:
    assert [
        each.hex()
        for each in (
            ENTITYID_TYPE_LOOKUP_REQUEST_WRITER,
            ENTITYID_TYPE_LOOKUP_REQUEST_READER,
            ENTITYID_TYPE_LOOKUP_REPLY_WRITER,
            ENTITYID_TYPE_LOOKUP_REPLY_READER,
        )
    ] == ["000300c3", "000300c4", "000301c3", "000301c4"]
