"""Every type of the model, printed as IDL, is read back as itself."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.types.arrow import arrow_type
from spark_rtps.transport.types.idl.parser import parse_idl, print_idl
from spark_rtps.transport.types.model import (
    Alias,
    Array,
    BitField,
    Bitset,
    Case,
    Enum,
    Extensibility,
    Map,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    hash_id,
    traverse,
    without_aliases,
)
from tests.types import idl_types

LONG = Primitive(PrimitiveKind.INT32)
_SETTINGS = settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def back(struct: Struct) -> Type:
    notes: list[str] = []
    found = parse_idl(print_idl(struct), notes=notes)[struct.name]
    assert notes == []
    return found


@_SETTINGS
@given(idl_types.structs(depth=3))
def test_printed_types_are_read_back(struct: Struct) -> None:
    assert back(struct) == struct


@_SETTINGS
@given(idl_types.structs(features=idl_types.FEATURES | {idl_types.ANONYMOUS_ARRAYS}))
def test_arrays_without_a_name_come_back_as_typedefs(struct: Struct) -> None:
    assert without_aliases(back(struct)) == without_aliases(struct)


@_SETTINGS
@given(idl_types.structs(), st.data())
def test_values_are_those_of_arrow(struct: Struct, data: st.DataObject) -> None:
    """The strategies themselves: values are what Arrow gives back, and no name stands for two types."""
    named: dict[str, Type] = {}
    for t in traverse(struct):
        if not isinstance(t, Primitive | String | WString | Sequence | Array | Map):
            assert named.setdefault(t.name, t) == t
    value = data.draw(idl_types.values(struct))
    assert pa.array([value], arrow_type(struct)).to_pylist() == [value]


@_SETTINGS
@given(st.data())
def test_features_are_left_out(data: st.DataObject) -> None:
    struct = data.draw(idl_types.structs(features=frozenset({"optional", "enum"})))
    kinds = {type(t) for t in traverse(struct)}
    assert kinds <= {Struct, Primitive, String, Enum, Sequence, Array}
    structs = [t for t in traverse(struct) if isinstance(t, Struct)]
    assert not any(t.base or t.nested or t.extensibility is Extensibility.MUTABLE for t in structs)


def struct_of(*types: Type) -> Struct:
    return Struct("S", tuple(Member(f"m{i}", t, i) for i, t in enumerate(types)))


def test_enumerators_of_equal_names_are_printed_so_that_they_are_read_back() -> None:
    color, light = Enum("a::Color", (("RED", 0), ("OFF", 1))), Enum("a::Light", (("RED", 2), ("ON", 3)))
    union = Union(
        "a::U", light, (Case("x", LONG, 7, (2,)), Case("y", LONG, 1, (), True)), Extensibility.FINAL
    )
    struct = struct_of(color, light, union)
    with_default = replace(struct.members[0], notes=(("default", "RED"),))
    struct = replace(struct, members=(with_default, *struct.members[1:]))
    assert parse_idl(print_idl(struct))["S"] == struct


def test_names_that_idl_keeps_for_itself() -> None:
    inner = Struct("module::Struct", (Member("string", LONG, 0), Member("_long", LONG, 1)))
    enum = Enum("module::enum", (("TRUE", 0), ("default", 1), ("_", 2)), default="TRUE")
    alias = Alias("String", Map(String(), Array(LONG, (2,))))
    assert without_aliases(back(struct_of(inner, enum, alias))) == without_aliases(
        struct_of(inner, enum, alias)
    )
    assert back(struct_of(inner, enum)) == struct_of(inner, enum)


def test_a_bitset_with_gaps_and_a_base() -> None:
    base = Bitset("B", (BitField("a", 2, 3, PrimitiveKind.INT8),), 9)
    bitset = Bitset("C", (*base.fields, BitField("b", 40, 1, PrimitiveKind.UINT64)), 50, base)
    assert back(struct_of(bitset)) == struct_of(bitset)


def test_ids_are_only_printed_where_they_do_not_follow() -> None:
    members = (
        Member("a", LONG, 0),
        Member("b", LONG, 5),
        Member("c", LONG, 6),
        Member("d", LONG, hash_id("d"), notes=(("hashid", ""),)),
        Member("e", LONG, hash_id("q"), notes=(("hashid", "q"),)),
        Member("f", LONG, 9, notes=(("hashid", "q"),)),
    )
    text = print_idl(Struct("S", members))
    assert text == (
        "@final\n"
        "struct S {\n"
        "  int32 a;\n"
        "  @id(5) int32 b;\n"
        "  int32 c;\n"
        "  @hashid int32 d;\n"
        '  @hashid("q") int32 e;\n'
        '  @id(9) @hashid("q") int32 f;\n'
        "};\n"
    )
    assert back(Struct("S", members)) == Struct("S", members)


def test_many_literals_and_labels() -> None:
    """What a label is called is looked up, not searched for; a literal that two enums have names its own."""
    count = 20_000
    color = Enum("m::Color", tuple((f"C{i}", i) for i in range(count)))
    other = Enum("m::Other", tuple((f"C{i}", i) for i in range(0, count, 2)))
    cases = tuple(Case(f"c{i}", LONG, i + 1, labels=(i,)) for i in range(count))
    struct = Struct("m::S", (Member("o", other, 0), Member("u", Union("m::U", color, cases), 1)))
    lines = [line.strip() for line in print_idl(struct).splitlines()]
    labels = [line for line in lines if line.startswith("case ")]
    assert labels == [f"case ::m::{'' if i % 2 else 'Color::'}C{i}:" for i in range(count)]
