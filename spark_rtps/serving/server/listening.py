"""The listening socket of a log server."""

from __future__ import annotations

import errno
import socket
import time
from typing import Final

from ...transport.errors import TransportError
from ...transport.net.interfaces import interfaces

_BACKLOG: Final = 256
_PAUSE_SECONDS: Final = 0.1
#: An address for documentation (RFC 5737): routed like most addresses, and nothing is sent there.
_FAR: Final = ("192.0.2.1", 9)


def listen(address: str, port: int, *, patience: float = 0.0) -> socket.socket:
    """A listening socket; port 0: a free port. Raises TransportError.

    A used port is tried again for ``patience`` seconds: a killed process may leave a server behind for a moment.
    """
    until = time.monotonic() + patience
    while True:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((address, port))
            sock.listen(_BACKLOG)
            return sock
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE or time.monotonic() >= until:
                why = f"the log server cannot listen at {address}:{port}: {error.strerror}"
                raise TransportError(why) from error
        time.sleep(_PAUSE_SECONDS)


def reached_at(preferred: str | None = None) -> list[str]:
    """The addresses at which others reach this host; the preferred one and that of the default route come first.

    Loopback, where other hosts have servers of their own, is included only if there is nothing else.
    """
    found = interfaces()
    addresses = [i.address for i in found if not i.is_loopback] or [i.address for i in found]
    likely = (preferred, _routed())
    return sorted(addresses, key=lambda address: likely.index(address) if address in likely else len(likely))


def _routed() -> str | None:
    """This host's address on the default route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_FAR)
        except OSError:  # there is no default route
            return None
        address: str = sock.getsockname()[0]
        return address
