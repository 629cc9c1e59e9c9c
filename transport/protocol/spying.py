"""What stands for a participant where a reader only looks on: nobody knows of it, and it says nothing.

The writers are found outside, by their publication logs. Their messages come whole and in order, but for what the
reader was too slow for, which is lost: nobody sends it again.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from ..errors import DropReason
from ..qos import Qos
from ..structure import Guid
from ..types.model import Struct
from ..wire.samples import U8
from .endpoint_info import WriterInfo
from .events import Event, Matched, Unmatched
from .message_receiver import MessageReceiver, Span
from .policies import ReaderPolicy
from .reading.reader import StatefulReader


class SpyParticipant:
    """One reader, and the writers it looks at."""

    def __init__(
        self, guid: Guid, topic: str, qos: Qos, *, policy: ReaderPolicy, resume: Mapping[Guid, int]
    ) -> None:
        self.reader = StatefulReader(guid, qos, policy=policy, resume=resume)
        self.drops: Counter[DropReason] = Counter()
        #: As of `endpoints.LocalEndpoints`.
        self.routes: dict[Guid, list[StatefulReader]] = {}
        self.hears_itself = True
        self._topic = topic
        self._qos: dict[Guid, Qos] = {}
        self._types: dict[Guid, Struct] = {}
        self._events: deque[Event] = deque()
        self._receiver = MessageReceiver(guid.prefix, self, {}, {}, self.drops)

    def join(self, writer: Guid, qos: Qos, type: Struct | None = None, *, now: int) -> None:
        """Look at a writer from now on; ``qos``: what it offers, ``type``: what it tells of its type."""
        info = WriterInfo(writer, (), (), reliable=False, transient_local=False)
        self.reader.match_writer(info, now=now)
        self.routes[writer] = [self.reader]
        self._qos[writer] = qos
        if type is not None:
            self._types[writer] = type
        self._events.append(Matched(self.reader.guid, writer, self._topic, (), ()))

    def leave(self, writer: Guid) -> None:
        """It is gone."""
        self.reader.unmatch_writer(writer)
        del self.routes[writer], self._qos[writer]
        self._types.pop(writer, None)
        self._events.append(Unmatched(self.reader.guid, writer, self._topic))

    def receive(self, data: U8, spans: Sequence[Span], *, now: int) -> None:
        """As :meth:`Participant.receive`."""
        view = memoryview(data)
        for start, stop, source in self._receiver.receive_runs(data, spans, now=now):
            self._receiver.receive(data, view, start, stop, source, now=now)

    def qos_of(self, writer: Guid) -> Qos | None:
        return self._qos.get(writer)

    def type_of(self, writer: Guid) -> Struct | None:
        """As of a participant."""
        return self._types.get(writer)

    def next_event(self) -> Event | None:
        """The oldest event not fetched yet."""
        return self._events.popleft() if self._events else None
