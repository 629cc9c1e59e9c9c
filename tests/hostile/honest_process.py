"""An honest participant, or a receiver, in a process of its own, and an attacker's socket."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

from tests.hostile.attacker import Attacker, Datagram, Host
from tests.support.stopped import stopped

LOCALHOST, ATTACKER, THIRD = "127.0.0.1", "127.0.0.66", "127.0.0.77"


class HonestProcess:
    """This end of the pipes; a context manager, at whose end the process is ended."""

    def __init__(self, **asked: Any) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.honest", json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
        )
        self._asked = asked
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._child.stdin is not None and self._child.stdout is not None
        with suppress(OSError):
            self._child.stdin.close()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    def call(self, method: str, **arguments: Any) -> Any:
        self.ask(method, **arguments)
        return self.answer()

    def ask(self, method: str, **arguments: Any) -> None:
        """Without waiting; :meth:`answer` has what comes of it."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps([method, arguments]) + "\n")
        self._child.stdin.flush()

    def answer(self) -> Any:
        answer = self._answer()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["ok"]

    def host(self) -> Host:
        info = self.call("info")
        return Host(
            bytes.fromhex(info["prefix"]),
            (LOCALHOST, info["metatraffic"]),
            (LOCALHOST, info["user"]),
            bytes.fromhex(info["writer"]),
            bytes.fromhex(info["reader"]),
            self._asked["writes"],
            self._asked["reads"],
        )

    @contextmanager
    def away(self) -> Iterator[None]:
        """It does not run meanwhile: nothing of what is sent to it arrives there."""
        with stopped(self._child.pid):
            yield

    def _answer(self) -> Any:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"it ended with {self._child.wait()}")
        return json.loads(line)


class StrangerSocket:
    """An unmatched participant at an address of its own, which it does not forge."""

    def __init__(self, address: str = ATTACKER, prefix: bytes = b"\xee" * 12) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.socket.bind((address, 0))
        self.third = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.third.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.third.bind((THIRD, 0))
        self.attacker = Attacker(
            prefix, self.socket.getsockname(), self.third.getsockname(), random.Random(1)
        )
        self.sent_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        self.third.close()

    def send(self, on: Host, datagrams: Iterable[Datagram | bytes], *, pace: float = 0.0) -> None:
        """``pace``: seconds between them. To the port for user data, unless they say otherwise."""
        for each in datagrams:
            payload, user = each if isinstance(each, Datagram) else (each, True)
            self.socket.sendto(payload, on.user if user else on.metatraffic)
            self.sent_bytes += len(payload)
            if pace:
                time.sleep(pace)

    def third_party_got(self) -> int:
        """Bytes that have come to the third party since the last look."""
        return _waiting(self.third)

    def got(self) -> int:
        return _waiting(self.socket)


def _waiting(s: socket.socket) -> int:
    count = 0
    s.setblocking(False)
    while True:
        try:
            count += len(s.recv(1 << 16))
        except BlockingIOError:
            return count


def wait_for(condition: Callable[[], object], patience: float, every: float = 0.02) -> float | None:
    """Seconds until it held; None: it did not."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > patience:
            return None
        time.sleep(every)
    return time.monotonic() - began


@contextmanager
def honest_pair(domain: int, **config: Any) -> Iterator[tuple[HonestProcess, HonestProcess]]:
    """Two participants that exchange rows both ways, matched."""
    with (
        HonestProcess(domain=domain, writes="s", reads="t", **config) as one,
        HonestProcess(domain=domain, writes="t", reads="s", **config) as two,
    ):
        if wait_for(lambda: _are_matched(one) and _are_matched(two), 30) is None:
            raise RuntimeError("two honest participants do not match")
        yield one, two


def _are_matched(honest: HonestProcess) -> bool:
    return bool(honest.call("matched") == {"readers": 1, "writers": 1})
