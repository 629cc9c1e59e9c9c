"""`spark-rtps loss`: real loss reports."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spark_rtps.cli import app
from spark_rtps.commands.tables import moment
from spark_rtps.monitoring.decoding_report import (
    DAMAGED,
    LOG_LOST,
    DecodingReport,
    LostPart,
    read_decoding_report,
    update_decoding_report,
)
from spark_rtps.monitoring.stream_counters import lost
from spark_rtps.transport.limits import LOST_PARTS_MAX
from spark_rtps.transport.log.loss_report import LOSS_REPORT, LossReport
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.structure import Guid

pytestmark = pytest.mark.usefixtures("root")

NOW = 1_700_000_000_000_000_000
WRITER = Guid(b"\xfe" * 12, b"\0\0\1\2")


def report(root: Path, topic: str = "Square") -> LossReport:
    directory = root / str(uuid.uuid4())
    directory.mkdir(parents=True)
    StreamLog.create(directory, max_bytes=1 << 20, metadata={"topic": topic}).close()
    return LossReport(directory / LOSS_REPORT)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["loss", *arguments])
    assert result.exit_code == 0, result.output
    return result


def test_nothing(root: Path, tmp_path: Path) -> None:
    report(root)
    printed = run("--log-dir", str(tmp_path / "other")).stdout
    assert "no loss" in printed
    assert str(root) in printed
    assert str(tmp_path / "other") in printed
    assert json.loads(run("--json").stdout) == {"looked_in": [str(root)], "reports": []}


def test_as_json(root: Path) -> None:
    square = report(root)
    square.observe(WRITER, "Square", 3, now=NOW, sample_bytes=10)
    square.observe(WRITER, "Square", 4, now=NOW + 5, sample_bytes=10)
    (found,) = json.loads(run("--json").stdout)["reports"]
    assert found == {
        "path": str(square.path),
        "topic": "Square",
        "losses": [
            {
                "writer": str(WRITER),
                "topic": "Square",
                "observations": 2,
                "samples": 7,
                "bytes": 70,
                "first_ns": NOW,
                "last_ns": NOW + 5,
                "cause": "not received",
                "unknown": 0,
            }
        ],
        "overflow": 0,
    }


def test_the_newest_comes_first(root: Path, tmp_path: Path) -> None:
    hour = 3_600_000_000_000
    report(root).observe(WRITER, "Old", 1, now=NOW)
    report(tmp_path / "here").observe(WRITER, "[bold]", 4711, now=NOW + hour, sample_bytes=1 << 20)
    lines = run("--log-dir", str(tmp_path / "here")).stdout.splitlines()
    (new,) = [i for i, line in enumerate(lines) if "[bold]" in line]
    (old,) = [i for i, line in enumerate(lines) if "Old" in line]
    assert new < old
    assert "4711" in lines[new]
    assert "4.6 GiB" in lines[new + 1]
    assert moment(NOW + hour) in lines[new]
    assert str(WRITER) in lines[new + 1]


def test_losses_of_the_log_are_shown(root: Path) -> None:
    directory = report(root).path.parent
    hexadecimal = WRITER.to_bytes().hex()

    def lose(found: DecodingReport) -> None:
        for _ in range(2):  # each part counts once, however often it is read
            found.lose(LostPart(DAMAGED, 320, NOW, 64, 3, hexadecimal))
            found.lose(LostPart(DAMAGED, 960, NOW + 1, 32, 4, hexadecimal))
            found.lose(LostPart(DAMAGED, 990, NOW, 32, None, hexadecimal))
            found.lose(LostPart(LOG_LOST, 4711, NOW))

    update_decoding_report(directory, lose)
    (found,) = json.loads(run("--json").stdout)["reports"]
    assert [
        (loss["writer"], loss["cause"], loss["observations"], loss["samples"], loss["unknown"], loss["bytes"])
        for loss in found["losses"]
    ] == [(str(WRITER), DAMAGED, 3, 7, 1, 128), (None, LOG_LOST, 1, 0, 1, 0)]
    shown = run().stdout
    assert DAMAGED in shown and "7 + ?" in shown and "unknown" in shown
    assert lost(read_decoding_report(directory).counters()) == 9, "at least"


def test_more_lost_parts_than_are_kept(root: Path) -> None:
    directory = report(root).path.parent
    update_decoding_report(
        directory,
        lambda found: [found.lose(LostPart(DAMAGED, n, NOW, 0, 1)) for n in range(LOST_PARTS_MAX + 5)],
    )
    (found,) = json.loads(run("--json").stdout)["reports"]
    assert (found["losses"][0]["samples"], found["overflow"]) == (LOST_PARTS_MAX, 5)
    assert lost(read_decoding_report(directory).counters()) == LOST_PARTS_MAX + 5
    for _ in range(2):  # Spark repeats tasks
        update_decoding_report(
            directory,
            lambda found: [found.lose(LostPart(DAMAGED, LOST_PARTS_MAX + n, NOW, 0, 1)) for n in range(5)],
        )
    assert lost(read_decoding_report(directory).counters()) == LOST_PARTS_MAX + 5


def test_entries_beyond_the_capacity_are_reported(root: Path) -> None:
    small = report(root)
    small = LossReport(small.path, size=4096)
    for number in range(100):
        small.observe(Guid(number.to_bytes(12, "big"), b"\0\0\1\2"), "Square", 1, now=NOW)
    assert "more losses were not recorded" in run().stdout
    assert json.loads(run("--json").stdout)["reports"][0]["overflow"] > 0


def test_files_that_are_no_loss_report_are_skipped(root: Path) -> None:
    report(root).path.write_bytes(b"x" * 4096)
    (root / "file").touch()
    assert "no loss" in run().stdout


def test_the_log_whose_description_is_gone(root: Path) -> None:
    square = report(root)
    square.observe(WRITER, "Square", 1, now=NOW)
    (square.path.parent / "metadata.json").unlink()
    (found,) = json.loads(run("--json").stdout)["reports"]
    assert (found["topic"], found["losses"][0]["topic"]) == ("", "Square")


def test_unreadable_reports_are_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report(root).observe(WRITER, "Square", 3, now=NOW)
    theirs = tmp_path / "shared" / "theirs"
    theirs.mkdir(parents=True)
    may = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != theirs and may(path, mode))
    result = run("--log-dir", str(tmp_path / "shared"))
    assert f"{theirs} cannot be read by this user: call this as the user of their" in result.stderr
    assert "Square" in result.stdout
