"""One connection to a log server: it answers requests until either side ends it.

`h11` parses HTTP/1.1 and knows no sockets. Bodies that lie in files are sent by ``sendfile``, or are read and
encrypted in large parts, so that other connections are served meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import h11

from .http_messages import FileRange, HttpResponse, Refusal
from .server_config import Bounds
from .token_access import TokenAccess

_RECEIVED_BYTES: Final = 64 << 10
_READ_BYTES: Final = 256 << 10
#: Bytes per call to send: bounds the time between two checks of the pace.
_SENT_BYTES: Final = 1 << 20
#: A client that reads an answer more slowly, on average, is given up.
_RATE_MIN: Final = 32 << 10
_SERVER: Final = (("Server", "spark-rtps"),)
#: How long a refused client has to read why.
_LET_READ_SECONDS: Final = 1.0
_LOGGED: Final = json.dumps(
    {
        "error": "this server speaks TLS: ask with its certificate (receiver.ca, --ca), and renew a token sent in clear"
    }
).encode()
_IN_CLEAR: Final = (
    b"HTTP/1.1 400 Bad Request\r\nServer: spark-rtps\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_LOGGED), _LOGGED)
)


class Routes(Protocol):
    """Admits requests, and answers them."""

    @property
    def access(self) -> TokenAccess: ...

    def answer(self, method: str, target: str, body: bytes, peer: int | None = None) -> HttpResponse:
        """The answer to an admitted request; a wait ends when the peer closes the socket ``peer``.
        Raises Refusal."""


def _let_read(sock: ssl.SSLSocket) -> None:
    """Send nothing more, and wait until the peer has read why: closing with unread bytes would discard the answer."""
    socket.socket.shutdown(sock, socket.SHUT_WR)
    deadline = time.monotonic() + _LET_READ_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        sock.settimeout(left)
        if not socket.socket.recv(sock, _RECEIVED_BYTES):
            return


class _Gone(Exception):
    """The connection has ended, or is given up."""


class _Sized:
    """Stands for a body of which h11 only needs the length."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size


class HttpConnection:
    """Serves one connection in the thread that calls :meth:`run`; ``end`` may be called by another thread."""

    def __init__(
        self,
        sock: socket.socket,
        routes: Routes,
        bounds: Bounds,
        *,
        admitted: Callable[[socket.socket], None] = lambda _: None,
    ) -> None:
        """An SSLSocket has not done its handshake yet. ``admitted`` is called when the peer shows the token."""
        self._sock = sock
        self._routes = routes
        self._bounds = bounds
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=bounds.header_bytes)
        #: Whether a request has shown the token: connections without are ended first.
        self.is_admitted = False
        self._admitted = admitted
        self._lock = threading.Lock()
        #: The time since which it waits for the first byte of a request, in monotonic seconds; None: it does not.
        self._idle_since: float | None = None
        self._gave_way = False

    def run(self) -> None:
        """Answer requests until the connection ends. Raises nothing that a peer can cause."""
        try:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if isinstance(self._sock, ssl.SSLSocket):
                self._shake_hands(self._sock)
            while self._serve_one():
                self._http.start_next_cycle()
        except (_Gone, OSError, h11.LocalProtocolError):
            pass
        finally:
            self._sock.close()

    def end(self) -> None:
        """Wake the thread that serves the connection, which then ends."""
        try:
            # Not SSLSocket's own: it removes the encryption first, and the thread may be sending just then.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended

    @property
    def idle_since(self) -> float | None:
        """The time since which it waits for a request and has no byte of it, in monotonic seconds; None: it has one."""
        return self._idle_since

    def give_way(self) -> bool:
        """End the connection if it is idle. A request that comes at the same moment is not processed, so its sender may
        send it again (RFC 9112 §9.3.1)."""
        with self._lock:
            if self._idle_since is None:
                return False
            self._gave_way = True
        self.end()
        return True

    # --- inside ------------------------------------------------------------------------------------

    def _shake_hands(self, sock: ssl.SSLSocket) -> None:
        deadline = time.monotonic() + self._bounds.request_seconds
        sock.settimeout(self._bounds.request_seconds)
        first = socket.socket.recv(sock, 1, socket.MSG_PEEK)
        if first.isalpha():  # the beginning of a method; a handshake begins with 22 (RFC 8446 §5.1)
            socket.socket.sendall(sock, _IN_CLEAR)
            _let_read(sock)
            raise _Gone
        sock.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            sock.do_handshake()
        except ssl.SSLError:
            _let_read(sock)
            raise

    def _serve_one(self) -> bool:
        """Take and answer one request; whether another one may follow."""
        is_head = False
        try:
            request, deadline = self._request()
            if request is None:
                return False
            is_head = request.method == b"HEAD"
            answer = self._answer(request, deadline)
        except Refusal as refusal:
            answer = refusal.answer
        except h11.RemoteProtocolError as error:
            answer = Refusal(error.error_status_hint, "the request is malformed").answer
        self._send(answer, is_head=is_head)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    def _request(self) -> tuple[h11.Request | None, float]:
        """The next request, and its deadline; None: the peer has no more."""
        bounds = self._bounds
        begun = bool(self._http.trailing_data[0])
        # unauthenticated connections get the short timeout
        idle = bounds.idle_seconds if self.is_admitted else bounds.request_seconds
        deadline = time.monotonic() + (bounds.request_seconds if begun else idle)
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                return event, deadline
            if event is not h11.NEED_DATA:
                return None, deadline
            if begun:
                self._receive(deadline)
            else:
                self._receive_first(deadline)
                begun, deadline = True, time.monotonic() + bounds.request_seconds

    def _receive_first(self, deadline: float) -> None:
        """The first bytes of a request; meanwhile the connection may give way to another one."""
        self._idle_since = time.monotonic()
        try:
            self._receive(deadline)
        finally:
            with self._lock:
                self._idle_since = None
        if self._gave_way:
            raise _Gone

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise _Gone
        self._sock.settimeout(left)
        self._http.receive_data(self._sock.recv(_RECEIVED_BYTES))

    def _answer(self, request: h11.Request, deadline: float) -> HttpResponse:
        try:
            method, target = request.method.decode("ascii"), request.target.decode("ascii")
        except UnicodeDecodeError:
            raise Refusal(400, "the request is malformed") from None
        headers = dict(request.headers)
        certified = isinstance(self._sock, ssl.SSLSocket) and bool(self._sock.getpeercert(binary_form=True))
        if (
            not self._routes.access.admit(method, target, headers, certified=certified)
            and not self.is_admitted
        ):
            self.is_admitted = True
            self._admitted(self._sock)
        body = self._body(headers, deadline)
        return self._routes.answer(method, target, body, self._sock.fileno())

    def _body(self, headers: dict[bytes, bytes], deadline: float) -> bytes:
        most = self._bounds.body_bytes if self.is_admitted else 0
        if int(headers.get(b"content-length", b"0")) > most:
            raise Refusal(413, f"a body has at most {most} bytes")
        body = bytearray()
        while True:
            if self._http.they_are_waiting_for_100_continue:
                go_on = self._http.send(h11.InformationalResponse(status_code=100, headers=[]))
                self._write(memoryview(go_on or b""))
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._receive(deadline)
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > most:
                    raise Refusal(413, f"a body has at most {most} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return bytes(body)
            else:
                raise _Gone

    def _send(self, answer: HttpResponse, *, is_head: bool) -> None:
        http = self._http
        try:
            if http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                raise _Gone
            headers = [*_SERVER, *answer.headers, ("Content-Length", str(answer.length))]
            if answer.length:
                headers.append(("Content-Type", answer.kind))
            if http.their_state is not h11.DONE:  # the rest of the request is not waited for
                headers.append(("Connection", "close"))
            response = h11.Response(status_code=answer.status, headers=headers)
            head = http.send(response) or b""
            if is_head or not answer.length:
                self._write(memoryview(head))
            elif isinstance(answer.body, bytes):
                self._write(memoryview(head + (http.send(h11.Data(data=answer.body)) or b"")))
            else:
                self._write(memoryview(head))
                http.send_with_data_passthrough(h11.Data(data=_Sized(answer.length)))  # type: ignore[arg-type]
                self._send_file(answer.body)
            http.send(h11.EndOfMessage())
        finally:
            if isinstance(answer.body, FileRange):
                os.close(answer.body.fd)

    def _write(self, data: memoryview) -> None:
        self._sock.settimeout(self._bounds.stalled_seconds)
        begun, sent = time.monotonic(), 0
        while sent < len(data):
            sent += self._sock.send(data[sent : sent + _SENT_BYTES])
            self._check_pace(begun, sent)

    def _send_file(self, part: FileRange) -> None:
        if not isinstance(self._sock, ssl.SSLSocket):
            self._send_by_kernel(part)
            return
        # read, not mapped: a mapping of a file that is cut meanwhile would end the process
        buffer, sent = memoryview(bytearray(min(_READ_BYTES, part.nbytes))), 0
        begun = time.monotonic()
        while sent < part.nbytes:
            count = os.preadv(part.fd, [buffer[: part.nbytes - sent]], part.offset + sent)
            if not count:
                raise _Gone  # the file was cut
            self._write(buffer[:count])
            sent += count
            self._check_pace(begun, sent)

    def _send_by_kernel(self, part: FileRange) -> None:
        # A blocking socket lets the kernel continue by itself; a client that reads nothing ends the call.
        self._sock.settimeout(None)
        stalled = struct.pack(
            "ll", int(self._bounds.stalled_seconds), int(self._bounds.stalled_seconds % 1 * 1e6)
        )
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, stalled)
        to, begun, sent = self._sock.fileno(), time.monotonic(), 0
        while sent < part.nbytes:
            count = os.sendfile(to, part.fd, part.offset + sent, min(_SENT_BYTES, part.nbytes - sent))
            if not count:
                raise _Gone  # the file was cut
            sent += count
            self._check_pace(begun, sent)

    def _check_pace(self, begun: float, sent: int) -> None:
        if time.monotonic() - begun > self._bounds.stalled_seconds + sent / _RATE_MIN:
            raise _Gone
