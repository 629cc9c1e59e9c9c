"""`spark-rtps log verify`: real stream logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from spark_rtps.transport.log.checkpoint import WRITERS
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import METADATA, PAGE
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.log.verification import verify
from tests.commands import log_scene
from tests.commands.log_scene import WRITER, flip, meanwhile
from tests.log.make_runs import single, uniform


def run(*arguments: str, exit_code: int = 0) -> Result:
    return log_scene.run("verify", *arguments, exit_code=exit_code)


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    log = StreamLog.create(tmp_path / "logs" / "one", max_bytes=64 * PAGE, segment_bytes=PAGE, metadata={})
    while log.position < 3 * PAGE:
        log.append(uniform(WRITER, log.rows + 1, 5, 100), reception=0)
    return log


def test_nothing(tmp_path: Path) -> None:
    assert "there is no stream log" in run(str(tmp_path)).stdout
    run(str(tmp_path / "none"), exit_code=2)


def test_a_sound_log_while_it_is_appended_to(log: StreamLog) -> None:
    root = log.directory.parent
    (found,) = json.loads(run(str(root), "--json").stdout)
    frames = list(LogView(log.directory).frames(Cursor(0), Cursor(log.position)))
    assert found == {
        "path": str(log.directory),
        "base": 0,
        "end": log.position,
        "frames": len(frames),
        "rows": log.rows,
        "bytes": sum(frame.length for frame in frames),
        "damage": [],
        "overflow": 0,
        "errors": [],
    }
    assert "one" in run(str(root)).stdout
    assert run(str(log.directory), "--json").stdout == run(str(root), "--json").stdout


def test_damage_is_listed(log: StreamLog) -> None:
    StreamLog.create(log.directory.with_name("two"), max_bytes=64 * PAGE, metadata={}).close()
    frames = list(LogView(log.directory).frames(Cursor(0), Cursor(log.position)))
    flip(log, frames[1].position + 150)
    flip(log, frames[4].position + 16)
    root = str(log.directory.parent)
    one, two = json.loads(run(root, "--json", exit_code=1).stdout)
    assert (one["rows"], two["damage"]) == (log.rows - 10, [])
    assert one["damage"] == [
        {
            "path": str(log.directory),
            "position": frames[number].position,
            "stop": frames[number].position + frames[number].length,
            "rows": 5,
            "writer": str(WRITER),
            "first_sn": frames[number].run.first_sn,
            "bytes": frames[number].length,
        }
        for number in (1, 4)
    ]
    output = run(root, exit_code=1).stdout
    assert "damaged" in output and str(WRITER) in output


def test_damage_beyond_the_list_is_a_number(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for frame in LogView(log.directory).frames(Cursor(0), Cursor(log.position)):
        flip(log, frame.position + 150)
    monkeypatch.setattr("spark_rtps.transport.log.verification.DAMAGE_LISTED_MAX", 2)
    (found,) = json.loads(run(str(log.directory), "--json", exit_code=1).stdout)
    assert (found["rows"], len(found["damage"]), found["overflow"]) == (0, 2, log.rows // 5 - 2)
    assert f"{found['overflow']} more places are damaged in {log.directory}" in run(
        str(log.directory), exit_code=1
    ).stdout.replace("\n", "")


@pytest.mark.parametrize("name", [METADATA, WRITERS])
def test_files_that_are_no_frames(log: StreamLog, name: str) -> None:
    rows = log.rows
    (log.directory / name).unlink()
    (found,) = json.loads(run(str(log.directory), "--json", exit_code=1).stdout)
    assert "is missing" in found["errors"][0]
    assert found["rows"] == (rows if name == WRITERS else 0)
    assert "is missing" in run(str(log.directory), exit_code=1).stdout


def test_a_log_of_the_format_before(log: StreamLog) -> None:
    path = log.directory / METADATA
    content = json.loads(path.read_text())
    del content["checksum"], content["seed"]
    path.write_text(json.dumps(content | {"version": 1}))
    assert "has version 1 of its format" in run(str(log.directory), exit_code=1).stdout


def test_a_trim_during_a_verification_is_no_damage(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def trim() -> None:
        log.trim(2 * PAGE)
        log.append(single(WRITER, 1000), reception=0)

    meanwhile(monkeypatch, 2, trim)
    found = verify(LogView(log.directory))
    assert found.is_sound
    assert 0 < found.rows < log.rows - 1
