"""A writers' host and a readers' host with a slow, long, lossy link between them, over real sockets.

:class:`Veth` is two network namespaces; what goes to the readers passes a token bucket with a queue (tc) and both
ways lose datagrams (nft). :class:`LongVeth` delays everything as well, with a cable of our own, for many kernels
come without netem. :class:`Relay` does all of it to user traffic in user space, with seeded loss, and runs
everywhere. Nodes and processes started inside ``with link.writers():`` or ``with link.readers():`` are on that side.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from spark_rtps.transport.net import node as node_module
from spark_rtps.transport.net.binding import BoundSockets
from spark_rtps.transport.net.sockets import Sockets
from spark_rtps.transport.structure import Locator

_HELLO = b"forward to where this came from"
_CLONE_NEWNET = 0x40000000
_SO_RCVBUFFORCE = 33
#: Of the token bucket: what it lets through at once.
_BURST = 10_000
#: Not everybody's PATH has the folders of tc and nft.
_PATH = f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin"
_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000


@dataclass(frozen=True)
class Shape:
    """Towards the readers bytes a second, with a queue of bytes before; both ways so many are lost, and the others
    take so many seconds. 0: no bound."""

    rate: int = 0
    queue: int = 64 << 10
    loss: float = 0.0
    delay: float = 0.0


class Link(Protocol):
    """Nodes on it take the ``config`` beside their domain."""

    config: dict[str, Any]

    def writers(self) -> contextlib.AbstractContextManager[None]: ...
    def readers(self) -> contextlib.AbstractContextManager[None]: ...
    def reader_arguments(self) -> list[str]:
        """For a process with a node on the readers' side, see :func:`relayed`."""
        ...

    def overflowed(self) -> int:
        """Datagrams that found the queue full."""
        ...

    def lost(self) -> int:
        """Datagrams lost by chance."""
        ...

    def close(self) -> None: ...


class NoNamespaces(Exception):
    """What the kernel lacks for :class:`Veth`, or does not let us."""


class Veth:
    """Two namespaces and a veth between them."""

    def __init__(self, shape: Shape) -> None:
        for program in ("ip", "tc", "nft"):
            if shutil.which(program, path=_PATH) is None:
                raise RuntimeError(f"{program} is needed to shape a veth: apt-get install iproute2 nftables")
        name = f"rtps-{os.getpid()}-{time.monotonic_ns() % 1_000_000}"
        self._names = f"{name}-w", f"{name}-r"
        self.config = {"interface": "v0"}
        try:
            self._build(shape)
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NoNamespaces(f"{error} {getattr(error, 'stderr', '')}".strip()) from error

    def _build(self, shape: Shape) -> None:
        writers, readers = self._names
        for name in self._names:
            run(f"ip netns add {name}")
        self._connect(writers, readers)
        for host, name in enumerate(self._names, 1):
            run(f"ip -n {name} addr add 10.99.0.{host}/24 dev v0")
            # Else a whole GSO buffer of datagrams would be one packet, to be lost or not.
            run(f"ip -n {name} link set v0 up gso_max_segs 1")
            if shape.loss:
                table = "add table ip t; add chain ip t in { type filter hook input priority 0; }; "
                rule = f"numgen random mod 10000 < {round(shape.loss * 10_000)} counter drop"
                run("ip netns exec", name, "nft", f"{table}add rule ip t in ip protocol udp {rule}")
        if shape.rate:
            bucket = f"tbf rate {8 * shape.rate}bit burst {_BURST} limit {shape.queue}"
            run(f"ip netns exec {writers} tc qdisc add dev v0 root {bucket}")

    def _connect(self, writers: str, readers: str) -> None:
        """Make the device v0 of each side."""
        run(f"ip -n {writers} link add v0 type veth peer name v0 netns {readers}")

    def writers(self) -> contextlib.AbstractContextManager[None]:
        return inside(self._names[0])

    def readers(self) -> contextlib.AbstractContextManager[None]:
        return inside(self._names[1])

    def reader_arguments(self) -> list[str]:
        return []

    def overflowed(self) -> int:
        (qdisc,) = json.loads(run(f"ip netns exec {self._names[0]} tc -s -j qdisc show dev v0"))
        return int(qdisc["drops"])

    def lost(self) -> int:
        found = 0
        for name in self._names:
            for each in json.loads(run(f"ip netns exec {name} nft -j list ruleset"))["nftables"]:
                expressions = each.get("rule", {}).get("expr", [])
                found += sum(e["counter"]["packets"] for e in expressions if "counter" in e)
        return found

    def close(self) -> None:
        for name in self._names:
            subprocess.run(
                ["ip", "netns", "del", name], capture_output=True, env={**os.environ, "PATH": _PATH}
            )


class LongVeth(Veth):
    """The same with a cable that we carry the frames through ourselves, as late as they are to be."""

    def __init__(self, shape: Shape) -> None:
        self._delay = shape.delay
        self._ends: list[int] = []
        self._cable = threading.Thread(target=self._carry, name="cable", daemon=True)
        self._closing = False
        super().__init__(shape)

    def _connect(self, writers: str, readers: str) -> None:
        for name in (writers, readers):
            with inside(name):
                end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                self._ends.append(end)
                fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", b"v0", _IFF_TAP | _IFF_NO_PI))
        self._cable.start()

    def _carry(self) -> None:
        under_way: deque[tuple[float, int, bytes]] = deque()
        poll = select.poll()
        for end in self._ends:
            poll.register(end, select.POLLIN)
        while not self._closing:
            wait = under_way[0][0] - time.monotonic() if under_way else 0.02
            for end, _ in poll.poll(max(0.0, min(wait, 0.02)) * 1_000):
                other = self._ends[end == self._ends[0]]
                with contextlib.suppress(BlockingIOError):
                    for _ in range(64):
                        under_way.append((time.monotonic() + self._delay, other, os.read(end, 1 << 16)))
            while under_way and under_way[0][0] <= time.monotonic():
                _, end, data = under_way.popleft()
                with contextlib.suppress(OSError):  # the device is not up yet, or its queue is full
                    os.write(end, data)

    def close(self) -> None:
        self._closing = True
        if self._cable.ident is not None:
            self._cable.join()
        for end in self._ends:
            os.close(end)
        self._ends.clear()
        super().close()


def run(command: str, *more: str) -> str:
    environment = {**os.environ, "PATH": _PATH}
    done = subprocess.run(
        [*command.split(), *more], check=True, capture_output=True, text=True, env=environment
    )
    return done.stdout


@contextlib.contextmanager
def inside(name: str) -> Iterator[None]:
    """Sockets that this thread opens, and processes that it starts, are in that namespace."""
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{name}") as namespace:
        _enter(namespace.fileno())
        try:
            yield
        finally:
            _enter(home.fileno())


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


class Relay:
    """Forwards user traffic on loopback. Nodes announce its ports instead of their own."""

    def __init__(self, shape: Shape, *, seed: int = 0) -> None:
        self.config = {"interface": "lo", "mtu": 1_500}
        self._shape = shape
        self._random = random.Random(seed)
        self._shaped: dict[socket.socket, bool] = {}
        self._targets: dict[socket.socket, Any] = {}
        self._leaving: list[tuple[float, int, bytes, Any]] = []
        self._order = itertools.count()
        self._free_at = 0.0
        self._overflowed = self._lost = 0
        self._poll = select.poll()
        self._by_fd: dict[int, socket.socket] = {}
        self._out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._closing = False
        self._thread = threading.Thread(target=self._forward, name="relay", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def _behind(self, *, shaped: bool) -> Iterator[None]:
        before = node_module.Sockets  # type: ignore[attr-defined]
        node_module.Sockets = relayed(lambda: self.port(shaped=shaped))  # type: ignore[attr-defined]
        try:
            yield
        finally:
            node_module.Sockets = before  # type: ignore[attr-defined]

    def writers(self) -> contextlib.AbstractContextManager[None]:
        return self._behind(shaped=False)

    def readers(self) -> contextlib.AbstractContextManager[None]:
        return self._behind(shaped=True)

    def reader_arguments(self) -> list[str]:
        return [str(self.port(shaped=True))]

    def port(self, *, shaped: bool) -> int:
        """A new port, for what goes to whoever joins there."""
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with contextlib.suppress(PermissionError):
            s.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 8 << 20)
        s.bind(("127.0.0.1", 0))
        s.setblocking(False)
        self._shaped[s] = shaped
        self._by_fd[s.fileno()] = s
        self._poll.register(s, select.POLLIN)
        return int(s.getsockname()[1])

    def overflowed(self) -> int:
        return self._overflowed

    def lost(self) -> int:
        return self._lost

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        for s in (*self._shaped, self._out):
            s.close()

    def _forward(self) -> None:
        while not self._closing:
            wait = self._leaving[0][0] - time.monotonic() if self._leaving else 0.02
            for fd, _ in self._poll.poll(max(0.0, min(wait, 0.02)) * 1000):
                with contextlib.suppress(BlockingIOError):
                    for _ in range(64):
                        self._take(self._by_fd[fd])
            while self._leaving and self._leaving[0][0] <= time.monotonic():
                _, _, data, target = heapq.heappop(self._leaving)
                self._out.sendto(data, target)

    def _take(self, s: socket.socket) -> None:
        data, source = s.recvfrom(1 << 16)
        if data == _HELLO:
            self._targets[s] = source
            return
        if s not in self._targets:
            return
        shape, at = self._shape, time.monotonic()
        if self._random.random() < shape.loss:
            self._lost += 1
            return
        if shape.rate and self._shaped[s]:
            if (self._free_at - at) * shape.rate + len(data) > shape.queue:
                self._overflowed += 1
                return
            at = self._free_at = max(self._free_at, at) + len(data) / shape.rate
        heapq.heappush(self._leaving, (at + shape.delay, next(self._order), data, self._targets[s]))


def relayed(port: Callable[[], int]) -> type[Sockets]:
    """Sockets that let others send user traffic to a relay's port."""

    class Relayed(Sockets):
        def __init__(self, bound: BoundSockets) -> None:
            super().__init__(bound)
            self._announced = Locator("127.0.0.1", port())
            self.user.sendto(_HELLO, (self._announced.address, self._announced.port))

        @property
        def default_unicast(self) -> tuple[Locator, ...]:
            return (self._announced,)

    return Relayed
