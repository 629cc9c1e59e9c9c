"""Which multicast groups a writer may use for the readers of other participants.

Any host can join a group, and an announced group proves nothing: a network may carry no multicast at all, and an
unmatched participant may announce a group that others use. A reader counts as reached by a group that it announces only
if

* its participant has proven an address (:mod:`.discovery.spdp`);
* that address lies on a network of ours with multicast, or ``multicast_ttl`` is more than 1;
* an announcement came from that address by multicast, so that samples get through as well;
* the group is not in 224.0.0.0/24, which routers listen to, and is no discovery group of any domain;
* the reader acknowledges samples, or the group is the domain's default group, to which only participants that want
  samples listen, or the user named the group among the networks that a writer serves.

:mod:`.writing.readers.groups` decides which of these groups a writer uses.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from ...limits import ADDRESSES_REMEMBERED_MAX
from ...structure import Locator, default_group, is_for_routers, is_of_discovery
from ..discovery.remote_participant import RemoteParticipant
from ..trust import Trust
from .config import ParticipantConfig


class MulticastReach:
    """The networks on which a participant can use multicast, and the addresses received from by multicast."""

    def __init__(self, config: ParticipantConfig) -> None:
        self._is_on = config.announce_multicast
        self._default = default_group(config.domain)
        self._networks = [(own, ipaddress.IPv4Network(text)) for own, text in config.multicast_networks]
        self._routed = config.multicast_ttl > 1
        self._trust = config.trust
        self._received: set[str] = set()

    def received(self, addresses: Iterable[str]) -> set[str]:
        """Note that announcements came from these addresses by multicast; returns the new addresses."""
        news = {each for each in addresses if each not in self._received}
        if news:
            if len(self._received) + len(news) > ADDRESSES_REMEMBERED_MAX:
                self._received.clear()
            self._received |= news
        return news

    def groups(self, remote: RemoteParticipant, named: tuple[Locator, ...]) -> tuple[Locator, ...]:
        """The named groups that reach the readers of a participant, each with the interface to send through."""
        if not named or not self._is_on:
            return ()
        known = {remote.source_ip} if self._trust is Trust.ANY else remote.proven_from
        received = sorted(known & self._received)
        interfaces = {own for address in received for own in self._interfaces_to(address)}
        groups = [each for each in named if not (is_for_routers(each) or is_of_discovery(each))]
        return tuple(group._replace(via=own) for group in groups for own in sorted(interfaces))

    def of_unacknowledging(self, groups: Iterable[Locator]) -> tuple[Locator, ...]:
        """The groups that may be used for readers that never acknowledge."""
        return tuple(group for group in groups if group._replace(via="") == self._default)

    def own_groups(self, named: Iterable[Locator]) -> tuple[Locator, ...]:
        """The groups that reach readers of our own participant, which joins them on each interface."""
        interfaces = [own for own, _ in self._networks] or [""]
        return tuple(group._replace(via=own) for group in named for own in interfaces) if self._is_on else ()

    def _interfaces_to(self, address: str) -> Iterable[str]:
        """Our addresses on the interfaces through which a group reaches this address; "" stands for all interfaces."""
        if not self._networks:
            return ("",)
        parsed = ipaddress.IPv4Address(address)
        near = [own for own, network in self._networks if parsed in network]
        return near or (("",) if self._routed else ())
