"""The receiver services of a query: which ones answer, the subscription at each, and the folder of its log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from ..options import Settings
from ..options.values import Offsets
from ..serving.client.receiver_client import ReceiverClient
from ..serving.wire_format.loopback import loopback_network
from ..serving.wire_format.misplaced_offset import MisplacedOffset
from ..serving.wire_format.receiver_service import LogTail, SubscriptionInfo
from ..serving.wire_format.served import Served
from ..transport.errors import LogLostError, OptionError, RangeServerError, UsageError
from ..transport.log.frame import Cursor
from ..transport.receiver.writer_types import AnnouncedTypes
from ..transport.structure import NANOSECONDS
from .range_calculator import Limits, LogPartition, pieces_of

_log = logging.getLogger("spark_rtps.datasource")

#: How long planning waits for the end of one receiver's log, and the pause after that failed.
_PATIENCE_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 1.0
#: How long it waits for a receiver that has answered: it may search its log, or write to a disk.
_WORK_SECONDS: Final = 15.0
#: How long a receiver may take to make a subscription and its log, on a busy host.
_START_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1
#: Receivers that are asked at the same time.
_AT_ONCE: Final = 32
_TOKEN: Final = "SPARK_RTPS_TOKEN"

_T = TypeVar("_T")


class Client(Protocol):
    """The part of :class:`ReceiverClient` that is used here."""

    def subscriptions(self) -> list[SubscriptionInfo]: ...
    def subscribe(self, options: Mapping[str, str], *, patience: float | None = None) -> SubscriptionInfo: ...
    def tail(self, log: str, *, after: int = -1, wait: float = 0.0) -> LogTail: ...
    def advance(
        self, log: str, start: Cursor, tail: Cursor, *, max_rows: int | None, max_bytes: int | None
    ) -> Cursor: ...
    def split(self, log: str, start: Cursor, end: Cursor, pieces: int) -> list[tuple[Cursor, Cursor]]: ...
    def place(self, log: str, cursor: Cursor) -> Cursor | MisplacedOffset: ...
    def at(self, log: str, time_ns: int) -> Cursor: ...
    def commit_offset(self, log: str, group: str, cursor: Cursor) -> None: ...
    def groups(self, log: str) -> dict[str, Cursor]: ...
    def writer_types(self, log: str) -> AnnouncedTypes: ...
    def close(self) -> None: ...


Connect: TypeAlias = Callable[[Served], Client]


def connect(served: Served) -> Client:
    """A client with little patience, for planning."""
    return ReceiverClient(served, patience=_PATIENCE_SECONDS, work_patience=_WORK_SECONDS)


class ReceiverService:
    """One receiver, by its name in offsets. Its methods raise the client's errors."""

    def __init__(self, name: str, served: Served, settings: Settings, make: Connect) -> None:
        self.name = name
        self.client = make(served)
        self._served = served
        self._settings = settings
        self._info: SubscriptionInfo | None = None
        #: The subscription as last received, whether or not the receiver is in reach.
        self.known: SubscriptionInfo | None = None
        self._gone_since: float | None = None
        #: Whether planning failed last: then an answer about the log's end does not prove that it is back.
        self._is_unplanned = False
        self._next_try = 0.0
        #: Whether it is out of reach for longer than ``receiver.timeout``, and that was logged.
        self._given_up = False

    def find(self) -> SubscriptionInfo:
        """The subscription that the query reads. Raises UsageError if there is none, or more than one."""
        if self._info is None:
            asked = self._settings.receiver_subscribes
            self._info = (
                self._chosen(self.client.subscriptions()) if asked is None else self._subscribed(asked)
            )
            self.known = self._info
        return self._info

    def tail(self) -> tuple[str, LogTail] | None:
        """The log and its end; None: the receiver is out of reach for now.

        Raises RangeServerError when that has lasted for ``receiver.timeout``, unless failOnDataLoss is false.
        """
        if time.monotonic() < self._next_try:
            return None
        try:
            try:
                found = self.find().log, self.client.tail(self.find().log)
            except LogLostError:  # it has another log now
                self._info = None
                found = self.find().log, self.client.tail(self.find().log)
        except RangeServerError as error:
            self._missed(error)
            return None
        except LogLostError as error:  # its receiver is just making it
            self._missed(RangeServerError(str(error), is_reached=False))
            return None
        if not self._is_unplanned:
            self._is_back()
        return found

    def planned(self) -> None:
        """It has answered every request for planning a micro-batch."""
        self._is_unplanned = False
        self._is_back()

    def missed(self, error: RangeServerError) -> None:
        """It did not answer a request for planning a micro-batch: log that once. Raises the error if the answer was
        wrong,
        or it has been out of reach for too long."""
        self._is_unplanned = True
        self._missed(error)

    def _is_back(self) -> None:
        if self._gone_since is not None:
            _log.warning("receiver %s is back", self.name)
        self._gone_since, self._given_up = None, False

    def _missed(self, error: RangeServerError) -> None:
        if error.is_reached:
            raise error
        now = time.monotonic()
        self._info, self._next_try = None, now + _PAUSE_SECONDS
        if self._gone_since is None:
            self._gone_since = now
            _log.warning(
                "receiver %s: %s; its samples wait there; continuing with the other receivers",
                self.name,
                error,
            )
        gone = now - self._gone_since
        if gone * NANOSECONDS < self._settings.receiver_timeout or self._given_up:
            return
        why = f"receiver {self.name} has been out of reach for {gone:.0f} s (receiver.timeout): {error}"
        if self._settings.fail_on_data_loss:
            raise RangeServerError(why, addresses=error.addresses, is_reached=False) from error
        self._given_up = True
        _log.warning("%s; continuing without it because failOnDataLoss=false", why)

    def begin(self, log: str, tail: LogTail, *, default: str, since: int | None = None) -> Cursor:
        """Where a query begins that has not read this log.

        ``latest`` is the end that the log had at ``since`` (ns since 1970), if the query began without an answer of
        this
        receiver; None: it answered at once.
        """
        if self._settings.starting_time is not None:
            return self.client.at(log, self._settings.starting_time)
        given = self._settings.starting or default
        if since is not None and given == "latest":
            return self.client.at(log, since)
        return self._offset("startingOffsets", given, log, tail)

    def end_of_batch(self, log: str, tail: LogTail) -> Cursor:
        """Where a batch ends."""
        if self._settings.ending_time is not None:
            return min(Cursor(tail.position), self.client.at(log, self._settings.ending_time))
        return self._offset("endingOffsets", self._settings.ending or "latest", log, tail)

    def _offset(self, option: str, given: Offsets, log: str, tail: LogTail) -> Cursor:
        """Raises OptionError for a position that the log does not have, unless failOnDataLoss is false."""
        wanted = given if isinstance(given, str) else dict(given)[self.name]
        if isinstance(wanted, str):
            return Cursor(tail.base if wanted == "earliest" else tail.position)
        if wanted > tail.position:
            what, place = "is behind its end", Cursor(tail.position)
        else:
            found = self.client.place(log, Cursor(wanted))
            if isinstance(found, Cursor):
                return found
            what = "is trimmed" if wanted < tail.base else "is not the beginning of a frame"
            place = found.place
        what = (
            f"position {wanted} of receiver {self.name} {what}; its log {log} holds positions {tail.base} to "
            f"{tail.position}, and the next readable position is {place.position}"
        )
        if self._settings.fail_on_data_loss:
            fix = f"{what}: name that one, or set failOnDataLoss=false to continue there"
            raise OptionError(option, f'{{"{self.name}": {wanted}}}', fix)
        _log.warning("%s: %s; continuing there because failOnDataLoss=false", option, what)
        return place

    def advance(self, log: str, start: Cursor, end: Cursor, limits: Limits) -> Cursor:
        if limits.is_unlimited or start >= end:
            return end
        return self.client.advance(log, start, end, max_rows=limits.max_rows, max_bytes=limits.max_bytes)

    def partitions(self, log: str, start: Cursor, end: Cursor, min_pieces: int) -> list[LogPartition]:
        """[start, end) in pieces; in one piece if the receiver is out of reach: tasks wait for it longer.

        Raises LogLostError for a trimmed part, unless failOnDataLoss is false: tasks then read what is still held.
        """
        if start >= end:
            return []
        pieces = pieces_of(start, end, min_pieces)
        ranges, directory, place = [(start, end)], Path("/", log), None
        try:
            info = self.find()
            if info.log == log:
                directory, place = info.directory, info.place
            if pieces > 1:
                ranges = self.client.split(log, start, end, pieces)
        except RangeServerError as error:
            self.missed(error)
        except LogLostError:
            if self._settings.fail_on_data_loss:
                raise
        host = self._served.addresses[0]
        return [LogPartition(str(directory), host, *a, *b, self._served, place) for a, b in ranges]

    def _subscribed(self, asked: Mapping[str, str]) -> SubscriptionInfo:
        self.client.subscriptions()  # fails soon if the receiver is out of reach; a busy one gets more time below
        info = self.client.subscribe(asked, patience=_START_SECONDS)
        self.await_log(info.log)
        return info

    def await_log(self, log: str) -> LogTail:
        """The end of a log whose receiver may be starting. Raises LogLostError if it takes too long."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                return self.client.tail(log)
            except LogLostError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)

    def _chosen(self, found: list[SubscriptionInfo]) -> SubscriptionInfo:
        settings, wanted = self._settings, self._settings.receiver_subscription
        fits = [each for each in found if _is_of(each, settings) and wanted in (None, each.name)]
        if len(fits) > 1:
            fits = [each for each in fits if each.domain == settings.domain] or fits
        if len(fits) == 1:
            return fits[0]
        there = ", ".join(f"{each.name} ({_topics(each)})" for each in (fits or found)[:8]) or "none"
        raise UsageError(
            f"receiver {self.name}: {len(fits) or 'no'} subscriptions are of {_topics(settings)}"
            + (f" and named {wanted!r}" if wanted else "")
            + f"; there are: {there}. Set receiver.subscription, or add one to the receiver's file"
        )


def _is_of(info: SubscriptionInfo, settings: Settings) -> bool:
    """Whether a subscription has the query's topic or topics."""
    if info.topics is None or settings.topics is None:
        return info.topics is settings.topics and info.topic == settings.topic
    return info.topics.is_like(settings.topics)


def _topics(of: SubscriptionInfo | Settings) -> str:
    if of.topics is None:
        return f"topic {of.topic!r}"
    return f"{'subscribe' if of.topics.pattern is None else 'subscribePattern'}={of.topic!r}"


def receiver_services(settings: Settings, make: Connect = connect) -> dict[str, ReceiverService]:
    """All receivers of a query by name, not yet asked. Raises OptionError for an unreadable file."""
    token = _token(settings)
    pem = (
        _pem("receiver.ca", settings.receiver_ca, "CERTIFICATE"),
        _pem("receiver.certificate", settings.receiver_certificate, "CERTIFICATE"),
        _pem("receiver.key", settings.receiver_key, "PRIVATE KEY"),
    )
    return {
        name: ReceiverService(
            name, Served((address,), token, *pem, network=loopback_network([address])), settings, make
        )
        for name, address in settings.receivers
    }


def at_once(ask: Callable[[str], _T], names: Sequence[str]) -> list[_T]:
    """The answers of ``ask`` for all receivers, asked at the same time. Raises the first error."""
    if len(names) < 2:
        return [ask(name) for name in names]
    with ThreadPoolExecutor(min(len(names), _AT_ONCE)) as pool:
        return list(pool.map(ask, names))


def _token(settings: Settings) -> str:
    """Empty: there is none. Raises OptionError if it is invalid; a final line end, as in files, is ignored."""
    source, token = "receiver.token", settings.receiver_token
    if token is None and settings.receiver_token_file is not None:
        source = "receiver.token.file"
        token = _text(source, settings.receiver_token_file)
    elif token is None:
        source, token = _TOKEN, os.environ.get(_TOKEN, "")
    token = token.strip()
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise OptionError(source, None, "a token is one word of ASCII")
    return token


def _pem(option: str, path: str | None, what: str) -> str | None:
    if path is None:
        return None
    text = _text(option, path)
    if f"{what}-----" not in text:
        raise OptionError(option, path, f"holds no {what.lower()} in PEM")
    return text


def _text(option: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(option, path, f"cannot be read: {error}") from error
