"""The log server: sends parts of stream logs to clients that know its token.

Each connection has a thread, so that none waits for another: sending and encrypting release Python's lock. Their number
is limited. When one more comes, the oldest unauthenticated connection is ended; if all are authenticated, the one that
has been idle for longest; if all have a request, the new one gets a refusal with Retry-After.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from ..tls import server_context
from .http_connection import HttpConnection, Routes
from .listening import listen
from .log_routes import LogRoutes
from .server_config import LogServerConfig

_log = logging.getLogger("spark_rtps.serving")

#: Pause between two attempts to accept a connection while there are no descriptors.
_PAUSE_SECONDS: Final = 0.1
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)


class LogServer:
    """Listens as soon as it is made; :meth:`run` serves until another thread calls :meth:`close`."""

    def __init__(self, config: LogServerConfig, routes: Routes | None = None) -> None:
        """``routes`` replace those of the logs themselves.

        Raises TransportError if it cannot listen there, or if certificate or key cannot be used."""
        self.logs = LogRoutes(config.log_dir, config.token)
        self._routes: Routes = self.logs if routes is None else routes
        self._bounds = config.bounds
        self._tls = server_context(config.certificate, config.key, config.client_ca)
        self._lock = threading.Lock()
        self._connections: dict[HttpConnection, None] = {}  # the oldest first
        self._closing = False
        for log in config.logs:
            self.allow(log)
        #: A socket that was handed over keeps listening when this server ends.
        self._is_handed = config.descriptor is not None
        if config.descriptor is None:
            self._sock = listen(config.address, config.port)
        else:
            self._sock = socket.socket(fileno=config.descriptor)
        #: When an authenticated client was admitted last, in monotonic seconds.
        self._admitted_at = time.monotonic()
        #: Called, once, with the address of the first admitted peer on another host.
        self.crossed: Callable[[str], None] | None = None

    @property
    def port(self) -> int:
        port: int = self._sock.getsockname()[1]
        return port

    def allow(self, log: str) -> None:
        """Serve one more log."""
        self.logs.allowed.add(log)

    @property
    def unused_seconds(self) -> float:
        """Seconds since an authenticated client used the server."""
        with self._lock:
            if any(each.is_admitted for each in self._connections):
                self._admitted_at = time.monotonic()
        return time.monotonic() - self._admitted_at

    def run(self) -> None:
        """Serve; returns when the server is closed."""
        is_reported = False
        while not self._closing:
            try:
                sock, _ = self._sock.accept()
            except OSError as error:
                if not self._closing:  # no descriptors are left, or the peer has already left
                    if not is_reported:
                        _log.warning(
                            "the log server could not accept a connection: %s; trying again", error.strerror
                        )
                    is_reported = True
                    self._make_room()
                    time.sleep(_PAUSE_SECONDS)  # the connection still waits: trying at once fails at once
                continue
            is_reported = False
            try:
                self._take(sock)
            except Exception:  # noqa: BLE001  (such as no memory)
                _log.exception("the log server could not serve a connection; it serves the others")
                sock.close()

    def close(self) -> None:
        """End all connections and stop listening."""
        self._closing = True
        if not self._is_handed:
            try:
                self._sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts connections
            except OSError:
                pass  # it was closed before
        self._sock.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.end()

    # --- inside ------------------------------------------------------------------------------------

    def _take(self, sock: socket.socket) -> None:
        with self._lock:
            is_full = len(self._connections) >= self._bounds.connections
        if is_full and not self._make_room():
            try:
                if self._tls is None:
                    sock.send(_FULL, socket.MSG_DONTWAIT)
            except OSError:
                pass  # the connection is closed even if the answer was not sent
            sock.close()
            return
        if self._tls is not None:
            try:  # here, so that the connection can be ended in its handshake, too
                sock = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError:  # the peer has already left
                sock.close()
                return
        connection = HttpConnection(sock, self._routes, self._bounds, admitted=self._admitted)
        with self._lock:
            self._connections[connection] = None
        try:
            threading.Thread(target=self._serve, args=(connection,), name="range", daemon=True).start()
        except RuntimeError:  # no threads are left
            with self._lock:
                self._connections.pop(connection, None)
            sock.close()

    def _serve(self, connection: HttpConnection) -> None:
        try:
            connection.run()
        except Exception:  # noqa: BLE001  (the other connections are served)
            _log.exception("a connection to the log server failed")
        finally:
            with self._lock:
                self._connections.pop(connection, None)

    def _admitted(self, sock: socket.socket) -> None:
        self._admitted_at = time.monotonic()
        crossed = self.crossed
        if crossed is not None and (peer := _elsewhere(sock)) is not None:
            self.crossed = None
            crossed(peer)

    def _make_room(self) -> bool:
        """End the oldest unauthenticated connection, or else the one that is idle for longest; False: none is idle."""
        with self._lock:
            unmatched = next((each for each in self._connections if not each.is_admitted), None)
            if unmatched is not None:
                del self._connections[unmatched]
        if unmatched is not None:
            unmatched.end()
            return True
        return self._end_idle()

    def _end_idle(self) -> bool:
        with self._lock:
            idle = [(since, each) for each in self._connections if (since := each.idle_since) is not None]
        for _, each in sorted(idle, key=lambda pair: pair[0]):
            if each.give_way():  # its peer may have sent a request meanwhile
                with self._lock:
                    self._connections.pop(each, None)
                return True
        return False


def _elsewhere(sock: socket.socket) -> str | None:
    """The peer's address, unless it is an address of this host."""
    try:
        peer, here = sock.getpeername()[0], sock.getsockname()[0]
    except OSError:  # it has left
        return None
    is_here = peer == here or ipaddress.ip_address(peer).is_loopback
    return None if is_here else str(peer)
