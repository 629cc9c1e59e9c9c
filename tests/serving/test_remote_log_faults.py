"""Servers that break off, restart, refuse or are silent: the right frames or an error by name, and nothing is left."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.serving.client import connections, http_client, prefetch
from spark_rtps.serving.client.remote_log import RemoteLog
from spark_rtps.serving.wire_format.served import Served
from spark_rtps.transport.errors import LogAccessError, LogError, LogLostError, RangeServerError
from spark_rtps.transport.log.frame import Cursor, Frame
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import PAGE
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import uniform
from tests.serving.log_server_scene import LOG, TOKEN, SceneServer
from tests.serving.remote_log_scene import W1, Raw, Scene

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("faults") / "log")


# --- connections that break -----------------------------------------------------------------------


@pytest.mark.parametrize("cut", [32, 33, 63, 100, 104, 1000, 1024, 4095, 4096, 10_000])
def test_a_connection_that_is_cut_again_and_again(scene: Scene, server: SceneServer, cut: int) -> None:
    server.cut_after = cut
    assert scene.fetch(server.served) == scene.frames
    assert server.accepted >= scene.end.position // max(32, cut) // 2


def test_every_cut_of_a_body(scene: Scene, server: SceneServer) -> None:
    """The first answer breaks off after k bytes, the next ones are whole."""

    def cut_once(path: str) -> None:
        nonlocal k  # type: ignore[misc]
        server.cut_after, k = k, None

    for at in range(0, 2 * PAGE, 61):
        k: int | None = at
        server.instead = lambda path: cut_once(path) if "frames" in path else None
        assert scene.fetch(server.served) == scene.frames


@pytest.mark.parametrize("cut", [0, 31])
def test_a_server_that_never_sends_enough(scene: Scene, server: SceneServer, cut: int) -> None:
    server.cut_after = cut
    with pytest.raises(
        # the second one where patience ends inside an answer
        RangeServerError,
        match=f"not reached .{server.address}: (the answer broke off|too slow)",
    ) as raised:
        scene.fetch(server.served, patience=0.3)
    assert raised.value.addresses == (server.address,)
    assert not raised.value.is_reached


def test_a_server_that_restarts_while_it_is_read(scene: Scene) -> None:
    first = SceneServer(scene.directory)
    port = first.server_address[1]
    with first:
        first.pause = lambda: time.sleep(0.002)
        second: list[SceneServer] = []

        def restart(_frame: Frame) -> None:
            if not second:
                first.kill()
                second.append(SceneServer(scene.directory, port))
                threading.Timer(0.3, second[0].__enter__).start()

        try:
            assert scene.fetch(first.served, seen=restart) == scene.frames
            assert second[0].accepted
        finally:
            second[0].kill()


def test_a_server_that_comes_late_and_learns_its_logs_later(scene: Scene) -> None:
    with SceneServer(scene.directory) as gone:
        served, port = gone.served, gone.server_address[1]
    late = SceneServer(scene.directory, port)
    late.socket.close()  # refused until it comes
    unknown = iter(range(3))
    late.instead = lambda _: (404, {"error": "no such log"}, {}) if next(unknown, None) is not None else None

    def come() -> None:
        time.sleep(0.3)
        late.socket = socket.create_server(("127.0.0.1", port))
        late.__enter__()

    thread = threading.Thread(target=come)
    thread.start()
    try:
        assert scene.fetch(served) == scene.frames
    finally:
        thread.join()
        late.kill()


def test_a_kept_connection_that_was_closed_meanwhile(scene: Scene) -> None:
    with SceneServer(scene.directory) as first:
        assert scene.fetch(first.served) == scene.frames
        served, port = first.served, first.server_address[1]
    with SceneServer(scene.directory, port) as second:
        began = time.monotonic()
        assert scene.fetch(served, patience=1) == scene.frames
        assert time.monotonic() - began < 1
        assert second.accepted >= 1


def test_one_connection_is_kept_from_task_to_task(scene: Scene, server: SceneServer) -> None:
    for _ in range(5):
        assert scene.fetch(server.served) == scene.frames
    assert server.accepted == 1


def test_a_fork_leaves_the_connection_to_its_parent(scene: Scene, server: SceneServer) -> None:
    assert scene.fetch(server.served) == scene.frames
    child = os.fork()
    if not child:
        os._exit(0 if scene.fetch(server.served) == scene.frames else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert scene.fetch(server.served) == scene.frames
    assert server.accepted == 2


# --- addresses and tokens -------------------------------------------------------------------------


def unused() -> str:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"127.0.0.1:{sock.getsockname()[1]}"


def test_addresses_are_tried_in_turn_and_the_one_that_answers_is_remembered(
    scene: Scene, server: SceneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SceneServer(scene.directory) as foreign:
        foreign.token = "another"
        served = Served((unused(), foreign.address, server.address), TOKEN, None)
        assert scene.fetch(served) == scene.frames
        assert connections.addresses(served)[0] == server.address
        foreign.asked.clear()
        assert scene.fetch(served) == scene.frames
        assert not foreign.asked


def test_a_wrong_token_is_an_error_at_once(scene: Scene, server: SceneServer) -> None:
    server.token = "another"
    began = time.monotonic()
    with pytest.raises(
        LogAccessError, match=f"{server.address} refuses the token .*: the token is wrong"
    ) as raised:
        scene.fetch(server.served, patience=60)
    assert time.monotonic() - began < 5
    assert TOKEN not in str(raised.value)
    assert TOKEN not in repr(server.served)


@pytest.mark.parametrize(("patience", "unknown_seconds"), [(60.0, 0.2), (1.5, 3.0)])
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    ("status", "error"), [(401, LogAccessError), (403, LogAccessError), (404, LogLostError)]
)
def test_a_refusal_outranks_an_unreachable_address(
    server: SceneServer,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    error: type[Exception],
    is_first: bool,
    patience: float,
    unknown_seconds: float,
) -> None:
    monkeypatch.setattr(http_client, "_UNKNOWN_SECONDS", unknown_seconds)
    server.instead = lambda _: (status, {"error": "no"}, {})
    addresses = (server.address, unused()) if is_first else (unused(), server.address)
    asking = http_client.HttpClient(Served(addresses, TOKEN), server.directory, patience=patience)
    began = time.monotonic()
    with pytest.raises(error, match=server.address):
        asking.get("/v1/logs/x", "the log", max_bytes=1000)
    assert time.monotonic() - began < 30


def test_a_refusing_address_leaves_time_for_another_to_return(scene: Scene, server: SceneServer) -> None:
    """The address that refuses may be that of another server."""
    server.token = "another"
    with SceneServer(scene.directory) as gone:
        port = gone.server_address[1]
    served = Served((server.address, f"127.0.0.1:{port}"), TOKEN, None)
    backs: list[SceneServer] = []

    def come_back(_: object) -> None:
        if not backs:
            backs.append(SceneServer(scene.directory, port))
            backs[0].__enter__()

    server.instead = come_back
    try:
        assert scene.fetch(served, patience=60) == scene.frames
    finally:
        for each in backs:
            each.kill()


def test_an_unreachable_server_is_an_error(scene: Scene) -> None:
    served = Served((unused(), unused()), TOKEN, None)
    with pytest.raises(RangeServerError, match=r"is not reached \(.*refused; .*refused\)") as raised:
        scene.fetch(served, patience=0.2)
    assert all(address in str(raised.value) for address in served.addresses)
    assert str(scene.directory) in str(raised.value)


def test_retries_are_frequent_and_waiting_is_logged_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a server that is back waits for is added to its start."""
    pauses: list[float] = []

    class Pauses(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            return super().wait(timeout)

    monkeypatch.setattr(http_client, "_LOGGED_SECONDS", 0.3)
    asking = http_client.HttpClient(Served((unused(),), TOKEN, None), scene.directory, patience=1)
    monkeypatch.setattr(asking, "_closed", Pauses())
    with pytest.raises(RangeServerError, match="is not reached"):
        asking.get("/v1/logs", "logs", max_bytes=100)
    assert max(pauses) <= 0.25 and len(pauses) >= 6
    assert caplog.text.count("is not reached") == 1


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:99999", "host:²"])
def test_an_invalid_address_is_refused(scene: Scene, address: str) -> None:
    with pytest.raises(RangeServerError, match="is not the address"):
        scene.fetch(Served((address,), TOKEN, None))


def test_no_address_at_all(scene: Scene) -> None:
    with pytest.raises(RangeServerError, match="no address"):
        scene.fetch(Served((), TOKEN, None))


# --- what the server says -------------------------------------------------------------------------


def refuse(status: int, facts: dict[str, Any], what: str = "frames", **headers: str) -> Callable[[str], Any]:
    return lambda path: (status, facts, headers) if what in path else None


def test_a_range_trimmed_during_a_remote_read_is_lost(
    scene: Scene, server: SceneServer, tmp_path: Path
) -> None:
    directory = tmp_path / "log"
    with StreamLog.create(directory, max_bytes=1 << 20, segment_bytes=PAGE, metadata={}) as log:
        for sn in range(1, 200):
            assert log.append(uniform(W1, sn, 1, 60), reception=0)
        server.directory = directory
        files = RemoteLog(server.served, LOG, directory, patience=5)
        frames = LogView.over(files).frames(Cursor(0), Cursor(log.position))
        assert next(frames).run.first_sn == 1
        log.trim(log.position)
        with pytest.raises(
            LogLostError, match=f"position {PAGE} is no longer in the log in .*which holds seg"
        ):
            list(frames)
        with pytest.raises(LogLostError, match="position 0 is no longer in the log"):
            LogView.over(files).frames(Cursor(0), Cursor(log.position))
        files.close()


def test_no_such_log(scene: Scene, server: SceneServer) -> None:
    server.instead = refuse(404, {"error": "no such log"}, "")
    with pytest.raises(LogLostError, match=r"serves no stream log .*: no such log"):
        scene.fetch(server.served)


def test_a_lost_segment_is_damage(scene: Scene, server: SceneServer) -> None:
    server.instead = refuse(404, {"lost": True}, f"from={4 * PAGE}")
    with pytest.raises(LogError, match=f"is damaged at position {4 * PAGE}"):
        scene.fetch(server.served)


def test_an_overloaded_server_is_asked_again(scene: Scene, server: SceneServer) -> None:
    times = iter(range(3))
    server.instead = lambda _: (503, {}, {"Retry-After": "0"}) if next(times, None) is not None else None
    assert scene.fetch(server.served) == scene.frames


@pytest.mark.parametrize("status", [301, 400, 405, 413, 418, 206])
def test_other_answers_are_errors(scene: Scene, server: SceneServer, status: int) -> None:
    server.instead = refuse(status, {"error": "no\x1b[1m" * 1000})
    with pytest.raises(RangeServerError, match=f"answers HTTP {status}") as raised:
        scene.fetch(server.served)
    assert len(str(raised.value)) < 1000
    assert "\x1b" not in str(raised.value)


@pytest.mark.parametrize("facts", [[], [[[]]], {"base": "x"}, {"base": None}, {"error": {}}])
@pytest.mark.parametrize("status", [401, 404, 410, 416])
def test_refusals_of_any_form(scene: Scene, server: SceneServer, status: int, facts: Any) -> None:
    server.instead = refuse(status, facts, "")
    with pytest.raises((LogAccessError, LogLostError)):
        scene.fetch(server.served)


# --- nothing is left behind -----------------------------------------------------------------------


def sockets() -> int:
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:
            pass
    return found


def test_a_generator_that_is_closed_early(scene: Scene, server: SceneServer) -> None:
    go = threading.Event()
    server.pause = lambda: None
    frames_sent = iter(range(1000))
    server.pause = lambda: None if next(frames_sent) < 1 else (go.wait(20), None)[1]
    before = sockets()
    files = RemoteLog(server.served, LOG, scene.directory, patience=30)
    frames = LogView.over(files).frames(Cursor(0), scene.end)
    began = time.monotonic()
    del frames
    files.close()
    assert time.monotonic() - began < 5
    go.set()
    connections.close_all()
    gc.collect()
    assert [t for t in threading.enumerate() if t.name == "spark-rtps fetch"] == []
    wait_until(lambda: sockets() <= before)


def test_a_thread_that_waits_for_a_silent_server_is_ended(scene: Scene) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (4 * PAGE)
    with Raw(head, pause=20) as server:
        file = LogView(scene.directory)._files.segments()[0]
        asking = http_client.HttpClient(server.served, scene.directory, patience=30)
        waiting = prefetch.Arriving(
            LOG, file, prefetch.WantedBytes(0, 4 * PAGE), asking, asking, lambda: 1 << 40
        )
        waiting.start()
        assert any(t.name == "spark-rtps fetch" for t in threading.enumerate())
        began = time.monotonic()
        waiting.close()
        assert time.monotonic() - began < 2
        with pytest.raises(RangeServerError, match="fetching was ended"):
            waiting.need(0, 32)


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
