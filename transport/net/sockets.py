"""The UDP sockets of one participant: ports by the specification, drained in place.

Receiving: datagrams of one drain lie one behind another in a single buffer, so that the protocol can take a
run of samples that spans many of them in one NumPy pass. Many small datagrams share a system call (`offload`).
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import deque
from collections.abc import Container, Iterable
from itertools import chain
from typing import Final

import numpy as np

from ..errors import TransportError
from ..limits import UDP_PAYLOAD_MAX
from ..protocol.outgoing import Datagram
from ..structure import (
    DOMAIN_MAX,
    SPDP_MULTICAST_ADDRESS,
    Locator,
    metatraffic_unicast_port,
    spdp_multicast_port,
    user_unicast_port,
)
from ..wire.samples import U8
from .interfaces import Interface
from .offload import (
    CONTROL_SIZE,
    TRAIN_ROOM,
    Routes,
    Span,
    Train,
    control,
    is_train,
    pieces,
    receive_trains,
    take_apart,
    takes_trains,
    trains,
)

_log = logging.getLogger(__name__)

_SO_RCVBUFFORCE: Final = 33
_SO_SNDBUFFORCE: Final = 32
#: What a drain may gather before the protocol sees it; small enough to stay in a core's cache.
DRAIN_BYTES: Final = 1 << 20
_PARTICIPANT_INDEX_MAX: Final = 120  # Domain d's ports end where domain d+1's begin: (250 - 10) / 2
_SEND_BUFFER: Final = 4 << 20
#: Failures of which the destination and the cause are kept.
_FAILURES_KEPT: Final = 1_024


class Sockets:
    """Unicast and multicast receive sockets, and one send socket per interface."""

    def __init__(
        self, domain: int, interfaces: list[Interface], *, multicast: bool, receive_buffer: int
    ) -> None:
        if not 0 <= domain <= DOMAIN_MAX:
            raise TransportError(f"domain {domain} has no UDP ports; use 0 to {DOMAIN_MAX}")
        self.domain = domain
        self.interfaces = interfaces
        self._receive_buffer = receive_buffer
        self._open: list[socket.socket] = []
        self.buffer: U8 = np.empty(DRAIN_BYTES, np.uint8)
        self._view = memoryview(self.buffer)
        self.participant_index = 0
        #: Datagrams sent.
        self.sent = 0
        self.send_errors = 0
        #: System calls that took less than they were given.
        self.short_sends = 0
        self._routes = Routes()
        self._sends_trains = False
        self._receives_trains = False
        #: The last of them: (``send_errors`` with it, destination, what went wrong).
        self._failures: deque[tuple[int, Locator, str]] = deque(maxlen=_FAILURES_KEPT)
        self.multicast = multicast
        self.granted_receive_buffer = 0
        self._last_error = 0

    def open(self) -> None:
        """Bind everything; raises TransportError when ports or interfaces cannot be had."""
        try:
            self.metatraffic, self.user = self._bind_unicast()
            self._senders = [self._sender(i.address) for i in self.interfaces]
            self._sends_trains = takes_trains(self._senders[0])
            self.receivers = [self.user, self.metatraffic]
            group = self._join_multicast() if self.multicast else None
            if group is not None:
                self.receivers.append(group)
            self.multicast = group is not None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for s in self._open:
            s.close()
        self._open.clear()

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

    def drain(self, source: socket.socket) -> list[Span]:
        """Receive what waits, up to the buffer: (start, stop, source address) of each datagram in ``buffer``."""
        spans: list[Span] = []
        try:
            if source is not self.user:
                self._drain(source, spans)
            elif self._receives_trains:
                self._drain_trains(spans)
            else:
                self._drain_user(spans)
        except BlockingIOError:
            pass
        except OSError as error:
            self._receive_failed(error)
        if source is self.user and not self._receives_trains and is_train(self.buffer, spans):
            self._receives_trains = receive_trains(source)
        return spans

    def _drain(self, source: socket.socket, spans: list[Span]) -> None:
        view, at = self._view, 0
        while at + UDP_PAYLOAD_MAX <= DRAIN_BYTES:
            size, address = source.recvfrom_into(view[at:])
            spans.append((at, at + size, address[0]))
            at += (size + 7) & ~7

    def _drain_user(self, spans: list[Span]) -> None:
        view, at = self._view, 0
        receive = self.user.recv_into  # user data: the address is not looked at, and costs half as much again
        while at + UDP_PAYLOAD_MAX <= DRAIN_BYTES:
            size = receive(view[at:])
            spans.append((at, at + size, ""))
            at += (size + 7) & ~7

    def _drain_trains(self, spans: list[Span]) -> None:
        view, at = self._view, 0
        receive = self.user.recvmsg_into
        while at + TRAIN_ROOM <= DRAIN_BYTES:
            size, control, _, _ = receive((view[at:],), CONTROL_SIZE)
            at = (take_apart(self.buffer, at, size, control, spans) + 7) & ~7

    def send(self, datagrams: Iterable[Datagram]) -> int:
        """Send each datagram to its destinations, trains of them at once; returns how many left. Failures are
        counted."""
        before = self.sent
        senders = self._senders
        for train in trains(datagrams):
            alone = train[1] == train[2]
            for to in train[0][0].destinations:
                # A unicast destination takes the kernel's route; a multicast one goes out of every interface.
                for sender in senders if to.is_multicast else senders[:1]:
                    if alone or not self._send_train(sender, train, to):
                        self._send_each(sender, train, to)
        return self.sent - before

    def _send_train(self, sender: socket.socket, train: Train, to: Locator) -> bool:
        """Whether all of it could be sent at once."""
        datagrams, segment, nbytes = train
        if not self._sends_trains or not self._routes.takes(sender, to, segment):
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

    def _send_each(self, sender: socket.socket, train: Train, to: Locator) -> None:
        datagrams, size, left = train
        for datagram in chain.from_iterable(each.apart() for each in datagrams):
            size = min(size, left)
            left -= size
            try:
                sent = sender.sendmsg(pieces(datagram.buffers, size), (), 0, (to.address, to.port))
                self.sent += 1
                self.short_sends += sent < size
            except OSError as error:
                self._send_failed(error, to)

    def failures(self, destinations: Container[Locator], since: int) -> list[str]:
        """What went wrong with each datagram to these that could not be sent since ``send_errors`` was that."""
        return [cause for number, to, cause in self._failures if number > since and to in destinations]

    def _receive_failed(self, error: OSError) -> None:
        # An ICMP "port unreachable" for something sent earlier shows up here; nothing was received.
        if error.errno != errno.ECONNREFUSED:
            _log.warning("receiving failed: %s", error)

    def _send_failed(self, error: OSError, to: Locator) -> None:
        self.send_errors += 1
        cause = f"sending to {to} failed: {error}"
        self._failures.append((self.send_errors, to, cause))
        if error.errno not in (self._last_error, errno.ECONNREFUSED):
            self._last_error = error.errno or 0
            _log.warning("%s", cause)

    def _bind_unicast(self) -> tuple[socket.socket, socket.socket]:
        """The metatraffic and user sockets of the lowest participant index that is free."""
        address = self.interfaces[0].address if len(self.interfaces) == 1 else ""
        failure: OSError | None = None
        for index in range(_PARTICIPANT_INDEX_MAX):
            pair = []
            try:
                for port in (
                    metatraffic_unicast_port(self.domain, index),
                    user_unicast_port(self.domain, index),
                ):
                    pair.append(self._receiver(address, port))
            except OSError as error:
                failure = error
                for s in pair:
                    s.close()
                if error.errno == errno.EADDRINUSE:
                    continue
                break
            self.participant_index = index
            return pair[0], pair[1]
        first = metatraffic_unicast_port(self.domain, 0)
        raise TransportError(
            f"no free UDP port pair for domain {self.domain} on {address or 'all interfaces'} "
            f"from {first} on: {failure}"
        )

    def _receiver(self, address: str, port: int, *, reuse: bool = False) -> socket.socket:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._open.append(s)
        if reuse:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.granted_receive_buffer = _set_buffer(s, _SO_RCVBUFFORCE, socket.SO_RCVBUF, self._receive_buffer)
        s.setblocking(False)
        s.bind((address, port))
        return s

    def _sender(self, address: str) -> socket.socket:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._open.append(s)
        _set_buffer(s, _SO_SNDBUFFORCE, socket.SO_SNDBUF, _SEND_BUFFER)
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
        return s

    def _join_multicast(self) -> socket.socket | None:
        port = spdp_multicast_port(self.domain)
        try:
            s = self._receiver(SPDP_MULTICAST_ADDRESS, port, reuse=True)
        except OSError as error:
            raise TransportError(
                f"multicast port {port} of domain {self.domain} cannot be bound: {error}"
            ) from error
        joined = 0
        for interface in self.interfaces:
            membership = socket.inet_aton(SPDP_MULTICAST_ADDRESS) + socket.inet_aton(interface.address)
            try:
                s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
                joined += 1
            except OSError as error:
                _log.warning("no multicast on %s (%s): %s", interface.name, interface.address, error)
        if joined:
            return s
        _log.warning("no interface takes multicast: participants are found only through the option 'peers'")
        s.close()
        self._open.remove(s)
        return None


def _set_buffer(s: socket.socket, force: int, plain: int, size: int) -> int:
    """Ask for a kernel buffer of ``size`` bytes, by privilege if we have it; returns what was granted."""
    try:
        s.setsockopt(socket.SOL_SOCKET, force, size)
    except PermissionError:
        s.setsockopt(socket.SOL_SOCKET, plain, size)
    return s.getsockopt(socket.SOL_SOCKET, plain) // 2  # the kernel doubles what it is asked for
