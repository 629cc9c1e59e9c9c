"""The command line, by itself and against a real Cyclone DDS publisher on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spark_rtps import __version__
from spark_rtps.cli import app, main
from spark_rtps.commands.network import seconds
from spark_rtps.demo import COLORS, CYCLONE_ON_LOOPBACK
from spark_rtps.transport.errors import RtpsError, UsageError
from tests.support import domains
from tests.support.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]
IDL = str(ROOT / "conf" / "ShapeType.idl")
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "color", "type": "string", "nullable": True, "metadata": {}},
        {"name": "squares", "type": "long", "nullable": True, "metadata": {}},
    ],
}
DOMAIN, EMPTY_DOMAIN = domains.COMMANDS, domains.COMMANDS_EMPTY


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@contextlib.contextmanager
def publisher(domain: int) -> Iterator[int]:
    """Cyclone DDS, waiting for a reader of the topic Square to write to."""
    process = subprocess.Popen(
        [sys.executable, "-m", "spark_rtps.demo.publisher", "--domain", str(domain)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CYCLONEDDS_URI": CYCLONE_ON_LOOPBACK},
    )
    assert process.stdout is not None
    try:
        assert "waiting for a reader" in process.stdout.readline()
        yield domain
    finally:
        process.terminate()
        try:
            process.communicate(timeout=PATIENCE)
        finally:
            process.kill()


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["ls", "-h"], ["echo", "-h"], ["demo", "-h"], ["idl", "-h"]]
)
def test_help(arguments: list[str]) -> None:
    assert "Usage" in run(*arguments).output


def test_version() -> None:
    assert run("--version").output.strip() == f"spark-rtps {__version__}"


@pytest.mark.parametrize(("text", "value"), [("200ms", 0.2), ("3s", 3.0), ("2m", 120.0), ("1.5", 1.5)])
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "3 weeks", "-1s", "s"])
def test_a_wrong_duration_says_how_to_write_one(text: str) -> None:
    result = run("ls", "--wait", text)
    assert result.exit_code == 2
    assert "200ms" in result.output


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["ls", "--wait"], "--wait"),
        (["type", "T", "-w"], "--wait"),
        (["echo", "T", "-t"], "--timeout"),
        (["stat", "-w"], "--watch"),
    ],
)
def test_a_wrong_duration_names_its_option(arguments: list[str], option: str) -> None:
    printed = run(*arguments, "3parsecs").output
    assert f"Invalid value for {option}: '3parsecs' is not a duration" in " ".join(printed.split())


def test_an_error_of_ours_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["spark-rtps", "echo", "Square", "--type", "ShapeType"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    printed = capsys.readouterr().err
    assert printed.startswith("error: --type names a type in an IDL file")
    assert "Traceback" not in printed


# --- idl ------------------------------------------------------------------------------------------


def test_idl_of_a_json_schema() -> None:
    from spark_rtps.transport.types.idl.parser import parse_idl
    from spark_rtps.transport.types.model import Struct

    result = run("idl", "--type", "plant::Alert", json.dumps(SCHEMA))
    assert result.exit_code == 0, result.output
    alert = parse_idl(result.output)["plant::Alert"]
    assert isinstance(alert, Struct)
    assert [member.name for member in alert.members] == ["color", "squares"]


@pytest.mark.parametrize("text", ["{}", "{", '{"type": "struct", "fields": 3}'])
def test_idl_of_no_schema(text: str) -> None:
    result = run("idl", text)
    assert isinstance(result.exception, UsageError)
    assert "not a Spark schema" in str(result.exception)


# --- ls and echo ------------------------------------------------------------------------------------


def test_ls_of_an_empty_domain() -> None:
    result = run("ls", "--domain", str(EMPTY_DOMAIN), "--interface", "lo", "--wait", "100ms")
    assert result.exit_code == 0, result.output
    assert f"no participant seen on domain {EMPTY_DOMAIN}" in result.output


def test_echo_of_a_topic_nobody_writes() -> None:
    result = run("echo", "Nothing", "--domain", str(EMPTY_DOMAIN), "--interface", "lo", "--timeout", "100ms")
    assert isinstance(result.exception, RtpsError)
    assert "no writer of topic 'Nothing'" in str(result.exception)


def test_echo_of_a_type_that_is_not_in_the_file() -> None:
    result = run("echo", "Square", "--type-file", IDL, "--type", "Shape", "--domain", str(EMPTY_DOMAIN))
    assert isinstance(result.exception, UsageError)
    assert "defines no struct 'Shape'; it defines ShapeType" in str(result.exception)


def listing(*options: str) -> str:
    """What ls shows, once a second of listening is enough for it to show the topic Square."""
    shown = ""

    def is_shown() -> bool:
        nonlocal shown
        shown = run("ls", *options, "--wait", "1s").stdout
        return "Square" in shown

    wait_until(is_shown, lambda: f"Square in {shown}")
    return shown


def test_ls_and_echo_of_a_foreign_publisher() -> None:
    with publisher(DOMAIN):
        on = ("--domain", str(DOMAIN), "--interface", "lo")

        seen = json.loads(listing(*on, "--json"))
        assert [p["vendor"] for p in seen["participants"]] == ["Cyclone DDS"]
        (square,) = [e for e in seen["endpoints"] if e["topic"] == "Square"]
        assert (square["kind"], square["type"]) == ("writer", "ShapeType")
        assert square["qos"][:3] == ["reliable", "volatile", "keep_all"]

        assert "ShapeType" in listing(*on)

        typed = run("echo", "Square", *on, "--type-file", IDL, "--count", "8", "--timeout", "60s")
        assert typed.exit_code == 0, typed.output
        rows = [json.loads(line) for line in typed.stdout.splitlines()]
        assert [row["color"] for row in rows[:4]] == list(COLORS)
        assert set(rows[0]) == {"color", "x", "y", "shapesize"}
        assert len(rows) == 8

        reported = run("echo", "Square", *on, "--count", "4", "--timeout", "60s")
        assert [json.loads(line)["color"] for line in reported.stdout.splitlines()] == list(COLORS)

        found = json.loads(run("type", "Square", *on, "--wait", "60s", "--json", "--against", IDL).stdout)
        assert "@final\nstruct ShapeType {\n  @key string<128> color;" in found["idl"]
        assert found["schema"] == "`color` string, `x` int, `y` int, `shapesize` int"
        # nothing is said in that file: it is taken as Cyclone's is, which is final
        assert found["cannot_read_it"] == found["cannot_write_it"] == []
        text = run("type", "Square", *on, "--wait", "60s").stdout
        assert text.startswith("// topic Square, type ShapeType, announced by writer ")
        assert "-- as a Spark schema" in text

        raw = run("echo", "Square", *on, "--hex", "--count", "2", "--timeout", "60s")
        assert all(
            bytes.fromhex(json.loads(line)["_hex"])[:2] == b"\x00\x01" for line in raw.stdout.splitlines()
        )


# --- demo -------------------------------------------------------------------------------------------


def test_the_demo_without_java_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("spark_rtps.java._packaged_java_home", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run("demo")
    assert isinstance(result.exception, RtpsError)
    assert "Spark needs Java 17 or newer" in str(result.exception)


def test_the_demo_without_cyclone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run("demo")
    assert isinstance(result.exception, UsageError)
    assert "pip install 'spark-rtps[demo]'" in str(result.exception)
