"""Who may ask the server of a receiver service what: addresses, tokens, roles and certificates."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.serving.server.process import LogServerConfig, ReceiverServiceServerProcess
from spark_rtps.serving.server.server_config import Bounds
from spark_rtps.serving.wire_format.receiver_service import too_open
from spark_rtps.transport.errors import (
    LogAccessError,
    LogLostError,
    RangeServerError,
    TransportError,
)
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.frame import Cursor
from tests.serving.receiver_service_scene import LOG, OTHER_LOG, SEGMENT, TOKENS, Scene, shown, supervise


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
        status, reported = scene.get(path, role, method)
        if roles.index(role) < roles.index(least):
            assert (status, least in reported["error"]) == (403, True)
        else:
            assert status not in (401, 403)


def test_without_a_token_it_says_only_whether_it_works(scene: Scene) -> None:
    assert scene.get("/healthz", None) == (200, b"ok\n")
    status, reported = scene.get("/readyz", None)
    assert status == 503 and reported["subscriptions"]["cell/imu"]["joined"] is False
    counters = Counters.create(scene.directory / "counters")
    counters.counter("receiver.pid").set(os.getpid())
    until = time.monotonic() + 20
    while True:
        counters.counter("receiver.heartbeat_ns").set(time.monotonic_ns())
        status, reported = scene.get("/readyz", None)
        if status == 200 or time.monotonic() > until:
            break
    checks = {"joined": True, "matched": False, "writing": True, "disk": True}
    assert (status, reported["subscriptions"]) == (200, {"cell/imu": checks})
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
    config = LogServerConfig(tmp_path, address, 0, "", receiver_service=True, tokens=tokens)
    with pytest.raises(TransportError, match="cannot listen"):
        ReceiverServiceServerProcess.start(config)


def test_secrets_are_shown_nowhere(scene: Scene) -> None:
    shown = repr(scene.config) + repr(scene.served(certificate="CERT", key="KEY"))
    assert not [secret for secret in (*TOKENS.values(), "CERT", "KEY") if secret in shown]
    with pytest.raises(
        LogAccessError, match=r"refuses the token for its subscriptions: .*receiver\.token\.file"
    ) as refused:
        scene.client("s3cret-that-is-wrong").subscriptions()
    assert "s3cret" not in str(refused.value)
    with pytest.raises(
        LogAccessError, match=r"refuses position 0 of group g: this needs the role commit, .* read; set"
    ):
        scene.client("read").commit_offset(LOG, "g", Cursor(0))
    assert scene.client().subscriptions()[0].options == {"topic": "rt/imu"}


# --- ranges -----------------------------------------------------------------------------------------


def frames(scene: Scene, start: object, stop: object, log: str = LOG) -> tuple[int, Any]:
    return scene.get(f"/v1/logs/{log}/frames?from={start}&to={stop}", "read")


def test_ranges_that_are_not_handed_out(scene: Scene) -> None:
    end = scene.end.position
    assert len(frames(scene, 0, 4096)[1]) == 4096
    status, reported = frames(scene, 1 << 40, (1 << 40) + 32)
    assert (status, reported["end"]) == (416, end), "forged: it was never there"
    for start, stop in (
        (-32, 0),
        (0, 0),
        (64, 32),
        (1, 33),
        ("x", 32),
        ("", ""),
        ("1e3", 2000),
        (0, 1 << 70),
    ):
        assert frames(scene, start, stop)[0] == 400, "forged: it is no range"
    scene.log.trim(SEGMENT)
    status, reported = frames(scene, 0, 4096)
    assert (status, reported["base"]) == (410, SEGMENT), "trimmed, or expired"
    with pytest.raises(
        LogLostError, match=f"position 0 of group g is no longer in the log .* begins at {scene.log.base}"
    ):
        scene.client("commit").commit_offset(LOG, "g", Cursor(0))


def test_logs_of_others_are_not_handed_out(scene: Scene) -> None:
    """A log in its directory is served while a subscription has it, and nothing beside its frames."""
    shutil.copytree(scene.directory, scene.root / OTHER_LOG)
    for log in (OTHER_LOG, "..", ".", "", LOG.upper(), f"{LOG}/..", f"../{LOG}", "%2e%2e", f"{LOG}%00"):
        assert frames(scene, 0, 4096, log)[0] == 404
    for file in ("groups.json", "counters", "../token", "..%2ftoken", "0.seg"):
        assert scene.get(f"/v1/logs/{LOG}/{file}", "read")[0] == 404
    scene.server.tell([])
    until = time.monotonic() + 10
    while frames(scene, 0, 4096)[0] != 404:
        assert time.monotonic() < until, "the subscription was removed"
    with pytest.raises(LogLostError, match=f"{scene.address} serves no stream log"):
        scene.client("read").tail(LOG)


# --- too many, too slow -----------------------------------------------------------------------------


def test_a_thousand_connections(scene: Scene) -> None:
    """Connections of unauthenticated clients yield to authenticated ones; their memory is bounded."""
    assert scene.client("read").tail(LOG).position == scene.end.position
    before = memory(scene.server.pid)
    unmatched_peers = [
        socket.create_connection(("127.0.0.1", scene.server.port), timeout=20) for _ in range(1_000)
    ]
    for unmatched_peer in unmatched_peers:
        with suppress(OSError):
            unmatched_peer.sendall(b"GET /v1/subscriptions HTTP/1.1\r\nX: " + b"y" * 4096)
    assert scene.client("read").tail(LOG).position == scene.end.position
    assert len(frames(scene, 0, SEGMENT)[1]) == SEGMENT
    assert memory(scene.server.pid) - before < 64 << 20
    for unmatched_peer in unmatched_peers:
        unmatched_peer.close()


def test_a_client_that_sends_too_slowly_is_disconnected(tmp_path: Path) -> None:
    s = Scene(tmp_path, bounds=Bounds(request_seconds=0.5, idle_seconds=30.0))
    head = f"PUT /v1/logs/{LOG}/groups/g HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKENS['commit']}\r\n"
    try:
        for beginning in (b"GET /v1", f"{head}Content-Length: 9\r\n\r\n{{".encode(), head.encode()):
            with socket.create_connection(("127.0.0.1", s.server.port), timeout=20) as sock:
                sock.sendall(beginning)
                begun = time.monotonic()
                with suppress(OSError):
                    while time.monotonic() < begun + 20:
                        sock.sendall(b" ")  # a little, again and again
                        time.sleep(0.05)
                assert time.monotonic() - begun < 15
    finally:
        s.close()


def memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


# --- TLS --------------------------------------------------------------------------------------------


def test_a_clients_certificate_gives_a_role(secured: Scene, pem: Path) -> None:
    client = secured.client("no token", **shown(pem, "good"))
    client.commit_offset(LOG, "g", Cursor(0))
    with pytest.raises(LogAccessError, match="admin"):
        client.subscribe({"topic": "T"})
    with pytest.raises(LogAccessError):
        secured.client("no token", ca=(pem / "server.pem").read_text()).tail(LOG)
    assert (
        secured.client("read", ca=(pem / "server.pem").read_text()).tail(LOG).position == secured.end.position
    )
    thread = supervise(secured, lambda request: secured.server.send_answer(request.id, name="cell/imu"))
    assert secured.client("admin", **shown(pem, "good")).subscribe({"topic": "T"}).name == "cell/imu"
    thread.join()


@pytest.mark.parametrize(("name", "why"), [("old", "certificate expired"), ("untrusted", "unknown ca")])
def test_untrusted_certificates_are_refused(secured: Scene, pem: Path, name: str, why: str) -> None:
    """It is said at once, by name, and with what to set."""
    with pytest.raises(LogAccessError, match=f"{secured.address} refuses the certificate: {why}") as refused:
        secured.client("admin", patience=60, **shown(pem, name)).tail(LOG)
    assert "receiver.certificate" in str(refused.value)


def test_a_plain_client_of_a_secured_server(secured: Scene) -> None:
    with pytest.raises(
        RangeServerError, match=f"{secured.address} answers HTTP 400 .* speaks TLS: .*receiver.ca"
    ):
        secured.client("admin", patience=60).tail(LOG)


def test_a_secured_client_of_a_plain_server(scene: Scene, pem: Path) -> None:
    with pytest.raises(RangeServerError, match=f"{scene.address} does not speak TLS"):
        scene.client("admin", patience=60, ca=(pem / "server.pem").read_text()).tail(LOG)


@pytest.mark.parametrize(
    ("name", "why"), [("old", "has expired"), ("untrusted", "self-signed|issuer|self signed")]
)
def test_a_server_that_is_not_trusted(tmp_path: Path, pem: Path, name: str, why: str) -> None:
    """Its certificate has expired, or is of an authority that nobody knows."""
    s = Scene(tmp_path, certificate=str(pem / f"{name}.pem"), key=str(pem / f"{name}.key"))
    try:
        with pytest.raises(RangeServerError, match=f"{s.address} cannot be trusted: .*({why})"):
            s.client("admin", patience=60, ca=(pem / "ca.pem").read_text()).tail(LOG)
    finally:
        s.close()
