"""The server of a receiver service as a process, with a log, and the test as its supervisor."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_rtps.serving.client.receiver_client import ReceiverClient
from spark_rtps.serving.server.process import LogServerConfig, ReceiverServiceServerProcess
from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.stream_log import StreamLog
from tests.support.stream_logs import RECEPTION, encoded, points, run_of

LOG = "0b5ac1b4-8d0c-4a0c-9a3e-2f8ad77ef5b1"
OTHER_LOG = "7d5e4c5f-93a5-4d86-8c5c-0a8f8b0d6a11"
TOKENS = {"read": "read-me-read-me-1", "commit": "commit-commit-22", "admin": "admin-admin-admi3"}
SEGMENT = 64 << 10
DAY = 86_400 * 10**9


class Scene:
    """A server process, a log, and this test as their supervisor."""

    def __init__(self, folder: Path, **given: Any) -> None:
        self.root = folder
        self.directory = folder / LOG
        self.log = StreamLog.create(
            self.directory,
            max_bytes=4 << 20,
            segment_bytes=SEGMENT,
            metadata={"topic": "T", "type": None, "guid_prefix": "00" * 12},
        )
        self.rows = 0
        self.append(20)
        counters = Counters.create(self.directory / "counters")
        self.consumer = counters.counter("log.consumer")
        config = LogServerConfig(folder, "127.0.0.1", 0, "", receiver_service=True, tokens=TOKENS)
        self.config = replace(config, **given)
        self.subscription = {
            "name": "cell/imu", "topic": "rt/imu", "type": None, "domain": 7, "log": LOG, "state": "running",
            "error": None, "dynamic": False, "options": {"topic": "rt/imu", "receiver.token": "x"},
            "retention": "committed",
        }  # fmt: skip
        self.start()

    def start(self, port: int = 0, *, tells: bool = True) -> None:
        self.server = ReceiverServiceServerProcess.start(replace(self.config, port=port))
        if tells:
            self.server.tell([self.subscription])
            if self.config.certificate is None:
                while self.get("/v1/subscriptions")[0] == 503:
                    time.sleep(0.01)

    def append(self, runs: int) -> None:
        for _ in range(runs):
            run = run_of(encoded(points(self.rows, 500)), self.rows + 1)
            assert self.log.append(run, reception=RECEPTION)
            self.rows += 500

    @property
    def end(self) -> Cursor:
        return Cursor(self.log.position)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def served(self, role: str = "admin", **given: Any) -> Served:
        return Served((self.address,), TOKENS.get(role, role), **given)

    def client(self, role: str = "admin", patience: float = 5.0, **given: Any) -> ReceiverClient:
        return ReceiverClient(self.served(role, **given), patience=patience)

    def get(
        self, path: str, role: str | None = "admin", method: str = "GET", body: bytes | None = None
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        headers = {} if role is None else {"Authorization": f"Bearer {TOKENS.get(role, role)}"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        try:
            return response.status, json.loads(raw)
        except ValueError:
            return response.status, raw

    def put(self, group: str, position: object, row: object = 0, role: str = "commit") -> int:
        body = json.dumps({"v": 1, "position": position, "row": row}).encode()
        return self.get(f"/v1/logs/{LOG}/groups/{group}", role, "PUT", body)[0]

    def close(self) -> None:
        self.server.stop()
        self.log.close()


def supervise(scene: Scene, handle: Any) -> threading.Thread:
    def run() -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            for request in scene.server.requests():
                handle(request)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def poll(scene: Scene, seconds: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", scene.server.port), timeout=20)
    target = f"/v1/logs/{LOG}/tail?after={scene.end.position}&wait={seconds}"
    sock.sendall(
        f"GET {target} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKENS['read']}\r\n\r\n".encode()
    )
    return sock


def shown(pem: Path, name: str) -> dict[str, str]:
    """What a client has that shows this certificate."""
    return {
        "ca": (pem / "server.pem").read_text(),
        "certificate": (pem / f"{name}.pem").read_text(),
        "key": (pem / f"{name}.key").read_text(),
    }
