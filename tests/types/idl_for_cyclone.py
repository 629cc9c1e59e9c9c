"""Types of the model as IDL that Cyclone DDS's compiler takes, written apart from the printer of the project."""

from __future__ import annotations

from spark_rtps.transport.types import model
from spark_rtps.transport.types.model import Alias, Array, Bitmask, Enum, Map, Sequence, Struct, Union

_KEYWORDS = {"struct", "long", "sequence", "default"}
_TRY_CONSTRUCT = {
    model.TryConstruct.DISCARD: "",
    model.TryConstruct.USE_DEFAULT: "@try_construct(USE_DEFAULT) ",
    model.TryConstruct.TRIM: "@try_construct(TRIM) ",
}


def idl_text(t: model.Type) -> str:
    """A definition of each named type in it, those that others need first."""
    definitions: dict[str, str] = {}
    _define(t, definitions)
    return "\n".join(definitions.values())


def _define(t: model.Type, definitions: dict[str, str]) -> None:
    if isinstance(t, Sequence | Array):
        _define(t.element, definitions)
    elif isinstance(t, Map):
        _define(t.key, definitions)
        _define(t.value, definitions)
    elif isinstance(t, Alias):
        _define(t.type, definitions)
        _emit(t.name, f"typedef {_declared(t.type, _last(t.name))};", definitions)
    elif isinstance(t, Enum):
        names = (
            f"{'@default_literal ' * (name == t.default)}@value({value}) {name}" for name, value in t.literals
        )
        _emit(
            t.name,
            f"@bit_bound({t.bit_bound}) @final enum {_last(t.name)} {{ {', '.join(names)} }};",
            definitions,
        )
    elif isinstance(t, Bitmask):
        flags = (f"@position({position}) {name}" for name, position in t.flags)
        _emit(
            t.name,
            f"@bit_bound({t.bit_bound}) bitmask {_last(t.name)} {{ {', '.join(flags)} }};",
            definitions,
        )
    elif isinstance(t, Struct):
        if t.base is not None:
            _define(t.base, definitions)
        for member in t.own_members:
            _define(member.type, definitions)
        base = "" if t.base is None else f" : ::{t.base.name}"
        members = " ".join(map(_member, t.own_members))
        _emit(t.name, f"{_annotated(t)}struct {_last(t.name)}{base} {{ {members} }};", definitions)
    elif isinstance(t, Union):
        _define(t.discriminator, definitions)
        for case in t.cases:
            _define(case.type, definitions)
        cases = " ".join(_case(t, case) for case in t.cases)
        switch = f"{'@key ' * t.key}{_spelled(t.discriminator)}"
        _emit(t.name, f"{_annotated(t)}union {_last(t.name)} switch ({switch}) {{ {cases} }};", definitions)


def _emit(name: str, body: str, definitions: dict[str, str]) -> None:
    modules = name.split("::")[:-1]
    opened = "".join(f"module {module} {{ " for module in modules)
    definitions[name] = f"{opened}{body}{' };' * len(modules)}"


def _last(name: str) -> str:
    return name.split("::")[-1]


def _annotated(t: Struct | Union) -> str:
    return f"{'@nested ' * t.nested}{'@autoid(HASH) ' * t.autoid_hash}@{t.extensibility.value} "


def _member(member: model.Member) -> str:
    flags = (
        "@key " * member.key + "@optional " * member.optional + "@must_understand " * member.must_understand
    )
    return f"{_id(member)}{flags}{_shared(member)}{_declared(member.type, member.name)};"


def _case(union: Union, case: model.Case) -> str:
    labels = "".join(f"case {_label(union.discriminator, label)}: " for label in case.labels)
    return f"{labels}{'default: ' * case.default}{_id(case)}{_shared(case)}{_declared(case.type, case.name)};"


def _id(member: model.Member | model.Case) -> str:
    """@id, unless the id is that of @hashid."""
    hashed = dict(member.notes).get("hashid")
    if hashed is None:
        return f"@id({member.id}) "
    return f'@hashid("{hashed}") ' if hashed else "@hashid "


def _shared(member: model.Member | model.Case) -> str:
    notes = {name: f'"{value}"' if isinstance(value, str) else str(value) for name, value in member.notes}
    notes.pop("hashid", None)
    notes.pop("default", None)  # has no place in a type object
    written = "".join(f"@{name}({value}) " for name, value in notes.items())
    return f"{'@external ' * member.external}{_TRY_CONSTRUCT[member.try_construct]}{written}"


def _label(discriminator: model.Type, label: int) -> str:
    t = model.resolve(discriminator)
    if isinstance(t, Enum):
        literal = next(name for name, value in t.literals if value == label)
        return "::".join(["", *t.name.split("::")[:-1], literal])
    if isinstance(t, model.Primitive) and t.kind is model.PrimitiveKind.BOOLEAN:
        return "TRUE" if label else "FALSE"
    if isinstance(t, model.Primitive) and t.kind is model.PrimitiveKind.CHAR8:
        return f"'{chr(label)}'"
    return str(label)


def _declared(t: model.Type, name: str) -> str:
    name = f"_{name}" if name.lower() in _KEYWORDS else name
    if isinstance(t, Array):
        return f"{_spelled(t.element)} {name}{''.join(f'[{length}]' for length in t.dimensions)}"
    return f"{_spelled(t)} {name}"


def _spelled(t: model.Type) -> str:
    if isinstance(t, model.Primitive):
        return t.kind.value
    if isinstance(t, model.String | model.WString):
        word = "string" if isinstance(t, model.String) else "wstring"
        return f"{word}<{t.bound}>" if t.bound else word
    if isinstance(t, Sequence):
        return f"sequence<{_spelled(t.element)}{f', {t.bound}' if t.bound else ''} >"
    if isinstance(t, Map):
        return f"map<{_spelled(t.key)}, {_spelled(t.value)}{f', {t.bound}' if t.bound else ''}>"
    assert not isinstance(t, Array), "IDL has no name for an array"
    return f"::{t.name}"
