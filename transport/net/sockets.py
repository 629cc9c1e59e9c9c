"""The UDP sockets of one participant (:mod:`.binding`), read in place.

Receiving: the datagrams of one burst lie one behind another in a single buffer, so that the protocol can take a run of
samples that spans many of them in one NumPy pass. Many small datagrams share a system call (`offload`).
"""

from __future__ import annotations

import errno
import logging
import socket
import struct
from collections.abc import Collection, Iterable
from itertools import chain
from typing import Final, Self

import numpy as np

from ..limits import UDP_PAYLOAD_MAX
from ..protocol.outgoing import OutgoingDatagrams, message_spans
from ..protocol.receiving.message_receiver import Span
from ..structure import (
    SPDP_MULTICAST_ADDRESS,
    Locator,
    spdp_multicast_port,
)
from ..wire.large_datagrams import SMALL_BYTES
from ..wire.samples import U8
from .binding import BoundSockets, bind
from .interfaces import Interface
from .many_datagrams import MANY_ROOM, ManyDatagrams
from .multicast_filter import listen_to
from .multicast_membership import device_number, join_again, join_group
from .offload import (
    CONTROL_SIZE,
    GSO_CAPACITY,
    SEGMENT_SIZE_MAX,
    GsoBuffer,
    Routes,
    control,
    gso_buffers,
    is_gso,
    pieces,
    receive_coalesced,
    take_apart,
    takes_gso,
)
from .send_failures import SendFailures

_log = logging.getLogger(__name__)

#: Limit of a burst before the protocol processes it: most costs of a burst are the same for 16 datagrams and 64, but
#: longer ones have left the processor's caches when they are copied.
BURST_BYTES: Final = 1 << 21
#: Limit for large datagrams under CPU contention, when caches are cold anyway.
CONTENDED_BURST_BYTES: Final = 1 << 23
#: Read up to this many extra bytes of large datagrams to end on a sample boundary (a datagram shorter than its
#: predecessor): whole samples cost least.
_RECEIVE_ON: Final = BURST_BYTES // 2
#: Limit for GSO buffers of small datagrams, each of which is one step: longer bursts pay off.
_GSO_BYTES: Final = 2 * BURST_BYTES
#: Bytes of a socket's send buffer.
SEND_BUFFER: Final = 4 << 20
#: Bytes that an empty datagram counts as: a burst of nothing else must end, too.
_EMPTY_TAKES: Final = 8
#: Linux: an array of a socket's numbers, of which the ninth counts datagrams that were dropped on arrival.
_SO_MEMINFO: Final = 55
_MEMINFO: Final = struct.Struct("=9I")


class Sockets:
    """Sends and receives datagrams."""

    def __init__(self, bound: BoundSockets) -> None:
        self.domain = bound.domain
        self.interfaces = bound.interfaces
        self.participant_index = bound.participant_index
        self.granted_receive_buffer = bound.granted_receive_buffer
        self.granted_send_buffer = bound.granted_send_buffer
        #: Whether some interface takes multicast.
        self.multicast = bound.group is not None
        self.metatraffic = bound.metatraffic
        self.user = bound.user
        self.receivers = [self.user, self.metatraffic]
        #: The socket for multicast announcements; None: there is none.
        self.discovery = bound.group
        if bound.group is not None:
            self.receivers.append(bound.group)
        self._senders = bound.senders
        self._devices = [device_number(*each) for each in zip(self._senders, self.interfaces, strict=True)]
        #: The interfaces that take multicast: all, or one.
        self.multicast_interfaces = bound.multicast_interfaces
        #: The senders to a group through an interface, by its address; "": through all of these.
        self._through = {each.address: slice(i, i + 1) for i, each in enumerate(self.interfaces)}
        only = self.multicast_interfaces[0].address if len(self.multicast_interfaces) == 1 else ""
        self._through[""] = self._through.get(only, slice(None))
        self._bound = [*self.receivers, *self._senders]
        #: The sockets for samples that are sent to groups.
        self._groups: list[socket.socket] = []
        self._filtered = False
        #: Limit of a burst of large datagrams.
        self.burst_bytes = BURST_BYTES
        self.renew_buffer()
        #: Datagrams sent.
        self.sent = 0
        self.send_failures = SendFailures()
        #: System calls that took fewer datagrams than they were given.
        self.short_sends = 0
        self._routes = Routes()
        self._sends_gso = takes_gso(self._senders[0])
        #: The sockets for samples whose GSO buffers are returned in one piece.
        self._gso_sockets: set[socket.socket] = set()
        #: The reader of many datagrams, by socket for samples.
        self._many = {self.user: ManyDatagrams.where_possible()}
        self._last_error = 0

    @classmethod
    def open(
        cls,
        domain: int,
        interfaces: list[Interface],
        *,
        multicast: bool,
        receive_buffer: int,
        participant_index: int | None = None,
        reserved_ports: Collection[int] = (),
        ttl: int = 1,
        multicast_interface: str | None = None,
        send_buffer: int = SEND_BUFFER,
    ) -> Self:
        """As :func:`~.binding.bind`, which raises TransportError if ports or interfaces are not available."""
        return cls(
            bind(
                domain,
                interfaces,
                multicast=multicast,
                receive_buffer=receive_buffer,
                send_buffer=send_buffer,
                participant_index=participant_index,
                reserved_ports=reserved_ports,
                ttl=ttl,
                multicast_interface=multicast_interface,
            )
        )

    def join(self, group: Locator, receive_buffer: int) -> bool:
        """Receive samples that are sent to a group from now on; False: no interface takes multicast.

        Raises TransportError if the port is not available.
        """
        s = join_group(self.domain, group, self.multicast_interfaces, receive_buffer)
        if s is not None:
            self._many[s] = ManyDatagrams.where_possible()
            self._bound.append(s)
            self.receivers.append(s)
            self._groups.append(s)
        return s is not None

    def listen_to(self, prefixes: Collection[bytes]) -> None:
        """Receive from groups only the messages of these participants."""
        self._filtered = True
        for group in self._groups:
            listen_to(group, prefixes)

    def close(self) -> None:
        for s in self._bound:
            s.close()

    @property
    def metatraffic_unicast(self) -> tuple[Locator, ...]:
        port = self.metatraffic.getsockname()[1]
        return tuple(Locator(i.address, port) for i in self.interfaces)

    @property
    def default_unicast(self) -> tuple[Locator, ...]:
        port = self.user.getsockname()[1]
        return tuple(Locator(i.address, port) for i in self.interfaces)

    @property
    def metatraffic_multicast(self) -> tuple[Locator, ...]:
        if not self.multicast:
            return ()
        return (Locator(SPDP_MULTICAST_ADDRESS, spdp_multicast_port(self.domain)),)

    @property
    def overflows(self) -> int:
        """Datagrams with samples that the kernel dropped because a receive buffer was full; 0 if it does not count
        them.

        The kernel's count includes datagrams dropped by filters, so that sockets with one (:meth:`listen_to`) are left
        out.
        """
        try:
            return sum(map(_dropped, [self.user, *(() if self._filtered else self._groups)]))
        except OSError:
            return 0

    def renew_buffer(self) -> None:
        """Read into another buffer from now on: the one before is still in use."""
        self.buffer: U8 = np.empty(CONTENDED_BURST_BYTES + MANY_ROOM, np.uint8)
        self._view = memoryview(self.buffer)

    def drain(self, source: socket.socket) -> list[Span]:
        """Receive the datagrams that wait, up to the buffer: (start, stop, source address) of each datagram in
        ``buffer``."""
        spans: list[Span] = []
        many = self._many.get(source)
        try:
            if source in self._gso_sockets:
                self._receive_coalesced(source, spans)
            elif many is not None and many.expects_many:
                many.drain(source, self.buffer, BURST_BYTES, spans)
            else:
                self._drain(source, spans)
        except BlockingIOError:
            pass
        except OSError as error:
            # An ICMP "port unreachable" for a datagram sent earlier shows up here; nothing was received.
            if error.errno != errno.ECONNREFUSED:
                _log.warning("receiving failed: %s", error)
        if source in self._many and source not in self._gso_sockets:
            if many is not None and not many.expects_many:
                many.note_spans(spans)
            if is_gso(self.buffer, spans) and receive_coalesced(source):
                self._gso_sockets.add(source)
        return spans

    def _drain(self, source: socket.socket, spans: list[Span]) -> None:
        view, at, before = self._view, 0, 0
        receive, enough = source.recvfrom_into, self.burst_bytes
        while at + UDP_PAYLOAD_MAX <= enough + _RECEIVE_ON:
            size, address = receive(view[at:])
            spans.append((at, at + size, address[0]))
            at += (size + 7) & ~7 or _EMPTY_TAKES
            # Of small datagrams, each of which is one step, a burst never takes more than this.
            if at >= BURST_BYTES and (
                max(size, before) < SMALL_BYTES or (at >= enough and size < max(before, SMALL_BYTES))
            ):
                break
            before = size

    def _receive_coalesced(self, source: socket.socket, spans: list[Span]) -> None:
        view, at = self._view, 0
        receive = source.recvmsg_into
        while at + GSO_CAPACITY <= _GSO_BYTES:
            size, control, _, address = receive((view[at:],), CONTROL_SIZE)
            stop = take_apart(self.buffer, at, size, control, address[0], spans)
            at = (stop + 7) & ~7 if size else at + _EMPTY_TAKES

    def send(self, datagrams: Iterable[OutgoingDatagrams]) -> int:
        """Send each datagram to its destinations, GSO buffers in one call; returns the number sent. Failures are
        counted."""
        before = self.sent
        senders = self._senders
        for gso_buffer in gso_buffers(datagrams):
            alone = gso_buffer[1] == gso_buffer[2]
            for to in gso_buffer[0][0].destinations:
                # A unicast destination takes the kernel's route; a multicast one goes out of every interface, or of the
                # one where its readers are.
                for sender in senders[self._through[to.via]] if to.is_multicast else senders[:1]:
                    if gso_buffer[1] > SEGMENT_SIZE_MAX and not alone:
                        self._send_large(sender, gso_buffer, to)
                    elif alone or not self._send_gso(sender, gso_buffer, to):
                        self._send_each(sender, gso_buffer, to)
        return self.sent - before

    def _send_gso(self, sender: socket.socket, gso_buffer: GsoBuffer, to: Locator) -> bool:
        """Send a GSO buffer in one call; False: the kernel did not take all of it."""
        datagrams, segment, nbytes = gso_buffer
        if not self._sends_gso or not self._routes.takes(sender, to, segment):
            return False
        buffers = pieces([buffer for each in datagrams for buffer in each.buffers], nbytes)
        try:
            size = sender.sendmsg(buffers, control(segment), 0, (to.address, to.port))
        except OSError as error:
            self._routes.refused(sender, to, segment, error)
            return False
        self.sent += -(-nbytes // segment)
        self.short_sends += size < nbytes
        return True

    def _send_large(self, sender: socket.socket, gso_buffer: GsoBuffer, to: Locator) -> None:
        """Send messages that are too long for the kernel to cut, one after another."""
        (each,), segment, nbytes = gso_buffer
        view, address = memoryview(each.buffers[0]), (to.address, to.port)
        send, sent = sender.sendto, 0
        for at, stop in message_spans(nbytes, segment, each.group):
            datagram = view[at:stop]
            try:
                self.short_sends += send(datagram, address) < len(datagram)
                sent += 1
            except OSError as error:
                self._send_failed(sender, error, to)
        self.sent += sent

    def _send_each(self, sender: socket.socket, gso_buffer: GsoBuffer, to: Locator) -> None:
        datagrams, size, left = gso_buffer
        for datagram in chain.from_iterable(each.apart() for each in datagrams):
            size = min(size, left)
            left -= size
            try:
                sent = sender.sendmsg(pieces(datagram.buffers, size), (), 0, (to.address, to.port))
                self.sent += 1
                self.short_sends += sent < size
            except OSError as error:
                self._send_failed(sender, error, to)

    def _send_failed(self, sender: socket.socket, error: OSError, to: Locator) -> None:
        cause = f"sending to {to} failed: {error}"
        self.send_failures.count_failure(to, cause)
        if error.errno == errno.ENODEV and to.is_multicast:
            self._join_again(sender)
        if error.errno not in (self._last_error, errno.ECONNREFUSED):
            self._last_error = error.errno or 0
            _log.warning("%s", cause)

    def _join_again(self, sender: socket.socket) -> None:
        """The device of an interface was removed. When another one replaces it, discovery by multicast has to work
        again."""
        number = self._senders.index(sender)
        interface, before = self.interfaces[number], self._devices[number]
        groups = [s for s in (self.discovery, *self._groups) if s is not None]
        if join_again(sender, interface, groups if interface in self.multicast_interfaces else [], before):
            self._devices[number] = device_number(sender, interface)


def _dropped(s: socket.socket) -> int:
    found = s.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
    return int(_MEMINFO.unpack(found)[8]) if len(found) == _MEMINFO.size else 0
