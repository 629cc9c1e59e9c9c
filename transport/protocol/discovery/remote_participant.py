"""A remote participant: what it announced, from where it may speak, and where it is reached.

:mod:`.spdp` decides by it, and says what a *proven* address is.
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
    """A participant's last announcement and where it came from: enough to recognise it after a restart."""

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
    addresses: frozenset[str]  # it may speak from these
    source_ip: str
    last_received: int
    announced_sn: int  # of its last announcement
    trust: Trust
    #: Somebody announces itself elsewhere under its name.
    contested: bool = False
    #: Those that it did not name, but from which it answered what was sent to an address that it named.
    translated: frozenset[str] = frozenset()
    #: Something addressed to us came from these, or it answered what was sent there.
    received_from: frozenset[str] = frozenset()
    #: Those of them that it named; with Trust.ANY, all.
    proven_from: frozenset[str] = frozenset()
    #: Where its discovery traffic goes; empty: nowhere, until an address is proven.
    unicast: tuple[Locator, ...] = ()
    #: Announcements of its that were answered.
    answered: int = 0
    #: Its next announcements are answered although it is proven, since it has been restarted.
    to_answer: int = 0
    #: What it sent before it was proven, each with its source: to be looked at again.
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
        """See :class:`~..endpoint_info.WriterInfo`. Fast DDS answers 0 alone, and what it sent at the match may have
        come before we had matched."""
        return 0 if self.data.vendor == VENDOR_FAST_DDS else 1

    @property
    def filters(self) -> bool:
        """Whether its writers evaluate the filters of readers; Cyclone DDS has none that do."""
        return self.data.vendor in (VENDOR_FAST_DDS, VENDOR_RTI)

    @property
    def mistakes_keys(self) -> bool:
        """Whether its readers take a serialized key of up to 16 bytes, encapsulation header included, for the key hash,
        whatever the real one is: seen of Fast DDS 2.9, which itself sends no keys."""
        return self.data.vendor == VENDOR_FAST_DDS

    @property
    def proven(self) -> bool:
        """Whether it has spoken to us from an address that it named; with Trust.ANY, from any."""
        return bool(self.proven_from)

    @property
    def is_matched(self) -> bool:
        """Whether our built-in endpoints may know it, because there is an address to which they may send."""
        return bool(self.unicast)

    def speak_from(self, addresses: frozenset[str], source_ip: str) -> None:
        """It speaks from these addresses from now on, and has announced itself from one of them."""
        self.addresses, self.source_ip = addresses | self.translated, source_ip
        self.received_from &= self.addresses
        self.settle()

    def prove(self, addresses: Iterable[str]) -> bool:
        """It has spoken to us from these addresses. Returns whether more of it can be reached now."""
        proven = self.proven_from
        self.received_from = self.received_from.union(addresses)
        self.settle()
        return self.proven_from != proven and self.is_matched

    def settle(self) -> None:
        """Decide where it is reached. One that moves is reached where it was until its new address is proven."""
        # Where addresses are not looked at, it names none of those that relays and translators speak from.
        proven = self.received_from if self.trust is Trust.ANY else self.received_from & self.data.addresses
        self.proven_from = proven or self.proven_from
        self.unicast = self.reachable(self.data.metatraffic_unicast) or self.unicast

    def reachable(self, locators: Iterable[Locator]) -> tuple[Locator, ...]:
        """Those of its locators, or of an endpoint's of its, that may be sent to."""
        if self.trust is Trust.ADDRESS:
            locators = (each for each in locators if each.address in self.proven_from)
        return usable_unicast(locators, self.source_ip)

    def hold(self, datagram: memoryview, source_ip: str) -> None:
        """Keep a datagram that came too early to be believed; some (Cyclone DDS) begin with samples that are addressed
        to nobody."""
        if len(self.held) < HELD_DATAGRAMS_MAX and len(datagram) <= HELD_DATAGRAM_BYTES_MAX:
            self.held.append((bytes(datagram), source_ip))

    def next_answered(self) -> Locator:
        """Where to answer its announcement: one address; as long as none is proven that it names now, each in turn."""
        metatraffic = self.data.metatraffic_unicast
        named = self.reachable(metatraffic) or usable_unicast(metatraffic, self.source_ip)
        self.answered += 1
        return named[(self.answered - 1) // 2 % len(named)]
