"""A log server in the process of the test, and a log that it serves."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spark_rtps.serving.server.log_server import LogServer
from spark_rtps.serving.server.server_config import Bounds, LogServerConfig
from spark_rtps.transport.log.stream_log import StreamLog
from tests.support.stream_logs import RECEPTION, encoded, points, run_of

LOG = "0b5ac1b4-8d0c-4a0c-9a3e-2f8ad77ef5b1"
TOKEN = "5ca1ab1e"
QUICK = Bounds(connections=8, request_seconds=0.5, idle_seconds=2.0, stalled_seconds=0.5)
SEGMENT = 64 << 10


class Scene:
    """A server in this process, and a log of several segments."""

    def __init__(self, folder: Path, bounds: Bounds = QUICK, **tls: str) -> None:
        self.directory = folder / LOG
        self.log = StreamLog.create(
            self.directory, max_bytes=4 << 20, segment_bytes=SEGMENT, metadata={"topic": "T"}
        )
        self.rows = 0
        self.append(40)
        self.server = LogServer(LogServerConfig(folder, "127.0.0.1", 0, TOKEN, bounds=bounds, **tls))
        self.server.allow(LOG)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()

    def append(self, runs: int) -> None:
        for _ in range(runs):
            assert self.log.append(
                run_of(encoded(points(self.rows, 500)), self.rows + 1), reception=RECEPTION
            )
            self.rows += 500

    def close(self) -> None:
        self.server.close()
        self.thread.join(5)
        assert not self.thread.is_alive()
        self.log.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=60)

    def get(
        self, path: str, token: str | None = TOKEN, method: str = "GET", body: bytes | None = None
    ) -> SimpleNamespace:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        is_json = raw and response.getheader("Content-Type") == "application/json"
        return SimpleNamespace(
            status=response.status, raw=raw, json=json.loads(raw) if is_json else None, headers=response
        )

    def about(self) -> Any:
        return self.get(f"/v1/logs/{LOG}").json

    def frames(self, start: object, stop: object, **how: str) -> SimpleNamespace:
        return self.get(f"/v1/logs/{LOG}/frames?from={start}&to={stop}", **how)

    def on_disk(self, start: int, stop: int) -> bytes:
        for path in sorted(self.directory.glob("*.seg*")):
            base = int(path.stem)
            raw = path.read_bytes()
            if base <= start < base + len(raw):
                return raw[start - base : stop - base]
        raise AssertionError(f"no segment holds {start}")

    def is_alive(self) -> None:
        assert self.get("/healthz", token=None).raw == b"ok\n"
        assert self.about()["v"] == 1
