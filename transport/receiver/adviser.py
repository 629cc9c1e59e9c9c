"""Explains in the log of the receiver why its reader gets nothing: mismatches, and topics that nobody writes."""

from __future__ import annotations

import logging
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
        _log.warning(
            "topic %r: no writer on domain %d so far; topics written here: %s",
            self._config.topic,
            self._config.node.domain,
            ", ".join(topics[:_TOPICS_NAMED_MAX]) or "none",
        )
