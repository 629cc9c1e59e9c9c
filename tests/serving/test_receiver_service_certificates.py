"""Clients that show a certificate instead of a token: queries and commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.datasource import receiver_services as receivers_of_queries
from spark_rtps.datasource.receiver_services import receiver_services
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.serving.client.receiver_client import ReceiverClient
from spark_rtps.transport.errors import LogAccessError, OptionError, RangeServerError
from spark_rtps.transport.log.frame import Cursor
from tests.serving.receiver_service_scene import LOG, Scene, shown


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_RTPS_TOKEN", raising=False)


@pytest.fixture(autouse=True)
def patient_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy takes longer for TLS than a plan waits."""
    monkeypatch.setattr(receivers_of_queries, "_PATIENCE_SECONDS", 20.0)


def query_client(secured: Scene, pem: Path, name: str | None, **more: str) -> ReceiverClient:
    """The client of a query that shows this certificate."""
    given = {"topic": "rt/imu", "receivers": f"a=127.0.0.1:{secured.server.port}", **more}
    given["receiver.ca"] = str(pem / "server.pem")
    if name is not None:
        given |= {"receiver.certificate": str(pem / f"{name}.pem"), "receiver.key": str(pem / f"{name}.key")}
    client = receiver_services(parse_options(given, AppliesTo.READ))["a"].client
    assert isinstance(client, ReceiverClient)
    return client


def test_a_query_shows_its_certificate(secured: Scene, pem: Path) -> None:
    client = query_client(secured, pem, "good")
    assert client.tail(LOG).position == secured.end.position
    client.commit_offset(LOG, "g", Cursor(0))
    with pytest.raises(LogAccessError, match="needs the role admin"):
        client.subscribe({"topic": "T"})
    with pytest.raises(LogAccessError):
        query_client(secured, pem, None).tail(LOG)


@pytest.mark.parametrize("attempt", range(2))
@pytest.mark.parametrize(
    ("name", "why"),
    [("old", "certificate expired"), ("untrusted", "unknown ca")],
)
def test_a_certificate_that_is_not_accepted(
    secured: Scene, pem: Path, name: str, why: str, attempt: int
) -> None:
    for client in (query_client(secured, pem, name), secured.client("no token", **shown(pem, name))):
        with pytest.raises(LogAccessError, match=f"refuses the certificate: {why}"):
            client.tail(LOG)


def test_a_key_of_another_certificate(secured: Scene, pem: Path) -> None:
    wrong = shown(pem, "good") | {"key": (pem / "old.key").read_text()}
    with pytest.raises(
        RangeServerError, match=r"cannot be used: it is not a certificate with its key \(KEY_VALUES"
    ):
        secured.client("no token", **wrong).tail(LOG)


def test_a_key_with_a_passphrase(secured: Scene, pem: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    command = [
        "openssl",
        "pkey",
        "-in",
        str(pem / "good.key"),
        "-aes256",
        "-passout",
        "pass:x",
        "-out",
        str(locked),
    ]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(RangeServerError, match="its key has a passphrase"):
        secured.client("no token", **shown(pem, "good") | {"key": locked.read_text()}).tail(LOG)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"receiver.certificate": "good.pem"}, "'receiver.certificate'.*needs receiver.key"),
        ({"receiver.key": "good.key"}, "'receiver.key'.*needs receiver.certificate"),
        ({"receiver.certificate": "good.pem", "receiver.key": "good.key"}, "needs receiver.ca"),
        ({"receiver.ca": "good.key"}, "'receiver.ca'.*holds no certificate in PEM"),
        (
            {"receiver.ca": "ca.pem", "receiver.certificate": "good.key", "receiver.key": "good.key"},
            "'receiver.certificate'.*holds no certificate in PEM",
        ),
        (
            {"receiver.ca": "ca.pem", "receiver.certificate": "good.pem", "receiver.key": "good.pem"},
            "'receiver.key'.*holds no private key in PEM",
        ),
    ],
)
def test_options_that_cannot_be(pem: Path, given: dict[str, str], match: str) -> None:
    files = {option: str(pem / file) for option, file in given.items()}
    with pytest.raises(OptionError, match=match):
        receiver_services(parse_options({"topic": "T", "receivers": "a=h:1", **files}, AppliesTo.READ))


def test_the_key_is_shown_nowhere(secured: Scene, pem: Path) -> None:
    served = secured.served(**shown(pem, "good"))
    assert "KEY" not in repr(served)
    assert "CERTIFICATE" not in repr(served)


def test_commands_show_a_certificate(secured: Scene, pem: Path) -> None:
    there = ["--receiver", f"127.0.0.1:{secured.server.port}", "--ca", str(pem / "server.pem")]
    names = ("stat", "errors", "loss", "type", "echo", "log show", "log frames", "log dump", "log verify")
    for name in names:
        words = [*name.split(), *([] if name in ("stat", "errors", "loss") else [LOG]), *there]
        if name == "echo":
            words += ["--from", "earliest", "--count", "1"]
        mine = ["--certificate", str(pem / "good.pem"), "--key", str(pem / "good.key")]
        found = CliRunner().invoke(app, [*words, *mine])
        printed = f"{found.output}{found.exception}"
        assert "127.0.0.1" not in printed or found.exit_code == 0, (name, printed)
        assert "option" not in printed, (name, printed)
        old = ["--certificate", str(pem / "old.pem"), "--key", str(pem / "old.key")]
        found = CliRunner().invoke(app, [*words, *old])
        assert "certificate expired" in f"{found.output}{found.exception}", (name, found.output)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--certificate", "good.pem"], "give both"),
        (["--certificate", "good.pem", "--key", "good.key"], "give --ca too"),
        (["--ca", "ca.pem", "--certificate", "good.key", "--key", "good.key"], "holds no certificate in PEM"),
        (["--ca", "ca.pem", "--certificate", "good.pem", "--key", "good.pem"], "holds no private key in PEM"),
        (["--ca", "ca.pem"], "needs a token"),
    ],
)
def test_commands_that_cannot_be(pem: Path, words: list[str], printed: str) -> None:
    given = [word if word.startswith("--") else str(pem / word) for word in words]
    found = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["stat", "--receiver", "127.0.0.1:1", *given])
    assert found.exit_code == 2
    assert printed in found.output
