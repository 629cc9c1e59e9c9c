"""A supervisor removes logs that no subscription has any more, and no other log."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.receiver_service import supervisor as supervisor_module
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.log.last_use import LAST_USE
from spark_rtps.transport.log.log_retention import disk_bytes
from tests.receiver_service.supervisor_scene import Scene

A = '[subscriptions.a]\ntopic = "A"\n'
B = '[subscriptions.b]\ntopic = "B"\n'
HOUR = 3_600 * 10**9
#: Longer than from one cleaning to the next one.
LATER = 1_000.0


def aged(directory: Path, hours: int) -> None:
    then = time.time_ns() - hours * HOUR
    (directory / LAST_USE).unlink(missing_ok=True)
    for file in directory.iterdir():
        os.utime(file, ns=(then, then))


def logs(scene: Scene) -> set[Path]:
    return {each for each in scene.root.iterdir() if each.is_dir()}


def log_of(scene: Scene, name: str) -> Path:
    return scene.root / scene.keeper(name).log


def later(scene: Scene) -> None:
    scene.steps(seconds=LATER)
    scene.steps()


def test_the_log_of_a_subscription_that_left_the_file(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    supervisor = scene.begin(A + B)
    a, b = log_of(scene, "a"), log_of(scene, "b")
    supervisor.reload(scene.config(A))
    for directory in (a, b):
        aged(directory, 7 * 24 - 1)
    later(scene)
    assert logs(scene) == {a, b} and set(scene.recorded()) == {"a", "b"}
    for directory in (a, b):
        aged(directory, 7 * 24 + 1)
    later(scene)
    assert logs(scene) == {a}, "nobody appends to either, but a is a subscription's"
    assert f"removed {b}, a log without a subscription" in caplog.messages
    assert set(scene.recorded()) == {"a"}
    supervisor.reload(scene.config(A + B))
    scene.steps()
    assert scene.states() == {"a": "running", "b": "running"} and log_of(scene, "b") != b
    assert "cannot be resumed" not in caplog.text


def test_cleaning_by_size_follows_the_reloaded_file(scene: Scene) -> None:
    scene.begin(A + B)
    older, younger = log_of(scene, "a"), log_of(scene, "b")
    elsewhere = A.replace('"A"', '"C"') + B.replace('"B"', '"D"')
    supervisor = scene.begin(elsewhere)  # logs of other topics are new ones
    kept = {log_of(scene, name) for name in "ab"}
    later(scene)
    for directory, hours in ((older, 2), (younger, 1)):
        aged(directory, hours)
    for directory in kept:
        aged(directory, 3)
    later(scene)
    assert logs(scene) == {older, younger} | kept
    top = f'ended_logs_bytes = "{disk_bytes(younger)}"\n'
    supervisor.reload(scene.config(elsewhere, top=top))
    later(scene)
    assert logs(scene) == {younger} | kept
    supervisor.reload(scene.config(elsewhere, top='ended_logs_retention = "30min"\n'))
    later(scene)
    assert logs(scene) == kept


def test_a_client_s_subscription_that_cannot_be_taken_up_keeps_its_log(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.begin(A)
    scene.ask("subscribe", options={"topic": "C"})
    c = log_of(scene, "C")
    wanted = supervisor_module.wanted  # type: ignore[attr-defined]

    def refusing(name: str, options: Any, **more: Any) -> Any:
        if name == "C":
            raise OptionError("topic", "C", "is not known to this version")
        return wanted(name, options, **more)

    monkeypatch.setattr(supervisor_module, "wanted", refusing)
    aged(c, 8 * 24)
    scene.begin(A)
    later(scene)
    assert set(scene.states()) == {"a"} and c in logs(scene)
    monkeypatch.undo()
    scene.begin(A)
    assert log_of(scene, "C") == c
    assert scene.ask("unsubscribe", name="C") == ("C", None)
    aged(c, 8 * 24)
    later(scene)
    assert c not in logs(scene)
