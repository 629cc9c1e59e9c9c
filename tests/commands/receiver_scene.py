"""A receiver service's answers, given by a server inside a test, for the commands that ask one."""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from spark_rtps.serving.server.http_messages import FileRange, HttpResponse, Refusal, Request
from spark_rtps.serving.server.log_queries import LogQueries
from spark_rtps.serving.server.log_routes import LogRoutes
from spark_rtps.serving.server.tail_watch import TailWatch
from spark_rtps.transport.log.log_view import LogView

TOKEN = "t0ken-of-the-receiver"

#: What is answered at a target: JSON, a status and the reason for it, or what a log server answers.
Answers = Callable[[str], dict[str, Any] | tuple[int, str] | HttpResponse]


def recording(directory: Path, /, **changed: object) -> Answers:
    """A receiver with one subscription, `squares`, whose log lies in ``directory``, and streams of nothing else."""
    logs = LogRoutes(directory.parent, TOKEN, {directory.name})
    about = {
        "name": "squares",
        "topic": "Square",
        "type": "ShapeType",
        "log": directory.name,
        "directory": str(directory),
        "domain": 0,
        "place": None,
        "base": 0,
        "position": 0,
        "rows": 0,
        "state": "running",
        "error": None,
        "dynamic": False,
        "options": {},
        "retention": "bytes",
    }

    def answers(target: str) -> dict[str, Any] | HttpResponse:
        parts = urlsplit(target)
        if parts.path == "/v1/subscriptions":
            return {"v": 1, "subscriptions": [about | changed]}
        if parts.path == "/v1/streams":
            return {"streams": []}
        if parts.path.endswith("/groups"):
            return {"v": 1, "groups": {"spark": {"position": 64, "row": 1, "at_ns": 5}}}
        if parts.path.endswith("/tail"):
            return _tail(
                LogView(directory), {name: float(value[0]) for name, value in parse_qs(parts.query).items()}
            )
        try:
            if parts.path.endswith("/walk"):
                query = dict(parse_qsl(parts.query))
                return LogQueries(TailWatch()).scan(directory, Request(query, b"", None))
            return logs.answer("GET", target, b"")
        except Refusal as refusal:
            return refusal.answer

    return answers


def _tail(view: LogView, asked: dict[str, float]) -> dict[str, Any]:
    until = time.monotonic() + asked["wait"]
    while view.end <= asked["after"] and time.monotonic() < until:
        time.sleep(0.01)
    return {"base": view.base, "position": view.end, "rows": 0, "max_bytes": 1 << 24, "counters": {}}


class FakeReceiver(ThreadingHTTPServer):
    """Answers those who know the token."""

    daemon_threads = True

    def __init__(self, answers: Answers, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.answers = answers
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go when they like."""

    def __enter__(self) -> FakeReceiver:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeReceiver

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            found: dict[str, Any] | tuple[int, str] | HttpResponse = (401, "wrong token")
        else:
            found = self.server.answers(self.path)
        if isinstance(found, HttpResponse):
            status, raw = found.status, _bytes(found.body)
        elif isinstance(found, tuple):
            status, raw = found[0], json.dumps({"error": found[1]}).encode()
        else:
            status, raw = 200, json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def _bytes(body: bytes | FileRange) -> bytes:
    if isinstance(body, bytes):
        return body
    try:
        return os.pread(body.fd, body.nbytes, body.offset)
    finally:
        os.close(body.fd)
