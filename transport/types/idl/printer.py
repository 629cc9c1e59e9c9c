"""DDS types as IDL text."""

from __future__ import annotations

import re
from typing import Final

from ..model import (
    Alias,
    Array,
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
    resolve,
)

_KEYWORD: Final = re.compile(
    r"abstract|any|alias|attribute|bitfield|bitmask|bitset|boolean|case|char|component|connector|"
    r"const|consumes|context|custom|default|double|emits|enum|eventtype|exception|factory|false|"
    r"finder|fixed|float|getraises|home|import|in|inout|interface|local|long|manages|map|mirrorport|"
    r"module|multiple|native|object|octet|oneway|out|primarykey|private|port|porttype|provides|"
    r"public|publishes|raises|readonly|sequence|setraises|short|string|struct|supports|switch|true|"
    r"truncatable|typedef|typeid|typename|typeprefix|union|unsigned|uses|valuebase|valuetype|void|"
    r"wchar|wstring|int8|uint8|int16|uint16|int32|uint32|int64|uint64",
    re.IGNORECASE,
)
_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}
_LETTERS: Final = {"CHAR8": "'", "CHAR16": "L'"}


def print_idl(struct: Struct) -> str:
    """IDL that ``parse_idl`` reads back as the same struct, with all types it uses before it.

    IDL cannot express an array that is an element: it becomes a typedef, and is read back as one.
    """
    printer = _Printer()
    printer.define(struct, "")
    return "\n".join(printer.lines) + "\n"


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        #: The spelling of each type that needs a definition of its own.
        self.names: dict[Type, str] = {}
        self.typedefs = 0

    # --- definitions

    def define(self, t: Type, user: str) -> None:
        """Print the definitions a type needs, innermost first; ``user`` is the type that asks for it."""
        if t in self.names or isinstance(t, Primitive | String | WString):
            return
        if isinstance(t, Sequence | Array | Map):
            for element in (t.key, t.value) if isinstance(t, Map) else (t.element,):
                self.define(element, user)
                if isinstance(element, Array) and element not in self.names:
                    self.typedefs += 1
                    self.typedef(f"{user}_array{self.typedefs}", element, element)
            return
        if isinstance(t, Alias):
            self.define(t.type, t.name)
            self.typedef(t.name, t.type, t)
            return
        if isinstance(t, Struct):
            body = self.struct(t)
        elif isinstance(t, Union):
            body = self.union(t)
        elif isinstance(t, Bitset):
            if t.base is not None:
                self.define(t.base, t.name)
            body = self.bitset(t)
        else:
            body = _enum(t) if isinstance(t, Enum) else _bitmask(t)
        self.emit(t.name, t, body)

    def typedef(self, name: str, t: Type, named: Type) -> None:
        self.emit(name, named, [f"typedef {self.declaration(t, _last(name))};"])

    def emit(self, name: str, t: Type, body: list[str]) -> None:
        # without :: a compiler takes the name for one of the scope that it is used in
        self.names[t] = "::" + "::".join(_escape(part) for part in name.split("::"))
        modules = name.split("::")[:-1]
        for depth, module in enumerate(modules):
            self.lines.append("  " * depth + f"module {_escape(module)} {{")
        self.lines.extend("  " * len(modules) + line for line in body)
        self.lines.extend(f"{'  ' * depth}}};" for depth in reversed(range(len(modules))))

    def struct(self, t: Struct) -> list[str]:
        if t.base is not None:
            self.define(t.base, t.name)
        for member in t.own_members:
            self.define(member.type, t.name)
        lines = _aggregate(t)
        base = f" : {self.names[t.base]}" if t.base is not None else ""
        lines.append(f"struct {_escape(_last(t.name))}{base} {{")
        following = t.base.members[-1].id + 1 if t.base is not None and t.base.members else 0
        for member in t.own_members:
            words = [*_id(member, following, t.autoid_hash), *_annotations(member)]
            lines.append(f"  {_annotated(words, self.declaration(member.type, member.name))};")
            following = member.id + 1
        return [*lines, "};"]

    def union(self, t: Union) -> list[str]:
        self.define(t.discriminator, t.name)
        for case in t.cases:
            self.define(case.type, t.name)
        switch = _annotated(["@key"] if t.key else [], self.spelled(t.discriminator))
        lines = [*_aggregate(t), f"union {_escape(_last(t.name))} switch ({switch}) {{"]
        following = -1  # where they begin is not the same for all compilers
        spelled = self.labels(t)
        for case in t.cases:
            labels = [f"  case {spelled[label]}:" for label in case.labels]
            lines += [*labels, *(["  default:"] if case.default else [])]
            words = [*_id(case, following, t.autoid_hash), *_annotations(case)]
            lines.append(f"    {_annotated(words, self.declaration(case.type, case.name))};")
            following = case.id + 1
        return [*lines, "};"]

    def bitset(self, t: Bitset) -> list[str]:
        base = f" : {self.names[t.base]}" if t.base is not None else ""
        lines = [f"bitset {_escape(_last(t.name))}{base} {{"]
        size, inherited = (t.base.size, len(t.base.fields)) if t.base is not None else (0, 0)
        for field in t.fields[inherited:]:
            if field.position > size:
                lines.append(f"  bitfield<{field.position - size}>;")
            lines.append(f"  bitfield<{field.bits}, {field.kind.value}> {_escape(field.name)};")
            size = field.position + field.bits
        if t.size > size:
            lines.append(f"  bitfield<{t.size - size}>;")
        return [*lines, "};"]

    # --- types where they are used

    def declaration(self, t: Type, name: str) -> str:
        dimensions = ""
        if isinstance(t, Array):
            dimensions = "".join(f"[{length}]" for length in t.dimensions)
            t = t.element
        return f"{self.spelled(t)} {_escape(name)}{dimensions}"

    def spelled(self, t: Type) -> str:
        if isinstance(t, Primitive):
            return t.kind.value
        if isinstance(t, String | WString):
            word = "string" if isinstance(t, String) else "wstring"
            return f"{word}<{t.bound}>" if t.bound else word
        bound = f", {t.bound}" if isinstance(t, Sequence | Map) and t.bound else ""
        if isinstance(t, Sequence | Map):
            key = f"{self.spelled(t.key)}, " if isinstance(t, Map) else ""
            inner = f"{key}{self.spelled(t.value if isinstance(t, Map) else t.element)}{bound}"
            # compilers take the >> after a number for a shift
            space = " " if not bound and inner[-2:-1].isdigit() and inner.endswith(">") else ""
            return f"{'map' if key else 'sequence'}<{inner}{space}>"
        return self.names[t]

    def labels(self, t: Union) -> dict[int, str]:
        """The spelling of each label of a union."""
        discriminator = resolve(t.discriminator)
        labels = (label for case in t.cases for label in case.labels)
        if not isinstance(discriminator, Enum):
            return {label: _label(discriminator, label) for label in labels}
        spelled = self.literals(discriminator)
        return {label: spelled.get(label, str(label)) for label in labels}

    def literals(self, t: Enum) -> dict[int, str]:
        """The spelling of each value of an enum outside of the enum."""
        # a literal's scope is that of its enum; the enum is named where two of one scope have that literal
        name, scope = self.names[t], _scope(t)
        outer = name.removesuffix(_escape(_last(t.name)))
        others = (e for e in self.names if isinstance(e, Enum) and e != t and _scope(e) == scope)
        ambiguous = {literal for other in others for literal, _ in other.literals}
        spelled: dict[int, str] = {}
        for literal, value in t.literals:
            own = f"{name}::" if literal in ambiguous else outer
            spelled.setdefault(value, own + _escape(literal))
        return spelled


# --- what needs no other definitions ----------------------------------------------------------------


def _enum(t: Enum) -> list[str]:
    lines = [f"@bit_bound({t.bit_bound})"] if t.bit_bound != 32 else []
    lines += [f"@{t.extensibility.value}"] if t.extensibility is not Extensibility.FINAL else []
    lines.append(f"enum {_escape(_last(t.name))} {{")
    following = 0
    for i, (literal, value) in enumerate(t.literals):
        default = "@default_literal " if literal == t.default else ""
        own = f"@value({value}) " if value != following else ""
        comma = "," if i < len(t.literals) - 1 else ""
        lines.append(f"  {default}{own}{_escape(literal)}{comma}")
        following = value + 1
    return [*lines, "};"]


def _bitmask(t: Bitmask) -> list[str]:
    lines = [f"@bit_bound({t.bit_bound})"] if t.bit_bound != 32 else []
    lines.append(f"bitmask {_escape(_last(t.name))} {{")
    following = 0
    for i, (flag, position) in enumerate(t.flags):
        own = f"@position({position}) " if position != following else ""
        comma = "," if i < len(t.flags) - 1 else ""
        lines.append(f"  {own}{_escape(flag)}{comma}")
        following = position + 1
    return [*lines, "};"]


def _label(t: Type, label: int) -> str:
    """A label of a discriminator that is not an enum."""
    if not isinstance(t, Primitive):
        return str(label)
    if t.kind is PrimitiveKind.BOOLEAN:
        return _literal(bool(label), t)
    return _literal(chr(label) if t.kind.name in _LETTERS else label, t)


def _aggregate(t: Struct | Union) -> list[str]:
    nested = " @nested" if t.nested else ""
    autoid = " @autoid(HASH)" if t.autoid_hash else ""
    return [f"@{t.extensibility.value}{nested}{autoid}"]


def _annotated(words: list[str], declaration: str) -> str:
    if words and declaration.startswith("::") and not words[-1].endswith(")"):
        # compilers take @key ::T for an annotation named key::T
        words[-1] += '("")' if words[-1] == "@hashid" else "(TRUE)"
    return " ".join([*words, declaration])


def _id(member: Member | Case, following: int, hashed: bool) -> list[str]:
    """``@id(n)``, unless the member gets this id without an annotation."""
    hashid = dict(member.notes).get("hashid")
    if hashid is not None or hashed:
        following = hash_id(str(hashid or member.name))
    return [f"@id({member.id})"] if member.id != following else []


def _annotations(member: Member | Case) -> list[str]:
    words = []
    if isinstance(member, Member):
        words += ["@key"] if member.key else []
        words += ["@optional"] if member.optional else []
        words += ["@must_understand"] if member.must_understand else []
    words += ["@external"] if member.external else []
    if member.try_construct is not TryConstruct.DISCARD:
        words.append(f"@try_construct({member.try_construct.value})")
    t = _of_values(member.type)
    for name, value in member.notes:
        if name == "hashid" and not value:
            words.append("@hashid")
        elif value == value:  # IDL has no words for NaN
            of = String() if name in ("unit", "hashid") else t
            words.append(f"@{name}({_literal(value, of)})")
    return words


def _of_values(t: Type) -> Type:
    """The type to which @default, @min and @max of a member refer: in collections, that of the elements."""
    t = resolve(t)
    while isinstance(t, Sequence | Array):
        t = resolve(t.element)
    return t


def _literal(value: float | str | bool, t: Type) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if not isinstance(value, str):
        # there is no word for infinity
        return repr(value).replace("inf", "1e999")
    if isinstance(t, Enum):
        return _escape(value)
    quote = _LETTERS.get(t.kind.name, '"') if isinstance(t, Primitive) else '"'
    quote = 'L"' if isinstance(t, WString) else quote
    return quote + "".join(_character(character, quote[-1]) for character in value) + quote[-1]


def _character(character: str, quote: str) -> str:
    if character == quote:
        return f"\\{quote}"
    if character in _ESCAPES:
        return _ESCAPES[character]
    # octal, for it ends after three digits whatever follows
    return f"\\{ord(character):03o}" if character < " " else character


def _last(name: str) -> str:
    return name.split("::")[-1]


def _scope(t: Enum) -> str:
    return t.name.removesuffix(_last(t.name))


def _escape(name: str) -> str:
    return "_" + name if _KEYWORD.fullmatch(name) or name.startswith("_") else name
