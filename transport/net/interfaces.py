"""Which IPv4 addresses of this machine a participant uses (Linux: names and flags by ioctl)."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import TransportError

_SIOCGIFFLAGS: Final = 0x8913
_SIOCGIFADDR: Final = 0x8915
_SIOCGIFNETMASK: Final = 0x891B
_SIOCGIFMTU: Final = 0x8921
_IFF_UP: Final = 0x1
_IFF_MULTICAST: Final = 0x1000
#: The kernel's description of devices.
_DEVICES: Final = Path("/sys/class/net")
#: Bytes of the IPv4 and UDP headers.
HEADERS: Final = 28


class Interface(NamedTuple):
    """A network interface that is up and has an IPv4 address."""

    name: str
    address: str
    #: Bytes of the largest IP packet that is not fragmented.
    mtu: int = 1500
    netmask: str = "255.255.255.255"
    #: Whether the device has the flag; loopback has not, and takes multicast all the same.
    multicast: bool = False

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.address).is_loopback

    @property
    def is_wireless(self) -> bool:
        return any((_DEVICES / self.name / each).exists() for each in ("wireless", "phy80211"))

    @property
    def network(self) -> str:
        """The addresses that are reached without a router, as ``10.1.0.0/16``."""
        return str(ipaddress.IPv4Network(f"{self.address}/{self.netmask}", strict=False))


def interfaces() -> list[Interface]:
    """Interfaces that are up and have an IPv4 address, in the kernel's order."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                flags = struct.unpack_from("<H", fcntl.ioctl(probe, _SIOCGIFFLAGS, request), 16)[0]
                address = socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
                netmask = socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFNETMASK, request)[20:24])
                mtu = struct.unpack_from("<i", fcntl.ioctl(probe, _SIOCGIFMTU, request), 16)[0]
            except OSError:  # no IPv4 address
                continue
            if flags & _IFF_UP:
                found.append(Interface(name, address, mtu, netmask, bool(flags & _IFF_MULTICAST)))
    return found


def unfragmented(chosen: list[Interface]) -> int:
    """Bytes of the largest UDP payload that none of the interfaces fragments."""
    return min(i.mtu for i in chosen) - HEADERS


def select(wanted: str | None) -> list[Interface]:
    """The interfaces to use: the one named (by name or IPv4 address), else all but loopback, else loopback.

    Raises TransportError when there is none.
    """
    up = interfaces()
    if wanted is None:
        chosen = [i for i in up if not i.is_loopback] or up
        if not chosen:
            raise TransportError(
                "no network interface is up with an IPv4 address; bring one up: ip link set lo up"
            )
        return chosen
    chosen = [i for i in up if wanted in (i.name, i.address)]
    if not chosen and _is_loopback_address(wanted):
        chosen = [i._replace(address=wanted) for i in up if i.is_loopback]  # all of 127/8 is local
    if not chosen:
        known = ", ".join(f"{i.name} ({i.address})" for i in up) or "none"
        raise TransportError(f"interface {wanted!r} is not up with an IPv4 address; those that are: {known}")
    return chosen[:1]


def _is_loopback_address(text: str) -> bool:
    try:
        return ipaddress.IPv4Address(text).is_loopback
    except ValueError:
        return False
