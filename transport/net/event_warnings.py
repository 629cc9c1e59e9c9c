"""Warnings about peers, made from events of a participant: each is logged once."""

from __future__ import annotations

import logging
from typing import Final

from ..limits import MISMATCHES_SAID_MAX
from ..protocol.participant.events import Event, MessageTooLarge, TypeNotKnown
from ..said import Said
from .node_config import NodeConfig

_log = logging.getLogger(__name__)

#: So many senders of too large messages are named in the log.
_SENDERS_NAMED_MAX: Final = 256


class EventWarnings:
    """What was said of senders and topics so far."""

    def __init__(self, config: NodeConfig) -> None:
        self._config = config
        self._too_large_from = Said(_SENDERS_NAMED_MAX)
        self._type_not_known = Said(MISMATCHES_SAID_MAX)

    def on_event(self, event: Event) -> None:
        """Warn of what the event says, if it is worth a warning and none was given of it."""
        if isinstance(event, MessageTooLarge):
            self._warn_of_size(event)
        elif isinstance(event, TypeNotKnown):
            self._warn_of_type(event)

    def _warn_of_size(self, event: MessageTooLarge) -> None:
        if not self._too_large_from.is_new(event.sender):
            return
        _log.warning(
            "a message of %d bytes from %s is larger than message_size_max, %d: such are dropped",
            event.size,
            event.sender,
            self._config.message_size_max,
        )

    def _warn_of_type(self, event: TypeNotKnown) -> None:
        if not self._type_not_known.is_new(event.topic):
            return
        remedy = self._config.type_remedy
        _log.warning(
            "topic %r: the type that is announced has int8 or uint8 members; Cyclone DDS%s of %s does not know them "
            "and crashes when it asks for the type%s",
            event.topic,
            f" {event.product_version}" if event.product_version else "",
            event.remote,
            f" ({remedy})" if remedy else "",
        )
