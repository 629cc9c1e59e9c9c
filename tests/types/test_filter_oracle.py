"""Content filters against an evaluator that takes one row at a time, and Python's exact numbers."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rtps.transport.errors import FilterError
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.filter import parse_filter
from spark_rtps.transport.types.mapping import Mapping
from spark_rtps.transport.types.model import (
    Enum,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    String,
    Struct,
)

LEVEL = Enum("Level", (("LOW", -3), ("MID", 0), ("HIGH", 40), ("TOP", 7)))
VALUES = dict(LEVEL.literals)
INNER = Struct(
    "Inner",
    (
        Member("n", Primitive(PrimitiveKind.INT64), 0),
        Member("t", String(), 1),
        Member("e", LEVEL, 2),
    ),
)
OUTER = Struct(
    "Outer",
    (
        Member("i", Primitive(PrimitiveKind.INT32), 0),
        Member("l", Primitive(PrimitiveKind.INT64), 1),
        Member("u", Primitive(PrimitiveKind.UINT64), 2),
        Member("f", Primitive(PrimitiveKind.FLOAT32), 3),
        Member("d", Primitive(PrimitiveKind.FLOAT64), 4),
        Member("b", Primitive(PrimitiveKind.BOOLEAN), 5),
        Member("t", String(), 6),
        Member("e", LEVEL, 7),
        Member("p", INNER, 8),
        Member("q", Sequence(INNER), 9),
    ),
)
NUMBERS = ["i", "l", "u", "f", "d", "p.n", "q[0].n", "q[1].n"]
TEXTS = ["t", "p.t", "q[0].t"]
ENUMS = ["e", "p.e", "q[1].e"]
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Verdict = bool | None
Row = dict[str, Any]


@dataclass(frozen=True)
class Expression:
    """A text, and what it says of a row."""

    text: str
    verdict: Callable[[Row], Verdict]


def value_at(path: str, row: Row) -> Any:
    value: Any = row
    for step in re.findall(r"\w+", path):
        if value is None:
            return None
        if step.isdigit():
            value = value[int(step)] if int(step) < len(value) else None
        else:
            value = value[step]
    return value


def exact(value: Any) -> Any:
    """A number without its type; infinities and NaN as they are."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return Fraction(value)


def compared(sign: str, a: Any, b: Any) -> Verdict:
    if a is None or b is None:
        return None
    return OPERATORS[sign](a, b)


# --- rows -------------------------------------------------------------------------------------------

EDGES = [0, 1, -1, 2**31 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
SPECIAL = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1e300]
few = st.integers(-2, 2)
longs = few | few | st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)
ulongs = (
    few.map(abs)
    | st.sampled_from([n for n in EDGES if n >= 0] + [2**63, 2**64 - 1])
    | st.integers(0, 2**64 - 1)
)
halves = st.integers(-4, 4).map(lambda n: n / 2)
doubles = halves | halves | st.sampled_from([float(n) for n in EDGES]) | st.floats()
texts = st.text("ab%_\\\n'é\U0001f600", max_size=4)


def random_row(random: Random) -> Row:
    """Half of the values near those of others, some at the edges, some null."""

    def long() -> int:
        return random.choice(
            [random.randint(-2, 2), random.choice(EDGES), random.randint(-(2**63), 2**63 - 1)]
        )

    def real() -> float:
        return random.choice([random.randint(-4, 4) / 2, float(long()), random.choice(SPECIAL)])

    def text() -> str:
        return "".join(random.choices("ab%_\\\n'é\U0001f600", k=random.randint(0, 4)))

    def nullable(value: Any) -> Any:
        return value if random.random() < 0.9 else None

    def inner() -> Row:
        return {"n": nullable(long()), "t": nullable(text()), "e": nullable(random.choice(sorted(VALUES)))}

    return {
        "i": nullable(random.choice([random.randint(-2, 2), random.randint(-(2**31), 2**31 - 1)])),
        "l": nullable(long()),
        "u": nullable(random.choice([abs(long()), 2**64 - 1 - random.randint(0, 2)])),
        "f": nullable(float(np.float32(random.choice([random.randint(-4, 4) / 2, random.uniform(-9, 9)])))),
        "d": nullable(real()),
        "b": nullable(random.random() < 0.5),
        "t": nullable(text()),
        "e": nullable(random.choice(sorted(VALUES))),
        "p": nullable(inner()),
        "q": nullable([nullable(inner()) for _ in range(random.randint(0, 3))]),
    }


# --- expressions ------------------------------------------------------------------------------------


@st.composite
def number_literals(draw: st.DrawFn) -> tuple[str, Any]:
    if draw(st.booleans()):
        number = draw(longs | ulongs)
        return draw(st.sampled_from([str(number), hex(number)])), Fraction(number)
    real = draw(doubles.filter(math.isfinite))
    text = repr(real)
    return text if "." in text or "e" in text else f"{text}.0", Fraction(real)


enum_literals = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.sampled_from([(name, VALUES[name]), (f"'{name}'", VALUES[name])])
) | st.integers(-4, 41).map(lambda n: (str(n), n))
text_literals = texts.filter(lambda text: "\n" not in text).map(
    lambda text: ("'" + text.replace("'", "''") + "'", text)
)


def read(path: str) -> Callable[[Row], Any]:
    def of(row: Row) -> Any:
        value = value_at(path, row)
        if value is None or path in TEXTS:
            return value
        return VALUES[value] if path in ENUMS else exact(value)

    return of


@st.composite
def comparisons(draw: st.DrawFn) -> Expression:
    fields, literals = draw(
        st.sampled_from([(NUMBERS, number_literals()), (TEXTS, text_literals), (ENUMS, enum_literals)])
    )
    path = draw(st.sampled_from(fields))
    left = read(path)
    shape = draw(st.sampled_from(["field", "literal", "mirrored", "between"]))
    sign = draw(st.sampled_from(sorted(OPERATORS)))
    if shape == "field":
        other = draw(st.sampled_from(fields))
        return Expression(f"{path} {sign} {other}", lambda row: compared(sign, left(row), read(other)(row)))
    text, value = draw(literals)
    if shape == "literal":
        return Expression(f"{path}{sign}{text}", lambda row: compared(sign, left(row), value))
    if shape == "mirrored":
        return Expression(f"{text} {sign} {path}", lambda row: compared(sign, value, left(row)))
    upper, high = draw(literals)
    negated = draw(st.booleans())

    def between(row: Row) -> Verdict:
        found = left(row)
        return None if found is None else (value <= found <= high) is not negated

    return Expression(f"{path} {'not ' * negated}BETWEEN {text} AND {upper}", between)


@st.composite
def others(draw: st.DrawFn) -> Expression:
    if draw(st.booleans()):
        wanted, sign = draw(st.booleans()), draw(st.sampled_from(["=", "<>"]))
        return Expression(f"b {sign} {wanted}", lambda row: compared(sign, row["b"], wanted))
    path = draw(st.sampled_from(TEXTS))
    text, pattern = draw(text_literals)
    parts = {"%": ".*", "_": "."}
    expression = re.compile("".join(parts.get(c) or re.escape(c) for c in pattern), re.DOTALL)

    def like(row: Row) -> Verdict:
        found = value_at(path, row)
        return None if found is None else expression.fullmatch(found) is not None

    return Expression(f"{path} like {text}", like)


def negated(term: Expression) -> Expression:
    def verdict(row: Row) -> Verdict:
        found = term.verdict(row)
        return None if found is None else not found

    return Expression(f"NOT ({term.text})", verdict)


def joined(terms: list[Expression], word: str) -> Expression:
    decisive = word == "OR"

    def verdict(row: Row) -> Verdict:
        found = [term.verdict(row) for term in terms]
        return decisive if decisive in found else None if None in found else not decisive

    return Expression("(" + f" {word} ".join(term.text for term in terms) + ")", verdict)


expressions = st.recursive(
    comparisons() | others(),
    lambda inner: (
        inner.map(negated)
        | st.builds(joined, st.lists(inner, min_size=2, max_size=3), st.sampled_from(["AND", "OR"]))
    ),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(expressions, st.integers(0, 99), st.sampled_from(["string", "int"]))
def test_the_filter_equals_an_evaluator_of_single_rows(expression: Expression, seed: int, enums: str) -> None:
    random = Random(seed)
    made = [random_row(random) for _ in range(40)]
    schema = arrow_schema(OUTER, Mapping(enums=enums))

    def held(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: held(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [held(inner) for inner in value]
        return VALUES[value] if enums == "int" and value in VALUES else value

    batch = pa.RecordBatch.from_pylist([held(row) for row in made], schema)
    passed = parse_filter(expression.text, (), OUTER).evaluate(batch)
    assert passed.tolist() == [expression.verdict(row) is True for row in made]


@settings(max_examples=300, deadline=None)
@given(st.text("()%&'`<>=!,.[]0x19eE+- idNOTANDORLIKEbetween\n", max_size=40))
def test_any_text_is_a_filter_or_an_error(text: str) -> None:
    with suppress(FilterError):
        parse_filter(text, (text,), OUTER)
