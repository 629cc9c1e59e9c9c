"""A DDS peer in a process of its own, which a test controls through its standard input and output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Self


class PeerProcess:
    """The test's end of the pipes, a context manager which kills the process at the end."""

    def __init__(
        self, command: Sequence[str], *, text: bool = False, environment: Mapping[str, str] | None = None
    ) -> None:
        self._child: subprocess.Popen[Any] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=text, env=environment
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def _pipes(self) -> tuple[IO[Any], IO[Any]]:
        """The pipe to the process and the pipe from it."""
        assert self._child.stdin is not None and self._child.stdout is not None
        return self._child.stdin, self._child.stdout

    def kill(self) -> None:
        """Kill the process, which announces nothing of it."""
        self._child.kill()
        self._child.wait()
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.close()
