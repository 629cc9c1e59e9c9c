"""The commands against a receiver that runs: what they show of it is what it has received."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

import spark_rtps as rtps
from spark_rtps.cli import app
from spark_rtps.serving.client import connections
from tests.support import domains
from tests.support.child_environment import child_environment
from tests.support.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema([pa.field("x", pa.int32(), nullable=False)])


class Receiver:
    """A `spark-rtps receive` with one subscription, `numbers`, and the token of its directory."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "state"
        self._output = folder / "output"
        file = folder / "receiver.toml"
        file.write_text(
            f'directory = "state"\nlisten = "127.0.0.1:0"\n[defaults]\ndomain = {domains.COMMANDS_RECEIVER}\n'
            'interface = "lo"\n[subscriptions.numbers]\ntopic = "Commanded"\n'
        )
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark_rtps", "receive", str(file)],
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=child_environment(),
            )

    @property
    def address(self) -> str:
        found = re.search(r"serving at (\S+)", self._output.read_text())
        return "" if found is None else found[1]

    def run(self, *arguments: str, exit_code: int = 0) -> Result:
        asked = ("--receiver", self.address, "--token-file", str(self.directory / "token"))
        result = CliRunner().invoke(app, [*arguments, *asked])
        assert result.exit_code == exit_code, (result.output, result.exception)
        return result


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """One that has received the numbers 0 to 4."""
    one = Receiver(tmp_path_factory.mktemp("receiver"))
    try:
        wait_until(lambda: one.address and "ready:" in one._output.read_text(), one._output.read_text)
        with rtps.Participant(domains.COMMANDS_RECEIVER, interface="lo") as participant:
            participant.publish("Commanded", type="Number", schema=SCHEMA).write([{"x": x} for x in range(5)])
            shown = lambda: json.loads(one.run("stat", "--json").stdout)["streams"]  # noqa: E731
            wait_until(lambda: [stream["samples"] for stream in shown()] == [5])  # type: ignore[no-untyped-call]
        yield one
    finally:
        connections.close_all()
        one.process.terminate()
        one.process.wait(PATIENCE)


def test_stat_errors_and_losses(receiver: Receiver) -> None:
    assert "Commanded" in receiver.run("stat").stdout
    (stream,) = json.loads(receiver.run("stat", "--json").stdout)["streams"]
    assert (stream["state"], stream["domain"], stream["topic"]) == (
        "alive",
        domains.COMMANDS_RECEIVER,
        "Commanded",
    )
    assert receiver.run("loss").stdout.startswith("no loss at ")
    json.loads(receiver.run("errors", "--json").stdout)


def test_received_samples_are_shown(receiver: Receiver) -> None:
    reported = receiver.run("echo", "numbers", "--from", "earliest", "--count", "5").stdout.splitlines()
    assert [json.loads(line) for line in reported] == [{"x": x} for x in range(5)]
    dumped = receiver.run("log", "dump", "Commanded", "--json").stdout.splitlines()
    assert [json.loads(line)["sn"] for line in dumped] == [1, 2, 3, 4, 5]
    found = json.loads(receiver.run("log", "show", "numbers", "--json").stdout)
    assert (found["topic"], found["rows"], found["receiver"]["state"]) == ("Commanded", 5, "alive")
    (log,) = [path.parent for path in receiver.directory.glob("*/metadata.json")]
    assert found["path"] == str(log)
    receiver.run("log", "verify", log.name)


def test_the_type(receiver: Receiver) -> None:
    assert "int32 x;" in receiver.run("type", "numbers").stdout


def test_ls_shows_the_participants_that_a_receiver_sees(receiver: Receiver) -> None:
    with rtps.Participant(domains.COMMANDS_RECEIVER, interface="lo", options={"participant.name": "robot"}):
        seen = lambda: json.loads(receiver.run("ls", "--wait", "1s", "--json").stdout)  # noqa: E731
        wait_until(lambda: "robot" in {each["name"] for each in seen()["participants"]})  # type: ignore[no-untyped-call]


def test_another_token_is_refused(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("another-token-of-nobody")
    asked = ["stat", "--receiver", receiver.address, "--token-file", str(tmp_path / "token")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 1 and "refuses the token" in str(result.exception)
