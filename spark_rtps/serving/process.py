"""Starting, watching and ending a range server from the process whose logs it serves."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from typing import Final

from ..transport.errors import RtpsError, TransportError
from .server_config import RangeServerConfig

__all__ = ["RangeServerConfig", "RangeServerProcess"]

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0


class RangeServerProcess:
    """A range server that lives no longer than this process: it ends when the pipe between them closes."""

    def __init__(self, child: subprocess.Popen[bytes], port: int) -> None:
        self._child = child
        self._port = port

    @classmethod
    def start(cls, config: RangeServerConfig) -> RangeServerProcess:
        """Start a server. Raises TransportError if it cannot listen, or cannot use its certificate."""
        child = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            # Ctrl-C at a terminal goes to the whole group: the driver ends us, not the terminal.
            start_new_session=True,
        )
        try:
            answer = _ask(child, config.to_json())
            port = answer.get("port")
            if not isinstance(port, int):
                why = answer.get("error", "it ended without saying why")
                raise TransportError(f"the range server could not start: {why}")
        except BaseException:
            _discard(child)
            raise
        return cls(child, port)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def port(self) -> int:
        return self._port

    def serve(self, log: str) -> None:
        """Serve one more log, from now on. Raises RtpsError if the server has ended."""
        if _ask(self._child, log).get("allowed") != log:
            self.check()
            raise RtpsError(f"the range server process {self.pid} does not answer")

    def check(self) -> None:
        """Raise RtpsError if the server has ended."""
        status = self._child.poll()
        if status is not None:
            raise RtpsError(f"the range server process {self.pid} ended with exit status {status}")

    def stop(self) -> None:
        """End the server. May be called twice."""
        if self._child.poll() is None:
            assert self._child.stdin is not None
            try:
                self._child.stdin.close()
                self._child.wait(_STOP_SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                pass
        _discard(self._child)


def _ask(child: subprocess.Popen[bytes], line: str) -> dict[str, object]:
    """Hand the child a line, and return its answer; an empty one if it has ended."""
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(line.encode() + b"\n")
        child.stdin.flush()
    except OSError:
        return {}
    if not select.select([child.stdout], [], [], _START_SECONDS)[0]:
        raise TransportError(f"the range server did not answer within {_START_SECONDS:g} s")
    answer = child.stdout.readline()
    found: dict[str, object] = json.loads(answer) if answer else {}
    return found


def _discard(child: subprocess.Popen[bytes]) -> None:
    """Make sure that the child has ended, and close our ends of its pipes."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                pass  # what was not flushed has nobody to read it
