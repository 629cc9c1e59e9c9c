"""A network in virtual time: bandwidth, delay, jitter that reorders, loss for each receiver, all by a seed.

Every host has a link of its own to one switch. What it sends waits until what it sent before has left; from
there each receiver's copy is lost, or takes the delay and a share of the jitter.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Final

import numpy as np

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.participant.packing import pack
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.receiving.message_receiver import MessageReceiver
from spark_rtps.transport.protocol.trust import Trust
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import Guid, Locator, default_group

US: Final = 1_000
MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
#: What a datagram of n bytes adds on the wire: Ethernet with preamble and gap 38, IP 20, UDP 8.
FRAMING: Final = 66
#: What readers with `multicast.receive=auto` announce, beside the address of their own.
GROUP: Final = default_group(0)


@dataclass(frozen=True, slots=True)
class Link:
    """Bits a second, ns, ns, and the probability that one receiver does not get a datagram."""

    bandwidth: int = 1_000_000_000
    delay: int = 100 * US
    #: Up to so much more, drawn for each datagram and receiver.
    jitter: int = 50 * US
    loss: float = 0.0


#: A gigabit switch.
LINK: Final = Link()


@dataclass(slots=True, eq=False)
class Host:
    """One endpoint behind one address, taken apart and put together as a participant does."""

    prefix: bytes
    locator: Locator
    endpoint: StatefulWriter | StatefulReader
    #: Called after every event.
    after: Callable[[], None] = lambda: None
    #: Called for every message that arrives.
    on_arrival: Callable[[bytes], None] | None = None
    drops: Counter[DropReason] = field(default_factory=Counter)
    routes: dict[Guid, list[StatefulReader]] = field(default_factory=dict)
    link_free: int = 0
    timer: int | None = None
    receiver: MessageReceiver = field(init=False)

    def __post_init__(self) -> None:
        endpoints: object = SimpleNamespace(
            routes=self.routes, other_slices={}, hears_itself=False, hears=lambda prefix: True
        )
        writer = self.endpoint if isinstance(self.endpoint, StatefulWriter) else None
        writers = {} if writer is None else {writer.guid.entity: writer}
        self.receiver = MessageReceiver(self.prefix, endpoints, writers, {}, self.drops, trust=Trust.ANY)

    def receive(self, message: bytes, now: int) -> None:
        data = np.frombuffer(message, np.uint8)
        self.receiver.receive(data, memoryview(message), 0, len(message), "", now=now)


class Network:
    """Hosts, the datagrams between them, and what a scenario has planned."""

    def __init__(self, link: Link, seed: int) -> None:
        self.link = link
        self.now = 1_000 * SECOND
        self.seed = seed
        self.hosts: list[Host] = []
        #: Called for every message sent: the sender, the message, how many copies leave its link.
        self.on_send: Callable[[Host, bytes, int], None] = lambda host, message, copies: None
        self._random = random.Random(seed)
        self._order = itertools.count()
        self._events: list[tuple[int, int, Host | None, bytes | Callable[[], None] | None]] = []
        self._in_flight = 0
        self._at: dict[Locator, Host] = {}
        self._members: list[Host] = []

    # --- who is there ----------------------------------------------------------------------------

    def next_prefix(self) -> bytes:
        """The GUID prefix of the next host; no two seeds have the same."""
        return bytes((1, 0x7E)) + self.seed.to_bytes(4, "big") + len(self.hosts).to_bytes(6, "big")

    def add(self, endpoint: StatefulWriter | StatefulReader) -> Host:
        number = len(self.hosts) + 1
        host = Host(endpoint.guid.prefix, Locator(f"10.0.0.{number}", 7411), endpoint)
        self.hosts.append(host)
        self._at[host.locator] = host
        return host

    def join(self, host: Host) -> None:
        """It receives what is sent to the multicast group."""
        self._members.append(host)

    # --- time ------------------------------------------------------------------------------------

    def at(self, time: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), None, action))

    def wake(self, host: Host) -> None:
        """Something was done to a host's endpoint: see what it wants to send, and when it wants to be called."""
        host.after()
        while datagrams := pack(host.prefix, host.endpoint.outgoing()):
            for datagram in datagrams:
                for message in datagram.messages():
                    self._send(host, message, datagram.destinations)
            host.after()
        timer = host.endpoint.get_timer()
        if timer != host.timer:
            host.timer = timer
            if timer is not None:
                heapq.heappush(self._events, (max(timer, self.now), next(self._order), host, None))

    def run(self, stop: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass up to ``stop``, or until ``until`` is true of it: then True."""
        events = self._events
        while not until():
            if not events or events[0][0] >= stop:
                self.now = stop
                return False
            self.now, _, host, what = heapq.heappop(events)
            if host is None:
                what()  # type: ignore[operator, misc]
                continue
            if what is None:
                if host.timer is None or host.timer > self.now:
                    continue  # it wanted to be called, and then no more
                host.timer = None
                host.endpoint.handle_timer(self.now)
            else:
                self._in_flight -= 1
                if host.on_arrival is not None:
                    host.on_arrival(what)
                host.receive(what, self.now)
            self.wake(host)
        return True

    @property
    def silent(self) -> bool:
        """Nobody has anything to say any more, and nothing is on its way."""
        return not self._in_flight and not any(host.timer is not None for host in self.hosts)

    # --- datagrams -------------------------------------------------------------------------------

    def _send(self, sender: Host, message: bytes, destinations: tuple[Locator, ...]) -> None:
        self.on_send(sender, message, len(destinations))
        link, draw = self.link, self._random
        time_on_wire = (len(message) + FRAMING) * 8 * SECOND // link.bandwidth
        for destination in destinations:
            sender.link_free = max(self.now, sender.link_free) + time_on_wire
            targets = self._members if destination == GROUP else [self._at[destination]]
            for target in targets:
                if target is not sender and draw.random() >= link.loss:
                    at = sender.link_free + link.delay + int(draw.random() * link.jitter)
                    heapq.heappush(self._events, (at, next(self._order), target, message))
                    self._in_flight += 1
