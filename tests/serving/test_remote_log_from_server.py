"""What is fetched from the server process itself: plain, over TLS, and while it is killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_rtps.datasource.log_reading import read_log
from spark_rtps.datasource.range_calculator import LogPartition
from spark_rtps.monitoring.decoding_report import read_decoding_report
from spark_rtps.serving.client.remote_log import RemoteLog
from spark_rtps.serving.server.process import LogServerConfig, LogServerProcess
from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.errors import LogAccessError, LogLostError, RangeServerError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import segment_path
from tests.log.test_damage import plain
from tests.serving.log_server_scene import LOG, TOKEN
from tests.serving.test_remote_log_rows import PLAN, Scene, elsewhere


def start(scene: Scene, port: int = 0, **tls: str) -> LogServerProcess:
    server = LogServerProcess.start(LogServerConfig(scene.directory.parent, "127.0.0.1", port, TOKEN, **tls))
    server.serve(LOG)
    return server


def frames(served: Served, scene: Scene, *, patience: float = 20) -> list[object]:
    with closing(RemoteLog(served, LOG, scene.directory, patience=patience)) as files:
        return [plain(frame) for frame in LogView.over(files).frames(Cursor(0), scene.end)]


def on_disk(scene: Scene) -> list[object]:
    return [plain(frame) for frame in LogView(scene.directory).frames(Cursor(0), scene.end)]


def rows(parts: list[LogPartition]) -> pa.Table:
    return pa.Table.from_batches([batch for part in parts for batch in read_log(part, PLAN)], PLAN.columns)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("served"))


@pytest.fixture
def server(scene: Scene) -> Iterator[LogServerProcess]:
    server = start(scene)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A certificate that names no address, one for 127.0.0.1, and the key of both."""
    home = tmp_path_factory.mktemp("tls")
    key, nameless, named = home / "key.pem", home / "nameless.pem", home / "named.pem"
    new = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=edge"]
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", key, "-out", nameless]
    address = ["-key", key, "-out", named, "-addext", "subjectAltName=IP:127.0.0.1"]
    for rest in (made, address):
        subprocess.run([*new, *rest], check=True, capture_output=True)  # type: ignore[list-item]
    return nameless, named, key


def at(server: LogServerProcess, ca: Path | None = None, token: str = TOKEN) -> Served:
    return Served((f"127.0.0.1:{server.port}",), token, None if ca is None else ca.read_text())


def test_rows_and_their_report(scene: Scene, server: LogServerProcess, tmp_path: Path) -> None:
    parts = scene.parts(at(server))
    here = rows([elsewhere(part) for part in parts])
    fetched = read_decoding_report(scene.directory)
    assert fetched.malformed
    assert rows(parts).equals(here)
    again = read_decoding_report(scene.directory)
    assert again.malformed == fetched.malformed, "each sample counts once"
    assert list(again.counted) == list(fetched.counted)


def test_announced_types(scene: Scene, server: LogServerProcess) -> None:
    plan = replace(PLAN, announced=False)
    (part,) = scene.parts(at(server), 1)
    assert list(read_log(elsewhere(part), plan)) == list(read_log(part, plan))


def test_tls(scene: Scene, certificate: tuple[Path, Path, Path]) -> None:
    nameless, named, key = certificate
    server = start(scene, certificate=str(nameless), key=str(key))
    try:
        assert frames(at(server, nameless), scene) == on_disk(scene)
        with pytest.raises(RangeServerError, match="cannot be trusted"):
            frames(at(server, named), scene)
        for wrong in ("", "no certificate", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"):
            with pytest.raises(RangeServerError, match="cannot be trusted"):
                frames(replace(at(server), ca=wrong), scene)
        with pytest.raises(RangeServerError, match=r"HTTP 400 .* speaks TLS"):
            frames(at(server), scene, patience=0.3)
    finally:
        server.stop()
    plain_server = start(scene)
    try:
        with pytest.raises(RangeServerError):
            frames(at(plain_server, nameless), scene, patience=0.5)
    finally:
        plain_server.stop()


def test_tls_by_an_authority(scene: Scene, certificate: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """The server's certificate is another one: it has to be for the address."""
    nameless, _, key = certificate
    for name, is_there in (("IP:127.0.0.1", True), ("IP:10.0.0.1", False)):
        leaf = tmp_path / f"{is_there}.pem"
        subprocess.run(
            [
                *["openssl", "x509", "-req", "-CA", nameless, "-CAkey", key, "-days", "2", "-out", leaf],  # type: ignore[list-item]
                *["-in", _request(key, tmp_path), "-extfile", _file(tmp_path, f"subjectAltName={name}")],  # type: ignore[list-item]
            ],
            check=True,
            capture_output=True,
        )
        server = start(scene, certificate=str(leaf), key=str(key))
        try:
            if is_there:
                assert frames(at(server, nameless), scene) == on_disk(scene)
            else:
                with pytest.raises(RangeServerError, match="cannot be trusted: IP address mismatch"):
                    frames(at(server, nameless), scene)
        finally:
            server.stop()


def _request(key: Path, home: Path) -> Path:
    request = home / "request.pem"
    subprocess.run(
        ["openssl", "req", "-new", "-key", key, "-subj", "/CN=leaf", "-out", request],
        check=True,
        capture_output=True,
    )
    return request


def _file(home: Path, text: str) -> Path:
    path = home / "extensions"
    path.write_text(text)
    return path


def test_wrong_token_and_unknown_log(scene: Scene, server: LogServerProcess) -> None:
    with pytest.raises(LogAccessError, match="refuses the token"):
        frames(at(server, token="wrong"), scene)
    files = RemoteLog(at(server), LOG.replace("8", "9"), scene.directory)
    with closing(files), pytest.raises(LogLostError, match="serves no stream log"):
        LogView.over(files).frames(Cursor(0), scene.end)


def test_a_removed_segment_fails_as_on_disk(scene: Scene, server: LogServerProcess, tmp_path: Path) -> None:
    other = Scene(tmp_path)
    path = segment_path(other.directory, 1 << 18)
    server.stop()
    server = start(other)
    try:
        assert frames(at(server), other) == on_disk(other)
        path.unlink()
        outcomes: list[object] = []
        for read in (lambda: frames(at(server), other), lambda: on_disk(other)):
            with pytest.raises(LogLostError) as raised:
                read()  # type: ignore[no-untyped-call]
            outcomes.append((type(raised.value), str(raised.value)))
        assert outcomes[0] == outcomes[1]
    finally:
        server.stop()


def test_a_server_that_is_killed_and_started_again(scene: Scene) -> None:
    """At any moment of the reading."""
    running, kills = [start(scene)], 0
    port = running[0].port
    served, over = at(running[0]), threading.Event()

    def kill() -> None:
        nonlocal kills
        while not over.wait(0.02 * (kills % 7 + 1)):
            os.kill(running[0].pid, signal.SIGKILL)
            running[0].stop()
            running[0] = start(scene, port)
            kills += 1

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        while kills < 5:
            assert frames(served, scene) == on_disk(scene)
    finally:
        over.set()
        killer.join()
        running[0].stop()
