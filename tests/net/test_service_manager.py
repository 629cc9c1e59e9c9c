"""What the service manager is told: one datagram each time, and nothing where there is no manager."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps.transport.net.service_manager import notify, watchdog_period


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@spark-rtps-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name.replace("@", "\0"))
        listener.settimeout(10)
        yield name, listener


def test_one_datagram(manager: tuple[str, socket.socket]) -> None:
    name, listener = manager
    assert notify("READY=1", "STATUS=2 run", environment={"NOTIFY_SOCKET": name})
    assert listener.recv(100) == b"READY=1\nSTATUS=2 run"


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all"])
def test_nobody_listens(address: str) -> None:
    assert not notify("READY=1", environment={"NOTIFY_SOCKET": address})
    assert not notify("READY=1", environment={})


@pytest.mark.parametrize(
    ("environment", "period"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30 * 10**9),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30 * 10**9),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog(environment: dict[str, str], period: int | None) -> None:
    assert watchdog_period(environment, 7) == period
