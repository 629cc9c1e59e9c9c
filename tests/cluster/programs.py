"""Programs that end with what started them, and what they have said."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from spark_rtps.java import find_java_home
from tests.support.child_environment import child_environment

PATH: Final = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
_START_SECONDS: Final = 90.0


class Programs:
    """Each has a file in ``folder`` with its output; ``log_dir`` is a folder for stream logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log_dir = folder / "logs"
        self.log_dir.mkdir(exist_ok=True)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: dict[subprocess.Popen[bytes], Path] = {}

    def output_of(self, process: subprocess.Popen[bytes]) -> str:
        """What a program has written so far."""
        return self._logs[process].read_text(errors="replace")

    def kill(self, pid: int | None) -> bool:
        """Kill a process of a program; whether it was there."""
        if pid is None:
            return False
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        """End everything, by PID."""
        for process in reversed(list(self._processes)):
            self.end(process)

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """What is started in the block ends with it."""
        before = list(self._processes)
        try:
            yield
        finally:
            for process in reversed(list(self._processes)):
                if process not in before:
                    self.end(process)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a program with its group."""
        if process in self._processes:
            self._processes.remove(process)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def spawn(self, what: str, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own; its output is called ``what``."""
        log = self._folder / f"{what}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**self.environment(), **environment},
                start_new_session=True,
            )
        self._logs[process] = log
        self._processes.append(process)
        return process

    @property
    def count(self) -> int:
        """Programs that were started."""
        return len(self._logs)

    def environment(self) -> Mapping[str, str]:
        return {
            **child_environment(),
            "PATH": PATH,
            "JAVA_HOME": str(find_java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "192m",
        }

    def await_words(self, process: subprocess.Popen[bytes], words: str) -> None:
        """Until a program has said this."""
        until = time.monotonic() + _START_SECONDS
        while words not in self.output_of(process):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{words!r} was not said: {self.output_of(process)[-2000:]}")
            time.sleep(0.1)


def command_line(pid: int) -> str:
    """With a null character after each word; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""
