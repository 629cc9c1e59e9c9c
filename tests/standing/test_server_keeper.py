"""The server that a supervisor keeps: where it listens, and what it writes at the end."""

from __future__ import annotations

import dataclasses

import pytest

from tests.standing.supervisor_scene import FakeServer, Scene

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


def test_what_the_server_writes_at_its_end_is_not_left(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far groups are may be written a moment after they have said it."""
    supervisor = scene.begin(A)
    log = scene.keeper("a").log
    scene.committed(log, g=0)
    monkeypatch.setattr("spark_rtps.standing.supervisor.read_counters", lambda _: {"log.position": 300})
    monkeypatch.setattr(FakeServer, "stop", lambda _: scene.committed(log, g=200))
    (left,) = supervisor.drain(goodbye=False, patience=1, pause=lambda: None)
    assert "group g is 100 bytes behind" in left
