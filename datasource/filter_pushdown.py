"""``where(...)`` of a batch read: what Spark pushes down goes into the content filter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

from pyspark.sql import datasource

from ..columns.pushdown import EQUAL, NOT_NULL, Condition, is_looked_at, pushed
from ..columns.topic_plan import TopicPlan

#: PySpark 4.0 has no such filters.
_OPERATORS: Final[dict[str, str]] = {
    "EqualTo": EQUAL,
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "In": EQUAL,
    "IsNotNull": NOT_NULL,
}


class PushFilters:
    """In place of the method ``pushFilters`` of a reader; ``keep`` takes the plan with what is pushed.

    Spark refuses a reader whose class has that method unless spark.sql.python.filterPushdown.enabled is true, so that a
    reader cannot have it and work by default. It recognizes its own method by ``__func__``, and calls this one only
    where the setting is true.
    """

    def __init__(self, plan: TopicPlan, keep: Callable[[TopicPlan], object]) -> None:
        self.__func__ = getattr(datasource.DataSourceReader, "pushFilters", None)
        self._plan = plan
        self._keep = keep

    def __call__(self, filters: Sequence[Any]) -> Iterable[Any]:
        """Takes filters that all have to hold, and returns those that Spark has to check."""
        plan, taken = pushed(self._plan, [_condition(each) for each in filters])
        self._keep(plan)
        exact = is_looked_at(plan)
        return [each for each, is_taken in zip(filters, taken, strict=True) if not (is_taken and exact)]


def _condition(told: Any) -> Condition | None:
    kind = type(told).__name__
    operator = _OPERATORS.get(kind)
    if operator is None:
        return None
    values: tuple[object, ...] = ()
    if operator != NOT_NULL:
        values = tuple(told.value) if kind == "In" else (told.value,)
    return Condition(cast("tuple[str, ...]", tuple(told.attribute)), operator, values)
