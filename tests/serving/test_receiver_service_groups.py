"""Consumer groups at the server of a receiver service: what they commit, and what becomes of the log."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps.serving.server.consumer_group_file import GROUPS_MAX, ConsumerGroupFile
from spark_rtps.serving.server.http_messages import Refusal
from spark_rtps.transport.errors import LogLostError, UsageError
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.host_clocks import Clocks
from spark_rtps.transport.log.log_view import LogView
from tests.serving.answering_scene import Answering
from tests.serving.receiver_service_scene import DAY, LOG, OTHER_LOG, SEGMENT, Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    s = Scene(tmp_path)
    yield s
    s.close()


# --- groups -----------------------------------------------------------------------------------------


def test_commits_of_groups_let_the_receiver_trim(scene: Scene) -> None:
    client, far = scene.client("commit"), scene.end
    near = LogView(scene.directory).advance(Cursor(0), max_rows=700, tail=far.position)
    client.commit_offset(LOG, "fast", far)
    assert scene.consumer.get() == far.position
    client.commit_offset(LOG, "slow/one", near)
    assert scene.consumer.get() == far.position, "what may be trimmed is never taken back"
    assert client.groups(LOG) == {"fast": far, "slow/one": near}
    kept = json.loads((scene.directory / "groups.json").read_text())
    assert kept["v"] == 1 and kept["groups"]["slow/one"]["row"] == near.row


def test_the_slowest_group_decides(scene: Scene) -> None:
    assert scene.put("slow", 0) == 204
    assert scene.put("fast", scene.end.position) == 204
    assert scene.consumer.get() == 0
    assert scene.get(f"/v1/logs/{LOG}/groups/slow", "admin", "DELETE")[0] == 204
    assert scene.consumer.get() == scene.end.position
    assert scene.get(f"/v1/logs/{LOG}/groups/slow", "admin", "DELETE")[0] == 404


def test_other_retention_keeps_what_may_be_trimmed(scene: Scene) -> None:
    scene.server.tell([{**scene.subscription, "retention": "bytes"}])
    while scene.client().subscriptions()[0].retention != "bytes":
        pass
    assert scene.put("g", scene.end.position) == 204
    assert scene.consumer.get() == 0


def test_invalid_commits_are_refused(scene: Scene) -> None:
    for position in (-1, None, "0", 1.5, True, 1 << 63, [1]):
        assert scene.put("g", position) == 400
    assert scene.put("g", 0, -1) == 400
    assert scene.put("g", scene.end.position + 32) == 416
    for group in ("..", "a/../b", "", "-a", "a" * 129, "%2e%2e"):
        assert scene.put(group, 0) == 400
        with pytest.raises(UsageError):
            scene.client().commit_offset(LOG, group, Cursor(0))
    scene.log.trim(SEGMENT)
    status, reported = scene.get(f"/v1/logs/{LOG}/groups/g", "commit", "PUT", b'{"v":1,"position":0,"row":0}')
    assert (status, reported["base"]) == (410, scene.log.base)
    with pytest.raises(LogLostError):
        scene.client().commit_offset(LOG, "g", Cursor(0))


@pytest.mark.parametrize("raw", [b"", b"{", b'{"v":1,"groups":{"a":{"position":1', b"[]", b"\xff" * 99])
def test_a_file_of_groups_that_is_damaged_is_put_aside(scene: Scene, raw: bytes) -> None:
    (scene.directory / "groups.json").write_bytes(raw)
    assert scene.client().groups(LOG) == {}
    assert (scene.directory / "groups.json.damaged").read_bytes() == raw
    assert scene.put("g", 0) == 204
    assert scene.client().groups(LOG) == {"g": Cursor(0)}


def test_groups_outlive_the_server_and_expire(tmp_path: Path) -> None:
    s = Scene(tmp_path, groups_retention=DAY)
    try:
        s.server.stop()
        now = time.time_ns()
        kept = {
            name: {"position": 0, "row": 0, "at_ns": now - idle, "idle_ns": idle}
            for name, idle in (("old", 2 * DAY), ("new", 0))
        }
        (s.directory / "groups.json").write_text(json.dumps({"v": 1, "groups": kept}))
        s.start()
        assert s.client().groups(LOG) == {"new": Cursor(0)}
        assert "old" not in (s.directory / "groups.json").read_text()
    finally:
        s.close()


def test_groups_are_bounded(scene: Scene) -> None:
    kept = {f"g{i}": {"position": 0, "row": 0, "at_ns": time.time_ns()} for i in range(GROUPS_MAX)}
    (scene.directory / "groups.json").write_text(json.dumps({"v": 1, "groups": kept}))
    assert scene.put("one-more", 0) == 409
    assert scene.put("g5", 0) == 204


# --- what nobody asks about -------------------------------------------------------------------------


def test_groups_expire_without_being_asked_about(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    s = Scene(tmp_path, groups_retention=10**9)
    try:
        assert s.put("slow", 0) == 204
        until = time.monotonic() + 20
        while json.loads((s.directory / "groups.json").read_text())["groups"]:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        s.close()
    assert "group slow" in capfd.readouterr().err


def test_a_receiver_that_starts_again_learns_what_is_consumed(scene: Scene) -> None:
    assert scene.put("g", scene.end.position) == 204
    consumer = Counters.create(scene.directory / "counters").counter("log.consumer")
    until = time.monotonic() + 20
    while consumer.get() != scene.end.position:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_positions_of_groups_are_written_at_the_end(scene: Scene) -> None:
    scene.server.tell([{**scene.subscription, "retention": "bytes"}])
    while scene.client().subscriptions()[0].retention != "bytes":
        pass
    assert (scene.put("g", 0), scene.put("g", scene.end.position)) == (204, 204)
    scene.server.stop()
    kept = json.loads((scene.directory / "groups.json").read_text())
    assert kept["groups"]["g"]["position"] == scene.end.position


def test_a_group_that_the_log_has_overtaken(scene: Scene) -> None:
    """Whoever asks is told, as ``stat`` does and Prometheus."""
    assert scene.put("late", 64) == 204
    counters = Counters.create(scene.directory / "counters")
    counters.counter("receiver.pid").set(os.getpid())
    counters.counter("receiver.heartbeat_ns").set(time.monotonic_ns())
    counters.counter("log.consumer")
    counters.counter("log.position").set(scene.end.position)
    scene.log.trim(SEGMENT)
    counters.counter("log.base").set(SEGMENT)
    (reported,) = scene.get("/v1/streams", "read")[1]["streams"]
    missed = SEGMENT - 64
    assert (reported["counters"]["groups.overtaken"], reported["counters"]["groups.missed_bytes"]) == (
        1,
        missed,
    )
    shown = scene.get("/metrics", "read")[1].decode()
    (line,) = [each for each in shown.splitlines() if each.startswith("spark_rtps_group_missed_bytes_total{")]
    assert 'group="late"' in line and float(line.split()[-1]) == missed


# --- without a process ------------------------------------------------------------------------------


@pytest.fixture
def answering(tmp_path: Path) -> Answering:
    return Answering(tmp_path)


def test_a_request_that_its_client_gave_up_does_not_set_a_group_back(answering: Answering) -> None:
    """It waited here, and meanwhile the client committed more."""
    here, client = socket.socketpair()
    with here:
        answering.put(0, peer=here.fileno())
        answering.put(answering.end)
        client.close()
        with pytest.raises(Refusal, match="has left"):
            answering.put(32, peer=here.fileno())
    answering.answers.groups.keep(Clocks.read_now())
    assert answering.kept() == {"g": answering.end}


def test_a_group_may_go_back(answering: Answering) -> None:
    """As where a query begins anew."""
    for position in (answering.end, 0):
        answering.put(position)
    answering.answers.groups.keep(Clocks.read_now())
    assert answering.kept() == {"g": 0}


def test_an_unexpected_error_with_the_groups_of_one_log_keeps_no_other_unwritten(
    answering: Answering, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for position in (0, answering.end):
        for log in (LOG, OTHER_LOG):
            answering.put(position, log=log)
    keep = ConsumerGroupFile.keep

    def failing(file: ConsumerGroupFile, now: Clocks, *, holds_log: bool) -> None:
        if file is answering.answers.groups._groups[LOG]:
            raise ValueError("damaged counters")
        keep(file, now, holds_log=holds_log)

    monkeypatch.setattr(ConsumerGroupFile, "keep", failing)
    for _ in range(3):
        answering.answers.groups.keep(Clocks.read_now())
    assert (answering.kept(), answering.kept(OTHER_LOG)) == ({"g": 0}, {"g": answering.end})
    assert caplog.text.count("could not be kept") == 1
    monkeypatch.setattr(ConsumerGroupFile, "keep", keep)
    answering.answers.groups.keep(Clocks.read_now())
    assert answering.kept() == {"g": answering.end}


@pytest.mark.parametrize("comes_back", [False, True])
def test_commits_just_before_the_end_of_a_subscription_are_written(
    answering: Answering, comes_back: bool
) -> None:
    for position in (0, answering.end):
        answering.put(position)
    answering.tell(OTHER_LOG)
    if comes_back:
        answering.tell(LOG, OTHER_LOG)
    for _ in range(2):
        answering.answers.groups.keep(Clocks.read_now())
    assert answering.kept() == {"g": answering.end}
