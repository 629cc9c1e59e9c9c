"""DDS types as IDL text."""

from __future__ import annotations

import re
from typing import Final

from ..model import Array, Enum, Member, Primitive, Sequence, String, Struct, Type

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


def print_idl(struct: Struct) -> str:
    """IDL that ``parse_idl`` reads back as the same struct, with all types it uses before it."""
    printer = _Printer()
    printer.define(struct, "")
    return "\n".join(printer.lines) + "\n"


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        #: How a type that needs a definition of its own is spelled.
        self.names: dict[Type, str] = {}

    def define(self, t: Type, user: str) -> None:
        """Print the definitions a type needs, innermost first; ``user`` is the struct that asks for it."""
        if t in self.names or isinstance(t, Primitive | String):
            return
        if isinstance(t, Sequence | Array):
            self.define(t.element, user)
            if isinstance(t.element, Array) and t.element not in self.names:
                # IDL has no other way to make an array an element
                name = f"{user}_array{sum(isinstance(known, Array) for known in self.names)}"
                self.names[t.element] = _absolute(name)
                declaration = self.declaration(t.element, name.split("::")[-1])
                self.emit(name, [f"typedef {declaration};"])
            return
        if isinstance(t, Enum):
            body = _enum(t)
        else:
            for member in t.members:
                self.define(member.type, t.name)
            body = self.struct(t)
        self.names[t] = _absolute(t.name)
        self.emit(t.name, body)

    def emit(self, name: str, body: list[str]) -> None:
        modules = name.split("::")[:-1]
        for depth, module in enumerate(modules):
            self.lines.append("  " * depth + f"module {_escape(module)} {{")
        self.lines.extend("  " * len(modules) + line for line in body)
        self.lines.extend(f"{'  ' * depth}}};" for depth in reversed(range(len(modules))))

    def struct(self, struct: Struct) -> list[str]:
        lines = [f"@{struct.extensibility.value}", f"struct {_escape(struct.name.split('::')[-1])} {{"]
        following = 0
        for member in struct.members:
            lines.append(f"  {_annotations(member, following)}{self.declaration(member.type, member.name)};")
            following = member.id + 1
        return [*lines, "};"]

    def declaration(self, t: Type, name: str) -> str:
        dimensions = ""
        if isinstance(t, Array):
            dimensions = "".join(f"[{length}]" for length in t.dimensions)
            t = t.element
        return f"{self.spelled(t)} {_escape(name)}{dimensions}"

    def spelled(self, t: Type) -> str:
        if isinstance(t, Primitive):
            return t.kind.value
        if isinstance(t, String):
            return f"string<{t.bound}>" if t.bound else "string"
        if isinstance(t, Sequence):
            bound = f", {t.bound}" if t.bound else ""
            return f"sequence<{self.spelled(t.element)}{bound}>"
        return self.names[t]


def _annotations(member: Member, following: int) -> str:
    key = "@key " if member.key else ""
    optional = "@optional " if member.optional else ""
    own_id = f"@id({member.id}) " if member.id != following else ""
    return own_id + key + optional


def _enum(t: Enum) -> list[str]:
    lines = [f"@bit_bound({t.bit_bound})"] if t.bit_bound != 32 else []
    lines.append(f"enum {_escape(t.name.split('::')[-1])} {{")
    following = 0
    for i, (literal, value) in enumerate(t.literals):
        own = f"@value({value}) " if value != following else ""
        comma = "," if i < len(t.literals) - 1 else ""
        lines.append(f"  {own}{_escape(literal)}{comma}")
        following = value + 1
    return [*lines, "};"]


def _escape(name: str) -> str:
    return "_" + name if _KEYWORD.fullmatch(name) or name.startswith("_") else name


def _absolute(name: str) -> str:
    return "::" + "::".join(_escape(part) for part in name.split("::"))
