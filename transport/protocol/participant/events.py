"""The events that a participant reports to its owner, fetched one by one with ``next_event()``."""

from __future__ import annotations

from ...qos import QosPolicyId, policies_of
from ...structure import Guid, Locator
from ...value_classes import value
from ..discovery.endpoint_data import EndpointData
from ..discovery.participant_data import ParticipantData


@value
class ParticipantDiscovered:
    participant: ParticipantData


@value
class ParticipantLost:
    """A participant disposed itself, or (``expired``) was silent for longer than its lease."""

    participant: ParticipantData
    expired: bool


@value
class EndpointDiscovered:
    """A remote reader or writer is new, or changed its QoS."""

    endpoint: EndpointData


@value
class EndpointLost:
    endpoint: EndpointData


@value
class Matched:
    """A local endpoint was matched with a remote one, which is reached at these locators."""

    local: Guid
    remote: Guid
    topic: str
    unicast: tuple[Locator, ...]
    multicast: tuple[Locator, ...]


@value
class Unmatched:
    local: Guid
    remote: Guid
    topic: str


@value
class IncompatibleQos:
    """Two endpoints on one topic do not match; one sentence per reason. Reported once per remote endpoint."""

    local: Guid
    remote: Guid
    topic: str
    reasons: tuple[str, ...]

    @property
    def policy_ids(self) -> tuple[int, ...]:
        """QosPolicyId_t of each policy that is incompatible, in the order of the reasons."""
        return tuple(
            QosPolicyId[name].value for name in policies_of(self.reasons) if name in QosPolicyId.__members__
        )


@value
class LivelinessLost:
    """A matched writer, or a MANUAL one of ours, was not asserted within its LIVELINESS lease."""

    writer: Guid
    topic: str


@value
class LivelinessGained:
    """A writer whose liveliness was lost is alive again."""

    writer: Guid
    topic: str


@value
class MessageTooLarge:
    """A message of ``size`` bytes was dropped; ``sender``: addresses and GUID prefix, as text."""

    sender: str
    size: int


@value
class TypeNotKnown:
    """The type of an endpoint of ours has int8 or uint8 members, and a remote participant crashes when it requests such
    a type. Reported once for each endpoint of ours; ``product_version`` is "" if the participant does not announce
    it."""

    local: Guid
    remote: Guid
    topic: str
    product_version: str


Event = (
    ParticipantDiscovered
    | ParticipantLost
    | EndpointDiscovered
    | EndpointLost
    | Matched
    | Unmatched
    | IncompatibleQos
    | LivelinessLost
    | LivelinessGained
    | MessageTooLarge
    | TypeNotKnown
)
