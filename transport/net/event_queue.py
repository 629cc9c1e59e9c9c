"""The events of a participant, kept by its node for its owner, and the warnings that are made from them."""

from __future__ import annotations

import logging
import time
from typing import Final

from ..errors import DropReason
from ..limits import EVENTS_MAX, MISMATCHES_LOGGED_MAX
from ..log_once import LogOnce
from ..protocol.participant.events import Event, MessageTooLarge, TypeNotKnown
from ..protocol.participant.participant import RtpsParticipant
from ..structure import Guid
from .ipc_reading import ReadLogs
from .node_config import NodeConfig

_log = logging.getLogger(__name__)

#: At most this many senders of too large messages are logged.
_SENDERS_NAMED_MAX: Final = 256


class EventQueue:
    """Events that wait for the node's owner; all calls under the node's lock."""

    def __init__(self, config: NodeConfig, participant: RtpsParticipant, read_logs: ReadLogs) -> None:
        self._participant = participant
        self._read_logs = read_logs
        self._warnings = EventWarnings(config)
        self._events: list[Event] = []
        #: An endpoint whose events the owner does not get; None: it gets all.
        self.hidden: Guid | None = None

    def collect(self) -> None:
        """Take the participant's events; beyond EVENTS_MAX they are only counted (``drop.over_limit``)."""
        while (event := self._participant.next_event()) is not None:
            if self.hidden is not None and getattr(event, "local", None) == self.hidden:
                continue
            if len(self._events) < EVENTS_MAX:
                self._events.append(event)
            else:
                self._participant.drops[DropReason.OVER_LIMIT] += 1
            self._read_logs.on_event(event, now=time.monotonic_ns())
            self._warnings.on_event(event)

    def take(self) -> list[Event]:
        """The events since the last call, oldest first."""
        self.collect()
        taken, self._events = self._events, []
        return taken


class EventWarnings:
    """Warnings about peers, each logged once."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._too_large_from = LogOnce(_SENDERS_NAMED_MAX)
        self._type_not_known = LogOnce(MISMATCHES_LOGGED_MAX)

    def on_event(self, event: Event) -> None:
        """Log a warning for the event if it is worth one and has not been logged yet."""
        if isinstance(event, MessageTooLarge):
            self._warn_of_size(event)
        elif isinstance(event, TypeNotKnown):
            self._warn_of_type(event)

    def _warn_of_size(self, event: MessageTooLarge) -> None:
        if not self._too_large_from.is_new(event.sender):
            return
        _log.warning(
            "dropped a %d-byte message from %s: larger than message_size_max, %d",
            event.size,
            event.sender,
            self._config.message_size_max,
        )

    def _warn_of_type(self, event: TypeNotKnown) -> None:
        if not self._type_not_known.is_new(event.topic):
            return
        hint = self._config.type_hint
        _log.warning(
            "topic %r: the announced type has int8 or uint8 members; Cyclone DDS%s of %s does not know them and "
            "crashes when it requests the type%s",
            event.topic,
            f" {event.product_version}" if event.product_version else "",
            event.remote,
            f" ({hint})" if hint else "",
        )
