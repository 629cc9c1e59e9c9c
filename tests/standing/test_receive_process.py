"""``spark-rtps receive`` as a process: kills, signals, patterns, and every sample once in the log."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps.standing.backlog import read_counters
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from tests.support import domains
from tests.support.child_environment import child_environment
from tests.support.numbered_samples import numbers_of
from tests.support.waiting import wait_until

DOMAIN = domains.STANDING
ROOT = Path(__file__).parents[2]
CYCLONE = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'
    "</Domain></CycloneDDS>"
)
HEAD = f"""\
directory = "state"
listen = "127.0.0.1:0"
[defaults]
domain = {DOMAIN}
interface = "lo"
log.segment_bytes = "1MiB"
log.max_bytes = "64MiB"
"""
NUMBERS = '[subscriptions.numbers]\ntopic = "Numbers"\nreliability = "reliable"\nhistory = "keep_all"\n'


class Receive:
    """A ``spark-rtps receive`` in a directory, started again and again."""

    def __init__(self, tmp_path: Path) -> None:
        self.file = tmp_path / "receiver.toml"
        self.root = tmp_path / "state"
        self.output = tmp_path / "output"
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(str(tmp_path / "notify"))
        self.notified.settimeout(60)
        self._environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, text: str) -> None:
        self.file.write_text(HEAD + text)

    def start(self, text: str) -> None:
        self.write(text)
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark_rtps", "receive", str(self.file)],
                stderr=output,
                stdout=output,
                cwd=ROOT,
                env={**child_environment(), **self._environment},
            )
        self.told("READY=1")

    def told(self, field: str) -> str:
        """What the service manager is told with a field, which must come."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            said = self.notified.recv(4096).decode()
            if field in said.split("\n"):
                return said
        raise AssertionError(f"no {field}: {self.said()}")

    def silent(self) -> None:
        """Nothing that was told so far counts any more."""
        self.notified.setblocking(False)
        try:
            while self.notified.recv(4096):
                pass
        except BlockingIOError:
            pass
        self.notified.settimeout(60)

    def said(self) -> str:
        return self.output.read_text() if self.output.exists() else ""

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    def records(self) -> dict[str, dict[str, str]]:
        path = self.root / "subscriptions.json"
        found: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def log(self, name: str) -> Path:
        return self.root / self.records()[name]["log"]

    def numbers(self, name: str = "numbers") -> list[int]:
        """The numbers of all samples in the log of a subscription."""
        found: list[int] = []
        position = self.position(name)
        if position:
            for frame in LogView(self.log(name)).frames(Cursor(0), Cursor(position)):
                found += [number for _, number in numbers_of(frame.run.samples())]
        return found

    def position(self, name: str) -> int:
        """The end of the log of a subscription; 0 while there is none."""
        return read_counters(self.log(name)).get("log.position", 0) if name in self.records() else 0

    def children(self) -> dict[str, list[int]]:
        """The processes that the supervisor has started, by module."""
        assert self.process is not None
        found: dict[str, list[int]] = {"receiver": [], "serving": []}
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        tasks = path.parent.parent.iterdir()
        for pid in [int(text) for task in tasks for text in (task / "children").read_text().split()]:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            for name, pids in found.items():
                if name in command:
                    pids.append(pid)
        return found

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self.notified.close()


@pytest.fixture
def receive(tmp_path: Path) -> Iterator[Receive]:
    made = Receive(tmp_path)
    yield made
    made.close()


class Writer:
    """Cyclone DDS in a process of its own, which writes numbers from 0 on until it is told to stop."""

    def __init__(self, topic: str, *, pause: float = 0.002) -> None:
        script = Path(__file__).with_name("number_writer.py")
        self._child = subprocess.Popen(
            [sys.executable, str(script), topic, str(DOMAIN), str(pause)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "CYCLONEDDS_URI": CYCLONE},
        )
        assert self._child.stdin is not None and self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin, self._child.stdout

    def stop(self) -> int:
        """How many numbers were written; it stays for those who have not got all of them."""
        self._stdin.write(b"stop\n")
        self._stdin.flush()
        return int(self._stdout.readline())

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        self._stdin.close()
        self._stdout.close()


@pytest.fixture
def writer() -> Iterator[Writer]:
    made = Writer("Numbers")
    yield made
    made.close()


def grows(receive: Receive, name: str = "numbers", by: int = 50) -> None:
    before = len(receive.numbers(name))
    wait_until(lambda: len(receive.numbers(name)) >= before + by, lambda: receive.said(), every=0.1)


def all_once(receive: Receive, count: int) -> None:
    """Every number is in the log, and none twice, in order."""
    wait_until(lambda: len(receive.numbers()) >= count, lambda: receive.said(), every=0.2)
    assert receive.numbers() == list(range(count)), receive.said()


class TestKills:
    def test_a_receiver_the_server_and_the_supervisor(self, receive: Receive, writer: Writer) -> None:
        receive.start(NUMBERS)
        grows(receive)
        log = receive.log("numbers")

        (receiver,) = receive.children()["receiver"]
        os.kill(receiver, signal.SIGKILL)
        wait_until(lambda: receive.children()["receiver"] not in ([], [receiver]), receive.said)
        grows(receive)

        (server,) = receive.children()["serving"]
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: receive.children()["serving"] not in ([], [server]), receive.said)
        grows(receive)

        receive.kill(signal.SIGKILL)
        receive.silent()
        receive.start(NUMBERS)
        assert receive.log("numbers") == log
        grows(receive)

        all_once(receive, writer.stop())

    @pytest.mark.parametrize("fate", ["removed", "damaged", "cut short"])
    def test_a_log_that_is_lost(self, receive: Receive, writer: Writer, fate: str) -> None:
        receive.start(NUMBERS)
        grows(receive)
        receive.kill(signal.SIGTERM)
        lost = receive.log("numbers")
        if fate == "removed":
            shutil.rmtree(lost)
        elif fate == "damaged":
            (lost / "metadata.json").write_text("{")
        else:  # before what a group has committed
            end = receive.position("numbers")
            groups = {"g": {"position": end + (1 << 20), "row": 0, "at_ns": 0}}
            (lost / "groups.json").write_text(json.dumps({"v": 1, "groups": groups}))
        receive.silent()
        receive.start(NUMBERS)
        grows(receive)
        assert receive.log("numbers") != lost and "NEW log" in receive.said()


class TestSignals:
    def test_a_start_after_term_misses_nothing(self, receive: Receive, writer: Writer) -> None:
        receive.start(NUMBERS)
        grows(receive)
        (receive.log("numbers") / "groups.json").write_text(
            json.dumps({"v": 1, "groups": {"slow": {"position": 0, "row": 0, "at_ns": 0}}})
        )
        assert receive.kill(signal.SIGTERM) == 0
        receive.told("STOPPING=1")
        assert "left: numbers (topic 'Numbers'): group slow is" in receive.said()
        receive.start(NUMBERS)
        grows(receive)
        all_once(receive, writer.stop())

    def test_hup(self, receive: Receive, writer: Writer) -> None:
        receive.start(NUMBERS)
        grows(receive)
        (receiver,) = receive.children()["receiver"]

        receive.write(NUMBERS + '[subscriptions.other]\ntopic = "Other"\n')
        receive.silent()
        receive.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        receive.told("RELOADING=1")
        receive.told("READY=1")
        wait_until(lambda: len(receive.children()["receiver"]) == 2, receive.said)
        assert receiver in receive.children()["receiver"] and "other is new" in receive.said()

        receive.write(NUMBERS.replace("keep_all", "keep_al"))
        receive.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        wait_until(lambda: "everything goes on as before" in receive.said(), receive.said)
        assert "[subscriptions.numbers] history: 'keep_al' must be one of" in receive.said()
        grows(receive)
        assert receiver in receive.children()["receiver"]
        all_once(receive, writer.stop())

    def test_the_watchdog_hears_of_it(self, receive: Receive) -> None:
        receive.start(NUMBERS)
        for _ in range(3):
            receive.told("WATCHDOG=1")


def test_a_pattern_finds_topics_now_and_later(receive: Receive, writer: Writer) -> None:
    receive.start('[subscriptions.all]\ntopic = "Num*"\nreliability = "reliable"\nhistory = "keep_all"\n')
    wait_until(lambda: "all/Numbers" in receive.records(), receive.said)
    grows(receive, "all/Numbers")
    later = Writer("Numerals")
    try:
        wait_until(lambda: "all/Numerals" in receive.records(), receive.said)
        grows(receive, "all/Numerals")
    finally:
        later.close()


def test_two_in_one_directory(receive: Receive) -> None:
    receive.start("")
    second = subprocess.run(
        [sys.executable, "-m", "spark_rtps", "receive", str(receive.file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1 and "another `spark-rtps receive` works in" in second.stderr


def test_the_token_of_this_host(receive: Receive) -> None:
    receive.start("")
    token = receive.root / "token"
    found = token.read_text()
    assert token.stat().st_mode & 0o777 == 0o600 and len(found.strip()) == 64
    receive.kill(signal.SIGTERM)
    receive.silent()
    receive.start("")
    assert token.read_text() == found
