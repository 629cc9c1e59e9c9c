"""``where(...)`` of a batch read: what Spark pushes down goes into the content filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from ..columns.pushdown import EQUAL, NOT_NULL, Condition, is_looked_at, pushed
from ..columns.topic_plan import TopicPlan

#: By the names of Spark's filters, for PySpark 4.0 has none of them.
_OPERATORS: Final[dict[str, str]] = {
    "EqualTo": EQUAL,
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": EQUAL,
    "IsNotNull": NOT_NULL,
}


def filtered(plan: TopicPlan, filters: Sequence[Any]) -> tuple[TopicPlan, list[Any]]:
    """The plan that checks what it can of ``filters``, which all have to hold, and those that Spark has to check."""
    plan, taken = pushed(plan, [_condition(each) for each in filters])
    exact = is_looked_at(plan)
    return plan, [each for each, is_taken in zip(filters, taken, strict=True) if not (is_taken and exact)]


def _condition(told: Any) -> Condition | None:
    kind = type(told).__name__
    operator = _OPERATORS.get(kind)
    if operator is None:
        return None
    values: tuple[object, ...] = ()
    if operator != NOT_NULL:
        values = tuple(told.value) if kind == "In" else (told.value,)
    return Condition(cast("tuple[str, ...]", tuple(told.attribute)), operator, values)
