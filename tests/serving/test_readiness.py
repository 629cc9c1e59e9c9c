"""Whether a receiver service receives, as anybody may ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_rtps.monitoring import stream_counters
from spark_rtps.serving.server import readiness as module
from spark_rtps.serving.server.readiness import Readiness, readiness
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.structure import NANOSECONDS

LOG = "0b5ac1b4-8d0c-4a0c-9a3e-2f8ad77ef5b1"
ONE = {"imu": {"log": LOG, "state": "running"}}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was looked for so far."""
    found: list[Any] = []

    def look(_: Path, subscriptions: Any) -> tuple[bool, dict[str, object]]:
        found.append(subscriptions)
        return True, {"look": len(found)}

    monkeypatch.setattr(module, "readiness", look)
    return found


def test_frequent_requests_check_the_logs_once_a_second(looks: list[Any]) -> None:
    now = 5 * NANOSECONDS
    asked = Readiness(Path("/nowhere"), clock=lambda: now)
    assert {asked.readiness_now(ONE)[1]["look"] for _ in range(100)} == {1}
    now += NANOSECONDS - 1
    assert asked.readiness_now(ONE) == (True, {"look": 1})
    now += 1
    assert asked.readiness_now(ONE) == (True, {"look": 2})
    assert asked.readiness_now(ONE) == (True, {"look": 2})


def test_other_subscriptions_are_looked_at_at_once(looks: list[Any]) -> None:
    asked = Readiness(Path("/nowhere"), clock=lambda: 0)
    for each in (None, ONE, dict(ONE), None):
        assert asked.readiness_now(each) == asked.readiness_now(each)
        assert looks[-1] is each
    assert len(looks) == 4


def test_sidecar_reports_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be long, and say nothing of it."""
    monkeypatch.setattr(stream_counters, "read_decoding_report", lambda _: pytest.fail("it is read"))
    (tmp_path / LOG).mkdir()
    Counters.create(tmp_path / LOG / "counters").counter("reader.matched_writers").set(2)
    _, reported = readiness(tmp_path, ONE)
    checks = {"joined": False, "matched": True, "writing": False, "disk": True}
    assert reported == {"v": 1, "ready": False, "subscriptions": {"imu": checks}}
