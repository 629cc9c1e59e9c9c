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

import hmac
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from ...transport.errors import LogError, RtpsError, UsageError
from ...transport.log.checkpoint import read_base, read_tail
from ...transport.log.host_clocks import Clocks
from ...transport.log.segment import read_metadata
from ..wire_format.log_location import LogLocation
from ..wire_format.receiver_service import LISTEN_SECONDS_MAX, OPTIONS_MAX, ROLES, is_name
from . import report_queries
from .consumer_group_file import ConsumerGroupFile
from .log_queries import LogQueries, number_of_seconds
from .log_routes import SOON, Answer, LogRoutes, Refusal, may_pass, refusal_of
from .readiness import Readiness
from .server_config import LogServerConfig
from .tail_watch import TailWatch, has_left

_log = logging.getLogger("spark_rtps.serving")

#: Of a request other than a task's report.
_BODY_BYTES_MAX: Final = 64 << 10
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECRET: Final = ("token", "password", "secret")
#: What a task counted: it goes with reading.
_REPORT: Final = re.compile(r"/v1/logs/[^/?]+/report")

#: Asks the supervisor, and returns its answer: ``name`` or ``error``. Raises Refusal if it does not answer.
Ask = Callable[[dict[str, object]], Mapping[str, object]]


class ReceiverServiceRoutes:
    """Answers of one receiver; called by the threads of all connections."""

    def __init__(self, config: LogServerConfig, ask: Ask) -> None:
        self._root = config.log_dir
        self._tokens = [(role, config.tokens[role].encode()) for role in ROLES if role in config.tokens]
        self._client_role = config.client_role if config.client_ca is not None else None
        self._retention = config.groups_retention
        self._ask = ask
        #: Token and logs of this one are not used to admit anybody.
        self._logs = LogRoutes(config.log_dir, "")
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

    def tell(self, subscriptions: list[dict[str, Any]]) -> None:
        """All subscriptions, as they are from now on."""
        with self._lock:
            self._logs.allowed = {each["log"] for each in subscriptions}
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
                    if log not in self._logs.allowed and not (file.is_unwritten and has_log):
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

    # --- who may -----------------------------------------------------------------------------------

    def admit(self, method: str, target: str, headers: Mapping[bytes, bytes], *, certified: bool) -> bool:
        """Whether the request needs no token; Refusal if it does and its sender has not the role."""
        if method == "GET" and target in ("/healthz", "/readyz"):
            return True
        role = self._role(headers.get(b"authorization", b""), certified=certified)
        if role is None:
            raise Refusal(
                401, "this server answers those who know its token only", (("WWW-Authenticate", "Bearer"),)
            )
        needed = _needed(method, target)
        if ROLES.index(role) < ROLES.index(needed):
            raise Refusal(403, f"this needs the role {needed}, and the token has the role {role}")
        return False

    def _role(self, authorization: bytes, *, certified: bool) -> str | None:
        """The strongest role of who asks. All tokens are compared, each in constant time."""
        scheme, _, given = authorization.partition(b" ")
        matching = [hmac.compare_digest(given.strip(), token) for _, token in self._tokens]
        found = {role for (role, _), matches in zip(self._tokens, matching, strict=True) if matches}
        if scheme.lower() != b"bearer":
            found.clear()
        if certified and self._client_role is not None:
            found.add(self._client_role)
        return max(found, key=ROLES.index, default=None)

    # --- answers -----------------------------------------------------------------------------------

    def answer(self, method: str, target: str, body: bytes, peer: int | None = None) -> Answer:
        """The answer to a request that was admitted. Raises Refusal."""
        try:
            parts = urlsplit(target)
            query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query), max_num_fields=8))
        except ValueError:
            raise Refusal(400, "the request's target is malformed") from None
        path = parts.path.split("/")
        if len(body) > _BODY_BYTES_MAX and not _REPORT.fullmatch(target):
            raise Refusal(413, f"a body has at most {_BODY_BYTES_MAX} bytes here")
        try:
            match path:
                case ["", "healthz"]:
                    return self._logs.answer(method, target, body)
                case ["", "v1", "logs", log, "tail" | "advance" | "split" | "place" | "at" | "walk" as what]:
                    return self._answer_of_place(method, log, what, query, peer)
                case ["", "v1", "logs", log, "groups", *name]:
                    return self._answer_of_groups(method, log, "/".join(name), body, peer)
                case ["", "v1", "logs", log, *_]:
                    self._with_log(log)
                    return self._logs.answer(method, target, body)
                case ["", "v1", "subscriptions", *rest]:
                    return self._answer_of_subscriptions(method, "/".join(rest), body)
            if method != "GET":
                raise Refusal(405, "only GET is possible here", (("Allow", "GET"),))
            return self._report(path, query)
        except UsageError as error:
            raise Refusal(400, str(error)) from error
        except (LogError, OSError) as error:
            raise refusal_of(error) from error

    def _answer_of_place(
        self, method: str, log: str, what: str, query: dict[str, str], peer: int | None
    ) -> Answer:
        self._with_log(log)
        if method != "GET":
            raise Refusal(405, "only GET is possible here", (("Allow", "GET"),))
        return self._of_log.answer(self._root / log, [what], query, peer)

    def _answer_of_groups(self, method: str, log: str, name: str, body: bytes, peer: int | None) -> Answer:
        subscription, directory = self._with_log(log), self._root / log
        read_metadata(directory)  # groups are kept beside a log only
        groups, now = self._groups_of(log), Clocks.read()
        if not name and method == "GET":
            return Answer(200, groups.told(now))
        if not is_name(name):
            raise Refusal(404 if method == "GET" else 400, "this is no name of a consumer group")
        holds_log = _holds_log(subscription)
        if method == "PUT":
            cursor, base = self._of_log.committed(directory, _json(body))
            groups.commit(
                name, cursor, now, base=base, holds_log=holds_log, is_wanted=lambda: not has_left(peer)
            )
        elif method == "DELETE":
            groups.delete(name, now, holds_log=holds_log)
        else:
            raise Refusal(405, "only PUT and DELETE are possible here", (("Allow", "PUT, DELETE"),))
        return Answer(204)

    def _answer_of_subscriptions(self, method: str, name: str, body: bytes) -> Answer:
        if name and not is_name(name):
            raise Refusal(404, "there is no such subscription")
        match method, bool(name):
            case "GET", False:
                return _as_json(
                    {"v": 1, "subscriptions": [self._shown(each) for each in self._known().values()]}
                )
            case "GET", True:
                return _as_json(self._shown(self._named(name)))
            case "POST", False:
                made = self._asked({"op": "subscribe", "options": _options(_json(body))})
                return _as_json(self._shown(self._named(made)))
            case "DELETE", True:
                if not self._named(name).get("dynamic"):
                    raise Refusal(409, "it is a subscription of the receiver's file; remove it there")
                self._asked({"op": "unsubscribe", "name": name})
                return Answer(204)
        raise Refusal(405, "this is not possible here", (("Allow", "GET, DELETE" if name else "GET, POST"),))

    def _report(self, path: list[str], query: dict[str, str]) -> Answer:
        match path:
            case ["", "readyz"]:
                is_ready, checks = self._readiness.look(self._subscriptions)
                return Answer(200 if is_ready else 503, json.dumps(checks).encode())
            case ["", "v1", "topics"]:
                return self._topics(query)
            case ["", "metrics"]:
                try:
                    with self._reporting:
                        return Answer(200, report_queries.metrics(self._root), _TEXT)
                except UsageError as error:
                    raise Refusal(501, str(error)) from error
            case ["", "v1", "streams" | "errors" | "losses" as what]:
                with self._reporting:  # one at a time: they read much
                    return Answer(200, getattr(report_queries, what)(self._root))
        raise Refusal(404, "there is nothing at this path")

    def _topics(self, query: dict[str, str]) -> Answer:
        if self._listener is None:
            raise Refusal(501, "this receiver looks at no domain")
        seconds = number_of_seconds(query.get("seconds", "3"), LISTEN_SECONDS_MAX)
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


def _needed(method: str, target: str) -> str:
    if method == "PUT":
        return "commit"
    is_read = method in ("GET", "HEAD", "OPTIONS") or (method == "POST" and _REPORT.fullmatch(target))
    return "read" if is_read else "admin"


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


def _as_json(told: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(told).encode())
