"""Commands that ask receiver services: how those are named, and what is made of their answers."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from spark_rtps.cli import app
from spark_rtps.commands import receivers, stat
from spark_rtps.monitoring.report_json import errors_as_json, losses_as_json, streams_as_json
from spark_rtps.monitoring.reports import ErrorReport, LossesOfLog
from spark_rtps.monitoring.seen_topics import SeenTopics
from spark_rtps.monitoring.stream_counters import State, Stream, StreamKind
from spark_rtps.serving.client import connections
from spark_rtps.serving.wire_format.receiver_service import LISTEN_SECONDS_ASKED_MAX
from spark_rtps.transport.log.error_log import DistinctError
from spark_rtps.transport.log.loss_report import Loss
from spark_rtps.transport.protocol.discovery.participant_data import ParticipantData
from tests.commands.receiver_scene import TOKEN, Answers, FakeReceiver
from tests.commands.stat_scene import KEYS, FakeTime, source

pytestmark = pytest.mark.usefixtures("root")

ERRORS = [
    ErrorReport(Path("/a/errors"), "Square", 7, [DistinctError("WARNING", "x", "so\x1b[2J", 3, 5, 6)], 2)
]
LOSSES = [LossesOfLog(Path("/a/losses"), "Square", [Loss(None, "Square", 1, 2, 3, 4, 5)], 9)]
STREAM = Stream(
    StreamKind.SOURCE, Path("/a"), "Squ\x1b[31mare", "T", 0, "01" * 12, 17, State.ALIVE, {"log.rows": 5}
)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(receivers, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("spark_rtps.commands.ls.PATIENCE_SECONDS", 0.2)
    monkeypatch.setenv("SPARK_RTPS_TOKEN", TOKEN)
    yield
    connections.close_all()


def run(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result


def telling(*streams: Stream) -> Answers:
    return lambda _: streams_as_json(list(streams), ["/var/lib/spark-rtps"], 1)


@pytest.fixture
def closed() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{sock.getsockname()[1]}"


class TestStat:
    def test_stat_shows_a_receiver_and_not_this_host(self, root: Path) -> None:
        source(root, "Here")
        with FakeReceiver(telling(STREAM)) as receiver:
            found = json.loads(run("stat", "--receiver", receiver.address, "--json").stdout)
            shown = run("stat", "-r", receiver.address).stdout
        assert receiver.asked == ["/v1/streams"] * 2
        (stream,) = found["streams"]
        assert set(stream) == KEYS
        assert (stream["topic"], stream["samples"]) == (STREAM.topic, 5)
        assert stream["path"] == f"{receiver.address}:/a"
        assert (found["looked_in"], found["unreached"]) == ([receiver.address], {})
        assert "Squ\ufffd[31mare" in shown and "\x1b" not in shown
        assert "Here" not in shown and receiver.address not in shown

    def test_stat_separates_two_receivers_with_the_same_paths(self) -> None:
        with FakeReceiver(telling(STREAM)) as one, FakeReceiver(telling(STREAM, STREAM)) as two:
            shown = run("stat", "-r", one.address, "-r", two.address).stdout
        assert (shown.count(f"at {one.address}"), shown.count(f"at {two.address}")) == (1, 2)

    def test_a_silent_receiver_does_not_hide_the_other(self, closed: str) -> None:
        with FakeReceiver(telling(STREAM)) as receiver:
            at = ("-r", closed, "-r", receiver.address)
            shown = run("stat", *at, exit_code=1).stdout
            found = json.loads(run("stat", *at, "--json", exit_code=1).stdout)
        assert "source" in shown and f"the receiver at {closed} is not reached" in shown
        assert "Connection refused" in found["unreached"][closed]
        assert [stream["pid"] for stream in found["streams"]] == [17]

    def test_no_receiver_answers(self, closed: str) -> None:
        error = run("stat", "-r", closed, exit_code=1).exception
        assert str(error).startswith(f"the receiver at {closed} is not reached: {closed}: ")

    def test_nothing_runs_there(self) -> None:
        ended = Stream(StreamKind.SOURCE, Path("/a"), "Old", None, None, "", 1, State.ENDED, {})
        with FakeReceiver(telling(ended)) as receiver:
            printed = run("stat", "-r", receiver.address).stdout
        assert f"no source or sink runs at {receiver.address}\n" in printed
        assert "1 more that have ended" in printed

    def test_rates_of_a_receiver_that_was_away_in_between(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now: list[int | None] = [100]

        def answers(_: str) -> dict[str, Any] | tuple[int, str]:
            if now[0] is None:
                return 500, "not now"
            counters = {"log.rows": now[0]}
            stream = Stream(StreamKind.SOURCE, Path("/a"), "S", None, None, "", 1, State.ALIVE, counters)
            return streams_as_json([stream], [], 1)

        scenes = [lambda rows=rows: now.__setitem__(0, rows) for rows in (None, 300, 700)]
        monkeypatch.setattr(stat, "time", FakeTime(*scenes))
        with FakeReceiver(answers) as receiver:
            lines = run("stat", "-r", receiver.address, "--json", "--watch", "2s").stdout.splitlines()
        looks = [json.loads(line) for line in lines]
        rates = [[stream["samples_per_second"] for stream in look["streams"]] for look in looks]
        assert rates == [[None], [], [None], [200.0]]
        assert [len(look["unreached"]) for look in looks] == [0, 1, 0, 0]


class TestErrorsAndLosses:
    def test_errors(self) -> None:
        with FakeReceiver(lambda _: errors_as_json(ERRORS, [])) as receiver:
            shown = run("errors", "-r", receiver.address).stdout
            found = json.loads(run("errors", "-r", receiver.address, "--json").stdout)
        assert receiver.asked == ["/v1/errors"] * 2
        assert "so\ufffd[2J" in shown and "source 7" in shown
        assert f"{receiver.address}:/a/errors is full: 2 more" in shown
        assert found["logs"][0]["errors"][0]["count"] == 3

    def test_losses(self, closed: str) -> None:
        with FakeReceiver(lambda _: losses_as_json(LOSSES, [])) as receiver:
            shown = run("loss", "-r", receiver.address).stdout
            both = run("loss", "-r", receiver.address, "-r", closed, exit_code=1)
            found = json.loads(run("loss", "-r", receiver.address, "--json").stdout)
        assert "Square" in shown and "9 more losses were not recorded" in shown
        assert f"Square at {receiver.address}" in both.stdout
        assert f"the receiver at {closed} is not reached" in both.stderr
        assert found["reports"][0]["losses"][0]["samples"] == 2

    @pytest.mark.parametrize(
        ("command", "printed"), [("errors", "no error and no warning"), ("loss", "no loss")]
    )
    def test_nothing(self, command: str, printed: str) -> None:
        with FakeReceiver(lambda _: {"logs": [], "reports": []}) as receiver:
            assert f"{printed} at {receiver.address}\n" in run(command, "-r", receiver.address).stdout


class TestLs:
    def test_ls_shows_the_participants_of_a_receiver(self) -> None:
        seen = SeenTopics.describe(5, [ParticipantData(bytes(12), name="robot")], [])
        with FakeReceiver(lambda _: seen.as_json()) as receiver:
            shown = run("ls", "-r", receiver.address, "--wait", "500ms").stdout
            found = json.loads(run("ls", "-r", receiver.address, "--json").stdout)
        assert receiver.asked == ["/v1/topics?seconds=0.5", "/v1/topics?seconds=3"]
        assert "participants of domain 5" in shown and "robot" in shown
        assert found == json.loads(json.dumps(seen.as_json()))

    def test_ls_listens_for_a_limited_time(self) -> None:
        assert LISTEN_SECONDS_ASKED_MAX < connections.SILENCE_SECONDS
        assert "8 s at most" in run("ls", "-r", "127.0.0.1:1", "--wait", "9s", exit_code=2).output

    @pytest.mark.parametrize("option", ["--domain=3", "--interface=lo", "--peers=h"])
    def test_network_options_are_refused_with_a_receiver(self, option: str) -> None:
        assert "uses its own" in run("ls", "-r", "127.0.0.1:1", option, exit_code=2).output


ANSWERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "no JSON object": (lambda _: [], "sent invalid data for its streams: it is no JSON object"),
    "not of its form": (lambda _: {"streams": [{}]}, "sent invalid data"),
    "no receiver service": (lambda _: (404, "there is nothing at this path"), "does not have it"),
    "refused": (lambda _: (403, "role"), "refuses the token: give another one with --token-file or"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_that_are_none(name: str) -> None:
    answers, printed = ANSWERS[name]
    with FakeReceiver(answers) as receiver:
        assert printed in str(run("stat", "-r", receiver.address, exit_code=1).exception)


def test_an_answer_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_rtps.serving.client.receiver_reports.ANSWER_BYTES_MAX", 100)
    with FakeReceiver(telling(STREAM)) as receiver:
        assert "has at most 100" in str(run("stat", "-r", receiver.address, exit_code=1).exception)


class TestHowToAsk:
    def test_the_token_of_a_file_goes_before_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SPARK_RTPS_TOKEN", "another")
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        with FakeReceiver(telling(STREAM)) as receiver:
            run("stat", "-r", receiver.address, "--token-file", str(tmp_path / "token"))
            error = run("stat", "-r", receiver.address, exit_code=1).exception
        assert "refuses the token" in str(error) and "another" not in str(error).split(":")

    @pytest.mark.parametrize(
        "token", ["", "two words", "t\N{LATIN SMALL LETTER O WITH DIAERESIS}ken", "a\0b"]
    )
    def test_an_invalid_token_is_refused(self, token: str, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(token)
        printed = run(
            "stat", "-r", "127.0.0.1:1", "--token-file", str(tmp_path / "token"), exit_code=2
        ).output
        assert "token" in printed
        assert not token or token not in printed

    def test_no_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("SPARK_RTPS_TOKEN")
        assert "SPARK_RTPS_TOKEN" in run("stat", "-r", "127.0.0.1:1", exit_code=2).output

    def test_files_that_are_none_or_too_long(self, tmp_path: Path) -> None:
        run("stat", "-r", "127.0.0.1:1", "--token-file", str(tmp_path / "none"), exit_code=2)
        (tmp_path / "long").write_text("x" * 5_000)
        printed = run("stat", "-r", "127.0.0.1:1", "--token-file", str(tmp_path / "long"), exit_code=2).output
        assert "more than 4096 bytes" in printed
        printed = run("stat", "-r", "127.0.0.1:1", "--ca", str(tmp_path / "long"), exit_code=2).output
        assert "no certificate in PEM" in printed

    @pytest.mark.parametrize("address", ["edge1:7420", "10.0.0.1:7420", "localhost.evil:7420"])
    def test_the_token_goes_to_no_other_host_in_the_clear(self, address: str) -> None:
        assert "give the receiver's certificate with --ca" in " ".join(
            run("stat", "-r", address, exit_code=2).output.replace("│", " ").split()
        )

    @pytest.mark.parametrize("address", ["edge1", "edge1:", ":7420", "edge1:0", "edge1:x"])
    def test_an_invalid_address_is_refused(self, address: str) -> None:
        assert "host:port" in run("stat", "-r", address, exit_code=2).output

    def test_the_same_one_twice_is_asked_once(self) -> None:
        with FakeReceiver(telling(STREAM)) as receiver:
            found = json.loads(run("stat", "--json", *["-r", receiver.address] * 2).stdout)
        assert len(found["streams"]) == 1

    def test_directories_are_those_of_this_host(self, tmp_path: Path) -> None:
        printed = run("stat", "-r", "127.0.0.1:1", "-l", str(tmp_path), exit_code=2).output
        assert "uses its own" in printed


def certificate(folder: Path, name: str) -> Path:
    """A certificate and its key in one file."""
    path = folder / name
    make = f"openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=edge -keyout {path} -out {path}.crt"
    subprocess.run(make.split(), check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


def test_with_tls_the_token_is_shown_to_its_certificate_only(tmp_path: Path) -> None:
    own, other = certificate(tmp_path, "own.pem"), certificate(tmp_path, "other.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    with FakeReceiver(telling(STREAM), context) as receiver:
        at = ("stat", "-r", receiver.address, "--ca")
        assert "source" in run(*at, f"{own}.crt").stdout
        asked = list(receiver.asked)
        assert "cannot be trusted" in str(run(*at, f"{other}.crt", exit_code=1).exception)
        error = run("stat", "-r", receiver.address, exit_code=1).exception
    assert receiver.asked == asked == ["/v1/streams"]
    assert "is not reached" in str(error)


def test_a_silent_receiver_is_not_waited_for_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        run("stat", "-r", f"127.0.0.1:{silent.getsockname()[1]}", exit_code=1)
        assert time.monotonic() - begun < 5
