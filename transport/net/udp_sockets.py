"""UDP sockets with the buffers that are asked for, as far as the kernel grants them."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

_SO_RCVBUFFORCE: Final = 33
_SO_SNDBUFFORCE: Final = 32


def open_receiver(
    address: str, port: int, size: int, opened: contextlib.ExitStack, *, reuse: bool = False
) -> socket.socket:
    s = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    if reuse:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    _set_buffer(s, _SO_RCVBUFFORCE, socket.SO_RCVBUF, size)
    s.setblocking(False)
    s.bind((address, port))
    return s


def open_sender(address: str, ttl: int, size: int, opened: contextlib.ExitStack) -> socket.socket:
    s = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    _set_buffer(s, _SO_SNDBUFFORCE, socket.SO_SNDBUF, size)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
    return s


def granted_buffer(s: socket.socket, which: int) -> int:
    """Bytes of a buffer that the kernel has granted."""
    return s.getsockopt(socket.SOL_SOCKET, which) // 2  # the kernel doubles what it is asked for


def _set_buffer(s: socket.socket, force: int, plain: int, size: int) -> None:
    """Ask for a kernel buffer of ``size`` bytes, by privilege if the process has it."""
    try:
        s.setsockopt(socket.SOL_SOCKET, force, size)
    except PermissionError:
        s.setsockopt(socket.SOL_SOCKET, plain, size)
