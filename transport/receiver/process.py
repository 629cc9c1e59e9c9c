"""Starts, watches and ends a receiver process from the process that reads its log."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Final, cast

from .. import errors
from ..errors import LogFullError, RtpsError, TransportError
from ..log.counters import COUNTERS_FILE, Counters
from ..log.log_view import Cursor
from .child import discard, take
from .config import ERROR_FILE, UNMATCHED_FILE, ReceiverConfig

#: Long enough for a busy machine: a child that fails closes its pipe, which is noticed at once.
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 30.0
#: Largest answer of a child, in bytes.
_ANSWER_MAX: Final = 1 << 20


class ReceiverProcess:
    """A receiver that lives no longer than this process: it ends when the pipe between them closes."""

    def __init__(self, child: subprocess.Popen[bytes], directory: Path) -> None:
        self._child = child
        self.directory = directory
        self._counters = Counters.open(directory / COUNTERS_FILE)
        self._position = self._counters.counter("log.position")
        self._consumer = self._counters.counter("log.consumer")
        self._base = self._counters.counter("log.base")

    @classmethod
    def start(cls, config: ReceiverConfig) -> ReceiverProcess:
        """Start a receiver on ``config.log_directory``, with a new log or the one that is there.

        Raises the child's own TransportError or LogError if it cannot open its sockets or its log.
        """
        child = take()
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(config.to_json().encode() + b"\n")
            child.stdin.flush()
            answer = _answer_of(child)
        except BaseException:
            discard(child)
            raise
        child.stdout.close()
        if "ready" not in answer:
            discard(child)
            kind = getattr(errors, str(answer.get("kind", "")), TransportError)
            error = (kind if issubclass(kind, RtpsError) else TransportError)(
                f"the receiver could not start: {answer.get('error', 'it ended without a message')}"
            )
            vars(error).update(cast("dict[str, object]", answer.get("facts", {})))
            raise error
        try:
            return cls(child, Path(config.log_directory))
        except BaseException:
            discard(child)
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    def cursor(self) -> Cursor:
        """The current end of the log; no system call."""
        return Cursor(self._position.get())

    def base(self) -> int:
        """The current begin of the log; no system call."""
        return self._base.get()

    def commit_position(self, position: int) -> None:
        """Everything before ``position`` has been consumed: the receiver may trim it."""
        if position > self._consumer.get():
            self._consumer.set(position)

    def counters(self) -> dict[str, int]:
        return self._counters.snapshot()

    def why_unmatched(self) -> str | None:
        """Why an ephemeral receiver has matched no writer so far, as text; None: it has, or the reason is unknown."""
        if self.counters().get("status.subscription_matched.total_count", 0):
            return None
        try:
            return (self.directory / UNMATCHED_FILE).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def check(self) -> None:
        """Raise RtpsError with the reason if the receiver has ended."""
        status = self._child.poll()
        if status is None:
            return
        error = self.directory / ERROR_FILE
        text = error.read_text() if error.exists() else f"exit status {status}"
        reason, _, facts = text.rpartition("\n") if "\n" in text else (text, "", "{}")
        kind = LogFullError if reason.startswith(LogFullError.__name__) else RtpsError
        ended = kind(f"the receiver process {self.pid} ended: {reason}")
        vars(ended).update(json.loads(facts))
        raise ended

    def stop(self, *, dispose: bool = True) -> None:
        """End the receiver in good order; kill it if it does not end within ``_STOP_SECONDS``.

        Without ``dispose``, writers still wait for its successor on the log.
        """
        if self._child.poll() is None:
            assert self._child.stdin is not None
            try:
                if dispose:
                    self._child.stdin.write(b"stop\n")
                self._child.stdin.close()
            except OSError:
                pass  # the receiver is ending already
            try:
                self._child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        discard(self._child)


def _answer_of(child: subprocess.Popen[bytes]) -> dict[str, object]:
    """The child's answer about its start; empty: it ended without one. Raises TransportError if the answer takes too
    long.

    Code that Python runs at the start of any process may print lines before the answer; they are skipped.
    """
    assert child.stdout is not None
    until, read = time.monotonic() + _START_SECONDS, b""
    poll = (
        select.poll()
    )  # select() cannot wait for descriptors above 1023, which a supervisor of many receivers has
    poll.register(child.stdout, select.POLLIN)
    while True:
        line, newline, read = read.partition(b"\n")
        if newline:
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            if isinstance(answer, dict) and ("ready" in answer or "error" in answer):
                return answer
            continue
        left = max(0.0, until - time.monotonic())
        if len(line) > _ANSWER_MAX or not poll.poll(left * 1000):
            raise TransportError(f"the receiver did not start within {_START_SECONDS:g} s")
        some = os.read(child.stdout.fileno(), _ANSWER_MAX)
        if not some:
            return {}
        read = line + some
