"""Several hosts on one network: network namespaces whose devices a bridge joins, with loss and a capture.

Nodes and processes that are started inside ``with hosts.inside(i):`` are on host ``i``, at ``10.98.0.<i + 1>``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.net.shaped_link import NoNamespaces, inside, run

INTERFACE = "v0"
_ETHERTYPE_ALL = 3
_PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 16, 1)


class BridgedHosts:
    """``count`` hosts; each drops a share ``loss`` of the datagrams that arrive, all of them by chance."""

    def __init__(self, count: int, loss: float = 0.0) -> None:
        name = f"rtps-{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
        self._bridge = f"{name}-b"
        self._names = [f"{name}-{i}" for i in range(count)]
        try:
            self._build(loss)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NoNamespaces(f"{error} {getattr(error, 'stderr', '')}".strip()) from error

    def _build(self, loss: float) -> None:
        run(f"ip netns add {self._bridge}")
        run(f"ip -n {self._bridge} link add b0 type bridge mcast_snooping 0")
        run(f"ip -n {self._bridge} link set b0 up")
        for i, name in enumerate(self._names):
            run(f"ip netns add {name}")
            self.plug(i)
            run(f"ip -n {name} link set lo up")
            if loss:
                table = "add table ip t; add chain ip t in { type filter hook input priority 0; }; "
                rule = f"numgen random mod 10000 < {round(loss * 10_000)} counter drop"
                rule = f"{table}add rule ip t in ip protocol udp {rule}"
                run("ip netns exec", name, "nft", rule)

    def plug(self, host: int) -> None:
        """Give a host its device."""
        name = self._names[host]
        run(f"ip -n {name} link add {INTERFACE} type veth peer name p{host} netns {self._bridge}")
        run(f"ip -n {self._bridge} link set p{host} master b0 up")
        run(f"ip -n {name} addr add {self.address(host)}/24 dev {INTERFACE}")
        # Else a whole GSO buffer of datagrams would be one packet, to be counted and lost as one.
        run(f"ip -n {name} link set {INTERFACE} up gso_max_segs 1")

    def unplug(self, host: int) -> None:
        """Take a host its device."""
        run(f"ip -n {self._names[host]} link del {INTERFACE}")

    def address(self, host: int) -> str:
        return f"10.98.0.{host + 1}"

    def inside(self, host: int) -> contextlib.AbstractContextManager[None]:
        """Sockets that this thread opens, and processes that it starts, are on that host."""
        return inside(self._names[host])

    @contextlib.contextmanager
    def captured(self, host: int, file: Path) -> Iterator[None]:
        """All that a host sends meanwhile, written down for Wireshark."""
        with inside(self._bridge):
            wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETHERTYPE_ALL))
        wire.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        wire.bind((f"p{host}", 0))
        wire.settimeout(0.1)
        ended = threading.Event()

        def capture() -> None:
            with file.open("wb") as out:
                out.write(_PCAP_HEADER)
                while True:
                    try:
                        frame, (_, _, direction, *_) = wire.recvfrom(1 << 16)
                    except TimeoutError:
                        if ended.is_set():
                            return
                        continue
                    if direction != socket.PACKET_OUTGOING:
                        out.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)

        thread = threading.Thread(target=capture, name="capture", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            wire.close()

    def close(self) -> None:
        for name in (*self._names, self._bridge):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
