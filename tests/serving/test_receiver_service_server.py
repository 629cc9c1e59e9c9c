"""The server of a receiver service over real sockets: what it answers, and what it survives."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.monitoring.decoding_report import MISPLACED, NOT_HELD
from spark_rtps.serving.server.tail_watch import WAITING_MAX
from spark_rtps.serving.wire_format.misplaced_offset import MisplacedOffset
from spark_rtps.serving.wire_format.receiver_service import SubscriptionInfo, is_name
from spark_rtps.transport.errors import (
    LogLostError,
    RangeServerError,
    RtpsError,
)
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.protocol.participant.slices import Slice
from tests.serving.receiver_service_scene import DAY, LOG, OTHER_LOG, SEGMENT, Scene, poll, supervise
from tests.support.stream_logs import RECEPTION


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    s = Scene(tmp_path)
    yield s
    s.close()


# --- subscriptions ----------------------------------------------------------------------------------


def test_subscriptions(scene: Scene) -> None:
    (found,) = scene.client("read").subscriptions()
    assert (found.name, found.log, found.directory) == ("cell/imu", LOG, scene.directory)
    assert (found.base, found.position, found.rows) == (0, scene.end.position, scene.rows)
    assert found.place is not None and found.place.inode == scene.directory.stat().st_ino
    reported = scene.get("/v1/subscriptions/cell/imu")[1]
    assert SubscriptionInfo.parse(reported) == found and found.slice is None
    assert SubscriptionInfo.parse({**reported, "options": {"slice": "1/4"}}).slice == Slice(1, 4)
    with pytest.raises(ValueError, match="must have an index"):
        SubscriptionInfo.parse({**reported, "options": {"slice": "4/4"}})
    for other in ("cell", "..%2f", "../cell/imu", "%00"):
        assert scene.get(f"/v1/subscriptions/{other}")[0] == 404


def test_a_server_that_knows_no_subscriptions_yet_asks_for_patience(scene: Scene) -> None:
    scene.server.stop()
    scene.start(tells=False)
    assert scene.get(f"/v1/logs/{LOG}")[0] == 503
    assert scene.get("/readyz", None)[0] == 503
    threading.Timer(0.3, lambda: scene.server.tell([scene.subscription])).start()
    assert scene.client().tail(LOG).position == scene.end.position


def test_a_client_subscribes_and_unsubscribes(scene: Scene) -> None:
    asked = []

    def make(request: Any) -> None:
        asked.append(request)
        new = {**scene.subscription, "name": "made", "log": OTHER_LOG, "dynamic": True, "state": "starting"}
        scene.server.tell([scene.subscription, new])
        scene.server.send_answer(request.id, name="made")

    thread = supervise(scene, make)
    made = scene.client().subscribe({"topic": "rt/odom"})
    thread.join()
    assert (asked[0].op, asked[0].options) == ("subscribe", {"topic": "rt/odom"})
    assert (made.name, made.log, made.state, made.position) == ("made", OTHER_LOG, "starting", 0)
    thread = supervise(scene, lambda request: scene.server.send_answer(request.id, name=request.name))
    assert scene.get("/v1/subscriptions/made", method="DELETE")[0] == 204
    thread.join()
    assert scene.get("/v1/subscriptions/cell/imu", method="DELETE")[0] == 409


def test_a_subscription_that_is_refused(scene: Scene) -> None:
    thread = supervise(scene, lambda request: scene.server.send_answer(request.id, error="no such topic"))
    with pytest.raises(RangeServerError, match="no such topic"):
        scene.client().subscribe({"topic": "?"})
    thread.join()
    for body in (b"", b"[]", b"{}", b'{"v":1,"options":[]}', b'{"v":1,"options":{"a":1}}', b"[" * 9999):
        assert scene.get("/v1/subscriptions", method="POST", body=body)[0] == 400
    huge = json.dumps({"v": 1, "options": {"a": "x" * (64 << 10)}}).encode()
    assert scene.get("/v1/subscriptions", method="POST", body=huge)[0] == 413


# --- places in a log --------------------------------------------------------------------------------


def test_places_are_those_of_a_view(scene: Scene) -> None:
    view, client, start, end = LogView(scene.directory), scene.client("read"), Cursor(0), scene.end
    for rows, nbytes in ((700, None), (None, 30_000), (10, 10), (None, None)):
        here = view.advance(start, max_rows=rows, max_bytes=nbytes, tail=end.position)
        assert client.advance(LOG, start, end, max_rows=rows, max_bytes=nbytes) == here
    for pieces in (1, 3, 7):
        assert client.split(LOG, start, end, pieces) == view.split(start, end, pieces)
    assert client.split(LOG, end, end, 3) == []
    middle = view.advance(start, max_rows=700, tail=end.position)
    assert client.place(LOG, middle) == middle
    crooked = client.place(LOG, Cursor(middle.position + 32))
    assert isinstance(crooked, MisplacedOffset) and crooked.cause == MISPLACED and "no frame" in crooked.what
    with pytest.raises(LogLostError, match="beyond its end"):
        client.place(LOG, Cursor(end.position + 32))
    scene.log.trim(SEGMENT)
    before = client.place(LOG, Cursor(0))
    assert isinstance(before, MisplacedOffset) and (before.cause, before.place) == (
        NOT_HELD,
        Cursor(scene.log.base),
    )


def test_a_place_by_time(scene: Scene) -> None:
    if not hasattr(LogView, "at"):
        assert scene.get(f"/v1/logs/{LOG}/at?time=0")[0] == 501
        return
    assert scene.client().at(LOG, 0) == Cursor(0)
    assert scene.client().at(LOG, RECEPTION + DAY) == scene.end


def test_forged_positions_do_no_harm(scene: Scene) -> None:
    chance = random.Random(7)
    end = scene.end.position
    some = [0, 1, 31, 32, end - 32, end, end + 32, 1 << 62, (1 << 62) + 1, 10**18, "", "-1", "x", "1e3"]
    some += [chance.randrange(end) for _ in range(40)]
    for position in some:
        row = chance.choice([0, 1, 499, 500, 1 << 40, 1 << 62])
        for rest in (
            f"advance?position={position}&row={row}&tail={end}&max_rows=5&max_bytes=9",
            f"split?position={position}&row={row}&end_position={end}&end_row=0&pieces=9",
            f"split?position=0&row=0&end_position={position}&end_row={row}&pieces=4096",
            f"place?position={position}&row={row}",
            f"tail?after={position}&wait=0",
        ):
            assert scene.get(f"/v1/logs/{LOG}/{rest}", "read")[0] in (200, 400, 404, 416)
    for rest in (
        "split?position=0&row=0&end_position=64&end_row=0&pieces=4097",
        "tail?wait=nan",
        "tail?wait=-1",
    ):
        assert scene.get(f"/v1/logs/{LOG}/{rest}")[0] == 400
    for log in (OTHER_LOG, "..", LOG.upper(), "%2e%2e"):
        assert scene.get(f"/v1/logs/{log}/tail")[0] == 404


# --- waiting for more -------------------------------------------------------------------------------


def test_a_tail_request_is_answered_when_the_log_grows(scene: Scene) -> None:
    client, end = scene.client("read"), scene.end.position
    found = client.tail(LOG)
    assert (found.base, found.position, found.rows, found.max_bytes) == (0, end, scene.rows, 4 << 20)
    assert found.counters == {"log.consumer": 0}
    begun = time.monotonic()
    assert client.tail(LOG, after=end, wait=0.2).position == end
    assert 0.2 <= time.monotonic() - begun < 2
    threading.Timer(0.3, scene.append, (1,)).start()
    begun = time.monotonic()
    assert client.tail(LOG, after=end, wait=20).position > end
    assert 0.2 < time.monotonic() - begun < 3


def test_many_waiting_requests_do_not_delay_others(scene: Scene) -> None:
    polls = [poll(scene, 30) for _ in range(WAITING_MAX)]
    try:
        until = time.monotonic() + 10
        time.sleep(2)  # else this one has the place of one of them
        while scene.get(f"/v1/logs/{LOG}/tail?after={scene.end.position}&wait=0.05")[0] != 503:
            assert time.monotonic() < until, "so many wait at once, and no more"
        begun = time.monotonic()
        for _ in range(20):
            assert len(scene.get(f"/v1/logs/{LOG}/frames?from=0&to={SEGMENT}")[1]) == SEGMENT
        assert time.monotonic() - begun < 3
        scene.append(1)
        assert {sock.recv(12) for sock in polls} == {b"HTTP/1.1 200"}
    finally:
        for sock in polls:
            sock.close()


def test_a_client_that_leaves_frees_its_place_for_waiting_ones(scene: Scene) -> None:
    """Long before the 30 s are over for which those would have waited."""
    polls = [poll(scene, 30) for _ in range(WAITING_MAX + 9)]  # some may come when those below wait
    target, until = f"/v1/logs/{LOG}/tail?after={scene.end.position}&wait=0.05", time.monotonic() + 10
    while scene.get(target)[0] != 503:
        assert time.monotonic() < until, "all of them wait"
    for sock in polls:
        sock.close()
    until = time.monotonic() + 10
    while scene.get(target)[0] == 503:
        assert time.monotonic() < until


def test_a_half_closed_connection_is_answered(scene: Scene) -> None:
    with poll(scene, 30) as sock:
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(10)
        assert sock.recv(12) == b"HTTP/1.1 200"


def test_a_waiting_request_ends_with_the_server(scene: Scene) -> None:
    with poll(scene, 30) as sock:
        time.sleep(0.2)
        begun = time.monotonic()
        scene.server.stop()
        sock.recv(4096)
        assert time.monotonic() - begun < 4


def test_a_server_that_restarts_while_a_client_waits(scene: Scene) -> None:
    port, end = scene.server.port, scene.end.position
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(scene.client(patience=20).tail(LOG, after=end, wait=20).position)
    )
    thread.start()
    time.sleep(0.3)
    os.kill(scene.server.pid, signal.SIGKILL)
    scene.server.stop()
    scene.start(port)
    scene.append(1)
    thread.join(20)
    assert found == [scene.end.position]


# --- its process ------------------------------------------------------------------------------------


def test_a_server_that_hangs_holds_nobody_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped in the midst of its work: who tells it more than a pipe holds goes on, and starts another one."""
    monkeypatch.setattr("spark_rtps.serving.server.process._HANGS_SECONDS", 0.2)
    port, many = scene.server.port, [{**scene.subscription, "name": f"n{i}"} for i in range(500)]
    os.kill(scene.server.pid, signal.SIGSTOP)
    with pytest.raises(RtpsError, match="hangs and was killed"):
        scene.server.tell(many)
    scene.server._child.wait(60)
    with pytest.raises(RtpsError, match="ended"):
        scene.server.check()
    monkeypatch.undo()
    scene.server.stop()
    scene.start(port)
    scene.server.tell(many)
    while len(scene.client().subscriptions()) < len(many):
        pass


def test_a_server_gives_way_to_receivers(scene: Scene) -> None:
    niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)
    threads = [int(path.name) for path in Path(f"/proc/{scene.server.pid}/task").iterdir()]
    found = [os.getpriority(os.PRIO_PROCESS, thread) for thread in threads]
    assert found.count(niceness) >= 3, "those that serve, watch and look after groups"
    session = Path(f"/proc/{scene.server.pid}/autogroup")
    if session.exists() and os.geteuid() == 0:  # others may write it ten times a second, all together
        assert session.read_text().split()[-1] == str(niceness)


# --- reports ----------------------------------------------------------------------------------------


def test_the_server_describes_itself(scene: Scene) -> None:
    for what in ("streams", "errors", "losses"):
        assert scene.get(f"/v1/{what}", "read")[1]["looked_in"] == [str(scene.root)]
    assert b"spark_rtps_up" in scene.get("/metrics", "read")[1]
    assert scene.get("/v1/topics?seconds=0")[0] == 501
    assert scene.get("/v1/nothing")[0] == scene.get("/")[0] == 404


def test_names() -> None:
    assert is_name("a") and is_name("imu/rt/imu_0-1.x")
    assert not [name for name in ("", "/a", "a..b", "a b", "a\n", ".a", "ä", "a" * 129) if is_name(name)]
