"""Requests to a log server, repeated until they are answered.

The client waits for a server that restarts, and resumes a body that broke off. A refusal ends the request at once.
Answers are bounded in bytes and in time: a server that sends nothing useful for as long as the client is patient
counts as not reached.
"""

from __future__ import annotations

import http.client
import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ...transport.errors import LogAccessError, RangeServerError
from ...transport.log.frame import ALIGNMENT
from ..tls import distrust, refused_certificate
from ..wire_format.served import RANGE_BYTES_MAX, Served
from . import connections
from .connections import Connection
from .retry_policy import Again, Patience, Refused, check, length

_log = logging.getLogger("spark_rtps.datasource")

#: How long the client waits for a server.
PATIENCE_SECONDS: Final = 60.0
#: Bytes read at once: few at first, so that decoding can begin, then as many as have arrived.
_READ_BYTES: Final = 16 << 10
_READ_BYTES_MAX: Final = 1 << 20
_FIRST_PAUSE_SECONDS: Final = 0.02
#: A killed server is back after half a second if its host is not busy; a longer pause would only add to that.
_PAUSE_SECONDS_MAX: Final = 0.25
#: How long a restarted server may take to learn which logs it serves.
_UNKNOWN_SECONDS: Final = 2.0
#: A longer wait is logged.
_LOGGED_SECONDS: Final = 1.0

_T = TypeVar("_T")


class Cancelled(Exception):
    """The client was closed during a request."""


class _Refusals:
    """The refusals of one server's addresses, and when they are final.

    A restarted server has a moment to learn its logs, and an address that is not reached has as long to answer: another
    address may belong to another server.
    """

    def __init__(self) -> None:
        self._learns_until = 0.0
        self._others_until: float | None = None
        self.are_final = False

    def refusal(self, failed: list[Again]) -> Refused | None:
        """The refusal to raise at the end, given the answers of all addresses."""
        now = time.monotonic()
        refused = [each for each in failed if isinstance(each, Refused)]
        if not refused:
            self._learns_until, self._others_until = now + _UNKNOWN_SECONDS, None
            return None
        is_unreached = len(refused) < len(failed)
        if is_unreached and self._others_until is None:
            self._others_until = now + _UNKNOWN_SECONDS
        known = [each for each in refused if each.is_known or now >= self._learns_until]
        all_know = len(known) == len(refused)
        self.are_final = all_know and (not is_unreached or now >= (self._others_until or 0.0))
        return known[0] if known else None


class HttpClient:
    """Requests to one server, one at a time; only ``close`` may be called by another thread.

    ``path`` is the log's folder on the server's host, for errors. The client waits ``patience`` seconds for a server.
    """

    def __init__(self, served: Served, path: Path, *, patience: float = PATIENCE_SECONDS) -> None:
        if not served.addresses:
            raise RangeServerError("no address of a log server is known", is_reached=False)
        self._served = served
        self._path = path
        self._patience = patience
        self._closed = threading.Event()
        self._connection: Connection | None = None

    # --- requests ----------------------------------------------------------------------------------

    def get(self, target: str, what: str, *, max_bytes: int) -> bytes:
        """The body of the answer, of at most ``max_bytes``; ``what`` names the request's subject in errors."""
        return self.ask("GET", target, what, None, max_bytes=max_bytes)

    def ask(
        self,
        method: str,
        target: str,
        what: str,
        body: bytes | None,
        *,
        max_bytes: int,
        patience: float | None = None,
    ) -> bytes:
        """The same for any method. The request may be sent again, so it has to be idempotent.

        ``patience`` overrides the client's.
        """

        def read(response: http.client.HTTPResponse, connection: Connection) -> bytes:
            size = length(response, connection.address)
            if size > max_bytes:
                why = f"{connection.address} sends {size} bytes for {what}, which has at most {max_bytes}"
                raise RangeServerError(why, addresses=self._served.addresses)
            answer = response.read()
            if len(answer) < size:
                raise Again("the answer broke off")
            return answer

        waits = Patience(self._patience if patience is None else patience)
        return self._answered(method, lambda: (target, what), body, waits, read)

    def post(self, target: str, what: str, body: bytes) -> None:
        def read(response: http.client.HTTPResponse, _connection: Connection) -> None:
            response.read(_READ_BYTES)

        self._answered("POST", lambda: (target, what), body, Patience(self._patience), read)

    def fetch(self, log: str, start: int, into: memoryview, arrived: Callable[[int], None]) -> None:
        """Fill ``into`` with the bytes of ``log`` from position ``start`` on, which lie in one segment.

        ``arrived`` is called repeatedly with the number of bytes that are there; first with 0, when the server answers.
        """
        have, stop = 0, 0
        patience = Patience(self._patience)

        def target() -> tuple[str, str]:
            nonlocal have
            have -= have % ALIGNMENT  # a body may have broken off inside a frame
            asked = f"/v1/logs/{log}/frames?from={start + have}&to={start + stop}"
            return asked, f"position {start + have}"

        def read(response: http.client.HTTPResponse, connection: Connection) -> None:
            nonlocal have
            size = length(response, connection.address)
            if size != stop - have:
                why = f"{connection.address} sends {size} bytes for a range of {stop - have}"
                raise RangeServerError(why, addresses=self._served.addresses)
            arrived(have)
            while have < stop:
                block = min(max(_READ_BYTES, have), _READ_BYTES_MAX)
                got = response.readinto(into[have : min(stop, have + block)])
                if not got:
                    raise Again("the answer broke off")
                have += got
                connection.await_until(patience.arrived(have))
                arrived(have)

        while stop < len(into):
            stop = min(len(into), stop + RANGE_BYTES_MAX)
            self._answered("GET", target, None, patience, read)

    def close(self) -> None:
        """End a request that is under way: it raises Cancelled."""
        self._closed.set()
        connection = self._connection
        if connection is not None:
            connection.abort()

    # --- inside ------------------------------------------------------------------------------------

    def _answered(
        self,
        method: str,
        target: Callable[[], tuple[str, str]],
        body: bytes | None,
        patience: Patience,
        read: Callable[[http.client.HTTPResponse, Connection], _T],
    ) -> _T:
        """The result of ``read`` for the answer, once there is one."""
        pause, have, is_logged = _FIRST_PAUSE_SECONDS, patience.have, False
        refusals = _Refusals()
        waits_since: float | None = None
        while True:
            failed: dict[str, Again] = {}
            for address in connections.addresses(self._served):
                try:
                    return self._ask(address, method, target, body, patience, read)
                except Again as error:
                    failed[address] = error
            refused = refusals.refusal(list(failed.values()))
            if refused is not None and (refusals.are_final or patience.left <= 0):
                raise refused.error
            if patience.have > have:  # the server answers, but connections break
                pause, have, waits_since = _FIRST_PAUSE_SECONDS, patience.have, None
            waits_since = waits_since or time.monotonic()
            if time.monotonic() - waits_since > _LOGGED_SECONDS and not is_logged:
                is_logged = True
                _log.warning("%s; trying for %.0f s more", self._unreached(failed), patience.left)
            self._closed.wait(min(patience.left, max(pause, *(each.pause for each in failed.values()))))
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)
            if patience.left <= 0:
                raise self._unreached(failed) if refused is None else refused.error

    def _ask(
        self,
        address: str,
        method: str,
        target: Callable[[], tuple[str, str]],
        body: bytes | None,
        patience: Patience,
        read: Callable[[http.client.HTTPResponse, Connection], _T],
    ) -> _T:
        """Ask one address. Raises Again or Refused, or the error that the answer stands for."""
        while True:
            connection = connections.take(self._served, address)
            is_answered = is_whole = False
            try:
                self._connection = connection
                connection.await_until(patience.until)
                self._connect(connection)
                if self._closed.is_set():
                    raise Cancelled
                asked, what = target()
                connection.request(method, asked, body, {"Authorization": f"Bearer {self._served.token}"})
                response = connection.getresponse()
                is_answered = True
                check(response, what, self._path, address)
                found = read(response, connection)
                is_whole = response.isclosed()
                return found
            except (OSError, http.client.HTTPException, Again) as error:
                if self._closed.is_set():
                    raise Cancelled from None
                if isinstance(error, Again):
                    raise
                if (why := refused_certificate(error)) is not None:
                    raise Refused(LogAccessError(f"{address} refuses the certificate: {why}")) from error
                if not connection.is_used or is_answered:
                    raise Again(str(error) or type(error).__name__) from error
                # the server may have closed a connection that was not used for long
            finally:
                self._connection = None
                if is_whole:
                    connections.keep(self._served, connection)
                else:
                    connection.close()

    def _connect(self, connection: Connection) -> None:
        if connection.sock is not None or self._closed.is_set():
            return
        try:
            connection.connect()
        except ssl.SSLEOFError:
            raise  # the wait was cancelled
        except (ssl.SSLError, ValueError) as error:  # ValueError: from invalid certificates
            message = distrust(connection.address, error)
            raise Refused(RangeServerError(message, addresses=self._served.addresses)) from error

    def _unreached(self, failed: dict[str, Again]) -> RangeServerError:
        tried = "; ".join(f"{address}: {error}" for address, error in failed.items())
        return RangeServerError(
            f"the server of the stream log {self._path} is not reached ({tried})",
            addresses=self._served.addresses,
            is_reached=False,
        )
