"""Constants and expressions (IDL 4.2 §7.4.1.4.3)."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from lark import Token, Tree

from ..model import INTEGER_RANGES, Enum, Primitive, PrimitiveKind, String, Type, WString, resolve
from .syntax import Node, token
from .tokens import IdlError

#: The value of a constant; chars are str, like strings.
Constant: TypeAlias = int | float | str | bool

_FLOATS: Final = (PrimitiveKind.FLOAT32, PrimitiveKind.FLOAT64, PrimitiveKind.FLOAT128)
_CHARACTERS: Final = {PrimitiveKind.CHAR8: 0xFF, PrimitiveKind.CHAR16: 0xFFFF}
_UNARY: Final[dict[str, Callable[[Any], int | float]]] = {
    "+": operator.pos,
    "-": operator.neg,
    "~": operator.inv,
}
_BINARY: Final[dict[str, Callable[[Any, Any], int | float]]] = {
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "<<": operator.lshift,
    ">": operator.rshift,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
#: Maximum number of characters of a number that a message shows.
_SHOWN: Final = 40
_ESCAPE: Final = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|(.))", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "v": "\v", "b": "\b", "r": "\r", "f": "\f", "a": "\a"}


class EnumLiteral(int):
    """The value of an enum's literal, with its name."""

    name: str
    enum: str

    def __new__(cls, value: int, name: str, enum: str) -> EnumLiteral:
        made = super().__new__(cls, value)
        made.name, made.enum = name, enum
        return made


def evaluate(node: Node, lookup: Callable[[Node], Constant], kind: PrimitiveKind | None = None) -> Constant:
    """The value of an expression; ``kind`` is the expected type, ``lookup`` finds named constants."""
    if node.data == "literal":
        return literal([token(child) for child in node.children])
    if node.data == "scoped":
        return lookup(node)
    values = [evaluate(child, lookup, kind) for child in node.children if isinstance(child, Tree)]
    sign = next(child for child in node.children if isinstance(child, Token))
    if any(isinstance(value, str) for value in values):
        raise IdlError(sign, f"{sign} needs numbers")
    try:
        return _calculate(str(sign), [value for value in values if not isinstance(value, str)], kind)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise IdlError(sign, f"cannot calculate {sign}: {error}") from None


def _calculate(sign: str, values: list[int | float], kind: PrimitiveKind | None) -> Constant:
    if len(values) == 1:
        if sign == "~" and kind is not None and INTEGER_RANGES.get(kind, (-1, 0))[0] == 0:
            return INTEGER_RANGES[kind][1] - operator.index(values[0])  # type: ignore[arg-type]
        return _UNARY[sign](values[0])
    a, b = values
    if sign in ("<<", ">") and not 0 <= b < 64:
        raise ValueError(f"shift by {b}")
    if sign in ("/", "%") and isinstance(a, int) and isinstance(b, int):
        # C's division truncates towards zero
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if sign == "/" else a - b * quotient
    if sign == "/":
        return a / b
    if sign == "%":
        raise TypeError("not for floating-point numbers")
    found = _BINARY[sign](a, b)
    if isinstance(found, int) and found.bit_length() > 64:
        raise OverflowError("more than 64 bits")
    return found


def literal(tokens: list[Token]) -> Constant:
    at = tokens[0]
    text = str(at)
    if at.type == "INTEGER":
        octal = len(text) > 1 and text[0] == "0" and text.isdigit()
        try:
            number = int(text, 8 if octal else 0)
        except ValueError:
            raise IdlError(at, f"{text[:_SHOWN]} is no number: one that starts with 0 is octal") from None
        if number.bit_length() > 64:
            raise IdlError(at, f"{text[:_SHOWN]} has more than 64 bits")
        return number
    if at.type == "REAL":
        return float(text.rstrip("fFdDlL"))
    if at.type in ("TRUE", "FALSE"):
        return at.type == "TRUE"
    value = "".join(_unescape(str(part).removeprefix("L")[1:-1]) for part in tokens)
    return value if at.type == "CHARACTER" else _joined(value, at)


def _joined(text: str, at: Token) -> str:
    """A text in which each surrogate pair is replaced by its character."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise IdlError(at, "a text has half a surrogate pair: write both halves") from None


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[4] is not None:
            return _ESCAPES.get(match[4], match[4])
        digits = match[1] or match[2] or match[3]
        return chr(int(digits, 8 if match[1] else 16))

    return _ESCAPE.sub(character, text) if "\\" in text else text


def constant_of(value: Constant, t: Type, at: Token | None) -> Constant:
    """A value as a constant of a type. Raises IdlError if it is not a value of that type."""
    t = resolve(t)
    if isinstance(t, Enum):
        if isinstance(value, EnumLiteral) and value.enum == t.name:
            return value
        raise IdlError(at, f"{spoken(value)} is no literal of {t.name}: write one of {_names(t)}")
    if isinstance(t, String | WString):
        if isinstance(value, str):
            return value
        raise IdlError(at, f'{spoken(value)} is no text: write "..."')
    if not isinstance(t, Primitive):
        raise IdlError(at, "a constant is a number, a boolean, a char, a string or an enum")
    return _primitive_of(value, t.kind, at)


def _primitive_of(value: Constant, kind: PrimitiveKind, at: Token | None) -> Constant:
    if kind is PrimitiveKind.BOOLEAN:
        if isinstance(value, bool):
            return value
        raise IdlError(at, f"{spoken(value)} is no boolean: write TRUE or FALSE")
    if kind in _CHARACTERS:
        if isinstance(value, str) and len(value) == 1 and ord(value) <= _CHARACTERS[kind]:
            return value
        raise IdlError(at, f"{spoken(value)} is no {kind.value}: write such as 'x'")
    if isinstance(value, bool | str):
        raise IdlError(at, f"{spoken(value)} is no number")
    if kind in _FLOATS:
        return float(value)
    low, high = INTEGER_RANGES[kind]
    if isinstance(value, float) or not low <= value <= high:
        raise IdlError(at, f"{spoken(value)} is no {kind.value}: write an integer from {low} to {high}")
    return int(value)


def spoken(value: Constant) -> str:
    if isinstance(value, EnumLiteral):
        return value.name
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return repr(value)


def _names(t: Enum) -> str:
    return ", ".join(name for name, _ in t.literals[:8]) + (", ..." if len(t.literals) > 8 else "")
