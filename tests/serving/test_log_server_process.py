"""The log server's TLS, and its process."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_rtps.serving.server.log_server import LogServer
from spark_rtps.serving.server.process import LogServerProcess
from spark_rtps.serving.server.server_config import LogServerConfig
from spark_rtps.transport.errors import RtpsError, TransportError
from tests.serving.served_log_scene import LOG, SEGMENT, TOKEN, Scene

# --- TLS --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pem")
    for name, days in (("good", 2), ("other", 2), ("old", -1)):
        stem = f"{folder}/{name}"
        for make in (
            f"openssl req -newkey ed25519 -nodes -subj /CN=spark-rtps -keyout {stem}.key -out {stem}.csr",
            f"openssl x509 -req -in {stem}.csr -signkey {stem}.key -days {days} -out {stem}.pem",
        ):
            subprocess.run(make.split(), check=True, capture_output=True)
    return folder


def tls_get(s: Scene, ca: Path, path: str = f"/v1/logs/{LOG}") -> bytes:
    context = ssl.create_default_context(cafile=str(ca))
    context.check_hostname = False
    connection = http.client.HTTPSConnection("127.0.0.1", s.server.port, context=context, timeout=5)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        assert connection.sock.version() == "TLSv1.3"
        with connection.getresponse() as response:
            return response.read()
    finally:
        connection.close()


def test_tls(tmp_path: Path, pem: Path) -> None:
    s = Scene(tmp_path, certificate=str(pem / "good.pem"), key=str(pem / "good.key"))
    path = f"/v1/logs/{LOG}/frames?from=64&to={SEGMENT}"
    assert tls_get(s, pem / "good.pem", path) == s.on_disk(64, SEGMENT)
    with pytest.raises(ssl.SSLCertVerificationError):
        tls_get(s, pem / "other.pem")
    in_clear = s.get(f"/v1/logs/{LOG}")
    assert in_clear.status == 400 and list(in_clear.json) == ["error"] and "TLS" in in_clear.json["error"]
    with s.connect() as sock:  # a handshake that never comes
        assert sock.recv(10) == b""
    assert b'"v"' in tls_get(s, pem / "good.pem")
    s.close()


def test_a_certificate_that_has_expired(tmp_path: Path, pem: Path) -> None:
    s = Scene(tmp_path, certificate=str(pem / "old.pem"), key=str(pem / "old.key"))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        tls_get(s, pem / "old.pem")
    s.close()


def test_files_that_are_no_certificate_or_no_key_of_it(tmp_path: Path, pem: Path) -> None:
    for certificate, key in (("good.pem", "other.key"), ("good.key", "good.key"), ("no.pem", "good.key")):
        config = LogServerConfig(tmp_path, "127.0.0.1", 0, TOKEN, str(pem / certificate), str(pem / key))
        with pytest.raises(TransportError, match="certificate"):
            LogServer(config)


# --- the process ------------------------------------------------------------------------------------


def config_of(folder: Path, port: int = 0) -> LogServerConfig:
    return LogServerConfig(folder, "127.0.0.1", port, TOKEN)


def is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_a_killed_server_comes_back_at_its_port(tmp_path: Path) -> None:
    first = LogServerProcess.start(config_of(tmp_path))
    with socket.create_connection(("127.0.0.1", first.port)):
        os.kill(first.pid, signal.SIGKILL)
        first._child.wait()
        with pytest.raises(RtpsError, match="ended"):
            first.check()
        with pytest.raises(RtpsError, match="ended"):
            first.serve(LOG)
        first.stop()
        second = LogServerProcess.start(config_of(tmp_path, first.port))
        second.serve(LOG)
        assert second.port == first.port and is_listening(second.port)
        second.stop()
        second.stop()
    assert not is_listening(second.port)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(TransportError, match=str(port)):
            LogServerProcess.start(config_of(tmp_path, port))


def test_a_server_ends_with_its_parent_and_hides_its_token(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path\n"
            "from spark_rtps.serving.server.process import *\n"
            f"p = LogServerProcess.start(LogServerConfig(Path({str(tmp_path)!r}), '127.0.0.1', 0, {TOKEN!r}))\n"
            "print(p.pid, p.port, flush=True); time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    pid, port = map(int, parent.stdout.readline().split())
    for name in ("cmdline", "environ"):
        assert TOKEN not in Path(f"/proc/{pid}/{name}").read_text()
    assert is_listening(port)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 10
    while is_listening(port) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_listening(port)
