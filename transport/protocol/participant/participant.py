"""The participant of one domain: discovery, readers and writers in one sans-I/O state machine.

Datagrams go in (:meth:`RtpsParticipant.receive`) and come out (:meth:`RtpsParticipant.datagrams_to_send`), a timer
gives the time of the next call, and events report changes. The participant knows neither sockets nor clocks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from ...errors import DropReason, UsageError
from ...limits import EVENTS_MAX
from ...qos import DataRepresentation, LivelinessKind, requested_by_reader
from ...structure import (
    INFINITE,
    KIND_READER_NO_KEY,
    KIND_READER_WITH_KEY,
    KIND_WRITER_NO_KEY,
    KIND_WRITER_WITH_KEY,
    Guid,
)
from ...types.model import Struct, has_int8
from ...wire.compressed import CODECS
from ...wire.samples import U8
from ..agenda import Agenda
from ..discovery.endpoint_data import EndpointData, announceable
from ..endpoint_info import Abilities
from ..outgoing import Outgoing, OutgoingDatagrams
from ..reading.flow.congestion_control import CongestionControlFactory
from ..reading.flow.status_reporter import ReceiveCapacity
from ..reading.reader import StatefulReader
from ..receiving.burst_receiver import BurstReceiver
from ..receiving.message_receiver import MessageReceiver
from ..trust import Networks
from ..writing.asynchronous import AsynchronousPublishing
from ..writing.batching import Interceptor
from ..writing.flow import FlowControl, flow_control_of, of_groups
from ..writing.publication import MessageLog
from ..writing.writer import StatefulWriter
from . import events
from .config import ParticipantConfig, RemoteEndpoint
from .database import DiscoveryDatabase
from .discovery import ParticipantDiscovery
from .endpoint_specs import ReaderSpec, WriterSpec
from .entity_keys import EntityKeys
from .events import Event
from .packing import pack
from .slices import Slice

__all__ = ["RtpsParticipant", "ParticipantConfig", "Reception", "RemoteEndpoint"]

#: The return type of :meth:`RtpsParticipant.receiving`.
Reception = Generator[list[StatefulReader], int | None, list[StatefulReader]]


class RtpsParticipant:
    """One participant of one domain; see the module's docstring."""

    def __init__(self, config: ParticipantConfig, *, now: int) -> None:
        if len(config.guid_prefix) != 12:
            raise UsageError(f"guid_prefix has {len(config.guid_prefix)} bytes: it must have 12")
        if config.lease_duration <= 0:
            raise UsageError(f"lease_duration is {config.lease_duration} ns: it must be positive")
        self.config = config
        self.prefix = config.guid_prefix
        self.drops: Counter[DropReason] = Counter()
        #: The discovery protocols.
        self.discovery = discovery = ParticipantDiscovery(config, self.drops, self._emit, now=now)
        #: Look-ups of participants and endpoints.
        self.database = DiscoveryDatabase(discovery)
        #: Our endpoints, and their matches.
        self.endpoints = discovery.endpoints
        self.liveliness = discovery.liveliness
        self._spdp, self._sedp, self._library = discovery.spdp, discovery.sedp, discovery.type_library
        self._failures = discovery.failures
        self._agenda = Agenda(self._failures)
        self._writers: dict[bytes, StatefulWriter] = {
            writer.guid.entity: writer for writer in discovery.builtin.writers()
        }
        for endpoint in discovery.builtin:
            self._agenda.add_endpoint(endpoint)
        self._flow = AsynchronousPublishing()
        self._receive_capacity = ReceiveCapacity(config.receive_buffer)
        #: The writers whose LIVELINESS is MANUAL: writing asserts it.
        self._manual_writers: list[StatefulWriter] = []
        self._keys = EntityKeys(self.prefix)
        self._events: deque[Event] = deque()
        self._emitted = 0
        self._own_writers_made = 0
        self._farewell: Outgoing | None = None
        self._closed = False
        self._receiver = MessageReceiver(
            self.prefix,
            self.endpoints,
            self._writers,
            self._spdp.remotes,
            self.drops,
            addresses=config.addresses,
            trust=config.trust,
            failures=self._failures,
        )
        self._receiver.router.on_alive = self.liveliness.on_data
        self._receiver.on_addressed = discovery.on_addressed
        self._receiver.challenged = self._spdp.challenges.open
        self._receiver.on_answered = discovery.on_answered
        self._bursts = BurstReceiver(self._receiver.router, self._spdp.remotes, self.drops)
        self._bursts.message_size_max = config.message_size_max
        self._bursts.on_oversized = lambda sender, size: self._emit(events.MessageTooLarge(sender, size))

    # --- endpoints of ours ------------------------------------------------------------------------

    def create_reader(
        self, spec: ReaderSpec, *, now: int, congestion_control: CongestionControlFactory | None = None
    ) -> StatefulReader:
        """Create a reader; without ``congestion_control``, the policy names it. Raises UsageError."""
        self._check_open()
        qos = requested_by_reader(spec.qos)
        guid = self._keys.new_guid(
            KIND_READER_WITH_KEY if spec.keyed else KIND_READER_NO_KEY, spec.entity_key
        )
        reader = StatefulReader(
            guid,
            qos,
            policy=spec.policy,
            resume=spec.resume,
            moved_from=spec.moved_from,
            receive_capacity=self._receive_capacity,
        )
        if congestion_control is not None:
            reader.status.congestion_control = congestion_control
        reader.status.consumption_held = spec.consumption_held
        reader.delivery.sample_size_max = spec.sample_size_max
        abilities = Abilities(
            batches=True,
            codecs=CODECS,
            message_size_max=self.config.message_size_max,
            no_positive_acks=spec.policy.disable_positive_acks,
            status_messages=True,
        )
        data = EndpointData(
            guid,
            spec.topic,
            spec.type_name,
            qos,
            # An endpoint's own locators replace all those of its participant (RTPS 2.5 §8.5.5).
            self.config.default_unicast if spec.multicast else (),
            spec.multicast,
            abilities=abilities,
            content_filter=announceable(spec.content_filter),
        )
        data = self._announce(data, spec.type, now)
        self._agenda.add_endpoint(reader)
        self._introduce(data, reader, now, type=spec.type, awaits_types=spec.awaits_types, part=spec.slice)
        return reader

    def create_writer(
        self,
        spec: WriterSpec,
        *,
        now: int,
        interceptor: Interceptor | None = None,
        flow_control: Callable[[Guid], FlowControl] | None = None,
        multicast_flow_control: Callable[[Guid], FlowControl] | None = None,
        log: MessageLog | None = None,
    ) -> StatefulWriter:
        """Create a writer; ``flow_control`` makes its strategy, and ``multicast_flow_control`` the one while it sends
        to a multicast group; by default the policy names both. ``log`` is its publication log; if the log has a name,
        the writer announces it to readers on this host. Raises UsageError."""
        self._check_open()
        qos, policy = spec.qos, spec.policy
        if not qos.data_representation:
            qos = replace(qos, data_representation=(DataRepresentation.XCDR1,))
        guid = self._keys.new_guid(
            KIND_WRITER_WITH_KEY if spec.keyed else KIND_WRITER_NO_KEY, spec.entity_key
        )
        allowed = Networks(policy.readers_allowed) if policy.readers_allowed else None
        strategy_of_groups: FlowControl | None = None
        if multicast_flow_control is not None:
            strategy_of_groups = multicast_flow_control(guid)
        elif (by_group := of_groups(policy.flow_control)) is not None:
            strategy_of_groups = flow_control_of(by_group)
        writer = StatefulWriter(
            guid,
            qos,
            policy=policy.writer,
            batch=policy.batch,
            coalescing=policy.coalescing,
            interceptor=interceptor,
            message_size=self.config.message_size,
            flow_control=flow_control(guid) if flow_control else flow_control_of(policy.flow_control),
            multicast_flow_control=strategy_of_groups,
            log=log,
        )
        abilities = Abilities(
            batches=True,
            no_positive_acks=policy.writer.disable_positive_acks,
            status_messages=True,
            term_window=writer.positions.term_window,
            heartbeat_period=policy.writer.heartbeat_period if qos.is_reliable else 0,
            publication_log="" if log is None or log.path is None else log.path.name,
            publication_token=0 if log is None or log.path is None else log.token,
        )
        data = EndpointData(guid, spec.topic, spec.type_name, qos, abilities=abilities)
        data = self._announce(data, spec.type, now)
        self._writers[guid.entity] = writer
        self._agenda.add_endpoint(writer)
        self._own_writers_made += 1
        if policy.flow_controller is not None:
            self._flow.add_writer(writer, policy.flow_controller, policy.transport_priority)
        self.liveliness.add_local(data, now=now)
        if qos.liveliness is not LivelinessKind.AUTOMATIC:
            self._manual_writers.append(writer)
        self._introduce(data, writer, now, type=spec.type, allowed=allowed, multicast=policy.multicast)
        return writer

    def _announce(self, data: EndpointData, type: Struct | None, now: int) -> EndpointData:
        """Announce an endpoint of ours with its type. If it cannot be encoded, this raises before any state changes."""
        information = None if type is None else self._library.offer(type)
        try:
            data = replace(data, type_information=information)
            self.discovery.announce(data, now=now)
        except BaseException:
            if information is not None:
                self._library.withdraw(information)
            raise
        self._keys.take(data.guid)
        return data

    def _introduce(
        self,
        data: EndpointData,
        endpoint: StatefulReader | StatefulWriter,
        now: int,
        *,
        type: Struct | None,
        awaits_types: bool = False,
        allowed: Networks | None = None,
        part: Slice | None = None,
        multicast: bool = True,
    ) -> None:
        """Match an announced endpoint of ours."""
        others = self._sedp.remote.on_topic(data.topic)
        self.endpoints.add_endpoint(
            data,
            endpoint,
            others,
            now=now,
            awaits_types=awaits_types,
            allowed=allowed,
            part=part,
            multicast=multicast,
            announces_int8=type is not None and has_int8(type),
        )
        self.discovery.look_up(now)

    @property
    def readers(self) -> list[StatefulReader]:
        """All readers of ours, those of discovery included."""
        return self._agenda.all(StatefulReader)

    def delete_endpoint(self, guid: Guid, now: int) -> None:
        """Delete a reader or writer of ours, and dispose it for peers."""
        data = self.endpoints.remove_endpoint(guid)
        if data is None:
            raise UsageError(f"endpoint {guid} does not exist in this participant")
        self._sedp.withdraw(data.guid, now=now)
        if data.type_information is not None:
            self._library.withdraw(data.type_information)
        if data.is_writer:
            del self._writers[guid.entity]
            self._flow.forget_writer(guid)
            self._manual_writers = [writer for writer in self._manual_writers if writer.guid != guid]
            self.liveliness.remove_local(guid)
        self._agenda.remove_endpoint(guid)
        self._keys.give_back(guid)

    def withdraw_reader(self, entity_key: int, *, keyed: bool, now: int) -> None:
        """Dispose a reader that an earlier participant with this GUID had, so that no writer waits for it."""
        kind = KIND_READER_WITH_KEY if keyed else KIND_READER_NO_KEY
        self._sedp.withdraw(self._keys.guid_of(entity_key, kind), now=now)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the participant is closed")

    def assert_liveliness(self, now: int, writer: Guid | None = None) -> None:
        """Assert that our MANUAL_BY_PARTICIPANT writers live, or that this MANUAL_BY_TOPIC writer does."""
        if writer is None:
            self.liveliness.assert_participant(now)
        else:
            self.liveliness.on_data(writer, now)
            self._writers[writer.entity].assert_liveliness(now)

    def _note_writes(self) -> None:
        for writer in self._manual_writers:
            self.liveliness.on_data(writer.guid, writer.state.written_at)

    # --- datagrams --------------------------------------------------------------------------------

    def receive(self, data: U8, spans: Sequence[tuple[int, int, str]], *, now: int) -> list[StatefulReader]:
        """Process datagrams that lie in one buffer: (start, stop, source address) each, starts 4-aligned.

        Returns the readers that have runs to take (:meth:`~StatefulReader.take_runs`); the runs view ``data``. The
        contents of datagrams never make it raise; dropped messages are counted in ``drops``.
        """
        try:
            next(self.receiving(data, spans, now=now))
        except StopIteration as end:
            readers: list[StatefulReader] = end.value
        return readers

    def receiving(
        self,
        data: U8,
        spans: Sequence[tuple[int, int, str]],
        *,
        now: int,
        work_max: int = INFINITE,
    ) -> Reception:
        """As :meth:`receive`, in parts of about ``work_max`` microseconds; ``data`` must not change before the last
        part.

        The generator yields the readers of :meth:`receive` after each part, is sent the current time, and returns the
        readers after the last part. All other methods may be called between the parts.
        """
        view, spans = memoryview(data), self.discovery.admitted.admit(data, spans)
        receiver, router = self._receiver, self._receiver.router
        pause = router.work + work_max
        for span in self._bursts.receive_runs(data, spans, now=now):
            if self._closed:
                return []
            if span is not None:
                start, stop, source_ip = span
                router.unproven = None
                receiver.receive(data, view, *span, now=now)
                if router.announcements:
                    runs, router.announcements = router.announcements, []
                    self.discovery.on_announcements(runs, source_ip, stop - start, now)
                if router.unproven is not None and not router.unproven.proven:
                    router.unproven.hold(view[start:stop], source_ip)
                while self.discovery.held:
                    held, source_ip = self.discovery.held.popleft()
                    again = np.frombuffer(held, np.uint8)
                    receiver.receive(again, memoryview(held), 0, len(held), source_ip, now=now)
                    router.announcements.clear()  # processed already, and not part of the next datagram
                if router.builtin_touched:
                    router.builtin_touched = False
                    self.discovery.on_builtin_samples(now)
            if router.work > pause:
                now = (yield self._received(now)) or now
                pause = router.work + work_max
        return [] if self._closed else self._received(now)

    def _received(self, now: int) -> list[StatefulReader]:
        for guid in self.liveliness.gained(now=now):
            self._emit(events.LivelinessGained(guid, self.endpoints.topic_of(guid)))
        return self.readers_with_runs()

    def readers_with_runs(self) -> list[StatefulReader]:
        """The readers that have runs to take."""
        return [reader for reader in self._agenda.touched(StatefulReader) if reader.has_runs]

    def datagrams_to_send(self, now: int, *, asynchronous: bool = True) -> list[OutgoingDatagrams]:
        """The datagrams that are due now; ``asynchronous``: including those of asynchronous writers."""
        self._note_writes()
        outgoing: Iterator[Outgoing] = chain(
            self._spdp.outgoing(lambda: self._sedp.publications_writer.heartbeat(now)),
            *(self._flow.pass_on(writer, now) for writer in self._agenda.talking(StatefulWriter)),
            *(reader.outgoing() for reader in self._agenda.talking(StatefulReader)),
            self._flow.release(now) if asynchronous else (),
        )
        datagrams = pack(self.prefix, outgoing, self.config.message_size)
        for prefix, question in self._spdp.challenges.take_datagrams():
            datagrams += pack(prefix, (question,), self.config.message_size)
        if self._farewell is not None:
            datagrams += pack(self.prefix, (self._farewell,), self.config.message_size)
            self._farewell = None
        return datagrams

    # --- time -------------------------------------------------------------------------------------

    def get_timer(self) -> int | None:
        """When to call :meth:`handle_timer`; None: never."""
        if self._closed:
            return None
        if self._failures.first is not None:
            return 0
        timers = [self.discovery.get_timer(), self.liveliness.get_timer()]
        timers += [self._flow.get_timer(), self._agenda.get_timer()]
        return min((timer for timer in timers if timer is not None), default=None)

    def handle_timer(self, now: int) -> None:
        """Run the timers that are due; call :meth:`datagrams_to_send` afterwards.

        An exception that a plug-in raised since the last call is raised here after all other work.
        """
        if self._closed:
            return
        self.discovery.handle_timer(now)
        self._note_writes()
        self.liveliness.handle_timer(now)
        for guid in self.liveliness.lost(now=now):
            self._emit(events.LivelinessLost(guid, self.endpoints.topic_of(guid)))
        self._agenda.handle_timer(now)

    # --- life -------------------------------------------------------------------------------------

    def finish(self, now: int, *, only: Guid | None = None) -> None:
        """Prepare our writers, or ``only`` one, for deletion: give up claims, send the batches in progress."""
        for writer in self._writers.values():
            if only is None or writer.guid == only:
                writer.finish(now=now)

    def unsent_bytes(self, guid: Guid) -> int:
        """Bytes of a writer of ours that wait for the windows of readers, or for tokens; 0 for a reader."""
        writer = self._writers.get(guid.entity)
        if writer is None:
            return 0
        return writer.positions.pub_pos - writer.positions.snd_pos + self._flow.queued_bytes_of(guid)

    @property
    def queued_bytes(self) -> int:
        """Bytes of asynchronous writers that wait for tokens."""
        return self._flow.queued_bytes

    def close(self, now: int) -> None:
        """Stop receiving; the next :meth:`datagrams_to_send` disposes the participant for its peers."""
        if self._closed:
            return
        for data in self.endpoints.data():
            self._sedp.withdraw(data.guid, now=now)
        self._farewell = self._spdp.dispose()
        self._closed = True

    @property
    def changes(self) -> int:
        """Number of changes of the remote endpoints, of their types, and of our writers."""
        return self._emitted + self._own_writers_made + self.discovery.settled

    def next_event(self) -> Event | None:
        """The oldest event not fetched yet."""
        return self._events.popleft() if self._events else None

    def _emit(self, event: Event) -> None:
        self._emitted += 1
        if len(self._events) < EVENTS_MAX:
            self._events.append(event)
        else:
            self.drops[DropReason.OVER_LIMIT] += 1
