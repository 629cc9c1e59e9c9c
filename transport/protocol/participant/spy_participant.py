"""The participant of spies: readers that are unknown to writers and send nothing.

The owner finds the writers by their publication logs. Messages arrive whole and in order. A reader that is too slow
loses messages, because no writer repeats them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from ...errors import DropReason, UsageError
from ...qos import Qos
from ...structure import KIND_READER_NO_KEY, KIND_READER_WITH_KEY, Guid
from ...types.model import Struct
from ...wire.samples import U8
from ..endpoint_info import WriterInfo
from ..reading.reader import StatefulReader
from ..receiving.burst_receiver import BurstReceiver
from ..receiving.message_receiver import MessageReceiver, Span
from .endpoint_specs import ReaderSpec
from .events import Event, Matched, Unmatched


class SpyParticipant:
    """Spying readers, and the writers that they read."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.drops: Counter[DropReason] = Counter()
        #: As in `endpoints.LocalEndpoints`.
        self.routes: dict[Guid, list[StatefulReader]] = {}
        #: Always empty: only writers that are read are joined.
        self.other_slices: dict[Guid, list[StatefulReader]] = {}
        self.hears_itself = True
        self._readers: dict[Guid, tuple[str, StatefulReader]] = {}
        self._qos: dict[Guid, Qos] = {}
        self._types: dict[Guid, Struct] = {}
        self._events: deque[Event] = deque()
        self._receiver = MessageReceiver(prefix, self, {}, {}, self.drops)
        self._bursts = BurstReceiver(self._receiver.router, {}, self.drops)

    def create_reader(self, spec: ReaderSpec) -> StatefulReader:
        """Create a reader; the spec must have an ``entity_key``. No writer compares the reader's QoS."""
        if spec.entity_key is None:
            raise UsageError("a spying reader has no entity_key: set one")
        kind = KIND_READER_WITH_KEY if spec.keyed else KIND_READER_NO_KEY
        guid = Guid(self.prefix, spec.entity_key.to_bytes(3, "big") + bytes((kind,)))
        if guid in self._readers:
            raise UsageError(f"entity key {spec.entity_key} is in use: choose another one")
        reader = StatefulReader(guid, spec.qos, policy=spec.policy, resume=spec.resume)
        reader.status.consumption_held = spec.consumption_held
        reader.delivery.sample_size_max = spec.sample_size_max
        self._readers[guid] = spec.topic, reader
        return reader

    def delete_reader(self, guid: Guid) -> None:
        """Delete a reader."""
        _, reader = self._readers[guid]
        for writer in list(reader.writers):
            self.leave(reader, writer)
        del self._readers[guid]

    def join(
        self, reader: StatefulReader, writer: Guid, qos: Qos, type: Struct | None = None, *, now: int
    ) -> None:
        """Have a reader read a writer; ``qos``: the writer's QoS, ``type``: its announced type, if any."""
        info = WriterInfo(writer, (), (), reliable=False, transient_local=False)
        reader.match_writer(info, now=now)
        self.routes.setdefault(writer, []).append(reader)
        self._qos[writer] = qos
        if type is not None:
            self._types[writer] = type
        self._events.append(Matched(reader.guid, writer, self._readers[reader.guid][0], (), ()))

    def leave(self, reader: StatefulReader, writer: Guid) -> None:
        """Stop reading a writer."""
        reader.unmatch_writer(writer)
        readers = self.routes[writer]
        readers.remove(reader)
        if not readers:
            del self.routes[writer], self._qos[writer]
            self._types.pop(writer, None)
        self._events.append(Unmatched(reader.guid, writer, self._readers[reader.guid][0]))

    def receive(self, data: U8, spans: Sequence[Span], *, now: int) -> list[StatefulReader]:
        """As :meth:`RtpsParticipant.receive`."""
        view = memoryview(data)
        for span in self._bursts.receive_runs(data, spans, now=now):
            if span is not None:
                self._receiver.receive(data, view, *span, now=now)
        return [reader for _, reader in self._readers.values() if reader.has_runs]

    def hears(self, prefix: bytes) -> bool:
        """As `endpoints.LocalEndpoints.hears`."""
        return any(writer.prefix == prefix for writer in self.routes)

    def qos_of(self, writer: Guid) -> Qos | None:
        return self._qos.get(writer)

    def type_of(self, writer: Guid) -> Struct | None:
        """The type of a writer, if it announces one."""
        return self._types.get(writer)

    def next_event(self) -> Event | None:
        """The oldest event not fetched yet."""
        return self._events.popleft() if self._events else None
