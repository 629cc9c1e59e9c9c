"""The writers of a sink's workers are one row of the tables; JSON has each."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rtps.commands.ls import together
from spark_rtps.commands.tables import output
from spark_rtps.monitoring.seen_topics import SeenEndpoint
from tests.commands.stat_scene import as_json, run, sink


def test_in_stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_rtps.options.default_log_dir", lambda: tmp_path)
    for number in range(3):
        counted = {
            "writer__written_samples": 10 + number,
            "writer__matched_readers": 2,
            "writer__back_pressured": 4,
        }
        sink(tmp_path, number=number, **counted)
    sink(tmp_path, topic="Other", number=3, writer__written_samples=7)
    rows = [line.split() for line in run().stdout.partition("positions")[0].splitlines()]
    assert sum("Circle" in row for row in rows) == 1 and sum("Other" in row for row in rows) == 1
    circle = next(row for row in rows if "Circle" in row)
    assert circle[1:4] == ["33", "0", "2"]
    assert any(row[:4] == ["alive", "in", "3", "workers"] for row in rows)
    assert len(as_json()["streams"]) == 4


def test_in_ls() -> None:
    def writer(number: int, topic: str = "Circle", participant: str = "spark-rtps") -> SeenEndpoint:
        return SeenEndpoint(str(number), "writer", topic, "ShapeType", ("reliable",), participant)

    rows = together([writer(1), writer(2), writer(3, "Square"), writer(4), writer(5, participant="robot")])
    assert rows == [
        ("Circle", "ShapeType", "writer", "reliable", "spark-rtps (3 of them)"),
        ("Square", "ShapeType", "writer", "reliable", "spark-rtps"),
        ("Circle", "ShapeType", "writer", "reliable", "robot"),
    ]


def test_piped_output_is_not_cut_to_80_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("spark_rtps.options.default_log_dir", lambda: tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "a_topic_" * 20
    sink(tmp_path, topic=name)
    assert name in run().stdout
    monkeypatch.setenv("COLUMNS", "60")
    assert output().width == 60 and name not in run().stdout
