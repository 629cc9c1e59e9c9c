"""The configuration of a participant, and the remote endpoints that it lists."""

from __future__ import annotations

from dataclasses import dataclass

from ...limits import MESSAGE_SIZE_MAX, UDP_PAYLOAD_MAX
from ...qos import Qos
from ...structure import NANOSECONDS, Guid, Locator
from ...types.xtypes.information import TypeInformation
from ...value_classes import value
from ..discovery.endpoint_data import EndpointData
from ..discovery.participant_data import ParticipantData
from ..trust import Trust


@value
class ParticipantConfig:
    """The identity of a participant and its addresses. Durations are nanoseconds.

    Announcements go to ``peers`` by unicast; ``announce_multicast`` says whether to send them by multicast, too.
    """

    guid_prefix: bytes
    domain: int = 0
    name: str = ""
    metatraffic_unicast: tuple[Locator, ...] = ()
    metatraffic_multicast: tuple[Locator, ...] = ()
    default_unicast: tuple[Locator, ...] = ()
    default_multicast: tuple[Locator, ...] = ()
    peers: tuple[Locator, ...] = ()
    #: IPv4 networks of the participants whose messages are accepted; empty: all.
    peers_allowed: tuple[str, ...] = ()
    announce_multicast: bool = True
    #: Our address on each interface through which samples may be sent to groups, and the network there; empty: not
    #: known, and groups are sent to as if all readers were on one network.
    multicast_networks: tuple[tuple[str, str], ...] = ()
    #: Above 1, multicast reaches readers on other networks, too.
    multicast_ttl: int = 1
    lease_duration: int = 10 * NANOSECONDS
    #: Keep silent participants beyond their lease: in a capture with a pause or a clock change, participants do not
    #: repeat their announcements.
    keep_silent: bool = False
    #: Number of earlier participants with this GUID.
    incarnation: int = 0
    #: A received RTPS message that is longer is dropped; our writers send messages up to ``message_size``.
    message_size_max: int = UDP_PAYLOAD_MAX
    message_size: int = MESSAGE_SIZE_MAX
    #: Size of the kernel's receive buffer for our readers; 0: unknown.
    receive_buffer: int = 0
    properties: tuple[tuple[str, str], ...] = ()
    user_data: bytes = b""
    #: Request the types of all endpoints, not only of those on our topics.
    resolve_types: bool = False
    #: What makes a message trusted.
    trust: Trust = Trust.ADDRESS

    @property
    def addresses(self) -> frozenset[str]:
        """The addresses that we send from, and receive at."""
        named = (*self.metatraffic_unicast, *self.default_unicast)
        return frozenset(locator.address for locator in named)


@dataclass(frozen=True, slots=True)
class RemoteEndpoint:
    """A remote reader or writer, for listing."""

    guid: Guid
    kind: str  # "reader" or "writer"
    topic: str
    type_name: str
    qos: Qos
    participant_name: str
    vendor: bytes
    type_information: TypeInformation | None = None


def listed(data: EndpointData, participant: ParticipantData) -> RemoteEndpoint:
    return RemoteEndpoint(
        data.guid,
        "writer" if data.is_writer else "reader",
        data.topic,
        data.type_name,
        data.qos,
        participant.name,
        participant.vendor,
        data.type_information,
    )
