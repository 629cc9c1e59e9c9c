"""Annotations (IDL 4.2 §8, XTypes 1.3 §7.3.1.2): those before a definition, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lark import Token

from .expressions import Constant
from .syntax import Node, first_token, names, token, tree, trees
from .tokens import IdlError

#: The spellings of annotations before XTypes 1.2, in lower case.
_OLD_NAMES: Final = {
    "bitbound": "bit_bound",
    "mustunderstand": "must_understand",
    "shared": "external",
    "tryconstruct": "try_construct",
}


class Annotation:
    def __init__(self, node: Node) -> None:
        self.at = token(node.children[0])
        spelled = self.at[1:].strip()
        self.name = _OLD_NAMES.get(spelled.lower(), spelled.lower())
        #: Expressions by parameter; a parameter without a name is ``value``.
        self.arguments: dict[str, Node] = {}
        for arguments in trees(node, "arguments"):
            for child in map(tree, arguments.children):
                if child.data == "argument":
                    self.arguments[str(child.children[0])] = tree(child.children[1])
                else:
                    self.arguments["value"] = child


class Annotations:
    """The annotations before a definition. ``evaluate`` calculates an argument; ``note`` is called for unused ones."""

    def __init__(
        self,
        nodes: list[Node],
        evaluate: Callable[[Node], Constant],
        note: Callable[[Token, str], None],
    ) -> None:
        self.all = [Annotation(node) for node in nodes]
        self._by_name = {annotation.name: annotation for annotation in self.all}
        self._evaluate = evaluate
        self._note = note

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Annotation:
        return self._by_name[name]

    def flag(self, name: str, default: bool = False) -> bool:
        """``@name``, ``@name(TRUE)`` or ``@name(FALSE)``; ``default`` without any of these."""
        if name not in self:
            return default
        annotation = self[name]
        if "value" not in annotation.arguments:
            return True
        value = self._evaluate(annotation.arguments["value"])
        if not isinstance(value, bool):
            raise IdlError(annotation.at, f"@{name} needs TRUE or FALSE")
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """``@name(5)``."""
        if name not in self:
            return None
        annotation = self[name]
        node = annotation.arguments.get("value")
        value = None if node is None else self._evaluate(node)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise IdlError(annotation.at, f"@{name} needs a number from {low} to {high}")
        return int(value)

    def text(self, name: str) -> str | None:
        """``@name("text")``; the empty text without an argument."""
        if name not in self:
            return None
        annotation = self[name]
        node = annotation.arguments.get("value")
        value = "" if node is None else self._evaluate(node)
        if not isinstance(value, str):
            raise IdlError(annotation.at, f'@{name} needs a text: write @{name}("...")')
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str | None = None) -> str | None:
        """``@name(ONE)`` with one of several words, which are not constants; ``default`` is that of ``@name``."""
        if name not in self:
            return None
        annotation = self[name]
        node = annotation.arguments.get("value")
        words = names(node) if node is not None and node.data == "scoped" else []
        found = str(words[-1]) if words else default if node is None else None
        if found is None or found.removesuffix(f"_{name.upper()}") not in choices:
            at = (first_token(node) if node is not None else None) or annotation.at
            raise IdlError(at, f"@{name} needs {', '.join(choices[:-1])} or {choices[-1]}")
        return found.removesuffix(f"_{name.upper()}")

    def ignore_but(self, *understood: str) -> None:
        """Note the annotations that have no meaning here. Raises IdlError if one with a meaning occurs twice."""
        for annotation in self.all:
            if annotation.name not in understood:
                self._note(annotation.at, f"{annotation.at} is ignored")
            elif annotation is not self[annotation.name]:
                raise IdlError(
                    self[annotation.name].at, f"@{annotation.name} is here twice: keep one of them"
                )
