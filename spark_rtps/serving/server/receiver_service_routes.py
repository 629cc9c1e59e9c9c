"""The answers of a receiver service's server, besides those of every log server (:mod:`.log_routes`).

======  =============================================  =========================================================
GET     /healthz, /readyz                              it is alive; it receives; needs no token
GET     /metrics                                       for Prometheus
GET     /v1/subscriptions, /v1/subscriptions/NAME      the topics received, and the ends of their logs
POST    /v1/subscriptions                              add one, or find the same one (role admin)
DELETE  /v1/subscriptions/NAME                         remove one that a client made (role admin)
GET     /v1/logs/LOG/tail?after=P&wait=S               where the log ends, as soon as that is behind P
GET     /v1/logs/LOG/advance, split, place, at         cursors, as LogView gives them
GET     /v1/logs/LOG/walk?from=P&bodies=0              its contents and damage, in parts
GET     /v1/logs/LOG/groups                            the consumer groups
PUT     /v1/logs/LOG/groups/GROUP                      commit a group's cursor (role commit)
DELETE  /v1/logs/LOG/groups/GROUP                      forget a group (role admin)
GET     /v1/streams, errors, losses, topics            the output of the commands of these names
======  =============================================  =========================================================

A client with a token has the token's role; one with a certificate of ``client_ca`` has ``client_role``.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...transport.errors import LogError, RtpsError, UsageError
from ...transport.log.checkpoint import read_base, read_tail
from ...transport.log.segment import read_metadata
from ..wire_format.log_location import LogLocation
from ..wire_format.receiver_service import LISTEN_SECONDS_MAX, OPTIONS_MAX
from . import report_queries
from .group_routes import GroupRoutes
from .http_messages import SOON, HttpResponse, Refusal, Request, json_answer, json_body, may_pass
from .log_queries import LogQueries, number_of_seconds
from .log_routes import add_log_routes
from .readiness import Readiness
from .router import Router
from .server_config import LogServerConfig
from .tail_watch import TailWatch
from .token_access import REPORT, TokenAccess

_log = logging.getLogger("spark_rtps.serving")

#: The body of a request other than a task's report.
_BODY_BYTES_MAX: Final = 64 << 10
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECRET: Final = ("token", "password", "secret")
#: Asks the supervisor, and returns its answer: ``name`` or ``error``. Raises Refusal if it does not answer.
Ask = Callable[[dict[str, object]], Mapping[str, object]]


class ReceiverServiceRoutes:
    """The answers of one receiver; called by the threads of all connections."""

    def __init__(self, config: LogServerConfig, ask: Ask) -> None:
        self._root = config.log_dir
        self.access = TokenAccess(
            config.tokens,
            client_role=config.client_role if config.client_ca is not None else None,
            open_to_all=("/healthz", "/readyz"),
        )
        self._ask = ask
        self._readiness = Readiness(config.log_dir)
        self._watch = TailWatch()
        self._of_log = LogQueries(self._watch)
        self._listener = (
            None if config.node is None else report_queries.TopicListener(config.node, config.log_dir)
        )
        self._reporting = threading.Lock()
        self._lock = threading.Lock()
        #: None: the supervisor has not sent them yet.
        self._subscriptions: dict[str, dict[str, Any]] | None = None
        self.groups = GroupRoutes(
            config.log_dir,
            config.groups_retention,
            lock=self._lock,
            known=lambda: (self._subscriptions or {}).values(),
            with_log=self._with_log,
        )
        self._router = Router()
        self._add_routes()

    def _add_routes(self) -> None:
        router = self._router
        add_log_routes(router, self._directory)
        self._of_log.add_to(router, self._directory)
        self.groups.add_to(router)
        router.add("/v1/subscriptions", GET=self._list_subscriptions, POST=self._subscribe)
        router.add("/v1/subscriptions/{name*}", GET=self._show_subscription, DELETE=self._unsubscribe)
        router.add("/v1/topics", GET=self._topics)
        router.add("/readyz", GET=self._ready)
        router.add("/metrics", GET=self._metrics)
        for path, query in (
            ("/v1/streams", report_queries.streams),
            ("/v1/errors", report_queries.errors),
            ("/v1/losses", report_queries.losses),
        ):
            router.add(path, GET=partial(self._report, query))

    def tell(self, subscriptions: list[dict[str, Any]]) -> None:
        """Set the current subscriptions."""
        with self._lock:
            self._subscriptions = {each["name"]: each for each in subscriptions}

    def close(self) -> None:
        """Answer all waiting requests."""
        self._watch.close()

    def answer(self, method: str, target: str, body: bytes, peer: int | None = None) -> HttpResponse:
        """The answer to an admitted request. Raises Refusal."""
        if len(body) > _BODY_BYTES_MAX and not REPORT.fullmatch(target):
            raise Refusal(413, f"a body has at most {_BODY_BYTES_MAX} bytes here")
        return self._router.answer(method, target, body, peer)

    # --- answers: subscriptions --------------------------------------------------------------------

    def _list_subscriptions(self, _: Request) -> HttpResponse:
        return json_answer({"v": 1, "subscriptions": [self._shown(each) for each in self._known().values()]})

    def _show_subscription(self, _: Request, name: str) -> HttpResponse:
        return json_answer(self._shown(self._named(name)))

    def _subscribe(self, request: Request) -> HttpResponse:
        made = self._asked({"op": "subscribe", "options": _options(json_body(request.body))})
        return json_answer(self._shown(self._named(made)))

    def _unsubscribe(self, _: Request, name: str) -> HttpResponse:
        if not self._named(name).get("dynamic"):
            raise Refusal(409, "it is a subscription of the receiver's file; remove it there")
        self._asked({"op": "unsubscribe", "name": name})
        return HttpResponse(204)

    # --- answers: reports --------------------------------------------------------------------------

    def _ready(self, _: Request) -> HttpResponse:
        is_ready, checks = self._readiness.readiness_now(self._subscriptions)
        return HttpResponse(200 if is_ready else 503, json.dumps(checks).encode())

    def _metrics(self, _: Request) -> HttpResponse:
        try:
            with self._reporting:
                return HttpResponse(200, report_queries.metrics(self._root), _TEXT)
        except UsageError as error:
            raise Refusal(501, str(error)) from error

    def _report(self, query: Callable[[Path], bytes], _: Request) -> HttpResponse:
        with self._reporting:  # one at a time: they read much
            return HttpResponse(200, query(self._root))

    def _topics(self, request: Request) -> HttpResponse:
        if self._listener is None:
            raise Refusal(501, "this receiver observes no domain")
        seconds = number_of_seconds(request.query.get("seconds", "3"), LISTEN_SECONDS_MAX)
        try:
            found = self._listener.topics(seconds)
        except RtpsError as error:
            raise Refusal(409, str(error)) from error
        if found is None:
            raise Refusal(503, "another request looks for topics now", SOON)
        return HttpResponse(200, found)

    # --- subscriptions -----------------------------------------------------------------------------

    def _known(self) -> dict[str, dict[str, Any]]:
        known = self._subscriptions
        if known is None:
            raise Refusal(503, "the receiver has not listed its subscriptions yet", SOON)
        return known

    def _named(self, name: str) -> dict[str, Any]:
        try:
            return self._known()[name]
        except KeyError:
            raise Refusal(404, "there is no such subscription") from None

    def _with_log(self, log: str) -> dict[str, Any]:
        for each in self._known().values():
            if each["log"] == log:
                return each
        raise Refusal(404, "there is no such log")

    def _directory(self, log: str) -> Path:
        self._with_log(log)
        return self._root / log

    def _asked(self, what: dict[str, object]) -> str:
        answer = self._ask(what)
        if "error" in answer:
            raise Refusal(400, str(answer["error"]))
        return str(answer.get("name", ""))

    def _shown(self, parsed: dict[str, Any]) -> dict[str, Any]:
        directory: Path = self._root / parsed["log"]
        place, tail = LogLocation.of_directory(directory), read_tail(directory)
        try:
            base = read_base(directory, read_metadata(directory).seed).position
        except LogError as error:
            if may_pass(error):
                raise  # do not report a position that the log does not have
            base = 0  # it has not begun, or is damaged; a reader of the log gets the error
        options = parsed.get("options") or {}
        return {
            **parsed,
            "v": 1,
            "directory": str(directory),
            "place": None if place is None else [place.boot_id, place.device, place.inode],
            "base": base,
            "position": max(base, 0 if tail is None else tail.position),
            "rows": 0 if tail is None else tail.rows,
            "options": {k: v for k, v in options.items() if not any(word in k.lower() for word in _SECRET)},
        }


def _options(parsed: dict[str, Any]) -> dict[str, str]:
    options = parsed.get("options")
    if not isinstance(options, dict) or len(options) > OPTIONS_MAX:
        raise Refusal(400, f'"options" has to be an object with at most {OPTIONS_MAX} texts')
    if not all(isinstance(value, str) for value in options.values()):
        raise Refusal(400, "options are texts")
    return options
