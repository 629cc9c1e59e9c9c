"""Explains why a receiver's reader gets nothing: mismatches, and topics that nobody writes."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from ..limits import MISMATCHES_SAID_MAX
from ..net.receiving_node import ReceivingNode
from ..protocol.events import IncompatibleQos
from .config import ReceiverConfig
from .remedies import NO_PUBLICATION_LOG, reasons_with_remedies, with_remedies

_log = logging.getLogger("spark_rtps.receiver")

#: A topic without a writer for so long is worth a warning; less than a batch read listens by default.
_NOBODY_NS: Final = 4_000_000_000
_TOPICS_NAMED_MAX: Final = 20
#: Of the DDS names of ROS 2's topics.
_ROS_PREFIX: Final = "rt/"


class Adviser:
    """Warns once of each kind of mismatch, and once of a topic without a writer."""

    def __init__(self, config: ReceiverConfig, node: ReceivingNode, *, now: int) -> None:
        self._config = config
        self._node = node
        self._explained: set[str] = set()
        #: When to warn that nobody writes the topic; None: never again.
        self._warns_at: int | None = now + _NOBODY_NS

    def on_mismatch(self, event: IncompatibleQos) -> None:
        reasons = reasons_with_remedies(event.reasons, self._config.remedies)
        if reasons in self._explained or len(self._explained) >= MISMATCHES_SAID_MAX:
            return
        self._explained.add(reasons)
        _log.warning("topic %r: no match with %s: %s", event.topic, event.remote, reasons)

    def why_unmatched(self) -> str | None:
        """Why no writer that is known matches, in one sentence; None: nothing that is known could be meant."""
        topic, domain = self._config.topic, self._config.node.domain
        if self._explained:
            reasons = "; ".join(sorted(self._explained))
            return f"topic {topic!r} has writers on domain {domain}, and none matches: {reasons}"
        other = other_spelling(topic, self._node.written_topics())
        if other is None:
            return None
        return f"nobody writes topic {topic!r} on domain {domain}; did you mean {other!r}?"

    def look(self, now: int, *, matched_writers: int, type_name: object) -> None:
        """Warn if it is time to, and nothing else explains that the topic is empty; ``type_name`` may be unknown."""
        if self._warns_at is None or now < self._warns_at:
            return
        self._warns_at = None
        if matched_writers or self._explained:
            return
        if self._config.spy:
            self._warn_of_no_log(type_name)
        else:
            self._warn_of_no_writer()

    def _warn_of_no_log(self, type_name: object) -> None:
        _log.warning(
            "topic %r: no publication log%s on domain %d so far on this host%s",
            self._config.topic,
            "" if type_name is None else f" of type {type_name!r}",
            self._config.node.domain,
            with_remedies("", [NO_PUBLICATION_LOG], self._config.remedies),
        )

    def _warn_of_no_writer(self) -> None:
        topics = sorted(self._node.written_topics())
        if self._config.topic in topics and self._config.slice is not None:
            _log.info(
                "topic %r: none of its writers so far belongs to slice %s",
                self._config.topic,
                self._config.slice,
            )
            return
        if self._config.topic in topics:  # a writer that might match has been followed
            _log.warning(
                "topic %r: no match with its writers: %s",
                self._config.topic,
                reasons_with_remedies(["PARTITION"], self._config.remedies),
            )
            return
        other = other_spelling(self._config.topic, topics)
        _log.warning(
            "topic %r: no writer on domain %d so far; %stopics written here: %s",
            self._config.topic,
            self._config.node.domain,
            "" if other is None else f"did you mean {other!r}? ",
            ", ".join(topics[:_TOPICS_NAMED_MAX]) or "none",
        )


def other_spelling(topic: str, written: Collection[str]) -> str | None:
    """The one of the topics ``written`` that is this topic but for ROS 2's prefix ``rt/`` or a leading slash; None:
    there is none, or ``topic`` itself is written."""
    bare = topic.removeprefix("/").removeprefix(_ROS_PREFIX)
    others = (f"{_ROS_PREFIX}{bare}", bare, f"/{bare}")
    return None if topic in written else next((other for other in others if other in written), None)
