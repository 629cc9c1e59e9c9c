"""What an attacker knows, and how it introduces itself."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.hostile import messages as m
from tests.hostile.messages import Address


@dataclass(frozen=True)
class Host:
    """An honest participant with a writer and a reader, as anybody reads it from multicast."""

    prefix: bytes
    metatraffic: Address
    user: Address
    writer: bytes  # entity ids
    reader: bytes
    writes: str  # topics
    reads: str
    type_name: str = "T"

    @property
    def writer_guid(self) -> bytes:
        return self.prefix + self.writer

    @property
    def reader_guid(self) -> bytes:
        return self.prefix + self.reader


class Datagram(NamedTuple):
    payload: bytes
    #: Whether it goes to the port for user data, where the product once looked at nobody's address.
    user: bool = True


#: The sequence number that the table speaks of.
FAR = 10**12
_FAR = (FAR, 1 << 20, 1 << 31, (1 << 32) + 7, 1 << 53, (1 << 62) + 1)
WRITER, READER = b"\0\0\x66\3", b"\0\0\x66\4"


@dataclass
class Attacker:
    """One participant that means ill: its own prefix and address, and a third party it would like to harm."""

    prefix: bytes
    here: Address
    victim: Address = ("10.0.9.1", 53)
    random: random.Random = field(default_factory=lambda: random.Random(0))
    #: About how many samples honest writers have written: anybody can count.
    written: int = 10
    _count: int = 0
    _made: int = 0
    _sedp: Counter[tuple[bytes, bytes]] = field(default_factory=Counter)

    def count(self) -> int:
        """One that has not been used."""
        self._count += 1
        return self._count

    def fresh_prefix(self) -> bytes:
        """Of a participant that nobody has heard of."""
        self._made += 1
        return self.prefix[:8] + self._made.to_bytes(4, "big")

    def far(self) -> int:
        """A sequence number that no honest writer has reached."""
        return self.random.choice(_FAR)

    def near(self) -> int:
        """One that an honest writer may reach soon, or had lately."""
        return max(1, self.written + self.random.randint(-20, 400))

    # --- what an ordinary participant says ------------------------------------------------------------

    def output(self, *submessages: bytes) -> bytes:
        return m.message(self.prefix, *submessages)

    def to(self, on: Host, *submessages: bytes, prefix: bytes | None = None) -> bytes:
        return m.message(prefix or self.prefix, m.info_destination(on.prefix), *submessages)

    def announcement(
        self,
        prefix: bytes | None = None,
        *,
        at: Sequence[Address] | None = None,
        default: Sequence[Address] | None = None,
        sn: int | None = None,
        lease: tuple[int, int] = (100, 0),
        multicast: Iterable[Address] = (),
        padding: int = 0,
    ) -> Datagram:
        """An SPDP announcement, by default of itself at its own address."""
        at = (self.here,) if at is None else at
        payload = m.announced_participant(
            prefix or self.prefix,
            at,
            at if default is None else default,
            multicast=multicast,
            lease=lease,
            more=[(0x8B00, bytes(padding))] if padding else (),
        )
        sample = m.data(m.SPDP_WRITER, sn or self.count(), payload)
        return Datagram(m.message(prefix or self.prefix, sample), user=False)

    def introduction(self, on: Host, prefix: bytes | None = None) -> list[Datagram]:
        """It announces itself, and addresses the other from where it says it is: that proves its address."""
        return [self.announcement(prefix), Datagram(self.to(on, prefix=prefix), user=False)]

    def endpoint(
        self,
        on: Host,
        entity: bytes,
        topic: str,
        *,
        prefix: bytes | None = None,
        sn: int | None = None,
        type_name: str = "T",
        reliable: bool = True,
        unicast: Iterable[Address] = (),
        multicast: Iterable[Address] = (),
        more: Iterable[tuple[int, bytes]] = (),
    ) -> Datagram:
        """SEDP of a writer or reader."""
        prefix = prefix or self.prefix
        writes = entity[3] in (2, 3)
        builtin = m.PUBLICATIONS_WRITER if writes else m.SUBSCRIPTIONS_WRITER
        payload = m.announced_endpoint(
            prefix + entity,
            topic,
            type_name,
            reliable=reliable,
            unicast=unicast,
            multicast=multicast,
            more=more,
        )
        return self.sedp(on, builtin, payload, prefix=prefix, sn=sn)

    def sedp(
        self,
        on: Host,
        builtin: bytes,
        payload: bytes | None,
        *,
        prefix: bytes | None = None,
        sn: int | None = None,
        inline_qos: Iterable[tuple[int, bytes]] = (),
    ) -> Datagram:
        prefix = prefix or self.prefix
        if sn is None:
            self._sedp[prefix, builtin + on.prefix] += 1
            sn = self._sedp[prefix, builtin + on.prefix]
        inline_qos = tuple(inline_qos)
        sample = m.data(builtin, sn, payload, inline_qos=inline_qos, key=bool(inline_qos))
        beat = m.heartbeat(builtin, sn, sn, self.count())
        return Datagram(self.to(on, sample, beat, prefix=prefix), user=False)

    def matches(
        self, on: Host, *, reliable_reader: bool = False, more: Iterable[tuple[int, bytes]] = ()
    ) -> list[Datagram]:
        """It becomes a matched peer: a reliable writer on what the other reads, a reader of what it writes."""
        return [
            *self.introduction(on),
            self.endpoint(on, WRITER, on.reads, type_name=on.type_name, more=more),
            self.endpoint(on, READER, on.writes, type_name=on.type_name, reliable=reliable_reader),
        ]
