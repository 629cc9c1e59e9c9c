"""Writes type objects of XTypes 1.1, as RTI Connext has them: the counterpart of what the project reads."""

from __future__ import annotations

from struct import pack
from typing import Any

from spark_rtps.transport.types.model import (
    Alias,
    Array,
    Case,
    Enum,
    Extensibility,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
)

KINDS = {
    kind: number
    for number, kind in enumerate(
        (
            PrimitiveKind.BOOLEAN,
            PrimitiveKind.BYTE,
            PrimitiveKind.INT16,
            PrimitiveKind.UINT16,
            PrimitiveKind.INT32,
            PrimitiveKind.UINT32,
            PrimitiveKind.INT64,
            PrimitiveKind.UINT64,
            PrimitiveKind.FLOAT32,
            PrimitiveKind.FLOAT64,
            PrimitiveKind.FLOAT128,
            PrimitiveKind.CHAR8,
            PrimitiveKind.CHAR16,
        ),
        start=1,
    )
}
_UNBOUNDED = 0x7FFFFFFF


class Value:
    """One value in XCDR1; alignment counts from its start."""

    def __init__(self, little_endian: bool) -> None:
        self.order = "<" if little_endian else ">"
        self.out = bytearray()

    def put(self, code: str, *values: Any) -> Value:
        for value in values:
            raw = pack(self.order + code, value)
            self.out += bytes(-len(self.out) % len(raw)) + raw
        return self

    def text(self, text: str) -> Value:
        raw = text.encode() + b"\0"
        self.put("I", len(raw))
        self.out += raw + bytes(-len(raw) % 4)
        return self

    def parameter(self, number: int, value: Value, *, extended: bool = False) -> Value:
        raw = bytes(value.out) + bytes(-len(value.out) % 4)
        if extended or len(raw) > 0xFFF0:
            self.put("H", 0x3F01, 8).put("I", number, len(raw))
        else:
            self.put("H", number, len(raw))
        self.out += raw
        return self

    def end(self) -> Value:
        return self.put("H", 0x3F02, 0)


class Library:
    """Writes a type and all it refers to; ``extended`` writes long parameter headers everywhere."""

    def __init__(self, little_endian: bool, extended: bool = False) -> None:
        self.little_endian = little_endian
        self.extended = extended
        self.elements: list[Value] = []
        self.ids: dict[Type, int] = {}

    def value(self) -> Value:
        return Value(self.little_endian)

    def put(self, into: Value, number: int, value: Value) -> None:
        into.parameter(number, value, extended=self.extended)

    def type_object(self, t: Struct) -> bytes:
        meant = self.type_id(self.value(), t)
        library = self.value().put("I", len(self.elements))
        for element in self.elements:
            library.out += element.out
        whole = self.value()
        self.put(whole, 0, library)
        self.put(whole, 1, meant)
        return bytes(whole.end().out)

    def type_id(self, into: Value, t: Type | None) -> Value:
        if t is None:
            return into.put("H", 0, 0)
        if isinstance(t, Primitive):
            return into.put("H", KINDS[t.kind], KINDS[t.kind])
        if t not in self.ids:
            self.element(t)
        return into.put("H", self.kind(t)).put("Q", self.ids[t])

    @property
    def following(self) -> int:
        """The next id."""
        return 0xABCD000000000000 + len(self.ids)

    def kind(self, t: Type) -> int:
        kinds = {Enum: 14, Alias: 16, Array: 17, Sequence: 18, String: 19, WString: 19, Union: 21, Struct: 22}
        return kinds[type(t)]

    def element(self, t: Type) -> None:
        body = self.body(t)
        properties = self.value()
        name = getattr(t, "name", f"anonymous_{len(self.ids)}")
        flags = {Extensibility.FINAL: 1, Extensibility.APPENDABLE: 0, Extensibility.MUTABLE: 2}
        output = flags[t.extensibility] | 4 * t.nested if isinstance(t, Struct | Union) else 0
        self.ids[t] = self.following
        properties.put("H", output, self.kind(t)).put("Q", self.ids[t]).text(name)
        whole = self.value()
        self.put(whole, 0, properties)
        self.put(whole, 1, self.value().put("I", 0))
        for number, value in enumerate(body):
            self.put(whole, 100 + number, value)
        element = self.value()
        self.put(element, 0, self.value().put("I", self.kind(t)))
        self.put(element, 1, whole.end())
        self.elements.append(element.end())

    def body(self, t: Type) -> list[Value]:
        if isinstance(t, Alias):
            return [self.type_id(self.value(), t.type)]
        if isinstance(t, Enum):
            constants = self.value().put("I", len(t.literals))
            for name, number in t.literals:
                constants.put("i", number).text(name)
            return [self.value().put("I", t.bit_bound), constants]
        shared = self.value().put("B", 0)
        if isinstance(t, Array):
            bounds = self.value().put("I", len(t.dimensions), *t.dimensions)
            return [self.type_id(self.value(), t.element), shared, bounds]
        if isinstance(t, Sequence):
            return [
                self.type_id(self.value(), t.element),
                shared,
                self.value().put("I", t.bound or _UNBOUNDED),
            ]
        if isinstance(t, String | WString):
            char = Primitive(PrimitiveKind.CHAR8 if isinstance(t, String) else PrimitiveKind.CHAR16)
            return [self.type_id(self.value(), char), shared, self.value().put("I", t.bound or _UNBOUNDED)]
        if isinstance(t, Struct):
            base = self.type_id(self.value(), t.base)
            written = [self.member(member).end() for member in t.own_members]
            return [base, self.sequence(written)]
        assert isinstance(t, Union)
        switch = Case("discriminator", t.discriminator, 0, ())
        written = [self.case(case, is_key=t.key and case is switch) for case in (switch, *t.cases)]
        return [self.sequence(written)]

    def sequence(self, elements: list[Value]) -> Value:
        sequence = self.value().put("I", len(elements))
        for element in elements:
            sequence.out += element.out
        return sequence

    def member(self, member: Member | Case, *, is_key: bool = False) -> Value:
        if isinstance(member, Member):
            flags = 1 * member.key | 2 * member.optional | 4 * member.external
        else:
            flags = 1 * is_key | 4 * member.external | 8 * member.default
        properties = self.value().put("H", flags).put("I", member.id)
        whole = self.value()
        self.put(whole, 0, self.type_id(properties, member.type).text(member.name))
        self.put(whole, 1, self.value().put("I", 0))
        return whole

    def case(self, case: Case, *, is_key: bool) -> Value:
        whole = self.member(case, is_key=is_key)
        self.put(whole, 100, self.value().put("I", len(case.labels)).put("i", *case.labels))
        return whole.end()
