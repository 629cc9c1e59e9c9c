"""Requests that wait until a log goes on: each in the thread of its connection, woken by one thread that looks."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

from ..transport.log.checkpoint import read_tail

#: How often the ends of the logs are looked at that somebody waits for.
_LOOK_SECONDS: Final = 0.003
#: Requests that wait at once; connections stay free for others.
WAITING_MAX: Final = 128


class TooManyWait(Exception):
    """So many requests wait already."""


class _Awaited:
    """One request: where its log is, and what is waited for."""

    def __init__(self, directory: Path, after: int) -> None:
        self.directory = directory
        self.after = after
        self.there = threading.Event()


class TailWatch:
    """Looks at the ends of logs while somebody waits for them, and sleeps otherwise."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._awaited: list[_Awaited] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    def wait(self, directory: Path, after: int, seconds: float) -> None:
        """Return when the log's end is behind ``after``, so many seconds are over, or this is closed."""
        if seconds <= 0 or _is_behind(directory, after):
            return
        awaited = _Awaited(directory, after)
        with self._change:
            if self._closed:
                return
            if len(self._awaited) >= WAITING_MAX:
                raise TooManyWait
            self._awaited.append(awaited)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tail", daemon=True)
                self._thread.start()
            self._change.notify()
        try:
            awaited.there.wait(seconds)
        finally:
            with self._change:
                self._awaited.remove(awaited)

    def close(self) -> None:
        """Whoever waits is answered now."""
        with self._change:
            self._closed = True
            for each in self._awaited:
                each.there.set()
            self._change.notify()

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._awaited or self._closed)
                if self._closed:
                    return
                awaited = list(self._awaited)
            for directory in {each.directory for each in awaited}:
                those = [each for each in awaited if each.directory == directory]
                least = min(each.after for each in those)
                tail = read_tail(directory)
                if tail is None or tail.position > least:  # None: what is damaged is told at once
                    for each in those:
                        if tail is None or tail.position > each.after:
                            each.there.set()
            time.sleep(_LOOK_SECONDS)


def _is_behind(directory: Path, after: int) -> bool:
    tail = read_tail(directory)
    return tail is None or tail.position > after
