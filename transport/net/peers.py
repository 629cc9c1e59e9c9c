"""The `peers` option: unicast addresses to announce ourselves to where multicast does not reach."""

from __future__ import annotations

import logging
import socket
from typing import Final

from ..errors import TransportError
from ..structure import Locator, metatraffic_unicast_port

_log = logging.getLogger(__name__)

#: A peer without a port may be any of this many participants on its host.
PARTICIPANTS_PER_PEER: Final = 10
#: Host names are resolved again this often: pods and laptops change address.
RESOLVE_PERIOD_NS: Final = 30_000_000_000


def split_peer(peer: str) -> tuple[str, int | None]:
    """``host`` or ``host:port``; raises TransportError naming the peer when it is neither."""
    host, colon, port = peer.strip().rpartition(":")
    if not colon:
        host, port = port, ""
    if not host or (colon and not (port.isdigit() and 0 < int(port) < 65536)):
        raise TransportError(f"peer {peer!r} is not HOST or HOST:PORT")
    return host, int(port) if port else None


def resolve(peers: tuple[str, ...], domain: int) -> tuple[Locator, ...]:
    """The locators of all peers; a name that does not resolve is logged and tried again later."""
    found: dict[Locator, None] = {}
    for peer in peers:
        host, port = split_peer(peer)
        try:
            addresses = {
                info[4][0] for info in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_DGRAM)
            }
        except OSError as error:
            _log.warning("peer %r does not resolve: %s; retrying later", peer, error)
            continue
        ports = (
            [port] if port else [metatraffic_unicast_port(domain, i) for i in range(PARTICIPANTS_PER_PEER)]
        )
        for address in sorted(str(a) for a in addresses):
            for p in ports:
                found[Locator(address, p)] = None
    return tuple(found)


def has_names(peers: tuple[str, ...]) -> bool:
    """Whether any peer is a name rather than an address."""
    for peer in peers:
        try:
            socket.inet_aton(split_peer(peer)[0])
        except OSError:
            return True
    return False
