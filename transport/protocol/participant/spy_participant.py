"""The participant of readers that only look on: no writer knows of them, and they send nothing.

The owner finds the writers by their publication logs. Their messages come whole and in order. A reader that is too slow
loses messages, for no writer repeats them.
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
    """Readers, and the writers they look at."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.drops: Counter[DropReason] = Counter()
        #: As of `endpoints.LocalEndpoints`.
        self.routes: dict[Guid, list[StatefulReader]] = {}
        #: Nobody is joined that is not read.
        self.other_slices: dict[Guid, list[StatefulReader]] = {}
        self.hears_itself = True
        self._readers: dict[Guid, tuple[str, StatefulReader]] = {}
        self._qos: dict[Guid, Qos] = {}
        self._types: dict[Guid, Struct] = {}
        self._events: deque[Event] = deque()
        self._receiver = MessageReceiver(prefix, self, {}, {}, self.drops)
        self._bursts = BurstReceiver(self._receiver.router, {}, self.drops)

    def create_reader(self, spec: ReaderSpec) -> StatefulReader:
        """A reader, which has an ``entity_key``; its QoS is as it was given, for no writer compares it."""
        if spec.entity_key is None:
            raise UsageError("a reader which spies has an entity key")
        kind = KIND_READER_WITH_KEY if spec.keyed else KIND_READER_NO_KEY
        guid = Guid(self.prefix, spec.entity_key.to_bytes(3, "big") + bytes((kind,)))
        if guid in self._readers:
            raise UsageError(f"entity key {spec.entity_key} is taken")
        reader = StatefulReader(guid, spec.qos, policy=spec.policy, resume=spec.resume)
        reader.status.consumption_held = spec.consumption_held
        reader.delivery.sample_size_max = spec.sample_size_max
        self._readers[guid] = spec.topic, reader
        return reader

    def delete_reader(self, guid: Guid) -> None:
        """The reader looks at nothing any more."""
        _, reader = self._readers[guid]
        for writer in list(reader.writers):
            self.leave(reader, writer)
        del self._readers[guid]

    def join(
        self, reader: StatefulReader, writer: Guid, qos: Qos, type: Struct | None = None, *, now: int
    ) -> None:
        """Look at a writer from now on; ``qos``: what it offers, ``type``: the type it announces, if it does."""
        info = WriterInfo(writer, (), (), reliable=False, transient_local=False)
        reader.match_writer(info, now=now)
        self.routes.setdefault(writer, []).append(reader)
        self._qos[writer] = qos
        if type is not None:
            self._types[writer] = type
        self._events.append(Matched(reader.guid, writer, self._readers[reader.guid][0], (), ()))

    def leave(self, reader: StatefulReader, writer: Guid) -> None:
        """The writer is gone, or the reader does not look at it any more."""
        reader.unmatch_writer(writer)
        readers = self.routes[writer]
        readers.remove(reader)
        if not readers:
            del self.routes[writer], self._qos[writer]
            self._types.pop(writer, None)
        self._events.append(Unmatched(reader.guid, writer, self._readers[reader.guid][0]))

    def receive(self, data: U8, spans: Sequence[Span], *, now: int) -> list[StatefulReader]:
        """As :meth:`Participant.receive`."""
        view = memoryview(data)
        for span in self._bursts.receive_runs(data, spans, now=now):
            if span is not None:
                self._receiver.receive(data, view, *span, now=now)
        return [reader for _, reader in self._readers.values() if reader.has_runs]

    def hears(self, prefix: bytes) -> bool:
        """As of `endpoints.LocalEndpoints`."""
        return any(writer.prefix == prefix for writer in self.routes)

    def qos_of(self, writer: Guid) -> Qos | None:
        return self._qos.get(writer)

    def type_of(self, writer: Guid) -> Struct | None:
        """As of a participant."""
        return self._types.get(writer)

    def next_event(self) -> Event | None:
        """The oldest event not fetched yet."""
        return self._events.popleft() if self._events else None
