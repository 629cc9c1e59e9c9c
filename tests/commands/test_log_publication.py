"""`spark-rtps log publication`: logs of writers that live, that are gone, and that are damaged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.log import named_logs
from spark_rtps.transport.log.publication_log import FrameClaim, PublicationLog
from spark_rtps.transport.log.publication_scan import FrameKind, first_frame, frames_of, terms_of
from spark_rtps.transport.protocol.writing.publication import PublicationPositions, PublicationResult
from spark_rtps.transport.structure import Guid
from tests.commands import log_scene
from tests.support import domains

TERM = 64 << 10
ANY = 1 << 62
ABOUT = {"topic": "Square", "type": "ShapeType", "domain": 7, "guid": str(Guid(b"w" * 12, b"\0\0\1\3"))}


def claim(log: PublicationLog, length: int, **numbers: int) -> FrameClaim:
    while (found := log.claim(length, limit=ANY, **numbers)) is PublicationResult.ADMIN_ACTION:
        pass
    assert isinstance(found, FrameClaim)
    return found


def write(log: PublicationLog, body: bytes, **numbers: int) -> int:
    place = claim(log, len(body), **numbers)
    place.data[:] = np.frombuffer(body, np.uint8)
    assert place.commit()
    return place.end


@pytest.fixture
def log(tmp_path: Path) -> PublicationLog:
    return PublicationLog.create(
        TERM, path=tmp_path / f"{'1' * 32}.publication", about=ABOUT, initial_term_id=5
    )


def show(*arguments: object) -> Any:
    return json.loads(log_scene.run("publication", *arguments, "--json").stdout)


def test_terms_frames_and_positions(log: PublicationLog) -> None:
    write(log, b"x" * 100, first_sn=1, count=4, segment=50)
    claim(log, 68, first_sn=5, count=1).abort()
    claim(log, 4, first_sn=6, count=2)
    slot = log.subscribe(Guid(b"r" * 12, b"\0\0\2\4"), position=160, now=1, spy=True, tether=False)
    assert slot is not None
    positions = PublicationPositions(TERM)
    positions.pub_pos, positions.snd_pos, positions.is_connected = 320, 160, True
    positions.conduct()
    log.record(positions, unblocked=1)
    [found] = show(log.path, "--frames")
    assert found["topic"] == "Square" and found["writer"] == ABOUT["guid"]
    assert (found["process"], found["alive"], found["end_of_stream"]) == (os.getpid(), True, False)
    assert (found["tail"], found["pub_pos"], found["snd_pos"], found["unblocked"]) == (352, 320, 160, 1)
    assert found["pub_lmt"] == 160 + TERM // 2 and found["is_connected"] == 1
    assert found["frames"] == {"data": 1, "pad": 1, "claim": 1} and found["samples"] == 4
    assert found["each_frame"] == [
        {
            "position": 0,
            "length": 132,
            "kind": "data",
            "term_id": 5,
            "first_sn": 1,
            "samples": 4,
            "segment": 50,
        },
        {
            "position": 160,
            "length": 100,
            "kind": "pad",
            "term_id": 5,
            "first_sn": 5,
            "samples": 1,
            "segment": 0,
        },
        {
            "position": 288,
            "length": 36,
            "kind": "claim",
            "term_id": 5,
            "first_sn": 6,
            "samples": 2,
            "segment": 0,
        },
    ]
    assert found["subscribers"] == [
        {"guid": str(slot.guid), "position": 160, "state": "active", "spy": True, "tether": False}
    ]
    active, *others = found["terms"]
    assert active == {
        "number": 0, "term_id": 5, "tail": 352, "from": 0, "to": 352, "active": True, "frames": 3,
    }  # fmt: skip
    assert all(not term["active"] and not term["frames"] for term in others)


def test_terms_that_rotate_and_are_cleaned(log: PublicationLog) -> None:
    end = 0
    while end < 2 * TERM + 500:
        end = write(log, b"x" * 1_000, count=1)
    log.clean(1_500)
    cleaned = log.clean_position
    assert [(term.number, term.term_id, term.is_active) for term in terms_of(log)] == [
        (0, 5, False),
        (1, 6, False),
        (2, 7, True),
    ]
    assert [(term.start, term.stop) for term in terms_of(log)] == [
        (cleaned, TERM),
        (TERM, 2 * TERM),
        (2 * TERM, end),
    ]
    assert first_frame(log) == TERM, "cleaning ends within a frame"
    frames = list(frames_of(log))
    assert frames[0].position == TERM and frames[-1].position + 1_056 == end
    assert [frame.kind for frame in frames].count(FrameKind.PAD) == 1
    assert list(frames_of(log, 2 * TERM, 2 * TERM + 1)) == [f for f in frames if f.position == 2 * TERM]
    text = log_scene.run("publication", log.path).stdout
    assert "Square" in text and "terms" in text and "pub-pos" in text and str(end) in text


def test_a_term_that_is_full_to_the_byte(log: PublicationLog) -> None:
    while log.position < TERM - 64:
        write(log, b"")
    write(log, b"x" * 32)
    assert log.position == TERM
    assert [(term.is_active, term.start, term.stop) for term in terms_of(log)] == [
        (True, 0, TERM),
        (False, 0, 0),
        (False, 0, 0),
    ]


def test_a_term_that_is_full_to_the_byte_and_was_left(log: PublicationLog) -> None:
    while log.position < TERM:
        write(log, b"")
    assert log.claim(0, limit=ANY) is PublicationResult.ADMIN_ACTION
    assert [(term.is_active, term.start, term.stop) for term in terms_of(log)] == [
        (False, 0, TERM),
        (True, TERM, TERM),
        (False, 0, 0),
    ]


def test_a_claim_whose_header_is_being_stored_is_a_claim(log: PublicationLog) -> None:
    write(log, b"x" * 100)
    at = log.position
    claim(log, 100, first_sn=9, count=1)
    log.data[at + 4 : at + 32] = 0  # the length is stored first, this is not yet
    assert [(frame.position, frame.kind, frame.length) for frame in frames_of(log)][1:] == [
        (at, FrameKind.CLAIM, 132)
    ]


def test_overwritten_frames_are_not_shown(log: PublicationLog) -> None:
    for _ in range(100):
        write(log, b"x" * 1_000)
    walk = frames_of(log, 0)
    assert next(walk).position == 0
    log.clean(10_000)
    assert list(walk) == []


def test_damage_is_an_error(log: PublicationLog) -> None:
    write(log, b"x" * 100)
    write(log, b"x" * 100)
    log.lengths[160 >> 2] = 1 << 20
    result = log_scene.run("publication", log.path, exit_code=1)
    assert "is damaged at position 160" in str(result.exception)


def test_a_file_that_is_no_publication_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(b"x" * 10_000)
    result = log_scene.run("publication", tmp_path / "none", exit_code=1)
    assert "is not a publication log" in str(result.exception)
    # in a frame, cut into lines wherever the file's name leaves no room
    output = log_scene.run("publication", tmp_path / "nothing", exit_code=2).output
    assert "does not exist" in " ".join(output.replace("│", " ").split())


def test_nobody_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_logs, "directory_of_user", lambda: tmp_path / "nothing")
    assert "no writer" in log_scene.run("publication").stdout
    assert show() == []


PUBLISHES = f"""
import time
import pyarrow as pa, spark_rtps as rtps
ours, others = (rtps.Participant({domains.LOG_PUBLICATION}, interface="lo", options={{"ipc": True}}) for _ in range(2))
schema = pa.schema([("x", pa.int32())])
reading = others.subscribe("numbers", schema=schema, type="Number")
numbers = ours.publish("numbers", schema=schema, type="Number", options={{"nullable": "required"}})
assert numbers.wait_for_readers(60)
numbers.write([{{"x": x}} for x in range(1000)])
assert reading.take(max_rows=1000, timeout=60).num_rows == 1000
claim = numbers.try_claim(8)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def publisher() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PUBLISHES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def test_the_log_of_a_living_and_of_a_killed_writer(publisher: subprocess.Popen[str]) -> None:
    assert publisher.stdout is not None and publisher.stdout.readline() == "ready\n"
    [live] = [found for found in show() if found["process"] == publisher.pid]
    assert (live["topic"], live["type"], live["alive"]) == ("numbers", "Number", True)
    assert live["samples"] == 1000 and live["frames"]["claim"] == 1
    assert live["pub_pos"] == live["tail"] > live["snd_pos"] > 0
    [reader] = live["subscribers"]
    assert (reader["state"], reader["spy"], reader["tether"]) == ("active", False, True)
    publisher.send_signal(signal.SIGKILL)
    publisher.wait()
    [dead] = [found for found in show("--frames") if found["process"] == publisher.pid]
    assert not dead["alive"] and dead["samples"] == live["samples"] and dead["tail"] == live["tail"]
    assert dead["each_frame"][-1]["kind"] == "claim"
    named_logs.NamedLogs().remove_dead()
    assert not Path(dead["path"]).exists()
