"""Finds the function that answers a request, by path and method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from ...transport.errors import LogError, UsageError
from .http_messages import HttpResponse, Refusal, Request, refusal_of

#: Called with the request, and with each named part of the path.
Handler: TypeAlias = Callable[..., HttpResponse]
_QUERY_FIELDS_MAX: Final = 8


class Router:
    """The routes of one server.

    A part of a pattern in braces, such as ``/v1/logs/{log}``, stands for one part of a path; the last one with a star,
    ``{name*}``, for all remaining parts.
    """

    def __init__(self) -> None:
        self._routes: list[tuple[list[str], Mapping[str, Handler]]] = []

    def add(self, pattern: str, **handlers: Handler) -> None:
        """Add ``handlers`` by method."""
        self._routes.append((pattern.split("/"), handlers))

    def answer(self, method: str, target: str, body: bytes, peer: int | None = None) -> HttpResponse:
        """The answer to an admitted request. Raises Refusal, also for errors of a log, a disk or a user."""
        try:
            parts = urlsplit(target)
            query = dict(
                parse_qsl(parts.query, strict_parsing=bool(parts.query), max_num_fields=_QUERY_FIELDS_MAX)
            )
        except ValueError:
            raise Refusal(400, "the request's target is malformed") from None
        handlers, names = self._find(parts.path.split("/"))
        if method not in handlers:
            raise _wrong_method(handlers)
        try:
            return handlers[method](Request(query, body, peer), **names)
        except UsageError as error:
            raise Refusal(400, str(error)) from error
        except (LogError, OSError) as error:
            raise refusal_of(error) from error

    def _find(self, path: list[str]) -> tuple[Mapping[str, Handler], dict[str, str]]:
        for pattern, handlers in self._routes:
            names = _match(pattern, path)
            if names is not None:
                return handlers, names
        return {"GET": _nothing}, {}


def _match(pattern: list[str], path: list[str]) -> dict[str, str] | None:
    if pattern[-1].endswith("*}"):
        path = (
            [*path[: len(pattern) - 1], "/".join(path[len(pattern) - 1 :])]
            if len(path) >= len(pattern)
            else path
        )
    if len(path) != len(pattern):
        return None
    names: dict[str, str] = {}
    for part, given in zip(pattern, path, strict=True):
        if part.startswith("{"):
            names[part.strip("{*}")] = given
        elif part != given:
            return None
    return names


def _nothing(_: Request) -> HttpResponse:
    raise Refusal(404, "there is nothing at this path")


def _wrong_method(handlers: Mapping[str, Handler]) -> Refusal:
    verb = "is" if len(handlers) == 1 else "are"
    sentence = f"only {' and '.join(handlers)} {verb} possible here"
    return Refusal(405, sentence, (("Allow", ", ".join(handlers)),))
