"""Servers that break off, restart, lie or are slow: the right frames or an error by name, and nothing is left."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_rtps.serving import answers, arriving, client, connections
from spark_rtps.serving.fetched_log import About, FetchedLog
from spark_rtps.serving.served import Served
from spark_rtps.transport.errors import LogAccessError, LogError, LogLostError, RangeServerError, RtpsError
from spark_rtps.transport.log.frame import Cursor, Frame
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import PAGE
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import guid, indexed, uniform
from tests.log.test_damage import plain
from tests.serving.range_server_scene import LOG, TOKEN, SceneServer

W1, W2 = guid(1), guid(2)


class Scene:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        sn = 1
        with StreamLog.create(directory, max_bytes=1 << 20, segment_bytes=4 * PAGE, metadata={"a": 1}) as log:
            while log.position < 9 * PAGE:
                assert log.append((uniform, indexed)[sn // 5 % 2](W1, sn, 5, 60), reception=sn)
                sn += 5
            self.end = Cursor(log.position)
        self.frames = [plain(frame) for frame in LogView(directory).frames(Cursor(0), self.end)]

    def fetch(
        self, served: Served, *, patience: float = 5, seen: Callable[[Frame], object] = id
    ) -> list[object]:
        files = FetchedLog(served, LOG, self.directory, patience=patience)
        try:
            got: list[object] = []
            for frame in LogView.over(files).frames(Cursor(0), self.end):
                got.append(plain(frame))
                seen(frame)
            return got
        finally:
            files.close()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("faults") / "log")


@pytest.fixture
def server(scene: Scene) -> Iterator[SceneServer]:
    with SceneServer(scene.directory) as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arriving, "_AT_ONCE_BYTES", 1024)
    monkeypatch.setattr(client, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(client, "_READ_BYTES_MAX", 2000)


# --- connections that break -----------------------------------------------------------------------


@pytest.mark.parametrize("cut", [32, 33, 63, 100, 104, 1000, 1024, 4095, 4096, 10_000])
def test_a_connection_that_is_cut_again_and_again(scene: Scene, server: SceneServer, cut: int) -> None:
    server.cut_after = cut
    assert scene.fetch(server.served) == scene.frames
    assert server.accepted >= scene.end.position // max(32, cut) // 2


def test_every_cut_of_a_body(scene: Scene, server: SceneServer) -> None:
    """The first answer breaks off after k bytes, the next ones are whole."""

    def cut_once(path: str) -> None:
        nonlocal k
        server.cut_after, k = k, None

    for at in range(0, 2 * PAGE, 61):
        k: int | None = at
        server.instead = lambda path: cut_once(path) if "frames" in path else None
        assert scene.fetch(server.served) == scene.frames


@pytest.mark.parametrize("cut", [0, 31])
def test_a_server_that_never_sends_enough(scene: Scene, server: SceneServer, cut: int) -> None:
    server.cut_after = cut
    with pytest.raises(
        RangeServerError, match=f"not reached .{server.address}: its answer broke off"
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


def test_nobody_is_there(scene: Scene) -> None:
    served = Served((unused(), unused()), TOKEN, None)
    with pytest.raises(RangeServerError, match=r"is not reached \(.*refused; .*refused\)") as raised:
        scene.fetch(served, patience=0.2)
    assert all(address in str(raised.value) for address in served.addresses)
    assert str(scene.directory) in str(raised.value)


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:0", "host:99999", "host:²"])
def test_what_is_no_address(scene: Scene, address: str) -> None:
    with pytest.raises(RangeServerError, match="is no address"):
        scene.fetch(Served((address,), TOKEN, None))


def test_no_address_at_all(scene: Scene) -> None:
    with pytest.raises(RangeServerError, match="no address"):
        scene.fetch(Served((), TOKEN, None))


# --- what the server says -------------------------------------------------------------------------


def refuse(status: int, facts: dict[str, Any], what: str = "frames", **headers: str) -> Callable[[str], Any]:
    return lambda path: (status, facts, headers) if what in path else None


def test_what_was_trimmed_meanwhile(scene: Scene, server: SceneServer, tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with StreamLog.create(directory, max_bytes=1 << 20, segment_bytes=PAGE, metadata={}) as log:
        for sn in range(1, 200):
            assert log.append(uniform(W1, sn, 1, 60), reception=0)
        server.directory = directory
        files = FetchedLog(server.served, LOG, directory, patience=5)
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


# --- lies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lie", [-32, -1, 1, 32, 1 << 40])
def test_a_length_that_is_not_what_was_asked_for(scene: Scene, server: SceneServer, lie: int) -> None:
    server.length_lie = lie
    with pytest.raises(RangeServerError, match=f"{server.address} sends .* bytes for a range of"):
        scene.fetch(server.served)


class Raw:
    """A server that answers every request with the same bytes, or goes on sending."""

    def __init__(self, *parts: bytes, pause: float = 0.0, endless: bool = False) -> None:
        self.parts, self.pause, self.endless = parts, pause, endless
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.served = Served((f"127.0.0.1:{self.listening.getsockname()[1]}",), TOKEN, None)

    def __enter__(self) -> Raw:
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.listening.close()

    def _run(self) -> None:
        while True:
            try:
                sock, _ = self.listening.accept()
            except OSError:
                return
            with sock:
                try:
                    sock.recv(4096)
                    for part in self.parts:
                        sock.sendall(part)
                        time.sleep(self.pause)
                    while self.endless:
                        sock.sendall(self.parts[-1])
                        time.sleep(self.pause)
                except OSError:
                    pass


@pytest.mark.parametrize(
    "server",
    [
        Raw(b"HTTP/1.1 200 OK\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xfe"),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}"),
        Raw(b"HTTP/1.1 100 Continue\r\n\r\n", endless=True),
        Raw(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 100_000, endless=True),
        Raw(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", endless=True),
        Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"x", pause=0.02, endless=True),
        Raw(b"H", pause=0.02, endless=True),
        Raw(b"", pause=5),
        Raw(b"SSH-2.0-OpenSSH\r\n"),
        Raw(b"\x15\x03\x01\x00\x02\x02\x16"),
    ],
    ids=lambda server: ascii(b"".join(server.parts)[:60]),
)
def test_what_is_no_range_server(scene: Scene, server: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    with server, pytest.raises(RangeServerError):
        scene.fetch(server.served, patience=0.4)
    assert time.monotonic() - began < 5


def test_a_server_that_is_slow_but_useful(
    scene: Scene, server: SceneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patience counts from block to block, not for all of a range."""
    monkeypatch.setattr(answers, "_BLOCK_BYTES", 2000)
    times = iter(range(100))
    server.pause = lambda: time.sleep(0.1 if next(times) else 0)
    assert scene.fetch(server.served, patience=0.5) == scene.frames


WRONG: list[Any] = [
    None,
    True,
    -1,
    1.5,
    1 << 63,
    1 << 200,
    "7",
    [],
    {},
    [[]],
    [[1]],
    [[0, 1, 2]],
    [["0", 32]],
    float("nan"),
]
PATHS = [
    ("v",),
    ("metadata",),
    ("metadata", "max_bytes"),
    ("metadata", "segment_bytes"),
    ("metadata", "seed"),
    ("metadata", "given"),
    ("base",),
    ("tail",),
    ("tail", "position"),
    ("tail", "rows"),
    ("tail", "most"),
    ("segments",),
    ("segments", 0),
    ("segments", 0, 0),
    ("segments", 1, 1),
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_lies_in_what_is_told_of_a_log(scene: Scene, server: SceneServer, path: tuple[Any, ...]) -> None:
    for wrong in WRONG:

        def change(told: dict[str, Any], wrong: Any = wrong) -> dict[str, Any]:
            at: Any = told
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = wrong
            return told

        server.change_about = change
        with suppress(RtpsError):
            assert scene.fetch(server.served, patience=0.2) == scene.frames


@pytest.mark.parametrize(
    "raw",
    [b"", b"[", b"[" * 100_000, b'{"v":1,"segments":' + b"[" * 50_000, b"9" * 5000, b"\x00", b"null", b"NaN"],
    ids=lambda raw: ascii(raw[:20]),
)
def test_what_is_no_json_of_a_log(scene: Scene, server: SceneServer, raw: bytes) -> None:
    server.change_about = lambda _: raw
    with pytest.raises(RangeServerError, match="cannot be"):
        scene.fetch(server.served)


@pytest.mark.parametrize(
    "segments",
    [
        [[0, 1 << 61]],
        [[0, 64], [32, 64]],
        [[64, 64], [0, 64]],
        [[i * 32, 32] for i in range(70_000)],
        [[7, 64], [100, 100]],
        [],
    ],
    ids=["huge", "overlapping", "unordered", "many", "odd", "none"],
)
def test_segments_that_cannot_be(scene: Scene, server: SceneServer, segments: list[Any]) -> None:
    server.change_about = lambda told: {**told, "segments": segments}
    with pytest.raises((RangeServerError, LogError)):
        scene.fetch(server.served)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    raw=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["v", "metadata", "base", "tail", "segments"]) | st.text(), inner
            )
        ),
    )
)
def test_no_json_is_worse_than_a_value_error(raw: Any) -> None:
    import json

    with pytest.raises(ValueError):
        About.parse(json.dumps(raw).encode())


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
    files = FetchedLog(server.served, LOG, scene.directory, patience=30)
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
        asking = client.RangeClient(server.served, scene.directory, patience=30)
        waiting = arriving.Arriving(LOG, file, arriving.Wanted(0, 4 * PAGE), asking, asking, lambda: 1 << 40)
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
