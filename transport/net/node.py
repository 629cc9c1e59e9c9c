"""One participant on real sockets, and its duty cycle.

A node is driven in one of two ways, with the same code: the receiver process calls :meth:`Node.cycle` in its own loop;
all other processes call :meth:`Node.start`, and a daemon thread calls it. A thread that waits for the network (for
space in a send window, for acknowledgements) runs the duty cycle itself meanwhile (`duty_cycle`), so that no thread
switch lies between a datagram and the thread that waits for it. One lock protects all state; it is held for a duty
cycle or a write, never while waiting.
"""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..log.named_logs import remove
from ..protocol.discovery.remote_participant import Announcement
from ..protocol.participant.endpoint_specs import ReaderSpec, WriterSpec
from ..protocol.participant.events import Event
from ..protocol.participant.participant import RtpsParticipant
from ..protocol.policies import BatchPolicy
from ..protocol.reading.reader import StatefulReader
from ..protocol.writing.flow import of_groups
from ..structure import INFINITE, NANOSECONDS, Guid
from . import interfaces, peers
from .binding import joining
from .blocking_writer import BlockingWriter
from .directory import Directory
from .domain_join import join
from .duty_cycle import DutyCycle
from .event_queue import EventQueue
from .forked import disowned_by_children
from .ipc_writing import WrittenLogs, term_length, unnamed_log
from .joined_multicast import JoinedGroup
from .node_config import NodeConfig
from .node_counters import NodeCounters
from .plugins import interceptor_of, load_congestion_control, load_flow_control
from .receive_coalescing import ReceiveCoalescing
from .receive_turns import ReceiveTurns
from .recipients import Recipient, Recipients
from .ros_graph import RosGraph, join_graph
from .sockets import Sockets
from .wake_pipe import WakePipe

_log = logging.getLogger(__name__)


class Node:
    """A participant with sockets; see the module's docstring for the threads that drive it."""

    def __init__(
        self,
        config: NodeConfig,
        sockets: Sockets,
        participant: RtpsParticipant,
        after_cycle: Callable[[Node], None] | None = None,
    ) -> None:
        """For :meth:`open`."""
        self.config = config
        self.sockets = sockets
        self.participant = participant
        self.lock = threading.RLock()
        self.guid_prefix = participant.prefix
        self.message_size = participant.config.message_size
        self._after_cycle = after_cycle
        self._recipients = Recipients()
        self._turns = ReceiveTurns(participant, sockets, self._recipients)
        self._coalescing = ReceiveCoalescing()
        self._read_logs = self._turns.read_logs
        self._written_logs = WrittenLogs(self.guid_prefix, config.domain)
        self._wake_pipe = WakePipe()
        self._events = EventQueue(config, participant, self._read_logs)
        #: When the duty cycle checks its timers again, if nothing wakes it.
        self.sleeps_until = 0
        #: Whether the node has left its domain.
        self.is_closed = False
        #: Whether this process is a fork of the one that made the node.
        self.is_disowned = False
        self.duty_cycle = DutyCycle(self, config.domain)
        self.directory = Directory(self, participant, config.domain)
        self.counters = NodeCounters(participant.drops, sockets)
        self.send_failures = sockets.send_failures
        self._group = JoinedGroup(config, sockets, participant)
        #: The participant's node in a ROS graph; None: it has none.
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
        node.participant.discovery.recall(recalled, now=time.monotonic_ns())
        node._graph = join_graph(config, node.participant, time.monotonic_ns())
        node._events.hidden = None if node._graph is None else node._graph.guid
        if peers.has_names(config.peers):
            threading.Thread(target=_resolve_peers, args=(node,), name="rtps-peers", daemon=True).start()
        return node

    def start(self) -> Node:
        """Run the duty cycle in a daemon thread until :meth:`close`."""
        self.duty_cycle.start()
        return self

    def close(self, *, dispose: bool = True) -> None:
        """Leave the domain: dispose the participant, and close the sockets."""
        # Whatever is raised: a node that is half closed would stay for ever. The lock is released first.
        with contextlib.ExitStack() as leaving, self.lock:
            if self.is_closed:
                return
            leaving.callback(self._wake_pipe.close)
            leaving.callback(self.sockets.close)
            leaving.callback(self.duty_cycle.join)
            leaving.callback(_close_logs, self.lock, self._turns, self._written_logs)
            try:
                if dispose:
                    self._dispose()
            finally:
                self.is_closed = True

    def _dispose(self) -> None:
        """Send what waits, and dispose the participant; the caller holds the lock."""
        try:
            self.participant.finish(time.monotonic_ns())
            self.flush(asynchronous=True)
            if self.participant.queued_bytes:
                _log.warning(
                    "domain %d: %d bytes of asynchronous writers are not sent: they still waited for tokens",
                    self.config.domain,
                    self.participant.queued_bytes,
                )
        finally:
            self.participant.close(time.monotonic_ns())
            self.flush()

    def abandon(self) -> None:
        """Close the sockets without disposing the participant: a successor with the same GUID continues."""
        self.close(dispose=False)

    def disown(self) -> None:
        """In a forked child: this node is the parent's, and is closed here (:mod:`.forked`)."""
        self.lock = threading.RLock()  # a thread of the parent may have held the lock
        self.is_closed, self.duty_cycle.thread, self.is_disowned = True, None, True

    # --- endpoints -------------------------------------------------------------------------------

    def create_reader(self, spec: ReaderSpec, recipient: Recipient) -> StatefulReader:
        """A reader, which delivers to ``recipient`` from now on. Raises UsageError, PluginError, or TransportError if
        its multicast group cannot be joined."""
        congestion_control = load_congestion_control(spec.policy.congestion_control.kind, spec.topic)
        with self.lock:
            if (group := self._group.join()) is not None:
                spec = replace(spec, multicast=(group,))
            reader = self.participant.create_reader(
                spec, now=time.monotonic_ns(), congestion_control=congestion_control
            )
            self._recipients.add_recipient(reader, recipient)
            if self.config.ipc:
                self._read_logs.add_reader(reader)
            self._group.listen()
            if self._graph is not None:
                self._graph.add_endpoint(reader.guid, writes=False)
                self._graph.publish(time.monotonic_ns())
            self.flush()
        self.wake()
        return reader

    def withdraw_reader(self, entity_key: int, *, keyed: bool) -> None:
        """Withdraw a reader that an earlier node of this GUID had and this one has not, so that no writer waits for
        it."""
        with self.lock:
            self.participant.withdraw_reader(entity_key, keyed=keyed, now=time.monotonic_ns())
            self.flush()

    def offer_room(self, reader: StatefulReader) -> None:
        """The recipient of a reader has space again: set the reader's window, and deliver the runs that it held."""
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
                self._written_logs.add_log(writer, named, policy.flow_control)
            if self._graph is not None:
                self._graph.add_endpoint(writer.guid, writes=True)
                self._graph.publish(time.monotonic_ns())
            self.flush()
        self.wake()
        _check_batch(spec.topic, policy.batch, writer.intake.batch_bytes_max, self.message_size)
        return BlockingWriter(self, writer, spec.topic, asynchronous=policy.flow_controller is not None)

    def delete_endpoint(self, guid: Guid) -> None:
        """Remove a reader, and release its recipient, or a writer. Raises UsageError."""
        with self.lock:
            self.participant.finish(time.monotonic_ns(), only=guid)
            self.flush(asynchronous=True)
            if unsent := self.participant.unsent_bytes(guid):
                _log.warning(
                    "domain %d: writer %s was closed: %d bytes are not sent that waited for its readers or its "
                    "flow controller",
                    self.config.domain,
                    guid,
                    unsent,
                )
            self.participant.delete_endpoint(guid, now=time.monotonic_ns())
            self.flush()
            self._written_logs.remove_log(guid)
            self._read_logs.remove_reader(guid)
            self._recipients.remove_recipient(guid)
            if self._graph is not None:
                self._graph.remove_endpoint(guid)
                self._graph.publish(time.monotonic_ns())
                self.flush()

    # --- the duty cycle ----------------------------------------------------------------------------

    def run_once(self, timeout: float) -> int:
        """Wait up to ``timeout`` seconds for something to do, then do it; returns the number of datagrams received."""
        poll = select.poll()  # a new one each time: poll objects refuse a second thread
        with self.lock:
            if self.is_closed:
                return 0
            for s in self.sockets.receivers:
                poll.register(s, select.POLLIN)
            poll.register(self._wake_pipe, select.POLLIN)
        for fd, _ in poll.poll(self._wait_ms(timeout)):
            if fd == self._wake_pipe.fileno():
                self._wake_pipe.clear()
        return self.do_work()

    def cycle(self, timeout: float) -> None:
        """Do :meth:`run_once` for the owner of a loop; after datagrams it may sleep, so that more of them gather."""
        received = self.run_once(timeout)
        if self.duty_cycle.steering_threads:
            self.wake()  # a thread that steers may wait for what was received here
        elif received:
            now, room = time.monotonic_ns(), self.sockets.granted_receive_buffer
            if coalescing_ns := self._coalescing.after(
                received, self._turns.received_bytes, room=room, now=now
            ):
                time.sleep(coalescing_ns / NANOSECONDS)
                self._coalescing.woke(time.monotonic_ns() - now - coalescing_ns)
                self.sockets.burst_bytes = self._coalescing.burst_bytes

    def do_work(self) -> int:
        """One duty cycle without waiting: receive, timers, send. Returns the number of datagrams received."""
        with self.lock:
            if self.is_closed:
                return 0
            received = self._turns.take_turns()
            now = time.monotonic_ns()
            self._written_logs.conduct(now=now)
            if self._graph is not None:
                self._graph.publish(now)
            timer = self.participant.get_timer()
            if timer is not None and timer <= now:
                self.participant.handle_timer(now)
            self.flush(asynchronous=True)
            self._group.listen()
            self._events.collect()
            if self._after_cycle is not None:
                self._after_cycle(self)
        return received

    def flush(self, *, asynchronous: bool = False) -> int:
        """Send what the participant has to send (the caller holds the lock); the duty cycle sends for asynchronous
        writers."""
        datagrams = self.participant.datagrams_to_send(time.monotonic_ns(), asynchronous=asynchronous)
        sent = self.sockets.send(datagrams)
        if waiting := self._written_logs.wake_readers():
            self.sockets.send(waiting)
        return sent

    def wake(self) -> None:
        """Make a waiting duty cycle check its timers again, since one may be due sooner."""
        self._wake_pipe.wake()

    def assert_liveliness(self, writer: Guid | None = None) -> None:
        """Assert that the MANUAL_BY_PARTICIPANT writers live, or that this MANUAL_BY_TOPIC writer does."""
        with self.lock:
            self.participant.assert_liveliness(time.monotonic_ns(), writer)
            self.flush()
        self.wake()

    def events(self) -> list[Event]:
        """Events since the last call, oldest first; beyond EVENTS_MAX they are only counted (``drop.over_limit``)."""
        with self.lock:
            return self._events.take()

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


def _resolve_peers(node: Node) -> None:
    """Resolve the names of peers again from time to time, until the node is closed."""
    known = node.participant.config.peers
    while True:
        time.sleep(peers.RESOLVE_PERIOD_NS / NANOSECONDS)
        if node.is_closed:
            return
        found = peers.resolve(node.config.peers, node.config.domain)
        if found and found != known:
            known = found
            with node.lock:
                node.participant.discovery.spdp.set_peers(found)
            node.wake()


def _close_logs(lock: threading.RLock, turns: ReceiveTurns, written_logs: WrittenLogs) -> None:
    with lock, contextlib.ExitStack() as closing:
        closing.callback(turns.close)
        closing.callback(written_logs.close)


def _check_batch(topic: str, batch: BatchPolicy, fits: int, message_size: int) -> None:
    wanted = min(batch.max_data_bytes, batch.auto_flush_size)
    if batch.enable and fits < wanted < INFINITE:
        _log.warning(
            "topic %r: max_data_bytes %d of a batch exceeds mtu %d; batches are limited to %d bytes including their "
            "metadata",
            topic,
            wanted,
            message_size + interfaces.HEADERS,
            fits,
        )
