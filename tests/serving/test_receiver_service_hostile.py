"""A client with a token that asks the server of a receiver service for anything: it is answered, and harms nobody."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spark_rtps.serving.server.receiver_service_server import ReceiverServiceServer
from spark_rtps.serving.server.server_config import Bounds, LogServerConfig
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.stream_log import StreamLog
from tests.serving.receiver_service_scene import LOG, OTHER_LOG, SEGMENT, TOKENS
from tests.support.stream_logs import RECEPTION, encoded, points, run_of

#: All that it may answer; 501 where it lacks a part of itself, 503 with the seconds after which to come back.
STATUSES = {100, 200, 204, 400, 401, 403, 404, 405, 409, 410, 411, 413, 414, 416, 431, 501, 503}
_ANSWER = re.compile(rb"HTTP/1\.1 (\d{3})[^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n")
QUICK = Bounds(request_seconds=1.0, idle_seconds=1.0, stalled_seconds=1.0)


class Server:
    """The server in this process, so that whatever goes wrong in it is seen."""

    def __init__(self, root: Path) -> None:
        self.directory = root / LOG
        with StreamLog.create(
            self.directory, max_bytes=4 << 20, segment_bytes=SEGMENT,
            metadata={"topic": "T", "type": None, "guid_prefix": "00" * 12},
        ) as log:  # fmt: skip
            for i in range(8):
                assert log.append(run_of(encoded(points(500 * i, 500)), 500 * i + 1), reception=RECEPTION)
            self.end = log.position
        Counters.create(self.directory / "counters").counter("log.consumer")
        config = LogServerConfig(
            root, "127.0.0.1", 0, "", bounds=QUICK, receiver_service=True, tokens=TOKENS
        )  # fmt: skip
        self.server = ReceiverServiceServer(config, lambda _: None)
        reported = {
            "name": "imu", "topic": "rt/imu", "type": None, "domain": 7, "log": LOG, "state": "running",
            "error": None, "dynamic": False, "options": {"topic": "rt/imu"}, "retention": "committed",
        }  # fmt: skip
        self.server.answers.tell([reported])
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()

    def close(self) -> None:
        self.server.close()
        self.thread.join(10)
        assert not self.thread.is_alive()

    def answers(self, sent: bytes) -> list[tuple[int, bytes]]:
        """Status and headers of what is answered until the connection ends, which it has to."""
        received = bytearray()
        sock = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
        with sock, suppress(ConnectionError):
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(1 << 16):
                received += part
        return [(int(found[1]), found[2]) for found in _ANSWER.finditer(received)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    s = Server(tmp_path_factory.mktemp("hostile"))
    yield s
    s.close()


# --- what it is asked -------------------------------------------------------------------------------

NUMBERS = ["", "0", "-1", "32", "64", "nan", "inf", "1e9", "0x20", "٣", "½", "+1", "1_0", " 1", "9" * 500]
NAMES = [
    "from", "to", "position", "row", "tail", "max_rows", "max_bytes", "end_position", "end_row", "pieces", "after",
    "wait", "time", "seconds", "bodies", "x",
]  # fmt: skip
PLACES = ["frames", "tail", "advance", "split", "place", "at", "walk"]
OF_LOG = [*PLACES, "groups", "groups/g", "report", "writer-types", ""]
WORDS = [
    "v1", "logs", "subscriptions", "imu", "streams", "errors", "losses", "topics", "metrics", "healthz", "readyz",
    "..", ".", "%2e%2e", "%00", "%ff", "[", "*",
]  # fmt: skip
#: What each of them needs.
QUERIES = {
    "frames": ("from", "to"),
    "advance": ("position", "row", "tail", "max_rows", "max_bytes"),
    "split": ("position", "row", "end_position", "end_row", "pieces"),
    "place": ("position", "row"),
    "tail": ("after",),
    "at": ("time",),
    "walk": ("from", "to", "bodies"),
}
numbers = st.one_of(
    st.sampled_from(NUMBERS),
    st.integers(-1 << 70, 1 << 70).map(str),
    st.integers(0, 2 * SEGMENT // 32).map(lambda n: str(32 * n)),
)
words = st.one_of(
    st.sampled_from([*WORDS, *OF_LOG, LOG, OTHER_LOG, LOG.upper()]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12),
)
paths = st.one_of(
    st.sampled_from(OF_LOG).map(lambda what: f"/v1/logs/{LOG}/{what}"),
    st.lists(words, max_size=6).map(lambda parts: "/" + "/".join(parts)),
)


def target(path: str, query: list[tuple[str, str]]) -> str:
    return path + ("?" + "&".join(f"{name}={value}" for name, value in query) if query else "")


def with_query(what: str) -> st.SearchStrategy[str]:
    """A request for a place in the log that has all that it needs."""
    query = st.tuples(*(st.tuples(st.just(name), numbers) for name in QUERIES[what]))
    return query.map(lambda found: target(f"/v1/logs/{LOG}/{what}", list(found)))


asked = st.one_of(
    st.sampled_from(PLACES).flatmap(with_query),
    st.builds(target, paths, st.lists(st.tuples(st.sampled_from(NAMES), numbers), max_size=10)),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("position", "row", "options", "lost", "malformed", "seen")
BODIES = [
    b"", b"[" * 2000, b'{"v":1,"position":' + b"9" * 6000 + b"}", b'{"v":1,"v":NaN}', b"\xff\xfe",
]  # fmt: skip
bodies = st.one_of(
    st.sampled_from(range(len(BODIES))).map(BODIES.__getitem__),
    st.binary(max_size=64),
    values.map(lambda reported: json.dumps(reported).encode()),
    st.dictionaries(st.sampled_from(KEYS), values).map(
        lambda reported: json.dumps({"v": 1, **reported}).encode()
    ),
)
HEADERS = [
    "Content-Length: 5", "Content-Length: -1", f"Content-Length: {10**20}", "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip", "Expect: 100-continue", "Connection: close", "Connection: upgrade",
    "Upgrade: websocket", "Range: bytes=0-1", "X: " + "y" * 900, "Host: other", " folded", "NoColon", "X:\x00",
    "Authorization: Bearer x",
]  # fmt: skip
headers = st.lists(
    st.sampled_from(HEADERS)
    | st.text(st.characters(max_codepoint=255), max_size=30).map(lambda text: f"X: {text}"),
    max_size=3,
)
METHODS = ["GET"] * 6 + ["PUT"] * 2 + ["POST"] * 2
METHODS += ["DELETE", "HEAD", "OPTIONS", "PATCH", "get", "CONNECT", "TRACE", "G?T"]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    body, role = draw(bodies), draw(st.sampled_from(["read"] * 3 + ["commit"]))
    lines = [f"{draw(st.sampled_from(METHODS))} {draw(asked)} HTTP/1.1", "Host: h"]
    lines += [f"Authorization: Bearer {TOKENS[role]}", *(draw(headers) if draw(st.booleans()) else ())]
    if body and draw(st.integers(0, 9)):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode("utf-8", "replace") + body


@settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(sent=st.lists(requests(), min_size=1, max_size=4))
def test_anything_that_a_client_may_ask(
    server: Server, caplog: pytest.LogCaptureFixture, sent: list[bytes]
) -> None:
    for status, headers in server.answers(b"".join(sent)):
        assert status in STATUSES
        assert status != 503 or b"Retry-After" in headers
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    head = f"GET /v1/logs/{LOG}/frames?from=0&to={SEGMENT} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
    ((status, headers),) = server.answers(f"{head}Authorization: Bearer {TOKENS['read']}\r\n\r\n".encode())
    assert status == 200 and b"Content-Length: %d\r\n" % SEGMENT in headers, "an honest client is served"


def test_nothing_is_left_of_it(server: Server) -> None:
    """The log is as it was, groups are sound, and no thread serves anybody."""
    until = time.monotonic() + 10
    while any(thread.name == "range" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.02)
    groups = json.loads(server.server.answers.answer("GET", f"/v1/logs/{LOG}/groups", b"").body)["groups"]
    assert all(0 <= group["position"] <= server.end for group in groups.values())
    assert not [path.name for path in server.directory.iterdir() if path.name.endswith((".new", ".damaged"))]
    assert {path.name for path in server.directory.parent.iterdir()} == {LOG}


def test_half_a_line_of_a_supervisor_that_is_killed_is_the_last(tmp_path: Path) -> None:
    config = LogServerConfig(
        tmp_path, "127.0.0.1", 0, "", receiver_service=True, tokens={"read": "r" * 20}, node=None
    )
    server = ReceiverServiceServer(config, lambda _: None)
    try:
        server.hear(['{"op": "state", "subscriptions": []}\n', '{"op": "state", "subscri'])
        assert server.answers.answer("GET", "/v1/subscriptions", b"").status == 200
    finally:
        server.close()
