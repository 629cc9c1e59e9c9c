"""A standing receiver's answers, given by a server inside a test, for the commands that ask one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "t0ken-of-the-receiver"

#: What is answered at a target: JSON, or a status and the reason for it.
Answers = Callable[[str], dict[str, Any] | tuple[int, str]]


class FakeReceiver(ThreadingHTTPServer):
    """Answers those who know the token."""

    daemon_threads = True

    def __init__(self, answers: Answers) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> FakeReceiver:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeReceiver

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            found: dict[str, Any] | tuple[int, str] = (401, "wrong token")
        else:
            found = self.server.answers(self.path)
        status, body = (found[0], {"error": found[1]}) if isinstance(found, tuple) else (200, found)
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
