"""A remote participant: its announcement, the addresses that it may send from, and those where it is reached.

:mod:`.spdp` works with it, and defines what a *proven* address is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ...limits import HELD_DATAGRAM_BYTES_MAX, HELD_DATAGRAMS_MAX
from ...structure import ENTITYID_SPDP_WRITER, VENDOR_FAST_DDS, VENDOR_RTI, Guid, Locator
from ...wire.samples import Run
from ..trust import Trust
from .matching import usable_unicast
from .participant_data import ParticipantData


class Announcement(NamedTuple):
    """A participant's last announcement and its source address: enough to recognise it after a restart."""

    prefix: bytes
    sn: int
    payload: bytes
    source_ip: str
    proven_from: tuple[str, ...] = ()

    def to_run(self) -> Run:
        data = np.frombuffer(self.payload, np.uint8)
        size = len(data)
        return Run(Guid(self.prefix, ENTITYID_SPDP_WRITER), self.sn, 1, data, size, payload_length=size)


@dataclass(slots=True, eq=False)
class RemoteParticipant:
    """A participant that has announced itself. The message receiver keeps ``last_received`` current."""

    data: ParticipantData
    payload: bytes  # its last announcement: an equal one changes nothing
    addresses: frozenset[str]  # it may send from these
    source_ip: str
    last_received: int
    announced_sn: int  # of its last announcement
    trust: Trust
    #: A participant at another address announces itself with the same GUID prefix.
    contested: bool = False
    #: Addresses that it does not announce, but from which it answered a message to an address that it announces.
    translated: frozenset[str] = frozenset()
    #: Addresses from which it sent a message addressed to us, or at which it answered a challenge.
    received_from: frozenset[str] = frozenset()
    #: The ones of them that it announces; with Trust.ANY, all of them.
    proven_from: frozenset[str] = frozenset()
    #: Where its discovery traffic is sent; empty until an address is proven.
    unicast: tuple[Locator, ...] = ()
    #: Number of its announcements that were answered.
    answered: int = 0
    #: Number of its next announcements to answer although it is proven, because it was restarted.
    to_answer: int = 0
    #: Datagrams that it sent before it was proven, each with its source, to be processed later.
    held: list[tuple[bytes, str]] = field(default_factory=list)

    @property
    def prefix(self) -> bytes:
        return self.data.guid_prefix

    @property
    def announcement(self) -> Announcement:
        proven = tuple(sorted(self.proven_from))
        return Announcement(self.prefix, self.announced_sn, self.payload, self.source_ip, proven)

    @property
    def preemptive_base(self) -> int:
        """See :class:`~..endpoint_info.WriterInfo`. Fast DDS answers only base 0, and the HEARTBEAT that it sent at the
        match may have come before our match."""
        return 0 if self.data.vendor == VENDOR_FAST_DDS else 1

    @property
    def filters(self) -> bool:
        """Whether its writers evaluate the content filters of readers; those of Cyclone DDS do not."""
        return self.data.vendor in (VENDOR_FAST_DDS, VENDOR_RTI)

    @property
    def mistakes_keys(self) -> bool:
        """Whether its readers mistake a serialized key of up to 16 bytes, encapsulation header included, for the key
        hash, even if the real hash is sent: seen with Fast DDS 2.9, which itself sends no keys."""
        return self.data.vendor == VENDOR_FAST_DDS

    @property
    def proven(self) -> bool:
        """Whether it has addressed us from an address that it announces; with Trust.ANY, from any address."""
        return bool(self.proven_from)

    @property
    def is_matched(self) -> bool:
        """Whether our built-in endpoints are matched with it: there is an address to which they may send."""
        return bool(self.unicast)

    def speak_from(self, addresses: frozenset[str], source_ip: str) -> None:
        """Set the addresses that it sends from; its announcement came from ``source_ip``, one of them."""
        self.addresses, self.source_ip = addresses | self.translated, source_ip
        self.received_from &= self.addresses
        self.settle()

    def prove(self, addresses: Iterable[str]) -> bool:
        """Note that it has addressed us from these addresses. Returns whether more addresses reach it now."""
        proven = self.proven_from
        self.received_from = self.received_from.union(addresses)
        self.settle()
        return self.proven_from != proven and self.is_matched

    def settle(self) -> None:
        """Decide where it is reached. After a move this is the old address until the new one is proven."""
        # With Trust.ANY, relays and NAT send from addresses that it does not announce.
        proven = self.received_from if self.trust is Trust.ANY else self.received_from & self.data.addresses
        self.proven_from = proven or self.proven_from
        self.unicast = self.reachable(self.data.metatraffic_unicast) or self.unicast

    def reachable(self, locators: Iterable[Locator]) -> tuple[Locator, ...]:
        """The locators, of this participant or of one of its endpoints, to which we may send."""
        if self.trust is Trust.ADDRESS:
            locators = (each for each in locators if each.address in self.proven_from)
        return usable_unicast(locators, self.source_ip)

    def hold(self, datagram: memoryview, source_ip: str) -> None:
        """Keep a datagram that came before its sender was proven; some participants (Cyclone DDS) begin with samples
        that are not addressed to us."""
        if len(self.held) < HELD_DATAGRAMS_MAX and len(datagram) <= HELD_DATAGRAM_BYTES_MAX:
            self.held.append((bytes(datagram), source_ip))

    def next_answered(self) -> Locator:
        """The one address for the answer to its announcement; until an announced address is proven, each in turn."""
        metatraffic = self.data.metatraffic_unicast
        named = self.reachable(metatraffic) or usable_unicast(metatraffic, self.source_ip)
        self.answered += 1
        return named[(self.answered - 1) // 2 % len(named)]
