"""What a Python process that Spark keeps excludes from garbage collection."""

import gc
import os
import sys
from types import ModuleType

import pytest
from pyspark.sql.types import IntegerType, StructType

from spark_rtps.datasource import workers
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.datasource.spark_versions import HAS_ARROW_STREAM_SINKS

COLUMNS = StructType().add("id", IntegerType(), False)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that have excluded what they have, each as often as it did; this one has not yet."""
    found: list[int] = []
    monkeypatch.setattr(workers, "_settled", (0, 0))
    monkeypatch.setattr(gc, "freeze", lambda: found.append(os.getpid()))
    return found


def test_modules_imported_later_are_frozen_too(frozen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    workers.settle()
    workers.settle()
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "tests.imported_by_a_task", ModuleType("imported_by_a_task"))
    workers.settle()
    workers.settle()
    assert len(frozen) == 2


def test_modules_that_come_and_go_are_excluded_once(
    frozen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        monkeypatch.setitem(sys.modules, "tests.imported_by_a_task", ModuleType("imported_by_a_task"))
        workers.settle()
        monkeypatch.delitem(sys.modules, "tests.imported_by_a_task")
        workers.settle()
    assert len(frozen) == 1


def test_a_forked_process_excludes_its_own(frozen: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    workers.settle()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    workers.settle()
    assert frozen[1:] == [1]


@pytest.mark.parametrize(
    "plan",
    [
        "writer",
        pytest.param(
            "streamWriter",
            marks=pytest.mark.skipif(not HAS_ARROW_STREAM_SINKS, reason="PySpark 4.0 has no such sinks"),
        ),
    ],
)
def test_a_process_that_plans_a_sink_again_and_again_excludes_what_it_needs(
    frozen: list[int], plan: str
) -> None:
    sink = RtpsDataSource({"topic": "Alerts", "type": "Alert"})
    for _ in range(3):
        getattr(sink, plan)(COLUMNS, overwrite=False)
    assert 1 <= len(frozen) <= 2  # what the first plan imports is excluded by the second
