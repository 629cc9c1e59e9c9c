"""`spark-rtps log frames`: one line a frame."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rtps.commands.tables import instant
from spark_rtps.transport.log.frame import align
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import PAGE, segment_path
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.log.verification import extent, scan_log
from tests.commands.log_scene import OTHER, WRITER, filled, flip, held, lines, meanwhile, run
from tests.log.make_runs import RECEPTION, guid, indexed, single


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return filled(tmp_path / "one")


def test_all_frames_and_the_ends_of_segments(log: StreamLog) -> None:
    found = lines("frames", log.directory)
    runs = [line for line in found if line["kind"] == "run"]
    assert runs == [
        {
            "position": frame.position,
            "length": frame.length,
            "kind": "run",
            "rows_before": frame.rows_before,
            "count": frame.run.count,
            "writer": str(frame.run.writer),
            "first_sn": frame.run.first_sn,
            "last_sn": frame.run.last_sn,
            "reception_ns": frame.reception,
        }
        for frame in held(log)
    ]
    pads = [line for line in found if line["kind"] == "pad"]
    assert [line["position"] + line["length"] for line in pads] == [PAGE, 2 * PAGE, 3 * PAGE]
    assert all(line["count"] == 0 and line["writer"] is None for line in pads)
    position = 0
    for line in found:  # there is nothing between them
        assert line["position"] == position
        position += line["length"]
    assert position == log.position


def test_as_text(log: StreamLog) -> None:
    titles, first, second, *_ = run("frames", log.directory).stdout.splitlines()
    assert titles.split()[:4] == ["position", "length", "kind", "rows"]
    assert first.split()[:5] == ["0", str(held(log)[0].length), "run", "0", "5"]
    assert first.endswith(f"{instant(RECEPTION)}  {WRITER}  1..5")
    assert second.endswith("6..10")


def test_a_part_of_the_log(log: StreamLog) -> None:
    every = lines("frames", log.directory)
    for number in (0, 1, 5, len(every) - 1):
        line = every[number]
        for inside in (0, 32, line["length"] - 1):
            assert lines("frames", log.directory, "--from", line["position"] + inside) == every[number:]
        assert lines("frames", log.directory, "--to", line["position"]) == every[:number]
        assert lines("frames", log.directory, "--to", line["position"] + 1) == every[: number + 1]
    assert lines("frames", log.directory, "--from", log.position) == []
    both = ("--from", every[2]["position"], "--to", every[6]["position"])
    assert lines("frames", log.directory, *both) == every[2:6]
    assert lines("frames", log.directory, *both, "--limit", 3) == every[2:5]
    assert lines("frames", log.directory, "--writer", OTHER) == every[-1:]
    assert lines("frames", log.directory, "--writer", guid(9)) == []


def test_damage_has_lines_of_its_own(log: StreamLog) -> None:
    every = lines("frames", log.directory)
    flip(log, every[1]["position"] + 16)
    flip(log, every[3]["position"] + 150)
    segment_path(log.directory, 2 * PAGE).unlink()
    found = lines("frames", log.directory, exit_code=1)
    damage = {"kind": "damaged", "rows_before": None, "last_sn": None, "reception_ns": None}
    header = every[1] | damage
    assert (found[0], found[1], found[2:4]) == (every[0], header, every[2:4])
    (segment,) = [line for line in found if line["position"] == 2 * PAGE]
    of_segment = [line for line in every if 2 * PAGE <= line["position"] < 3 * PAGE]
    assert (segment["kind"], segment["length"]) == ("damaged", PAGE)
    assert segment["count"] == sum(line["count"] for line in of_segment)

    body = lines("frames", log.directory, "--verify", exit_code=1)[3]
    assert body == every[3] | damage
    for inside in (0, 40):  # begins with the damage in which the position lies
        start = ("--from", every[1]["position"] + inside, "--limit", 1)
        assert lines("frames", log.directory, *start, exit_code=1) == [header]
    assert lines("frames", log.directory, "--writer", OTHER) == every[-1:]  # none of it was this writer's
    text = run("frames", log.directory, exit_code=1).stdout.splitlines()[2]
    assert text.split() == [
        str(header["position"]),
        str(header["length"]),
        "damaged",
        "-",
        "5",
        "-",
        str(WRITER),
        "6..",
    ]


def test_damage_that_may_be_of_any_writer(log: StreamLog) -> None:
    at = log.position - held(log)[-1].length
    log.append(single(WRITER, 100), reception=0)
    flip(log, at + 16)
    for writer in (WRITER, OTHER):
        found = lines("frames", log.directory, "--writer", writer, exit_code=1)
        (damage,) = [line for line in found if line["kind"] == "damaged"]
        assert (damage["position"], damage["count"], damage["writer"]) == (at, 7, None)
    assert len(found) == 1


def test_where_a_recovery_found_that_samples_are_gone(log: StreamLog) -> None:
    *every, last = lines("frames", log.directory)
    flip(log, last["position"] + 16)
    log.close()
    with StreamLog.open(log.directory) as resumed:
        resumed.append(single(OTHER, 8), reception=0)
        *before, hole, behind = lines("frames", log.directory, exit_code=1)
    assert before == every
    assert (hole["kind"], hole["position"], hole["length"]) == ("damaged", last["position"], last["length"])
    assert (hole["count"], behind["rows_before"], behind["first_sn"]) == (7, last["rows_before"] + 7, 8)


def test_before_the_damage_all_is_well(log: StreamLog) -> None:
    every = lines("frames", log.directory)
    flip(log, every[3]["position"] + 16)
    assert lines("frames", log.directory, "--limit", 3) == every[:3]


def test_a_frames_body_is_verified_before_its_last_number_is_shown(log: StreamLog) -> None:
    """The last number of a sparse run lies in its body."""
    sparse = indexed(OTHER, 8, 9).select(np.array([True, True, False] * 3))
    assert sparse is not None and sparse.last_sn == 15
    at = log.position
    log.append(sparse, reception=0)
    assert lines("frames", log.directory, "--from", at)[0]["last_sn"] == 15
    flip(log, at + 150)
    (found,) = lines("frames", log.directory, "--from", at, exit_code=1)
    assert (found["kind"], found["first_sn"], found["last_sn"]) == ("damaged", 8, None)


def test_frames_survive_a_trim_and_an_append(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    every = lines("frames", log.directory)

    def go_on() -> None:
        log.trim(2 * PAGE)
        log.append(single(OTHER, 8), reception=0)

    meanwhile(monkeypatch, 2, go_on)
    found = lines("frames", log.directory)
    kept = [line for line in every if line["position"] >= 2 * PAGE]
    assert found[0] == every[0] and found[-len(kept) :] == kept  # what is appended behind the end waits
    assert all(line in every for line in found)
    assert lines("frames", log.directory)[0]["position"] == 2 * PAGE


@pytest.mark.parametrize("bodies", [False, True])
def test_a_long_log_takes_no_memory(tmp_path: Path, bodies: bool) -> None:
    log = StreamLog.create(tmp_path / "long", max_bytes=32 << 20, segment_bytes=1 << 20, metadata={})
    for sn in range(1, 5_001):
        log.append(single(WRITER, sn, 64), reception=0)
    view, count = LogView(log.directory), 0
    end = extent(view).end
    tracemalloc.start()
    try:
        for _ in scan_log(view, 0, end, bodies=bodies):
            count += 1
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count >= 5_000
    assert peak < 1 << 18


def test_no_guid(log: StreamLog) -> None:
    for text in ("", "bob", str(WRITER)[1:], "zz" * 16):
        printed = run("frames", log.directory, "--writer", text, exit_code=2).output
        assert "not a" in printed and "GUID" in printed and "--writer" in printed
    assert lines("frames", log.directory, "--writer", str(OTHER).upper())


def test_lengths_are_whole(log: StreamLog) -> None:
    assert all(line["length"] == align(line["length"]) for line in lines("frames", log.directory))


def test_from_the_middle_of_a_trimmed_log(log: StreamLog) -> None:
    log.trim(PAGE)
    found: list[dict[str, Any]] = lines("frames", log.directory, "--from", PAGE + 5)
    assert found[0]["position"] == PAGE
