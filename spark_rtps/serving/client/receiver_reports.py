"""Reports of a receiver service on itself: streams, errors, losses, groups, and the topics on its domain."""

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

#: Longest time for one part of a log, with other requests before it.
_WALK_SECONDS: Final = 9.0

_T = TypeVar("_T")


class ReceiverReports:
    """Requests to one receiver, which wait ``patience`` seconds for it.

    RangeServerError: it is not reached, or sent invalid data; LogAccessError: it refuses the token; LogLostError: the
    server at the address is not a receiver service.
    """

    def __init__(self, served: Served, *, patience: float) -> None:
        self._served = served
        self._patience = patience

    def streams(self) -> list[Stream]:
        """Its sources, and the sinks with counters in its directory; also those that have ended."""
        return self._ask("/v1/streams", "its streams", parse_streams)

    def errors(self) -> list[ErrorReport]:
        """The distinct warnings and errors of its processes."""
        return self._ask("/v1/errors", "its errors", parse_errors)

    def losses(self) -> list[LossesOfLog]:
        """The losses of its subscriptions."""
        return self._ask("/v1/losses", "its losses", parse_losses)

    def topics(self, seconds: float) -> SeenTopics:
        """The topics it sees on its domain while it listens for ``seconds``."""
        target = f"/v1/topics?seconds={seconds:g}"
        return self._ask(target, "the topics of its domain", SeenTopics.parse, extra=seconds)

    def groups(self, log: str) -> list[ConsumerGroup]:
        """The consumer groups of a log; the one that is furthest behind comes first."""
        return self._ask(f"/v1/logs/{log}/groups", "the groups of the log", parse_groups)

    def walk(self, log: str, directory: Path, *, bodies: bool) -> ScannedLog:
        """The contents of a log, which the receiver scans; without ``bodies`` only the headers of its frames."""
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
            message = f"{address} sent invalid data for {what}: {error}"
            raise RangeServerError(message, addresses=self._served.addresses) from error
