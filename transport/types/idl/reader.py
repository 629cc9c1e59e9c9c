"""Reads the parts common to all definitions from the syntax tree: types, sizes, constants and annotations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from lark import Token, Tree

from ...value_classes import value
from ..model import (
    LENGTH_MAX,
    Alias,
    Array,
    Bitmask,
    Bitset,
    Enum,
    Extensibility,
    Map,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
    Type,
    Union,
    WString,
    is_map_key,
    resolve,
)
from ..type_size import TOO_LARGE, TypeSizes
from .annotations import Annotations
from .expressions import Constant, EnumLiteral, constant_of, evaluate, spoken
from .scopes import Meaning, Names, Scope
from .syntax import Node, first_token, identifier, keywords, spelled, token, tree, trees
from .tokens import IdlError, place_of

Declared: TypeAlias = tuple[Token, Type]

_INTEGERS: Final = {
    "short": PrimitiveKind.INT16,
    "unsigned short": PrimitiveKind.UINT16,
    "long": PrimitiveKind.INT32,
    "unsigned long": PrimitiveKind.UINT32,
    "long long": PrimitiveKind.INT64,
    "unsigned long long": PrimitiveKind.UINT64,
}
_TYPES: Final = (
    Primitive,
    String,
    WString,
    Enum,
    Bitmask,
    Bitset,
    Sequence,
    Array,
    Map,
    Struct,
    Union,
    Alias,
)


@value
class TypeDefaults:
    """Properties from a module or the caller for the types inside that do not set them."""

    extensibility: Extensibility
    nested: bool = False
    autoid_hash: bool = False


class Reader:
    """Reads types, constants and annotations. ``notes`` gets one line for each ignored name."""

    def __init__(self, notes: list[str]) -> None:
        self.names = Names(self.define_later, self.note_at)
        self.types: dict[str, Type] = {}
        self._notes = notes
        self._sizes = TypeSizes()
        self._noted: set[str] = set()

    def define_later(self, _name: str, _declared: bool) -> bool:
        """Define a name that a later line defines. Returns whether there is such a line."""
        return False

    def note_at(self, at: Token, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._notes.append(f"{place_of(at)}: {text}")

    def define(self, scope: Scope, at: Token, t: Type) -> None:
        if self._sizes.is_too_large(t):
            raise IdlError(at, f"{identifier(at)} is too large a type: {TOO_LARGE}")
        if at.lower() in keywords():
            self.note_at(at, f"{at} is a keyword but for its case, which IDL refuses: write _{at}")
        self.types[self.names.declare(scope, at, t)] = t

    def annotations(self, node: Node, scope: Scope) -> Annotations:
        """The annotations among a node's children, and those in comments after it."""
        return Annotations(trees(node, "annotation"), lambda each: self.evaluate(each, scope), self.note_at)

    # --- types

    def declarations(self, node: Node, t: Type, scope: Scope) -> list[Declared]:
        """The declared names, each with its type including dimensions: ``long a, b[3]``."""
        found = []
        for declarator in trees(node, "declarator"):
            at = token(declarator.children[0])
            sizes = tuple(
                self.size(tree(tree(dimension).children[0]), scope, "array")
                for dimension in declarator.children[1:]
            )
            found.append((at, Array(t, sizes) if sizes else t))
        return found

    def type(self, node: Node, scope: Scope) -> Type:
        if node.data == "scoped":
            return self.named_type(node, scope)
        if node.data == "primitive":
            return self.primitive(node)
        children = [child for child in node.children if isinstance(child, Tree)]
        if node.data == "type":
            return self.type(children[0], scope)
        if node.data in ("string", "wstring"):
            bound = self.size(children[0], scope, str(node.data)) if children else 0
            return String(bound) if node.data == "string" else WString(bound)
        count = 2 if node.data == "map" else 1
        bound = self.size(children[count], scope, str(node.data)) if len(children) > count else 0
        elements = []
        for element in children[:count]:
            self.annotations(element, scope).ignore_but()
            elements.append(self.type(tree(element.children[-1]), scope))
        if count == 1:
            return Sequence(elements[0], bound)
        if not is_map_key(elements[0]):
            raise IdlError(
                first_token(children[0]), "a map's keys are integers, characters, strings or enums"
            )
        return Map(elements[0], elements[1], bound)

    def primitive(self, node: Node) -> Primitive:
        words = " ".join(str(child) for child in node.children)
        return Primitive(_INTEGERS.get(words) or PrimitiveKind(words))

    def named_type(self, node: Node, scope: Scope) -> Type:
        found = self.names.find(node, scope)
        if not isinstance(found, _TYPES):
            raise IdlError(first_token(node), f"{spelled(node)} is a constant, not a type")
        return found

    def size(self, node: Node, scope: Scope, what: str) -> int:
        value = self.evaluate(node, scope)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LENGTH_MAX:
            raise IdlError(
                first_token(node), f"the size of {what} must be a positive number, not {spoken(value)}"
            )
        return int(value)

    # --- constants

    def evaluate(self, node: Node, scope: Scope, t: Type | None = None) -> Constant:
        """The value of an expression; in an expression of an enum's type, the enum's literals need no scope."""
        t = None if t is None else resolve(t)

        def lookup(scoped: Node) -> Constant:
            if isinstance(t, Enum) and len(scoped.children) == 1:
                name = identifier(token(scoped.children[0]))
                code = dict(t.literals).get(name)
                if code is not None:
                    return EnumLiteral(code, name, t.name)
            found: Meaning = self.names.find(scoped, scope)
            if isinstance(found, int | float | str):
                return found
            raise IdlError(first_token(scoped), f"{spelled(scoped)} is a type, not a constant")

        value = evaluate(node, lookup, t.kind if isinstance(t, Primitive) else None)
        return value if t is None else constant_of(value, t, first_token(node))


def annotated(node: Node) -> Node:
    """The part of a node after its annotations."""
    return next(
        tree(child)
        for child in node.children
        if isinstance(child, Tree) and child.data not in ("annotation", "label")
    )


class MemberNames:
    """Names of the members of one type, which must not differ by case only."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.lower(): name for name in taken}

    def add_name(self, at: Token) -> str:
        """The name, unless another member has it."""
        name = identifier(at)
        other = self._taken.get(name.lower())
        if other == name:
            raise IdlError(at, f"two members are named {name}: rename one")
        if other is not None:
            raise IdlError(
                at, f"members {other} and {name} have the same name in IDL, which ignores case: rename one"
            )
        self._taken[name.lower()] = name
        return name
