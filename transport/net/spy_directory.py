"""A spy's knowledge of writers: the records in the publication logs on this host."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..errors import LogError
from ..log.named_logs import NamedLog, NamedLogs
from ..log.segment import JSON
from ..partitions import partitions_match
from ..protocol.discovery.remote_participant import Announcement
from ..protocol.participant.spy_participant import SpyParticipant
from ..qos import OwnershipKind, Qos
from ..structure import INFINITE, Guid, is_keyed
from ..types.model import Struct
from .receiving_node import NamedType

_log = logging.getLogger(__name__)


class SpyDirectory:
    """A :class:`~.receiving_node.WriterDirectory` of the writers of one domain on this host."""

    def __init__(self, domain: int, participant: SpyParticipant, named_logs: NamedLogs) -> None:
        self._domain = domain
        self._participant = participant
        self._named_logs = named_logs
        #: How often the node has checked: the publication logs may have changed at each check.
        self.changes = 0
        #: A spy knows no participants.
        self.announcements: list[Announcement] = []

    def listing(self) -> list[NamedLog] | None:
        """The publication logs on this host; None: they cannot be listed now."""
        try:
            return self._named_logs.listing()
        except LogError as error:
            _log.warning("cannot list publication logs, so that the spy reads nothing: %s", error)
            return None

    def first_writer(self, topic: str, qos: Qos, type_name: str | None = None) -> NamedType | None:
        """The type's name and whether it has a key, as announced by a writer on the topic that a reader with this QoS
        can read; preferably a writer of ``type_name``."""
        other: NamedType | None = None
        for published in self.listing() or ():
            about = published.about
            writer, called = writer_of(about), about.get("type")
            if writer is None or not isinstance(called, str):
                continue
            is_there = (about.get("domain"), about.get("topic")) == (self._domain, topic)
            if is_there and partitions_match(qos_offered(about).partition, qos.partition):
                found = NamedType(called, is_keyed(writer.entity))
                if type_name in (None, called):
                    return found
                other = other or found
        return other

    def offers(self, topic: str, qos: Qos, type_name: str | None = None) -> list[Qos]:
        """A spy requests nothing."""
        return []

    def written_topics(self) -> set[str]:
        """The topics with a publication log on this host."""
        ours = (each.about for each in self.listing() or () if each.about.get("domain") == self._domain)
        return {str(about.get("topic")) for about in ours}

    def qos_of(self, guid: Guid) -> Qos | None:
        return self._participant.qos_of(guid)

    def type_of(self, guid: Guid) -> Struct | None:
        return self._participant.type_of(guid)

    def identity_of(self, guid: Guid) -> None:
        """A publication log has no type hash."""


def writer_of(about: Mapping[str, JSON]) -> Guid | None:
    """The GUID of the writer of a publication log; None: the log does not record it."""
    text = about.get("guid")
    return Guid.parse(text) if isinstance(text, str) else None


def qos_offered(about: Mapping[str, JSON]) -> Qos:
    """The offered QoS of the writer of a publication log, as far as a receiver uses it."""
    partition, lifespan = about.get("partition"), about.get("lifespan")
    strength, exclusive = about.get("ownership_strength"), about.get("ownership") == "EXCLUSIVE"
    return Qos(
        partition=tuple(map(str, partition)) if isinstance(partition, list) else (),
        lifespan=lifespan if isinstance(lifespan, int) else INFINITE,
        ownership=OwnershipKind.EXCLUSIVE if exclusive else OwnershipKind.SHARED,
        ownership_strength=strength if isinstance(strength, int) else 0,
    )
