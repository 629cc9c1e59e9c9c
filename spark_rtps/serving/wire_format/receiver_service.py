"""What a receiver service and its clients exchange: subscriptions, the end of a log, names and roles."""

from __future__ import annotations

import ipaddress
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...monitoring.untrusted_json import (
    parse_entries,
    parse_mapping,
    parse_number,
    parse_object,
    parse_optional,
    parse_text,
)
from ...transport.limits import LOG_POSITION_MAX, TOPICS_MAX
from ...transport.log.frame import Cursor
from ...transport.protocol.discovery.topic_selection import TopicSelection
from ...transport.protocol.participant.slices import Slice
from ...transport.value_classes import value
from .log_location import LogLocation

#: Roles of clients, the weakest first; each includes those before it.
ROLES: Final = ("read", "commit", "admin")
#: A receiver answers a request that waits for more of a log after this many seconds at the latest.
TAIL_SECONDS_MAX: Final = 30.0
#: The longest time that a receiver listens before it lists topics; commands ask for less, since a connection that is
#: silent for 10 s is given up.
LISTEN_SECONDS_MAX: Final = 10.0
LISTEN_SECONDS_ASKED_MAX: Final = 8.0
#: The most pieces of a split range.
PIECES_MAX: Final = 4_096
_COUNTERS_MAX: Final = 4_096
OPTIONS_MAX: Final = 512
_STATES: Final = ("starting", "running", "failed")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


def is_name(name: str) -> bool:
    """Whether this is a valid name of a subscription or a consumer group; a name is never used as a path."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def is_log(log: str) -> bool:
    """Whether this is the id of a log: a UUID in its usual form."""
    try:
        return str(uuid.UUID(log)) == log
    except ValueError:
        return False


def too_open(address: str, *, has_tls: bool, has_access: bool) -> str | None:
    """Why no server may listen at this address; None: it may. ``has_access``: clients need a token or a certificate."""
    if has_access and (has_tls or ipaddress.IPv4Address(address).is_loopback):
        return None
    if ipaddress.IPv4Address(address).is_loopback:
        return f"{address}: neither a token nor client_ca is set; set [tokens]"
    return (
        f"{address} can be reached from other hosts: set certificate and key (TLS), and [tokens] or client_ca; "
        "or listen on a loopback address"
    )


@value
class SubscriptionInfo:
    """A subscription of a receiver. ``place`` identifies its log's folder; ``options`` contain no secrets."""

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
    #: The topics that share the log, with ``topic`` as their display name; None: ``topic`` alone.
    topics: TopicSelection | None = None

    @property
    def slice(self) -> Slice | None:
        """The slice of the topic's writers that it takes; None: all."""
        text = self.options.get("slice")
        return None if text is None else Slice.parse(text)

    @classmethod
    def parse(cls, raw: object) -> SubscriptionInfo:
        """From a receiver's answer. Raises ValueError."""
        parsed = parse_mapping(raw)
        log, name, state = (parse_text(parsed.get(key)) for key in ("log", "name", "state"))
        if not is_log(log) or not is_name(name) or state not in _STATES:
            raise ValueError(f"{name!r:.40}, {log!r:.40}, {state!r:.40} are not a name, a log and a state")
        options = parse_mapping(parsed.get("options", {}), OPTIONS_MAX)
        base, position, rows = (_parse_position(parsed.get(key)) for key in ("base", "position", "rows"))
        found = cls(
            name,
            parse_text(parsed.get("topic")),
            parse_optional(parsed.get("type"), parse_text),
            parse_number(parsed.get("domain")),
            log,
            Path(parse_text(parsed.get("directory"))),
            parse_optional(parsed.get("place"), _parse_location),
            base,
            position,
            rows,
            state,
            parse_optional(parsed.get("error"), parse_text),
            parsed.get("dynamic") is True,
            {parse_text(key): parse_text(value) for key, value in options.items()},
            parse_text(parsed.get("retention")),
            parse_optional(parsed.get("topics"), _parse_topics),
        )
        _ = found.slice  # raises ValueError if it is invalid
        return found


@value
class LogTail:
    """Where a log begins and ends, the samples before its end, its largest size, and the counters of its receiver."""

    base: int
    position: int
    rows: int
    max_bytes: int
    counters: Mapping[str, int]

    @classmethod
    def parse(cls, raw: bytes) -> LogTail:
        """From a receiver's answer. Raises ValueError."""
        found = parse_object(raw)
        counters = parse_mapping(found.get("counters"), _COUNTERS_MAX)
        base, position, rows = (_parse_position(found.get(key)) for key in ("base", "position", "rows"))
        if base > position:
            raise ValueError(f"a log cannot hold [{base}, {position})")
        least, most = -(1 << 63), _parse_position(found.get("max_bytes"))
        return cls(
            base, position, rows, most, {parse_text(k): parse_number(v, least) for k, v in counters.items()}
        )


def parse_cursor(value: object) -> Cursor:
    """A cursor of ``[position, row]``. Raises ValueError."""
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError(f"{value!r:.40} is not a cursor")
    return Cursor(_parse_position(value[0]), _parse_position(value[1]))


def _parse_position(value: object) -> int:
    return parse_number(value, most=LOG_POSITION_MAX)


def _parse_topics(value: object) -> TopicSelection:
    fields = parse_mapping(value)
    names = parse_entries(fields.get("names"), parse_text, TOPICS_MAX)
    pattern = parse_optional(fields.get("pattern"), parse_text)
    if bool(names) is (pattern is not None):
        raise ValueError(f"{value!r:.40} are not topics")
    return TopicSelection(tuple(names), pattern)


def _parse_location(value: object) -> LogLocation:
    if not isinstance(value, list) or len(value) != 3:
        raise ValueError(f"{value!r:.40} is not the location of a log")
    return LogLocation(parse_text(value[0]), parse_number(value[1]), parse_number(value[2]))
