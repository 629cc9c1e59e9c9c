"""The interface of a node that a receiver uses, on the network or as a spy on this host."""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

from ..protocol.discovery.remote_participant import Announcement
from ..protocol.participant.endpoint_specs import ReaderSpec
from ..protocol.participant.events import Event
from ..protocol.reading.reader import StatefulReader
from ..qos import Qos
from ..structure import Guid
from ..types.model import Struct
from .node_counters import NodeCounters
from .recipients import Recipient


class NamedType(NamedTuple):
    """A writer's name for its type, and whether the type has a key."""

    type_name: str
    keyed: bool


class TypeIdentity(NamedTuple):
    """A writer's name for its type, and the hash of the type that it announces; None: it announces none."""

    type_name: str
    type_hash: str | None


class WriterDirectory(Protocol):
    """A receiver's look-ups of the writers on its domain."""

    @property
    def changes(self) -> int:
        """A number that changes whenever the known writers may have changed."""
        ...

    @property
    def announcements(self) -> list[Announcement]:
        """The last announcement of each remote participant."""
        ...

    def first_writer(self, topic: str, qos: Qos, type_name: str | None = None) -> NamedType | None:
        """The type of the first writer that a reader with this QoS might match; None: there is none so far.

        A writer of another type than ``type_name`` counts only if none has that type.
        """
        ...

    def offers(self, topic: str, qos: Qos, type_name: str | None = None) -> list[Qos]:
        """The QoS offers of the writers that are known so far to a reader in these partitions."""
        ...

    def written_topics(self) -> set[str]:
        """The topics of the writers that are known so far."""
        ...

    def qos_of(self, guid: Guid) -> Qos | None:
        """The QoS of an endpoint; None if the endpoint is unknown."""
        ...

    def type_of(self, guid: Guid) -> Struct | None:
        """The type of a writer; None if it is unknown."""
        ...

    def identity_of(self, guid: Guid) -> TypeIdentity | None:
        """The name and the hash of a writer's type; None if the writer is unknown."""
        ...


class ReceivingNode(Protocol):
    """A node that has readers (:class:`~.node.Node`, :class:`~.spy_node.SpyNode`)."""

    lock: threading.RLock

    # --- readers ---------------------------------------------------------------------------------

    def create_reader(self, spec: ReaderSpec, recipient: Recipient) -> StatefulReader:
        """A reader, which delivers to ``recipient`` from now on. Raises UsageError or PluginError."""
        ...

    def delete_endpoint(self, guid: Guid) -> None:
        """Remove a reader, and release its recipient."""
        ...

    def withdraw_reader(self, entity_key: int, *, keyed: bool) -> None:
        """Withdraw a reader that an earlier node of this GUID had and this one has not, so that no writer waits for
        it."""
        ...

    def offer_room(self, reader: StatefulReader) -> None:
        """The recipient of a reader has space again: set the reader's window, and deliver the runs that it held."""
        ...

    # --- what happened ---------------------------------------------------------------------------

    @property
    def directory(self) -> WriterDirectory:
        """The known writers."""
        ...

    @property
    def counters(self) -> NodeCounters:
        """The counters of all readers together."""
        ...

    def events(self) -> list[Event]:
        """Events since the last call, oldest first."""
        ...

    # --- the duty cycle --------------------------------------------------------------------------

    def cycle(self, timeout: float) -> None:
        """Run one duty cycle, which waits up to ``timeout`` seconds for something to do."""
        ...

    def wake(self) -> None:
        """Make a waiting duty cycle check again."""
        ...

    def close(self) -> None:
        """Leave the domain."""
        ...

    def abandon(self) -> None:
        """Leave without disposing the participant: a successor with the same GUID continues."""
        ...
