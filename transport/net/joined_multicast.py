"""The multicast group of a node's readers, and whose messages to it are taken."""

from __future__ import annotations

from ..protocol.participant.participant import RtpsParticipant
from ..protocol.trust import Trust
from ..structure import Locator
from .multicast_addresses import group_to_join
from .node_config import NodeConfig
from .sockets import Sockets


class JoinedGroup:
    """One for all readers of a node; all calls under the node's lock."""

    def __init__(self, config: NodeConfig, sockets: Sockets, participant: RtpsParticipant) -> None:
        self._config = config
        self._sockets = sockets
        self._participant = participant
        self._group: Locator | None = None
        #: How often readers had been matched when it was last decided whose messages to the group are taken.
        self._listening = -1

    def join(self) -> Locator | None:
        """The group, joined with the first reader, for writers have no use for it. Raises UsageError or TransportError.

        None: readers receive by unicast alone.
        """
        if self._group is None:
            self._group = group_to_join(self._config, self._sockets.interfaces)
            if self._group is not None and not self._sockets.join(self._group, self._config.receive_buffer):
                self._group = None
        return self._group

    def listen(self) -> None:
        """Of what is sent to the group, take what participants send that readers of ours are matched with.

        Where messages need not come from whom they name (``trust``), relays may pass on those of others.
        """
        if self._group is None or self._config.trust is Trust.ANY:
            return
        if (routes := self._participant.endpoints.routes_changed) != self._listening:
            self._listening = routes
            self._sockets.listen_to(self._participant.endpoints.received_prefixes)
