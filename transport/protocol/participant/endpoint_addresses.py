"""The addresses to which messages for an endpoint may be sent, or why there are none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ...structure import Locator
from ..discovery.endpoint_data import EndpointData
from ..discovery.matching import usable_multicast, usable_unicast
from ..discovery.participant_data import ParticipantData
from ..discovery.remote_participant import RemoteParticipant
from ..trust import Networks
from .multicast import MulticastReach

Locators: TypeAlias = tuple[Locator, ...]
NO_ADDRESS = "LOCATOR: it names no IPv4 address that can be sent to"
_UNPROVEN = "LOCATOR: its participant has not spoken from an address that it names, {}"


class EndpointAddresses:
    """The addresses of endpoints, remote and ours; ``remotes`` belongs to the participant, which changes it."""

    def __init__(
        self, own: ParticipantData, remotes: Mapping[bytes, RemoteParticipant], multicast: MulticastReach
    ) -> None:
        self._own = own
        self._remotes = remotes
        self._multicast = multicast

    def find(self, other: EndpointData) -> tuple[Locators, Locators]:
        """Its unicast and multicast locators: the endpoint's own, else those of its participant (RTPS 2.5 §8.5.5)."""
        if other.guid.prefix == self._own.guid_prefix:
            own = self._own.default_unicast
            return usable_unicast(own, ""), self._multicast.own_groups(usable_multicast(other.multicast))
        remote = self._remotes[other.guid.prefix]
        unicast, multicast = other.unicast, other.multicast
        if not unicast and not multicast:
            multicast = remote.data.default_multicast
        groups = self._multicast.groups(remote, usable_multicast(multicast))
        return remote.reachable(unicast or remote.data.default_unicast), groups

    def explain_none(self, other: EndpointData) -> tuple[str, ...]:
        """Why an endpoint has no usable address."""
        remote = self._remotes.get(other.guid.prefix)
        if remote is None:
            return (NO_ADDRESS,)
        named = usable_unicast(other.unicast or remote.data.default_unicast, remote.source_ip)
        where = ", ".join(dict.fromkeys(locator.address for locator in named))
        return (_UNPROVEN.format(where) if named else NO_ADDRESS,)

    def restrict(
        self, networks: Networks, reader: EndpointData, unicast: Locators, multicast: Locators
    ) -> tuple[Locators, Locators, tuple[str, ...]]:
        """The addresses at which a writer that serves these networks may send to a reader, or why there are none.

        The reader's participant must send from these networks, too: an announced address proves nothing.
        """
        source_ip = self._remotes[reader.guid.prefix].source_ip
        unicast, multicast = (
            tuple(each for each in locators if each.address in networks) for locators in (unicast, multicast)
        )
        if unicast and source_ip in networks:
            return unicast, multicast, ()
        where = ", ".join(networks.texts)
        return (), (), (f"ADDRESS: the writer serves {where}; the reader is at {source_ip}",)
