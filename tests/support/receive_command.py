"""``spark-rtps receive`` as a process, in a directory of its own."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from spark_rtps.receiver_service.backlog import read_counters
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from tests.support.child_environment import child_environment
from tests.support.numbered_samples import numbers_of

ROOT = Path(__file__).parents[2]
HEAD = """\
directory = "state"
listen = "127.0.0.1:{port}"
[defaults]
domain = {domain}
interface = "lo"
log.segment_bytes = "1MiB"
log.max_bytes = "64MiB"
"""


class Receive:
    """A ``spark-rtps receive`` in a directory, started again and again."""

    def __init__(self, tmp_path: Path, domain: int, port: int = 0) -> None:
        self.port = port
        self._head = HEAD.format(domain=domain, port=port)
        self.file = tmp_path / "receiver.toml"
        self.root = tmp_path / "state"
        self.output = tmp_path / "output"
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notified.bind(str(tmp_path / "notify"))
        self.notified.settimeout(1)
        self._environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "600000"}
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, text: str) -> None:
        self.file.write_text(self._head + text)

    def start(self, text: str) -> None:
        self.write(text)
        self.start_again()

    def start_again(self) -> None:
        """As its file says."""
        self.silent()
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark_rtps", "receive", str(self.file)],
                stderr=output,
                stdout=output,
                cwd=ROOT,
                env={**child_environment(), **self._environment},
            )
        self.reported("READY=1")

    def reported(self, field: str) -> str:
        """What the service manager is told with a field, which must come."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                printed = self.notified.recv(4096).decode()
            except TimeoutError:
                assert self.process is not None and self.process.poll() is None, self.printed()
                continue
            if field in printed.split("\n"):
                return printed
        raise AssertionError(f"no {field}: {self.printed()}")

    def silent(self) -> None:
        """Nothing that was told so far counts any more."""
        self.notified.setblocking(False)
        try:
            while self.notified.recv(4096):
                pass
        except BlockingIOError:
            pass
        self.notified.settimeout(1)

    def printed(self) -> str:
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
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode()
            except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                continue
            for name, pids in found.items():
                if f".{name}" in command:
                    pids.append(pid)
        return found

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self.notified.close()
