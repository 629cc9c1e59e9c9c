"""Messages of a service to the service manager that started it (sd_notify(3)): one datagram each."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify(*fields: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send fields such as ``READY=1`` and ``WATCHDOG=1``; returns whether a service manager took them.

    A manager that does not listen is not an error: the service works without it.
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
    """Nanoseconds within which ``WATCHDOG=1`` has to be sent again; None: there is no watchdog."""
    wanted = environment.get("WATCHDOG_PID", "")
    if wanted and wanted != str(os.getpid() if process is None else process):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) * 1_000 if text.isascii() and text.isdigit() and int(text) else None
