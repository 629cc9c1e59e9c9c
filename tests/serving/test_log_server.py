"""The log server over real sockets: what it hands out, to whom, and what it survives."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_rtps.monitoring.decoding_report import DAMAGED, LostPart, read_decoding_report
from spark_rtps.monitoring.range_tally import RangeTally
from spark_rtps.serving.client.http_client import HttpClient
from spark_rtps.serving.server.server_config import LogServerConfig
from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.log.stream_log import StreamLog
from tests.serving.served_log_scene import LOG, QUICK, SEGMENT, TOKEN, Scene
from tests.support.stream_logs import RECEPTION, encoded, points, run_of
from tests.support.waiting import wait_until


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    s = Scene(tmp_path)
    yield s
    s.close()


# --- what it hands out ------------------------------------------------------------------------------


def test_the_server_describes_a_log(scene: Scene) -> None:
    about = scene.about()
    assert about["metadata"]["given"] == {"topic": "T"}
    assert about["metadata"]["seed"] == scene.log._seed
    assert (about["base"], about["tail"]["position"]) == (0, scene.log.position)
    assert about["tail"]["rows"] == scene.rows
    assert len(about["segments"]) > 2 and about["segments"][0] == [0, SEGMENT]


def test_ranges_are_the_bytes_of_the_files(scene: Scene) -> None:
    for start, stop in ((0, SEGMENT), (32, 64), (SEGMENT, SEGMENT + 4096), (SEGMENT - 32, SEGMENT)):
        found = scene.frames(start, stop)
        assert found.status == 200
        assert found.raw == scene.on_disk(start, stop)


def test_one_connection_answers_many_requests(scene: Scene) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", scene.server.port, timeout=60)
    for i in range(50):
        path = f"/v1/logs/{LOG}/frames?from={32 * i}&to={32 * i + 8192}"
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert connection.getresponse().read() == scene.on_disk(32 * i, 32 * i + 8192)
        sock = connection.sock if i == 0 else sock  # type: ignore[has-type]  # noqa: F821
        assert connection.sock is sock
    connection.close()


def test_a_trimmed_range_answers_gone_with_the_base(scene: Scene) -> None:
    scene.log.trim(2 * SEGMENT)
    found = scene.frames(0, 4096)
    assert (found.status, found.json["base"]) == (410, 2 * SEGMENT)
    assert (scene.about()["base"], scene.about()["start"]) == (scene.log.base, 2 * SEGMENT)
    assert scene.frames(2 * SEGMENT, 2 * SEGMENT + 4096).status == 200


def test_a_segment_that_is_lost_is_not_called_trimmed(scene: Scene) -> None:
    next(path for path in scene.directory.glob("*.seg*") if int(path.stem) == SEGMENT).unlink()
    found = scene.frames(SEGMENT, SEGMENT + 4096)
    assert (found.status, found.json["lost"]) == (404, True)


def test_a_request_beyond_the_end_of_the_log(scene: Scene) -> None:
    end = scene.about()["tail"]
    beyond = (end["most"] + SEGMENT) // 32 * 32
    found = scene.frames(beyond, beyond + 32)
    assert (found.status, found.json["end"]) == (416, end["position"])


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, 0),
        (64, 32),
        (1, 33),
        (0, 33),
        (0, SEGMENT + 32),
        (0, 1 << 40),
        (-32, 0),
        ("x", 32),
        ("", ""),
        ("٣٢", 64),
    ],
)
def test_ranges_that_are_none(scene: Scene, start: object, stop: object) -> None:
    from urllib.parse import quote

    assert scene.frames(quote(str(start)), stop).status == 400


def test_writer_types(scene: Scene) -> None:
    assert scene.get(f"/v1/logs/{LOG}/writer-types").raw == b""
    (scene.directory / "writer_types.jsonl").write_bytes(b"some lines\n")
    assert scene.get(f"/v1/logs/{LOG}/writer-types").raw == b"some lines\n"


def test_a_report_is_counted_once(scene: Scene) -> None:
    tally = RangeTally(seen=(0, 99), lost=(LostPart(DAMAGED, 96, 1, 64, 7),))
    for _ in range(2):
        assert scene.get(f"/v1/logs/{LOG}/report", method="POST", body=tally.to_json()).status == 204
    report = read_decoding_report(scene.directory)
    assert report.lost_samples == 7 and list(report.counted) == [(0, 99)]


def test_a_report_that_is_none_changes_nothing(scene: Scene) -> None:
    for body in (b"", b"{}", b"[" * 100_000, b'{"v":1}'):
        found = scene.get(f"/v1/logs/{LOG}/report", method="POST", body=body)
        assert found.status == 400, body[:20]
    with scene.connect() as sock:
        head = f"POST /v1/logs/{LOG}/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        sock.sendall(f"{head}Content-Length: {QUICK.body_bytes + 1}\r\n\r\n".encode())
        assert sock.recv(12) == b"HTTP/1.1 413"
    assert not list(read_decoding_report(scene.directory).counted)


# --- to whom ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [None, "", "5ca1ab1", "5ca1ab1e0", "5CA1AB1E", "é"])
def test_without_the_token_there_is_nothing(scene: Scene, token: str | None) -> None:
    for path in (f"/v1/logs/{LOG}", f"/v1/logs/{LOG}/frames?from=0&to=32", "/v1/logs/x", "/", "/healthz?x"):
        assert scene.get(path, token=token).status == 401
    assert scene.get(f"/v1/logs/{LOG}/report", token=token, method="POST", body=b"{}").status == 401


def test_the_token_is_shown_nowhere() -> None:
    config = LogServerConfig(Path("/x"), "127.0.0.1", 0, TOKEN)
    assert TOKEN not in repr(config) and TOKEN not in str(config)


@pytest.mark.parametrize(
    "log",
    [
        "../" + LOG,
        LOG.upper(),
        LOG.replace("-", ""),
        "{" + LOG + "}",
        "urn:uuid:" + LOG,
        LOG + "/..",
        LOG + "%00",
        "%2e%2e",
        "",
        "7d5e4c5f-93a5-4d86-8c5c-0a8f8b0d6a11",
    ],
)
def test_only_logs_that_were_allowed(scene: Scene, tmp_path: Path, log: str) -> None:
    (tmp_path / "7d5e4c5f-93a5-4d86-8c5c-0a8f8b0d6a11").mkdir()
    assert scene.get(f"/v1/logs/{log}").status == 404
    assert scene.get(f"/v1/logs/{log}/frames?from=0&to=32").status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT"])
def test_other_methods(scene: Scene, method: str) -> None:
    assert scene.get(f"/v1/logs/{LOG}", method=method).status == 405
    assert scene.get(f"/v1/logs/{LOG}/report").status == 405
    scene.is_alive()


# --- what it survives -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.sampled_from(
            [
                b"GET ", b"/v1/logs/", LOG.encode(), b" HTTP/1.1\r\n", b"Host: x\r\n", b"\r\n", b"\r\n\r\n", b"\0",
                b"Authorization: Bearer " + TOKEN.encode() + b"\r\n", b"Content-Length: 9\r\n", b"POST ", b"/report",
                b"Content-Length: 99999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n",
                b"Expect: 100-continue\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\x00",
                b"A" * 20_000,
                b"/frames?from=0&to=32", b"Connection: close\r\n", b"Content-Length: -1\r\n", b"\xff\xfe",
            ]
        ),
        max_size=12,
    )
)  # fmt: skip
def test_any_bytes(scene: Scene, parts: list[bytes]) -> None:
    with scene.connect() as sock:
        try:
            sock.sendall(b"".join(parts))
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65_536):
                pass
        except OSError:
            pass  # it need not listen to the end
    scene.is_alive()


def test_headers_and_bodies_that_never_end_are_given_up(scene: Scene) -> None:
    endless = [
        b"GET / HT",
        b"GET / HTTP/1.1\r\nX: y\r\n",
        f"POST /v1/logs/{LOG}/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Length: 100\r\n\r\n{".encode(),
    ]
    for beginning in endless:
        with scene.connect() as sock:
            sock.sendall(beginning)
            begun = time.monotonic()
            try:
                while sock.recv(4096):
                    pass
            except OSError:
                pass
            assert time.monotonic() - begun < 5
    scene.is_alive()


def test_a_reader_that_stops_reading_is_given_up(tmp_path: Path) -> None:
    s = Scene(tmp_path, bounds=replace(QUICK, connections=1))
    s.log.close()
    big = StreamLog.create(tmp_path / "x", max_bytes=256 << 20, segment_bytes=64 << 20, metadata={})
    big.append(run_of(encoded(points(0, 500)), 1), reception=RECEPTION)
    name = "7d5e4c5f-93a5-4d86-8c5c-0a8f8b0d6a11"
    big.close()
    (tmp_path / "x").rename(tmp_path / name)
    s.server.allow(name)
    with s.connect() as sock:
        path = f"/v1/logs/{name}/frames?from=0&to={64 << 20}"
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert sock.recv(10)
        until = time.monotonic() + 10
        while s.server._connections and time.monotonic() < until:
            time.sleep(0.05)
        assert not s.server._connections
        s.is_alive()
    s.close()


def test_unauthenticated_clients_yield_to_authenticated_ones(scene: Scene) -> None:
    unmatched_peers = []
    for _ in range(1000):
        try:
            unmatched_peers.append(scene.connect())
        except OSError:
            break  # this process may have no more descriptors
        if len(unmatched_peers) % 100 == 0:
            scene.is_alive()
    assert len(unmatched_peers) > 100
    assert len(scene.server._connections) <= QUICK.connections
    scene.is_alive()
    for sock in unmatched_peers:
        sock.close()


def known(scene: Scene) -> http.client.HTTPConnection:
    """A connection that has shown the token, and has no request any more."""
    connection = http.client.HTTPConnection("127.0.0.1", scene.server.port, timeout=60)
    assert is_open(connection)
    wait_until(lambda: all(each.idle_since for each in list(scene.server._connections)), "no requests")
    return connection


def is_open(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", f"/v1/logs/{LOG}", headers={"Authorization": f"Bearer {TOKEN}"})
        return bool(connection.getresponse().read())
    except OSError:
        return False


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Scene]:
    s = Scene(tmp_path, bounds=replace(QUICK, request_seconds=60.0, idle_seconds=60.0))
    yield s
    s.close()


def test_the_connection_that_is_idle_for_longest_gives_way(patient: Scene) -> None:
    connections = [known(patient) for _ in range(QUICK.connections)]
    assert is_open(connections[0])  # it was used again: the second one is idle for longest now
    connections += [known(patient), known(patient)]
    assert [is_open(each) for each in connections] == [True, False, False] + 7 * [True]
    for connection in connections:
        connection.close()


def test_unauthenticated_clients_take_at_most_one_idle_connection(patient: Scene) -> None:
    connections = [known(patient) for _ in range(QUICK.connections)]
    unmatched_peers = [patient.connect() for _ in range(5 * QUICK.connections)]
    latest = known(patient)  # which tells that all before it were taken
    assert [is_open(each) for each in connections] == [False] + 7 * [True]
    for each in (*unmatched_peers, *connections, latest):
        each.close()  # type: ignore[attr-defined]


def test_a_busy_server_asks_the_next_client_to_retry(patient: Scene) -> None:
    connections = [known(patient) for _ in range(QUICK.connections)]
    for connection in connections:
        connection.sock.sendall(b"GET /v1")
    wait_until(lambda: not any(each.idle_since for each in patient.server._connections), "requests begin")
    found = patient.get(f"/v1/logs/{LOG}")
    assert (found.status, found.headers.getheader("Retry-After")) == (503, "1")
    connections.pop().close()
    wait_until(lambda: patient.get(f"/v1/logs/{LOG}").status == 200, "room")
    for connection in connections:
        connection.close()


def test_a_request_that_comes_while_its_connection_gives_way_is_not_looked_at(patient: Scene) -> None:
    """Its sender sees the end of the connection instead of an answer, and may send it again."""
    connection = known(patient)
    (exchange,) = patient.server._connections
    wait_until(lambda: exchange.idle_since, "no request")
    with exchange._lock:  # its thread has the request, and waits here
        connection.request("GET", "/healthz")
        exchange._gave_way = True
    with pytest.raises(http.client.RemoteDisconnected):
        connection.getresponse()
    assert not exchange.give_way()


def test_a_client_asks_again_when_its_connection_gave_way(patient: Scene) -> None:
    client = HttpClient(Served((f"127.0.0.1:{patient.server.port}",), TOKEN), patient.directory, patience=10)
    before = client.get(f"/v1/logs/{LOG}", "the log", max_bytes=1 << 20)
    connections = [known(patient) for _ in range(QUICK.connections)]
    assert len(patient.server._connections) == QUICK.connections
    assert client.get(f"/v1/logs/{LOG}", "the log", max_bytes=1 << 20) == before
    for connection in connections:
        connection.close()


def test_an_idle_connection_is_closed(scene: Scene) -> None:
    with scene.connect() as sock:
        assert sock.recv(10) == b""


def test_a_file_that_was_cut_ends_the_connection(scene: Scene) -> None:
    path = min(scene.directory.glob("*.seg*"))
    wanted = scene.connect()
    os.truncate(path, 8192)
    request = f"GET /v1/logs/{LOG}/frames?from=0&to=8192 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    wanted.sendall(request.encode())
    assert wanted.recv(12) == b"HTTP/1.1 200"
    wanted.close()
    assert scene.frames(0, SEGMENT).status == 400
    scene.is_alive()


def test_a_server_serves_while_the_log_is_appended_and_trimmed(tmp_path: Path) -> None:
    s = Scene(tmp_path)
    stop = threading.Event()
    statuses: list[int] = []

    def read() -> None:
        while not stop.is_set():
            base = s.about()["start"]
            found = s.frames(base, base + SEGMENT)
            statuses.append(found.status)
            if found.status == 200:
                # what is trimmed while it is sent may be overwritten: frames say themselves where they lie
                assert int.from_bytes(found.raw[8:16], "little") == base or s.about()["start"] > base
            else:
                assert found.status == 410 and found.json["base"] > base

    reader = threading.Thread(target=read)
    reader.start()
    until = time.monotonic() + 30
    while reader.is_alive() and statuses.count(200) <= 5 and time.monotonic() < until:
        s.append(4)
        s.log.trim(max(0, s.log.position - 3 * SEGMENT))
        time.sleep(0.005)
    stop.set()
    reader.join()
    assert statuses.count(200) > 5
    s.close()


def test_descriptors_are_closed(scene: Scene) -> None:
    scene.is_alive()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        scene.frames(0, SEGMENT)
        scene.frames(0, 33)
        with scene.connect() as sock:
            path = f"/v1/logs/{LOG}/frames?from=0&to={SEGMENT}"
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    until = time.monotonic() + 5  # the last ones may not even be accepted yet
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < until:
        time.sleep(0.02)
    assert len(os.listdir("/proc/self/fd")) <= before
