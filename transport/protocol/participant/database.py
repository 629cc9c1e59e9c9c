"""The discovery database of a participant: its participants and endpoints, remote and ours."""

from __future__ import annotations

from collections.abc import Mapping

from ...qos import Qos
from ...structure import Guid
from ...types.model import Struct
from ..discovery.endpoint_data import EndpointData
from ..discovery.participant_data import ParticipantData
from ..discovery.type_library import KnownType
from .config import RemoteEndpoint, listed
from .discovery import ParticipantDiscovery


class DiscoveryDatabase:
    """Read-only look-ups."""

    def __init__(self, discovery: ParticipantDiscovery) -> None:
        self._discovery = discovery
        self._remotes = discovery.spdp.remotes
        self._endpoints = discovery.sedp.remote
        self._ours = discovery.endpoints

    @property
    def participants(self) -> Mapping[bytes, ParticipantData]:
        """The remote participants, by GUID prefix."""
        return {prefix: remote.data for prefix, remote in self._remotes.items()}

    @property
    def endpoints(self) -> list[RemoteEndpoint]:
        """The readers and writers of all remote participants."""
        return [self._listed(data) for data in self._endpoints.all()]

    def endpoints_on(self, topic: str) -> list[RemoteEndpoint]:
        """The readers and writers of all remote participants on a topic."""
        return [self._listed(data) for data in self._endpoints.on_topic(topic)]

    def own_endpoints_on(self, topic: str) -> list[RemoteEndpoint]:
        """Our own readers and writers on a topic, as we announce them."""
        own = self._discovery.own
        return [listed(data, own) for data in self._ours.data() if data.topic == topic]

    def endpoint(self, guid: Guid) -> RemoteEndpoint | None:
        """A remote reader or writer; None if it is unknown."""
        data = self._endpoints.get(guid)
        return None if data is None else self._listed(data)

    def type_of(self, guid: Guid) -> Struct | None:
        """The type of an endpoint, remote or ours; None while it is unknown."""
        if (own := self._ours.own(guid)) is not None:
            information = own.type_information
            library = self._discovery.type_library
            return None if information is None else library.own_type(information, complete=True)
        known = self._discovery.lookup.known(guid)
        return known.struct if isinstance(known, KnownType) else None

    def type_failure(self, guid: Guid) -> str | None:
        """Why the type of a remote endpoint cannot become known; None if it is known, or may become known."""
        known = self._discovery.lookup.known(guid)
        return known if isinstance(known, str) else None

    def qos_of(self, guid: Guid) -> Qos | None:
        """The QoS of an endpoint, remote or ours; None if it is unknown."""
        data = self._endpoints.get(guid) or self._ours.own(guid)
        return None if data is None else data.qos

    def _listed(self, data: EndpointData) -> RemoteEndpoint:
        """An endpoint with the name of its participant."""
        return listed(data, self._remotes[data.guid.prefix].data)
