"""What a receiver service and its clients tell each other: subscriptions, the end of a log, names and roles."""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...monitoring.told import told_json, told_number, told_text
from ...transport.limits import LOG_POSITION_MAX, TOPICS_MAX
from ...transport.log.frame import Cursor
from ...transport.protocol.discovery.topic_selection import TopicSelection
from ...transport.protocol.participant.slices import Slice
from ...transport.value_classes import value
from .log_location import LogLocation

#: What a client may, the least first; each role may what those before it may.
ROLES: Final = ("read", "commit", "admin")
#: A receiver answers a request that waits for more of a log after so many seconds at the latest.
TAIL_SECONDS_MAX: Final = 30.0
#: A receiver listens for no longer than so many seconds before it tells which topics there are; commands ask for less,
#: since a connection that is silent for 10 s is given up.
LISTEN_SECONDS_MAX: Final = 10.0
LISTEN_SECONDS_ASKED_MAX: Final = 8.0
#: Pieces into which a range is split at most.
PIECES_MAX: Final = 4_096
_COUNTERS_MAX: Final = 4_096
OPTIONS_MAX: Final = 512
_STATES: Final = ("starting", "running", "failed")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


def is_name(name: str) -> bool:
    """Whether a subscription or a consumer group may be called that; a name is never used as a path."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def is_log(log: str) -> bool:
    """Whether this is the id of a log: a UUID as it is written most often."""
    try:
        return str(uuid.UUID(log)) == log
    except ValueError:
        return False


def too_open(address: str, *, has_tls: bool, has_access: bool) -> str | None:
    """Why nobody may listen at this address; None: it is allowed. ``has_access``: a token or a client's certificate
    is asked for."""
    if has_access and (has_tls or ipaddress.IPv4Address(address).is_loopback):
        return None
    if ipaddress.IPv4Address(address).is_loopback:
        return f"{address}: no token and no client_ca says who may; set [tokens]"
    return (
        f"{address} can be reached from other hosts: set certificate and key (TLS), and [tokens] or client_ca; "
        "or listen on a loopback address"
    )


@value
class SubscriptionInfo:
    """A subscription of a receiver. ``place`` tells its log's folder from others; ``options`` have no secrets."""

    name: str
    topic: str
    type: str | None
    domain: int
    log: str
    directory: Path
    place: LogLocation | None
    base: int
    position: int
    rows: int
    state: str
    error: str | None
    dynamic: bool
    options: Mapping[str, str]
    retention: str
    #: The topics that share the log, of which ``topic`` is a name for people; None: ``topic`` alone.
    topics: TopicSelection | None = None

    @property
    def slice(self) -> Slice | None:
        """The part of the topic's writers that it takes; None: all."""
        text = self.options.get("slice")
        return None if text is None else Slice.parse(text)

    @classmethod
    def told(cls, told: object) -> SubscriptionInfo:
        """Of what a receiver tells. Raises ValueError."""
        if not isinstance(told, dict):
            raise ValueError(f"{told!r:.40} is no subscription")
        log, name, state = (told_text(told.get(key)) for key in ("log", "name", "state"))
        if not is_log(log) or not is_name(name) or state not in _STATES:
            raise ValueError(f"{name!r:.40}, {log!r:.40}, {state!r:.40} are no name, log and state")
        error, kind, options = told.get("error"), told.get("type"), told.get("options", {})
        if not isinstance(options, dict) or len(options) > OPTIONS_MAX:
            raise ValueError(f"{options!r:.40} are no options")
        base, position, rows = (_position(told.get(key)) for key in ("base", "position", "rows"))
        found = cls(
            name,
            told_text(told.get("topic")),
            None if kind is None else told_text(kind),
            told_number(told.get("domain")),
            log,
            Path(told_text(told.get("directory"))),
            _place(told.get("place")),
            base,
            position,
            rows,
            state,
            None if error is None else told_text(error),
            told.get("dynamic") is True,
            {told_text(key): told_text(value) for key, value in options.items()},
            told_text(told.get("retention")),
            _topics(told.get("topics")),
        )
        _ = found.slice  # which may be none
        return found


@value
class LogTail:
    """Where a log begins and ends, the samples before its end, how much it may hold, and what its receiver counts."""

    base: int
    position: int
    rows: int
    max_bytes: int
    counters: Mapping[str, int]

    @classmethod
    def told(cls, raw: bytes) -> LogTail:
        """Of a receiver's answer. Raises ValueError."""
        found = told_json(raw)
        counters = found.get("counters")
        if not isinstance(counters, dict) or len(counters) > _COUNTERS_MAX:
            raise ValueError(f"at most {_COUNTERS_MAX} counters have to be where {counters!r:.40} is")
        base, position, rows = (_position(found.get(key)) for key in ("base", "position", "rows"))
        if base > position:
            raise ValueError(f"a log cannot hold [{base}, {position})")
        least, most = -(1 << 63), _position(found.get("max_bytes"))
        return cls(
            base, position, rows, most, {told_text(k): told_number(v, least) for k, v in counters.items()}
        )


def told_cursor(value: object) -> Cursor:
    """A cursor of ``[position, row]``. Raises ValueError."""
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r:.40} is no cursor")
    return Cursor(_position(value[0]), _position(value[1]))


def _position(value: Any) -> int:
    if told_number(value) > LOG_POSITION_MAX:
        raise ValueError(f"{value} is no position")
    return int(value)


def _topics(value: object) -> TopicSelection | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ValueError(f"{value!r:.40} are no topics")
    names, pattern = value.get("names"), value.get("pattern")
    if not isinstance(names, list) or len(names) > TOPICS_MAX or bool(names) is (pattern is not None):
        raise ValueError(f"{value!r:.40} are no topics")
    return TopicSelection(tuple(map(told_text, names)), None if pattern is None else told_text(pattern))


def _place(value: object) -> LogLocation | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError(f"{value!r:.40} is no place")
    return LogLocation(told_text(value[0]), told_number(value[1]), told_number(value[2]))
