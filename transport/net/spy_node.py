"""A node without a network: its readers read the publication logs of writers on this host."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from ..errors import LogError, UsageError
from ..log.named_logs import NamedLog, NamedLogs
from ..log.segment import JSON
from ..log.subscriber_slots import SUBSCRIBERS_MAX
from ..partitions import partitions_match
from ..protocol.participant.endpoint_specs import ReaderSpec
from ..protocol.participant.events import Event
from ..protocol.participant.spy_participant import SpyParticipant
from ..protocol.reading.reader import StatefulReader
from ..protocol.receiving.message_receiver import Span
from ..structure import NANOSECONDS, Guid
from ..types.model import Struct
from ..value_classes import slotted
from ..wire.samples import U8
from .forked import disowned_by_children
from .ipc_reading import ReadLogs
from .node_counters import NodeCounters
from .plugins import load_congestion_control
from .recipients import Recipient, Recipients
from .spy_directory import SpyDirectory, qos_offered, writer_of

_log = logging.getLogger(__name__)

#: How often it checks for logs.
_LOOK_NS: Final = 100_000_000
_LOOK_SECONDS: Final = _LOOK_NS / NANOSECONDS
#: How long it sleeps when there is nothing to read: nothing wakes it.
_SLEEP_MIN: Final = 0.0005
_SLEEP_MAX: Final = 0.01


@slotted
class _Spy:
    """One reader: what it looks for, and the writers whose logs it reads."""

    spec: ReaderSpec
    reader: StatefulReader
    #: The name of each writer's log.
    joined: dict[Guid, str] = field(default_factory=dict)
    #: Logs that were examined and never will match.
    passed: set[str] = field(default_factory=set)
    #: Logs that had no slot left, which was logged.
    full: set[str] = field(default_factory=set)


class SpyNode:
    """A :class:`~.receiving_node.ReceivingNode` whose readers are unknown to writers."""

    def __init__(self, domain: int, guid_prefix: bytes, named_logs: NamedLogs | None = None) -> None:
        self.domain = domain
        self.lock = threading.RLock()
        self.participant = SpyParticipant(guid_prefix)
        self._named_logs = named_logs or NamedLogs()
        self.directory = SpyDirectory(domain, self.participant, self._named_logs)
        self.counters = NodeCounters(self.participant.drops)
        self._logs = ReadLogs(self._receive, self._named_logs, spies=True)
        self._recipients = Recipients()
        self._spies: dict[Guid, _Spy] = {}
        self._keys = itertools.count(1)
        self._look_at = 0
        self._sleep = _SLEEP_MIN
        disowned_by_children(self)

    def disown(self) -> None:
        """In a forked child: the slots in the logs belong to the parent."""
        self.lock = threading.RLock()
        self._spies, self._logs = {}, ReadLogs(self._receive, self._named_logs, spies=True)

    def create_reader(self, spec: ReaderSpec, recipient: Recipient) -> StatefulReader:
        """A reader; writers learn neither of it nor of its type and filter."""
        key = next(self._keys) if spec.entity_key is None else spec.entity_key
        with self.lock:
            reader = self.participant.create_reader(replace(spec, entity_key=key))
            reader.status.congestion_control = load_congestion_control(
                spec.policy.congestion_control.kind, spec.topic
            )
            self._spies[reader.guid] = _Spy(spec, reader)
            self._recipients.add_recipient(reader, recipient)
        return reader

    def delete_endpoint(self, guid: Guid) -> None:
        with self.lock:
            if self._spies.pop(guid, None) is None:
                raise UsageError(f"no endpoint {guid} here")
            self._logs.remove_reader(guid)
            self._recipients.remove_recipient(guid)
            self.participant.delete_reader(guid)

    def withdraw_reader(self, entity_key: int, *, keyed: bool) -> None:
        """Do nothing: writers know of no reader."""

    def offer_room(self, reader: StatefulReader) -> None:
        with self.lock:
            self._recipients.offer_room(reader)

    def events(self) -> list[Event]:
        found: list[Event] = []
        with self.lock:
            while (event := self.participant.next_event()) is not None:
                found.append(event)
        return found

    # --- the duty cycle --------------------------------------------------------------------------

    def cycle(self, timeout: float) -> None:
        """Run one duty cycle: look for writers, read their logs; sleep if there is nothing to read."""
        if not self._spies:
            time.sleep(min(timeout, _LOOK_SECONDS))
            self.directory.changes += 1
            return
        now = time.monotonic_ns()
        with self.lock:
            if now >= self._look_at:
                self._look_at = now + _LOOK_NS
                self._look(now)
            messages, _ = self._logs.read_logs(now=now)
        if messages:
            self._sleep = _SLEEP_MIN
        else:
            time.sleep(min(timeout, self._sleep))
            self._sleep = min(2 * self._sleep, _SLEEP_MAX)

    def wake(self) -> None:
        """Do nothing: it never sleeps for long."""

    def close(self) -> None:
        with self.lock:
            self._logs.close()

    abandon = close

    # --- inside ------------------------------------------------------------------------------------

    def _receive(self, data: U8, spans: Sequence[Span], since: int | None) -> None:
        now = time.monotonic_ns() if since is None else since
        self._recipients.deliver(self.participant.receive(data, spans, now=now))

    def _look(self, now: int) -> None:
        """Find logs of the readers' topics that are new, or can be joined by now, and leave those that ended."""
        self.directory.changes += 1
        for spy in self._spies.values():
            for writer in list(spy.joined):
                if not self._logs.is_read_by(spy.reader.guid, writer):
                    del spy.joined[writer]
                    self.participant.leave(spy.reader, writer)
        listing = self.directory.listing()
        if listing is None:
            return
        names = {each.path.name for each in listing}
        for spy in self._spies.values():
            spy.passed &= names
            spy.full &= names
            for published in listing:
                name = published.path.name
                if name in spy.passed or name in spy.joined.values():
                    continue
                found = _writer_for(spy.spec, published.about, self.domain)
                if found is None:
                    spy.passed.add(name)
                elif found not in spy.joined:  # else its earlier log is still read
                    self._join(spy, found, published, now)

    def _join(self, spy: _Spy, writer: Guid, published: NamedLog, now: int) -> None:
        """Read a log from now on; a log that cannot be joined now is tried again at the next check."""
        try:
            log = self._named_logs.map_log(published.path.name)
        except LogError as error:
            _log.debug("%s", error)
            return
        if len(log.subscribers()) >= SUBSCRIBERS_MAX:  # checked first: no match is reported that is not one
            self._warn_of_full_log(spy, published, writer)
            return
        self.participant.join(
            spy.reader, writer, qos_offered(published.about), _struct(published.about), now=now
        )
        if self._logs.join(spy.reader, writer, log, now=now):
            spy.joined[writer] = published.path.name
            return
        self.participant.leave(spy.reader, writer)
        self._warn_of_full_log(spy, published, writer)

    def _warn_of_full_log(self, spy: _Spy, published: NamedLog, writer: Guid) -> None:
        if published.path.name not in spy.full:
            spy.full.add(published.path.name)
            _log.warning(
                "all reader slots of %s are taken: writer %s is not read until a reader leaves",
                published.path,
                writer,
            )


def _writer_for(spec: ReaderSpec, about: Mapping[str, JSON], domain: int) -> Guid | None:
    """The writer of a log, if it matches a reader; None: it never will."""
    writer = writer_of(about)
    theirs = about.get("domain"), about.get("topic"), about.get("type")
    if writer is None or theirs != (domain, spec.topic, spec.type_name):
        return None
    if spec.slice is not None and not spec.slice.has(writer):
        return None
    return writer if partitions_match(qos_offered(about).partition, spec.qos.partition) else None


def _struct(about: Mapping[str, JSON]) -> Struct | None:
    idl = about.get("idl")
    if not isinstance(idl, list):
        return None
    from ..types.idl.parser import parse_struct  # takes a while to load

    text, name = idl
    return parse_struct(str(text), str(name), "type of a publication")
