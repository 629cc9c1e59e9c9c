"""The expressions of ``#if``: integers, ``defined``, and the operators between them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container
from typing import Final

from .tokens import IdlError, Word

#: Binary operators by precedence.
_LEVELS: Final[tuple[dict[str, Callable[[int, int], int]], ...]] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge},
    {"+": operator.add, "-": operator.sub},
)


def holds(at: Word, words: list[Word], defined: Container[str]) -> bool:
    """Whether the condition of an ``#if`` holds. ``words`` are its words with macros expanded, except for the operands
    of ``defined``; remaining names count as 0."""
    condition = _Condition(at, [str(each) for each in words], defined)
    value = condition.binary(0)
    if condition.words:
        raise condition.error(condition.words[-1])
    return bool(value)


class _Condition:
    def __init__(self, at: Word, words: list[str], defined: Container[str]) -> None:
        self.at = at
        #: The words not read yet, in reverse order.
        self.words = words[::-1]
        self.defined = defined

    def error(self, found: str) -> IdlError:
        return IdlError(self.at, f"unexpected {found!r} in the condition: write such as defined(A) && B > 1")

    def next(self) -> str:
        if not self.words:
            raise self.error("end")
        return self.words.pop()

    def binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self.unary()
        value = self.binary(level + 1)
        while self.words and self.words[-1] in _LEVELS[level]:
            calculate = _LEVELS[level][self.words.pop()]
            value = calculate(value, self.binary(level + 1))
        return value

    def unary(self) -> int:
        found = self.next()
        if found == "!":
            return int(not self.unary())
        if found == "-":
            return -self.unary()
        if found == "(":
            value = self.binary(0)
            self.close()
            return value
        if found == "defined":
            in_parentheses = bool(self.words) and self.words[-1] == "("
            if in_parentheses:
                self.next()
            name = self.next()
            if in_parentheses:
                self.close()
            return int(name in self.defined)
        if found.isidentifier():
            return 0
        try:
            return int(found, 8 if found[0] == "0" and found.isdigit() else 0)
        except ValueError:
            raise self.error(found) from None

    def close(self) -> None:
        found = self.next()
        if found != ")":
            raise self.error(found)
