"""The multicast group that the readers of a participant join and announce.

``auto`` is the default group of the domain, as in Cyclone DDS, if two conditions hold: participants are found by
multicast, and every interface in use is known to carry it well. Loopback gains nothing by it, a device without the flag
(a tunnel) has no multicast, and a wireless one sends it at its lowest rate, without repetitions. An announcement holds
for writers on all interfaces, so that one such interface is enough for ``off``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from ..errors import UsageError
from ..structure import Locator, default_group, is_for_routers, is_of_discovery, user_multicast_port
from .interfaces import Interface
from .node_config import NodeConfig


def group_to_join(config: NodeConfig, used: Iterable[Interface]) -> Locator | None:
    """The group of a participant's readers; None: it receives samples by unicast alone. Raises UsageError."""
    if config.multicast_receive == "off":
        return None
    if config.multicast_receive == "auto":
        able = (i.multicast and not i.is_loopback and not i.is_wireless for i in used)
        return default_group(config.domain) if config.multicast and all(able) else None
    return parse_group(config.multicast_receive, config.domain)


def parse_group(text: str, domain: int) -> Locator:
    """``address`` or ``address:port``. Raises UsageError unless it is a group that samples may be sent to."""
    address, _, port = text.partition(":")
    group = Locator(address, int(port) if port.isdecimal() else user_multicast_port(domain))
    try:
        group_address = ipaddress.IPv4Address(address)
    except ValueError:
        raise UsageError(f"{text!r} is not an IPv4 address, or address:port, of a multicast group") from None
    if not group_address.is_multicast:
        raise UsageError(f"{address} is not a multicast group: use one of 224.0.0.0 to 239.255.255.255")
    if text.endswith(":") or (port and not port.isdecimal()) or not 0 < group.port < 65_536:
        raise UsageError(
            f"{port!r} is not a UDP port; use 1 to 65535, or no port for {user_multicast_port(domain)}"
        )
    if is_of_discovery(group):
        raise UsageError(f"{group} is reserved for discovery; use another port")
    if is_for_routers(group):
        raise UsageError(f"{address} is reserved for routing protocols; use a group of 239.0.0.0/8")
    return group
