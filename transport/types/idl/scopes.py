"""Scopes and the meanings of names (IDL 4.2 §7.2.3, §7.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lark import Token

from ...value_classes import slotted
from ..model import Type
from .expressions import Constant, EnumLiteral
from .syntax import NOT_SUPPORTED, Node, first_token, identifier, names, spelled, token
from .tokens import IdlError, place_of

Scope: TypeAlias = tuple[str, ...]


@slotted
class Module:
    """A module, which may be reopened."""


@slotted
class Forward:
    """A name that is declared but not defined yet."""


@slotted
class Ambiguous:
    """A literal of several enums in one scope."""

    enums: list[str]


Meaning: TypeAlias = Type | Constant | Module | Forward | Ambiguous


@slotted
class _Entry:
    name: str
    at: Token
    meaning: Meaning


class Names:
    """All names of a text by their lower-case form, because IDL ignores case.

    ``define_later(name)`` is called to define a name that is not defined yet, and returns whether it did.
    """

    def __init__(self, define_later: Callable[[str, bool], bool], note: Callable[[Token, str], None]) -> None:
        self._entries: dict[str, _Entry] = {}
        self._define_later = define_later
        self._note = note

    def declare(self, scope: Scope, at: Token, meaning: Meaning) -> str:
        """Give a name its meaning; returns the qualified name. Raises IdlError if it has another meaning."""
        name = qualified(scope, identifier(at))
        entry = self._entries.get(name.lower())
        if entry is None:
            self._entries[name.lower()] = _Entry(name, at, meaning)
            return name
        known = entry.meaning
        if entry.name != name:
            raise IdlError(
                at,
                f"{name} and {entry.name} (at {place_of(entry.at)}) are the same name in IDL, which ignores "
                "case: rename one",
            )
        if isinstance(meaning, EnumLiteral) and isinstance(known, EnumLiteral | Ambiguous):
            enums = known.enums if isinstance(known, Ambiguous) else [known.enum]
            if meaning.enum not in enums:
                # not IDL, but it happens: languages with enums that are scopes need not care
                self._note(at, f"{name} is a literal of {enums[0]} too, which is not IDL")
                entry.meaning = Ambiguous([*enums, meaning.enum])
                return name
        if isinstance(meaning, Module | Forward) and isinstance(known, type(meaning)):
            return name
        if isinstance(meaning, Forward) and not isinstance(known, Module | Constant | Ambiguous):
            return name
        if isinstance(known, Forward) and not isinstance(meaning, Module | Constant):
            entry.meaning = meaning
            return name
        raise IdlError(at, f"{name} is defined twice, first at {place_of(entry.at)}")

    def replace(self, name: str, meaning: Meaning) -> None:
        self._entries[name.lower()].meaning = meaning

    def find(self, node: Node, scope: Scope) -> Meaning:
        """The meaning of a scoped name, looked up from the innermost scope outwards."""
        at = first_token(node)
        assert at is not None
        path = [identifier(each) for each in names(node)]
        absolute = token(node.children[0]).type == "ABSOLUTE"
        other = ""
        for depth in range(0 if absolute else len(scope), -1, -1):
            name = qualified(scope[:depth], *path)
            entry = self._entries.get(name.lower())
            if entry is None or isinstance(entry.meaning, Forward):
                if self._define_later(name.lower(), entry is not None):
                    entry = self._entries[name.lower()]
            if entry is None:
                continue
            if entry.name != name:
                other = other or entry.name
                continue
            if isinstance(entry.meaning, Forward):
                raise IdlError(
                    at,
                    f"{name} is used before its definition; recursive types are not supported, because they have "
                    "no columns",
                )
            if isinstance(entry.meaning, Ambiguous):
                choice = " or ".join(f"{enum}::{path[-1]}" for enum in entry.meaning.enums)
                raise IdlError(at, f"{name} is a literal of several enums: write {choice}")
            if not isinstance(entry.meaning, Module):
                return entry.meaning
        if other:
            raise IdlError(at, f"{spelled(node)} is spelled {other} in its definition")
        if spelled(node) in NOT_SUPPORTED:
            raise IdlError(at, f"{spelled(node)} is not supported: not a data type of a topic")
        raise IdlError(
            at, f"{spelled(node)} is not defined before this line: define it there, or #include its file"
        )


def qualified(scope: Scope, *path: str) -> str:
    return "::".join((*scope, *path))
