"""Parses the text of a content filter into predicates over a type's fields."""

from __future__ import annotations

import re
from dataclasses import field
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

import pyarrow as pa
from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ...errors import FilterError
from ...limits import FILTER_DEPTH_MAX, FILTER_PARAMETERS_MAX, STRING_MAX
from ...value_classes import value
from ..model import Enum, Struct, resolve
from .fields import Field, FieldKind, find_field, nearest
from .predicates import Comparison, Constant, Like, Not, Operand, Predicate, all_of, any_of
from .truth import Mask

Node: TypeAlias = "Tree[Token]"

_NUMBERS: Final = (FieldKind.INTEGER, FieldKind.FLOAT)
_EXPECTED: Final = {
    "OPERATOR": "a comparison",
    "_LIKE": "LIKE",
    "_BETWEEN": "BETWEEN",
    "_AND": "AND",
    "_OR": "OR",
    "_NOT": "NOT",
    "LPAR": "'('",
    "RPAR": "')'",
    "FIELD": "a field",
    "INTEGER": "a number",
    "TEXT": "a 'text'",
    "PARAMETER": "a parameter (%0)",
    "$END": "the end",
}


@value
class Filter:
    """A content filter of a topic type (DDS 1.4 annex B).

    ``fields`` are the dotted paths of the columns that it needs; they end before an index, and before the parts of a
    ROS 2 time.
    """

    expression: str
    parameters: tuple[str, ...]
    fields: frozenset[str]
    predicate: Predicate = field(repr=False, compare=False)

    def evaluate(self, batch: pa.RecordBatch) -> Mask:
        """A mask of the rows that pass. As in SQL, a comparison with null is unknown, and unknown rows do not pass.

        Columns have the Arrow types of :mod:`..arrow`. Raises UsageError if the batch lacks a column.
        """
        return self.predicate.evaluate(batch).true


def parse_filter(expression: str, parameters: tuple[str, ...], struct: Struct) -> Filter:
    """The filter with its parameters; ``parameters[0]`` is ``%0``, written as a literal (``'RED'``, ``5``).

    Raises FilterError.
    """
    if len(expression) > STRING_MAX:
        raise FilterError(f"filter: it has {len(expression)} characters, more than {STRING_MAX}")
    if len(parameters) > FILTER_PARAMETERS_MAX:
        raise FilterError(f"filter: it has {len(parameters)} parameters, more than {FILTER_PARAMETERS_MAX}")
    if not expression.strip():
        raise FilterError("filter: it is empty; leave it out to have all samples")
    try:
        "".join((expression, *parameters)).encode()
    except UnicodeEncodeError:
        raise FilterError("filter: it is not Unicode: it has half a surrogate pair") from None
    reading = _FilterReading(parameters, struct)
    try:
        predicate = reading.predicate(_parsed(expression), 0)
    except _At as error:
        start = error.token.start_pos or 0
        raise FilterError(f"filter: character {start + 1}, {error.token}: {error}") from None
    return Filter(expression, parameters, frozenset(reading.needed), predicate)


class _At(Exception):
    """A FilterError with its position in the text."""

    def __init__(self, token: Token, message: object) -> None:
        self.token = token
        super().__init__(message)


@cache
def _grammar() -> Lark:
    text = files(__package__).joinpath("filter.lark").read_text("utf-8")
    return Lark(text, parser="lalr", start=["start", "operand"])


def _parsed(expression: str, start: str = "start") -> Node:
    try:
        tree: Node = _grammar().parse(expression, start=start)
    except UnexpectedInput as error:
        accepted: set[str] = set()
        at: int = getattr(error, "pos_in_stream", None) or 0
        if isinstance(error, UnexpectedCharacters):
            accepted = error.allowed or set()
        elif isinstance(error, UnexpectedToken):
            accepted = error.accepts or set()
            at = len(expression) if error.token.type == "$END" else at
        found = (expression[at:].split() or ["the end"])[0][:20]
        wanted = " or ".join(words for name, words in _EXPECTED.items() if name in accepted)
        if found[0] in "'`":
            wanted = "a closing quote"
        if accepted == {"_BETWEEN"} and found.upper() == "LIKE":
            wanted += "; write NOT (field LIKE pattern)"
        message = f"filter: character {at + 1}, {found}: it cannot stand here"
        raise FilterError(f"{message}; expected {wanted}" if wanted else message) from None
    return tree


class _FilterReading:
    """Reads one filter; ``needed`` collects the paths of its fields."""

    def __init__(self, parameters: tuple[str, ...], struct: Struct) -> None:
        self.parameters = parameters
        self.struct = struct
        self.needed: set[str] = set()

    def predicate(self, node: Node, depth: int) -> Predicate:
        if depth > FILTER_DEPTH_MAX:
            raise FilterError(f"filter: it is nested more than {FILTER_DEPTH_MAX} deep")
        nodes: list[Any] = node.children
        if node.data == "disjunction":
            return any_of(*(self.predicate(each, depth + 1) for each in nodes))
        if node.data == "conjunction":
            return all_of(*(self.predicate(each, depth + 1) for each in nodes))
        if node.data == "not":
            return Not(self.predicate(nodes[0], depth + 1))
        if node.data == "comparison":
            operator = "<>" if nodes[1] == "!=" else str(nodes[1])
            return self.comparison(_token(nodes[0]), operator, _token(nodes[2]))
        tokens = [_token(each) for each in nodes]
        if node.data == "like":
            return self.like(*tokens)
        between = self.between(*tokens)
        return between if node.data == "between" else Not(between)

    def comparison(self, left: Token, operator: str, right: Token) -> Predicate:
        a, b = self.field(left, right), self.field(right, left)
        x: Operand
        y: Operand
        if a is not None and b is not None:
            x, y, kind = a, b, _common(a, b, right)
        elif a is not None:
            x, y, kind = a, self.constant(right, a), a.kind
        elif b is not None:
            x, y, kind = self.constant(left, b), b, b.kind
        else:
            raise _At(left, "a comparison needs a field of the type")
        if kind in (FieldKind.OCTETS, FieldKind.BOOLEAN) and operator not in ("=", "<>"):
            raise _At(right, f"{kind.value} can be compared by = and <> only")
        return Comparison(operator, x, y, kind)

    def between(self, value: Token, low: Token, high: Token) -> Predicate:
        if value.type != "FIELD":
            raise _At(value, "BETWEEN needs a field before it")
        return all_of(self.comparison(value, ">=", low), self.comparison(value, "<=", high))

    def like(self, left: Token, right: Token) -> Predicate:
        found = self.field(left, right)
        if found is None or found.kind is not FieldKind.TEXT:
            is_what = f", {left} is {found.kind.value}" if found else ""
            raise _At(left, f"LIKE needs a string field before it{is_what}")
        pattern = self.constant(right, found).value if right.type in ("TEXT", "PARAMETER") else None
        if not isinstance(pattern, str):
            raise _At(right, "LIKE needs a pattern in quotes, such as 'a%'")
        return Like(found, pattern)

    # --- operands -----------------------------------------------------------------------------------

    def field(self, token: Token, other: Token) -> Field | None:
        """The field that a token names; None for a literal, such as an enum's literal if ``other`` is an enum."""
        if token.type != "FIELD":
            return None
        enum = self.enum(other)
        if enum is not None:
            is_literal = any(name == token for name, _ in enum.literals)
            if is_literal or self.struct.member(re.split(r"[.\[]", token, maxsplit=1)[0]) is None:
                return None
        try:
            found = find_field(str(token), self.struct)
        except FilterError as error:
            raise _At(token, error) from None
        self.needed.add(found.needed)
        return found

    def enum(self, token: Token) -> Enum | None:
        """The type of the field that a token names, if it is an enum."""
        try:
            t = resolve(find_field(str(token), self.struct).type) if token.type == "FIELD" else None
        except FilterError:
            return None
        return t if isinstance(t, Enum) else None

    def constant(self, token: Token, other: Field) -> Constant:
        """A literal or parameter in the form in which it is compared with a field."""
        literal, shown = token, str(token)
        if token.type == "PARAMETER":
            literal = self.parameter(token)
            shown = f"{token} = {literal}"
        value = _value(literal, token)
        t = resolve(other.type)
        if isinstance(t, Enum) and isinstance(value, str):
            literals = dict(t.literals)
            if value not in literals:
                raise _At(token, f"{value!r} is no literal of enum {t.name}{nearest(value, literals)}")
            value = literals[value]
        elif literal.type == "FIELD":
            raise _At(token, f"{literal} is no literal: a text must be in quotes")
        if not _fits(value, other.kind):
            fix = "; write TRUE or FALSE" if other.kind is FieldKind.BOOLEAN else ""
            raise _At(token, f"{other.path!r} is {other.kind.value}, {shown} is {_kind_of(value)}{fix}")
        return Constant(value)

    def parameter(self, token: Token) -> Token:
        number = int(token[1:])
        if number >= len(self.parameters):
            given = len(self.parameters)
            raise _At(
                token, f"the parameter is missing: {given or 'none'} {'is' if given == 1 else 'are'} given"
            )
        text = self.parameters[number]
        try:
            literal = _token(_parsed(text, "operand")) if len(text) <= STRING_MAX else None
        except FilterError:
            literal = None
        if literal is None or literal.type == "PARAMETER":
            raise _At(token, f"its value {text[:40]!r} is no literal: a text must be in quotes within it")
        return literal


def _token(node: Node) -> Token:
    token = node.children[0]
    assert isinstance(token, Token)
    return token


def _value(literal: Token, at: Token) -> bool | int | float | str | bytes:
    text = str(literal)
    if literal.type in ("TRUE", "FALSE"):
        return literal.type == "TRUE"
    if literal.type == "REAL":
        return float(text)
    if literal.type == "TEXT":
        return text[1:-1].replace("''", "'")
    if literal.type == "FIELD":
        return text
    if literal.type == "OCTETS":
        try:
            return bytes.fromhex(text[5:-1])
        except ValueError:
            raise _At(at, "octets are pairs of hexadecimal digits, as in &hex(07 08)") from None
    number = int(text, 16 if "x" in text.lower() else 10)
    if not -(1 << 63) <= number < 1 << 64:
        raise _At(at, "an integer has at most 64 bits")
    return number


def _kind_of(value: bool | int | float | str | bytes) -> str:
    kinds = {
        bool: FieldKind.BOOLEAN,
        int: FieldKind.INTEGER,
        float: FieldKind.FLOAT,
        str: FieldKind.TEXT,
        bytes: FieldKind.OCTETS,
    }
    return str(kinds[type(value)].value)


def _fits(value: bool | int | float | str | bytes, kind: FieldKind) -> bool:
    if kind is FieldKind.ENUM:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in _NUMBERS:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is {FieldKind.BOOLEAN: bool, FieldKind.TEXT: str, FieldKind.OCTETS: bytes}[kind]


def _common(a: Field, b: Field, at: Token) -> FieldKind:
    """DDS 1.4 annex B, type promotion: numbers with numbers, enums with integers too."""
    kinds = {a.kind, b.kind}
    if len(kinds) == 1 or kinds <= set(_NUMBERS) or kinds == {FieldKind.ENUM, FieldKind.INTEGER}:
        return a.kind
    raise _At(at, f"{a.path!r} is {a.kind.value}, {b.path!r} is {b.kind.value}")
