"""What the writers of a subscription announced, kept for when they have left."""

from __future__ import annotations

from ..transport.limits import TYPED_WRITERS_MAX
from ..transport.net.node import Node
from ..transport.structure import INFINITE, Guid
from ..transport.types.model import Struct


class AnnouncedWriters:
    """The types and the lifespans of the writers that have written."""

    def __init__(self, node: Node) -> None:
        self._node = node
        #: Whether the reader awaits types, so that they are kept.
        self.keeps_types = False
        self.types: dict[Guid, Struct | None] = {}
        #: The lifespans in ns of the writers whose samples expire.
        self.lifespans: dict[Guid, int] = {}

    def record_writer(self, writer: Guid) -> None:
        """Record that the writer has written; called in the node's thread, under its lock."""
        participant = self._node.participant
        if self.keeps_types and writer not in self.types and len(self.types) < TYPED_WRITERS_MAX:
            self.types[writer] = participant.database.type_of(writer)
        qos = participant.database.qos_of(writer)
        if qos is not None and qos.lifespan < INFINITE and len(self.lifespans) < TYPED_WRITERS_MAX:
            self.lifespans[writer] = qos.lifespan

    def type_of(self, writer: Guid) -> Struct | None:
        """The type that a writer announced, if the reader awaits types; None: it announced none."""
        if writer in self.types:
            return self.types[writer]
        return self._node.participant.database.type_of(writer)
