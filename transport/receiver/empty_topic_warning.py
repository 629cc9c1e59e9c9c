"""Explains why a receiver's reader gets nothing: mismatches, and topics without a writer."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from ..limits import MISMATCHES_LOGGED_MAX
from ..net.receiving_node import ReceivingNode
from ..protocol.participant.events import IncompatibleQos
from .config import ReceiverConfig
from .hints import NO_PUBLICATION_LOG, reasons_with_hints, with_hints

_log = logging.getLogger("spark_rtps.receiver")

#: A topic that has no writer for this long is worth a warning; less than a batch read listens by default.
_NOBODY_NS: Final = 4_000_000_000
_TOPICS_NAMED_MAX: Final = 20
#: Prefix of the DDS names of ROS 2's topics.
_ROS_PREFIX: Final = "rt/"


class EmptyTopicWarning:
    """Warns once of each kind of mismatch, and once of a topic without a writer."""

    def __init__(self, config: ReceiverConfig, node: ReceivingNode, *, now: int) -> None:
        self._config = config
        self._node = node
        self._explained: set[str] = set()
        #: When to warn that the topic has no writer; None: never again.
        self._warns_at: int | None = now + _NOBODY_NS

    def on_mismatch(self, event: IncompatibleQos) -> None:
        reasons = reasons_with_hints(event.reasons, self._config.hints)
        if reasons in self._explained or len(self._explained) >= MISMATCHES_LOGGED_MAX:
            return
        self._explained.add(reasons)
        _log.warning("topic %r: no match with %s: %s", event.topic, event.remote, reasons)

    def why_unmatched(self) -> str | None:
        """Why no known writer matches, in one sentence; None: no known writer could be the intended one."""
        domain, written = self._config.node.domain, self._node.directory.written_topics()
        if self._explained:
            reasons = "; ".join(sorted(self._explained))
            return f"{self._what} has writers on domain {domain}, and none matches: {reasons}"
        others = [self._other_spelling(topic, written) for topic in self._topics]
        found = ", ".join(repr(other) for other in others if other is not None)
        return f"{self._what} has no writer on domain {domain}; did you mean {found}?" if found else None

    def warn_if_empty(self, now: int, *, matched: Collection[str], type_name: object) -> None:
        """Warn if it is time to, and nothing else explains that a topic is empty. ``matched`` are the topics with a
        matched writer; ``type_name`` may be unknown."""
        if self._warns_at is None or now < self._warns_at:
            return
        self._warns_at = None
        if self._explained:
            return
        selection = self._config.topics
        if selection is not None and selection.pattern is not None:
            lacking = [] if matched else [selection.pattern]
        else:
            lacking = [topic for topic in self._topics if topic not in matched]
        for topic in lacking:
            if self._config.spy:
                self._warn_of_no_log(type_name)
            else:
                self._warn_of_no_writer(topic)

    @property
    def _topics(self) -> tuple[str, ...]:
        """The topics that were named; a pattern stands for itself."""
        selection = self._config.topics
        return (self._config.topic,) if selection is None else selection.names or (str(selection),)

    @property
    def _what(self) -> str:
        if self._config.topics is None:
            return f"topic {self._config.topic!r}"
        return f"any topic of {self._config.topic!r}"

    def _other_spelling(self, topic: str, written: Collection[str]) -> str | None:
        selection = self._config.topics
        if selection is None or selection.pattern is None:
            return other_spelling(topic, written)
        bare = ((each, each.removeprefix("/").removeprefix(_ROS_PREFIX)) for each in sorted(written))
        spelt = ((each, (name, f"/{name}", f"{_ROS_PREFIX}{name}")) for each, name in bare)
        return next((each for each, forms in spelt if any(map(selection.selects, forms))), None)

    def _warn_of_no_log(self, type_name: object) -> None:
        _log.warning(
            "topic %r: no publication log%s on domain %d so far on this host%s",
            self._config.topic,
            "" if type_name is None else f" of type {type_name!r}",
            self._config.node.domain,
            with_hints("", [NO_PUBLICATION_LOG], self._config.hints),
        )

    def _warn_of_no_writer(self, topic: str) -> None:
        topics = sorted(self._node.directory.written_topics())
        selection = self._config.topics
        is_written = topic in topics
        if selection is not None and selection.pattern is not None:
            is_written = bool(selection.among(topics))
            if is_written and self._config.type_name is not None:
                return  # topics of other types have a warning of their own
        if is_written and self._config.slice is not None:
            _log.info("topic %r: none of its writers so far belongs to slice %s", topic, self._config.slice)
            return
        if is_written:  # a writer that might match has a reader by now
            _log.warning(
                "topic %r: no match with its writers: %s",
                topic,
                reasons_with_hints(["PARTITION"], self._config.hints),
            )
            return
        other = self._other_spelling(topic, topics)
        _log.warning(
            "topic %r: no writer on domain %d so far; %stopics written here: %s",
            topic,
            self._config.node.domain,
            "" if other is None else f"did you mean {other!r}? ",
            ", ".join(topics[:_TOPICS_NAMED_MAX]) or "none",
        )


def other_spelling(topic: str, written: Collection[str]) -> str | None:
    """The one of the topics ``written`` that differs from this topic only by ROS 2's prefix ``rt/`` or a leading slash;
    None: there is none, or ``topic`` itself is written."""
    bare = topic.removeprefix("/").removeprefix(_ROS_PREFIX)
    others = (f"{_ROS_PREFIX}{bare}", bare, f"/{bare}")
    return None if topic in written else next((other for other in others if other in written), None)
