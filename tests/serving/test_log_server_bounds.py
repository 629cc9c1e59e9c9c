"""What one peer, or many, can make the log server spend; and files that change while they are sent."""

from __future__ import annotations

import base64
import errno
import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_rtps.monitoring.decoding_report import read_decoding_report
from spark_rtps.monitoring.range_tally import RangeTally
from spark_rtps.serving.server.process import LogServerConfig, LogServerProcess
from spark_rtps.transport.errors import RtpsError
from spark_rtps.transport.log.stream_log import StreamLog
from tests.serving.served_log_scene import LOG, QUICK, TOKEN, Scene
from tests.support.stream_logs import RECEPTION, encoded, points, run_of

BIG_SEGMENT = 32 << 20


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    stem = tmp_path_factory.mktemp("pem") / "server"
    files = {"certificate": f"{stem}.pem", "key": f"{stem}.key"}
    make = "openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN=spark-rtps"
    command = [*make.split(), "-keyout", files["key"], "-out", files["certificate"]]
    subprocess.run(command, check=True, capture_output=True)
    return files


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    s = Scene(tmp_path)
    yield s
    s.close()


def eventually(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    until = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def serving_threads() -> int:
    return sum(thread.name == "range" for thread in threading.enumerate())


def request(path: str, method: str = "GET", *lines: str) -> bytes:
    head = (f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", *lines)
    return "\r\n".join((*head, "", "")).encode()


def everything(sock: socket.socket) -> bytes:
    """What comes until the connection ends, in whichever way."""
    found = bytearray()
    try:
        while part := sock.recv(65_536):
            found += part
    except OSError:
        pass
    return bytes(found)


# --- connections ------------------------------------------------------------------------------------


def test_handshakes_that_never_come_hold_no_threads(tmp_path: Path, tls: dict[str, str]) -> None:
    s = Scene(tmp_path, bounds=replace(QUICK, request_seconds=30.0), **tls)
    unmatched_peers = [s.connect() for _ in range(10 * QUICK.connections)]
    context = ssl.create_default_context(cafile=tls["certificate"])
    context.check_hostname = False
    with context.wrap_socket(s.connect()) as sock:  # one more makes room for itself
        sock.sendall(request(f"/v1/logs/{LOG}", "GET", "Connection: close"))
        assert everything(sock).startswith(b"HTTP/1.1 200")  # which tells that all before it were taken
    assert eventually(lambda: serving_threads() <= QUICK.connections)
    for unmatched_peer in unmatched_peers:
        unmatched_peer.close()
    s.close()
    assert eventually(lambda: serving_threads() == 0)


def test_ending_a_connection_leaves_it_encrypted(tmp_path: Path, tls: dict[str, str]) -> None:
    s = Scene(tmp_path, **tls)
    context = ssl.create_default_context(cafile=tls["certificate"])
    context.check_hostname = False
    with context.wrap_socket(s.connect()) as sock:
        sock.sendall(request(f"/v1/logs/{LOG}"))
        assert sock.recv(12) == b"HTTP/1.1 200"
        (exchange,) = s.server._connections
        exchange.end()
        assert exchange._sock._sslobj is not None or exchange._sock.fileno() < 0  # type: ignore[attr-defined]  # it may be closed by now
    s.close()


def test_without_descriptors_it_waits_and_says_so_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    class Without:
        def accept(self) -> None:
            tries.append(time.monotonic())
            raise OSError(errno.EMFILE, "Too many open files")

    listening = scene.server._sock
    with caplog.at_level(logging.WARNING, "spark_rtps.serving"):
        monkeypatch.setattr(scene.server, "_sock", Without())
        with socket.create_connection(listening.getsockname()):  # ends the accept that runs
            assert eventually(lambda: len(tries) >= 3)
        monkeypatch.setattr(scene.server, "_sock", listening)
    assert tries[2] - tries[0] > 0.15
    assert [record.getMessage() for record in caplog.records].count(
        "the log server could not accept a connection: Too many open files; trying again"
    ) == 1
    scene.is_alive()


def test_requests_in_a_row_are_answered_in_their_order(scene: Scene) -> None:
    with scene.connect() as sock:
        ranges = [(32 * i, 32 * i + 4096) for i in range(20)]
        paths = [f"/v1/logs/{LOG}/frames?from={start}&to={stop}" for start, stop in ranges]
        sock.sendall(b"".join(map(request, paths)) + request("/healthz", "GET", "Connection: close"))
        found = everything(sock)
    for start, stop in ranges:
        assert found.startswith(b"HTTP/1.1 200")
        body = found.split(b"\r\n\r\n", 1)[1]
        assert body[: stop - start] == scene.on_disk(start, stop)
        found = body[stop - start :]
    assert found.endswith(b"ok\n")


# --- bodies -----------------------------------------------------------------------------------------


def test_an_unauthenticated_request_with_a_body_is_refused(scene: Scene) -> None:
    for announced in ("Content-Length: 9", "Transfer-Encoding: chunked"):
        with scene.connect() as sock:
            head = f"GET /healthz HTTP/1.1\r\nHost: x\r\n{announced}\r\n\r\n".encode()
            sock.sendall(head + b"9\r\n" if "chunked" in announced else head)
            if "chunked" in announced:
                sock.sendall(b"123456789\r\n0\r\n\r\n")
            assert sock.recv(12) == b"HTTP/1.1 413", announced
    scene.is_alive()


def packed(raw: bytes, first: int = 0) -> list[object]:
    return [first, base64.b64encode(zlib.compress(raw, 9)).decode()]


def report_of(numbers: list[list[object]]) -> bytes:
    entry = {"v": 1, "overflow": [0, ""], "filtered": [0, ""], "seen": [0, 1 << 26], "failed": -1, "lost": []}
    malformed = [["w", f"reason {i}", some, 1, 1] for i, some in enumerate(numbers)]
    return json.dumps({**entry, "malformed": malformed}).encode()


def test_a_small_report_does_not_unpack_to_very_much(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_rtps.monitoring.range_tally._SAMPLES_MAX", 1 << 16)
    monkeypatch.setattr("spark_rtps.monitoring.range_tally._BITS_MAX", 1 << 18)
    full, sparse = b"\xff" * (1 << 13), b"\x80" + bytes((1 << 13) - 1)
    assert len(RangeTally.from_json(report_of([packed(full)])).malformed[0].numbers) == 1 << 16
    assert len(RangeTally.from_json(report_of([packed(sparse)] * 4)).malformed) == 4
    too_much = [
        [packed(full + b"\0")],  # one spans too many samples
        [packed(full), packed(sparse)],  # too many numbers together
        [packed(sparse)] * 5,  # too many bits together
    ]
    for numbers in too_much:
        body = report_of(numbers)
        with pytest.raises(ValueError, match="too many samples"):
            RangeTally.from_json(body)
        assert scene.get(f"/v1/logs/{LOG}/report", method="POST", body=body).status == 400
    assert not read_decoding_report(scene.directory).malformed


# --- files that change ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_file_that_is_cut_while_it_is_sent(tmp_path: Path, tls: dict[str, str], is_encrypted: bool) -> None:
    with StreamLog.create(tmp_path / LOG, max_bytes=128 << 20, segment_bytes=BIG_SEGMENT, metadata={}) as log:
        log.append(run_of(encoded(points(0, 500)), 1), reception=RECEPTION)
    given = tls if is_encrypted else {}
    server = LogServerProcess.start(LogServerConfig(tmp_path, "127.0.0.1", 0, TOKEN, **given))
    try:
        server.serve(LOG)
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        sock = plain
        if is_encrypted:
            context = ssl.create_default_context(cafile=tls["certificate"])
            context.check_hostname = False
            sock = context.wrap_socket(plain)
        with sock:
            sock.sendall(request(f"/v1/logs/{LOG}/frames?from=0&to={BIG_SEGMENT}"))
            assert sock.recv(12) == b"HTTP/1.1 200"
            begun = 0
            while begun < 256 << 10:  # its body is on its way, and far from its end
                begun += len(sock.recv(65_536))
            os.truncate(min((tmp_path / LOG).glob("*.seg*")), 4096)
            assert begun + len(everything(sock)) < BIG_SEGMENT  # and it ends
        server.check()  # a server that died of it says so
        server.serve("7d5e4c5f-93a5-4d86-8c5c-0a8f8b0d6a11")
    finally:
        server.stop()


def test_a_file_that_is_trimmed_while_it_is_sent_is_sent_whole(tmp_path: Path) -> None:
    s = Scene(tmp_path, bounds=replace(QUICK, stalled_seconds=10.0))
    name = "7d5e4c5f-93a5-4d86-8c5c-0a8f8b0d6a11"
    with StreamLog.create(
        tmp_path / name, max_bytes=128 << 20, segment_bytes=BIG_SEGMENT, metadata={}
    ) as log:
        log.append(run_of(encoded(points(0, 500)), 1), reception=RECEPTION)
    s.server.allow(name)
    segment = min((tmp_path / name).glob("*.seg*"))
    wanted = segment.read_bytes()
    with s.connect() as sock:  # its buffers hold a part of that
        sock.sendall(request(f"/v1/logs/{name}/frames?from=0&to={BIG_SEGMENT}", "GET", "Connection: close"))
        assert sock.recv(12) == b"HTTP/1.1 200"
        segment.unlink()
        assert everything(sock).split(b"\r\n\r\n", 1)[1] == wanted
    s.close()


def test_a_segment_behind_the_tail_is_not_handed_out(scene: Scene) -> None:
    tail, (last, size) = scene.about()["tail"], scene.about()["segments"][-1]
    assert scene.frames(last, last + size).status == 200  # in the tail's own segment all may be asked for
    suffix = min(scene.directory.glob("*.seg*")).suffix
    behind = last + 4 * size
    (scene.directory / f"{behind:020d}{suffix}").write_bytes(b"left over" * 1024)
    found = scene.frames(behind, behind + 64)
    assert (found.status, found.json["end"]) == (416, tail["position"])


def test_unreadable_files_are_logged(scene: Scene) -> None:
    segment = min(scene.directory.glob("*.seg*"))
    segment.unlink()
    segment.symlink_to(segment)  # a loop
    for found in (scene.frames(0, 64), scene.get(f"/v1/logs/{LOG}")):
        assert (found.status, found.headers.getheader("Retry-After")) == (503, "1")
        assert "symbolic links" in found.json["error"] and str(scene.directory) not in found.json["error"]


# --- the process ------------------------------------------------------------------------------------


def test_a_server_ends_in_good_order_at_sigterm(tmp_path: Path) -> None:
    server = LogServerProcess.start(LogServerConfig(tmp_path, "127.0.0.1", 0, TOKEN))
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
        os.kill(server.pid, signal.SIGTERM)
        assert everything(sock) == b""
        assert server._child.wait(60) == 0
    with pytest.raises(RtpsError, match="exit status 0"):
        server.check()
    server.stop()


def test_a_server_imports_neither_spark_nor_a_decoder() -> None:
    reported = subprocess.run(
        [sys.executable, "-c", "import sys, spark_rtps.serving.server.log_server; print(*sys.modules)"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    rooms = ("spark_rtps.columns", "spark_rtps.api", "spark_rtps.datasource", "pyspark", "py4j")
    transport = "spark_rtps.transport"
    rooms += (f"{transport}.protocol.participant.participant", f"{transport}.net.node")  # type: ignore[assignment]  # and starts fast
    assert not [name for name in reported if name.startswith(rooms)]
