"""Two participants which resolve types, and endpoints of theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spark_rtps.transport.protocol.participant import events
from spark_rtps.transport.protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from spark_rtps.transport.protocol.participant.participant import RtpsParticipant
from spark_rtps.transport.protocol.reading.reader import StatefulReader
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import Qos, TypeConsistency, TypeConsistencyKind
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.submessages import Data, decode_submessage
from tests.protocol.type_scene import RELIABLE
from tests.support.virtual_network import SECOND, VirtualNetwork

FORCED = replace(RELIABLE, type_consistency=TypeConsistency(force_type_validation=True))
EXACT = replace(RELIABLE, type_consistency=TypeConsistency(TypeConsistencyKind.DISALLOW_TYPE_COERCION))


def reader(
    participant: RtpsParticipant, now: int, type: Struct | None, qos: Qos = RELIABLE, **more: Any
) -> StatefulReader:
    options: dict[str, Any] = {"keyed": type is None or type.is_keyed, "type": type} | more
    name = options.pop("name", "lab::Rich" if type is None else type.name)
    return participant.create_reader(ReaderSpec(options.pop("topic", "t"), name, qos, **options), now=now)


def writer(
    participant: RtpsParticipant, now: int, type: Struct | None, qos: Qos = RELIABLE, **more: Any
) -> StatefulWriter:
    options: dict[str, Any] = {"keyed": type is None or type.is_keyed, "type": type} | more
    name = options.pop("name", "lab::Rich" if type is None else type.name)
    return participant.create_writer(WriterSpec(options.pop("topic", "t"), name, qos, **options), now=now)


class Pair:
    """A reader of one participant and a writer of another, with these types."""

    def __init__(
        self,
        read: Struct | None,
        written: Struct | None,
        qos: Qos = RELIABLE,
        network: VirtualNetwork | None = None,
    ) -> None:
        self.network = network or VirtualNetwork()
        self.network.log = []
        self.one, self.two = self.network.add(), self.network.add()
        self.reader = reader(self.one, self.network.now, read, qos)
        self.writer = writer(self.two, self.network.now, written)

    def run(self, duration: int = SECOND) -> Pair:
        self.network.run(duration)
        return self

    @property
    def matched(self) -> bool:
        """On both sides, or on neither."""
        both = {self.writer.guid in self.reader.writers, self.reader.guid in self.writer.readers}
        assert len(both) == 1
        return both.pop()

    def reasons(self, participant: RtpsParticipant | None = None) -> list[tuple[str, ...]]:
        reported = self.network.events[(participant or self.one).prefix]
        return [each.reasons for each in reported if isinstance(each, events.IncompatibleQos)]

    def sent(self, entity: bytes) -> list[tuple[str, str]]:
        """(from, to) of each sample of a built-in writer."""
        found = []
        for source, destination, datagram in self.network.log or ():
            view = memoryview(datagram)
            for kind, flags, start, stop in iter_submessages(view):
                data = decode_submessage(kind, flags, view[start:stop])
                if isinstance(data, Data) and data.writer_id == entity:
                    found.append((source, destination.address))
        return found
