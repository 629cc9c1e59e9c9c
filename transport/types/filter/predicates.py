"""The predicates of a filter; each evaluates to a truth value for every row."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...value_classes import value
from .fields import Field, FieldKind
from .truth import NumberValues, Truth, compare_numbers, compare_texts, truth_of

_THERE = np.ones(1, np.bool_)


@value
class Constant:
    """A literal or parameter in the form of the field it is compared with: an enum's literal is its value."""

    value: bool | int | float | str | bytes

    def numbers(self, batch: pa.RecordBatch) -> NumberValues:
        unsigned = isinstance(self.value, int) and self.value >= 1 << 63
        return NumberValues(np.array([self.value], np.uint64 if unsigned else None), _THERE)

    def evaluate(self, batch: pa.RecordBatch) -> pa.Scalar:
        return pa.scalar(self.value)


Operand: TypeAlias = Field | Constant


class Predicate(Protocol):
    def evaluate(self, batch: pa.RecordBatch) -> Truth: ...


@value
class Comparison:
    """A comparison of two operands; both are converted to ``kind``."""

    operator: str
    left: Operand
    right: Operand
    kind: FieldKind

    def evaluate(self, batch: pa.RecordBatch) -> Truth:
        if self.kind in (FieldKind.TEXT, FieldKind.OCTETS):
            return compare_texts(self.operator, self.left.evaluate(batch), self.right.evaluate(batch))
        return compare_numbers(self.operator, self.left.numbers(batch), self.right.numbers(batch))


@value
class Like:
    field: Field
    pattern: str

    def evaluate(self, batch: pa.RecordBatch) -> Truth:
        texts = self.field.evaluate(batch)
        if "\\" not in self.pattern:
            return truth_of(pc.match_like(texts, self.pattern))
        # To Arrow it is an escape, which DDS SQL does not have; and doubled it stands for two in such as '%\'.
        return truth_of(pc.match_substring_regex(texts, _as_regex(self.pattern)))


def _as_regex(pattern: str) -> str:
    wild = {"%": ".*", "_": "."}
    return r"(?s)\A" + "".join(wild.get(character) or re.escape(character) for character in pattern) + r"\z"


@value
class Not:
    term: Predicate

    def evaluate(self, batch: pa.RecordBatch) -> Truth:
        return ~self.term.evaluate(batch)


@value
class Joined:
    """The conjunction or disjunction of terms."""

    join: Callable[[Truth, Truth], Truth]
    terms: tuple[Predicate, ...]

    def evaluate(self, batch: pa.RecordBatch) -> Truth:
        return reduce(self.join, (term.evaluate(batch) for term in self.terms))


def all_of(*terms: Predicate) -> Predicate:
    return Joined(and_, terms)


def any_of(*terms: Predicate) -> Predicate:
    return Joined(or_, terms)
