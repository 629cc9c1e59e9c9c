"""Sockets join multicast groups, and join them again through a device that comes back."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import socket
import struct
import sys
from collections.abc import Iterable
from typing import Final

from ..errors import TransportError, reason
from ..structure import Locator
from .interfaces import Interface
from .udp_sockets import open_receiver

_log = logging.getLogger(__name__)

_SIOCGIFINDEX: Final = 0x8933
#: ``struct ip_mreqn``: the group, our address, the number of the device.
_MEMBERSHIP: Final = struct.Struct("=4s4si")


def join_group(
    domain: int, group: Locator, interfaces: list[Interface], receive_buffer: int
) -> socket.socket | None:
    """A socket that receives datagrams sent to a multicast group; None: no interface takes multicast.

    Raises TransportError if the port is not available.
    """
    with contextlib.ExitStack() as opened:
        try:
            s = open_receiver(group.address, group.port, receive_buffer, opened, reuse=True)
        except OSError as error:
            raise TransportError(
                f"multicast port {group.port} of domain {domain} cannot be bound: {reason(error)}"
            ) from error
        joined = 0
        for interface in interfaces:
            membership = socket.inet_aton(group.address) + socket.inet_aton(interface.address)
            try:
                s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
                joined += 1
            except OSError as error:
                _log.warning("no multicast on %s (%s): %s", interface.name, interface.address, error)
        if joined:
            opened.pop_all()
            return s
    return None


def device_number(s: socket.socket, interface: Interface) -> int:
    """The kernel's number of the device; 0: there is no such device."""
    request = struct.pack("16si20x", interface.name.encode()[:15], 0)
    try:
        return int.from_bytes(fcntl.ioctl(s, _SIOCGIFINDEX, request)[16:20], sys.byteorder)
    except OSError:
        return 0


def join_again(
    sender: socket.socket, interface: Interface, groups: Iterable[socket.socket], before: int
) -> bool:
    """Send to groups and receive from them through the device that the interface has now; False: it has none.

    The kernel knows a device by its number; a device that was removed comes back with another one than ``before``.
    """
    try:
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface.address))
    except OSError:
        return False
    for s in groups:
        group = socket.inet_aton(s.getsockname()[0])
        with contextlib.suppress(OSError):  # a socket has few memberships
            left = _MEMBERSHIP.pack(group, bytes(4), before)
            s.setsockopt(socket.IPPROTO_IP, socket.IP_DROP_MEMBERSHIP, left)
        try:
            joined = group + socket.inet_aton(interface.address)
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, joined)
        except OSError as error:
            _log.warning("no multicast on %s (%s): %s", interface.name, interface.address, error)
    return True
