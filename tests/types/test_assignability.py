"""Whether a reader's type can read a writer's: a table of pairs that Cyclone DDS judges too, and what we say of them.

Cyclone judges by matching, or not matching, a writer and a reader in one process.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_rtps.transport.limits import TYPE_REASONS_MAX
from spark_rtps.transport.qos import TypeConsistency, TypeConsistencyKind
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Enum, Extensibility, String, Struct, traverse
from spark_rtps.transport.types.xtypes.assignability import incompatibilities_of_types
from tests.support import domains
from tests.types.assignability_pairs import (
    FINAL,
    INT32,
    INT64,
    OTHERS,
    PAIRS,
    TEXT,
    Pair,
    appendable,
    m,
    struct,
)
from tests.types.cyclone_oracle import cyclone_class, cyclone_type


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_verdict(pair: Pair) -> None:
    reasons = incompatibilities_of_types(pair.writer, pair.reader, pair.consistency)
    assert (not reasons) is pair.assignable, reasons
    assert all(reason.startswith("TYPE_CONSISTENCY: ") for reason in reasons)


@pytest.mark.parametrize("pair", OTHERS, ids=lambda pair: pair.id)
def test_verdict_on_others(pair: Pair) -> None:
    test_verdict(pair)


@pytest.mark.parametrize(
    ("id_", "reason"),
    [
        ("float to double", "member 'v': the writer's is float, the reader's is double"),
        ("sequence of another", "member 'v[]': the writer's is int32, the reader's is uint32"),
        (
            "longer sequence, bounds count",
            "member 'v': the writer's is sequence<int32, 4>, longer than the reader's sequence<int32, 3>",
        ),
        (
            "key string to string<8>",
            "member 'x': the writer's is string, longer than the reader's string<8>, and it is a key",
        ),
        ("enum with another value of a name", "member 'v': literal GREEN is 1 at the writer, 2 at the reader"),
        ("enum with another name for a value", "member 'v': 1 is GREEN at the writer, BLUE at the reader"),
        (
            "final enum with more literals",
            "member 'v': only the writer has literal BLUE, and enum Color is @final",
        ),
        ("bitmask of another bound", "member 'v': the writer's bitmask has 8 bits, the reader's has 16"),
        ("final to appendable", "type: the writer's struct {w} is @final, the reader's struct {r} is @appendable"),
        ("final, one more", "member 'y': only the writer has it, and struct T is @final"),
        ("mutable, nothing in common", "type: writer's struct T and reader's struct T have no member in common"),
        ("another name", "member 'y': the reader calls it 'z' (id 1); see ignore_member_names"),
        ("another id", "member 'y': its id is 2 at the writer, 3 at the reader"),
        (
            "appendable, another order",
            "member 'x': it is member 1 of the writer, the reader has 'y' there, and the type is @appendable",
        ),
        ("optional to not", "member 'x': it is @optional at the writer only"),
        ("must_understand at the reader", "member 'y': only the reader has it, and it is @must_understand"),
        ("key of the reader only", "member 'x': it is a key of the reader only"),
        ("narrow, wider writer", "member 'z': only the writer has it, and prevent_type_widening is set"),
        (
            "final in final, longer strings",
            "member 'p.s': the writer's is string, the reader's is string<4>, "
            "and struct P is @final: both must be the same",
        ),
        ("nested final, another", "member 'v.y': the reader calls it 'z' (id 1); see ignore_member_names"),
        ("union with another type", "member 'v.a': the writer's is int32, the reader's is int64"),
        ("union, no common label", "member 'v': writer's and reader's union have no label in common"),
        ("final union with another branch", "member 'v.b': only the writer has a case 2, and the union is @final"),
        ("not equal: bound", "member 's': the writer's is string, the reader's is string<3>"),
        ("not equal: longer", "type: the writer's has 3 members, the reader's has 2"),
    ],
)  # fmt: skip
def test_reason(id_: str, reason: str) -> None:
    pair = next(pair for pair in PAIRS if pair.id == id_)
    reasons = incompatibilities_of_types(pair.writer, pair.reader, pair.consistency)
    assert reasons == (f"TYPE_CONSISTENCY: {reason.format(w='T', r='T')}",)


def test_differences_are_listed_up_to_a_bound() -> None:
    names = [f"m{i}" for i in range(100)]
    writer = appendable(*(m(name, INT32) for name in names))
    reader = appendable(*(m(name, INT64) for name in names))
    reasons = incompatibilities_of_types(writer, reader, TypeConsistency())
    assert reasons[0] == "TYPE_CONSISTENCY: member 'm0': the writer's is int32, the reader's is int64"
    assert len(reasons) == TYPE_REASONS_MAX


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("extensibility", Extensibility)
def test_shared_types_are_compared_once(extensibility: Extensibility, keyed: bool) -> None:
    """As a tree these would be 2**60 types."""
    writer, reader = struct(extensibility, m("s", TEXT)), struct(extensibility, m("s", String(4)))
    for _ in range(60):
        writer = struct(extensibility, m("a", writer, key=keyed), m("b", writer))
        reader = struct(extensibility, m("a", reader, key=keyed), m("b", reader))
    reasons = incompatibilities_of_types(writer, reader, TypeConsistency())
    # a final type must be the same at every depth but the first
    assert bool(reasons) is (extensibility is FINAL or keyed)


# --- Cyclone DDS ------------------------------------------------------------------------------------

_CONFIG = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces>'
    "<AllowMulticast>false</AllowMulticast></General></Domain></CycloneDDS>"
)
_DOMAIN = domains.TYPES_ASSIGNABILITY


def test_cyclone_judges_alike() -> None:
    judged = {pair.id: matches for pair, matches in zip(PAIRS, _cyclone_matches(PAIRS), strict=True)}
    wanted = {pair.id: pair.assignable if pair.cyclone is None else pair.cyclone for pair in PAIRS}
    assert judged == wanted


def _cyclone_matches(pairs: list[Pair]) -> list[bool]:
    """For each pair whether Cyclone matched; endpoints of one process match, or do not, as they are made."""
    from cyclonedds.domain import Domain, DomainParticipant
    from cyclonedds.pub import DataWriter
    from cyclonedds.qos import Policy, Qos
    from cyclonedds.sub import DataReader
    from cyclonedds.topic import Topic

    domain, participant = Domain(_DOMAIN, _CONFIG), DomainParticipant(_DOMAIN)
    xcdr2 = Qos(Policy.DataRepresentation(use_xcdrv2_representation=True))
    made = []
    for number, pair in enumerate(pairs):
        consistency = pair.consistency
        if consistency.kind is TypeConsistencyKind.DISALLOW_TYPE_COERCION:
            policy = Policy.TypeConsistency.DisallowTypeCoercion()
        else:
            policy = Policy.TypeConsistency.AllowTypeCoercion(  # type: ignore[assignment]
                consistency.ignore_sequence_bounds,
                consistency.ignore_string_bounds,
                consistency.ignore_member_names,
                consistency.prevent_type_widening,
            )
        name = f"pair{number}"
        # many types of one name in a domain make it allocate without end
        types = replace(pair.writer, name=f"W{number}"), replace(pair.reader, name=f"R{number}")
        topics = [Topic(participant, name, _cyclone_class(t), qos=xcdr2) for t in types]  # type: ignore[var-annotated]
        writer = DataWriter(participant, topics[0], qos=xcdr2)
        made.append((writer, DataReader(participant, topics[1], qos=Qos(policy, base=xcdr2))))
    matches = [bool(writer.get_matched_subscriptions()) for writer, _ in made]
    del made, participant, domain
    return matches


def _cyclone_class(t: Struct) -> type:
    for inner in traverse(t):
        if isinstance(inner, Enum):
            cyclone_type(inner).__idl_annotations__["extensibility"] = inner.extensibility.value
    return cyclone_class(t)


def test_enums_of_one_size_are_not_signed_at_one_side_only() -> None:
    """The same octet would be another literal."""
    idl = "@bit_bound(8) @appendable enum E {{ {} }}; struct S {{ E e; }};"
    signed, small, large = (
        parse_idl(idl.format(literals))["S"]
        for literals in ("@value(-56) A, @value(0) Z", "@value(0) Z", "@value(0) Z, @value(200) B")
    )
    assert isinstance(signed, Struct) and isinstance(small, Struct) and isinstance(large, Struct)
    (why,) = incompatibilities_of_types(signed, large, TypeConsistency())
    assert "signed at one side only" in why
    assert incompatibilities_of_types(large, signed, TypeConsistency())
    assert not incompatibilities_of_types(small, large, TypeConsistency())
    assert not incompatibilities_of_types(large, small, TypeConsistency())


@pytest.mark.parametrize(
    ("outer", "inner", "wider", "narrower"),
    [
        ("@appendable struct S { I i; long x; };", "struct", False, False),
        ("@final struct S { sequence<I> i; };", "struct", False, False),
        ("@appendable struct S { long x; I i; };", "struct", True, False),
        ("@mutable struct S { I i; long x; };", "struct", True, False),
        ("@appendable struct S { @optional I i; long x; };", "struct", True, False),
        ("@appendable struct S { I i; long x; };", "union", False, False),
        ("@mutable struct S { I i; long x; };", "union", True, True),
    ],
    ids=["member", "element", "last", "in mutable", "optional", "union", "union in mutable"],
)
def test_appendable_values_have_no_end_in_xcdr1(outer: str, inner: str, wider: bool, narrower: bool) -> None:
    """Where something follows it, that would be read at the wrong place; in XCDR2, it has a DHEADER."""
    of = {
        "struct": "@appendable struct I {{ long a; {} }};",
        "union": "@appendable union I switch (long) {{ case 1: long a; {} }};",
    }[inner]
    more = {"struct": "long b;", "union": "case 2: string b;"}[inner]
    old, new = (parse_idl(of.format(members) + outer)["S"] for members in ("", more))
    assert isinstance(old, Struct)
    assert isinstance(new, Struct)
    for writer, reader, able in ((new, old, wider), (old, new, narrower)):
        assert incompatibilities_of_types(writer, reader, TypeConsistency()) == ()
        reasons = incompatibilities_of_types(writer, reader, TypeConsistency(), in_xcdr1=True)
        assert (reasons == ()) is able
        assert all("let the writer use XCDR2" in reason for reason in reasons)
        assert incompatibilities_of_types(writer, writer, TypeConsistency(), in_xcdr1=True) == ()


def test_bounds_inside_of_appendable_values_may_differ_in_xcdr1() -> None:
    idl = "@appendable struct I {{ string<{}> a; }}; @appendable struct S {{ I i; long x; }};"
    short, long = (parse_idl(idl.format(bound))["S"] for bound in (8, 16))
    assert isinstance(short, Struct)
    assert isinstance(long, Struct)
    assert incompatibilities_of_types(short, long, TypeConsistency(), in_xcdr1=True) == ()
