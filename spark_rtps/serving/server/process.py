"""Starts, watches and ends a log server from the process whose logs it serves."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import IO, Any, Final, Self

from ...transport.errors import RtpsError, TransportError
from ...transport.value_classes import value
from .server_config import LogServerConfig

__all__ = ["LogServerConfig", "LogServerProcess", "Request", "ReceiverServiceServerProcess"]

#: The package whose ``__main__`` is the process of a log server.
_MODULE: Final = "spark_rtps.serving"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0
_LINE_BYTES: Final = 64 << 10
#: A server that reads nothing for this long hangs.
_HANGS_SECONDS: Final = 5.0


class LogServerProcess:
    """A log server that lives no longer than this process: it ends when the pipe between them closes."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None and child.stdout is not None
        self._owner = os.getpid()
        self._child = child
        self._stdin: IO[bytes] = child.stdin
        self._lines = _Lines(child.stdout)
        self._notes: list[dict[str, object]] = []
        self._port = 0
        _living.add(self)

    @classmethod
    def start(cls, config: LogServerConfig) -> Self:
        """Start a server. Raises TransportError if it cannot listen, or cannot use its certificate."""
        handed = () if config.descriptor is None else (config.descriptor,)
        child = subprocess.Popen(
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a forked process can then close the pipes, whatever other threads did at the fork
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            # Ctrl-C at a terminal goes to the whole group: the driver ends this process, not the terminal.
            start_new_session=True,
            pass_fds=handed,
        )
        server = cls(child)
        try:
            answer = server._ask(config.to_json(), "ready")
            port = answer.get("port")
            if not isinstance(port, int):
                why = answer.get("error", "it ended without a reason")
                raise TransportError(f"the log server could not start: {why}")
        except BaseException:
            server._discard()
            raise
        server._port = port
        return server

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def port(self) -> int:
        return self._port

    def fileno(self) -> int:
        """Can be read when there are notes, and when the server has ended."""
        return self._lines.fileno()

    def serve(self, log: str) -> None:
        """Serve one more log, from now on. Raises RtpsError if the server has ended."""
        if self._ask(log, "allowed").get("allowed") != log:
            self.check()
            raise RtpsError(f"the log server process {self.pid} does not answer")

    def notes(self) -> list[dict[str, object]]:
        """The server's unasked messages since the last call."""
        while line := self._lines.next(0.0):
            self._notes.append(_parsed(line))
        notes, self._notes = self._notes, []
        return notes

    def ended(self) -> int | None:
        """The exit status of a server that has ended."""
        if not self._lines.is_at_end:
            return self._child.poll()
        try:
            return self._child.wait(_STOP_SECONDS)  # it closed its pipe a moment ago
        except subprocess.TimeoutExpired:
            self._child.kill()
            return self._child.wait()

    def check(self) -> None:
        """Raise RtpsError if the server has ended."""
        status = self.ended()
        if status is not None:
            raise RtpsError(f"the log server process {self.pid} ended with exit status {status}")

    def stop(self) -> None:
        """End the server. May be called twice; in a forked process it does nothing."""
        if os.getpid() != self._owner:
            return
        if self._child.poll() is None:
            try:
                self._stdin.close()
                self._child.wait(_STOP_SECONDS)
            except (OSError, subprocess.TimeoutExpired):
                pass
        self._discard()

    def close_in_child(self) -> None:
        """In a forked process: close the pipes, which would keep the server alive after the parent ended."""
        self._stdin.close()
        self._lines.close()
        self._child.returncode = 0  # this process does not wait for it

    # --- inside ------------------------------------------------------------------------------------

    def _ask(self, line: str, key: str) -> dict[str, object]:
        """Send the server a line, and return the answer that has ``key`` or an error; {} if the server has ended."""
        try:
            _write(self._stdin, line.encode() + b"\n")
        except (OSError, ValueError):
            return {}
        until = time.monotonic() + _START_SECONDS
        while (message := self._lines.next(until - time.monotonic())) is not None:
            if not message:
                return {}
            answer = _parsed(message)
            if key in answer or "error" in answer:
                return answer
            self._notes.append(answer)
        raise TransportError(f"the log server did not answer within {_START_SECONDS:g} s")

    def _discard(self) -> None:
        """Make sure that the server has ended, and close this end of its pipes."""
        _living.discard(self)
        self._child.kill()
        self._child.wait()
        self._stdin.close()
        self._lines.close()


@value
class Request:
    """A client's request, passed on by the server: ``subscribe`` with ``options``, or ``unsubscribe`` with ``name``."""

    op: str
    id: int
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    @classmethod
    def parsed(cls, note: Mapping[str, Any]) -> Request | None:
        """Parse a line of the server; None: it is not a request."""
        match note:
            case {"op": "subscribe", "id": int(number), "options": dict(options)}:
                return cls("subscribe", number, options={str(key): str(options[key]) for key in options})
            case {"op": "unsubscribe", "id": int(number), "name": str(name)}:
                return cls("unsubscribe", number, name=name)
        return None


class ReceiverServiceServerProcess(LogServerProcess):
    """The server of a receiver service: it gets the subscriptions, and passes on the requests of clients."""

    def tell(self, subscriptions: Sequence[Mapping[str, Any]]) -> None:
        """Send it all current subscriptions. Raises RtpsError if the server has ended."""
        self._say({"op": "state", "subscriptions": list(subscriptions)})

    def requests(self) -> list[Request]:
        """The requests of clients since the last call; each needs one :meth:`send_answer`."""
        return [request for note in self.notes() if (request := Request.parsed(note)) is not None]

    def send_answer(self, number: int, *, name: str | None = None, error: str | None = None) -> None:
        """Answer a request: with the subscription's name, or why there is none. Raises RtpsError."""
        parsed = {"name": name} if error is None else {"error": error}
        self._say({"op": "answer", "id": number, **parsed})

    def _say(self, line: dict[str, object]) -> None:
        try:
            _write(self._stdin, json.dumps(line).encode() + b"\n")
        except TimeoutError as error:
            self._child.kill()  # it got half a line
            raise RtpsError(f"the server process {self.pid} hangs and was killed: {error}") from error
        except (OSError, ValueError) as error:
            raise RtpsError(f"the server process {self.pid} has ended") from error


class _Lines:
    """The lines of a pipe, each waited for with a timeout."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._rest = b""
        self.is_at_end = False

    def fileno(self) -> int:
        return self._pipe.fileno()

    def next(self, seconds: float) -> bytes | None:
        """A line; b"" at the end; None: there is none within ``seconds``."""
        until = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if self.is_at_end:
                return b""
            poll = select.poll()
            poll.register(self._pipe, select.POLLIN)
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return None
            part = os.read(self.fileno(), _LINE_BYTES)
            self._rest += part
            self.is_at_end = not part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def close(self) -> None:
        self.is_at_end = True
        self._pipe.close()


def _write(pipe: IO[bytes], data: bytes) -> None:
    """Raises TimeoutError if the other side does not read."""
    left = memoryview(data)
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    while left:
        if not poll.poll(_HANGS_SECONDS * 1000):
            raise TimeoutError(f"it has read nothing for {_HANGS_SECONDS:g} s")
        left = left[pipe.write(left[: select.PIPE_BUF]) :]  # a writable pipe takes at least this much


def _parsed(line: bytes) -> dict[str, object]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}  # an imported module may print other lines


_living: weakref.WeakSet[LogServerProcess] = weakref.WeakSet()


def _disown_all() -> None:
    for each in list(_living):
        each.close_in_child()
    _living.clear()


os.register_at_fork(after_in_child=_disown_all)
