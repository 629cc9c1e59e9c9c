"""The command itself: it checks a file, shows a table, and needs no Spark."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.commands.receive import _table
from spark_rtps.receiver_service.config_file import ReceiverFileError
from spark_rtps.receiver_service.rates import Rates
from spark_rtps.transport.receiver.log_lines import log_lines_to
from tests.receiver_service.supervisor_scene import HEAD, Scene
from tests.support.child_environment import child_environment

A = '[subscriptions.a]\ntopic = "A"\n'


def test_check_says_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "receiver.toml"
    file.write_text(HEAD + A + 'retention = "committed"\n[subscriptions.robot]\ntopic = "rt/*"\n')
    result = CliRunner().invoke(app, ["receive", "--check", str(file)])
    assert result.exit_code == 0, result.output
    assert "a: topic A, domain 0, keeps by committed" in result.output
    assert "robot: topic rt/*" in result.output and "2 subscriptions, served at 127.0.0.1:0" in result.output
    assert not (tmp_path / "state").exists()  # it is only a check


def test_check_shows_doubts(tmp_path: Path) -> None:
    file = tmp_path / "receiver.toml"
    file.write_text(HEAD + A + 'reliability = "best_effort"\nreliable_reader.nack_period = "1s"\n')
    result = CliRunner().invoke(app, ["receive", "--check", str(file)])
    assert "a: reliable_reader.nack_period: no effect with reliability=best_effort" in result.output


def test_check_of_a_bad_file(tmp_path: Path) -> None:
    file = tmp_path / "receiver.toml"
    file.write_text(HEAD + A + "histori = 1\n")
    result = CliRunner().invoke(app, ["receive", "--check", str(file)])
    assert result.exit_code and isinstance(result.exception, ReceiverFileError)
    assert "[subscriptions.a] histori: is unknown; did you mean 'history'?" in str(result.exception)


def test_check_shows_secrets_that_are_open_to_all(tmp_path: Path) -> None:
    file, token = tmp_path / "receiver.toml", tmp_path / "read.token"
    file.write_text(HEAD.replace("[defaults]", '[tokens]\nread = "read.token"\n[defaults]') + A)
    token.write_text("0123456789abcdef")
    for mode, is_open in ((0o604, True), (0o602, True), (0o640, False), (0o600, False)):
        token.chmod(mode)
        result = CliRunner().invoke(app, ["receive", "--check", str(file)])
        printed = "".join(result.output.split("\n"))
        assert (
            f"[tokens] read: {token} is open to all users of this host (mode {mode:04o})" in printed
        ) is is_open
        assert "0123456789abcdef" not in printed and result.exit_code == 0


def test_names_do_not_control_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    log_lines_to(logging.StreamHandler(out))
    logging.getLogger("spark_rtps.receiver_service").warning("topic %s: %s", "a\x1b[2J\r\nERROR b", "ü\u202e")
    (line,) = out.getvalue().splitlines()
    assert line.endswith("WARNING spark_rtps.receiver_service: topic a\ufffd[2J\ufffd\ufffdERROR b: ü\ufffd")


def test_the_table(scene: Scene) -> None:
    supervisor = scene.begin(A)
    scene.committed(scene.keeper("a").log, slow=100)
    rates = Rates()
    rates.rows(supervisor.keepers, 0)
    (row,) = rates.rows(supervisor.keepers, 10**9)
    assert (row.writers, row.rate, row.nbytes) == (2, 0.0, 200)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(_table(supervisor, rates))
    text = console.export_text()
    assert "receiving at 127.0.0.1:7777" in text and "slow 200 B" in text and "running" in text


def test_samples_a_second(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = scene.begin(A)
    rates = Rates()
    rates.rows(supervisor.keepers, 10**9)
    monkeypatch.setattr(scene.receivers[0], "counters", lambda: {"log.rows": 103})
    (row,) = rates.rows(supervisor.keepers, 3 * 10**9)
    assert row.rate == 50
    monkeypatch.setattr(scene.receivers[0], "counters", lambda: {"log.rows": 3})  # a new log
    (row,) = rates.rows(supervisor.keepers, 4 * 10**9)
    assert row.rate == 0


WITHOUT_SPARK = """
import sys

class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"no {name} here", name=name)

sys.meta_path.insert(0, NoSpark())
from spark_rtps.cli import main
import spark_rtps.receiver_service.service
sys.argv = ["spark-rtps", "receive", "--check", sys.argv[1]]
main()
"""


def test_the_receive_command_runs_without_spark(tmp_path: Path) -> None:
    file = tmp_path / "receiver.toml"
    file.write_text(HEAD + A)
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(WITHOUT_SPARK), str(file)],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0 and "1 subscriptions, served at" in run.stdout, run.stderr
