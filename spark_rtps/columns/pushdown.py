"""Which conditions of a query a content filter can check, so that writers need not send what fails them.

A condition is pushed only if the content filter keeps exactly the rows that Spark would keep: on integers and texts,
and on floating point numbers where NaN fails both. A member that a writer lacks is null, which fails every comparison.
Rows that a content filter does not look at (the ends of instances, samples that do not decode) are Spark's to check:
with them Spark checks everything again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from ..options import Mode, Payload
from ..transport.errors import FilterError
from ..transport.types.model import Primitive, PrimitiveKind, String, Struct, resolve
from .topic_plan import ContentFilter, TopicPlan

#: Of one condition: DDS's operators.
EQUAL: Final = "="
#: Of a condition without values, which any other one on its member implies.
NOT_NULL: Final = "IS NOT NULL"
_FLOATS: Final = frozenset({PrimitiveKind.FLOAT32, PrimitiveKind.FLOAT64})
_INTEGERS: Final = frozenset(
    {
        *(PrimitiveKind.INT8, PrimitiveKind.INT16, PrimitiveKind.INT32, PrimitiveKind.INT64),
        *(PrimitiveKind.UINT8, PrimitiveKind.UINT16, PrimitiveKind.UINT32),
    }
)
#: NaN is greater than everything to Spark, and to a content filter it is nothing.
_OF_FLOATS: Final = frozenset({EQUAL, "<", "<="})
#: Texts that need no escape in a literal.
_PLAIN: Final = re.compile(r"[\w .,:;/+-]{0,200}", re.ASCII)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_VALUES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Condition:
    """The member at ``path`` compares to one of ``values``."""

    path: tuple[str, ...]
    operator: str
    values: tuple[object, ...]


def is_looked_at(plan: TopicPlan) -> bool:
    """Whether a content filter decides about every row of the plan."""
    return not plan.has_metadata and plan.mode is not Mode.PERMISSIVE


def pushed(plan: TopicPlan, conditions: Sequence[Condition | None]) -> tuple[TopicPlan, list[bool]]:
    """The plan with the conditions that a content filter can check, and which these are; None stands for others."""
    taken = [False] * len(conditions)
    if plan.payload is not Payload.CDR or plan.struct is None or plan.told or not plan.announced:
        return plan, taken
    for number, condition in enumerate(conditions):
        text = None if condition is None else _text(plan, plan.struct, condition)
        if text is None:
            continue
        try:
            plan = _with(plan, plan.struct, text)
        except FilterError:
            continue
        taken[number] = True
    compared = {each.path for each, is_taken in zip(conditions, taken, strict=True) if each and is_taken}
    for number, condition in enumerate(conditions):
        if condition is not None and condition.operator == NOT_NULL:
            taken[number] = condition.path in compared
    return plan, taken


def _with(plan: TopicPlan, struct: Struct, text: str) -> TopicPlan:
    from ..transport.types.filter.content_filter import parse_filter

    given = plan.filter
    expression = text if given is None else f"({given.expression}) AND {text}"
    parameters = () if given is None else given.parameters
    parse_filter(expression, parameters, struct)
    return replace(plan, filter=ContentFilter(expression, parameters))


def _text(plan: TopicPlan, struct: Struct, condition: Condition) -> str | None:
    """A condition in DDS's SQL; None: there is none that means the same."""
    if len(condition.path) != 1 or not 0 < len(condition.values) <= _VALUES_MAX:
        return None
    (name,) = condition.path
    member = next((member for member in struct.members if member.name == name), None)
    if member is None or not _NAME.fullmatch(name) or name not in plan.columns.names:
        return None
    t = resolve(member.type)
    literals = [_literal(t, plan.columns.field(name).type, condition.operator, v) for v in condition.values]
    if None in literals:
        return None
    return "(" + " OR ".join(f"{name} {condition.operator} {literal}" for literal in literals) + ")"


def _literal(t: object, column: pa.DataType, operator: str, value: object) -> str | None:
    if isinstance(t, String) and pa.types.is_string(column):
        return f"'{value}'" if isinstance(value, str) and _PLAIN.fullmatch(value) else None
    if not isinstance(t, Primitive) or isinstance(value, bool):
        return None
    if t.kind in _INTEGERS and pa.types.is_integer(column):
        return str(value) if isinstance(value, int) else None
    if t.kind in _FLOATS and pa.types.is_floating(column) and operator in _OF_FLOATS:
        return repr(value) if isinstance(value, float) and abs(value) < 1e300 else None
    return None
