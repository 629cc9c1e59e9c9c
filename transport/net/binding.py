"""The sockets of one participant, bound to the ports that RTPS 2.5 §9.6.1 gives its domain."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from ..errors import TransportError, reason
from ..structure import (
    DOMAIN_MAX,
    SPDP_MULTICAST_ADDRESS,
    Locator,
    metatraffic_unicast_port,
    spdp_multicast_port,
    user_unicast_port,
)
from ..value_classes import slotted
from .interfaces import Interface
from .multicast_membership import join_group
from .udp_sockets import granted_buffer, open_receiver, open_sender

_log = logging.getLogger(__name__)

_PARTICIPANT_INDEX_MAX: Final = 120  # Domain d's ports end where domain d+1's begin: (250 - 10) / 2


@slotted
class BoundSockets:
    """Unicast and multicast receive sockets, and one send socket for each interface."""

    domain: int
    interfaces: list[Interface]
    participant_index: int
    metatraffic: socket.socket
    user: socket.socket
    #: Where multicast announcements arrive; None: no interface takes multicast, or multicast is off.
    group: socket.socket | None
    senders: list[socket.socket]
    granted_receive_buffer: int
    #: The interfaces that take multicast, as far as the configuration allows it there.
    multicast_interfaces: list[Interface]
    granted_send_buffer: int


@contextlib.contextmanager
def joining(domain: int) -> Iterator[None]:
    """Turn a refusal by the system meanwhile, such as of more descriptors, into a TransportError that names the
    domain."""
    try:
        yield
    except OSError as error:
        raise TransportError(f"cannot join domain {domain}: {reason(error)}") from error


def bind(
    domain: int,
    interfaces: list[Interface],
    *,
    multicast: bool,
    receive_buffer: int,
    send_buffer: int,
    participant_index: int | None = None,
    reserved_ports: Collection[int] = (),
    ttl: int = 1,
    multicast_interface: str | None = None,
) -> BoundSockets:
    """Bind all sockets, to the ports of ``participant_index`` if they are free, otherwise to the first free ones, of
    which ``reserved_ports`` come last; raises TransportError if ports or interfaces are not available.

    ``ttl`` is the TTL of multicast, ``multicast_interface`` the only interface that takes it; None: all may.
    """
    if not 0 <= domain <= DOMAIN_MAX:
        raise TransportError(f"domain {domain} has no UDP ports; use 0 to {DOMAIN_MAX}")
    with contextlib.ExitStack() as opened:
        indices = _indices(domain, participant_index, reserved_ports)
        index, metatraffic, user = _bind_unicast(domain, interfaces, indices, receive_buffer, opened)
        senders = [open_sender(each.address, ttl, send_buffer, opened) for each in interfaces]
        members = _multicast_interfaces(interfaces, multicast_interface)
        group = _join_discovery(domain, members, receive_buffer, opened) if multicast else None
        granted = granted_buffer(user if group is None else group, socket.SO_RCVBUF)
        sends = granted_buffer(senders[0], socket.SO_SNDBUF)
        opened.pop_all()
        return BoundSockets(
            domain, interfaces, index, metatraffic, user, group, senders, granted, members, sends
        )


def _multicast_interfaces(interfaces: list[Interface], wanted: str | None) -> list[Interface]:
    members = [each for each in interfaces if wanted is None or wanted in (each.name, each.address)]
    if not members:
        known = ", ".join(f"{i.name} ({i.address})" for i in interfaces)
        raise TransportError(f"multicast interface {wanted!r} is not among those in use: {known}")
    return members


def _indices(domain: int, first: int | None, reserved_ports: Collection[int]) -> Iterator[int]:
    """The participant indices to try."""
    if first is not None and 0 <= first < _PARTICIPANT_INDEX_MAX:
        yield first
    # The sort is stable: the lowest indices of each kind come first.
    yield from sorted(
        range(_PARTICIPANT_INDEX_MAX),
        key=lambda index: not {*_unicast_ports(domain, index)}.isdisjoint(reserved_ports),
    )


def _unicast_ports(domain: int, index: int) -> tuple[int, int]:
    """The ports for metatraffic and for samples."""
    return metatraffic_unicast_port(domain, index), user_unicast_port(domain, index)


def _bind_unicast(
    domain: int,
    interfaces: list[Interface],
    indices: Iterable[int],
    receive_buffer: int,
    opened: contextlib.ExitStack,
) -> tuple[int, socket.socket, socket.socket]:
    """The first participant index that is free, with its metatraffic and user sockets."""
    address = interfaces[0].address if len(interfaces) == 1 else ""
    failure: OSError | None = None
    for index in indices:
        ports = _unicast_ports(domain, index)
        try:
            with contextlib.ExitStack() as pair:
                metatraffic, user = (open_receiver(address, port, receive_buffer, pair) for port in ports)
                opened.push(pair.pop_all())
                return index, metatraffic, user
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            failure = error
            if error.errno != errno.EADDRINUSE:
                break
    first = metatraffic_unicast_port(domain, 0)
    raise TransportError(
        f"no free UDP port pair for domain {domain} on {address or 'all interfaces'} from {first} on: {failure}"
    )


def _join_discovery(
    domain: int, interfaces: list[Interface], receive_buffer: int, opened: contextlib.ExitStack
) -> socket.socket | None:
    group = Locator(SPDP_MULTICAST_ADDRESS, spdp_multicast_port(domain))
    if (s := join_group(domain, group, interfaces, receive_buffer)) is not None:
        return opened.enter_context(s)
    _log.warning("no interface takes multicast: participants are found only through the option 'peers'")
    return None
