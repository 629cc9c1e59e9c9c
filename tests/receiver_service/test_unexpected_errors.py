"""Whatever a part of a receiver service raises, and wherever: the other parts go on, and it recovers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

import pytest

from spark_rtps.receiver_service import supervisor as supervisor_module
from spark_rtps.transport.receiver import supervision
from tests.receiver_service.supervisor_scene import Asked, FakeReceiver, Scene

A = '[subscriptions.a]\ntopic = "A"\n'
B = '[subscriptions.b]\ntopic = "B"\n'
ROBOT = '[subscriptions.robot]\ntopic = "rt/*"\n'
FOLDER = Path(supervisor_module.__file__).parent
#: Where errors are raised.
ROOMS = {
    str(FOLDER / f"{name}.py")
    for name in (
        "supervisor",
        "keeper",
        "server_keeper",
        "topic_watch",
        "cleaning",
        "records",
        "backlog",
    )
} | {str(supervision.__file__)}
#: What catches errors itself, and is called by nobody who does.
CATCHING = {"do_work", "step", "_step", "_alone", "_serve", "_write_records_or_say", "drain"}


class Injection:
    """Raises once: in the call number ``at`` of a function of the supervisor, which ``seen`` names."""

    def __init__(self, at: int = 1 << 60) -> None:
        self.at = at
        self.seen: list[str] = []
        self.raised: str | None = None

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename not in ROOMS:
            return
        if CATCHING & set(code.co_qualname.split(".")) and "supervisor" in code.co_filename:
            return
        self.seen.append(code.co_qualname)
        if len(self.seen) == self.at:
            self.raised = code.co_qualname
            raise ZeroDivisionError(code.co_qualname)


def living(scene: Scene) -> list[FakeReceiver]:
    return [each for each in scene.receivers if each.dispose is None and each.died is None]


def reloaded(scene: Scene, text: str) -> None:
    """As the service does it: what raises changes nothing, and the next HUP tries again."""
    try:
        scene.supervisor.reload(scene.config(text))
    except ZeroDivisionError:
        scene.supervisor.reload(scene.config(text))


def lived(scene: Scene, injection: Injection) -> None:
    """Much of what happens to a receiver."""
    scene.topics.add("rt/imu")
    scene.begin(A + B + ROBOT)
    sys.settrace(injection)
    try:
        scene.steps(1)
        scene.topics.add("rt/odom")
        scene.servers[-1].waiting.append(Asked("subscribe", 1, {"topic": "C"}))
        scene.steps(3)
        for each in living(scene):
            each.died = "killed" if each.config.topic == "A" else None
        scene.steps(4)
        reloaded(scene, A + 'reliability = "best_effort"\n' + B + ROBOT)
        scene.steps(4)
        scene.servers[-1].died = True
        scene.steps(4)
        scene.servers[-1].waiting.append(Asked("unsubscribe", 2, name="C"))
        scene.steps(2, seconds=700.0)  # old logs are removed
    finally:
        sys.settrace(None)
    scene.steps(10)


def check(scene: Scene) -> None:
    """All that is wanted is received, each by one receiver on one log."""
    keepers = scene.supervisor.keepers
    wanted = {"a", "b", "robot/rt/imu", "robot/rt/odom"}
    assert wanted <= set(scene.states()) <= wanted | {"C"}
    assert set(scene.states().values()) == {"running"}
    logs = sorted(each.log for each in keepers)
    assert sorted(Path(each.config.log_directory).name for each in living(scene)) == logs
    assert sorted(record["log"] for record in scene.recorded().values()) == logs
    assert [each["log"] for each in scene.servers[-1].reported[-1]] == [each.log for each in keepers]
    assert not scene.servers[-1].stopped
    assert scene.supervisor.drain(dispose=False, patience=5, pause=lambda: None) == []
    assert living(scene) == [] and scene.servers[-1].stopped


def test_a_life_without_errors(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    lived(scene, Injection())
    check(scene)
    assert len(scene.receivers) == 7 and len(scene.servers) == 2


def test_one_error_in_each_function_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL")
    monkeypatch.setattr(os, "fsync", lambda _: None)  # most of the time that it takes
    (tmp_path / "first").mkdir()
    sound, before = Scene(tmp_path / "first"), Injection()
    lived(sound, before)
    calls: dict[str, list[int]] = {}
    for number, name in enumerate(before.seen, 1):
        calls.setdefault(name, []).append(number)
    for turn, (name, numbers) in enumerate(calls.items()):
        at = numbers[turn * 7 % len(numbers)]  # the first, the last, and those between
        (tmp_path / f"{at}").mkdir()
        scene, injection = Scene(tmp_path / f"{at}"), Injection(at)
        try:
            lived(scene, injection)
            check(scene)
            assert len(scene.receivers) <= len(sound.receivers) + 1
        except Exception as error:
            raise AssertionError(f"an error in call {at}, of {name}") from error
        assert injection.raised == name
