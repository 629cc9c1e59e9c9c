"""The server that a supervisor keeps: where it listens, and what it writes at the end."""

from __future__ import annotations

import dataclasses
from typing import cast

import pytest

from spark_rtps.receiver_service.config import ReceiverServiceConfig
from spark_rtps.receiver_service.server_keeper import ServerKeeper
from tests.receiver_service.supervisor_scene import FakeServer, InlineExecutor, Scene

A = '[subscriptions.a]\ntopic = "A"\n'


def test_another_port(scene: Scene) -> None:
    """It stays where clients look for it, until the file names another port."""
    supervisor = scene.begin(A)
    found = FakeServer.port
    scene.servers[-1].died = True
    scene.steps()
    supervisor.reload(dataclasses.replace(supervisor.config, port=7421))
    scene.steps()
    assert [server.asked_port for server in scene.servers] == [0, found, 7421]


@pytest.mark.parametrize("file_port", [7000, 0])
def test_another_port_while_the_server_starts(file_port: int) -> None:
    """The start that is under way brings the port that the file named before; the next one takes the new one."""

    @dataclasses.dataclass
    class Config:
        port: int
        address: str = "127.0.0.1"

    asked: list[tuple[int, int]] = []

    class Server(FakeServer):
        def __init__(self, config: ReceiverServiceConfig, port: int) -> None:
            super().__init__(config, port)
            asked.append((config.port, port))
            self.port = port or 43_211

    keeper = ServerKeeper(
        cast("ReceiverServiceConfig", Config(file_port)), start=Server, pool=InlineExecutor()
    )
    keeper.do_work(1)
    keeper.replace(cast("ReceiverServiceConfig", Config(8000)))
    for now in range(2, 6):
        keeper.do_work(now)
    assert asked == [(file_port, file_port), (8000, 8000)]
    assert keeper.server is not None and keeper.server.port == 8000
    keeper.replace(cast("ReceiverServiceConfig", Config(8000, "127.0.0.2")))
    for now in range(6, 10):
        keeper.do_work(now)
    assert asked[2:] == [(8000, 8000)]


def test_a_found_port_stays_when_the_file_changes_while_the_server_starts(scene: Scene) -> None:
    supervisor = scene.begin(A)
    scene.servers[-1].died = True
    scene.steps(2)  # it starts
    supervisor.reload(dataclasses.replace(supervisor.config, groups_retention=10**10))
    scene.steps(6)
    assert [server.asked_port for server in scene.servers] == [0, FakeServer.port, FakeServer.port]


def test_commits_that_the_server_writes_at_its_end_count(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How far groups are may be written a moment after they have said it."""
    supervisor = scene.begin(A)
    log = scene.keeper("a").log
    scene.committed(log, g=0)
    monkeypatch.setattr(
        "spark_rtps.receiver_service.supervisor.read_counters", lambda _: {"log.position": 300}
    )
    monkeypatch.setattr(FakeServer, "stop", lambda _: scene.committed(log, g=200))
    (left,) = supervisor.drain(dispose=False, patience=1, pause=lambda: None)
    assert "group g is 100 bytes behind" in left
