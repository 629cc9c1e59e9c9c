"""Three-valued logic and exact comparisons over columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...value_classes import value

Mask: TypeAlias = NDArray[np.bool_]


@value
class Truth:
    """A truth value for each row: true, false, or neither, which is SQL's unknown."""

    true: Mask
    false: Mask

    def __and__(self, other: Truth) -> Truth:
        return Truth(self.true & other.true, self.false | other.false)

    def __or__(self, other: Truth) -> Truth:
        return Truth(self.true | other.true, self.false & other.false)

    def __invert__(self) -> Truth:
        return Truth(self.false, self.true)


@value
class NumberValues:
    """Integers, floats or booleans, and a mask of those that are not null; a constant has one value for all rows."""

    values: NDArray[Any]
    valid: Mask


#: Each operator, and the operator for exchanged sides.
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NUMPY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_ARROW: Final[dict[str, Callable[[Any, Any], pa.Array]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compare_numbers(operator: str, a: NumberValues, b: NumberValues) -> Truth:
    """Compare numbers exactly: no integer is rounded to a float. As in IEEE 754, NaN differs from all numbers."""
    held = _compare(operator, a.values, b.values)
    valid = a.valid & b.valid
    return Truth(held & valid, ~held & valid)


def compare_texts(operator: str, a: Any, b: Any) -> Truth:
    """Compare bytes: for UTF-8 this is the order of code points. One side may be a scalar."""
    return truth_of(_ARROW[operator](a, b))


def truth_of(held: pa.Array) -> Truth:
    """A boolean column; null is unknown."""
    true = held.fill_null(False).to_numpy(zero_copy_only=False)
    return Truth(true, ~true & held.is_valid().to_numpy(zero_copy_only=False))


def _compare(operator: str, a: NDArray[Any], b: NDArray[Any]) -> Mask:
    if a.dtype.kind == b.dtype.kind:
        return _holds(operator, a, b)
    if "f" in (a.dtype.kind, b.dtype.kind):
        if a.dtype.kind == "f":
            return _compare(MIRRORED[operator], b, a)
        held = _holds(operator, _order_of_float(_wide(a), b.astype(np.float64)), 0)
        return np.where(np.isnan(b), operator == "<>", held)
    if a.dtype.kind == "u":
        return _compare(MIRRORED[operator], b, a)
    # a negative number is less than any unsigned one
    unsigned = np.where(a < 0, 0, a).astype(np.uint64)
    order = np.where(a < 0, -1, _order(unsigned, b.astype(np.uint64)))
    return _holds(operator, order, 0)


def _holds(operator: str, a: NDArray[Any], b: NDArray[Any] | int) -> Mask:
    held: Mask = _NUMPY[operator](a, b)
    return held


def _wide(a: NDArray[Any]) -> NDArray[Any]:
    return a.astype(np.uint64 if a.dtype.kind == "u" else np.int64)


def _order(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return (a > b).astype(np.int8) - (a < b)


def _order_of_float(a: NDArray[Any], b: NDArray[np.float64]) -> NDArray[Any]:
    """-1, 0 or 1 if the 64-bit integer is less than, equal to or greater than the float; undefined for NaN."""
    low, high = (0.0, 2.0**64) if a.dtype.kind == "u" else (-(2.0**63), 2.0**63)
    inside = (b >= low) & (b < high)
    bounded = np.where(inside, b, 0.0)
    whole = np.floor(bounded)
    order = _order(a, whole.astype(a.dtype))
    order = np.where((order == 0) & (bounded > whole), -1, order)
    return np.where(inside, order, np.where(b < low, 1, -1))
