"""A network with one slow link: a rate, a delay and a queue of so many bytes, which all that is sent to readers shares.

The writers are before it, the readers behind it. A datagram that finds no room in the queue is dropped (drop-tail);
one to a multicast group takes room once, and is copied behind the link. From there each reader's copy may be lost.
What readers send takes another way, which is fast: it has the same delay, the same loss, and no queue.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Final

from spark_rtps.transport.structure import Locator
from tests.simulation.network import FRAMING, GROUP, MS, SECOND, US, Host, Link, Network

#: How far apart the points of a figure are.
SLOT: Final = 20 * MS


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Bits a second, ns each way, bytes, and the probability that one reader does not get a datagram."""

    rate: int = 10_000_000
    delay: int = 20 * MS
    queue: int = 64 << 10
    loss: float = 0.0

    def seconds(self, wire_bytes: int) -> float:
        """How long the link is busy with so many bytes."""
        return wire_bytes * 8 / self.rate


@dataclass(slots=True)
class Queue:
    """The queue before the bottleneck; counts while it is ``on``."""

    link: Bottleneck
    on: bool = False
    #: Datagrams that wanted to pass, and those that found it full.
    arrived: int = 0
    dropped: int = 0
    #: Bytes on the wire that passed.
    passed: int = 0
    peak: int = 0
    #: Of each byte the time it waited, so that by Little's law ``waited / duration`` is the mean length.
    waited: int = 0
    #: The most in it, by the :data:`SLOT`.
    lengths: dict[int, int] = field(default_factory=dict)
    _free_at: int = 0

    def length(self, now: int) -> int:
        """Bytes, the datagram on the wire included."""
        return max(self._free_at - now, 0) * self.link.rate // (8 * SECOND)

    def enter(self, size: int, now: int) -> int | None:
        """When a datagram of ``size`` bytes on the wire has left the link; None: it is dropped."""
        length = self.length(now)
        self.arrived += self.on
        if length + size > self.link.queue:
            self.dropped += self.on
            return None
        self._free_at = max(self._free_at, now) + size * 8 * SECOND // self.link.rate
        slot = now // SLOT
        self.lengths[slot] = max(self.lengths.get(slot, 0), length + size)
        if self.on:
            self.passed += size
            self.peak = max(self.peak, length + size)
            self.waited += size * (self._free_at - now)
        return self._free_at


class BottleneckNetwork(Network):
    """Hosts before and behind the bottleneck."""

    def __init__(self, link: Bottleneck, seed: int) -> None:
        # The jitter is less than a datagram takes: nothing overtakes, and no two readers are quite alike.
        super().__init__(Link(delay=link.delay, jitter=50 * US, loss=link.loss), seed)
        self.queue = Queue(link)
        #: They send nothing any more, and nothing reaches them.
        self.vanished: set[int] = set()
        #: Copies for readers that left the writers' hosts, and those that did not arrive.
        self.copies = 0
        self.copies_lost = 0
        self._behind: set[int] = set()

    def put_behind(self, host: Host) -> None:
        """It is a reader's."""
        self._behind.add(id(host))

    def vanish(self, host: Host) -> None:
        self.vanished.add(id(host))

    def _send(self, sender: Host, message: bytes, destinations: tuple[Locator, ...]) -> None:
        if id(sender) in self.vanished:
            return
        self.on_send(sender, message, len(destinations))
        size = len(message) + FRAMING
        for destination in destinations:
            to_group = destination == GROUP
            targets = self._members if to_group else [self._at[destination]]
            targets = [each for each in targets if id(each) not in self.vanished]
            if id(sender) in self._behind:
                sender.link_free = max(self.now, sender.link_free) + size * 8 * SECOND // self.link.bandwidth
                self._arrive(targets, message, sender.link_free)
                continue
            left_at = self.queue.enter(size, self.now)
            lost = len(targets) if left_at is None else self._arrive(targets, message, left_at)
            if self.queue.on:
                self.copies += len(targets)
                self.copies_lost += lost

    def _arrive(self, targets: list[Host], message: bytes, left_at: int) -> int:
        """Copies on their way from the link's end; returns how many are lost there."""
        link, draw, lost = self.link, self._random, 0
        for target in targets:
            if link.loss and draw.random() < link.loss:
                lost += 1
                continue
            at = left_at + link.delay + int(draw.random() * link.jitter)
            heapq.heappush(self._events, (at, next(self._order), target, message))
            self._in_flight += 1
        return lost
