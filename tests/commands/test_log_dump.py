"""`spark-rtps log dump`: the samples of a stream log; and what the commands on one log do not accept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spark_rtps.cli import main
from spark_rtps.commands.tables import instant
from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log.checkpoint import WRITERS
from spark_rtps.transport.log.segment import METADATA, PAGE
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.wire.samples import DISPOSED, UNREGISTERED, Run
from tests.commands.log_scene import OTHER, WRITER, filled, flip, held, lines, meanwhile, run
from tests.log.make_runs import RECEPTION, samples, single
from tests.support.stream_logs import POINT, encoded, points, run_of, write_log

COMMANDS = ("show", "frames", "dump")


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return filled(tmp_path / "one")


def test_all_samples(log: StreamLog) -> None:
    frames = held(log)
    found = lines("dump", log.directory)
    flags = {WRITER: ["disposed"], OTHER: ["key_only"]}
    assert found == [
        {
            "position": frame.position,
            "row": row,
            "writer": str(sample.writer),
            "sn": sample.sn,
            "source_timestamp_ns": sample.timestamp,
            "reception_ns": frame.reception,
            "flags": flags[sample.writer],
            "key_hash": None if sample.key_hash is None else sample.key_hash.hex(),
            "payload": sample.payload.hex(),
        }
        for frame in frames
        for row, sample in enumerate(samples(frame.run))
    ]
    assert len(found) == log.rows


def test_samples_of_a_writer_that_encoded_them(tmp_path: Path) -> None:
    batch = encoded(points(0, 3), POINT)
    write_log(tmp_path / "points", [run_of(batch, 1)])
    found = lines("dump", tmp_path / "points")
    assert [bytes.fromhex(line["payload"]) for line in found] == [bytes(batch.payload(i)) for i in range(3)]
    assert [(line["flags"], line["key_hash"]) for line in found] == [([], None)] * 3


def test_absent_fields_are_null(log: StreamLog) -> None:
    at, nothing = log.position, np.zeros(0, np.uint8)
    both = Run.single(OTHER, 8, nothing, flags=DISPOSED | UNREGISTERED, key_hash=bytes(range(16)))
    log.append(both, reception=0)
    log.append(Run.single(OTHER, 9, nothing), reception=0)
    first, second = lines("dump", log.directory, "--from", at)
    assert (first["flags"], first["payload"]) == (["disposed", "unregistered"], "")
    assert (first["source_timestamp_ns"], first["key_hash"]) == (None, bytes(range(16)).hex())
    assert (second["flags"], second["key_hash"]) == ([], None)
    _, text, last = run("dump", log.directory, "--from", at).stdout.splitlines()
    assert text.split() == [
        f"{at}/0",
        str(OTHER),
        "8",
        "-",
        "disposed,unregistered",
        "key",
        "hash",
        first["key_hash"],
    ]
    assert last.split()[2:] == ["9", "-", "-", "-"]


def test_as_text(log: StreamLog) -> None:
    titles, first, *_ = run("dump", log.directory).stdout.splitlines()
    sample = samples(held(log)[0].run)[0]
    assert titles.split()[0] == "position/row"
    expected = ["0/0", str(WRITER), "1", *instant(sample.timestamp).split(), "disposed", sample.payload.hex()]
    assert first.split() == expected


def test_a_part_of_the_log(log: StreamLog) -> None:
    every = lines("dump", log.directory)
    second = held(log)[1].position
    assert lines("dump", log.directory, "--from", second + 40) == every[5:]
    assert lines("dump", log.directory, "--to", second) == every[:5]
    for limit in (1, 5, 7, len(every) + 1):
        assert lines("dump", log.directory, "--limit", limit) == every[:limit]


def test_damage_is_reported_with_the_samples(log: StreamLog) -> None:
    every, frames = lines("dump", log.directory), held(log)
    flip(log, frames[1].position + 150)
    found = run("dump", log.directory, "--json", exit_code=1)
    assert list(map(json.loads, found.stdout.splitlines())) == every[:5] + every[10:]
    assert f"damaged at position {frames[1].position}: 5 samples of writer {WRITER}" in found.stderr
    assert lines("dump", log.directory, "--limit", 5) == every[:5]  # nothing behind it was looked at
    (log.directory / WRITERS).unlink()
    reported = run("dump", log.directory, "--from", frames[2].position)
    assert f"{WRITERS} is missing" in reported.stderr and "damaged" not in reported.stderr


def test_a_dump_survives_a_trim_and_an_append(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    every = lines("dump", log.directory)

    def go_on() -> None:
        log.trim(2 * PAGE)
        log.append(single(OTHER, 8), reception=RECEPTION)

    meanwhile(monkeypatch, 2, go_on)
    found = lines("dump", log.directory)
    kept = [line for line in every if line["position"] >= 2 * PAGE]
    assert found[:5] == every[:5] and found[-len(kept) :] == kept
    assert len(found) < len(every)


# --- what they do not accept ------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_written(log: StreamLog, command: str) -> None:
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in log.directory.iterdir()}
    run(command, log.directory)
    assert before == {
        path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in log.directory.iterdir()
    }


def refused(command: str, directory: Path) -> str:
    error = run(command, directory, exit_code=1).exception
    assert isinstance(error, LogError)
    return str(error)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_log(log: StreamLog, tmp_path: Path, command: str) -> None:
    # in a frame, cut into lines wherever the folder's name leaves no room
    printed = " ".join(run(command, tmp_path / "none", exit_code=2).output.replace("│", " ").split())
    assert "does not exist" in printed
    (tmp_path / "other").mkdir()
    printed = refused(command, tmp_path / "other")
    assert printed.startswith(
        f"there is no stream log in {tmp_path / 'other'}; `spark-rtps stat --all --json` has "
    )
    assert refused(command, tmp_path).endswith(f"; name one of those in it: {log.directory}")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_log_of_another_format(log: StreamLog, command: str) -> None:
    path = log.directory / METADATA
    content = json.loads(path.read_text())
    del content["checksum"], content["seed"]
    path.write_text(json.dumps(content | {"version": 1}))
    printed = refused(command, log.directory)
    assert "has version 1 of its format" in printed
    assert printed.endswith("; look at it with the version of spark-rtps that wrote it")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_log_without_its_metadata(log: StreamLog, command: str) -> None:
    (log.directory / METADATA).unlink()
    printed = refused(command, log.directory)
    assert f"{log.directory / METADATA} is missing" in printed
    assert printed.endswith("restore that file: without it the log cannot be read")


@pytest.mark.parametrize("command", [*COMMANDS, "verify"])
@pytest.mark.parametrize("name", ["exists", "read_bytes"])
def test_a_log_of_another_user(log: StreamLog, command: str, name: str, monkeypatch: Any) -> None:
    def denied(path: Path, **_: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, name, denied)
    if command == "verify" and name == "read_bytes":  # which looks at other logs all the same
        assert "Permission denied" in run(command, log.directory, exit_code=1).output.replace("\n", "")
        return
    assert refused(command, log.directory) == (
        f"cannot read {log.directory / METADATA}: Permission denied; call this as the user of its query, or set "
        "log.mode=0750 for that"
    )


@pytest.mark.parametrize("command", ["frames", "dump"])
def test_positions_that_are_not_held(log: StreamLog, command: str) -> None:
    log.trim(PAGE)
    for option, position in (("--from", 0), ("--from", log.position + 32), ("--to", 5), ("--to", 1 << 40)):
        printed = " ".join(run(command, log.directory, option, position, exit_code=2).output.split())
        assert f"Invalid value for {option}: position {position} is not in the log" in printed
    printed = run(command, log.directory, "--from", 2 * PAGE, "--to", PAGE, exit_code=2).output
    assert f"{PAGE} lies before --from {2 * PAGE}" in " ".join(printed.split())


def test_an_error_is_one_line(log: StreamLog, monkeypatch: Any, capsys: Any) -> None:
    (log.directory / METADATA).unlink()
    monkeypatch.setattr(sys, "argv", ["spark-rtps", "log", "dump", str(log.directory)])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr().err
    assert ended.value.code == 1
    assert len(printed.splitlines()) == 1 and "failOnDataLoss" not in printed


def test_a_log_that_is_removed_meanwhile(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def remove() -> None:
        for path in log.directory.iterdir():
            path.unlink()
        log.directory.rmdir()

    meanwhile(monkeypatch, 0, remove)
    printed = refused("dump", log.directory)
    assert str(log.directory) in printed and "`spark-rtps stat --all --json` has the paths" in printed


def test_a_reader_of_the_lines_that_leaves(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(text: str, **_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("spark_rtps.commands.log_dump.typer.echo", closed)
    error = run("dump", log.directory, exit_code=1).exception
    assert isinstance(error, SystemExit)
