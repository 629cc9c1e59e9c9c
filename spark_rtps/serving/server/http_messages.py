"""Requests to a log server and its answers, without HTTP/1.1 itself."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from ...transport.errors import LogError, LogLostError, reason
from ...transport.limits import LOG_POSITION_MAX
from ...transport.value_classes import value

JSON: Final = "application/json"
#: The client shall ask again in a second.
SOON: Final = (("Retry-After", "1"),)
_DIGITS_MAX: Final = 19


class Request(NamedTuple):
    """An admitted request; a wait ends when the peer closes the socket ``peer``."""

    query: dict[str, str]
    body: bytes
    peer: int | None

    def number(self, name: str) -> int:
        """A position, or another number of the query. Raises Refusal."""
        text = self.query.get(name, "")
        if (
            not (text.isascii() and text.isdecimal())
            or len(text) > _DIGITS_MAX
            or int(text) > LOG_POSITION_MAX
        ):
            raise Refusal(400, f"{name!r} has to be a number")
        return int(text)


class FileRange(NamedTuple):
    """A part of an open file; the sender closes it."""

    fd: int
    offset: int
    nbytes: int


@value
class HttpResponse:
    """A response; ``body`` is sent as it is, or from a file."""

    status: int
    body: bytes | FileRange = b""
    kind: str = JSON
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def length(self) -> int:
        return self.body.nbytes if isinstance(self.body, FileRange) else len(self.body)


class Refusal(Exception):
    """A request is answered with an error; ``facts`` stand in the JSON object next to the sentence."""

    def __init__(
        self, status: int, error: str, headers: tuple[tuple[str, str], ...] = (), **facts: object
    ) -> None:
        super().__init__(error)
        body = json.dumps({"error": error, **facts}).encode()
        self.answer = HttpResponse(status, body, headers=headers)


def may_pass(error: LogError | OSError) -> bool:
    """Whether only the system refuses to read a log, for example for lack of descriptors: the log may be intact."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError | NotADirectoryError)


def refusal_of(error: LogError | OSError) -> Refusal:
    """The answer to a request for an unreadable log. A cause that may pass is not a loss."""
    if isinstance(error, LogLostError):
        return Refusal(404, str(error), lost=True)
    if may_pass(error):
        why = reason(error) if isinstance(error, OSError) else str(error)
        return Refusal(503, f"the log cannot be read now: {why}", (("Retry-After", "1"),))
    return Refusal(404, str(error))


def json_answer(content: dict[str, Any]) -> HttpResponse:
    return HttpResponse(200, json.dumps(content).encode())


def json_body(body: bytes) -> dict[str, Any]:
    """The JSON object of a request. Raises Refusal."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("v") != 1:
        raise Refusal(400, 'the body has to be a JSON object with "v": 1')
    return found
