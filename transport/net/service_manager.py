"""What a service tells the service manager that started it (sd_notify(3)): one datagram each time."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify(*fields: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send ``READY=1``, ``WATCHDOG=1`` and the like; whether there is a service manager that took it.

    A manager that does not listen is not worth an error: the service works without.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    where = "\0" + address[1:] if address[0] == "@" else address  # an abstract address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(fields).encode(), where)
    except OSError:
        return False
    return True


def watchdog_period(environment: Mapping[str, str] = os.environ, process: int | None = None) -> int | None:
    """Nanoseconds within which ``WATCHDOG=1`` has to be sent again; None: nobody waits for it."""
    wanted = environment.get("WATCHDOG_PID", "")
    if wanted and wanted != str(os.getpid() if process is None else process):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) * 1_000 if text.isascii() and text.isdigit() and int(text) else None
