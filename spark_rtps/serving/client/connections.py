"""Connections to log servers: one is kept for each server, from task to task.

A worker process runs one task after the other, which mostly read from the same server. A connection is taken out
while it is used, so a second user at the same time gets a new one. A forked process starts without connections.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import threading
import time
from typing import Final

from ...transport.errors import RangeServerError
from ..tls import SERVERS_MAX, Trust
from ..wire_format.served import Served

#: A connection that takes longer to be made, or is silent for longer, is given up, and another address is tried.
CONNECT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 10.0


class Connection(http.client.HTTPConnection):
    """A connection to one address. Answers have to arrive before ``until`` (monotonic, s)."""

    sock: socket.socket | None

    def __init__(self, address: str, served: Served) -> None:
        host, port = host_and_port(address)
        super().__init__(host, port)
        self.address = address
        self.until = 0.0
        self.is_used = False
        self._served = served
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        if self._served.ca is None:
            self.sock = self._plain()
        else:
            self.sock = Trust.of(self._served).secured(self._plain, self.host)
        self._socket = self.sock
        self.await_until(self.until)

    def _plain(self) -> socket.socket:
        left = max(0.01, min(CONNECT_SECONDS, self.until - time.monotonic()))
        sock = socket.create_connection((self.host, self.port), timeout=left)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def await_until(self, until: float) -> None:
        """From now on, answers have to arrive before ``until``."""
        self.until = until
        if self._socket is not None:
            self._socket.settimeout(max(0.01, min(SILENCE_SECONDS, until - time.monotonic())))

    def getresponse(self) -> http.client.HTTPResponse:
        plain = self.sock
        assert plain is not None
        self.sock = _WatchedSocket(plain, self)  # type: ignore[assignment]
        try:
            return super().getresponse()
        finally:
            if self.sock is None:  # this answer is the last: the socket closes with the body
                plain.close()
            else:
                self.sock = plain

    def abort(self) -> None:
        """End the connection while another thread waits for an answer."""
        if self._socket is not None:
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                pass  # it is not connected any more


class _WatchedSocket:
    """A socket as http.client reads it, with a limit on the time of a whole answer."""

    def __init__(self, sock: socket.socket, connection: Connection) -> None:
        self._sock = sock
        self._connection = connection

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self._sock.makefile("rb", buffering=0), self._connection))

    def close(self) -> None:
        """The connection closes the socket."""


class _Incoming(io.RawIOBase):
    def __init__(self, raw: socket.SocketIO, connection: Connection) -> None:
        self._raw = raw
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int | None:
        if time.monotonic() >= self._connection.until:
            raise TimeoutError("too slow")
        return self._raw.readinto(buffer)  # type: ignore[arg-type]

    def close(self) -> None:
        self._raw.close()
        super().close()


def host_and_port(address: str) -> tuple[str, int]:
    """Raises RangeServerError for a text that is not an address."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 1 << 16:
        raise RangeServerError(
            f"{address!r} is not the address of a server: give host:port", addresses=(address,)
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


# --- kept from task to task -----------------------------------------------------------------------

_lock = threading.Lock()
_kept: dict[Served, Connection] = {}
#: The address that answered last.
_answered: dict[Served, str] = {}


def addresses(served: Served) -> list[str]:
    """All addresses, beginning with the one that answered last."""
    with _lock:
        first = _answered.get(served)
    return sorted(served.addresses, key=lambda address: address != first)


def take(served: Served, address: str) -> Connection:
    """The connection that was kept to this address, or a new one."""
    with _lock:
        kept = _kept.get(served)
        if kept is not None and kept.address == address:
            return _kept.pop(served)
    return Connection(address, served)


def keep(served: Served, connection: Connection) -> None:
    """Give back a connection that has answered; it is used again if it is open."""
    connection.is_used = True
    closed: list[Connection] = []
    with _lock:
        _answered.pop(served, None)
        _answered[served] = connection.address
        while len(_answered) > SERVERS_MAX:
            oldest = next(iter(_answered))
            del _answered[oldest]
            if oldest in _kept:
                closed.append(_kept.pop(oldest))
        if connection.sock is None or served in _kept:
            closed.append(connection)
        else:
            _kept[served] = connection
    for each in closed:
        each.close()


def close_all() -> None:
    """Close all kept connections."""
    with _lock:
        closed = list(_kept.values())
        _kept.clear()
        _answered.clear()
    for each in closed:
        each.close()


def _forget() -> None:
    """In a forked process: the connections belong to its parent."""
    global _lock
    _lock = threading.Lock()
    close_all()


os.register_at_fork(after_in_child=_forget)
