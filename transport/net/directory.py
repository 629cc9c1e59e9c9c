"""What a node knows of the endpoints on its domain: look-ups, which change nothing."""

from __future__ import annotations

from collections.abc import Mapping

from ..partitions import partitions_match
from ..protocol.discovery.remote_participant import Announcement
from ..protocol.participant.participant import RemoteEndpoint, RtpsParticipant
from ..qos import Qos, incompatibilities, requested_by_reader
from ..structure import Guid, is_keyed
from ..types.model import Struct
from ..types.ros_hash import hash_in
from ..types.xtypes.type_identifiers import EK_COMPLETE, EK_MINIMAL
from .matched_readers import LockOwner
from .receiving_node import NamedType, TypeIdentity


class Directory:
    """The look-ups of one node; each takes the node's lock where it needs it."""

    def __init__(self, node: LockOwner, participant: RtpsParticipant, domain: int) -> None:
        self.node = node
        self.participant = participant
        #: The id of the DDS domain.
        self.domain = domain

    @property
    def changes(self) -> int:
        """How often the known endpoints and participants, types included, have changed."""
        return self.participant.changes

    @property
    def announcements(self) -> list[Announcement]:
        """The last announcement of each remote participant."""
        return self.participant.discovery.announcements()

    def first_writer(self, topic: str, qos: Qos, type_name: str | None = None) -> NamedType | None:
        """The type of the first writer that a reader with this QoS might match; None: there is none so far.

        This participant's own writers count as any other. Writers in other partitions than the reader's are ignored;
        writers of another type than ``type_name``, or with other QoS than requested, count only if there is none
        better.
        """
        with self.node.lock:
            known = self.participant.database
            endpoints = known.endpoints_on(topic) + known.own_endpoints_on(topic)
        requested = requested_by_reader(qos)

        def unlikely(writer: RemoteEndpoint) -> tuple[bool, bool]:
            is_other = type_name is not None and writer.type_name != type_name
            return is_other, bool(incompatibilities(writer.qos, requested))

        writer = min(_writers_in(endpoints, qos), key=unlikely, default=None)
        return None if writer is None else NamedType(writer.type_name, is_keyed(writer.guid.entity))

    def offers(self, topic: str, qos: Qos, type_name: str | None = None) -> list[Qos]:
        """The QoS offers of the topic's remote writers in the partitions of ``qos``, of this type if it is given."""
        with self.node.lock:
            endpoints = self.participant.database.endpoints_on(topic)
        return [each.qos for each in _writers_in(endpoints, qos) if type_name in (None, each.type_name)]

    def written_topics(self) -> set[str]:
        """The topics of the remote writers that are known so far."""
        with self.node.lock:
            return {each.topic for each in self.participant.database.endpoints if each.kind == "writer"}

    def qos_of(self, guid: Guid) -> Qos | None:
        """The QoS of an endpoint, remote or local; None if the endpoint is unknown."""
        return self.participant.database.qos_of(guid)

    def type_of(self, guid: Guid) -> Struct | None:
        """The type of a remote endpoint; None while it is unknown."""
        return self.participant.database.type_of(guid)

    def identity_of(self, guid: Guid) -> TypeIdentity | None:
        """A remote writer's name for its type, and the hash of the type that the writer announces."""
        with self.node.lock:
            endpoint = self.participant.database.endpoint(guid)
        return None if endpoint is None else TypeIdentity(endpoint.type_name, type_hash(endpoint))

    def incompatible(self, guid: Guid) -> Mapping[Guid, tuple[str, ...]]:
        """The endpoints on the topic of a local endpoint that do not match it, with the reasons."""
        with self.node.lock:
            return self.participant.endpoints.incompatible(guid)


def type_hash(endpoint: RemoteEndpoint) -> str | None:
    """The hash of its type that an endpoint announces: ROS 2's (``RIHS01_...``, REP 2016) in its USER_DATA, else the
    EquivalenceHash of XTypes (XTypes 1.3 §7.3.4.2) in hexadecimal; None: it announces none."""
    if (ros := hash_in(endpoint.qos.user_data)) is not None:
        return ros
    announced = endpoint.type_information
    for form in () if announced is None else (announced.complete, announced.minimal):
        if form is not None and form.type.id[0] in (EK_COMPLETE, EK_MINIMAL):
            return form.type.id[1:].hex()
    return None


def _writers_in(endpoints: list[RemoteEndpoint], qos: Qos) -> list[RemoteEndpoint]:
    """The writers among ``endpoints`` that are in the partitions of ``qos``."""
    return [
        each
        for each in endpoints
        if each.kind == "writer" and partitions_match(each.qos.partition, qos.partition)
    ]
