"""The log server of a receiver service: started, supplied with the subscriptions, and restarted when it dies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from ..options.explanations import hint_of
from ..transport.errors import RtpsError, TransportError
from ..transport.receiver.supervision import RestartPolicy
from ..transport.structure import NANOSECONDS
from .config import ReceiverServiceConfig

_log = logging.getLogger("spark_rtps.receiver_service")

#: A server that could not listen for this long after the first start never will: another process has the port.
_PATIENCE_NS = 10 * NANOSECONDS


class Request(Protocol):
    """A client's request, passed on by the server: ``subscribe`` with ``options``, or ``unsubscribe`` with ``name``."""

    @property
    def op(self) -> str: ...
    @property
    def id(self) -> int: ...
    @property
    def options(self) -> Mapping[str, str]: ...
    @property
    def name(self) -> str: ...


class Server(Protocol):
    """The part of ReceiverServiceServerProcess that is used here."""

    @property
    def port(self) -> int: ...
    def tell(self, subscriptions: Sequence[Mapping[str, Any]]) -> None: ...
    def requests(self) -> Sequence[Request]: ...
    def fileno(self) -> int: ...
    def send_answer(self, number: int, *, name: str | None = None, error: str | None = None) -> None: ...
    def check(self) -> None: ...
    def stop(self) -> None: ...


#: Starts a server at the configured address and this port.
StartServer: TypeAlias = Callable[[ReceiverServiceConfig, int], Server]


class ServerKeeper:
    """Keeps one server running. ``server`` is None while there is none."""

    def __init__(self, config: ReceiverServiceConfig, *, start: StartServer, pool: Executor) -> None:
        self.server: Server | None = None
        self.error: str | None = None
        self._config = config
        self._start = start
        self._pool = pool
        self._port = self._asked_port = config.port
        self._due = 0
        self._begun: int | None = None
        self._has_run = False
        self._starting: Future[Server] | None = None
        self._stopping: Future[None] | None = None
        self._restarts = RestartPolicy()
        self._announced: list[dict[str, Any]] | None = None
        self._is_stale = False

    @property
    def is_alive(self) -> bool:
        """Whether it serves, or is going to."""
        return self.server is not None or not self._restarts.has_failed

    def replace(self, config: ReceiverServiceConfig) -> None:
        """Serve with another configuration: with a new server, since the old one cannot change."""
        if config.port != self._config.port:
            self._port = config.port
        self._config, self._is_stale = config, True

    def do_work(self, now: int) -> None:
        """Do what is due. Raises RtpsError if the server could never start."""
        if self._stopping is not None:
            if not self._stopping.done():
                return
            future, self._stopping = self._stopping, None
            if (error := future.exception()) is not None:
                _log.error("stopping the server failed: %r", error, exc_info=error)
        if self._starting is not None:
            self._see_start(now)
        elif self.server is not None:
            self._watch(now)
        elif now >= self._due:
            if self._begun is None:
                self._begun = now
            self._is_stale, self._asked_port = False, self._port
            self._starting = self._pool.submit(self._start, self._config, self._port)

    def failed(self, now: int, error: Exception) -> None:
        """A call for the server raised an unexpected error: restart the server."""
        _log.error("the server of the receiver: an unexpected error", exc_info=error)
        if self.server is not None:
            with suppress(Exception):  # no thread can be started: the next call tries again
                self._stop()
                self._died(now, f"unexpected error: {error!r}")
        elif self._starting is None and self._stopping is None:
            self._died(now, f"unexpected error: {error!r}")

    def tell(self, subscriptions: list[dict[str, Any]]) -> None:
        """Send the server the subscriptions, if they have changed."""
        if self.server is None or subscriptions == self._announced:
            return
        try:
            self.server.tell(subscriptions)
        except (RtpsError, OSError):
            return  # it has ended, which the next call notices
        self._announced = subscriptions

    def requests(self) -> Sequence[Request]:
        """The requests of clients since the last call."""
        if self.server is None:
            return ()
        try:
            return self.server.requests()
        except (RtpsError, OSError):
            return ()

    def send_answer(self, request: Request, *, name: str | None = None, error: str | None = None) -> None:
        if self.server is None:
            return
        try:
            self.server.send_answer(request.id, name=name, error=error)
        except (RtpsError, OSError):
            pass  # the client has lost its connection too

    def stop(self) -> None:
        """End the server, also one that is starting."""
        if self._starting is not None:
            with suppress(Exception):  # a failed start leaves no server
                self.server = self._starting.result()
            self._starting = None
        if self.server is not None:
            server, self.server = self.server, None
            server.stop()

    # --- inside ------------------------------------------------------------------------------------

    def _see_start(self, now: int) -> None:
        assert self._starting is not None and self._begun is not None
        if not self._starting.done():
            return
        future, self._starting = self._starting, None
        try:
            self.server = future.result()
        except Exception as error:
            if not self._has_run and now - self._begun > _PATIENCE_NS:
                raise _known(error) from error
            if isinstance(error, RtpsError):
                error.hint = hint_of(error)
            self._died(now, str(_known(error)))
            return
        self._has_run, self._announced, self.error = True, None, None
        if self._port == self._asked_port:  # otherwise the file names another port by now
            self._port = self.server.port  # clients use it, also after a restart
        self._restarts.runs(now)
        _log.info("serving at %s:%d", self._config.address, self.server.port)

    def _watch(self, now: int) -> None:
        assert self.server is not None
        try:
            self.server.check()
        except RtpsError as error:
            self._stop()  # it has ended, so this takes no time
            self._died(now, str(error))
            return
        if self._is_stale:
            self._stop()
            self._due = now

    def _stop(self) -> None:
        assert self.server is not None
        self._stopping = self._pool.submit(self.server.stop)
        self.server = None

    def _died(self, now: int, why: str) -> None:
        self.error = why
        self._due = self._restarts.died(now)
        _log.warning("%s; starting it again%s", why, " in a minute" if self._restarts.has_failed else "")


def _known(error: Exception) -> RtpsError:
    """The error as an RtpsError with its subject."""
    if isinstance(error, RtpsError):
        return error
    why = str(error) if isinstance(error, OSError) else repr(error)
    return TransportError(f"the server could not start: {why}")
