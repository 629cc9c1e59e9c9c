"""One participant on real sockets: the duty cycle, and the thread that runs it where nobody else does.

A node is driven in one of two ways, with the same code: the receiver process calls :meth:`Node.cycle` in
its own loop; anybody else calls :meth:`Node.start`, and a daemon thread does. A thread that waits for the
network (for room in a send window, for acknowledgements) takes the duty cycle over meanwhile
(:meth:`Node.steering`): no switch of threads between a datagram and who waits for it. All state is behind one
lock, held for a duty cycle or a write, never while waiting.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..errors import DropReason
from ..limits import EVENTS_MAX, FLOW_CONTROLLER_BYTES_MAX, MESSAGE_SIZE_MAX, UDP_PAYLOAD_MAX
from ..log.image import Span
from ..log.publication_log import PublicationLog
from ..log.publications import remove
from ..protocol.endpoint_info import ContentFilterProperty
from ..protocol.events import Event, MessageTooLarge
from ..protocol.participant import Participant, ParticipantConfig
from ..protocol.policies import PUBLICATION_POLICY, BatchPolicy, PublicationPolicy, ReaderPolicy
from ..protocol.reading.reader import StatefulReader
from ..protocol.writing.publication import TERM_LENGTH
from ..qos import Qos
from ..structure import NANOSECONDS, VENDOR_ID, Guid, Locator
from ..types.model import Struct
from ..wire.samples import U8
from . import interfaces, peers
from .on_host import ReadLogs
from .plugins import load_flow_control, load_interceptor
from .publishing import PublishingWriter
from .sockets import Sockets
from .wake_pipe import WakePipe
from .written_logs import WrittenLogs

_log = logging.getLogger(__name__)

#: After a drain of several small datagrams the duty cycle naps this long, so that the next one finds many.
_NAP_SECONDS: Final = 0.0002
_SMALL_BYTES: Final = 4096
_IDLE_SECONDS_MAX: Final = 1.0
#: Senders of too large messages that are named in the log, each once.
_SENDERS_NAMED_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """How a participant sits on the network. Durations in ns, sizes in bytes."""

    domain: int = 0
    interface: str | None = None
    peers: tuple[str, ...] = ()
    participant_name: str = "spark-rtps"
    multicast: bool = True
    lease_duration: int = 10 * NANOSECONDS
    receive_buffer: int = 32 << 20
    #: Bytes of an IP packet to fill at most; None: what the interfaces take unfragmented.
    mtu: int | None = None
    #: A longer RTPS message is dropped.
    message_size_max: int = UDP_PAYLOAD_MAX
    guid_prefix: bytes | None = None
    #: How many participants have had this GUID before.
    incarnation: int = 0
    #: Readers read the publication logs of our writers on this host that let them.
    ipc: bool = False
    #: Ask for the types of all endpoints of the domain.
    resolve_types: bool = False


def new_guid_prefix() -> bytes:
    """A prefix nobody else has: vendor id, process id, random bits (RTPS 2.5 §8.2.4.2)."""
    return VENDOR_ID + (os.getpid() & 0xFFFF).to_bytes(2, "big") + os.urandom(8)


class Node:
    """A participant with sockets; see the module's text for who drives it."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.lock = threading.RLock()
        self.guid_prefix = config.guid_prefix or new_guid_prefix()
        #: Called under the lock after each drain, before the receive buffer is used again.
        self.on_received: Callable[[], None] | None = None
        #: Called under the lock before each drain is handed to the protocol.
        self.before_receive: Callable[[], None] | None = None
        self._events: list[Event] = []
        self._thread: threading.Thread | None = None
        #: When the duty cycle looks at the clock again, if nothing wakes it.
        self.sleeps_until = 0
        self._received_bytes = 0
        self._steering = 0
        self._unsteered = threading.Event()
        self._unsteered.set()
        self._closing = False
        self._too_large_from: set[str] = set()

    def open(self) -> Node:
        """Bind sockets and make the participant; raises TransportError."""
        self.sockets = Sockets(
            self.config.domain,
            interfaces.select(self.config.interface),
            multicast=self.config.multicast,
            receive_buffer=self.config.receive_buffer,
        )
        self.sockets.open()
        if self.sockets.granted_receive_buffer < self.config.receive_buffer:
            _log.warning(
                "the kernel grants %d bytes of receive buffer of the %d asked for; raise net.core.rmem_max",
                self.sockets.granted_receive_buffer,
                self.config.receive_buffer,
            )
        self.message_size = self._message_size()
        self._read_logs = ReadLogs(self._receive_frames)
        self._written_logs = WrittenLogs(self.guid_prefix, self.config.domain)
        self._wake_pipe = WakePipe()
        c = self.config
        self.participant = Participant(
            ParticipantConfig(
                guid_prefix=self.guid_prefix,
                incarnation=c.incarnation,
                domain=c.domain,
                name=c.participant_name,
                metatraffic_unicast=self.sockets.metatraffic_unicast,
                metatraffic_multicast=self.sockets.metatraffic_multicast,
                default_unicast=self.sockets.default_unicast,
                default_multicast=(),
                peers=peers.resolve(c.peers, c.domain),
                announce_multicast=self.sockets.multicast,
                lease_duration=c.lease_duration,
                message_size_max=c.message_size_max,
                message_size=self.message_size,
                resolve_types=c.resolve_types,
            ),
            now=time.monotonic_ns(),
        )
        if peers.has_names(c.peers):
            threading.Thread(target=self._resolve_peers, name="rtps-peers", daemon=True).start()
        return self

    def _message_size(self) -> int:
        """Bytes of the RTPS messages to send: as many as no interface on the way out fragments, or as asked."""
        unfragmented = interfaces.unfragmented(self.sockets.interfaces)
        if self.config.mtu is None:
            return min(MESSAGE_SIZE_MAX, unfragmented)
        wanted = self.config.mtu - interfaces.HEADERS
        if wanted > unfragmented:
            narrow = min(self.sockets.interfaces, key=lambda i: i.mtu)
            _log.warning(
                "mtu %d: interface %s has an MTU of %d and fragments larger packets; the loss of one fragment loses "
                "the whole datagram. Lower the option mtu, or leave it out",
                self.config.mtu,
                narrow.name,
                narrow.mtu,
            )
        return min(MESSAGE_SIZE_MAX, wanted)

    def start(self) -> Node:
        """Run the duty cycle in a daemon thread until :meth:`close`."""
        if not hasattr(self, "sockets"):
            self.open()
        self._thread = threading.Thread(
            target=self._run, name=f"rtps-domain-{self.config.domain}", daemon=True
        )
        self._thread.start()
        return self

    def close(self) -> None:
        """Say goodbye to the domain (dispose the participant) and give the sockets back."""
        self._stop(goodbye=True)

    def abandon(self) -> None:
        """Give the sockets back without a word: whoever comes next with our GUID goes on where we were."""
        self._stop(goodbye=False)

    # --- endpoints -------------------------------------------------------------------------------

    def create_reader(
        self,
        topic: str,
        type_name: str,
        qos: Qos,
        *,
        keyed: bool,
        entity_key: int | None = None,
        resume: Mapping[Guid, int] | None = None,
        policy: ReaderPolicy | None = None,
        type: Struct | None = None,
        awaits_types: bool = False,
        content_filter: ContentFilterProperty | None = None,
    ) -> StatefulReader:
        with self.lock:
            reader = self.participant.create_reader(
                topic,
                type_name,
                qos,
                keyed=keyed,
                entity_key=entity_key,
                resume=resume,
                policy=policy,
                type=type,
                awaits_types=awaits_types,
                content_filter=content_filter,
                now=time.monotonic_ns(),
            )
            if self.config.ipc:
                self._read_logs.add_reader(reader)
            self.flush()
        self.wake()
        return reader

    def create_writer(
        self,
        topic: str,
        type_name: str,
        qos: Qos,
        *,
        keyed: bool = False,
        policy: PublicationPolicy = PUBLICATION_POLICY,
        type: Struct | None = None,
    ) -> PublishingWriter:
        """A writer with a blocking surface; see :class:`PublishingWriter`. Raises UsageError."""
        interceptor = None if policy.interceptor is None else load_interceptor(policy.interceptor)
        flow_control = load_flow_control(policy.flow_control)
        with self.lock:
            key, named = self._written_logs.create(
                topic,
                type_name,
                qos,
                keyed=keyed,
                policy=policy.flow_control,
                term_length=_term_length(policy),
                type=type,
            )
            try:
                writer = self.participant.create_writer(
                    topic,
                    type_name,
                    qos,
                    keyed=keyed,
                    entity_key=key,
                    policy=policy,
                    interceptor=interceptor,
                    flow_control=flow_control,
                    log=named or _publication_log(policy),
                    type=type,
                    now=time.monotonic_ns(),
                )
            except BaseException:
                if named is not None:
                    remove(named)
                raise
            if named is not None:
                self._written_logs.add(writer, named, policy.flow_control)
            self.flush()
        self.wake()
        self._check_batch(topic, policy.batch, writer.batch_bytes_max)
        return PublishingWriter(self, writer, topic, asynchronous=policy.flow_controller is not None)

    def _check_batch(self, topic: str, batch: BatchPolicy, fits: int) -> None:
        wanted = min((size for size in (batch.max_data_bytes, batch.auto_flush_size) if size > 0), default=0)
        if batch.enable and wanted > fits:
            _log.warning(
                "topic %r: batch.max_data_bytes %d is more than a datagram of mtu %d holds: batches are no larger than "
                "%d bytes with what describes their samples",
                topic,
                wanted,
                self.message_size + interfaces.HEADERS,
                fits,
            )

    def delete_endpoint(self, guid: Guid) -> None:
        with self.lock:
            self.participant.flush(time.monotonic_ns())
            self.flush()
            self.participant.delete_endpoint(guid, now=time.monotonic_ns())
            self.flush()
            self._written_logs.remove(guid)
            self._read_logs.remove_reader(guid)

    # --- the duty cycle ----------------------------------------------------------------------------

    def run_once(self, timeout: float) -> int:
        """Wait up to ``timeout`` seconds for something to do, then do it; returns datagrams received."""
        poll = select.poll()  # one of its own: poll objects refuse a second thread
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
        """:meth:`run_once` as the owner of a loop calls it: small datagrams are let gather meanwhile."""
        received = self.run_once(timeout)
        if received > 1 and self._received_bytes < received * _SMALL_BYTES:
            time.sleep(_NAP_SECONDS)

    def do_work(self) -> int:
        """One duty cycle without waiting: receive, timers, send. Returns datagrams received."""
        received = 0
        with self.lock:
            if self._closing:
                return 0
            self._received_bytes = 0
            for source in self.sockets.receivers:
                spans = self.sockets.drain(source)
                # What a datagram tells of may lie in a log: that comes first.
                received += self._receive_from_logs()
                if spans:
                    received += len(spans)
                    self._received_bytes += spans[-1][1]
                    if self.before_receive is not None:
                        self.before_receive()
                    self._receive(self.sockets.buffer, spans)
            now = time.monotonic_ns()
            self._written_logs.conduct(now=now)
            timer = self.participant.get_timer()
            if timer is not None and timer <= now:
                self.participant.handle_timer(now)
            self.flush(asynchronous=True)
            self._collect_events()
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
    def steering(self) -> Iterator[None]:
        """While this lasts the calling thread runs the duty cycle, and the node's own thread stands aside."""
        with self.lock:
            self._steering += 1
            self._unsteered.clear()
        try:
            yield
        finally:
            with self.lock:
                self._steering -= 1
                if not self._steering:
                    self._unsteered.set()

    def wake(self) -> None:
        """Make a waiting duty cycle look again (a timer may have come nearer)."""
        self._wake_pipe.wake()

    @property
    def is_closed(self) -> bool:
        """It has left its domain."""
        return self._closing

    @property
    def send_errors(self) -> int:
        """Datagrams that could not be sent."""
        return self.sockets.send_errors

    def counts(self) -> dict[str, int]:
        """What is counted of all endpoints together, by the labels of the counters file."""
        drops = {f"drop.{reason.value}": count for reason, count in self.participant.drops.items()}
        return {"writer.short_sends": self.sockets.short_sends, **drops}

    def send_failures(self, destinations: Container[Locator], since: int) -> list[str]:
        """What went wrong with those of them that were for ``destinations``, from number ``since`` on."""
        return self.sockets.failures(destinations, since)

    def assert_liveliness(self, writer: Guid | None = None) -> None:
        """Our MANUAL_BY_PARTICIPANT writers live, or this MANUAL_BY_TOPIC one does."""
        with self.lock:
            self.participant.assert_liveliness(time.monotonic_ns(), writer)
            self.flush()
        self.wake()

    def events(self) -> list[Event]:
        """Events since the last call, oldest first; what is more than EVENTS_MAX is counted (``drop.over_limit``)."""
        with self.lock:
            self._collect_events()
            taken, self._events = self._events, []
        return taken

    def incompatible(self, guid: Guid) -> Mapping[Guid, tuple[str, ...]]:
        """The endpoints on the topic of one of ours that do not match it, with the reasons."""
        with self.lock:
            return self.participant.incompatible(guid)

    # --- inside ------------------------------------------------------------------------------------

    def _receive(self, data: U8, spans: Sequence[Span]) -> None:
        """Hand messages to the protocol, and what they bring to its owner."""
        self.participant.receive(data, spans, now=time.monotonic_ns())
        if self.on_received is not None:
            self.on_received()

    def _receive_from_logs(self) -> int:
        """Read what writers on this host have published; returns the messages."""
        logs = self._read_logs
        if not logs.writers:
            return 0
        if self.before_receive is not None:
            self.before_receive()
        messages, nbytes = logs.read(now=time.monotonic_ns())
        self._received_bytes += nbytes
        return messages

    def _receive_frames(self, data: U8, spans: Sequence[Span]) -> None:
        self._receive(data, spans)
        if self.before_receive is not None:
            self.before_receive()  # there is less room now

    def _wait_ms(self, timeout: float) -> float:
        with self.lock:
            now, timer = time.monotonic_ns(), self.participant.get_timer()
            if timer is not None:
                timeout = min(timeout, (timer - now) / NANOSECONDS)
            timeout = min(timeout, self._written_logs.patience() / NANOSECONDS)
            if not self._read_logs.prepare_to_wait():
                timeout = 0.0
            timeout = max(0.0, timeout)
            self.sleeps_until = now + int(timeout * NANOSECONDS)
        return timeout * 1000

    def _run(self) -> None:
        while not self._closing:
            try:
                if not self._unsteered.wait(_IDLE_SECONDS_MAX):
                    continue
                self.cycle(_IDLE_SECONDS_MAX)
            except Exception:  # noqa: BLE001  (without this thread every lease would run out)
                if self._closing:
                    return
                _log.exception("the duty cycle of domain %d failed; it goes on", self.config.domain)
                time.sleep(0.1)  # never spin on a failure that repeats

    def _collect_events(self) -> None:
        while (event := self.participant.next_event()) is not None:
            if len(self._events) < EVENTS_MAX:
                self._events.append(event)
            else:
                self.participant.drops[DropReason.OVER_LIMIT] += 1
            self._read_logs.on_event(event, now=time.monotonic_ns())
            if isinstance(event, MessageTooLarge) and len(self._too_large_from) < _SENDERS_NAMED_MAX:
                if event.sender not in self._too_large_from:
                    self._too_large_from.add(event.sender)
                    _log.warning(
                        "a message of %d bytes from %s is larger than message_size_max, %d: such are dropped",
                        event.size,
                        event.sender,
                        self.config.message_size_max,
                    )

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
        with self.lock:
            if self._closing or not hasattr(self, "sockets"):
                return
            if goodbye:
                self.participant.flush(time.monotonic_ns())
                self.flush(asynchronous=True)
                if self.participant.queued_bytes:
                    _log.warning(
                        "domain %d: %d bytes of asynchronous writers still waited for tokens and are not sent",
                        self.config.domain,
                        self.participant.queued_bytes,
                    )
                self.participant.close(time.monotonic_ns())
                self.flush()
            self._closing = True
            self._written_logs.close()
            self._read_logs.close()
        self.wake()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout=5)
        self.sockets.close()
        self._wake_pipe.close()


def _publication_log(policy: PublicationPolicy) -> PublicationLog | None:
    """Where a writer publishes that has no named log; None: in memory that is no log."""
    return PublicationLog.create(_term_length(policy)) if policy.flow_control.term_length else None


def _term_length(policy: PublicationPolicy) -> int:
    # What waits for tokens of a flow controller lies in the log, behind the sender.
    least = 4 * FLOW_CONTROLLER_BYTES_MAX if policy.flow_controller else 0
    return max(policy.flow_control.term_length or TERM_LENGTH, least)
