"""Hypothesis strategies for types of the whole model, and for values of them.

``structs()`` makes named, nested, keyed types; ``values(t)`` makes what ``to_pylist`` gives for ``arrow_type(t)``.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from spark_rtps.transport.types.model import (
    Alias,
    Array,
    BitField,
    Bitmask,
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
    TryConstruct,
    Type,
    Union,
    WString,
    hash_id,
    is_bytes,
    resolve,
    traverse,
)

#: What types may have; ``annotations`` are those that change no byte (@external, @try_construct, @unit, @nested ...)
#: and the ids that are not in sequence.
FEATURES = frozenset(
    {
        "optional",
        "mutable",
        "union",
        "map",
        "bitmask",
        "bitset",
        "wide",
        "alias",
        "inheritance",
        "enum",
        "float128",
        "annotations",
    }
)
#: Arrays as elements without a typedef: IDL has no words for them, type objects and Arrow schemas do.
ANONYMOUS_ARRAYS = "anonymous_arrays"

RANGES = {
    PrimitiveKind.BYTE: (0, 255),
    PrimitiveKind.INT8: (-128, 127),
    PrimitiveKind.UINT8: (0, 255),
    PrimitiveKind.INT16: (-(1 << 15), (1 << 15) - 1),
    PrimitiveKind.UINT16: (0, (1 << 16) - 1),
    PrimitiveKind.INT32: (-(1 << 31), (1 << 31) - 1),
    PrimitiveKind.UINT32: (0, (1 << 32) - 1),
    PrimitiveKind.INT64: (-(1 << 63), (1 << 63) - 1),
    PrimitiveKind.UINT64: (0, (1 << 64) - 1),
}
_INTEGERS = list(RANGES)
_PLAIN = [k for k in PrimitiveKind if k not in (PrimitiveKind.FLOAT128, PrimitiveKind.CHAR16)]
_SCOPES = ["lab::", "lab::", "lab::inner::", ""]
#: Some members are named so that IDL must escape them.
_KEYWORDS = ["struct", "long", "sequence", "Default", "key"]


# --- types --------------------------------------------------------------------------------------------


@st.composite
def structs(draw: st.DrawFn, *, depth: int = 2, features: frozenset[str] = FEATURES) -> Struct:
    """Structs with at most ``depth`` levels of collections, unions and structs inside, and those features only.

    No two types inside have the same name unless they are the same.
    """
    return _Builder(draw, features).struct(depth)


@st.composite
def model_types(draw: st.DrawFn, *, depth: int = 2, features: frozenset[str] = FEATURES) -> Type:
    """Types of all kinds, with those features only."""
    return _Builder(draw, features).type(depth)


class _Builder:
    """One drawing of a type; ``made`` are the types with a name so far, which may be used again."""

    def __init__(self, draw: st.DrawFn, features: frozenset[str]) -> None:
        self.draw = draw
        self.features = features
        self.made: list[Type] = []
        self.count = 0

    def one(self, values: list[Any]) -> Any:
        return self.draw(st.sampled_from(values))

    def sometimes(self, feature: str = "", one_in: int = 4) -> bool:
        return (not feature or feature in self.features) and self.draw(st.integers(1, one_in)) == one_in

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{self.one(_SCOPES)}{stem}{self.count}"

    def named(self, t: Type) -> Type:
        self.made.append(t)
        return t

    # shallow types

    def type(self, depth: int) -> Type:
        makers: list[Callable[[int], Type]] = [self.primitive, self.primitive, self.string]
        shallow = {"enum": self.enum, "bitmask": self.bitmask, "bitset": self.bitset, "wide": self.wide}
        makers += [maker for feature, maker in shallow.items() if feature in self.features]  # type: ignore[misc]
        if self.made and self.sometimes(one_in=6):
            return self.draw(st.sampled_from(self.made))
        if depth > 0:
            makers += [self.sequence, self.array, self.struct]
            if "map" in self.features:
                makers.append(self.map)
            if "union" in self.features:
                makers.append(self.union)
        if "alias" in self.features:
            makers.append(self.alias)
        maker: Callable[[int], Type] = self.one(makers)
        return maker(depth)

    def primitive(self, _depth: int) -> Primitive:
        kinds = list(_PLAIN)
        if "wide" in self.features:
            kinds.append(PrimitiveKind.CHAR16)
        if "float128" in self.features:
            kinds.append(PrimitiveKind.FLOAT128)
        return Primitive(self.one(kinds))

    def string(self, _depth: int) -> String:
        return String(self.one([0, 0, 5, 300]))

    def wide(self, _depth: int) -> WString:
        return WString(self.one([0, 0, 5, 300]))

    def enum(self, _depth: int) -> Enum:
        name = self.name("E")
        bits = self.one([32, 32, 32, 8, 16, 5, 20])
        low = -(1 << bits - 1) if self.sometimes() else 0
        if self.sometimes(one_in=2):
            numbers = list(range(self.number(1, 4)))
        else:
            top = (1 << bits - 1) - 1
            numbers = self.draw(st.lists(st.integers(low, top), min_size=1, max_size=4, unique=True))
        literals = tuple((f"{name.split('::')[-1]}_{i}", value) for i, value in enumerate(numbers))
        default = self.one([n for n, _ in literals]) if self.sometimes("annotations") else None
        return self.named(Enum(name, literals, bits, default))  # type: ignore[return-value]

    def bitmask(self, _depth: int) -> Bitmask:
        bits = self.one([32, 8, 16, 64, 1, 5, 12, 40])
        positions = self.draw(st.lists(st.integers(0, bits - 1), min_size=1, max_size=4, unique=True))
        flags = tuple((f"f{position}", position) for position in sorted(positions))
        return self.named(Bitmask(self.name("M"), flags, bits))  # type: ignore[return-value]

    def bitset(self, _depth: int, base: Bitset | None = None) -> Bitset:
        if base is None and self.sometimes("inheritance"):
            base = self.bitset(0)
            if base.size == 64:
                return base
        name = self.name("B")
        fields = list(base.fields) if base is not None else []
        size = base.size if base is not None else 0
        for i in range(self.number(1, 3)):
            size += min(self.number(0, 3), 64 - size) if self.sometimes() else 0
            kind = self.one([None, None, *_INTEGERS])
            most = min(64 - size, 64 if kind is None else _bits(kind))
            if most < 1:
                break
            bits = self.number(1, most)
            fields.append(BitField(f"{name.split('::')[-1]}_{i}", size, bits, kind or bitfield_kind(bits)))
            size += bits
        if not fields or (base is not None and fields == list(base.fields)):
            fields.append(BitField(f"{name.split('::')[-1]}_last", 63, 1, PrimitiveKind.BOOLEAN))
            size = 64
        size += self.number(0, min(3, 64 - size)) if self.sometimes() else 0
        return self.named(Bitset(name, tuple(fields), size, base))  # type: ignore[return-value]

    # types with others inside

    def element(self, depth: int) -> Type:
        t = self.type(depth)
        if isinstance(t, Array) and ANONYMOUS_ARRAYS not in self.features:
            if "alias" not in self.features:
                return t.element
            return self.named(Alias(self.name("A"), t))
        return t

    def sequence(self, depth: int) -> Sequence:
        return Sequence(self.element(depth - 1), self.one([0, 0, 4, 300]))

    def array(self, depth: int) -> Array:
        return Array(self.element(depth - 1), self.one([(1,), (3,), (2, 2), (2, 1, 3)]))

    def map(self, depth: int) -> Map:
        keys: list[Type] = [Primitive(kind) for kind in _INTEGERS] + [String(), String(), String(5)]  # type: ignore[assignment]
        if "wide" in self.features:
            keys.append(WString())
        return Map(self.one(keys), self.element(depth - 1), self.one([0, 0, 4]))

    def alias(self, depth: int) -> Alias:
        t = self.type(depth)
        return self.named(Alias(self.name("A"), t))  # type: ignore[return-value]

    def struct(self, depth: int) -> Struct:
        base = None
        if depth > 0 and self.sometimes("inheritance", 5):
            base = self.struct(depth - 1)
        extensibility = self.extensibility() if base is None else base.extensibility
        hashed = self.sometimes("annotations", 6)
        members = list(base.members) if base is not None else []
        following = members[-1].id + 1 if members else 0
        for _ in range(self.number(1, 4)):
            name = self.member_name([member.name for member in members])
            t = self.type(depth - 1)
            notes = self.notes(t)
            hashid = dict(notes).get("hashid")
            if hashid is not None or hashed:
                member_id = hash_id(str(hashid or name))
            else:
                jump = self.one([1, 3, 300, 20000, 0x400000]) if self.sometimes("annotations", 8) else 0
                member_id = (following + jump) & 0x0FFF_FFFF
            if any(member.id == member_id for member in members):
                continue
            key = base is None and _may_be_key(t) and self.sometimes()
            optional = not key and self.sometimes("optional", 3)
            members.append(
                Member(
                    name,
                    t,
                    member_id,
                    key,
                    optional,
                    must_understand=self.sometimes("annotations", 8),
                    external=self.sometimes("annotations", 8),
                    try_construct=self.try_construct(),
                    notes=notes,
                )
            )
            following = member_id + 1
        nested = self.sometimes("annotations", 6)
        struct = Struct(self.name("S"), tuple(members), extensibility, base, nested, hashed)
        return self.named(struct)  # type: ignore[return-value]

    def union(self, depth: int) -> Union:
        discriminator = self.discriminator()
        labels = self.labels(discriminator)
        hashed = self.sometimes("annotations", 6)
        cases: list[Case] = []
        has_default = False
        following = 1
        while labels and len(cases) < 3:
            own = tuple(labels.pop(0) for _ in range(min(len(labels), self.one([1, 1, 2]))))
            default = bool(labels) and not has_default and self.sometimes()
            if default and self.sometimes(one_in=2):
                labels, own = list(own) + labels, ()
            has_default = has_default or default
            name = self.member_name([case.name for case in cases])
            jump = self.one([1, 70]) if self.sometimes("annotations", 8) else 0
            case_id = hash_id(name) if hashed else following + jump
            t = self.type(depth - 1)
            external = self.sometimes("annotations", 8)
            cases.append(Case(name, t, case_id, own, default, external, self.try_construct()))
            following = case_id + 1
        key, nested = self.sometimes(), self.sometimes("annotations", 6)
        union = Union(self.name("U"), discriminator, tuple(cases), self.extensibility(), key, nested, hashed)
        return self.named(union)  # type: ignore[return-value]

    def discriminator(self) -> Type:
        kinds = [*_INTEGERS, PrimitiveKind.INT32, PrimitiveKind.BOOLEAN, PrimitiveKind.CHAR8]
        if "wide" in self.features:
            kinds.append(PrimitiveKind.CHAR16)
        t: Type = Primitive(self.one(kinds))
        if self.sometimes("enum"):
            t = self.enum(0)
        if self.sometimes("alias", 6):
            t = self.named(Alias(self.name("A"), t))
        return t

    def labels(self, discriminator: Type) -> list[int]:
        t = resolve(discriminator)
        if isinstance(t, Enum):
            return [value for _, value in t.literals]
        assert isinstance(t, Primitive)
        if t.kind is PrimitiveKind.BOOLEAN:
            return [1, 0]
        if t.kind in (PrimitiveKind.CHAR8, PrimitiveKind.CHAR16):
            return self.draw(st.permutations([ord(c) for c in "abxyz'\\"]))[:4]
        low, high = RANGES[t.kind]
        return self.draw(st.lists(st.integers(low, high), min_size=2, max_size=5, unique=True))

    # what members have

    def member_name(self, taken: list[str]) -> str:
        if self.sometimes(one_in=10):
            name: str = self.one(_KEYWORDS)
            if name.lower() not in [other.lower() for other in taken]:
                return name
        return f"m{len(taken)}"

    def extensibility(self) -> Extensibility:
        kinds = [Extensibility.FINAL, Extensibility.APPENDABLE]
        if "mutable" in self.features:
            kinds.append(Extensibility.MUTABLE)
        found: Extensibility = self.one(kinds)
        return found

    def try_construct(self) -> TryConstruct:
        found: TryConstruct = (
            self.one(list(TryConstruct)) if self.sometimes("annotations", 8) else TryConstruct.DISCARD
        )
        return found

    def notes(self, t: Type) -> tuple[tuple[str, int | float | str | bool], ...]:
        """In the order of their names, as the reader of IDL has them."""
        t = resolve(t)
        notes: list[tuple[str, int | float | str | bool]] = []
        if self.sometimes("annotations", 8):
            if isinstance(t, Enum):
                notes.append(("default", t.literals[0][0]))
            elif isinstance(t, String):
                notes.append(("default", self.one(["", 'say "hi"\n', "\\", "é\t\x01f"])))
            elif isinstance(t, Primitive) and t.kind is PrimitiveKind.BOOLEAN:
                notes.append(("default", self.one([True, False])))
            elif isinstance(t, Primitive) and t.kind is PrimitiveKind.CHAR8:
                notes.append(("default", self.one(["a", "'", '"', "\\", "\x00"])))
            elif isinstance(t, Primitive) and t.kind in (PrimitiveKind.FLOAT32, PrimitiveKind.FLOAT64):
                notes.append(("default", self.one([0.5, -1e300, 3.0])))
            elif isinstance(t, Primitive) and t.kind in RANGES:
                low, high = RANGES[t.kind]
                notes.append(("default", self.one([low, high, 7])))
        if self.sometimes("annotations", 16):
            notes.append(("hashid", self.one(["", "colour"])))
        if isinstance(t, Primitive) and t.kind in RANGES and self.sometimes("annotations", 8):
            notes += [("max", RANGES[t.kind][1]), ("min", RANGES[t.kind][0])]
        if self.sometimes("annotations", 8):
            notes.append(("unit", "m/s"))
        return tuple(notes)


def _bits(kind: PrimitiveKind) -> int:
    return (RANGES[kind][1] - RANGES[kind][0] + 1).bit_length() - 1


def bitfield_kind(bits: int) -> PrimitiveKind:
    """The type of a bit field that names none (IDL 4.2 §7.4.13.4.3.3)."""
    if bits == 1:
        return PrimitiveKind.BOOLEAN
    if bits <= 8:
        return PrimitiveKind.BYTE
    if bits <= 16:
        return PrimitiveKind.UINT16
    return PrimitiveKind.UINT32 if bits <= 32 else PrimitiveKind.UINT64


def _may_be_key(t: Type) -> bool:
    """Neither a map nor anything optional is part of a key."""
    return not any(
        isinstance(inner, Map) or (isinstance(inner, Struct) and any(m.optional for m in inner.members))
        for inner in traverse(t)
    )


# --- values -------------------------------------------------------------------------------------------


def values(t: Type, *, last_char: int = 255) -> st.SearchStrategy[Any]:
    """Values as ``pa.array(...).to_pylist()`` has them for ``arrow_type(t)``.

    No NaN, and no discriminator that selects no branch; ``last_char`` is the greatest code of a char.
    """
    return _Values(last_char).of(t)


class _Values:
    def __init__(self, last_char: int) -> None:
        self.last_char = last_char

    def of(self, t: Type) -> st.SearchStrategy[Any]:
        t = resolve(t)
        if isinstance(t, Primitive):
            return self.primitive(t.kind)
        if isinstance(t, Enum):
            return st.sampled_from([name for name, _ in t.literals])
        if isinstance(t, Bitmask):
            names = [name for name, _ in t.flags]
            return st.sets(st.sampled_from(names)).map(lambda found: [n for n in names if n in found])
        if isinstance(t, Bitset):
            return st.fixed_dictionaries({field.name: self.bit_field(field) for field in t.fields})
        if isinstance(t, String):
            return _TEXTS.filter(lambda text: len(text.encode()) <= (t.bound or 99))
        if isinstance(t, WString):
            return _TEXTS.filter(lambda text: len(text.encode("utf-16-le")) <= 2 * (t.bound or 99))
        if isinstance(t, Map):
            pairs = st.tuples(self.of(t.key), self.of(t.value))
            return st.lists(pairs, max_size=3, unique_by=lambda pair: pair[0])
        if isinstance(t, Struct):
            return st.fixed_dictionaries({member.name: self.member(member) for member in t.members})
        if isinstance(t, Union):
            return st.sampled_from(_selections(t)).flatmap(lambda found: self.branch(t, *found))
        if isinstance(t, Sequence):
            return st.binary(max_size=4) if is_bytes(t.element) else st.lists(self.of(t.element), max_size=4)
        assert isinstance(t, Array)
        element, dimensions = self.of(t.element), t.dimensions
        if is_bytes(t.element):
            element = st.binary(min_size=dimensions[-1], max_size=dimensions[-1])
            dimensions = dimensions[:-1]
        for length in reversed(dimensions):
            element = st.lists(element, min_size=length, max_size=length)
        return element

    def primitive(self, kind: PrimitiveKind) -> st.SearchStrategy[Any]:
        if kind is PrimitiveKind.BOOLEAN:
            return st.booleans()
        if kind is PrimitiveKind.CHAR8:
            return st.characters(min_codepoint=0, max_codepoint=self.last_char)
        if kind is PrimitiveKind.CHAR16:
            return st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])
        if kind is PrimitiveKind.FLOAT32:
            return st.floats(width=32, allow_nan=False)
        if kind in (PrimitiveKind.FLOAT64, PrimitiveKind.FLOAT128):
            return st.floats(allow_nan=False)
        integers = st.integers(*RANGES[kind])
        return integers.map(Decimal) if kind is PrimitiveKind.UINT64 else integers

    def bit_field(self, field: BitField) -> st.SearchStrategy[Any]:
        if field.kind is PrimitiveKind.BOOLEAN:
            return st.booleans()
        if RANGES[field.kind][0] < 0:
            return st.integers(-(1 << field.bits - 1), (1 << field.bits - 1) - 1)
        integers = st.integers(0, (1 << field.bits) - 1)
        return integers.map(Decimal) if field.kind is PrimitiveKind.UINT64 else integers

    def member(self, member: Member) -> st.SearchStrategy[Any]:
        return st.none() | self.of(member.type) if member.optional else self.of(member.type)

    def branch(self, t: Union, case: Case, discriminator: Any) -> st.SearchStrategy[Any]:
        fields: dict[str, st.SearchStrategy[Any]] = {t.discriminator_name: st.just(discriminator)}
        fields |= {other.name: st.none() for other in t.cases}
        fields[case.name] = self.of(case.type)
        return st.fixed_dictionaries(fields)


_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


def _selections(t: Union) -> list[tuple[Case, Any]]:
    """Each branch with a value of the discriminator that selects it."""
    found = [(case, label_value(t, label)) for case in t.cases for label in case.labels]
    named = {label for case in t.cases for label in case.labels}
    for case in t.cases:
        if case.default:
            found += [(case, label_value(t, label)) for label in _candidates(t) if label not in named][:2]
    return found


def _candidates(t: Union) -> list[int]:
    disc = resolve(t.discriminator)
    if isinstance(disc, Enum):
        return [value for _, value in disc.literals]
    assert isinstance(disc, Primitive)
    return [0, 1] if disc.kind is PrimitiveKind.BOOLEAN else list(range(48, 64))


def label_value(t: Union, label: int) -> Any:
    """A label as the column of the discriminator has it."""
    disc = resolve(t.discriminator)
    if isinstance(disc, Enum):
        return next(name for name, value in disc.literals if value == label)
    assert isinstance(disc, Primitive)
    if disc.kind is PrimitiveKind.BOOLEAN:
        return bool(label)
    if disc.kind in (PrimitiveKind.CHAR8, PrimitiveKind.CHAR16):
        return chr(label)
    return Decimal(label) if disc.kind is PrimitiveKind.UINT64 else label
