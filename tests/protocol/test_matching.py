"""Which endpoints match, where they are reached, and what is said when they do not match."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.limits import LOCATORS_MAX
from spark_rtps.transport.partitions import glob_matches, partitions_match
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData
from spark_rtps.transport.protocol.discovery.matching import mismatches, usable_multicast, usable_unicast
from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.qos import (
    DestinationOrderKind,
    DurabilityKind,
    LivelinessKind,
    OwnershipKind,
    PresentationScope,
    Qos,
    ReliabilityKind,
)
from spark_rtps.transport.structure import Guid, Locator
from tests.support.virtual_network import SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE)
WRITER = EndpointData(Guid(bytes(12), b"\0\0\1\2"), "t", "T", RELIABLE)
READER = EndpointData(Guid(bytes(12), b"\0\0\1\7"), "t", "T", RELIABLE)

#: offered, requested, the policy to be named
INCOMPATIBLE = [
    ({"reliability": ReliabilityKind.BEST_EFFORT}, {}, "RELIABILITY"),
    ({}, {"durability": DurabilityKind.TRANSIENT_LOCAL}, "DURABILITY"),
    ({}, {"deadline": SECOND}, "DEADLINE"),
    ({"latency_budget": 2}, {"latency_budget": 1}, "LATENCY_BUDGET"),
    ({}, {"liveliness": LivelinessKind.MANUAL_BY_TOPIC}, "LIVELINESS"),
    ({}, {"liveliness_lease_duration": SECOND}, "LIVELINESS lease_duration"),
    ({}, {"ownership": OwnershipKind.EXCLUSIVE}, "OWNERSHIP"),
    ({}, {"destination_order": DestinationOrderKind.BY_SOURCE_TIMESTAMP}, "DESTINATION_ORDER"),
    ({}, {"presentation_scope": PresentationScope.GROUP}, "PRESENTATION"),
    ({}, {"coherent_access": True}, "PRESENTATION"),
    ({"data_representation": (2,)}, {"data_representation": (0,)}, "DATA_REPRESENTATION"),
    ({"partition": ("a",)}, {"partition": ("b",)}, "PARTITION"),
    ({"partition": ("a",)}, {}, "PARTITION"),
]


@pytest.mark.parametrize(("offered", "requested", "policy"), INCOMPATIBLE)
def test_each_incompatibility_has_its_reason(
    offered: dict[str, object], requested: dict[str, object], policy: str
) -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    qos = [replace(RELIABLE, **each) for each in (requested, offered)]
    r = one.create_reader(ReaderSpec("t", "T", qos[0]), now=network.now)
    w = two.create_writer(WriterSpec("t", "T", qos[1]), now=network.now)
    network.run(40 * SECOND)
    assert not r.writers
    assert not w.readers
    for participant, local, remote in ((one, r, w), (two, w, r)):
        output = [
            each for each in network.events[participant.prefix] if isinstance(each, events.IncompatibleQos)
        ]
        assert [(each.local, each.remote, each.topic) for each in output] == [(local.guid, remote.guid, "t")]
        assert [reason.partition(":")[0] for reason in output[0].reasons] == [policy]
        assert "writer" in output[0].reasons[0]
        assert "reader" in output[0].reasons[0]


def test_another_type_of_the_same_topic() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    one.create_reader(ReaderSpec("t", "lab::A", RELIABLE), now=network.now)
    two.create_writer(WriterSpec("t", "lab::B", RELIABLE), now=network.now)
    two.create_writer(WriterSpec("other", "lab::B", RELIABLE), now=network.now)
    network.run(SECOND)
    output = [each for each in network.events[one.prefix] if isinstance(each, events.IncompatibleQos)]
    assert [each.reasons for each in output] == [
        ("TYPE: the writer's is 'lab::B', the reader's is 'lab::A'",)
    ]


def test_all_reasons_are_given_at_once() -> None:
    reader = replace(READER, type_name="U", qos=replace(RELIABLE, partition=("x",), deadline=1))
    assert [reason.partition(":")[0] for reason in mismatches(WRITER, reader)] == [
        "TYPE",
        "DEADLINE",
        "PARTITION",
    ]
    assert mismatches(WRITER, READER) == ()


def test_a_reader_accepts_both_representations_by_default() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    r = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    for representation in (0, 2):
        qos = replace(RELIABLE, data_representation=(representation,))
        two.create_writer(WriterSpec("t", "T", qos), now=network.now)
    network.run(SECOND)
    assert len(r.writers) == 2


def test_partitions_may_have_wildcards() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    r = one.create_reader(ReaderSpec("t", "T", replace(RELIABLE, partition=("robot*",))), now=network.now)
    for name in ("robot1", "robot2", "plant"):
        two.create_writer(WriterSpec("t", "T", replace(RELIABLE, partition=(name,))), now=network.now)
    network.run(SECOND)
    assert len(r.writers) == 2


def test_qos_that_changes_unmatches_and_matches_again() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    r = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    w = two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    network.run(SECOND)
    assert list(r.writers) == [w.guid]
    for partition, matched in ((("x",), False), ((), True)):
        qos = replace(RELIABLE, partition=partition, data_representation=(0,))
        two._sedp.announce(EndpointData(w.guid, "t", "T", qos), now=network.now)
        network.run(SECOND)
        assert (list(r.writers) == [w.guid]) is matched
    kinds = (events.Matched, events.Unmatched, events.IncompatibleQos)
    output = [type(each) for each in network.events[one.prefix] if isinstance(each, kinds)]
    assert output == [events.Matched, events.Unmatched, events.IncompatibleQos, events.Matched]


# --- addresses ------------------------------------------------------------------------------------

A, B, LOOPBACK = Locator("10.0.0.1", 7411), Locator("192.168.0.1", 7411), Locator("127.0.0.1", 7411)
GROUP = Locator("239.255.0.1", 7401)
BAD = (
    Locator("10.0.0.1", 0),
    Locator("10.0.0.1", 65_536),
    Locator("0.0.0.0", 7411),
    Locator("255.255.255.255", 7411),
    Locator("::1", 7411, 2),
    Locator("16", 7411, 16),
)


@pytest.mark.parametrize(
    ("named", "source", "used"),
    [
        ((A, B), "10.0.0.1", (A,)),  # it speaks from where it says it is
        ((A, B), "10.9.9.9", (A, B)),  # behind a translator, or a forger: both, bounded
        ((A, LOOPBACK), "10.9.9.9", (A,)),  # its loopback is not ours
        ((A, LOOPBACK), "127.0.0.1", (LOOPBACK,)),
        ((LOOPBACK,), "10.0.0.1", (LOOPBACK,)),
        ((A,), "127.0.0.1", (A,)),
        ((A, A), "10.9.9.9", (A,)),
        ((*BAD, A, GROUP), "10.9.9.9", (A,)),
        ((GROUP, *BAD), "10.9.9.9", ()),
    ],
)
def test_destinations_of_a_matched_peer(
    named: tuple[Locator, ...], source: str, used: tuple[Locator, ...]
) -> None:
    assert usable_unicast(named, source) == used


def test_multicast_addresses() -> None:
    assert usable_multicast((A, GROUP, GROUP, *BAD, Locator("239.255.0.1", 0))) == (GROUP,)


def test_locators_are_bounded() -> None:
    many = [Locator(f"10.0.{i // 200}.{i % 200 + 1}", 7411) for i in range(1_000)]
    assert len(usable_unicast(many, "10.9.9.9")) == LOCATORS_MAX


def test_an_endpoint_without_a_usable_address_is_reported() -> None:
    network = VirtualNetwork()
    one = network.add()
    two = network.add(default_unicast=(Locator("0.0.0.0", 7411),))
    r = one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    network.run(SECOND)
    assert not r.writers
    output = [each for each in network.events[one.prefix] if isinstance(each, events.IncompatibleQos)]
    assert [each.reasons[0].partition(":")[0] for each in output] == ["LOCATOR"]


def test_own_locators_of_an_endpoint_come_first() -> None:
    network = VirtualNetwork()
    one, two = network.add(), network.add()
    one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    network.run(SECOND)
    special = (Locator("10.0.0.2", 9999),)
    data = EndpointData(Guid(two.prefix, b"\0\0\x09\3"), "t", "T", RELIABLE, special, (GROUP,))
    two._sedp.announce(data, now=network.now)
    network.run(SECOND)
    matched = [each for each in network.events[one.prefix] if isinstance(each, events.Matched)]
    assert [(each.unicast, each.multicast) for each in matched] == [(special, (GROUP,))]


def test_multicast_is_not_used_where_it_is_not_wanted() -> None:
    network = VirtualNetwork(multicast=False)
    one = network.add(peers=(Locator("10.0.0.2", 7410),))
    two = network.add(default_multicast=(GROUP,))
    one.create_reader(ReaderSpec("t", "T", RELIABLE), now=network.now)
    two.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)
    network.run(2 * SECOND)
    matched = [each for each in network.events[one.prefix] if isinstance(each, events.Matched)]
    assert [each.multicast for each in matched] == [()]


def test_a_partition_pattern_never_matches_a_pattern() -> None:
    assert not partitions_match(("a*",), ("a*",))
    assert partitions_match(("a*",), ("ab",)) and partitions_match(("ab",), ("ab",))


def test_a_topic_with_a_key_does_not_match_one_without() -> None:
    keyless = EndpointData(Guid(bytes(12), b"\0\0\2\4"), "t", "T", RELIABLE)
    assert mismatches(WRITER, keyless) == ("KEY: the writer's type has a key, the reader's has none",)


_PIECES = [
    "a",
    "b",
    "c",
    "-z",
    "*",
    "?",
    "!",
    "[",
    "]",
    "[ab]",
    "[!a]",
    "[a-c]",
    "[]a]",
    "[!]b]",
    "[a-b-c]",
    "[-a]",
]


@settings(max_examples=500)
@given(st.lists(st.sampled_from(_PIECES), max_size=6), st.text("abcz-!][", max_size=6))
def test_patterns_of_partitions_are_as_fnmatch_has_them(pieces: list[str], name: str) -> None:
    pattern = "".join(pieces)
    assert glob_matches(pattern, name) is fnmatch.fnmatchcase(name, pattern)


@pytest.mark.parametrize("pattern", ["*a", "[!", "*?", "[a]*", "[a-z]"])
def test_long_patterns_of_a_peer_cost_little(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No regular expression is made of them: sixteen like this took four seconds, in one announcement."""
    monkeypatch.setattr(re, "compile", None)
    monkeypatch.setattr(fnmatch, "translate", None)
    long = pattern * (4_000 // len(pattern))
    assert not partitions_match(("b" * 50,), tuple(f"{long}{i}" for i in range(16)))
    assert partitions_match(("b" * 50,), (f"{long}x", "b*"))
