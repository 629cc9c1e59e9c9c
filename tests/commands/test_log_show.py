"""`spark-rtps log show`: what a stream log is and holds."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rtps.commands.tables import moment
from spark_rtps.transport.log.checkpoint import WRITERS
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.frame import align, frame_length
from spark_rtps.transport.log.inventory import Inventory
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import PAGE, segment_path
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.log.verification import verify
from tests.commands.log_scene import OTHER, WRITER, filled, flip, held, meanwhile, run
from tests.commands.stat_scene import DEAD, SECOND, fill
from tests.log.make_runs import RECEPTION, guid, indexed, single, uniform

pytestmark = pytest.mark.usefixtures("root")


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return filled(tmp_path / "one")


def shown(log: StreamLog, *options: str, exit_code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        run("show", log.directory, *options, "--json", exit_code=exit_code).stdout
    )
    return found


def test_show_describes_a_log_that_is_appended_to(log: StreamLog) -> None:
    frames, found = held(log), shown(log)
    of_first = [frame for frame in frames if frame.position < PAGE]
    segment, *_, last = found.pop("segments")
    writer, other = found.pop("writers")
    assert found.pop("disk_bytes") >= 4 * PAGE
    assert found == {
        "path": str(log.directory),
        "topic": "Square",
        "type": "ShapeType",
        "format": 2,
        "base": 0,
        "end": log.position,
        "frames": len(frames),
        "rows": log.rows,
        "bytes": sum(frame.length for frame in frames),
        "damage": [],
        "overflow": 0,
        "errors": [],
        "receiver": None,
        "writers_overflow": 0,
        "groups": [],
    }
    assert segment == {
        "base": 0,
        "end": PAGE,
        "frames": len(of_first),
        "rows": 5 * len(of_first),
        "first_reception_ns": RECEPTION,
        "last_reception_ns": RECEPTION + 5 * (len(of_first) - 1),
    }
    assert (last["base"], last["last_reception_ns"]) == (3 * PAGE, RECEPTION + log.rows - 7)
    of_other = frames[-1].length
    assert other == {"writer": str(OTHER), "highest_sn": 7, "missing": 0, "rows": 7, "bytes": of_other}
    rest = {
        "highest_sn": log.rows - 7,
        "missing": 0,
        "rows": log.rows - 7,
        "bytes": found["bytes"] - of_other,
    }
    assert writer == {"writer": str(WRITER), **rest}
    output = run("show", log.directory).stdout
    reported = (
        "Square",
        "ShapeType",
        str(log.directory),
        f"0 to {log.position}",
        str(OTHER),
        moment(RECEPTION),
    )
    assert all(text in output for text in reported)


def test_numbers_that_are_missing(log: StreamLog) -> None:
    next_sn = log.rows - 7 + 1  # of the first writer
    log.append(uniform(WRITER, next_sn + 3, 5), reception=0)
    some = indexed(WRITER, next_sn + 8, 6).select(np.array([True, False, True, False, False, True]))
    assert some is not None
    log.append(some, reception=0)
    log.append(single(OTHER, 8), reception=0)
    writer, other = shown(log)["writers"]
    assert (writer["missing"], other["missing"]) == (3 + 3, 0)
    assert writer["highest_sn"] - writer["missing"] == writer["rows"]
    assert " 6 " in next(
        line for line in run("show", log.directory).stdout.splitlines() if str(WRITER) in line
    )


def test_writers_whose_samples_are_trimmed_are_still_known(log: StreamLog) -> None:
    log.append(single(OTHER, 8), reception=0)
    while log.position < 6 * PAGE:
        log.append(single(OTHER, log.rows, 1000), reception=0)
    log.trim(5 * PAGE)
    gone, other = shown(log)["writers"]
    assert (gone["writer"], gone["rows"], gone["bytes"]) == (str(WRITER), 0, 0)
    assert gone["highest_sn"] > 50
    assert other["highest_sn"] == log.rows - 1


@pytest.mark.parametrize(
    ("pid", "late", "state"),
    [(os.getpid(), 0, "alive"), (os.getpid(), 10, "stalled"), (DEAD, 0, "ended")],
    ids=["alive", "stalled", "ended"],
)
def test_log_show_names_the_appending_process(
    log: StreamLog, pid: int, late: int, state: str, monkeypatch: Any
) -> None:
    heartbeat = time.monotonic_ns()
    counters = Counters.create(log.directory / "counters")
    fill(counters, receiver__pid=pid, receiver__heartbeat_ns=heartbeat)
    monkeypatch.setattr(time, "monotonic_ns", lambda: heartbeat + late * SECOND)
    assert shown(log)["receiver"] == {"pid": pid, "state": state}
    assert f"process {pid}, {state}" in run("show", log.directory).stdout


def test_damage_of_bodies_is_looked_for_only_when_asked(log: StreamLog) -> None:
    frames = held(log)
    flip(log, frames[1].position + 16)
    flip(log, frames[3].position + 150)
    headers = shown(log, exit_code=1)
    assert [damage["position"] for damage in headers["damage"]] == [frames[1].position]
    assert (headers["rows"], headers["damage"][0]["first_sn"]) == (log.rows - 5, 6)
    both = shown(log, "--verify", exit_code=1)
    assert [damage["position"] for damage in both["damage"]] == [frames[1].position, frames[3].position]
    assert both["writers"][0]["rows"] == log.rows - 7 - 10
    assert "damaged" in run("show", log.directory, exit_code=1).stdout


def test_a_lost_segment_and_a_lost_checkpoint(log: StreamLog) -> None:
    before = shown(log)
    lost = before["segments"][1]["rows"]
    segment_path(log.directory, PAGE).unlink()
    (log.directory / WRITERS).unlink()
    found = shown(log, exit_code=1)
    (damage,) = found["damage"]
    assert (damage["position"], damage["stop"], damage["rows"]) == (PAGE, 2 * PAGE, lost)
    assert [segment["base"] for segment in found["segments"]] == [0, 2 * PAGE, 3 * PAGE]
    assert (found["rows"], len(found["errors"])) == (log.rows - lost, 1)
    assert f"{WRITERS} is missing" in run("show", log.directory, exit_code=1).stdout


def test_show_survives_a_trim_and_an_append(log: StreamLog, monkeypatch: Any) -> None:
    end, rows = log.position, log.rows

    def go_on() -> None:
        log.trim(2 * PAGE)
        while log.position < 6 * PAGE:
            log.append(single(OTHER, 100, 1000), reception=0)

    meanwhile(monkeypatch, 2, go_on)
    found = shown(log)
    assert (found["base"], found["end"]) == (0, end)
    assert 0 < found["rows"] < rows
    assert found["errors"] == found["damage"] == []
    assert found["rows"] == sum(writer["rows"] for writer in found["writers"])
    assert found["rows"] == sum(segment["rows"] for segment in found["segments"])


def test_a_segment_that_is_begun_while_frames_are_counted(log: StreamLog) -> None:
    inventory = Inventory.of_log(log.directory)
    while log.position < 6 * PAGE:
        log.append(single(OTHER, log.rows, 1000), reception=0)
    assert verify(LogView(log.directory), on_frame=inventory.count).is_sound
    bases = [int(path.stem) for path in sorted(log.directory.glob("*.segment"))]
    assert [segment.base for segment in inventory.segments] == bases and bases[-1] > 4 * PAGE
    assert sum(segment.rows for segment in inventory.segments) == log.rows


def test_writers_beyond_the_bound(log: StreamLog, monkeypatch: Any) -> None:
    monkeypatch.setattr("spark_rtps.transport.log.inventory.WRITERS_MAX", 2)
    for number in (3, 4, 4):
        log.append(single(guid(number), 1), reception=0)
    found = shown(log)
    assert (len(found["writers"]), found["writers_overflow"]) == (2, 3)
    assert "3 more frames are of writers that are not listed" in run("show", log.directory).stdout


def test_an_empty_log(tmp_path: Path) -> None:
    log = StreamLog.create(tmp_path / "new", max_bytes=64 * PAGE, metadata={"topic": "T", "type": None})
    found = shown(log)
    assert (found["topic"], found["type"], found["rows"]) == ("T", None, 0)
    assert found["segments"] == found["writers"] == []
    first = single(WRITER, 1)
    log.append(first, reception=7)
    found = shown(log)
    assert (found["segments"][0]["first_reception_ns"], found["bytes"]) == (7, align(frame_length(first)))


def test_consumer_groups(log: StreamLog) -> None:
    reported = {"late": {"position": 64, "row": 0, "at_ns": RECEPTION}, "done": {"position": log.position}}
    reported["done"] |= {"row": 0, "at_ns": RECEPTION}
    groups = log.directory / "groups.json"
    groups.write_text(json.dumps({"v": 1, "groups": {"done": reported["done"], "late": reported["late"]}}))
    late, done = shown(log)["groups"]
    assert late == {"name": "late", **reported["late"], "behind_bytes": log.position - 64, "missed_bytes": 0}
    assert (done["name"], done["behind_bytes"]) == ("done", 0)
    missed = {"late": {**reported["late"], "missed": 5}}
    groups.write_text(json.dumps({"v": 1, "groups": missed}))
    assert shown(log)["groups"][0]["missed_bytes"] == 5
    output = run("show", log.directory).stdout
    assert "consumer groups" in output and "late" in output
    for text in ("{", "[]", '{"groups": {"a": 1}}', '{"groups": {"a": {"position": -1}}}', '{"groups": 1}'):
        groups.write_text(text)
        assert shown(log)["groups"] == []
    assert "consumer groups" not in run("show", log.directory).stdout
    groups.write_text(json.dumps({"groups": {str(number): reported["late"] for number in range(4_097)}}))
    assert shown(log)["groups"] == []
