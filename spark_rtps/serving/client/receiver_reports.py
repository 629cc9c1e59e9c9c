"""What a receiver service tells of itself: streams, errors, losses, groups, and the topics on its domain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ...monitoring.consumer_groups import ConsumerGroup, parse_groups
from ...monitoring.report_json import parse_errors, parse_losses, parse_streams
from ...monitoring.reports import ErrorReport, LossesOfLog
from ...monitoring.seen_topics import SeenTopics
from ...monitoring.stream_counters import Stream
from ...monitoring.untrusted_json import ANSWER_BYTES_MAX
from ...transport.errors import RangeServerError
from ..wire_format.log_scan import ScannedLog
from ..wire_format.served import Served
from .http_client import HttpClient

#: A part of a log takes no longer, with others before it.
_WALK_SECONDS: Final = 9.0

_T = TypeVar("_T")


class ReceiverReports:
    """Asks one receiver, and waits ``patience`` seconds for it.

    RangeServerError says that it is not reached, or tells what cannot be; LogAccessError that it refuses the token;
    LogLostError that what answers there is no receiver service.
    """

    def __init__(self, served: Served, *, patience: float) -> None:
        self._served = served
        self._patience = patience

    def streams(self) -> list[Stream]:
        """Its sources, and the sinks that have their counters in its directory; those that have ended, too."""
        return self._ask("/v1/streams", "its streams", parse_streams)

    def errors(self) -> list[ErrorReport]:
        """The distinct warnings and errors of its processes."""
        return self._ask("/v1/errors", "its errors", parse_errors)

    def losses(self) -> list[LossesOfLog]:
        """What its subscriptions lost."""
        return self._ask("/v1/losses", "its losses", parse_losses)

    def topics(self, seconds: float) -> SeenTopics:
        """What it sees on its domain when it listens for so long."""
        target = f"/v1/topics?seconds={seconds:g}"
        return self._ask(target, "the topics of its domain", SeenTopics.parse, extra=seconds)

    def groups(self, log: str) -> list[ConsumerGroup]:
        """The consumer groups of a log, the one that is furthest behind first."""
        return self._ask(f"/v1/logs/{log}/groups", "the groups of the log", parse_groups)

    def walk(self, log: str, directory: Path, *, bodies: bool) -> ScannedLog:
        """What a log holds, gone through where it lies; without ``bodies`` only the headers of its frames."""
        found = ScannedLog(directory)
        while not found.is_whole:
            target = f"/v1/logs/{log}/walk?from={found.stop or 0}&bodies={int(bodies)}"
            if found.stop is not None:
                target += f"&to={found.verified.end}"
            self._ask(target, "what the log holds", found.add_bytes, extra=_WALK_SECONDS)
        return found

    def _ask(self, target: str, what: str, read: Callable[[bytes], _T], *, extra: float = 0.0) -> _T:
        address = ", ".join(self._served.addresses)
        client = HttpClient(self._served, Path(address), patience=self._patience + extra)
        raw = client.get(target, what, max_bytes=ANSWER_BYTES_MAX)
        try:
            return read(raw)
        except ValueError as error:
            message = f"what {address} tells of {what} cannot be: {error}"
            raise RangeServerError(message, addresses=self._served.addresses) from error
