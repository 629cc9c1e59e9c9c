"""A log server inside a test, which can be told to misbehave."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.errors import LogLostError
from spark_rtps.transport.log.checkpoint import Base, read_base, read_tail
from spark_rtps.transport.log.segment import list_segments, read_metadata, segment_path

LOG = "8c9f1a52-6f0e-4c0f-9c3a-3f5d2f1b7a10"
TOKEN = "t0ken"


def about(directory: Path) -> dict[str, Any]:
    metadata, tail = read_metadata(directory), read_tail(directory)
    base: Base | None
    try:
        base = read_base(directory, metadata.seed)
    except LogLostError:
        base = None
    return {
        "v": 1,
        "metadata": {
            "max_bytes": metadata.max_bytes,
            "segment_bytes": metadata.segment_bytes,
            "seed": metadata.seed,
            "given": metadata.given,
        },
        "base": None if base is None else base.position,
        "start": None if base is None else base.start,
        "tail": None if tail is None else tail._asdict(),
        "segments": [list(file) for file in list_segments(directory)],
    }


class SceneServer(ThreadingHTTPServer):
    """Serves the log in ``directory``; what is set below spoils its answers."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, directory: Path, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.directory = directory
        self.token = TOKEN
        #: Every connection is cut when so many bytes of a range were sent.
        self.cut_after: int | None = None
        #: Seconds between the blocks of a range.
        self.pause: Callable[[], None] | None = None
        #: Added to what Content-Length says.
        self.length_lie = 0
        self.change_about: Callable[[dict[str, Any]], Any] = lambda reported: reported
        #: Answered instead, by path: status, facts, headers.
        self.instead: Callable[[str], tuple[int, dict[str, Any], dict[str, str]] | None] = lambda _: None
        self.asked: list[str] = []
        self.fetched: list[tuple[int, int]] = []
        self.reports: list[Any] = []
        self.accepted = 0
        self.open: set[socket.socket] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def served(self) -> Served:
        return Served((self.address,), TOKEN, None)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.accepted += 1
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go when they like."""

    def __enter__(self) -> SceneServer:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End at once, in the midst of answers."""
        self.shutdown()
        self.server_close()
        for request in list(self.open):
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: SceneServer

    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._is_refused():
            return
        self.server.reports.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def _is_refused(self) -> bool:
        server = self.server
        server.asked.append(self.path)
        other = server.instead(self.path)
        if other is not None:
            self._json(*other)
        elif self.headers["Authorization"] != f"Bearer {server.token}":
            self._json(401, {"error": "the token is wrong"}, {})
        elif not self.path.startswith(f"/v1/logs/{LOG}"):
            self._json(404, {"error": "there is no such log"}, {})
        else:
            return False
        return True

    def _answer(self) -> None:
        if self._is_refused():
            return
        server, parts = self.server, urlsplit(self.path)
        what = parts.path.rpartition("/")[2]
        if what == "frames":
            query = parse_qs(parts.query)
            self._frames(int(query["from"][0]), int(query["to"][0]))
        elif what == "writer-types":
            path = server.directory / "writer_types.jsonl"
            self._body(path.read_bytes() if path.exists() else b"")
        else:
            reported = server.change_about(about(server.directory))
            self._body(reported if isinstance(reported, bytes) else json.dumps(reported).encode())

    def _frames(self, start: int, stop: int) -> None:
        server = self.server
        reported = about(server.directory)
        if start % 32 or stop % 32 or not 0 <= start < stop or stop - start > 64 << 20:
            return self._json(400, {"error": "no range"}, {})
        if start < (reported["base"] or 0):
            return self._json(410, {"error": "trimmed", "base": reported["base"]}, {})
        if reported["tail"] is not None and stop > reported["tail"]["most"]:
            return self._json(416, {"error": "not appended", "end": reported["tail"]["most"]}, {})
        for base, size in reported["segments"]:
            if base <= start < base + size:
                if stop > base + size:
                    return self._json(400, {"error": "crosses the end of a segment"}, {})
                break
        else:
            return self._json(404, {"error": "lost", "lost": True}, {})
        server.fetched.append((start, stop))
        with open(segment_path(server.directory, base), "rb") as file:
            file.seek(start - base)
            raw = file.read(stop - start)
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw) + server.length_lie))
        self.end_headers()
        cut = server.cut_after
        if cut is not None and cut < len(raw):
            raw, self.close_connection = raw[:cut], True
        step = len(raw) if server.pause is None else 32 << 10
        for at in range(0, len(raw), max(1, step)):
            if server.pause is not None:
                server.pause()
            self.wfile.write(raw[at : at + step])
        if server.length_lie:
            self.close_connection = True
        return None

    def _body(self, raw: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _json(self, status: int, facts: dict[str, Any], headers: dict[str, str]) -> None:
        raw = json.dumps(facts).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)
