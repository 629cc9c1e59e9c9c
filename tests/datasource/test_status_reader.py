"""The source of statuses: its offsets and rows, from counters files which tests write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StructType

from spark_rtps.datasource import status_reader
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.datasource.status_reader import StatusStreamReader, status_schema
from spark_rtps.transport.errors import OptionError, UsageError
from tests.commands.stat_scene import fill, sink, source


@pytest.fixture(autouse=True)
def sinks_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sinks are shown in the default folder, sources in that of the option."""
    monkeypatch.setattr(status_reader, "default_log_dir", lambda: tmp_path / "default")
    return tmp_path / "default"


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_reader, "_LOOK_NS", 0)


def made(logs: Path, **options: str) -> RtpsDataSource:
    return RtpsDataSource({"statuses": "true", "log.dir": str(logs), **options})


def reader(logs: Path, **options: str) -> StatusStreamReader:
    found = made(logs, **options).streamReader(status_schema())
    assert isinstance(found, StatusStreamReader)
    return found


def rows(reader: Any, start: Any, end: Any) -> list[dict[str, Any]]:
    batches = [batch for each in reader.partitions(start, end) for batch in reader.read(each)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_each_change_is_one_row(tmp_path: Path, sinks_elsewhere: Path) -> None:
    logs = tmp_path / "logs"
    counted = source(logs, status__subscription_matched__total_count=1)
    sink(sinks_elsewhere, status__publication_matched__total_count=3)
    one = reader(logs)
    start, first = one.initialOffset(), one.latestOffset()
    assert one.latestOffset() == first
    found = rows(one, start, first)
    assert [(row["kind"], row["topic"], row["status"], row["changes"]) for row in found] == [
        ("sink", "Circle", "PUBLICATION_MATCHED", [("total_count", 3)]),
        ("source", "Square", "SUBSCRIPTION_MATCHED", [("total_count", 1)]),
    ]
    fill(counted, status__subscription_matched__total_count=2)
    second = one.latestOffset()
    (row,) = rows(one, first, second)
    assert (row["fields"], row["changes"]) == ([("total_count", 2)], [("total_count", 1)])
    # a query that goes on from its checkpoint
    other = reader(logs)
    assert rows(other, first, second) == [row]
    assert other.latestOffset() == second and other.partitions(second, second) == []


def test_spark_is_given_no_new_offset_between_two_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_reader, "_LOOK_NS", 1 << 60)
    one = reader(tmp_path)
    first = one.latestOffset()
    source(tmp_path, status__subscription_matched__total_count=1)
    assert one.latestOffset() == first


def test_one_topic(tmp_path: Path) -> None:
    for topic in ("Square", "Circle"):
        source(tmp_path, topic, status__subscription_matched__total_count=1)
    one = reader(tmp_path, path="Circle")
    (row,) = rows(one, one.initialOffset(), one.latestOffset())
    assert row["topic"] == "Circle"


def test_as_a_batch(tmp_path: Path) -> None:
    source(tmp_path, status__sample_lost__total_count=4)
    batch = made(tmp_path).reader(status_schema())
    (partition,) = batch.partitions()
    ((row,),) = (each.to_pylist() for each in batch.read(partition))
    assert (row["status"], row["changes"]) == ("SAMPLE_LOST", [("total_count", 4)])


@pytest.mark.parametrize("offset", [{}, {"v": 1, "receivers": {}}, {"v": 2, "statuses": {}}])
def test_a_checkpoint_of_another_source(tmp_path: Path, offset: Any) -> None:
    with pytest.raises(UsageError, match="no offset of statuses"):
        reader(tmp_path).partitions(offset, offset)


def test_columns_of_ones_own_are_refused(tmp_path: Path) -> None:
    assert made(tmp_path).schema() == status_schema()
    other = StructType().add("id", IntegerType())
    with pytest.raises(OptionError, match=r"remove \.schema"):
        made(tmp_path).reader(other)
    with pytest.raises(OptionError, match=r"remove \.schema"):
        made(tmp_path).streamReader(other).initialOffset()


def test_options_of_a_source_of_samples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"domain.*has no effect with statuses=true.*topic, log.dir"):
        made(tmp_path, domain="7")
