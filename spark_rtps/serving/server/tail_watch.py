"""Requests that wait until a log grows: each in the thread of its connection, woken by one watching thread.

That thread looks at the ends of the logs, and, less often, whether the clients are still connected.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from pathlib import Path
from typing import Final

from ...transport.errors import LogError
from ...transport.log.checkpoint import read_tail

_log = logging.getLogger("spark_rtps.serving")

#: How often the ends of awaited logs are looked at.
_LOOK_SECONDS: Final = 0.003
#: How often the clients' connections are looked at.
_PEERS_SECONDS: Final = 0.2
#: Requests that wait at the same time; connections stay free for others.
WAITING_MAX: Final = 128


class TooManyWait(Exception):
    """The limit of waiting requests is reached, or there is no thread left that would wake them."""


class _Awaited:
    """A waiting request: its log, the awaited position, and the client's socket."""

    def __init__(self, directory: Path, after: int, peer: int | None) -> None:
        self.directory = directory
        self.after = after
        self.peer = peer
        self.there = threading.Event()


class TailWatch:
    """Looks at the ends of logs while a request waits for them, and sleeps otherwise."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._awaited: list[_Awaited] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    def wait(self, directory: Path, after: int, seconds: float, peer: int | None = None) -> None:
        """Return when the log's end is behind ``after``, ``seconds`` are over, or this is closed; or when the client
        has closed
        the socket ``peer``, which frees its slot."""
        if seconds <= 0 or _is_behind(directory, after):
            return
        awaited = _Awaited(directory, after, peer)
        with self._change:
            if self._closed:
                return
            if len(self._awaited) >= WAITING_MAX:
                raise TooManyWait
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="tail", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no threads are left: the next request tries again
                    raise TooManyWait from None
                self._thread = thread
            self._awaited.append(awaited)
            self._change.notify()
        try:
            awaited.there.wait(seconds)
        finally:
            with self._change:
                self._awaited.remove(awaited)

    def close(self) -> None:
        """Wake all waiting requests."""
        with self._change:
            self._closed = True
            for each in self._awaited:
                each.there.set()
            self._change.notify()

    def _run(self) -> None:
        look_for_peers_at = 0.0
        while True:
            with self._change:
                self._change.wait_for(lambda: self._awaited or self._closed)
                if self._closed:
                    return
                awaited = list(self._awaited)
            try:
                for directory in {each.directory for each in awaited}:
                    _look([each for each in awaited if each.directory == directory], directory)
                if time.monotonic() >= look_for_peers_at:
                    look_for_peers_at = time.monotonic() + _PEERS_SECONDS
                    _let_go_who_left(awaited)
            except Exception:  # noqa: BLE001  (waiting requests look themselves; later ones are woken)
                _log.exception("the ends of logs could not be read")
                for each in awaited:
                    each.there.set()
            time.sleep(_LOOK_SECONDS)


def _look(awaited: list[_Awaited], directory: Path) -> None:
    """Wake the requests that wait for more of one log than there was."""
    try:
        tail = read_tail(directory)
    except LogError:  # such as no descriptors; the waiting requests look themselves and report it
        tail = None
    for each in awaited:
        if tail is None or tail.position > each.after:  # None: damage is reported at once
            each.there.set()


def has_left(peer: int | None) -> bool:
    """Whether the client has closed its side of this socket, and so does not wait for an answer."""
    if peer is None:
        return False
    poll = select.poll()
    poll.register(peer, select.POLLRDHUP)
    return bool(poll.poll(0))


def _let_go_who_left(awaited: list[_Awaited]) -> None:
    poll, by_socket = select.poll(), {each.peer: each for each in awaited if each.peer is not None}
    for peer in by_socket:
        poll.register(peer, select.POLLRDHUP)
    for peer, _ in poll.poll(0):
        by_socket[peer].there.set()


def _is_behind(directory: Path, after: int) -> bool:
    tail = read_tail(directory)
    return tail is None or tail.position > after
