"""``spark-rtps receive`` as a process, and a Cyclone DDS writer of numbers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

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

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

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


def grows(receive: Receive, name: str = "numbers", by: int = 50) -> None:
    before = len(receive.numbers(name))
    wait_until(lambda: len(receive.numbers(name)) >= before + by, lambda: receive.said(), every=0.1)


def all_once(receive: Receive, count: int) -> None:
    """Every number is in the log, and none twice, in order."""
    wait_until(lambda: len(receive.numbers()) >= count, lambda: receive.said(), every=0.2)
    assert receive.numbers() == list(range(count)), receive.said()
