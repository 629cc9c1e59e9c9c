"""What a standing receiver tells of itself: subscriptions, streams, errors, losses, and the topics on its domain."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from ..monitoring.consumer_groups import ConsumerGroup, told_groups
from ..monitoring.report_json import (
    ANSWER_BYTES_MAX,
    told_errors,
    told_json,
    told_list,
    told_losses,
    told_number,
    told_streams,
    told_text,
)
from ..monitoring.reports import ErrorReport, LossesOfLog
from ..monitoring.seen_topics import SeenTopics
from ..monitoring.stream_counters import Stream
from ..transport.errors import RangeServerError
from .client import RangeClient
from .served import Served

#: A receiver listens for so long, and longer if it is asked so; but a connection that is silent for 10 s is given up.
LISTEN_SECONDS_MAX: Final = 8.0
#: A tail is waited for so long by one request.
POLL_SECONDS_MAX: Final = 5.0
_POSITION_MAX: Final = 1 << 62

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A subscription of a receiver: its log, by id, and where that lies there."""

    name: str
    topic: str
    type: str | None
    log: str
    directory: Path
    state: str


class ReceiverReports:
    """Asks one receiver, and waits ``patience`` seconds for it.

    RangeServerError says that it is not reached, or tells what cannot be; LogAccessError that it refuses the token;
    LogLostError that what answers there is no standing receiver.
    """

    def __init__(self, served: Served, *, patience: float) -> None:
        self._served = served
        self._patience = patience

    def streams(self) -> list[Stream]:
        """Its sources, and the sinks that have their counters in its directory; those that have ended, too."""
        return self._told("/v1/streams", "its streams", told_streams)

    def errors(self) -> list[ErrorReport]:
        """The distinct warnings and errors of its processes."""
        return self._told("/v1/errors", "its errors", told_errors)

    def losses(self) -> list[LossesOfLog]:
        """What its subscriptions lost."""
        return self._told("/v1/losses", "its losses", told_losses)

    def topics(self, seconds: float) -> SeenTopics:
        """What it sees on its domain when it listens for so long."""
        target = f"/v1/topics?seconds={seconds:g}"
        return self._told(target, "the topics of its domain", SeenTopics.told, extra=seconds)

    def subscriptions(self) -> list[Recorded]:
        """Its subscriptions, running or not."""

        def read(raw: bytes) -> list[Recorded]:
            return told_list(told_json(raw).get("subscriptions"), _recorded)

        return self._told("/v1/subscriptions", "its subscriptions", read)

    def tail(self, log: str, *, after: int, wait: float) -> int:
        """Where the log ends, as soon as that is behind ``after``, or so many seconds are over."""

        def read(raw: bytes) -> int:
            position = told_number(told_json(raw).get("position"))
            if position > _POSITION_MAX:
                raise ValueError(f"{position} is no position")
            return position

        wait = min(wait, POLL_SECONDS_MAX)
        target = f"/v1/logs/{log}/tail?after={after}&wait={wait:g}"
        return self._told(target, "the end of the log", read, extra=wait)

    def groups(self, log: str) -> list[ConsumerGroup]:
        """The consumer groups of a log, the one that is furthest behind first."""
        return self._told(f"/v1/logs/{log}/groups", "the groups of the log", told_groups)

    def _told(self, target: str, what: str, read: Callable[[bytes], _T], *, extra: float = 0.0) -> _T:
        address = ", ".join(self._served.addresses)
        client = RangeClient(self._served, Path(address), patience=self._patience + extra)
        raw = client.get(target, what, max_bytes=ANSWER_BYTES_MAX)
        try:
            return read(raw)
        except ValueError as error:
            said = f"what {address} tells of {what} cannot be: {error}"
            raise RangeServerError(said, addresses=self._served.addresses) from error


def _recorded(told: dict[str, Any]) -> Recorded:
    log, name = told_text(told.get("log")), told.get("type")
    if str(uuid.UUID(log)) != log:
        raise ValueError(f"{log!r:.40} is no id of a log")
    return Recorded(
        told_text(told.get("name")),
        told_text(told.get("topic")),
        None if name is None else told_text(name),
        log,
        Path(told_text(told.get("directory"))),
        told_text(told.get("state")),
    )
