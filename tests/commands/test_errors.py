"""`spark-rtps errors`, and where processes leave their error logs."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spark_rtps.cli import app
from spark_rtps.commands.tables import moment
from spark_rtps.monitoring import query_names, reports
from spark_rtps.monitoring.processes import process_start
from spark_rtps.monitoring.query_names import QueryName, note_query, query_of, read_query
from spark_rtps.monitoring.reports import record_errors, remove_old_errors
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.error_log import ERROR_LOG, ErrorLog
from spark_rtps.transport.log.small_file import replace_text
from spark_rtps.transport.log.stream_log import StreamLog

pytestmark = pytest.mark.usefixtures("root")

NOW = 1_700_000_000_000_000_000
DEAD = 1 << 30


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("spark_rtps")
    before, logger.handlers[:] = logger.handlers[:], []  # other tests of this process may have logged, too
    yield logger
    logger.handlers[:] = before


def source(root: Path, topic: str = "Square") -> ErrorLog:
    directory = root / str(uuid.uuid4())
    directory.mkdir(parents=True)
    StreamLog.create(directory, max_bytes=1 << 20, metadata={"topic": topic}).close()
    Counters.create(directory / "counters").counter("receiver.pid").set(17)
    return ErrorLog(directory / ERROR_LOG)


def process(root: Path, pid: int = DEAD, start: int = 5) -> ErrorLog:
    (root / "errors").mkdir(parents=True, exist_ok=True)
    return ErrorLog(root / "errors" / f"{pid}-{start}.errors")


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["errors", *arguments])
    assert result.exit_code == 0, result.output
    return result


def as_json(*arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run("--json", *arguments).stdout)["logs"]
    return found


QUERY = QueryName("5a0d4c6e-0000-4000-8000-000000000001", "alerts")


@pytest.mark.parametrize(
    ("description", "query"),
    [
        (f"alerts<br/>id = {QUERY.id}<br/>runId = x<br/>batch = 0", QUERY),
        (f"alerts\nid = {QUERY.id}\nrunId = x\nbatch = 0", QUERY),
        (f"id = {QUERY.id}<br/>runId = x<br/>batch = init", QueryName(QUERY.id)),
        ("count at a cell of a notebook", None),
        (None, None),
    ],
)
def test_a_task_finds_its_query(description: str | None, query: QueryName | None) -> None:
    assert query_of(description) == query


def test_errors_of_one_query(root: Path) -> None:
    log, other = source(root), source(root, "Circle")
    log.record("ERROR", "spark_rtps.receiver", "it failed", now=NOW)
    other.record("ERROR", "spark_rtps.receiver", "it failed too", now=NOW)
    note_query(log.path.parent, QUERY)
    note_query(root / "elsewhere", QUERY)
    assert "query alerts" in run().stdout
    for asked in ("alerts", QUERY.id, QUERY.id[:8]):
        (found,) = as_json("--query", asked)
        assert (found["topic"], found["query"], found["query_id"]) == ("Square", "alerts", QUERY.id)
    assert as_json("--query", "alert") == as_json("--query", "") == []
    assert not (root / "elsewhere").exists()


def test_tasks_that_note_their_query_again_and_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, another = source(root).path.parent, QueryName("0" * 8 + QUERY.id[8:], "another")
    note_query(log, QUERY)
    monkeypatch.setattr(query_names, "replace_text", None)  # nothing is written
    monkeypatch.setattr(query_names, "read_query", None)  # nor read
    note_query(log, QUERY)
    monkeypatch.undo()
    for query in (another, QUERY):
        text = json.dumps({"id": query.id, "name": query.name})
        replace_text(log / query_names.QUERY_FILE, text)  # as a task in another process does
        note_query(log, QUERY)
        assert read_query(log) == QUERY
    (log / query_names.QUERY_FILE).unlink()
    note_query(log, QUERY)
    assert read_query(log) == QUERY


class TestCommand:
    def test_nothing(self, root: Path, tmp_path: Path) -> None:
        source(root)
        printed = run("-l", str(tmp_path / "other")).stdout
        assert "no error and no warning" in printed
        assert str(root) in printed
        assert str(tmp_path / "other") in printed
        assert json.loads(run("--json").stdout) == {"looked_in": [str(root)], "logs": []}

    def test_as_json(self, root: Path) -> None:
        log = source(root)
        log.record("ERROR", "spark_rtps.receiver", "it failed", now=NOW)
        log.record("ERROR", "spark_rtps.receiver", "it failed", now=NOW + 1)
        process(root).record("WARNING", "spark_rtps.datasource", "careful", now=NOW - 1)
        one, two = as_json()
        assert one == {
            "path": str(log.path),
            "topic": "Square",
            "pid": 17,
            "query": None,
            "query_id": None,
            "errors": [
                {
                    "level": "ERROR",
                    "logger": "spark_rtps.receiver",
                    "text": "it failed",
                    "count": 2,
                    "first_ns": NOW,
                    "last_ns": NOW + 1,
                }
            ],
            "overflow": 0,
        }
        assert (two["topic"], two["pid"]) == (None, DEAD)
        assert [error["text"] for error in two["errors"]] == ["careful"]  # type: ignore[attr-defined]

    def test_the_newest_comes_first(self, root: Path, tmp_path: Path) -> None:
        source(root, "A").record("ERROR", "x", "in between", now=NOW + 1_000_000_000)
        log = process(tmp_path / "here")
        log.record("ERROR", "x", "[bold]", now=NOW)
        for _ in range(42):
            log.record("WARNING", "x", "newest", now=NOW + 60_000_000_000)
        lines = run("--log-dir", str(tmp_path / "here")).stdout.splitlines()
        places = [
            next(i for i, line in enumerate(lines) if text in line)
            for text in ("newest", "in between", "[bold]")
        ]
        assert places == sorted(places)
        printed = "\n".join(lines)
        for text in (
            "42",
            "WARNING",
            f"process {DEAD}",
            "source 17",
            moment(NOW),
            moment(NOW + 60_000_000_000),
        ):
            assert text in printed

    def test_entries_beyond_the_capacity_are_reported(self, root: Path) -> None:
        log = ErrorLog(source(root).path, size=4096)
        for number in range(200):
            log.record("ERROR", "x", f"e{number}", now=NOW)
        assert "more errors were not recorded" in run().stdout

    def test_files_that_are_no_error_log_are_skipped(self, root: Path) -> None:
        log = source(root)
        log.path.write_bytes(b"x" * 4096)
        other = source(root, "B")
        other.record("ERROR", "x", "found", now=NOW)
        for name in ("metadata.json", "counters"):
            (other.path.parent / name).unlink()
        process(root).record("ERROR", "x", "too", now=NOW - 1)
        (root / "errors" / "readme").touch()
        (root / "errors" / "1-2.errors").write_bytes(b"")
        assert [(log["topic"], log["pid"]) for log in as_json()] == [(None, 0), (None, DEAD)]


class TestRecording:
    def test_warnings_of_this_process_are_recorded(self, root: Path, logger: logging.Logger) -> None:
        record_errors()
        record_errors()
        assert not root.exists()
        logging.getLogger("spark_rtps.datasource").warning("topic %r: careful", "T")
        (found,) = as_json()
        assert found["path"] == str(root / "errors" / f"{os.getpid()}-{process_start(os.getpid())}.errors")
        assert [(e["text"], e["count"]) for e in found["errors"]] == [("topic 'T': careful", 1)]  # type: ignore[attr-defined]
        assert (root / "errors").stat().st_mode & 0o777 == 0o700

    def test_an_unwritable_directory_records_no_errors(self, root: Path, logger: logging.Logger) -> None:
        root.write_text("a file in the way")
        record_errors()
        logging.getLogger("spark_rtps.datasource").warning("a")
        assert as_json() == []

    def test_old_ones_are_removed(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reports, "_KEPT", 2)
        folder = root / "errors"
        for number in range(5):
            log = process(root, DEAD + number)
            log.record("ERROR", "x", "a", now=NOW)
            os.utime(log.path, ns=(NOW + number, NOW + number))
        del log  # as at the end of its process
        mine = process(root, os.getpid(), process_start(os.getpid()))
        mine.record("ERROR", "x", "a", now=NOW)
        os.utime(mine.path, ns=(0, 0))
        (folder / "readme").touch()
        remove_old_errors(folder)
        kept = {f"{DEAD + 3}-5.errors", f"{DEAD + 4}-5.errors", mine.path.name, "readme"}
        assert {path.name for path in folder.iterdir()} == kept

    def test_error_logs_of_processes_in_other_pid_namespaces_stay(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Containers that share the folder, and not their processes."""
        monkeypatch.setattr(reports, "_KEPT", 0)
        other = process(root, DEAD)
        other.record("ERROR", "x", "a", now=NOW)
        remove_old_errors(root / "errors")
        assert other.path.exists()
        path = other.path
        del other  # as at the end of its process
        remove_old_errors(root / "errors")
        assert not path.exists()
