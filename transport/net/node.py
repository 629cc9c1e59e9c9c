"""One participant on real sockets, its duty cycle, and the thread that runs it unless its owner does.

A node is driven in one of two ways, with the same code: the receiver process calls :meth:`Node.cycle` in its own loop;
all others call :meth:`Node.start`, and a daemon thread calls it. A thread that waits for the network (for room in a
send window, for acknowledgements) takes the duty cycle over meanwhile (:meth:`Node.steering`), so that no switch of
threads lies between a datagram and the thread that waits for it. One lock protects all state; it is held for a duty
cycle or a write, never while waiting.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from ..errors import DropReason
from ..limits import EVENTS_MAX
from ..log.named_logs import remove
from ..protocol.discovery.remote_participant import Announcement
from ..protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from ..protocol.participant.events import Event
from ..protocol.participant.participant import Participant
from ..protocol.policies import BatchPolicy
from ..protocol.reading.reader import StatefulReader
from ..protocol.writing.flow import of_groups
from ..qos import Qos
from ..structure import INFINITE, NANOSECONDS, Guid, Locator, is_keyed
from ..types.model import Struct
from . import interfaces, peers
from .binding import joining
from .blocking_writer import BlockingWriter
from .congestion_control_plugins import load_congestion_control
from .event_warnings import EventWarnings
from .forked import disowned_by_children
from .join import join
from .joined_group import JoinedGroup
from .naps import Naps
from .node_config import NodeConfig
from .plugins import interceptor_of, load_flow_control
from .receive_turns import ReceiveTurns
from .receiving_node import NamedType, TypeIdentity
from .recipients import Recipient, Recipients
from .ros_graph import RosGraph, graph_writer_spec
from .sockets import Sockets
from .topic_types import first_writer, offers, type_hash
from .wake_pipe import WakePipe
from .written_logs import WrittenLogs, term_length, unnamed_log

_log = logging.getLogger(__name__)

_IDLE_SECONDS_MAX: Final = 1.0
#: For how long a thread that steered may steer again without having woken our own in between.
_LINGER_SECONDS: Final = 0.002


class Node:
    """A participant with sockets; the module's text describes what drives it."""

    def __init__(
        self,
        config: NodeConfig,
        sockets: Sockets,
        participant: Participant,
        after_cycle: Callable[[Node], None] | None = None,
    ) -> None:
        """:meth:`open` makes what it needs."""
        self.config = config
        self.sockets = sockets
        self.participant = participant
        self.lock = threading.RLock()
        self.guid_prefix = participant.prefix
        self.message_size = participant.config.message_size
        self._after_cycle = after_cycle
        self._recipients = Recipients()
        self._turns = ReceiveTurns(participant, sockets, self._recipients)
        self._naps = Naps()
        self._read_logs = self._turns.read_logs
        self._written_logs = WrittenLogs(self.guid_prefix, config.domain)
        self._wake_pipe = WakePipe()
        self._events: list[Event] = []
        self._thread: threading.Thread | None = None
        #: When the duty cycle looks at the clock again, if nothing wakes it.
        self.sleeps_until = 0
        self._steering = 0
        #: When a thread that steered and lingers has lingered enough; and whether our own looks whether it has.
        self._lingers_until = 0.0
        self._looks_often = False
        self._unsteered = threading.Event()
        self._unsteered.set()
        self._closing = False
        #: Whether this process was forked by the one that made the node.
        self.is_disowned = False
        self._warnings = EventWarnings(config)
        self._group = JoinedGroup(config, sockets, participant)
        #: The node that others see in a ROS graph; None: it is none.
        self._graph: RosGraph | None = None
        disowned_by_children(self)

    @classmethod
    def open(
        cls,
        config: NodeConfig,
        *,
        recalled: Iterable[Announcement] = (),
        after_cycle: Callable[[Node], None] | None = None,
    ) -> Node:
        """Bind sockets and make the participant; raises TransportError.

        ``recalled``: the participants that an earlier node of this GUID knew. ``after_cycle`` is called at the end of
        each duty cycle, under the lock.
        """
        with joining(config.domain), contextlib.ExitStack() as opened:
            sockets = Sockets.open(
                config.domain,
                interfaces.select(config.interface),
                multicast=config.multicast,
                receive_buffer=config.receive_buffer,
                participant_index=config.participant_index,
                reserved_ports=config.reserved_ports,
                ttl=config.multicast_ttl,
                multicast_interface=config.multicast_interface,
                send_buffer=config.send_buffer,
            )
            opened.callback(sockets.close)
            node = cls(config, sockets, join(config, sockets), after_cycle)
            opened.pop_all()
        node.participant.recall(recalled, now=time.monotonic_ns())
        node._join_graph()
        if peers.has_names(config.peers):
            threading.Thread(target=node._resolve_peers, name="rtps-peers", daemon=True).start()
        return node

    def start(self) -> Node:
        """Run the duty cycle in a daemon thread until :meth:`close`."""
        self._thread = threading.Thread(
            target=self._run, name=f"rtps-domain-{self.config.domain}", daemon=True
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Leave the domain with a goodbye, which disposes the participant, and close the sockets."""
        self._stop(goodbye=True)

    def abandon(self) -> None:
        """Close the sockets without a goodbye: a successor with the same GUID goes on where this node was."""
        self._stop(goodbye=False)

    def disown(self) -> None:
        """In a forked child: this node is the parent's, and is closed here (:mod:`.forked`)."""
        self.lock = threading.RLock()  # a thread of the parent may have held it
        self._closing, self._thread, self.is_disowned = True, None, True

    # --- endpoints -------------------------------------------------------------------------------

    def create_reader(self, spec: ReaderSpec, recipient: Recipient) -> StatefulReader:
        """A reader, which delivers to ``recipient`` from now on. Raises UsageError, PluginError, or TransportError
        where its multicast group cannot be joined."""
        congestion_control = load_congestion_control(spec.policy.congestion_control.kind, spec.topic)
        with self.lock:
            if (group := self._group.join()) is not None:
                spec = replace(spec, multicast=(group,))
            reader = self.participant.create_reader(
                spec, now=time.monotonic_ns(), congestion_control=congestion_control
            )
            self._recipients.add(reader, recipient)
            if self.config.ipc:
                self._read_logs.add_reader(reader)
            self._group.listen()
            if self._graph is not None:
                self._graph.add(reader.guid, writes=False)
                self._graph.publish(time.monotonic_ns())
            self.flush()
        self.wake()
        return reader

    def withdraw_reader(self, entity_key: int, *, keyed: bool) -> None:
        """An earlier node of this GUID had such a reader, and this one has not: no writer is to wait for it."""
        with self.lock:
            self.participant.withdraw_reader(entity_key, keyed=keyed, now=time.monotonic_ns())
            self.flush()

    def _join_graph(self) -> None:
        """Become a node of a ROS graph, if that is wanted."""
        if self.config.ros is None:
            return
        now = time.monotonic_ns()
        writer = self.participant.create_writer(graph_writer_spec(self.config.incarnation), now=now)
        self._graph = RosGraph(self.config.ros, self.guid_prefix, writer)
        self._graph.publish(now)

    def offer_room(self, reader: StatefulReader) -> None:
        """The recipient of a reader has room again: ask how much, and deliver what waits for it."""
        with self.lock:
            self._recipients.offer_room(reader)
            self.flush()

    def create_writer(self, spec: WriterSpec) -> BlockingWriter:
        """A writer with a blocking surface. Raises UsageError or PluginError."""
        policy = spec.policy
        interceptor = interceptor_of(spec)
        flow_control = load_flow_control(policy.flow_control, spec.topic)
        by_group = of_groups(policy.flow_control)
        multicast_flow_control = (
            None if by_group is None else load_flow_control(by_group, spec.topic, channel="multicast")
        )
        with self.lock:
            key, named = self._written_logs.create(spec, term_length(policy))
            try:
                writer = self.participant.create_writer(
                    spec if key is None else replace(spec, entity_key=key),
                    now=time.monotonic_ns(),
                    interceptor=interceptor,
                    flow_control=flow_control,
                    multicast_flow_control=multicast_flow_control,
                    log=named or unnamed_log(policy),
                )
            except BaseException:
                if named is not None:
                    remove(named)
                raise
            if named is not None:
                self._written_logs.add(writer, named, policy.flow_control)
            if self._graph is not None:
                self._graph.add(writer.guid, writes=True)
                self._graph.publish(time.monotonic_ns())
            self.flush()
        self.wake()
        self._check_batch(spec.topic, policy.batch, writer.intake.batch_bytes_max)
        return BlockingWriter(self, writer, spec.topic, asynchronous=policy.flow_controller is not None)

    def _check_batch(self, topic: str, batch: BatchPolicy, fits: int) -> None:
        wanted = min(batch.max_data_bytes, batch.auto_flush_size)
        if batch.enable and fits < wanted < INFINITE:
            _log.warning(
                "topic %r: max_data_bytes %d of a batch is more than a datagram of mtu %d holds: batches are no larger "
                "than %d bytes with what describes their samples",
                topic,
                wanted,
                self.message_size + interfaces.HEADERS,
                fits,
            )

    def delete_endpoint(self, guid: Guid) -> None:
        """Remove a reader, and let go of its recipient, or a writer. Raises UsageError."""
        with self.lock:
            self.participant.finish(time.monotonic_ns(), only=guid)
            self.flush(asynchronous=True)
            if unsent := self.participant.unsent_bytes(guid):
                _log.warning(
                    "domain %d: writer %s was closed while %d bytes waited for its readers or its flow controller: "
                    "they are not sent",
                    self.config.domain,
                    guid,
                    unsent,
                )
            self.participant.delete_endpoint(guid, now=time.monotonic_ns())
            self.flush()
            self._written_logs.remove(guid)
            self._read_logs.remove_reader(guid)
            self._recipients.remove(guid)
            if self._graph is not None:
                self._graph.remove(guid)
                self._graph.publish(time.monotonic_ns())
                self.flush()

    # --- the duty cycle ----------------------------------------------------------------------------

    def run_once(self, timeout: float) -> int:
        """Wait up to ``timeout`` seconds for something to do, then do it; returns the number of datagrams received."""
        poll = select.poll()  # a new one each time: poll objects refuse a second thread
        with self.lock:
            if self._closing:
                return 0
            for s in self.sockets.receivers:
                poll.register(s, select.POLLIN)
            poll.register(self._wake_pipe, select.POLLIN)
        for fd, _ in poll.poll(self._wait_ms(timeout)):
            if fd == self._wake_pipe.fileno():
                self._wake_pipe.clear()
        return self.do_work()

    def cycle(self, timeout: float) -> None:
        """:meth:`run_once` for the owner of a loop; after datagrams it may nap, so that more of them gather."""
        received = self.run_once(timeout)
        if self._steering:
            self.wake()  # who steers may wait for what was taken in here
        elif received:
            now, room = time.monotonic_ns(), self.sockets.granted_receive_buffer
            if nap := self._naps.after(received, self._turns.received_bytes, room=room, now=now):
                time.sleep(nap / NANOSECONDS)
                self._naps.woke(time.monotonic_ns() - now - nap)
                self.sockets.drain_bytes = self._naps.drain_bytes

    def do_work(self) -> int:
        """One duty cycle without waiting: receive, timers, send. Returns the number of datagrams received."""
        with self.lock:
            if self._closing:
                return 0
            received = self._turns.take()
            now = time.monotonic_ns()
            self._written_logs.conduct(now=now)
            if self._graph is not None:
                self._graph.publish(now)
            timer = self.participant.get_timer()
            if timer is not None and timer <= now:
                self.participant.handle_timer(now)
            self.flush(asynchronous=True)
            self._group.listen()
            self._collect_events()
            if self._after_cycle is not None:
                self._after_cycle(self)
        return received

    def flush(self, *, asynchronous: bool = False) -> int:
        """Send what the participant wants sent (the caller holds the lock); what asynchronous writers do, the duty
        cycle sends."""
        datagrams = self.participant.datagrams_to_send(time.monotonic_ns(), asynchronous=asynchronous)
        sent = self.sockets.send(datagrams)
        if waiting := self._written_logs.wake_readers():
            self.sockets.send(waiting)
        return sent

    @contextlib.contextmanager
    def steering(self, *, lingering: bool = False) -> Iterator[None]:
        """Meanwhile the calling thread runs the duty cycle, and the node's own thread stands aside.

        ``lingering``: it is likely to do so again at once, and until then nobody misses the node's own thread.
        """
        with self.lock:
            self._steering += 1
            self._unsteered.clear()
        try:
            yield
        finally:
            with self.lock:
                self._steering -= 1
                self._lingers_until = time.monotonic() + _LINGER_SECONDS if lingering else 0.0
                if not self._steering and not (lingering and self._looks_often):
                    self._unsteered.set()

    def wake(self) -> None:
        """Make a waiting duty cycle look again, for a timer may be due sooner."""
        self._wake_pipe.wake()

    @property
    def is_closed(self) -> bool:
        """Whether the node has left its domain."""
        return self._closing

    @property
    def runs_in_this_thread(self) -> bool:
        """Whether the calling thread is the node's own."""
        return threading.current_thread() is self._thread

    @property
    def send_errors(self) -> int:
        """Datagrams that could not be sent."""
        return self.sockets.send_errors

    def counts(self) -> dict[str, int]:
        """What the node counts for all endpoints together, by the labels of the counters file."""
        drops = {f"drop.{reason.value}": count for reason, count in self.participant.drops.items()}
        return {"writer.short_sends": self.sockets.short_sends, **drops}

    def send_failures(self, destinations: Container[Locator], since: int) -> list[str]:
        """The causes of those send errors after number ``since`` whose destination is among ``destinations``."""
        return self.sockets.failures(destinations, since)

    @property
    def changes(self) -> int:
        """How often what is known of others, their types included, has changed."""
        return self.participant.changes

    @property
    def drops(self) -> Mapping[DropReason, int]:
        """Messages and submessages that were dropped, by reason."""
        return self.participant.drops

    @property
    def receive_overflows(self) -> int:
        """Datagrams with samples that the kernel dropped because a receive buffer was full."""
        return self.sockets.overflows

    @property
    def announcements(self) -> list[Announcement]:
        """The last announcement of each remote participant."""
        return self.participant.announcements

    def first_writer(self, topic: str, qos: Qos, type_name: str | None = None) -> NamedType | None:
        """The type of the first writer that a reader with this QoS might match; None: there is none so far.

        A writer of another type than ``type_name`` counts only if none has that type.
        """
        writer = first_writer(self, topic, qos, type_name)
        return None if writer is None else NamedType(writer.type_name, is_keyed(writer.guid.entity))

    def offers(self, topic: str, qos: Qos, type_name: str | None = None) -> list[Qos]:
        """What the topic's writers in the partitions of ``qos`` offer, of this type if it is given."""
        return offers(self, topic, qos, type_name)

    def written_topics(self) -> set[str]:
        """The topics that remote writers which are known so far write."""
        with self.lock:
            return {each.topic for each in self.participant.remote_endpoints if each.kind == "writer"}

    def qos_of(self, guid: Guid) -> Qos | None:
        """The QoS of an endpoint, remote or ours; None if the endpoint is unknown."""
        return self.participant.qos_of(guid)

    def type_of(self, guid: Guid) -> Struct | None:
        """The type of a remote endpoint; None while it is unknown."""
        return self.participant.type_of(guid)

    def identity_of(self, guid: Guid) -> TypeIdentity | None:
        """What a remote writer calls its type, and the hash of it that the writer announces."""
        with self.lock:
            endpoint = self.participant.remote_endpoint(guid)
        return None if endpoint is None else TypeIdentity(endpoint.type_name, type_hash(endpoint))

    def assert_liveliness(self, writer: Guid | None = None) -> None:
        """Assert that our MANUAL_BY_PARTICIPANT writers live, or that this MANUAL_BY_TOPIC writer does."""
        with self.lock:
            self.participant.assert_liveliness(time.monotonic_ns(), writer)
            self.flush()
        self.wake()

    def events(self) -> list[Event]:
        """Events since the last call, oldest first; beyond EVENTS_MAX they are only counted (``drop.over_limit``)."""
        with self.lock:
            self._collect_events()
            taken, self._events = self._events, []
        return taken

    def incompatible(self, guid: Guid) -> Mapping[Guid, tuple[str, ...]]:
        """The endpoints on the topic of an endpoint of ours that do not match it, with the reasons."""
        with self.lock:
            return self.participant.incompatible(guid)

    # --- inside ------------------------------------------------------------------------------------

    def _wait_ms(self, timeout: float) -> float:
        with self.lock:
            now, timer = time.monotonic_ns(), self.participant.get_timer()
            if timer is not None:
                timeout = min(timeout, (timer - now) / NANOSECONDS)
            timeout = min(timeout, self._written_logs.patience() / NANOSECONDS)
            if self._turns.unfinished:
                timeout = 0.0
            if not self._read_logs.prepare_to_wait():
                timeout = 0.0
            timeout = max(0.0, timeout)
            self.sleeps_until = now + int(timeout * NANOSECONDS)
        return timeout * 1000

    def _run(self) -> None:
        while not self._closing:
            try:
                if self._is_needed():
                    self.cycle(_IDLE_SECONDS_MAX)
            except Exception:  # noqa: BLE001  (without this thread every lease would expire)
                if self._closing:
                    return
                _log.exception("the duty cycle of domain %d failed; it goes on", self.config.domain)
                time.sleep(0.1)  # never spin on a failure that repeats

    def _is_needed(self) -> bool:
        """Whether the node's own thread runs the duty cycle; if another one steers or lingers, after a while: no.

        A thread that lingers wakes nobody, which would get in its way with every write: this thread looks by itself.
        """
        with self.lock:
            left = self._lingers_until - time.monotonic()
            if not self._steering:
                if left <= 0:
                    return True
                self._unsteered.clear()
            self._looks_often = left > 0
        self._unsteered.wait(_LINGER_SECONDS if self._looks_often else _IDLE_SECONDS_MAX)
        return False

    def _collect_events(self) -> None:
        while (event := self.participant.next_event()) is not None:
            if self._graph is not None and getattr(event, "local", None) == self._graph.guid:
                continue  # the owner knows nothing of this writer
            if len(self._events) < EVENTS_MAX:
                self._events.append(event)
            else:
                self.participant.drops[DropReason.OVER_LIMIT] += 1
            self._read_logs.on_event(event, now=time.monotonic_ns())
            self._warnings.on_event(event)

    def _resolve_peers(self) -> None:
        known = self.participant.config.peers
        while True:
            time.sleep(peers.RESOLVE_PERIOD_NS / NANOSECONDS)
            if self._closing:
                return
            found = peers.resolve(self.config.peers, self.config.domain)
            if found and found != known:
                known = found
                with self.lock:
                    self.participant.set_peers(found)
                self.wake()

    def _stop(self, *, goodbye: bool) -> None:
        # Whatever is raised: a node that stays half would be there for ever. The lock is given back first.
        with contextlib.ExitStack() as leaving, self.lock:
            if self._closing:
                return
            leaving.callback(self._wake_pipe.close)
            leaving.callback(self.sockets.close)
            leaving.callback(self._join_thread)
            leaving.callback(self._close_logs)
            try:
                if goodbye:
                    self._say_goodbye()
            finally:
                self._closing = True

    def _say_goodbye(self) -> None:
        """Send what waits, and that the participant leaves; the caller holds the lock."""
        try:
            self.participant.finish(time.monotonic_ns())
            self.flush(asynchronous=True)
            if self.participant.queued_bytes:
                _log.warning(
                    "domain %d: %d bytes of asynchronous writers still waited for tokens and are not sent",
                    self.config.domain,
                    self.participant.queued_bytes,
                )
        finally:
            self.participant.close(time.monotonic_ns())
            self.flush()

    def _close_logs(self) -> None:
        with self.lock, contextlib.ExitStack() as closing:
            closing.callback(self._turns.close)
            closing.callback(self._written_logs.close)

    def _join_thread(self) -> None:
        self.wake()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)
