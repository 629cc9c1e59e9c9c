"""OMG IDL 4.2 (building blocks for data types, with XTypes annotations) to DDS types, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from lark import Token, Tree

from ...errors import TypeDefinitionError
from ...value_classes import slotted
from ..model import Alias, Extensibility, Struct, Type, traverse
from .aggregates import autoid_hash, read_struct, read_union
from .annotations import Annotations
from .enumerations import read_bitmask, read_bitset, read_enum
from .preprocessor import Include, preprocess
from .printer import print_idl
from .reader import Reader, TypeDefaults
from .scopes import Forward, Module, Scope, qualified
from .syntax import Node, identifier, names, syntax_tree, token, tree, trees
from .tokens import IdlError, place_of

__all__ = ["parse_idl", "print_idl"]

_SUFFIX: Final = ".idl"


def parse_idl(
    text: str,
    file: str = "<idl>",
    *,
    extensibility: Extensibility = Extensibility.APPENDABLE,
    include: Include | None = None,
    notes: list[str] | None = None,
) -> dict[str, Type]:
    """Structs, unions, enums, bitmasks, bitsets and typedefs of an IDL text, by qualified name (``a::b::C``).

    ``extensibility`` applies to structs and unions without an annotation; the default is that of XTypes 1.3 §7.3.3.1.8
    (IDL compilers of some vendors differ). ``include`` returns the text of an included file, by its path relative to
    this one; an exception that it raises (TypeDefinitionError, OSError, LookupError) becomes an error at the position
    of the ``#include``. Without ``include``, includes are ignored. ``notes`` receives a line for everything ignored.

    Raises TypeDefinitionError, which names file, line and column.
    """
    definitions = _Definitions([] if notes is None else notes)
    try:
        words = preprocess(text, file, include, definitions.note_at)
        definitions.read_definitions(syntax_tree(words), TypeDefaults(extensibility))
    except IdlError as error:
        raise TypeDefinitionError(_quotable(error, file)) from None
    except RecursionError:
        raise TypeDefinitionError(f"{file}: nested too deeply") from None
    return definitions.types


def _quotable(error: IdlError, file: str) -> str:
    """The text of an error. It quotes nothing of an included file without the suffix of IDL files."""
    place = getattr(error.at, "file", file)
    if error.at is None or place == file or place.lower().endswith(_SUFFIX):
        return str(error)
    return f"{place_of(error.at)}: this is no IDL that can be included"


def parse_struct(idl: str, name: str, file: str) -> Struct:
    """The struct ``name`` of a text by :func:`~.printer.print_idl`. Raises TypeDefinitionError if it is no struct."""
    found = parse_idl(idl, file).get(name)
    if not isinstance(found, Struct):
        raise TypeDefinitionError(f"{file}: {name} is no struct")
    return found


@slotted
class _Definition:
    """A definition, with the scope and the settings of its position in the text."""

    node: Node
    annotations: Annotations
    scope: Scope
    settings: TypeDefaults
    begun: bool = False


class _Definitions(Reader):
    """Reads definitions in the order of the text. If one needs a struct or union that is only declared so far, that
    struct or union is read first, with everything that it needs."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(notes)
        self._all: list[_Definition] = []
        self._by_name: dict[str, _Definition] = {}
        self._ahead = 0

    def read_definitions(self, start: Node, settings: TypeDefaults) -> None:
        self._collect(start, (), settings)
        for definition in self._all:
            self._define(definition)

    def _collect(self, parent: Node, scope: Scope, settings: TypeDefaults) -> None:
        for child in trees(parent, "definition"):
            if isinstance(child.children[0], Token):
                self._add(child, scope, settings, Annotations([], lambda _: 0, self.note_at))
                continue
            annotations = self.annotations(child, scope)
            node = next(tree(each) for each in child.children if tree(each).data != "annotation")
            if node.data != "module":
                self._add(node, scope, settings, annotations)
                continue
            annotations.ignore_but("autoid", "default_nested")
            at = token(node.children[0])
            self.names.declare(scope, at, Module())
            inner = replace(
                settings,
                nested=annotations.flag("default_nested", settings.nested),
                autoid_hash=autoid_hash(annotations, settings),
            )
            self._collect(node, (*scope, identifier(at)), inner)

    def _add(self, node: Node, scope: Scope, settings: TypeDefaults, annotations: Annotations) -> None:
        definition = _Definition(node, annotations, scope, settings)
        self._all.append(definition)
        if node.data == "forward":
            return
        for name in _names_defined(node):
            self._by_name.setdefault(qualified(scope, name).lower(), definition)

    def define_later(self, name: str, declared: bool) -> bool:
        definition = self._by_name.get(name)
        if definition is None or definition.begun or not (declared or self._ahead):
            return False
        self._ahead += 1
        self._define(definition)
        self._ahead -= 1
        return True

    def _define(self, definition: _Definition) -> None:
        if definition.begun:
            return
        definition.begun = True
        node, scope = definition.node, definition.scope
        if node.data == "definition":
            self._keylist(token(node.children[0]), scope)
        elif node.data == "forward":
            definition.annotations.ignore_but("nested", "topic", "final", "appendable", "mutable")
            self.names.declare(scope, token(node.children[0]), Forward())
        elif node.data == "const":
            definition.annotations.ignore_but()
            t = self.type(tree(node.children[0]), scope)
            value = self.evaluate(tree(node.children[2]), scope, t)
            self.names.declare(scope, token(node.children[1]), value)
        elif node.data == "typedef":
            definition.annotations.ignore_but()
            self.annotations(node, scope).ignore_but()
            self._typedef(node, scope, definition.settings)
        else:
            self._declaration(node, definition.annotations, scope, definition.settings)

    def _declaration(
        self, node: Node, annotations: Annotations, scope: Scope, settings: TypeDefaults
    ) -> Type:
        """A type with a name of its own."""
        at = token(node.children[0])
        t: Type
        if node.data in ("struct", "union"):
            self.names.declare(scope, at, Forward())
            read = read_struct if node.data == "struct" else read_union
            t = read(self, node, annotations, scope, settings)
        elif node.data == "enum":
            t = read_enum(self, node, annotations, scope)
        elif node.data == "bitmask":
            t = read_bitmask(self, node, annotations, scope)
        else:
            t = read_bitset(self, node, annotations, scope)
        self.define(scope, at, t)
        return t

    def _typedef(self, node: Node, scope: Scope, settings: TypeDefaults) -> None:
        inner = next(tree(c) for c in node.children if tree(c).data not in ("annotation", "declarator"))
        if inner.data == "type":
            t = self.type(inner, scope)
        else:
            t = self._declaration(inner, Annotations([], lambda _: 0, self.note_at), scope, settings)
        for at, declared in self.declarations(node, t, scope):
            self.define(scope, at, Alias(qualified(scope, identifier(at)), declared))

    def _keylist(self, at: Token, scope: Scope) -> None:
        """``#pragma keylist Struct member member``: the same as @key."""
        name, *keys = at.split() or [""]
        fitting = [qualified(scope[:depth], name) for depth in range(len(scope), -1, -1)]
        found = next((self.types[each] for each in fitting if each in self.types), None)
        if not isinstance(found, Struct):
            raise IdlError(
                at, f"#pragma keylist: there is no struct {name} before it; write @key in the struct"
            )
        own = [member.name for member in found.own_members]
        for key in keys:
            if key not in own:
                raise IdlError(
                    at, f"#pragma keylist: {key} is no member of {name} itself: write @key before it"
                )
        if any(found in traverse(t) for t in self.types.values() if t is not found):
            raise IdlError(at, f"#pragma keylist: {name} is in use already: write @key before its members")
        members = tuple(replace(m, key=m.key or m.name in keys) for m in found.members)
        self.types[found.name] = replace(found, members=members)
        self.names.replace(found.name, self.types[found.name])


def _names_defined(node: Node) -> list[str]:
    """The names that a definition declares."""
    found = []
    for child in node.children:
        if isinstance(child, Tree) and node.data == "typedef":
            if child.data == "declarator":
                found.append(identifier(token(child.children[0])))
            elif child.data not in ("type", "annotation"):
                found += _names_defined(child)
    if node.data != "typedef":
        found += [identifier(at) for at in names(node)]
    if node.data == "enum":
        found += [identifier(names(child)[0]) for child in trees(node, "enumerator")]
    return found
