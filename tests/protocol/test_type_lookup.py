"""Types of remote endpoints, found out and compared: participants that ask each other, with and without loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from type_scene import RELIABLE, large, struct
from virtual_network import MILLISECOND, SECOND, VirtualNetwork

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.limits import TYPE_LOOKUP_REPLY_BYTES
from spark_rtps.transport.protocol import events
from spark_rtps.transport.protocol.discovery import type_matching
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData
from spark_rtps.transport.protocol.discovery.type_lookup import TIMEOUT
from spark_rtps.transport.protocol.participant import Participant
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import Qos, TypeConsistency, TypeConsistencyKind
from spark_rtps.transport.structure import (
    ENTITYID_TYPE_LOOKUP_REPLY_READER,
    ENTITYID_TYPE_LOOKUP_REPLY_WRITER,
    ENTITYID_TYPE_LOOKUP_REQUEST_READER,
    ENTITYID_TYPE_LOOKUP_REQUEST_WRITER,
    Guid,
)
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.types.xtypes.information import SizedIdentifier
from spark_rtps.transport.types.xtypes.lookup_messages import (
    GetTypeDependencies,
    GetTypes,
    Request,
    RequestId,
    TypeDependencies,
    Types,
    instance_name,
)
from spark_rtps.transport.types.xtypes.type_objects import type_objects_of
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.submessages import Data, decode_submessage

FORCED = replace(RELIABLE, type_consistency=TypeConsistency(force_type_validation=True))
EXACT = replace(RELIABLE, type_consistency=TypeConsistency(TypeConsistencyKind.DISALLOW_TYPE_COERCION))


def reader(
    participant: Participant, now: int, type: Struct | None, qos: Qos = RELIABLE, **more: Any
) -> StatefulReader:
    options: dict[str, Any] = {"keyed": type is None or type.is_keyed, "now": now, "type": type} | more
    name = options.pop("name", "lab::Rich" if type is None else type.name)
    return participant.create_reader(options.pop("topic", "t"), name, qos, **options)


def writer(
    participant: Participant, now: int, type: Struct | None, qos: Qos = RELIABLE, **more: Any
) -> StatefulWriter:
    options: dict[str, Any] = {"keyed": type is None or type.is_keyed, "now": now, "type": type} | more
    name = options.pop("name", "lab::Rich" if type is None else type.name)
    return participant.create_writer(options.pop("topic", "t"), name, qos, **options)


class Pair:
    """A reader of one participant and a writer of another, with these types."""

    def __init__(
        self,
        read: Struct | None,
        written: Struct | None,
        qos: Qos = RELIABLE,
        network: VirtualNetwork | None = None,
    ) -> None:
        self.network = network or VirtualNetwork()
        self.network.log = []
        self.one, self.two = self.network.add(), self.network.add()
        self.reader = reader(self.one, self.network.now, read, qos)
        self.writer = writer(self.two, self.network.now, written)

    def run(self, duration: int = SECOND) -> Pair:
        self.network.run(duration)
        return self

    @property
    def matched(self) -> bool:
        """On both sides, or on neither."""
        both = {self.writer.guid in self.reader.writers, self.reader.guid in self.writer.readers}
        assert len(both) == 1
        return both.pop()

    def reasons(self, participant: Participant | None = None) -> list[tuple[str, ...]]:
        told = self.network.events[(participant or self.one).prefix]
        return [each.reasons for each in told if isinstance(each, events.IncompatibleQos)]

    def sent(self, entity: bytes) -> list[tuple[str, str]]:
        """(from, to) of each sample of a built-in writer."""
        found = []
        for source, destination, datagram in self.network.log or ():
            view = memoryview(datagram)
            for kind, flags, start, stop in iter_submessages(view):
                data = decode_submessage(kind, flags, view[start:stop])
                if isinstance(data, Data) and data.writer_id == entity:
                    found.append((source, destination.address))
        return found


# --- finding out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_types_are_known_in_spite_of_loss(seed: int) -> None:
    network = VirtualNetwork(seed=seed, loss=0.3, duplicates=0.1, jitter=20 * MILLISECOND)
    pair = Pair(struct("Wide"), struct("Rich"), network=network)
    wanted = (pair.writer.guid, pair.reader.guid)
    assert network.run(20 * SECOND, lambda: bool(pair.one.type_of(wanted[0]) and pair.two.type_of(wanted[1])))
    assert pair.one.type_of(pair.writer.guid) == struct("Rich")
    assert pair.two.type_of(pair.reader.guid) == struct("Wide")
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
        said = {e.guid: one.type_of(e.guid) or one.type_failure(e.guid) for e in one.remote_endpoints}
        if not found or found[-1] != (one.changes, said):
            found.append((one.changes, said))
        return False

    network.run(5 * SECOND, look)
    before = one.changes
    network.run(5 * SECOND, look)
    assert one.changes == before
    two.delete_endpoint(w.guid, network.now)
    network.run(5 * SECOND, look)
    told = [said for _, said in found]
    assert {} in told and any(said.get(w.guid) == struct("Rich") for said in told) and len(told[-1]) == 1
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
            len(one.remote_endpoints) == 10 and all(one.type_of(e.guid) for e in one.remote_endpoints)
            for one in everybody
        )

    assert network.run(30 * SECOND, all_known)
    network.loss = 0.0
    network.run(5 * SECOND)
    for one in everybody:
        assert one._types.request_writer.unacknowledged() == {}
        assert one._types.reply_writer.unacknowledged() == {}
        assert one._types.reply_writer.unacknowledged_bytes == 0


def test_a_large_type_comes_in_several_replies() -> None:
    size = sum(len(data) for data in type_objects_of(large(400)).objects.values()) // 2
    assert size > 2 * TYPE_LOOKUP_REPLY_BYTES // 2
    network = VirtualNetwork(loss=0.05, seed=1)
    pair = Pair(None, large(400), network=network)
    assert network.run(4 * SECOND, lambda: pair.one.type_of(pair.writer.guid) is not None)
    assert pair.one.type_of(pair.writer.guid) == large(400)


def test_no_one_asks_for_types_that_nobody_wants() -> None:
    pair = Pair(struct("Rich"), struct("Rich"))
    other = writer(pair.two, pair.network.now, struct("Wide"), topic="other")
    pair.run()
    assert pair.matched
    assert pair.sent(ENTITYID_TYPE_LOOKUP_REQUEST_WRITER) == []  # equal types match by their hashes
    assert pair.one.type_of(pair.writer.guid) == struct("Rich")
    assert pair.one.type_of(other.guid) is None
    assert pair.one.type_failure(other.guid) is None
    reader(pair.one, pair.network.now, None, topic="other", name="lab::Wide")
    pair.run()
    assert pair.one.type_of(other.guid) == struct("Wide")


def test_a_participant_that_wants_all_types() -> None:
    network = VirtualNetwork()
    one = network.add(resolve_types=True)
    two = network.add()
    told = [writer(two, network.now, struct(name), topic=name) for name in ("Rich", "Wide", "Other", "Plain")]
    silent = writer(two, network.now, None, topic="silent")
    network.run(SECOND)
    assert [one.type_of(each.guid) for each in told] == [
        struct(name) for name in ("Rich", "Wide", "Other", "Plain")
    ]
    assert one.type_of(silent.guid) is None
    assert one.type_failure(silent.guid) == "it does not announce its type"
    by_guid = {each.guid: each for each in one.remote_endpoints}
    assert by_guid[told[0].guid].type_information == type_objects_of(struct("Rich")).information
    assert by_guid[silent.guid].type_information is None


def test_questions_and_answers_go_to_whom_they_are_for() -> None:
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
    assert bystanders[0].type_of(pair.writer.guid) == struct("Rich")
    assert pair.writer.guid in third.writers
    for participant in (pair.one, pair.two, bystanders[0]):
        for each in (participant._types.request_writer, participant._types.reply_writer):
            assert each.unacknowledged() == {}


def test_many_endpoints_of_one_type_cost_one_question() -> None:
    network = VirtualNetwork()
    pair = Pair(struct("Wide"), struct("Rich"), network=network)
    writers = [writer(pair.two, network.now, struct("Rich")) for _ in range(300)]
    network.run(5 * SECOND, lambda: len(pair.reader.writers) == 301)
    assert len(pair.reader.writers) == 301
    assert len(pair.sent(ENTITYID_TYPE_LOOKUP_REQUEST_WRITER)) <= 4
    assert all(pair.one.type_of(each.guid) is not None for each in writers)


def test_types_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    compare = type_matching.incompatibilities_of_types

    def count(*arguments: Any) -> tuple[str, ...]:
        nonlocal compared
        compared += 1
        return compare(*arguments)

    monkeypatch.setattr(type_matching, "incompatibilities_of_types", count)
    network = VirtualNetwork()
    pair = Pair(struct("Wide"), struct("Rich"), network=network)
    for _ in range(100):
        writer(pair.two, network.now, struct("Rich"))
    network.run(5 * SECOND, lambda: len(pair.reader.writers) == 101)
    assert compared == 2  # once by each participant


def test_a_participant_that_goes_takes_its_types_along() -> None:
    pair = Pair(struct("Wide"), struct("Rich")).run()
    pair.two.close(pair.network.now)
    pair.run()
    assert pair.one.type_of(pair.writer.guid) is None
    assert pair.one.type_failure(pair.writer.guid) is None
    assert pair.one._lookup.get_timer() is None


# --- matching -------------------------------------------------------------------------------------


@pytest.mark.parametrize("types", [("Rich", "Wide"), ("Wide", "Rich")])
def test_assignable_types_match_whatever_their_names(types: tuple[str, str]) -> None:
    pair = Pair(*map(struct, types)).run()
    assert pair.matched
    assert pair.reasons() == []


def test_types_that_are_not_assignable() -> None:
    pair = Pair(struct("Rich"), struct("Other")).run()
    assert not pair.matched
    for participant in (pair.one, pair.two):
        ((first, *_),) = pair.reasons(participant)
        assert first.startswith("TYPE_CONSISTENCY: ")
        assert "name" in first


def test_other_policies_are_told_with_the_types() -> None:
    pair = Pair(struct("Rich"), struct("Other"), replace(RELIABLE, deadline=1)).run()
    first, *_, last = pair.reasons()[-1]
    assert first.startswith("TYPE_CONSISTENCY: ")
    assert last.startswith("DEADLINE: ")


def test_names_decide_where_one_side_announces_no_type() -> None:
    assert Pair(struct("Rich"), None).run().matched
    assert Pair(None, struct("Rich")).run().matched
    pair = Pair(None, struct("Wide")).run()
    assert not pair.matched
    assert pair.reasons() == [("TYPE: the writer's is 'lab::Wide', the reader's is 'lab::Rich'",)]


def test_forced_type_validation_wants_types() -> None:
    pair = Pair(struct("Rich"), None, FORCED).run()
    assert not pair.matched
    expected = (
        "TYPE_CONSISTENCY: the reader forces type validation, and the writer's type is not known: "
        "it does not announce its type",
    )
    assert pair.reasons(pair.one) == pair.reasons(pair.two) == [expected]
    assert Pair(struct("Wide"), struct("Rich"), FORCED).run().matched


def test_a_reader_that_takes_its_own_type_only() -> None:
    assert Pair(struct("Rich"), struct("Rich"), EXACT).run().matched
    pair = Pair(struct("Wide"), struct("Rich"), EXACT).run()
    assert not pair.matched
    assert pair.reasons()[0][0].startswith("TYPE_CONSISTENCY: ")


def test_endpoints_of_one_participant_are_compared_too() -> None:
    network = VirtualNetwork()
    one = network.add()
    wide = reader(one, network.now, struct("Wide"))
    other = reader(one, network.now, struct("Other"))
    rich = writer(one, network.now, struct("Rich"))
    assert rich.guid in wide.writers
    assert rich.guid not in other.writers


def test_a_peer_that_does_not_answer_is_matched_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for qos, name, matches in (
        (RELIABLE, "lab::Wide", True),
        (RELIABLE, "X", False),
        (FORCED, "lab::Wide", False),
    ):
        network = VirtualNetwork()
        one, two = network.add(), network.add()
        monkeypatch.setattr(two._types, "_on_request", lambda *_: None)
        mine = reader(one, network.now, struct("Wide"), qos)
        theirs = writer(two, network.now, struct("Rich"), name=name)
        network.run(TIMEOUT - SECOND // 2)
        assert not mine.writers
        network.run(SECOND)
        assert (theirs.guid in mine.writers) is matches
        assert one.type_failure(theirs.guid) == "it did not tell its type within 5 s"
        said = [
            each.reasons[0] for each in network.events[one.prefix] if isinstance(each, events.IncompatibleQos)
        ]
        if qos is FORCED:
            assert "the writer's type is not known: it did not tell its type" in said[-1]


def test_minimal_types_are_compared_with_minimal_ones() -> None:
    for name, matches in (("Wide", True), ("Other", False)):
        network = VirtualNetwork()
        one, two = network.add(), network.add()
        mine = reader(one, network.now, struct("Rich"))
        theirs = writer(two, network.now, struct(name))
        data = two._endpoints.own(theirs.guid)
        assert data is not None and data.type_information is not None
        minimal = replace(data.type_information, complete=None)
        two._sedp.announce(replace(data, type_information=minimal), now=network.now)
        network.run(SECOND)
        assert (theirs.guid in mine.writers) is matches


def test_a_type_that_changes_is_looked_up_again() -> None:
    pair = Pair(struct("Rich"), struct("Rich")).run()
    assert pair.matched
    data = pair.two._endpoints.own(pair.writer.guid)
    assert data is not None

    def become(name: str) -> None:
        information = pair.two._library.offer(struct(name))
        assert data is not None
        pair.two._sedp.announce(replace(data, type_information=information), now=pair.network.now)
        pair.run()

    become("Wide")
    assert pair.one.type_of(pair.writer.guid) == struct("Wide")
    assert pair.writer.guid in pair.reader.writers
    told = pair.network.events[pair.one.prefix]
    assert not [each for each in told if isinstance(each, events.Unmatched)]
    become("Other")
    assert pair.one.type_of(pair.writer.guid) == struct("Other")
    assert pair.writer.guid not in pair.reader.writers
    become("Rich")
    assert pair.writer.guid in pair.reader.writers


def test_keys_still_have_to_agree() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    mine = reader(one, network.now, struct("Rich"))
    writer(two, network.now, struct("Rich"), keyed=False)
    network.run(SECOND)
    assert not mine.writers
    (said,) = [each for each in network.events[one.prefix] if isinstance(each, events.IncompatibleQos)]
    assert said.reasons == ("KEY: the reader's type has a key, the writer's has none",)


def test_broken_type_information_is_counted_and_the_name_decides() -> None:
    pair = Pair(struct("Rich"), None).run()
    data = EndpointData(Guid(pair.two.prefix, b"\0\0\x09\x02"), "t", "lab::Rich", RELIABLE)
    before = pair.one.drops[DropReason.BAD_PARAMETER]
    from spark_rtps.transport.protocol.discovery import endpoint_data

    encode = endpoint_data.encode_type_information
    try:
        endpoint_data.encode_type_information = lambda _: b"garbage!"
        information = type_objects_of(struct("Rich")).information
        pair.two._sedp.announce(replace(data, type_information=information), now=pair.network.now)
    finally:
        endpoint_data.encode_type_information = encode
    pair.run()
    assert data.guid in pair.reader.writers
    assert pair.one.drops[DropReason.BAD_PARAMETER] == before + 1
    assert "broken" in str(pair.one.type_failure(data.guid))


# --- telling --------------------------------------------------------------------------------------


def results(participant: Participant, call: GetTypes | GetTypeDependencies, instance: str = "") -> list[Any]:
    request = Request(RequestId(bytes(16), 1), instance, call)
    return list(participant._types._results(request))


def test_our_types_are_told_as_long_as_there_are_endpoints_of_them() -> None:
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


def test_dependencies_are_told_with_a_continuation_point() -> None:
    network = VirtualNetwork()
    one = network.add()
    writer(one, network.now, large(1_500))
    information = type_objects_of(large(1_500)).information
    assert information.complete is not None
    call = GetTypeDependencies((information.complete.type.id,))
    found: list[SizedIdentifier] = []
    replies = 0
    while True:
        (told,) = results(one, call)
        assert isinstance(told, TypeDependencies)
        found += told.dependents
        replies += 1
        if not told.continuation_point:
            break
        call = replace(call, continuation_point=told.continuation_point)
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
        (told,) = results(one, GetTypeDependencies((form.type.id,)))
        assert set(told.dependents) == set(form.dependents)
        assert len(told.dependents) == 2


def test_who_is_not_proven_is_told_nothing() -> None:
    pair = Pair(struct("Rich"), None).run()
    (remote,) = [each for each in pair.one._spdp.remotes.values() if each.prefix == pair.two.prefix]
    ids = tuple(type_objects_of(struct("Rich")).objects)
    request = Request(RequestId(bytes(16), 1), "", GetTypes(ids))
    for proven in (False, True):
        remote.proven = proven
        before = pair.one._types.reply_writer.last_sn
        pair.one._types._on_request(pair.two.prefix, request, pair.network.now)
        assert (pair.one._types.reply_writer.last_sn > before) is proven


def test_who_acknowledges_nothing_does_not_pile_up_replies() -> None:
    network = VirtualNetwork()
    pair = Pair(large(1_000), None, network=network).run()
    ids = tuple(type_objects_of(large(1_000)).objects)
    request = Request(RequestId(bytes(16), 1), "", GetTypes(ids))
    network.unplug(pair.two)
    refused = 0
    for _ in range(200):
        try:
            pair.one._types._on_request(pair.two.prefix, request, network.now)
        except DecodeError:
            refused += 1
    assert refused > 100
    assert pair.one._types.reply_writer.unacknowledged_bytes < 5 << 20


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
