"""Participants on a simulated network: virtual time, and seeded loss, repetition and reordering."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from spark_rtps.transport.protocol.participant.events import Event
from spark_rtps.transport.protocol.participant.participant import ParticipantConfig, RtpsParticipant
from spark_rtps.transport.structure import Locator, spdp_multicast_port

MILLISECOND = 1_000_000
SECOND = 1_000 * MILLISECOND


class VirtualNetwork:
    """Hosts 10.0.0.n with one participant each. A datagram takes 0.1 ms, and up to ``jitter`` ns more.

    ``loss`` and ``duplicates`` are probabilities for each datagram and receiver. With ``bursts``, what is under way to
    a host at a time arrives as one burst of its sockets; everything arrives at a multiple of ``tick`` ns.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        loss: float = 0.0,
        duplicates: float = 0.0,
        jitter: int = 0,
        multicast: bool = True,
        bursts: bool = False,
        tick: int = 1,
    ) -> None:
        self.now = 5 * SECOND
        self.tick = tick
        self.bursts = bursts
        self.loss, self.duplicates, self.jitter, self.multicast = loss, duplicates, jitter, multicast
        self.sent = 0
        self.sent_bytes: Counter[tuple[str, int]] = Counter()
        self.events: dict[bytes, list[Event]] = {}
        self.log: list[tuple[str, Locator, bytes]] | None = None
        self._random = random.Random(seed)
        self._hosts: dict[str, RtpsParticipant] = {}
        #: Addresses that some participants speak from, instead of the one they have, by GUID prefix.
        self.sources: dict[bytes, str] = {}
        #: Pairs of a source and a destination between which nothing gets through.
        self.blocked: set[tuple[str, str]] = set()
        self._in_flight: list[tuple[int, int, str, str, bytes]] = []
        #: By multicast group: the addresses of those that have joined; all have joined that of discovery.
        self._members: dict[tuple[str, int], list[str]] = {}
        #: Which datagrams, by their numbers, were sent to the group of discovery.
        self._announced: set[int] = set()

    def join(self, participant: RtpsParticipant, group: Locator) -> None:
        """A participant receives what is sent to a multicast group."""
        self._members.setdefault((group.address, group.port), []).append(self.address_of(participant))

    def leave(self, participant: RtpsParticipant, group: Locator) -> None:
        """It receives that no more, whatever it announces."""
        self._members[group.address, group.port].remove(self.address_of(participant))

    def add(self, **config: Any) -> RtpsParticipant:
        """Add a host, and return its participant."""
        number = len(self.events) + 1
        address = f"10.0.0.{number}"
        here = (Locator(address, 7410),)
        defaults: dict[str, Any] = {
            "guid_prefix": bytes((number,)) * 12,
            "name": f"p{number}",
            "metatraffic_unicast": here,
            "default_unicast": here,
            "announce_multicast": self.multicast,
        }
        participant = RtpsParticipant(ParticipantConfig(**(defaults | config)), now=self.now)
        self._hosts[address] = participant
        self.events[participant.prefix] = []
        return participant

    def address_of(self, participant: RtpsParticipant) -> str:
        return next(address for address, each in self._hosts.items() if each is participant)

    def also_at(self, participant: RtpsParticipant, address: str) -> None:
        """Give a participant another address, at which it receives."""
        self._hosts[address] = participant

    def unplug(self, participant: RtpsParticipant) -> None:
        """Take a participant off the network; it announces nothing."""
        del self._hosts[self.address_of(participant)]

    def deliver(self, participant: RtpsParticipant, datagram: bytes, source: str = "10.0.0.99") -> None:
        """Give a participant a datagram now."""
        self.deliver_burst(participant, [(datagram, source)])

    def deliver_burst(self, participant: RtpsParticipant, datagrams: Iterable[tuple[bytes, str]]) -> None:
        """Give a participant datagrams with their sources at once, in one buffer."""
        buffer, spans = bytearray(), []
        for datagram, source in datagrams:
            spans.append((len(buffer), len(buffer) + len(datagram), source))
            buffer += datagram + bytes(-len(datagram) % 8)
        participant.receive(np.frombuffer(buffer, np.uint8), spans, now=self.now)

    def inject(self, destination: str, datagram: bytes, source: str) -> None:
        """Send a datagram from an address where no host of this network is; it is never lost."""
        self.sent += 1
        item = (self.now + MILLISECOND // 10, self.sent, source, destination, datagram)
        heapq.heappush(self._in_flight, item)

    def run(self, duration: int, until: Callable[[], bool] | None = None) -> bool:
        """Let ``duration`` ns pass, or less if ``until`` becomes true. Returns whether it did, and True without one."""
        end = self.now + duration
        while True:
            self._collect()
            if until is not None and until():
                return True
            timers = [timer for host in self._hosts.values() if (timer := host.get_timer()) is not None]
            upcoming = min([*timers, *(self._in_flight[0][:1] if self._in_flight else ())], default=end)
            if upcoming >= end:
                self.now = end
                return until is None
            self.now = max(self.now, upcoming)
            for destination, datagrams in self._arriving():
                if destination in self._hosts:
                    self.deliver_burst(self._hosts[destination], datagrams)
            for host in list(self._hosts.values()):
                timer = host.get_timer()
                if timer is not None and timer <= self.now:
                    host.handle_timer(self.now)

    def _arriving(self) -> Iterator[tuple[str, list[tuple[bytes, str]]]]:
        """What arrives now, by destination: one datagram at a time, or what makes a burst."""
        bursts: dict[str, list[tuple[bytes, str]]] = {}
        while self._in_flight and self._in_flight[0][0] <= self.now:
            _, number, source, destination, datagram = heapq.heappop(self._in_flight)
            if number in self._announced and destination in self._hosts:
                self._hosts[destination].discovery.received_by_multicast({source}, now=self.now)
            if self.bursts:
                bursts.setdefault(destination, []).append((datagram, source))
            else:
                yield destination, [(datagram, source)]
        yield from bursts.items()

    def _collect(self) -> None:
        for address, host in list(self._hosts.items()):
            for datagram in host.datagrams_to_send(self.now):
                for destination in datagram.destinations:
                    for message in datagram.messages():
                        source = self.sources.get(host.prefix, address)
                        self._send(source, destination, message, host.config.domain)
            while (event := host.next_event()) is not None:
                self.events[host.prefix].append(event)

    def _send(self, source: str, destination: Locator, datagram: bytes, domain: int) -> None:
        self.sent += 1
        to = (destination.address, destination.port)
        self.sent_bytes[to] += len(datagram)
        if self.log is not None:
            self.log.append((source, destination, datagram))
        if destination.is_multicast:
            targets = self._members.get(to, [])
            if destination.port == spdp_multicast_port(domain):
                self._announced.add(self.sent)
                targets = [a for a, each in self._hosts.items() if each.config.domain == domain]
        else:
            targets = [destination.address]
        for target in targets:
            if (source, target) in self.blocked:
                continue
            copies = 1 + (self._random.random() < self.duplicates)
            for _ in range(copies):
                if self._random.random() >= self.loss:
                    delay = MILLISECOND // 10 + self._random.randint(0, self.jitter)
                    at = -(-(self.now + delay) // self.tick) * self.tick
                    item = (at, self.sent, source, target, datagram)
                    heapq.heappush(self._in_flight, item)
