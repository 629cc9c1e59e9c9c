"""The meaning of a log server's answers, and how long a client waits for one."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path
from typing import Final

from ...transport.errors import LogAccessError, LogLostError, RangeServerError, RtpsError

_REFUSAL_BYTES_MAX: Final = 64 << 10
_SENTENCE_MAX: Final = 300
_RETRY_SECONDS_MAX: Final = 5.0
#: Statuses of a server that is overloaded or about to end.
_PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
#: Bytes that have to arrive within the client's patience.
_BLOCK_BYTES: Final = 1 << 20


class Again(Exception):
    """A request may be repeated: why it failed, and the pause that the server asked for, in seconds."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


class Refused(Again):
    """This address will keep its answer; ``error`` is raised if no other address does better."""

    def __init__(self, error: RtpsError, *, is_known: bool = True) -> None:
        super().__init__(str(error))
        self.error = error
        #: False: a restarted server may not know the log yet.
        self.is_known = is_known


class Patience:
    """A deadline: ``seconds`` for the first block of a body, and for each block that follows."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._mark = _BLOCK_BYTES
        #: Bytes that have arrived.
        self.have = 0
        self.until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self.until - time.monotonic()

    def arrived(self, have: int) -> float:
        """``have`` bytes have arrived; returns the deadline for more."""
        self.have = have
        if have >= self._mark:
            self._mark = have + _BLOCK_BYTES
            self.until = time.monotonic() + self._seconds
        return self.until


def check(response: http.client.HTTPResponse, what: str, path: Path, address: str) -> None:
    """Raise the error of any status but 200 and 204. The log lies at ``path`` on the server's host."""
    status = response.status
    if status in (200, 204):
        return
    sentence, facts = _refusal(response)
    message = f": {sentence}" if sentence else ""
    if status == 401:
        raise Refused(LogAccessError(f"{address} refuses the token for {what}{message}"))
    if status == 403:
        raise Refused(LogAccessError(f"{address} refuses {what}{message}"))
    if status == 410:
        base = facts.get("base")
        held = f", which begins at {base}" if isinstance(base, int) else ""
        raise LogLostError(f"{what} is no longer in the log in {path}{held}", path=path)
    if status == 404 and facts.get("lost") is True:
        raise LogLostError(f"{what} cannot be read from the log in {path}{message}", path=path)
    if status == 404:
        unknown = LogLostError(f"{address} serves no stream log {path}{message}", path=path)
        raise Refused(unknown, is_known=False)
    if status == 416:
        raise LogLostError(f"{what} is not yet in the log in {path}{message}", path=path)
    if status in _PASSING:
        raise Again(f"HTTP {status}{message}", _pause(response))
    raise RangeServerError(f"{address} answers HTTP {status} for {what}{message}", addresses=(address,))


def length(response: http.client.HTTPResponse, address: str) -> int:
    """Bytes of the body. Raises RangeServerError if the answer has no length."""
    if response.length is None:
        raise RangeServerError(f"{address} sent an answer without Content-Length", addresses=(address,))
    return response.length


def _refusal(response: http.client.HTTPResponse) -> tuple[str, dict[str, object]]:
    """The sentence of a refusal, and its facts."""
    try:
        facts = json.loads(response.read(_REFUSAL_BYTES_MAX))
    except (ValueError, RecursionError):
        return "", {}
    if not isinstance(facts, dict):
        return "", {}
    sentence = str(facts.get("error", ""))[:_SENTENCE_MAX]
    return "".join(c if c.isprintable() else " " for c in sentence), facts


def _pause(response: http.client.HTTPResponse) -> float:
    text = response.getheader("Retry-After", "")
    return min(_RETRY_SECONDS_MAX, float(text)) if text.isascii() and text.isdecimal() else 0.0
