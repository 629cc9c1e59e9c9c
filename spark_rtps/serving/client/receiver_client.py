"""A query's requests to a receiver service: its subscriptions, positions in logs, and commits."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

from ...monitoring.consumer_groups import parse_groups
from ...monitoring.untrusted_json import ANSWER_BYTES_MAX, parse_entries, parse_object, parse_text
from ...transport.errors import LogAccessError, RangeServerError, UsageError
from ...transport.log.frame import Cursor
from ...transport.receiver.writer_types import AnnouncedTypes, parse_writer_types
from ..wire_format.misplaced_offset import MisplacedOffset
from ..wire_format.receiver_service import (
    PIECES_MAX,
    LogTail,
    SubscriptionInfo,
    is_log,
    is_name,
    parse_cursor,
)
from ..wire_format.served import WRITER_TYPES_BYTES_MAX, Served
from .http_client import HttpClient

#: Longest wait of one request for more of a log: a connection that is silent for 10 s is given up.
_POLL_SECONDS: Final = 5.0
_SUBSCRIPTIONS_MAX: Final = 4_096

_OTHER_TOKEN: Final = (
    "set receiver.token.file to a token that the receiver's file names for that role, or receiver.certificate to a "
    "certificate of its client_ca"
)

_T = TypeVar("_T")


class ReceiverClient:
    """Requests to one receiver, one at a time; only ``close`` may be called by another thread, which ends the request.

    The client waits ``patience`` seconds for a receiver that is not there, and ``work_patience`` where the receiver
    looks
    for a position in a log or stores one, which takes time on a busy host. RangeServerError: it is not reached
    (``is_reached``), or refuses; LogAccessError: it refuses the token; LogLostError: a log, or a part of it, is not
    there.
    """

    def __init__(self, served: Served, *, patience: float = 60.0, work_patience: float | None = None) -> None:
        self._served = served
        self._work_patience = work_patience
        self._address = ", ".join(served.addresses)
        self._client = HttpClient(served, Path(self._address), patience=patience)

    def close(self) -> None:
        """End a request that is under way: it raises Cancelled."""
        self._client.close()

    # --- subscriptions -----------------------------------------------------------------------------

    def subscriptions(self) -> list[SubscriptionInfo]:
        """All subscriptions, running or not."""

        def read(raw: bytes) -> list[SubscriptionInfo]:
            found = parse_object(raw).get("subscriptions")
            return parse_entries(found, SubscriptionInfo.parse, _SUBSCRIPTIONS_MAX)

        return self._ask("GET", "/v1/subscriptions", "its subscriptions", read)

    def subscribe(self, options: Mapping[str, str], *, patience: float | None = None) -> SubscriptionInfo:
        """The subscription with these options, which is made if there is none. Needs the role admin.

        ``patience`` overrides the client's: the subscription is written to the disk first, and other requests may come
        first.
        """

        def read(raw: bytes) -> SubscriptionInfo:
            return SubscriptionInfo.parse(parse_object(raw))

        body = {"v": 1, "options": dict(options)}
        asked = self if patience is None else ReceiverClient(self._served, patience=patience)
        return asked._ask("POST", "/v1/subscriptions", "a subscription", read, body)

    # --- logs --------------------------------------------------------------------------------------

    def tail(self, log: str, *, after: int = -1, wait: float = 0.0) -> LogTail:
        """Where a log ends, as soon as that is behind ``after``, or ``wait`` seconds are over."""
        until = time.monotonic() + wait
        while True:
            left = max(0.0, min(_POLL_SECONDS, until - time.monotonic()))
            found = self._of_log(log, "tail", LogTail.parse, after=max(after, -1), wait=f"{left:.3f}")
            if found.position > after or time.monotonic() >= until:
                return found

    def advance(
        self, log: str, start: Cursor, tail: Cursor, *, max_rows: int | None, max_bytes: int | None
    ) -> Cursor:
        """``LogView.advance``, done by the receiver."""
        limits = {"max_rows": max_rows, "max_bytes": max_bytes}
        given = {name: value for name, value in limits.items() if value is not None}
        found = self._in_log(log, "advance", _cursor, **start._asdict(), tail=tail.position, **given)
        if found < start or found.position > max(start.position, tail.position):
            raise self._wrong(f"it advances from {start} to {found}")
        return found

    def split(self, log: str, start: Cursor, end: Cursor, pieces: int) -> list[tuple[Cursor, Cursor]]:
        """``LogView.split``, done by the receiver."""
        if start == end:
            return []

        def read(raw: bytes) -> list[Cursor]:
            cuts = parse_entries(parse_object(raw).get("cuts"), parse_cursor, pieces + 1)
            if len(cuts) < 2:
                raise ValueError(f"{cuts!r:.40} are not cuts of the range")
            return cuts

        pieces = min(pieces, PIECES_MAX)
        ends = {"end_position": end.position, "end_row": end.row}
        cuts = self._in_log(log, "split", read, **start._asdict(), **ends, pieces=pieces)
        parts = list(itertools.pairwise(cuts))
        if (cuts[0], cuts[-1]) != (start, end) or not all(low < high for low, high in parts):
            raise self._wrong(f"it splits {start} to {end} at {cuts!r:.80}")
        return parts

    def place(self, log: str, cursor: Cursor) -> Cursor | MisplacedOffset:
        """Where the samples behind an offset begin. Raises LogLostError for one beyond the log's end."""

        def read(raw: bytes) -> Cursor | MisplacedOffset:
            parsed = parse_object(raw)
            place = parse_cursor(parsed.get("cursor"))
            if "what" not in parsed:
                return place
            return MisplacedOffset(parse_text(parsed["what"]), parse_text(parsed.get("cause")), place)

        return self._in_log(log, "place", read, **cursor._asdict())

    def at(self, log: str, time_ns: int) -> Cursor:
        """The cursor of the first sample received at or after this time; the end if there is none."""
        return self._in_log(log, "at", _cursor, time=max(0, time_ns))

    def writer_types(self, log: str) -> AnnouncedTypes:
        """The types that the log's writers announced."""
        target = f"/v1/logs/{_checked(log)}/writer-types"
        raw = self._client.get(target, "the types of writers", max_bytes=WRITER_TYPES_BYTES_MAX)
        return parse_writer_types(raw, Path(log))

    # --- groups ------------------------------------------------------------------------------------

    def commit_offset(self, log: str, group: str, cursor: Cursor) -> None:
        """Commit that the group has consumed everything before ``cursor``. Raises LogLostError if that was trimmed
        before."""
        if not is_name(group):
            raise UsageError(f"{group!r:.140} is not a valid name of a consumer group")
        body = {"v": 1, **cursor._asdict()}
        what = f"position {cursor.position} of group {group}"
        target = f"/v1/logs/{_checked(log)}/groups/{group}"
        self._ask("PUT", target, what, bytes, body, patience=self._work_patience)

    def groups(self, log: str) -> dict[str, Cursor]:
        """The cursor of each consumer group of a log."""
        found = self._of_log(log, "groups", parse_groups)
        return {group.name: Cursor(group.position, group.row) for group in found}

    # --- inside ------------------------------------------------------------------------------------

    def _of_log(self, log: str, what: str, read: Callable[[bytes], _T], **query: object) -> _T:
        return self._get(log, what, read, query, None)

    def _in_log(self, log: str, what: str, read: Callable[[bytes], _T], **query: object) -> _T:
        """The same for requests that the receiver may have to search the log for."""
        return self._get(log, what, read, query, self._work_patience)

    def _get(
        self,
        log: str,
        what: str,
        read: Callable[[bytes], _T],
        query: Mapping[str, object],
        patience: float | None,
    ) -> _T:
        target = f"/v1/logs/{_checked(log)}/{what}" + (f"?{urlencode(query)}" if query else "")
        return self._ask("GET", target, f"{what} of the log {log}", read, patience=patience)

    def _ask(
        self,
        method: str,
        target: str,
        what: str,
        read: Callable[[bytes], _T],
        body: dict[str, object] | None = None,
        *,
        patience: float | None = None,
    ) -> _T:
        sent = None if body is None else json.dumps(body).encode()
        try:
            raw = self._client.ask(method, target, what, sent, max_bytes=ANSWER_BYTES_MAX, patience=patience)
        except LogAccessError as error:
            error.hint = _OTHER_TOKEN
            raise
        try:
            return read(raw)
        except ValueError as error:
            raise self._wrong(f"it sent invalid data for {what}: {error}") from error

    def _wrong(self, why: str) -> RangeServerError:
        return RangeServerError(f"receiver {self._address}: {why}", addresses=self._served.addresses)


def _checked(log: str) -> str:
    if not is_log(log):
        raise UsageError(f"{log!r:.60} is not the id of a log")
    return log


def _cursor(raw: bytes) -> Cursor:
    return parse_cursor(parse_object(raw).get("cursor"))
