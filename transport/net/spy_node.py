"""A node without a network: its one reader spies on what writers of this host put into their publication logs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ..errors import LogError
from ..log.image import Span
from ..log.publications import Publications, Published
from ..log.segment import JSON
from ..protocol.endpoint_info import ContentFilterProperty
from ..protocol.events import Event
from ..protocol.policies import ReaderPolicy
from ..protocol.reading.reader import StatefulReader
from ..protocol.spying import SpyParticipant
from ..qos import OwnershipKind, Qos, partitions_match
from ..structure import INFINITE, KIND_READER_NO_KEY, KIND_READER_WITH_KEY, NANOSECONDS, Guid, is_keyed
from ..types.idl.parser import parse_struct
from ..types.model import Struct
from ..wire.samples import U8
from .on_host import ReadLogs

_log = logging.getLogger(__name__)

#: How often it looks for logs.
_LOOK_NS: Final = 100_000_000
_LOOK_SECONDS: Final = _LOOK_NS / NANOSECONDS
#: How long it sleeps when there is nothing to read: nobody wakes it.
_SLEEP_MIN: Final = 0.0005
_SLEEP_MAX: Final = 0.01
#: As `Guid` prints it.
_GUID: Final = re.compile(r"([0-9a-f]{8})\.([0-9a-f]{8})\.([0-9a-f]{8}):([0-9a-f]{8})")


class SpyNode:
    """What a receiver uses of a :class:`~.node.Node`, for spying."""

    def __init__(self, domain: int, guid_prefix: bytes, publications: Publications | None = None) -> None:
        self.domain = domain
        self.guid_prefix = guid_prefix
        #: As of a node.
        self.on_received: Callable[[], None] | None = None
        self.before_receive: Callable[[], None] | None = None
        self._publications = publications or Publications()
        self._logs = ReadLogs(self._receive, self._publications, spies=True)
        self._topic = self._type_name = ""
        self._partition: tuple[str, ...] = ()
        self._joined: set[Guid] = set()
        #: Logs that were looked at and are of no use.
        self._passed: set[str] = set()
        self._look_at = 0
        self._sleep = _SLEEP_MIN

    def create_reader(
        self,
        topic: str,
        type_name: str,
        qos: Qos,
        *,
        keyed: bool,
        entity_key: int,
        resume: Mapping[Guid, int],
        policy: ReaderPolicy,
        type: Struct | None = None,
        awaits_types: bool = False,
        content_filter: ContentFilterProperty | None = None,
    ) -> StatefulReader:
        """The reader; its GUID is known to no writer, and so are its type and filter."""
        kind = KIND_READER_WITH_KEY if keyed else KIND_READER_NO_KEY
        guid = Guid(self.guid_prefix, entity_key.to_bytes(3, "big") + bytes((kind,)))
        self._topic, self._type_name, self._partition = topic, type_name, qos.partition
        self.participant = SpyParticipant(guid, topic, qos, policy=policy, resume=resume)
        return self.participant.reader

    def first_writer(self, topic: str, qos: Qos) -> tuple[str, bool] | None:
        """What a writer that a reader with this QoS can look at calls the topic's type, and whether it has a key."""
        for published in self._listing() or ():
            about = published.about
            writer, type_name = _guid(about.get("guid")), about.get("type")
            if writer is None or not isinstance(type_name, str):
                continue
            is_there = (about.get("domain"), about.get("topic")) == (self.domain, topic)
            if is_there and partitions_match(_qos(about).partition, qos.partition):
                return type_name, is_keyed(writer.entity)
        return None

    def cycle(self, timeout: float) -> None:
        """One duty cycle: look for writers, read what is there; sleep if there is nothing."""
        if not self._topic:  # there is no reader yet
            time.sleep(min(timeout, _LOOK_SECONDS))
            return
        now = time.monotonic_ns()
        if now >= self._look_at:
            self._look_at = now + _LOOK_NS
            self._look(now)
        if self.before_receive is not None:
            self.before_receive()
        messages, _ = self._logs.read(now=now)
        if messages:
            self._sleep = _SLEEP_MIN
        else:
            time.sleep(min(timeout, self._sleep))
            self._sleep = min(2 * self._sleep, _SLEEP_MAX)

    def wake(self) -> None:
        """It never sleeps for long."""

    def events(self) -> list[Event]:
        found: list[Event] = []
        while self._topic and (event := self.participant.next_event()) is not None:
            found.append(event)
        return found

    def close(self) -> None:
        self._logs.close()

    abandon = close

    # --- inside ------------------------------------------------------------------------------------

    def _receive(self, data: U8, spans: Sequence[Span]) -> None:
        self.participant.receive(data, spans, now=time.monotonic_ns())
        if self.on_received is not None:
            self.on_received()
        if self.before_receive is not None:
            self.before_receive()  # there is less room now

    def _look(self, now: int) -> None:
        """Find logs of the topic that are new, and let go of those that ended."""
        for gone in self._joined.difference(self._logs.writers):
            self._joined.discard(gone)
            self.participant.leave(gone)
        listing = self._listing()
        if listing is None:
            return
        self._passed.intersection_update(each.path.name for each in listing)
        for published in listing:
            if published.path.name not in self._passed:
                self._passed.add(published.path.name)
                self._join(published, now)

    def _listing(self) -> list[Published] | None:
        """None: what there is cannot be known now."""
        try:
            return self._publications.listing()
        except LogError as error:
            _log.warning("%s: there is nothing to spy on", error)
            return None

    def _join(self, published: Published, now: int) -> None:
        about = published.about
        writer = _guid(about.get("guid"))
        ours = (about.get("domain"), about.get("topic"), about.get("type"))
        if writer is None or ours != (self.domain, self._topic, self._type_name):
            return
        offered = _qos(about)
        if not partitions_match(offered.partition, self._partition):
            return
        try:
            log = self._publications.open(published.path.name)
        except LogError as error:
            _log.debug("%s", error)
            return
        self.participant.join(writer, offered, _struct(about), now=now)
        if self._logs.join(self.participant.reader, writer, log, now=now):
            self._joined.add(writer)
        else:
            _log.warning("%s has as many readers as it takes: %s is not read", log.path, writer)
            self.participant.leave(writer)


def _guid(text: JSON) -> Guid | None:
    found = _GUID.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else Guid.from_bytes(bytes.fromhex("".join(found.groups())))


def _qos(about: Mapping[str, JSON]) -> Qos:
    """What a receiver looks at of what a writer offers."""
    partition, lifespan = about.get("partition"), about.get("lifespan")
    strength, exclusive = about.get("ownership_strength"), about.get("ownership") == "EXCLUSIVE"
    return Qos(
        partition=tuple(map(str, partition)) if isinstance(partition, list) else (),
        lifespan=lifespan if isinstance(lifespan, int) else INFINITE,
        ownership=OwnershipKind.EXCLUSIVE if exclusive else OwnershipKind.SHARED,
        ownership_strength=strength if isinstance(strength, int) else 0,
    )


def _struct(about: Mapping[str, JSON]) -> Struct | None:
    idl = about.get("idl")
    if not isinstance(idl, list):
        return None
    text, name = idl
    return parse_struct(str(text), str(name), "type of a publication")
