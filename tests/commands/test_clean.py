"""`spark-rtps clean`: names what may go, and removes nothing before it is told to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.transport.log.log_retention import note_temporary_checkpoint
from spark_rtps.transport.log.stream_log import StreamLog
from tests.commands.stat_scene import DEAD, as_json, run, source

DAY = 86_400


def clean(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["clean", *arguments])
    assert result.exit_code == code, result.output
    return result.output


def folder(root: Path, topic: str, days: float) -> Path:
    """The log of a source that has ended, so many days ago."""
    before = set(root.iterdir()) if root.exists() else set()
    source(root, topic, receiver__pid=DEAD)
    (found,) = set(root.iterdir()) - before
    for file in found.iterdir():
        os.utime(file, (time.time() - days * DAY,) * 2)
    return found


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("spark_rtps.options.default_log_dir", lambda: tmp_path / "default")
    monkeypatch.delenv("COLUMNS", raising=False)  # as wide as it takes
    return tmp_path / "logs"


def test_clean_removes_the_listed_logs_only_with_yes(root: Path) -> None:
    where = ("--log-dir", str(root))
    old, young, left_over, used = (
        folder(root, name, days) for name, days in zip("ABCD", (8, 1, 0, 9), strict=True)
    )
    note_temporary_checkpoint(left_over, root / "temporary-1")
    with StreamLog.open(used):
        printed = clean(*where)
        assert str(old) in printed and "has not changed for longer than is kept" in printed
        assert str(left_over) in printed and "its temporary checkpoint is gone" in printed
        assert str(young) not in printed and str(used) not in printed
        assert "2 logs would be removed" in printed and "--yes does it" in printed
        assert "1 more of ended queries stay" in printed
        assert len(list(root.iterdir())) == 4
        printed = clean(*where, "--force")
        assert "2 logs removed" in printed
        assert sorted(root.iterdir()) == sorted([young, used])
        assert "nothing to remove" in clean(*where)
        clean(*where, "--older-than", "0s", "--yes")
        assert list(root.iterdir()) == [used]


def test_by_size(root: Path) -> None:
    where = ("--log-dir", str(root))
    older, young = folder(root, "A", 2), folder(root, "B", 1)
    printed = clean(*where, "--max-bytes", "0")
    assert str(older) in printed and str(young) in printed and "among the oldest" in printed
    clean(*where, "--max-bytes", "1KiB", "--yes")
    assert list(root.iterdir()) == []
    assert "not a size" in clean("--max-bytes", "much", code=2)
    assert "not a duration" in clean("--older-than", "much", code=2)


def test_stat_shows_what_logs_take_on_the_disk(root: Path) -> None:
    folder(root, "A", 1)
    assert "their logs take" in run("--log-dir", str(root)).output
    assert "spark-rtps clean" in run("--log-dir", str(root)).output
    (found,) = as_json("--log-dir", str(root), "--all")["streams"]  # type: ignore[misc]
    assert found["disk_bytes"] > 0  # type: ignore[has-type]
    assert "on disk" in run("--log-dir", str(root), "--all").output
