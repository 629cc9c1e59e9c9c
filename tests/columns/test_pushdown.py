"""Conditions of a query and the content filters that mean the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.columns.pushdown import EQUAL, NOT_NULL, Condition, is_looked_at, pushed
from spark_rtps.columns.topic_plan import ContentFilter, TopicPlan, plan_reading, schema_to_read
from spark_rtps.columns.type_sources import given_type
from spark_rtps.options import AppliesTo, Mode, parse_options

IDL = """
@final struct Inner { long a; };
@final struct Report { long id; unsigned long long big; double x; string name; boolean b; long select; Inner inner; };
"""


@pytest.fixture
def plan(tmp_path: Path) -> TopicPlan:
    return planned(tmp_path)


def planned(directory: Path, **options: str) -> TopicPlan:
    file = directory / "report.idl"
    file.write_text(IDL)
    given = {"topic": "T", "type.file": str(file), "type": "Report", **options}
    settings = parse_options(given, AppliesTo.READ)
    return plan_reading(settings, schema_to_read(settings, given_type(settings)))


def one(plan: TopicPlan, path: str, operator: str, *values: Any) -> str | None:
    found, (taken,) = pushed(plan, [Condition(tuple(path.split(".")), operator, values)])
    assert taken is (found.filter is not None)
    return None if found.filter is None else found.filter.expression


@pytest.mark.parametrize(
    ("path", "operator", "values", "expression"),
    [
        ("id", EQUAL, (5,), "(id = 5)"),
        ("id", "<=", (-5,), "(id <= -5)"),
        ("id", EQUAL, (1, 2), "(id = 1 OR id = 2)"),
        ("name", EQUAL, ("rt/a b",), "(name = 'rt/a b')"),
        ("name", ">", ("m",), "(name > 'm')"),
        ("x", "<", (2.5,), "(x < 2.5)"),
        ("x", ">", (2.5,), None),  # NaN
        ("x", "<", (float("nan"),), None),
        ("x", "<", (float("inf"),), None),
        ("name", EQUAL, ("it's",), None),
        ("name", EQUAL, ("ü",), None),
        ("name", EQUAL, (None,), None),
        ("id", EQUAL, (True,), None),
        ("id", EQUAL, tuple(range(21)), None),
        ("id", EQUAL, (), None),
        ("big", EQUAL, (1,), None),
        ("b", EQUAL, (True,), None),
        ("inner.a", EQUAL, (1,), None),
        ("missing", EQUAL, (1,), None),
    ],
)
def test_a_condition(
    plan: TopicPlan, path: str, operator: str, values: tuple[Any, ...], expression: str | None
) -> None:
    assert one(plan, path, operator, *values) == expression


def test_all_that_are_pushed_hold_together(tmp_path: Path) -> None:
    """With the filter that is there; a comparison implies that its member is not null."""
    plan = planned(tmp_path, filter="id < %0", **{"filter.parameters": "9"})
    conditions = [
        Condition(("x",), NOT_NULL, ()),
        Condition(("id",), NOT_NULL, ()),
        Condition(("id",), ">", (1,)),
        None,
        Condition(("name",), EQUAL, ("a",)),
    ]
    found, taken = pushed(plan, conditions)
    assert taken == [False, True, True, False, True]
    assert found.filter == ContentFilter("((id < %0) AND (id > 1)) AND (name = 'a')", ("9",))


def test_types_that_are_guesses_or_several(plan: TopicPlan) -> None:
    """Of another type than the plan's, samples would count as malformed."""
    for other in (replace(plan, told=True), replace(plan, announced=False), replace(plan, struct=None)):
        assert one(other, "id", EQUAL, 1) is None


def test_rows_that_a_content_filter_does_not_see(tmp_path: Path) -> None:
    assert is_looked_at(planned(tmp_path))
    assert not is_looked_at(planned(tmp_path, metadata="true"))
    assert not is_looked_at(replace(planned(tmp_path), mode=Mode.PERMISSIVE))
