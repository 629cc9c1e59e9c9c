"""What tasks get of a streaming source, and how often a worker makes something of it."""

import pickle
import sys
from importlib.machinery import ModuleSpec
from typing import Any

import pytest
from pyspark import cloudpickle

from spark_rtps.datasource import source as source_module
from spark_rtps.datasource.schema import plan_source
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.datasource.stream_reader import RtpsStreamReader
from spark_rtps.datasource.task_reader import TaskReader
from spark_rtps.options import AppliesTo, parse_options
from tests.datasource.stream_reader_scene import COLUMNS


def reader_of(**options: str) -> RtpsStreamReader:
    settings = parse_options({"topic": "T", **options}, AppliesTo.READ)
    return RtpsStreamReader(settings, plan_source(settings, COLUMNS))


def shipped(reader: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(lambda: reader))()


def test_tasks_of_a_query_share_what_they_are_sent() -> None:
    first, again = shipped(reader_of()), shipped(reader_of())
    assert isinstance(first, TaskReader)
    assert first is again
    assert first.fail_on_data_loss
    assert first.plan.columns == plan_source(parse_options({"topic": "T"}, AppliesTo.READ), COLUMNS).columns


@pytest.mark.parametrize("options", [{"topic": "U"}, {"failOnDataLoss": "false"}])
def test_queries_that_differ_share_nothing(options: dict[str, str]) -> None:
    assert shipped(reader_of()) != shipped(reader_of(**options))


def test_plans_that_are_equal_are_one_key() -> None:
    plans = [reader_of(type=name)._plan for name in ("A", "A", "B")]
    assert len(set(plans)) == len({plan.struct for plan in plans}) == 2


def test_parsed_settings_are_pickled_with_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    source = RtpsDataSource({"topic": "T"})
    source.streamReader(COLUMNS)
    monkeypatch.setattr(source_module, "parse_options", None)
    again = cloudpickle.loads(cloudpickle.dumps(source))
    assert isinstance(again._found, bytes)  # until it is looked at
    assert again._settings(AppliesTo.READ) == source._settings(AppliesTo.READ)
    assert cloudpickle.loads(cloudpickle.dumps(again))._known == source._known


@pytest.mark.parametrize(
    ("program", "options", "count"),
    [
        ("pyspark.sql.streaming.python_streaming_source_runner", {}, 1),
        ("pyspark.sql.streaming.python_streaming_source_runner", {"receivers": "a=h:1"}, 0),
        ("pyspark.daemon", {}, 0),
    ],
)
def test_the_process_of_a_stream_begins_with_its_receiver(
    monkeypatch: pytest.MonkeyPatch, program: str, options: dict[str, str], count: int
) -> None:
    begun = []
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(program, None))
    monkeypatch.setattr(source_module, "prepare", lambda: begun.append(1))
    RtpsDataSource({"topic": "T", **options}).streamReader(COLUMNS)
    assert len(begun) == count
