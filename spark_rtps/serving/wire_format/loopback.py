"""Whether addresses of a server mean the same server here as where they were announced.

Loopback is another network in each host, and in each container with its own network. The kernel's boot id together
with the inode of the network namespace identifies it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ...transport.log.host_clocks import boot_id

_NAMESPACE: Final = Path("/proc/self/ns/net")


def loopback_network(addresses: Iterable[str]) -> str | None:
    """The network of this process, if only it reaches these ``host:port``; None: others do too, or it is not known."""
    return this_network() if all(map(_is_loopback, addresses)) else None


def this_network() -> str | None:
    """An identifier of this process's network; None: there is none."""
    try:
        return f"{boot_id()}/{_NAMESPACE.stat().st_ino}"
    except OSError:
        return None


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0]
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return False
