"""`spark-rtps stat`: rates from one look to the next, by a clock of the test's own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.commands import stat
from spark_rtps.commands.receivers import Collected
from spark_rtps.commands.stat import streams_here
from spark_rtps.commands.stat_snapshot import StatSnapshot
from tests.commands.stat_scene import SECOND, FakeTime, run, sink, source


def look_around(directories: list[Path], now: int, before: StatSnapshot | None = None) -> StatSnapshot:
    reported = Collected([str(path) for path in directories], streams_here(directories))
    return StatSnapshot.after(before, reported, now)


pytestmark = pytest.mark.usefixtures("root")


class TestRates:
    def test_rates_between_two_snapshots(self, root: Path) -> None:
        one, two = source(root, "A", log__rows=100), sink(root, "B", writer__written_samples=5)
        looks = [look_around([root], 10 * SECOND)]
        one.counter("log.rows").set(300)
        looks.append(look_around([root], 12 * SECOND, looks[-1]))
        two.counter("writer.written_samples").set(2)  # began anew
        source(root, "C", log__rows=50)
        looks.append(look_around([root], 13 * SECOND, looks[-1]))
        topics = [{s.topic: look.rates.get(s.path) for s in look.streams} for look in looks]
        assert topics == [
            {"A": None, "B": None},
            {"A": 100.0, "B": 0.0},
            {"A": 0.0, "B": None, "C": None},
        ]

    def test_bytes(self, root: Path) -> None:
        one, two = source(root, "A", log__position=4096), sink(root, "B", writer__written_bytes=1000)
        looks = [look_around([root], 10 * SECOND)]
        one.counter("log.position").set(8192)
        two.counter("writer.written_bytes").set(1500)
        looks.append(look_around([root], 12 * SECOND, looks[-1]))
        rates = [{s.topic: look.byte_rates.get(s.path) for s in look.streams} for look in looks]
        assert rates == [{"A": None, "B": None}, {"A": 2048.0, "B": 250.0}]

    def test_no_time_between(self, root: Path) -> None:
        source(root)
        look = look_around([root], SECOND)
        assert look_around([root], SECOND, look).rates == {}

    def test_watch(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = source(root, log__rows=1000).counter("log.rows")
        clock = FakeTime(lambda: rows.set(2000), lambda: rows.set(2001))
        monkeypatch.setattr(stat, "time", clock)
        printed = run("--watch", "500ms").stdout
        assert printed.count("Square") == 3
        assert [wanted in printed for wanted in ("1000", "2000", "2001")] == [True] * 3

    def test_watch_on_a_terminal_takes_the_screen_and_leaves_the_last_look(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        rows = source(root, log__rows=1000, log__position=4096).counter("log.rows")
        monkeypatch.setattr(stat, "time", FakeTime(lambda: rows.set(2000), lambda: rows.set(3001)))
        printed = run("--watch", "500ms").stdout
        screen, _, after = printed.partition("\x1b[?1049l")
        assert "\x1b[?1049h" in screen
        assert [wanted in screen for wanted in ("1000", "2000", "3001")] == [True] * 3
        assert [wanted in after for wanted in ("1000", "2000", "3001")] == [False, False, True]
        assert "2002" in after

    def test_watch_on_a_terminal_that_ends_at_once(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(stat, "streams_here", interrupted)
        assert "Square" not in run("--watch", "1").stdout

    def test_watch_as_json_is_a_line_a_look(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = source(root, log__rows=1000).counter("log.rows")
        monkeypatch.setattr(stat, "time", FakeTime(lambda: rows.set(2000)))
        looks = [json.loads(line) for line in run("--json", "--watch", "500ms").stdout.splitlines()]
        assert [look["streams"][0]["samples_per_second"] for look in looks] == [None, 2000.0]
        assert {look["time_ns"] for look in looks} == {1_700_000_000 * SECOND}

    def test_streams_come_and_go(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source(root, "A")
        clock = FakeTime(lambda: shutil.rmtree(root), lambda: source(root, "B") and None)
        monkeypatch.setattr(stat, "time", clock)
        looks = [json.loads(line) for line in run("--json", "--watch", "1").stdout.splitlines()]
        assert [[s["topic"] for s in look["streams"]] for look in looks] == [["A"], [], ["B"]]

    @pytest.mark.parametrize("text", ["0", "soon"])
    def test_no_time_to_wait(self, text: str) -> None:
        result = CliRunner().invoke(app, ["stat", "--watch", text])
        assert result.exit_code == 2
        assert "such as 2s" in result.output or "write it as 200ms" in result.output
