"""An honest pair of participants and one that means ill, for tests of what it cannot do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.discovery.endpoint_data import EndpointData, encode_endpoint
from spark_rtps.transport.protocol.discovery.participant_data import (
    ParticipantData,
    encode_participant,
)
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import (
    ENTITYID_SEDP_PUBLICATIONS_WRITER,
    ENTITYID_SEDP_SUBSCRIPTIONS_WRITER,
    ENTITYID_SPDP_WRITER,
    ENTITYID_UNKNOWN,
    INFINITE,
    Guid,
    Locator,
)
from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.message import Header
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import Data, Heartbeat, InfoDestination
from tests.support.virtual_network import MILLISECOND, SECOND, VirtualNetwork

RELIABLE = Qos(
    reliability=ReliabilityKind.RELIABLE,
    durability=DurabilityKind.TRANSIENT_LOCAL,
    history=HistoryKind.KEEP_ALL,
)
EVIL = b"\xee" * 12
EVIL_IP = "10.0.0.66"
EVIL_WRITER = b"\0\0\1\3"
EVIL_READER = b"\0\0\1\4"
EVIL_LOCATOR = Locator(EVIL_IP, 7410)


def message(*submessages: bytes, prefix: bytes = EVIL) -> bytes:
    return Header(prefix=prefix).encode() + b"".join(submessages)


def announcement(prefix: bytes = EVIL, **data: object) -> bytes:
    defaults: dict[str, object] = {
        "metatraffic_unicast": (EVIL_LOCATOR,),
        "default_unicast": (EVIL_LOCATOR,),
        "lease_duration": INFINITE,
    }
    payload = encode_participant(ParticipantData(prefix, **(defaults | data)))
    return message(Data(ENTITYID_UNKNOWN, ENTITYID_SPDP_WRITER, 1, payload).encode(), prefix=prefix)


class Scene:
    """An honest reader and writer that know each other, and a participant that means ill and is matched."""

    def __init__(self) -> None:
        self.network = VirtualNetwork()
        self.one, self.two = self.network.add(), self.network.add()
        now = self.network.now
        self.reader: StatefulReader = self.one.create_reader(ReaderSpec("t", "T", RELIABLE), now=now)
        self.one_writer: StatefulWriter = self.one.create_writer(WriterSpec("s", "T", RELIABLE), now=now)
        self.writer: StatefulWriter = self.two.create_writer(WriterSpec("t", "T", RELIABLE), now=now)
        self.network.run(SECOND)
        self._sn = {ENTITYID_SEDP_PUBLICATIONS_WRITER: 0, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER: 0}
        self.attack(announcement())
        self.attack(self.to_us())  # it knows us
        self.announce(Guid(EVIL, EVIL_WRITER), "t")
        self.announce(Guid(EVIL, EVIL_READER), "s")
        assert Guid(EVIL, EVIL_WRITER) in self.reader.writers
        assert Guid(EVIL, EVIL_READER) in self.one_writer.readers
        self.drops = self.one.drops.copy()

    def attack(self, datagram: bytes, source: str = EVIL_IP) -> None:
        self.network.deliver(self.one, datagram, source)

    def to_us(self, *submessages: bytes) -> bytes:
        return message(InfoDestination(self.one.prefix).encode(), *submessages)

    def sedp(self, payload: bytes | None, writer_id: bytes, qos: p.ParameterList | None = None) -> None:
        """One SEDP sample of the evil participant."""
        self._sn[writer_id] += 1
        sn = self._sn[writer_id]
        data = Data(ENTITYID_UNKNOWN, writer_id, sn, payload, qos, key=qos is not None)
        heartbeat = Heartbeat(ENTITYID_UNKNOWN, writer_id, 1, sn, sn)
        self.attack(self.to_us(data.encode(), heartbeat.encode()))

    def announce(self, guid: Guid, topic: str, payload: bytes | None = None) -> None:
        writer = guid.entity[3] in (2, 3)
        which = ENTITYID_SEDP_PUBLICATIONS_WRITER if writer else ENTITYID_SEDP_SUBSCRIPTIONS_WRITER
        self.sedp(payload or encode_endpoint(EndpointData(guid, topic, "T", RELIABLE)), which)

    def dropped(self) -> dict[DropReason, int]:
        return dict(self.one.drops - self.drops)

    def assert_honest_work_goes_on(self) -> None:
        self.reader.take_runs()
        payload = np.frombuffer(b"\0\1\0\0good", np.uint8)
        self.writer.write_samples(Samples.uniform(payload, 1, 8), timestamp=0, now=self.network.now)
        received: list[bytes] = []

        def arrived() -> bool:
            for run in self.reader.take_runs():
                if run.writer == self.writer.guid:
                    received.append(bytes(run.samples().payload(0)))
            return b"\0\1\0\0good" in received

        assert self.network.run(5 * SECOND, until=arrived)


def addressed(one: RtpsParticipant, *submessages: bytes, prefix: bytes = EVIL) -> bytes:
    return message(InfoDestination(one.prefix).encode(), *submessages, prefix=prefix)


def reader_of_evil(*unicast: Locator, sn: int = 1, topic: str = "t") -> bytes:
    """SEDP tells of a best-effort reader that receives at these addresses."""
    data = EndpointData(Guid(EVIL, EVIL_READER), topic, "T", Qos(), unicast)
    sample = Data(ENTITYID_UNKNOWN, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER, sn, encode_endpoint(data))
    beat = Heartbeat(ENTITYID_UNKNOWN, ENTITYID_SEDP_SUBSCRIPTIONS_WRITER, 1, sn, sn)
    return sample.encode() + beat.encode()


def written(network: VirtualNetwork, one: RtpsParticipant) -> Callable[[], None]:
    """A writer of a best-effort topic; call it to write."""
    writer = one.create_writer(WriterSpec("t", "T", RELIABLE), now=network.now)

    def write() -> None:
        writer.write_samples(
            Samples.uniform(np.zeros(1_000, np.uint8), 1, 1_000), timestamp=0, now=network.now
        )
        network.run(MILLISECOND)

    return write
