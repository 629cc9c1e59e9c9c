"""Two honest participants that exchange rows in virtual time, attackers around them, and what must hold meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid
from tests.hostile.attacker import Attacker, Datagram, Host
from tests.hostile.attacks import ATTACKS
from tests.support.numbered_samples import numbered, numbers_of
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
BEST_EFFORT = Qos(history=HistoryKind.KEEP_ALL)
ATTACKER, PEER, VICTIM = "10.0.0.66", "10.0.0.67", "10.0.9.1"
PORT = 7410
#: Within so much virtual time a row that was written has arrived, on a network without loss.
BOUND = 2 * SECOND


class Stream:
    """Rows of one honest writer to one honest reader."""

    def __init__(
        self, writer: StatefulWriter, reader: StatefulReader, source: int, *, reliable: bool = True
    ) -> None:
        self.writer, self.reader, self.source, self.reliable = writer, reader, source, reliable
        self.written = 0
        self.arrived = 0

    def write(self, count: int, now: int, size: int = 12) -> int:
        """As many rows as there is room for; returns how many."""
        rows = numbered(self.written, count, source=self.source, size=size)
        taken = self.writer.write_samples(rows, timestamp=now, now=now)
        self.written += taken
        return taken

    def take(self) -> None:
        """Each row arrives once and in order, and nothing else in the writer's name."""
        for run in self.reader.take_runs():
            if run.writer == self.writer.guid:
                rows = numbers_of(run.samples())
                expected = [(self.source, self.arrived + i) for i in range(run.count)]
                assert rows == expected, f"{rows[:5]} arrived instead of {expected[:5]}"
                self.arrived += run.count
        acknowledged = self.acknowledged
        assert acknowledged <= self.arrived, f"{acknowledged} acknowledged, {self.arrived} arrived"

    @property
    def acknowledged(self) -> int:
        """Rows that the writer takes for acknowledged by its honest reader."""
        if not self.reliable:
            return self.arrived
        behind = self.writer.unacknowledged()
        reader = self.reader.guid
        if reader not in self.writer.readers:
            return 0
        return behind.get(reader, self.written)


class HostileScene:
    """``one`` and ``two`` exchange rows both ways. All attackers aim at ``one``, in the name of ``two`` if they can."""

    def __init__(self, *, seed: int = 0, qos: Qos = RELIABLE, config: Any = None, **network: Any) -> None:
        self.network = VirtualNetwork(seed=seed, **({"bursts": True} | network))
        self.one, self.two = self.network.add(**(config or {})), self.network.add(**(config or {}))
        now = self.network.now
        self.reader = self.one.create_reader(ReaderSpec("t", "T", qos), now=now)
        self.writer = self.two.create_writer(WriterSpec("t", "T", qos), now=now)
        sink = self.one.create_writer(WriterSpec("s", "T", qos), now=now)
        sunk = self.two.create_reader(ReaderSpec("s", "T", qos), now=now)
        reliable = qos.is_reliable
        self.received = Stream(self.writer, self.reader, 1, reliable=reliable)
        self.sunk = Stream(sink, sunk, 2, reliable=reliable)
        self.streams = [self.received, self.sunk]
        self.on = self.known(self.one, sink, self.reader)
        self.other = self.known(self.two, self.writer, sunk)
        victim = (VICTIM, 53)
        self.attackers = {
            "unmatched": Attacker(b"\xee" * 12, (ATTACKER, PORT), victim, random.Random(seed)),
            "peer": Attacker(b"\xdd" * 12, (PEER, PORT), victim, random.Random(seed + 1)),
            "process": Attacker(b"\xcc" * 12, (self.on.user[0], PORT + 10), victim, random.Random(seed + 2)),
        }
        self.attacked = 0
        self.attacked_bytes = 0
        self._multicast_before: dict[tuple[str, int], int] = {}
        assert self.run(30 * SECOND, until=self.is_matched)

    def known(self, host: RtpsParticipant, writer: StatefulWriter, reader: StatefulReader) -> Host:
        here = (self.network.address_of(host), PORT)
        own = "s" if host is self.one else "t"
        return Host(
            host.prefix, here, here, writer.guid.entity, reader.guid.entity, own, "t" if own == "s" else "s"
        )

    # --- honest work ----------------------------------------------------------------------------------

    def is_matched(self) -> bool:
        """Both streams flow between reader and writer that are ready for each other."""
        return all(
            each.writer.guid in each.reader.writers
            and each.reader.guid in each.writer.readers
            and each.writer.readers[each.reader.guid].is_ready
            for each in self.streams
        )

    def work(self, count: int = 5, size: int = 12) -> None:
        for each in self.streams:
            each.write(count, self.network.now, size)

    def run(self, duration: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; what arrives is taken a thousand times a second."""
        end = self.network.now + duration
        while self.network.now < end:
            self.network.run(min(MILLISECOND, end - self.network.now))
            for each in self.streams:
                each.take()
            if until is not None and until():
                return True
        return until is None

    def rest(self, duration: int) -> None:
        """Let time pass without looking."""
        self.network.run(duration)
        for each in self.streams:
            each.take()

    def has_all(self) -> bool:
        return all(each.arrived == each.written == each.acknowledged for each in self.streams)

    def assert_rows_arrive(self, bound: int = BOUND) -> None:
        """New rows arrive once, in order and in time; and are acknowledged by who has them."""
        end = self.network.now + bound
        for each in self.streams:
            left = 5
            while left := left - each.write(left, self.network.now):
                assert self.run(MILLISECOND) and self.network.now < end, "there is no room to write"
        assert self.run(bound, until=self.has_all), [
            f"{each.arrived} of {each.written} arrived, {each.acknowledged} acknowledged"
            for each in self.streams
        ]

    def assert_newcomers_are_found(self, bound: int = 5 * SECOND) -> None:
        """A writer that comes now is matched in time, and its rows arrive."""
        newcomer = self.network.add(guid_prefix=bytes((0x40 + len(self.network.events),)) * 12)
        writer = newcomer.create_writer(WriterSpec("t", "T", RELIABLE), now=self.network.now)
        stream = Stream(writer, self.reader, 0x77)
        others = self.received

        def met() -> bool:
            return writer.guid in self.reader.writers and self.reader.guid in writer.readers

        assert self.run(bound, until=met), "a newcomer was not found"
        stream.write(3, self.network.now)
        end = self.network.now + bound
        while stream.arrived < 3:
            assert self.network.now < end, "a newcomer's rows did not arrive"
            self.network.run(MILLISECOND)
            for run in self.reader.take_runs():
                for each in (stream, others):
                    if run.writer == each.writer.guid:
                        each.arrived += run.count
        newcomer.close(self.network.now)
        self.network.run(10 * MILLISECOND)
        self.network.unplug(newcomer)

    # --- attacks --------------------------------------------------------------------------------------

    def attack(self, name: str, who: str = "unmatched", times: int = 1) -> None:
        """Make an attack so often; its messages are under way then."""
        attacker = self.attackers[who]
        attacker.written = self.received.written
        for _ in range(times):
            self.send(who, ATTACKS[name].function(attacker, self.on, self.other))

    def send(self, who: str, datagrams: Iterable[Datagram]) -> None:
        source = self.attackers[who].here[0]
        for datagram in datagrams:
            self.attacked += 1
            self.attacked_bytes += len(datagram.payload)
            self.network.inject(self.on.user[0], datagram.payload, source)

    def let_the_peer_match(self) -> None:
        self.send("peer", self.attackers["peer"].matches(self.on))
        self.run(100 * MILLISECOND)
        assert Guid(self.attackers["peer"].prefix, b"\0\0\x66\3") in self.reader.writers

    def bytes_to(self, address: str) -> int:
        return sum(size for to, size in self.network.sent_bytes.items() if to[0] == address)

    def bytes_to_third_parties(self) -> int:
        """Of all that was sent, what went neither to a participant nor to the group of discovery."""
        hosts = {"10.0.0.1", "10.0.0.2", "239.255.0.1", ATTACKER, PEER}
        return sum(
            size
            for to, size in self.network.sent_bytes.items()
            if to[0] not in hosts and not to[0].startswith("10.0.0.")
        )
