"""What the server of a receiver service answers, besides what every log server does (:mod:`.served_logs`).

======  =============================================  =========================================================
GET     /healthz, /readyz                              whether it is there, and receives; needs no token
GET     /metrics                                       for Prometheus
GET     /v1/subscriptions, /v1/subscriptions/NAME      what is received, and where its log ends
POST    /v1/subscriptions                              one more, or the one that is there (role admin)
DELETE  /v1/subscriptions/NAME                         one that a client made (role admin)
GET     /v1/logs/LOG/tail?after=P&wait=S               where the log ends, as soon as that is behind P
GET     /v1/logs/LOG/advance, split, place, at         cursors, as LogView gives them
GET     /v1/logs/LOG/walk?from=P&bodies=0              what it holds and what is damaged, for some of it at a time
GET     /v1/logs/LOG/groups                            the consumer groups
PUT     /v1/logs/LOG/groups/GROUP                      what a group has consumed (role commit)
DELETE  /v1/logs/LOG/groups/GROUP                      forget it (role admin)
GET     /v1/streams, errors, losses, topics            what the commands of these names show
======  =============================================  =========================================================

Who shows a token has its role; who shows a certificate of ``client_ca`` has ``client_role``.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...transport.errors import LogError, RtpsError, UsageError
from ...transport.log.checkpoint import read_base, read_tail
from ...transport.log.host_clocks import Clocks
from ...transport.log.segment import read_metadata
from ..wire_format.log_location import LogLocation
from ..wire_format.receiver_service import LISTEN_SECONDS_MAX, OPTIONS_MAX, is_name
from . import report_queries
from .consumer_group_file import ConsumerGroupFile
from .http_messages import SOON, Answer, Refusal, Request, json_answer, may_pass
from .log_queries import LogQueries, number_of_seconds
from .log_routes import add_log_routes
from .readiness import Readiness
from .router import Router
from .server_config import LogServerConfig
from .tail_watch import TailWatch, has_left
from .token_access import REPORT, TokenAccess

_log = logging.getLogger("spark_rtps.serving")

#: Of a request other than a task's report.
_BODY_BYTES_MAX: Final = 64 << 10
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECRET: Final = ("token", "password", "secret")
#: Asks the supervisor, and returns its answer: ``name`` or ``error``. Raises Refusal if it does not answer.
Ask = Callable[[dict[str, object]], Mapping[str, object]]


class ReceiverServiceRoutes:
    """Answers of one receiver; called by the threads of all connections."""

    def __init__(self, config: LogServerConfig, ask: Ask) -> None:
        self._root = config.log_dir
        self.access = TokenAccess(
            config.tokens,
            client_role=config.client_role if config.client_ca is not None else None,
            open_to_all=("/healthz", "/readyz"),
        )
        self._retention = config.groups_retention
        self._ask = ask
        self._readiness = Readiness(config.log_dir)
        self._watch = TailWatch()
        self._of_log = LogQueries(self._watch)
        self._listener = (
            None if config.node is None else report_queries.TopicListener(config.node, config.log_dir)
        )
        self._reporting = threading.Lock()
        self._lock = threading.Lock()
        #: None: the supervisor has not told yet.
        self._subscriptions: dict[str, dict[str, Any]] | None = None
        self._groups: dict[str, ConsumerGroupFile] = {}
        #: The logs whose groups could not be looked after at the last turn, and why.
        self._failing: dict[str, str] = {}
        self._router = Router()
        self._add_routes()

    def _add_routes(self) -> None:
        router = self._router
        add_log_routes(router, self._directory)
        self._of_log.add_to(router, self._directory)
        router.add("/v1/logs/{log}/groups", GET=self._show_groups)
        router.add("/v1/logs/{log}/groups/{name*}", PUT=self._commit_group, DELETE=self._delete_group)
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
        """All subscriptions, as they are from now on."""
        with self._lock:
            self._subscriptions = {each["name"]: each for each in subscriptions}

    def keep_groups(self, now: Clocks) -> None:
        """Look after the consumer groups of all logs; to be called about once a second."""
        with self._lock:
            subscriptions = {each["log"]: each for each in (self._subscriptions or {}).values()}
            left = {log: file for log, file in self._groups.items() if log not in subscriptions}
        for log, each in subscriptions.items():
            with self._alone(log):
                self._groups_of(log).keep(now, holds_log=_holds_log(each))
        for log, file in left.items():  # whose subscription has ended, maybe a moment after a commit
            with self._alone(log):
                has_log = (self._root / log).is_dir()
                if file.is_unwritten and has_log:
                    file.keep(now, holds_log=False)
                with self._lock:
                    if log not in self._logs() and not (file.is_unwritten and has_log):
                        self._groups.pop(log, None)

    @contextmanager
    def _alone(self, log: str) -> Iterator[None]:
        """What fails with the groups of one log concerns this log alone, until they are looked after again."""
        try:
            yield
        except (Refusal, OSError):
            pass  # such as a disk that is full
        except Exception as error:  # noqa: BLE001
            if self._failing.get(log) != repr(error):  # it is logged when it begins, and not each second
                self._failing[log] = repr(error)
                _log.exception("the consumer groups of the log %s could not be looked after", log)
        else:
            self._failing.pop(log, None)

    def close(self) -> None:
        """Answer those who wait."""
        self._watch.close()

    def answer(self, method: str, target: str, body: bytes, peer: int | None = None) -> Answer:
        """The answer to a request that was admitted. Raises Refusal."""
        if len(body) > _BODY_BYTES_MAX and not REPORT.fullmatch(target):
            raise Refusal(413, f"a body has at most {_BODY_BYTES_MAX} bytes here")
        return self._router.answer(method, target, body, peer)

    # --- answers: consumer groups ------------------------------------------------------------------

    def _show_groups(self, _: Request, log: str) -> Answer:
        read_metadata(self._directory(log))  # groups are kept beside a log only
        return Answer(200, self._groups_of(log).told(Clocks.read()))

    def _commit_group(self, request: Request, log: str, name: str) -> Answer:
        groups, holds_log = self._group(log, name)
        cursor, base = self._of_log.committed(self._root / log, _json(request.body))
        is_wanted = lambda: not has_left(request.peer)  # noqa: E731
        groups.commit(name, cursor, Clocks.read(), base=base, holds_log=holds_log, is_wanted=is_wanted)
        return Answer(204)

    def _delete_group(self, _: Request, log: str, name: str) -> Answer:
        groups, holds_log = self._group(log, name)
        groups.delete(name, Clocks.read(), holds_log=holds_log)
        return Answer(204)

    def _group(self, log: str, name: str) -> tuple[ConsumerGroupFile, bool]:
        """The groups of the log, and whether it waits for them."""
        subscription = self._with_log(log)
        read_metadata(self._root / log)  # groups are kept beside a log only
        if not is_name(name):
            raise Refusal(400, "this is no name of a consumer group")
        return self._groups_of(log), _holds_log(subscription)

    # --- answers: subscriptions --------------------------------------------------------------------

    def _list_subscriptions(self, _: Request) -> Answer:
        return json_answer({"v": 1, "subscriptions": [self._shown(each) for each in self._known().values()]})

    def _show_subscription(self, _: Request, name: str) -> Answer:
        return json_answer(self._shown(self._named(name)))

    def _subscribe(self, request: Request) -> Answer:
        made = self._asked({"op": "subscribe", "options": _options(_json(request.body))})
        return json_answer(self._shown(self._named(made)))

    def _unsubscribe(self, _: Request, name: str) -> Answer:
        if not self._named(name).get("dynamic"):
            raise Refusal(409, "it is a subscription of the receiver's file; remove it there")
        self._asked({"op": "unsubscribe", "name": name})
        return Answer(204)

    # --- answers: reports --------------------------------------------------------------------------

    def _ready(self, _: Request) -> Answer:
        is_ready, checks = self._readiness.look(self._subscriptions)
        return Answer(200 if is_ready else 503, json.dumps(checks).encode())

    def _metrics(self, _: Request) -> Answer:
        try:
            with self._reporting:
                return Answer(200, report_queries.metrics(self._root), _TEXT)
        except UsageError as error:
            raise Refusal(501, str(error)) from error

    def _report(self, query: Callable[[Path], bytes], _: Request) -> Answer:
        with self._reporting:  # one at a time: they read much
            return Answer(200, query(self._root))

    def _topics(self, request: Request) -> Answer:
        if self._listener is None:
            raise Refusal(501, "this receiver looks at no domain")
        seconds = number_of_seconds(request.query.get("seconds", "3"), LISTEN_SECONDS_MAX)
        try:
            found = self._listener.topics(seconds)
        except RtpsError as error:
            raise Refusal(409, str(error)) from error
        if found is None:
            raise Refusal(503, "somebody else looks for topics just now", SOON)
        return Answer(200, found)

    # --- subscriptions -----------------------------------------------------------------------------

    def _known(self) -> dict[str, dict[str, Any]]:
        known = self._subscriptions
        if known is None:
            raise Refusal(503, "the receiver has not told yet what it receives", SOON)
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

    def _logs(self) -> set[str]:
        return {each["log"] for each in (self._subscriptions or {}).values()}

    def _groups_of(self, log: str) -> ConsumerGroupFile:
        with self._lock:
            return self._groups.setdefault(log, ConsumerGroupFile(self._root / log, self._retention))

    def _asked(self, what: dict[str, object]) -> str:
        answer = self._ask(what)
        if "error" in answer:
            raise Refusal(400, str(answer["error"]))
        return str(answer.get("name", ""))

    def _shown(self, told: dict[str, Any]) -> dict[str, Any]:
        directory: Path = self._root / told["log"]
        place, tail = LogLocation.of(directory), read_tail(directory)
        try:
            base = read_base(directory, read_metadata(directory).seed).position
        except LogError as error:
            if may_pass(error):
                raise  # no place that it does not have is told
            base = 0  # it has not begun, or is damaged, which whoever reads it is told
        options = told.get("options") or {}
        return {
            **told,
            "v": 1,
            "directory": str(directory),
            "place": None if place is None else [place.boot_id, place.device, place.inode],
            "base": base,
            "position": max(base, 0 if tail is None else tail.position),
            "rows": 0 if tail is None else tail.rows,
            "options": {k: v for k, v in options.items() if not any(word in k.lower() for word in _SECRET)},
        }


def _holds_log(subscription: Mapping[str, Any]) -> bool:
    return subscription.get("retention") == "committed"


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("v") != 1:
        raise Refusal(400, 'the body has to be a JSON object with "v": 1')
    return found


def _options(told: dict[str, Any]) -> dict[str, str]:
    options = told.get("options")
    if not isinstance(options, dict) or len(options) > OPTIONS_MAX:
        raise Refusal(400, f'"options" has to be an object with at most {OPTIONS_MAX} texts')
    if not all(isinstance(value, str) for value in options.values()):
        raise Refusal(400, "options are texts")
    return options
