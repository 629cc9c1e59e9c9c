from __future__ import annotations

import gc
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.serving.client import connections, http_client, prefetch
from tests.serving.log_server_scene import SceneServer
from tests.serving.receiver_service_scene import Scene


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread that fetches outlives a test, and no socket that is not kept on purpose."""
    yield
    connections.close_all()
    gc.collect()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("spark-rtps")] == []


@pytest.fixture
def server(scene: Any) -> Iterator[SceneServer]:
    """Serves the log in the ``directory`` of the module's scene."""
    with SceneServer(scene.directory) as server:
        yield server


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched comes in small parts, and is asked for again at once."""
    monkeypatch.setattr(prefetch, "_AT_ONCE_BYTES", 1024)
    monkeypatch.setattr(http_client, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(http_client, "_READ_BYTES_MAX", 2000)


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
    for name, days, by in (("good", 2, "ca"), ("old", -1, "ca"), ("untrusted", 2, "server")):
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
