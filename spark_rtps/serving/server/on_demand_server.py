"""A log server that is started when a client connects, as inetd starts servers.

The process whose logs are served listens itself, which costs a socket and a waiting thread. The server is a process of
its own, which inherits the listening socket and accepts the connection that waits there.

===========  ===============================  ==========  =============================================================
state        event                            next        what is done
===========  ===============================  ==========  =============================================================
waiting      a connection comes               serving     a server is started, which knows all logs
waiting      a connection comes, and the      pausing     the reason is logged
             server does not start
serving      the server ends, or is killed    pausing     its connections have ended; new ones wait in the socket
pausing      the pause is over                waiting     pauses grow with the starts within the last minute
any          stop                             stopped     the server is ended, the socket is closed
===========  ===============================  ==========  =============================================================

A server exits when no authenticated client has used it for long. What an unauthenticated client can cause is
bounded: a process that is idle for minutes, and in the long run about one start in ten seconds.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from ...transport.errors import RtpsError
from .listening import listen
from .process import LogServerProcess
from .server_config import LogServerConfig

_log = logging.getLogger("spark_rtps.datasource")

_PERIOD_SECONDS: Final = 60.0
_FIRST_PAUSE_SECONDS: Final = 0.25
_PAUSE_SECONDS_MAX: Final = 10.0
#: A killed driver may leave a server at its port for a moment.
_PORT_SECONDS: Final = 10.0
#: Longer than a server takes to start.
_JOIN_SECONDS: Final = 10.0


class Server(Protocol):
    """The part of :class:`LogServerProcess` that is used here."""

    @property
    def pid(self) -> int: ...
    def fileno(self) -> int: ...
    def serve(self, log: str) -> None: ...
    def notes(self) -> list[dict[str, object]]: ...
    def ended(self) -> int | None: ...
    def stop(self) -> None: ...
    def close_in_child(self) -> None: ...


StartServer: TypeAlias = Callable[[LogServerConfig], Server]


class StartPacing:
    """When the next start may be: the first at once, further ones within a minute at growing intervals."""

    def __init__(self) -> None:
        self._starts: deque[float] = deque()

    def started(self, now: float) -> None:
        self._starts.append(now)

    def pause(self, now: float) -> float:
        """Seconds until the next start is allowed."""
        while self._starts and now - self._starts[0] >= _PERIOD_SECONDS:
            self._starts.popleft()
        if not self._starts:
            return 0.0
        apart = min(_PAUSE_SECONDS_MAX, _FIRST_PAUSE_SECONDS * 2 ** (len(self._starts) - 1))
        left: float = self._starts[-1] + apart - now
        return max(0.0, left)


class OnDemandServer:
    """Listens as soon as it is made. ``crossed`` is called, once and by another thread, with the address of the first
    admitted peer on another host."""

    def __init__(
        self,
        config: LogServerConfig,
        *,
        crossed: Callable[[str], None] = lambda _: None,
        start: StartServer = LogServerProcess.start,
    ) -> None:
        """Raises TransportError if it cannot listen."""
        self._sock = listen(config.address, config.port, patience=_PORT_SECONDS if config.port else 0.0)
        self._config = replace(config, port=self.port, descriptor=self._sock.fileno())
        self._crossed: Callable[[str], None] | None = crossed
        self._start = start
        self._lock = threading.Lock()  # of the server and its logs
        self._server: Server | None = None
        self._logs: dict[str, None] = {}
        self._pacing = StartPacing()
        self._logged = ""
        self._stopping = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._owner = os.getpid()
        self._thread = threading.Thread(target=self._run, name="serve on demand", daemon=True)
        _living.add(self)
        self._thread.start()

    @property
    def port(self) -> int:
        port: int = self._sock.getsockname()[1]
        return port

    @property
    def pid(self) -> int | None:
        """The process id of the server, if one runs."""
        server = self._server
        return None if server is None else server.pid

    def serve(self, log: str) -> None:
        """Serve one more log, from now on."""
        if log in self._logs:
            return
        with self._lock:
            self._logs[log] = None
            if self._server is not None:
                try:
                    self._server.serve(log)
                except RtpsError as error:
                    _log.info("%s", error)  # the next server knows the log

    def start(self) -> None:
        """Start the server now. Raises TransportError if it cannot use its certificate."""
        with self._lock:
            self._begin()
        self._notify()

    def stop(self) -> None:
        """End the server, and stop listening. May be called twice; in a forked process it does nothing."""
        if self._stopping or os.getpid() != self._owner:
            return
        self._stopping = True
        _living.discard(self)
        self._notify()
        self._thread.join(_JOIN_SECONDS)
        if not self._thread.is_alive():
            os.close(self._wake)

    # --- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._do_work()
            except Exception as error:  # noqa: BLE001  (without this thread no client is answered)
                if repr(error) != self._logged:
                    self._logged = repr(error)
                    _log.exception("the log server could not be started or watched; trying again")
                self._wait(None, _FIRST_PAUSE_SECONDS)
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.stop()
        self._sock.close()

    def _do_work(self) -> None:
        server = self._server
        if server is not None:
            self._wait(server.fileno(), None)
            self._hear(server)
            return
        pause = self._pacing.pause(time.monotonic())
        if pause:
            self._wait(None, pause)
        elif self._wait(self._sock.fileno(), None):
            self._answer()

    def _wait(self, descriptor: int | None, seconds: float | None) -> bool:
        """True when a descriptor can be read or is at its end; False when the time is over or the thread is woken."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(None if seconds is None else seconds * 1000 + 1)]
        if self._wake in ready:
            os.eventfd_read(self._wake)
        return descriptor in ready

    def _answer(self) -> None:
        """Start a server for the waiting connection."""
        with self._lock:
            if self._server is not None or self._stopping:
                return
            try:
                self._begin()
            except (RtpsError, OSError) as error:
                if str(error) != self._logged:
                    self._logged = str(error)
                    _log.warning("%s; tasks on other hosts wait for it", error)

    def _begin(self) -> None:
        self._pacing.started(time.monotonic())
        self._server = self._start(replace(self._config, logs=tuple(self._logs)))

    def _hear(self, server: Server) -> None:
        with self._lock:
            for note in server.notes():
                peer, crossed = note.get("crossed"), self._crossed
                if isinstance(peer, str) and crossed is not None:
                    self._crossed = None
                    crossed(peer)
            status = server.ended()
            if status is None:
                return
            if status:
                message = (
                    "the log server process %d ended with exit status %d; the next connection starts another"
                )
                _log.warning(message, server.pid, status)
            self._server = None
        server.stop()

    def _notify(self) -> None:
        os.eventfd_write(self._wake, 1)

    # --- forks -------------------------------------------------------------------------------------

    def close_in_child(self) -> None:
        """In a forked process: release what belongs to the parent, which alone ends the server."""
        self._stopping = True
        self._sock.close()
        if self._server is not None:
            self._server.close_in_child()


_living: weakref.WeakSet[OnDemandServer] = weakref.WeakSet()


def _disown_all() -> None:
    for each in list(_living):
        each.close_in_child()
    _living.clear()


os.register_at_fork(after_in_child=_disown_all)
