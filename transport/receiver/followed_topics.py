"""The topics a receiver subscribes to, and when: its one topic, or the selected ones as their writers appear.

A reader is matched by the name of its type. If the configuration has no type name, the reader is made when the topic's
first writer is found, and takes that writer's name for the type; the log keeps it for a successor. With several topics
the log also keeps the entity key of each reader, so that a restarted receiver has the same readers under the same
GUIDs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from ..errors import LogError
from ..limits import TOPICS_MAX
from ..log.stream_log import StreamLog
from ..net.receiving_node import NamedType, ReceivingNode
from ..protocol.discovery.topic_selection import TopicSelection
from ..value_classes import value
from .config import ReceiverConfig
from .left_to_writers import REQUESTED, LeftToWriters, requesting
from .new_log import READERS
from .subscription import READER_ENTITY_KEY

_log = logging.getLogger("spark_rtps.receiver")

#: Topics of another type that get a warning of their own.
_OTHERS_NAMED_MAX: Final = 64


@value
class Followed:
    """A topic to subscribe to; ``config`` is the receiver's, as if it had no other topic."""

    config: ReceiverConfig
    named: NamedType
    entity_key: int = READER_ENTITY_KEY


class FollowedTopics(Protocol):
    """Decides what a receiver subscribes to."""

    def begin(self) -> Iterator[Followed]:
        """The topics that are known before any peer is discovered."""
        ...

    def new_topics(self) -> Iterator[Followed]:
        """The topics that are new since the last call."""
        ...


def followed_topics(config: ReceiverConfig, log: StreamLog, node: ReceivingNode) -> FollowedTopics:
    if config.topics is None:
        return _OneTopic(config, log, node)
    return _SelectedTopics(config, config.topics, log, node)


class _OneTopic:
    def __init__(self, config: ReceiverConfig, log: StreamLog, node: ReceivingNode) -> None:
        self._config = config
        self._log = log
        self._node = node
        self._left = LeftToWriters(config, node)
        self._changes_seen = -1
        self._is_followed = False

    def begin(self) -> Iterator[Followed]:
        named, requested = self._named(), self._log.metadata.get(REQUESTED)
        if named is not None and (self._left.is_empty or isinstance(requested, dict)):
            yield self._followed(named, requested if isinstance(requested, dict) else {})

    def new_topics(self) -> Iterator[Followed]:
        changes, seen = self._node.directory.changes, self._changes_seen
        self._changes_seen = changes
        if self._is_followed or (changes == seen and not self._left.waits):
            return
        topic, known = self._config.topic, self._named()
        named = self._node.directory.first_writer(topic, self._config.qos) if known is None else known
        requested = None if named is None else self._left.decide(topic, named)
        if named is None or requested is None:
            return
        decided: dict[str, Any] = {} if known else {"type": named.type_name, "keyed": named.keyed}
        if requested:
            decided[REQUESTED] = requested
        _log.info("topic %r: reader adopts the first writer's settings: %s", topic, decided)
        try:
            self._log.amend(**decided)
        except LogError as error:
            _log.warning(
                "%s; a restarted receiver adopts the settings of the first writer that it finds", error
            )
        yield self._followed(named, requested)

    def _named(self) -> NamedType | None:
        """The type's name, as the log has it; None: it is not known yet."""
        type_name = self._log.metadata["type"]
        return None if type_name is None else NamedType(str(type_name), bool(self._log.metadata.get("keyed")))

    def _followed(self, named: NamedType, requested: Mapping[str, Any]) -> Followed:
        self._is_followed = True
        return Followed(requesting(self._config, requested), named)


class _SelectedTopics:
    def __init__(
        self, config: ReceiverConfig, selection: TopicSelection, log: StreamLog, node: ReceivingNode
    ) -> None:
        self._config = config
        self._selection = selection
        self._log = log
        self._node = node
        self._left = LeftToWriters(config, node)
        self._changes_seen = -1
        self._followed: set[str] = set()
        #: Topics that are selected but not followed, and of which that is logged.
        self._left_out: set[str] = set()
        self._refused = ""

    def begin(self) -> Iterator[Followed]:
        """The readers of an earlier receiver, except those of topics that are no longer selected, and the listed topics
        whose type has a name."""
        type_name = self._config.type_name
        for reader in self._recorded():
            named = NamedType(str(reader["type"]), bool(reader["keyed"]))
            if self._selection.selects(reader["topic"]) and type_name in (None, named.type_name):
                yield self._follow(reader)
            else:  # writers wait for this reader as long as there is a receiver of this GUID
                self._node.withdraw_reader(int(reader["key"]), keyed=named.keyed)
        keyed = self._config.keyed
        if type_name is not None and keyed is not None and self._left.is_empty:
            named = NamedType(type_name, keyed)
            for topic in self._selection.names:
                if topic not in self._followed and self._record(topic, named, {}):
                    yield self._follow(self._recorded()[-1])

    def new_topics(self) -> Iterator[Followed]:
        changes, seen = self._node.directory.changes, self._changes_seen
        if changes == seen and not self._left.waits:
            return
        self._changes_seen = changes
        for topic in self._selection.among(self._node.directory.written_topics() - self._followed):
            named = self._node.directory.first_writer(topic, self._config.qos, self._config.type_name)
            if named is None or not self._takes(topic, named):
                continue
            requested = self._left.decide(topic, named)
            if requested is None:
                continue
            if not self._record(topic, named, requested):
                self._changes_seen = -1
                continue
            _log.info("topic %r: subscribed with its first writer's type name %r", topic, named.type_name)
            yield self._follow(self._recorded()[-1])

    def _takes(self, topic: str, named: NamedType) -> bool:
        """Whether one more topic can be followed, and this one has the type that was asked for."""
        wanted = self._config.type_name
        if wanted is not None and named.type_name != wanted:
            self._leave_out(topic, f"its type is {named.type_name!r}, and that of the columns is {wanted!r}")
            return False
        if len(self._recorded()) >= TOPICS_MAX:
            self._leave_out(topic, f"the limit of {TOPICS_MAX} topics is reached")
            return False
        return True

    def _leave_out(self, topic: str, why: str) -> None:
        if topic not in self._left_out and len(self._left_out) < _OTHERS_NAMED_MAX:
            self._left_out.add(topic)
            _log.warning("topic %r: selected by %r, but not read: %s", topic, str(self._selection), why)

    def _recorded(self) -> list[Any]:
        found = self._log.metadata.get(READERS, [])
        assert isinstance(found, list)
        return found

    def _record(self, topic: str, named: NamedType, requested: Mapping[str, str]) -> bool:
        """Record a reader in the log before it is made: its key is never another topic's. False: that was not
        possible."""
        recorded = self._recorded()
        key = 1 + max((int(reader["key"]) for reader in recorded), default=0)
        reader: dict[str, Any] = {
            "topic": topic,
            "type": named.type_name,
            "keyed": named.keyed,
            "key": key,
            **({REQUESTED: dict(requested)} if requested else {}),
        }
        try:
            self._log.amend(**{READERS: [*recorded, reader]})
        except LogError as error:
            if str(error) != self._refused:
                self._refused = str(error)
                _log.warning("%s; topic %r is not read until this succeeds", error, topic)
            return False
        return True

    def _follow(self, reader: Mapping[str, Any]) -> Followed:
        """Follow the topic of a reader that the log has recorded."""
        topic = str(reader["topic"])
        self._followed.add(topic)
        config = requesting(self._config, reader.get(REQUESTED, {}))
        named = NamedType(str(reader["type"]), bool(reader["keyed"]))
        return Followed(replace(config, topic=topic, topics=None), named, int(reader["key"]))
