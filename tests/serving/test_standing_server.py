"""The server of a standing receiver over real sockets: who may, what it answers, and what it survives."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.monitoring.decoding_report import MISPLACED, NOT_HELD
from spark_rtps.serving.consumer_group_file import GROUPS_MAX
from spark_rtps.serving.placing import Misfit
from spark_rtps.serving.process import RangeServerConfig, StandingServerProcess
from spark_rtps.serving.receiver_client import ReceiverClient
from spark_rtps.serving.served import Served
from spark_rtps.serving.standing import SubscriptionInfo, is_name, too_open
from spark_rtps.serving.tail_watch import WAITING_MAX
from spark_rtps.transport.errors import (
    LogAccessError,
    LogLostError,
    RangeServerError,
    TransportError,
    UsageError,
)
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
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
        config = RangeServerConfig(folder, "127.0.0.1", 0, "", standing=True, tokens=TOKENS)
        self.config = replace(config, **given)
        self.subscription = {
            "name": "cell/imu", "topic": "rt/imu", "type": None, "domain": 7, "log": LOG, "state": "running",
            "error": None, "dynamic": False, "options": {"topic": "rt/imu", "receiver.token": "x"},
            "retention": "committed",
        }  # fmt: skip
        self.start()

    def start(self, port: int = 0, *, tells: bool = True) -> None:
        self.server = StandingServerProcess.start(replace(self.config, port=port))
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

    def served(self, role: str = "admin", **given: Any) -> Served:
        return Served((f"127.0.0.1:{self.server.port}",), TOKENS.get(role, role), **given)

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


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    s = Scene(tmp_path)
    yield s
    s.close()


# --- who may ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "least"),
    [
        ("GET", "/metrics", "read"),
        ("GET", "/v1/subscriptions", "read"),
        ("GET", f"/v1/logs/{LOG}", "read"),
        ("GET", f"/v1/logs/{LOG}/tail", "read"),
        ("GET", f"/v1/logs/{LOG}/groups", "read"),
        ("GET", "/v1/streams", "read"),
        ("GET", "/v1/errors", "read"),
        ("GET", "/v1/losses", "read"),
        ("PUT", f"/v1/logs/{LOG}/groups/g", "commit"),
        ("DELETE", f"/v1/logs/{LOG}/groups/g", "admin"),
        ("POST", "/v1/subscriptions", "admin"),
        ("DELETE", "/v1/subscriptions/cell/imu", "admin"),
        ("PATCH", "/v1/subscriptions", "admin"),
    ],
)
def test_roles(scene: Scene, method: str, path: str, least: str) -> None:
    for wrong in (None, "", "wrong", TOKENS["admin"][:-1], TOKENS["admin"] + "4"):
        assert scene.get(path, wrong, method)[0] == 401
    roles = list(TOKENS)
    for role in roles:
        status, told = scene.get(path, role, method)
        if roles.index(role) < roles.index(least):
            assert (status, least in told["error"]) == (403, True)
        else:
            assert status not in (401, 403)


def test_without_a_token_it_says_only_whether_it_works(scene: Scene) -> None:
    assert scene.get("/healthz", None) == (200, b"ok\n")
    status, told = scene.get("/readyz", None)
    assert status == 503 and told["subscriptions"]["cell/imu"]["joined"] is False
    counters = Counters.create(scene.directory / "counters")
    counters.counter("receiver.pid").set(os.getpid())
    counters.counter("receiver.heartbeat_ns").set(time.monotonic_ns())
    status, told = scene.get("/readyz", None)
    checks = {"joined": True, "matched": False, "writing": True, "disk": True}
    assert (status, told["subscriptions"]) == (200, {"cell/imu": checks})
    scene.server.tell([{**scene.subscription, "state": "failed"}])
    until = time.monotonic() + 5
    while scene.get("/readyz", None)[0] == 200:
        assert time.monotonic() < until


def test_another_address_than_loopback_needs_tls_and_a_token() -> None:
    assert too_open("127.0.0.2", has_tls=False, has_access=True) is None
    assert too_open("0.0.0.0", has_tls=True, has_access=True) is None
    for tls, access in ((False, True), (True, False), (False, False)):
        assert "TLS" in (too_open("0.0.0.0", has_tls=tls, has_access=access) or "")
    assert too_open("127.0.0.1", has_tls=True, has_access=False)


@pytest.mark.parametrize(("address", "tokens"), [("0.0.0.0", TOKENS), ("127.0.0.1", {})])
def test_a_server_that_is_too_open_does_not_start(
    tmp_path: Path, address: str, tokens: dict[str, str]
) -> None:
    config = RangeServerConfig(tmp_path, address, 0, "", standing=True, tokens=tokens)
    with pytest.raises(TransportError, match="cannot listen"):
        StandingServerProcess.start(config)


def test_secrets_are_shown_nowhere(scene: Scene) -> None:
    shown = repr(scene.config) + repr(scene.served(certificate="CERT", key="KEY"))
    assert not [secret for secret in (*TOKENS.values(), "CERT", "KEY") if secret in shown]
    with pytest.raises(LogAccessError) as refused:
        scene.client("s3cret-that-is-wrong").subscriptions()
    assert "s3cret" not in str(refused.value)
    assert scene.client().subscriptions()[0].options == {"topic": "rt/imu"}


# --- subscriptions ----------------------------------------------------------------------------------


def test_subscriptions(scene: Scene) -> None:
    (found,) = scene.client("read").subscriptions()
    assert (found.name, found.log, found.directory) == ("cell/imu", LOG, scene.directory)
    assert (found.base, found.position, found.rows) == (0, scene.end.position, scene.rows)
    assert found.place is not None and found.place.inode == scene.directory.stat().st_ino
    assert SubscriptionInfo.told(scene.get("/v1/subscriptions/cell/imu")[1]) == found
    for other in ("cell", "..%2f", "../cell/imu", "%00"):
        assert scene.get(f"/v1/subscriptions/{other}")[0] == 404


def test_a_server_that_knows_no_subscriptions_yet_asks_for_patience(scene: Scene) -> None:
    scene.server.stop()
    scene.start(tells=False)
    assert scene.get(f"/v1/logs/{LOG}")[0] == 503
    assert scene.get("/readyz", None)[0] == 503
    threading.Timer(0.3, lambda: scene.server.tell([scene.subscription])).start()
    assert scene.client().tail(LOG).position == scene.end.position


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


def test_a_client_subscribes_and_unsubscribes(scene: Scene) -> None:
    asked = []

    def make(request: Any) -> None:
        asked.append(request)
        new = {**scene.subscription, "name": "made", "log": OTHER_LOG, "dynamic": True, "state": "starting"}
        scene.server.tell([scene.subscription, new])
        scene.server.answer(request.id, name="made")

    thread = supervise(scene, make)
    made = scene.client().subscribe({"topic": "rt/odom"})
    thread.join()
    assert (asked[0].op, asked[0].options) == ("subscribe", {"topic": "rt/odom"})
    assert (made.name, made.log, made.state, made.position) == ("made", OTHER_LOG, "starting", 0)
    thread = supervise(scene, lambda request: scene.server.answer(request.id, name=request.name))
    assert scene.get("/v1/subscriptions/made", method="DELETE")[0] == 204
    thread.join()
    assert scene.get("/v1/subscriptions/cell/imu", method="DELETE")[0] == 409


def test_a_subscription_that_is_refused(scene: Scene) -> None:
    thread = supervise(scene, lambda request: scene.server.answer(request.id, error="no such topic"))
    with pytest.raises(RangeServerError, match="no such topic"):
        scene.client().subscribe({"topic": "?"})
    thread.join()
    for body in (b"", b"[]", b"{}", b'{"v":1,"options":[]}', b'{"v":1,"options":{"a":1}}', b"[" * 9999):
        assert scene.get("/v1/subscriptions", method="POST", body=body)[0] == 400
    huge = json.dumps({"v": 1, "options": {"a": "x" * (64 << 10)}}).encode()
    assert scene.get("/v1/subscriptions", method="POST", body=huge)[0] == 413


# --- places in a log --------------------------------------------------------------------------------


def test_places_are_those_of_a_view(scene: Scene) -> None:
    view, client, start, end = LogView(scene.directory), scene.client("read"), Cursor(0), scene.end
    for rows, nbytes in ((700, None), (None, 30_000), (10, 10), (None, None)):
        here = view.advance(start, max_rows=rows, max_bytes=nbytes, tail=end.position)
        assert client.advance(LOG, start, end, max_rows=rows, max_bytes=nbytes) == here
    for pieces in (1, 3, 7):
        assert client.split(LOG, start, end, pieces) == view.split(start, end, pieces)
    assert client.split(LOG, end, end, 3) == []
    middle = view.advance(start, max_rows=700, tail=end.position)
    assert client.place(LOG, middle) == middle
    crooked = client.place(LOG, Cursor(middle.position + 32))
    assert isinstance(crooked, Misfit) and crooked.cause == MISPLACED and "no frame" in crooked.what
    with pytest.raises(LogLostError, match="beyond its end"):
        client.place(LOG, Cursor(end.position + 32))
    scene.log.trim(SEGMENT)
    before = client.place(LOG, Cursor(0))
    assert isinstance(before, Misfit) and (before.cause, before.place) == (NOT_HELD, Cursor(SEGMENT))


def test_a_place_by_time(scene: Scene) -> None:
    if not hasattr(LogView, "at"):
        assert scene.get(f"/v1/logs/{LOG}/at?time=0")[0] == 501
        return
    assert scene.client().at(LOG, 0) == Cursor(0)
    assert scene.client().at(LOG, RECEPTION + DAY) == scene.end


def test_forged_positions_do_no_harm(scene: Scene) -> None:
    chance = random.Random(7)
    end = scene.end.position
    some = [0, 1, 31, 32, end - 32, end, end + 32, 1 << 62, (1 << 62) + 1, 10**18, "", "-1", "x", "1e3"]
    some += [chance.randrange(end) for _ in range(40)]
    for position in some:
        row = chance.choice([0, 1, 499, 500, 1 << 40, 1 << 62])
        for rest in (
            f"advance?position={position}&row={row}&tail={end}&max_rows=5&max_bytes=9",
            f"split?position={position}&row={row}&end_position={end}&end_row=0&pieces=9",
            f"split?position=0&row=0&end_position={position}&end_row={row}&pieces=4096",
            f"place?position={position}&row={row}",
            f"tail?after={position}&wait=0",
        ):
            assert scene.get(f"/v1/logs/{LOG}/{rest}", "read")[0] in (200, 400, 404, 416)
    for rest in (
        "split?position=0&row=0&end_position=64&end_row=0&pieces=4097",
        "tail?wait=nan",
        "tail?wait=-1",
    ):
        assert scene.get(f"/v1/logs/{LOG}/{rest}")[0] == 400
    for log in (OTHER_LOG, "..", LOG.upper(), "%2e%2e"):
        assert scene.get(f"/v1/logs/{log}/tail")[0] == 404


# --- waiting for more -------------------------------------------------------------------------------


def test_a_tail_is_told_when_the_log_goes_on(scene: Scene) -> None:
    client, end = scene.client("read"), scene.end.position
    found = client.tail(LOG)
    assert (found.base, found.position, found.rows) == (0, end, scene.rows)
    assert found.counters == {"log.consumer": 0}
    begun = time.monotonic()
    assert client.tail(LOG, after=end, wait=0.2).position == end
    assert 0.2 <= time.monotonic() - begun < 2
    threading.Timer(0.3, scene.append, (1,)).start()
    begun = time.monotonic()
    assert client.tail(LOG, after=end, wait=20).position > end
    assert 0.2 < time.monotonic() - begun < 3


def poll(scene: Scene, seconds: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", scene.server.port), timeout=20)
    target = f"/v1/logs/{LOG}/tail?after={scene.end.position}&wait={seconds}"
    sock.sendall(
        f"GET {target} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKENS['read']}\r\n\r\n".encode()
    )
    return sock


def test_many_who_wait_hinder_nobody(scene: Scene) -> None:
    polls = [poll(scene, 30) for _ in range(WAITING_MAX)]
    try:
        until = time.monotonic() + 10
        time.sleep(2)  # else this one has the place of one of them
        while scene.get(f"/v1/logs/{LOG}/tail?after={scene.end.position}&wait=0.05")[0] != 503:
            assert time.monotonic() < until, "so many wait at once, and no more"
        begun = time.monotonic()
        for _ in range(20):
            assert len(scene.get(f"/v1/logs/{LOG}/frames?from=0&to={SEGMENT}")[1]) == SEGMENT
        assert time.monotonic() - begun < 3
        scene.append(1)
        assert {sock.recv(12) for sock in polls} == {b"HTTP/1.1 200"}
    finally:
        for sock in polls:
            sock.close()


def test_who_waits_is_let_go_when_the_server_ends(scene: Scene) -> None:
    with poll(scene, 30) as sock:
        time.sleep(0.2)
        begun = time.monotonic()
        scene.server.stop()
        sock.recv(4096)
        assert time.monotonic() - begun < 4


def test_a_server_that_restarts_while_a_client_waits(scene: Scene) -> None:
    port, end = scene.server.port, scene.end.position
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(scene.client(patience=20).tail(LOG, after=end, wait=20).position)
    )
    thread.start()
    time.sleep(0.3)
    os.kill(scene.server.pid, signal.SIGKILL)
    scene.server.stop()
    scene.start(port)
    scene.append(1)
    thread.join(20)
    assert found == [scene.end.position]


# --- groups -----------------------------------------------------------------------------------------


def test_what_groups_commit_lets_the_receiver_trim(scene: Scene) -> None:
    client, far = scene.client("commit"), scene.end
    near = LogView(scene.directory).advance(Cursor(0), max_rows=700, tail=far.position)
    client.commit(LOG, "fast", far)
    assert scene.consumer.get() == far.position
    client.commit(LOG, "slow/one", near)
    assert scene.consumer.get() == far.position, "what may be trimmed is never taken back"
    assert client.groups(LOG) == {"fast": far, "slow/one": near}
    kept = json.loads((scene.directory / "groups.json").read_text())
    assert kept["v"] == 1 and kept["groups"]["slow/one"]["row"] == near.row


def test_the_slowest_group_decides(scene: Scene) -> None:
    assert scene.put("slow", 0) == 204
    assert scene.put("fast", scene.end.position) == 204
    assert scene.consumer.get() == 0
    assert scene.get(f"/v1/logs/{LOG}/groups/slow", "admin", "DELETE")[0] == 204
    assert scene.consumer.get() == scene.end.position
    assert scene.get(f"/v1/logs/{LOG}/groups/slow", "admin", "DELETE")[0] == 404


def test_other_retention_keeps_what_may_be_trimmed(scene: Scene) -> None:
    scene.server.tell([{**scene.subscription, "retention": "bytes"}])
    while scene.client().subscriptions()[0].retention != "bytes":
        pass
    assert scene.put("g", scene.end.position) == 204
    assert scene.consumer.get() == 0


def test_what_no_group_can_commit(scene: Scene) -> None:
    for position in (-1, None, "0", 1.5, True, 1 << 63, [1]):
        assert scene.put("g", position) == 400
    assert scene.put("g", 0, -1) == 400
    assert scene.put("g", scene.end.position + 32) == 416
    for group in ("..", "a/../b", "", "-a", "a" * 129, "%2e%2e"):
        assert scene.put(group, 0) == 400
        with pytest.raises(UsageError):
            scene.client().commit(LOG, group, Cursor(0))
    scene.log.trim(SEGMENT)
    status, told = scene.get(f"/v1/logs/{LOG}/groups/g", "commit", "PUT", b'{"v":1,"position":0,"row":0}')
    assert (status, told["base"]) == (410, SEGMENT)
    with pytest.raises(LogLostError):
        scene.client().commit(LOG, "g", Cursor(0))


@pytest.mark.parametrize("raw", [b"", b"{", b'{"v":1,"groups":{"a":{"position":1', b"[]", b"\xff" * 99])
def test_a_file_of_groups_that_is_damaged_is_put_aside(scene: Scene, raw: bytes) -> None:
    (scene.directory / "groups.json").write_bytes(raw)
    assert scene.client().groups(LOG) == {}
    assert (scene.directory / "groups.json.damaged").read_bytes() == raw
    assert scene.put("g", 0) == 204
    assert scene.client().groups(LOG) == {"g": Cursor(0)}


def test_groups_outlive_the_server_and_expire(tmp_path: Path) -> None:
    s = Scene(tmp_path, groups_retention=DAY)
    try:
        s.server.stop()
        now = time.time_ns()
        kept = {
            name: {"position": 0, "row": 0, "at_ns": at}
            for name, at in (("old", now - 2 * DAY), ("new", now))
        }
        (s.directory / "groups.json").write_text(json.dumps({"v": 1, "groups": kept}))
        s.start()
        assert s.client().groups(LOG) == {"new": Cursor(0)}
        assert "old" not in (s.directory / "groups.json").read_text()
    finally:
        s.close()


def test_there_are_only_so_many_groups(scene: Scene) -> None:
    kept = {f"g{i}": {"position": 0, "row": 0, "at_ns": time.time_ns()} for i in range(GROUPS_MAX)}
    (scene.directory / "groups.json").write_text(json.dumps({"v": 1, "groups": kept}))
    assert scene.put("one-more", 0) == 409
    assert scene.put("g5", 0) == 204


# --- reports ----------------------------------------------------------------------------------------


def test_what_it_tells_of_itself(scene: Scene) -> None:
    for what in ("streams", "errors", "losses"):
        assert scene.get(f"/v1/{what}", "read")[1]["looked_in"] == [str(scene.root)]
    assert b"spark_rtps_up" in scene.get("/metrics", "read")[1]
    assert scene.get("/v1/topics?seconds=0")[0] == 501
    assert scene.get("/v1/nothing")[0] == scene.get("/")[0] == 404


def test_names() -> None:
    assert is_name("a") and is_name("imu/rt/imu_0-1.x")
    assert not [name for name in ("", "/a", "a..b", "a b", "a\n", ".a", "ä", "a" * 129) if is_name(name)]


# --- TLS --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's certificate, an authority, and certificates of clients: good, expired, and of nobody."""
    home = tmp_path_factory.mktemp("pem")

    def run(command: str) -> None:
        subprocess.run(command.split(), check=True, capture_output=True, cwd=home)

    for name in ("server", "ca"):
        run(
            f"openssl req -x509 -newkey ed25519 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
        )
    for name, days, by in (("good", 2, "ca"), ("old", -1, "ca"), ("stranger", 2, "server")):
        run(f"openssl req -newkey ed25519 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")
        run(
            f"openssl x509 -req -in {name}.csr -CA {by}.pem -CAkey {by}.key -CAcreateserial -days {days} "
            f"-out {name}.pem"
        )
    return home


@pytest.fixture
def secured(tmp_path: Path, pem: Path) -> Iterator[Scene]:
    s = Scene(
        tmp_path,
        certificate=str(pem / "server.pem"), key=str(pem / "server.key"), client_ca=str(pem / "ca.pem"),
    )  # fmt: skip
    yield s
    s.close()


def shown(pem: Path, name: str) -> dict[str, str]:
    return {
        "ca": (pem / "server.pem").read_text(),
        "certificate": (pem / f"{name}.pem").read_text(),
        "key": (pem / f"{name}.key").read_text(),
    }


def test_a_clients_certificate_gives_a_role(secured: Scene, pem: Path) -> None:
    client = secured.client("no token", **shown(pem, "good"))
    client.commit(LOG, "g", Cursor(0))
    with pytest.raises(LogAccessError, match="admin"):
        client.subscribe({"topic": "T"})
    with pytest.raises(LogAccessError):
        secured.client("no token", ca=(pem / "server.pem").read_text()).tail(LOG)
    assert (
        secured.client("read", ca=(pem / "server.pem").read_text()).tail(LOG).position == secured.end.position
    )
    thread = supervise(secured, lambda request: secured.server.answer(request.id, name="cell/imu"))
    assert secured.client("admin", **shown(pem, "good")).subscribe({"topic": "T"}).name == "cell/imu"
    thread.join()


@pytest.mark.parametrize("name", ["old", "stranger"])
def test_certificates_that_are_not_believed(secured: Scene, pem: Path, name: str) -> None:
    with pytest.raises((RangeServerError, ssl.SSLError)):
        secured.client("admin", patience=0.5, **shown(pem, name)).tail(LOG)


def test_a_plain_client_of_a_secured_server(secured: Scene) -> None:
    with pytest.raises(RangeServerError):
        secured.client("admin", patience=0.5).tail(LOG)
