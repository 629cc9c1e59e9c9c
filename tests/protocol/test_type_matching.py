"""Types of remote endpoints, compared: which readers and writers match."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData
from spark_rtps.transport.protocol.discovery.type_lookup import AGAIN, TIMEOUT
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.types.xtypes.type_objects import type_objects_of
from tests.protocol.type_pair import EXACT, FORCED, Pair, reader, writer
from tests.protocol.type_scene import RELIABLE, struct
from tests.support.virtual_network import SECOND, VirtualNetwork

# --- matching -------------------------------------------------------------------------------------


@pytest.mark.parametrize("types", [("Rich", "Wide"), ("Wide", "Rich")])
def test_assignable_types_match_whatever_their_names(types: tuple[str, str]) -> None:
    pair = Pair(*map(struct, types)).run()
    assert pair.matched
    assert pair.reasons() == []


def test_types_delayed_by_an_outage_are_compared_after_it() -> None:
    network = VirtualNetwork()
    pair = Pair(struct("Rich"), struct("Wide"), network=network)
    network.run(SECOND, lambda: bool(pair.one.database.endpoints))
    between = (network.address_of(pair.one), network.address_of(pair.two))
    network.blocked |= {between, between[::-1]}
    network.run(TIMEOUT + SECOND)
    assert pair.reasons()[0][0].startswith("TYPE: "), "the names are not the same"
    network.blocked.clear()
    network.run(AGAIN + SECOND)
    assert pair.matched


def test_types_that_are_not_assignable() -> None:
    pair = Pair(struct("Rich"), struct("Other")).run()
    assert not pair.matched
    for participant in (pair.one, pair.two):
        ((first, *_),) = pair.reasons(participant)
        assert first.startswith("TYPE_CONSISTENCY: ")
        assert "name" in first


def test_other_policy_mismatches_are_logged_with_the_types() -> None:
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


def test_appendable_parts_of_different_widths_mismatch_in_xcdr1() -> None:
    """What follows them would be read at the wrong place. Writers of both representations, compared with one reader."""
    idl = "@appendable struct Part {{ long a; {} }}; @appendable struct Whole {{ Part part; long x; }};"
    old, new = (parse_idl(idl.format(more))["Whole"] for more in ("", "long b;"))
    assert isinstance(old, Struct)
    assert isinstance(new, Struct)
    either = replace(RELIABLE, data_representation=(DataRepresentation.XCDR1, DataRepresentation.XCDR2))
    pair = Pair(old, new, either)
    xcdr2 = replace(RELIABLE, data_representation=(DataRepresentation.XCDR2,))
    other = writer(pair.two, pair.network.now, new, xcdr2)
    pair.run()
    assert not pair.matched
    assert other.guid in pair.reader.writers
    for participant in (pair.one, pair.two):
        ((reason,),) = pair.reasons(participant)
        assert reason.startswith(
            "TYPE_CONSISTENCY: member 'part.b': only the writer has it, and nothing tells where"
        )


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
        monkeypatch.setattr(two.discovery.types, "_on_request", lambda *_: None)
        mine = reader(one, network.now, struct("Wide"), qos)
        theirs = writer(two, network.now, struct("Rich"), name=name)
        network.run(TIMEOUT - SECOND // 2)
        assert not mine.writers
        network.run(SECOND)
        assert (theirs.guid in mine.writers) is matches
        assert one.database.type_failure(theirs.guid) == "it did not send its type within 5 s"
        output = [
            each.reasons[0] for each in network.events[one.prefix] if isinstance(each, events.IncompatibleQos)
        ]
        if qos is FORCED:
            assert "the writer's type is not known: it did not send its type" in output[-1]


def test_minimal_types_are_compared_with_minimal_ones() -> None:
    for name, matches in (("Wide", True), ("Other", False)):
        network = VirtualNetwork()
        one, two = network.add(), network.add()
        mine = reader(one, network.now, struct("Rich"))
        theirs = writer(two, network.now, struct(name))
        data = two.endpoints.own(theirs.guid)
        assert data is not None and data.type_information is not None
        minimal = replace(data.type_information, complete=None)
        two._sedp.announce(replace(data, type_information=minimal), now=network.now)
        network.run(SECOND)
        assert (theirs.guid in mine.writers) is matches


def test_a_type_that_changes_is_looked_up_again() -> None:
    pair = Pair(struct("Rich"), struct("Rich")).run()
    assert pair.matched
    data = pair.two.endpoints.own(pair.writer.guid)
    assert data is not None

    def become(name: str) -> None:
        information = pair.two._library.offer(struct(name))
        assert data is not None
        pair.two._sedp.announce(replace(data, type_information=information), now=pair.network.now)
        pair.run()

    become("Wide")
    assert pair.one.database.type_of(pair.writer.guid) == struct("Wide")
    assert pair.writer.guid in pair.reader.writers
    reported = pair.network.events[pair.one.prefix]
    assert not [each for each in reported if isinstance(each, events.Unmatched)]
    become("Other")
    assert pair.one.database.type_of(pair.writer.guid) == struct("Other")
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
    (output,) = [each for each in network.events[one.prefix] if isinstance(each, events.IncompatibleQos)]
    assert output.reasons == ("KEY: the reader's type has a key, the writer's has none",)


def test_broken_type_information_is_counted_and_the_name_decides() -> None:
    pair = Pair(struct("Rich"), None).run()
    data = EndpointData(Guid(pair.two.prefix, b"\0\0\x09\x02"), "t", "lab::Rich", RELIABLE)
    before = pair.one.drops[DropReason.BAD_PARAMETER]
    from spark_rtps.transport.protocol.discovery import endpoint_data

    encode = endpoint_data.encode_type_information  # type: ignore[attr-defined]
    try:
        endpoint_data.encode_type_information = lambda _: b"garbage!"  # type: ignore[assignment, attr-defined]
        information = type_objects_of(struct("Rich")).information
        pair.two._sedp.announce(replace(data, type_information=information), now=pair.network.now)
    finally:
        endpoint_data.encode_type_information = encode  # type: ignore[attr-defined]
    pair.run()
    assert data.guid in pair.reader.writers
    assert pair.one.drops[DropReason.BAD_PARAMETER] == before + 1
    assert "broken" in str(pair.one.database.type_failure(data.guid))
