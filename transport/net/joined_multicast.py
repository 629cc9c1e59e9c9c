"""The multicast group of a node's readers, and the participants whose messages to it are taken."""

from __future__ import annotations

from ..protocol.participant.participant import RtpsParticipant
from ..protocol.trust import Trust
from ..structure import Locator
from .multicast_addresses import group_to_join
from .node_config import NodeConfig
from .sockets import Sockets


class JoinedGroup:
    """One group for all readers of a node; all calls under the node's lock."""

    def __init__(self, config: NodeConfig, sockets: Sockets, participant: RtpsParticipant) -> None:
        self._config = config
        self._sockets = sockets
        self._participant = participant
        self._group: Locator | None = None
        #: The count of matches at the last update of the filter.
        self._listening = -1

    def join(self) -> Locator | None:
        """The group, joined with the first reader, since writers do not need it. Raises UsageError or TransportError.

        None: readers receive only by unicast.
        """
        if self._group is None:
            self._group = group_to_join(self._config, self._sockets.interfaces)
            if self._group is not None and not self._sockets.join(self._group, self._config.receive_buffer):
                self._group = None
        return self._group

    def listen(self) -> None:
        """Take from the group only messages of participants that local readers are matched with.

        Where the sender of a message is not verified (``trust``), relays may pass on messages of other participants.
        """
        if self._group is None or self._config.trust is Trust.ANY:
            return
        if (routes := self._participant.endpoints.routes_changed) != self._listening:
            self._listening = routes
            self._sockets.listen_to(self._participant.endpoints.received_prefixes)
