"""A log server that is started by a connection: when, how often, by whom, and what is left when it ends."""

from __future__ import annotations

import http.client
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark_rtps.serving.server import on_demand_server
from spark_rtps.serving.server.listening import listen, reached_at
from spark_rtps.serving.server.on_demand_server import OnDemandServer, StartPacing
from spark_rtps.serving.server.process import LogServerProcess
from spark_rtps.serving.server.server_config import Bounds, LogServerConfig
from spark_rtps.transport.errors import TransportError
from spark_rtps.transport.log.stream_log import StreamLog
from tests.support.child_environment import child_environment
from tests.support.stream_logs import RECEPTION, encoded, points, run_of
from tests.support.waiting import wait_until

LOGS = ["0b5ac1b4-8d0c-4a0c-9a3e-2f8ad77ef5b1", "7d5e4c5f-93a5-4d86-8c5c-0a8f8b0d6a11"]
TOKEN = "5ca1ab1e"


def config_of(folder: Path, **given: object) -> LogServerConfig:
    return replace(LogServerConfig(folder, "127.0.0.1", 0, TOKEN), **given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With two logs in it."""
    for name in LOGS:
        with StreamLog.create(tmp_path / name, max_bytes=4 << 20, segment_bytes=64 << 10, metadata={}) as log:
            log.append(run_of(encoded(points(0, 500)), 1), reception=RECEPTION)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[OnDemandServer]:
    made = OnDemandServer(config_of(folder))
    made.serve(LOGS[0])
    yield made
    made.stop()


def status_of(port: int, log: str = LOGS[0], token: str = TOKEN) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", f"/v1/logs/{log}", headers={"Authorization": f"Bearer {token}"})
        return connection.getresponse().status
    finally:
        connection.close()


def state_of(pid: int) -> str:
    """As ``ps`` shows it; "" if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def pid_of(server: OnDemandServer) -> int:
    """Of the server that has answered: it may do so before it is known to have started."""
    pids: list[int] = []

    def is_known() -> bool:
        pid = server.pid
        pids.extend([] if pid is None else [pid])
        return bool(pids)

    wait_until(is_known, "the server to be known")
    return pids[0]


def is_there(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


def is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


# --- with real servers ------------------------------------------------------------------------------


def test_nothing_runs_until_somebody_connects(server: OnDemandServer) -> None:
    time.sleep(0.1)
    assert server.pid is None
    assert status_of(server.port) == 200
    pid = pid_of(server)
    assert is_there(pid)
    assert status_of(server.port) == 200 and server.pid == pid


def test_an_unexpected_error_of_a_start_is_followed_by_another_one(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [RuntimeError("can't start new thread"), ValueError("no such thing")]

    def start(config: LogServerConfig) -> LogServerProcess:
        if faults:
            raise faults.pop()
        return LogServerProcess.start(config)

    made = OnDemandServer(config_of(folder), start=start)
    made.serve(LOGS[0])
    try:
        assert status_of(made.port) == 200 and not faults
        assert caplog.text.count("trying again") == 2
    finally:
        made.stop()


def test_a_server_knows_its_logs_at_the_first_request_and_learns_others(server: OnDemandServer) -> None:
    assert status_of(server.port) == 200
    assert status_of(server.port, LOGS[1]) == 404
    server.serve(LOGS[1])
    server.serve(LOGS[1])
    assert status_of(server.port, LOGS[1]) == 200


def test_a_killed_server_is_restarted_by_the_next_connection_with_all_logs(
    server: OnDemandServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert status_of(server.port) == 200
    server.serve(LOGS[1])
    for _ in range(2):
        pid = pid_of(server)
        with caplog.at_level(logging.WARNING):
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: server.pid != pid, "the end of the server")  # type: ignore[misc]
        begun = time.monotonic()
        assert status_of(server.port, LOGS[1]) == 200
        assert time.monotonic() - begun < 5
        assert f"log server process {pid} ended with exit status -9" in caplog.text


def test_connections_that_come_while_it_dies_are_served(server: OnDemandServer) -> None:
    assert status_of(server.port) == 200
    pid = pid_of(server)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T", "all threads of the server to stop")
    time.sleep(0.1)
    found: list[int] = []
    waiting = [threading.Thread(target=lambda: found.append(status_of(server.port))) for _ in range(4)]
    for thread in waiting:
        thread.start()
    time.sleep(0.2)  # they are connected, and nobody has taken them
    os.kill(pid, signal.SIGKILL)
    for thread in waiting:
        thread.join(20)
    assert found == [200] * 4


def test_stopping_ends_the_server_and_frees_the_port(server: OnDemandServer) -> None:
    assert status_of(server.port) == 200
    port, pid = server.port, pid_of(server)
    server.stop()
    server.stop()
    assert not is_there(pid) and not is_listening(port)


def test_a_server_unused_with_the_token_ends_and_returns(folder: Path) -> None:
    pids: list[int] = []

    def start(config: LogServerConfig) -> LogServerProcess:
        started = LogServerProcess.start(config)
        pids.append(started.pid)
        return started

    server = OnDemandServer(config_of(folder, bounds=Bounds(unused_seconds=0.5)), start=start)
    server.serve(LOGS[0])
    try:
        assert status_of(server.port, token="wrong") == 401
        wait_until(
            lambda: bool(pids) and not is_there(pids[0]),
            "the end of a server that only unauthenticated clients ask",
        )
        begun = len(pids)
        assert status_of(server.port) == 200
        wait_until(lambda: len(pids) > begun, "the next server to be known")
    finally:
        server.stop()


def test_a_server_in_use_stays(folder: Path) -> None:
    server = OnDemandServer(config_of(folder, bounds=Bounds(unused_seconds=0.5)))
    server.serve(LOGS[0])
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        for _ in range(2):
            kept.request("GET", f"/v1/logs/{LOGS[0]}", headers={"Authorization": f"Bearer {TOKEN}"})
            assert kept.getresponse().read()
            pid = server.pid
            time.sleep(1.5)  # the connection alone keeps it
        assert server.pid == pid is not None
    finally:
        kept.close()
        server.stop()


def test_an_error_at_an_immediate_start_is_reported_at_once(folder: Path, tmp_path: Path) -> None:
    server = OnDemandServer(config_of(folder, certificate=str(tmp_path / "no.pem"), key=str(tmp_path / "no")))
    try:
        with pytest.raises(TransportError, match="no certificate"):
            server.start()
    finally:
        server.stop()


def test_a_server_started_at_once_is_the_one_that_answers(server: OnDemandServer) -> None:
    server.start()
    pid = server.pid
    assert status_of(server.port) == 200
    assert server.pid == pid is not None


HOLDER = """
import os, subprocess, sys, time
from pathlib import Path
from spark_rtps.serving.server.on_demand_server import OnDemandServer
from spark_rtps.serving.server.server_config import LogServerConfig

server = OnDemandServer(LogServerConfig(Path(sys.argv[1]), "127.0.0.1", 0, "token"))
server.start()
if sys.argv[2] == "fork":
    held = os.fork()
    if not held:
        server.stop()  # as from atexit
        time.sleep(60)
else:  # what forks without Python keeps the pipe
    pipe = server._server._stdin.fileno()
    held = subprocess.Popen(["sleep", "60"], pass_fds=[pipe], stdout=subprocess.DEVNULL).pid
print(server.pid, server.port, held, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("way", ["fork", "pipe"])
def test_a_server_ends_with_its_parent_despite_forked_children(folder: Path, way: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), way],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid, port, held = map(int, parent.stdout.readline().split())
    try:
        time.sleep(0.5)  # the fork has stopped what is not its own
        assert is_there(pid) and is_listening(port)
        parent.kill()
        parent.wait()
        wait_until(lambda: not is_there(pid), "the server's end")
        assert is_there(held)
        if way == "fork":
            assert not is_listening(port)
    finally:
        os.kill(held, signal.SIGKILL)


def test_a_child_gets_no_descriptor_but_the_socket(server: OnDemandServer, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        assert status_of(server.port) == 200
        found = {os.path.realpath(path) for path in Path(f"/proc/{pid_of(server)}/fd").iterdir()}
    assert str(tmp_path / "secret") not in found


# --- who comes from where ---------------------------------------------------------------------------


@pytest.mark.parametrize("token", [TOKEN, "wrong"])
def test_peers_of_this_host_cross_nothing(folder: Path, token: str) -> None:
    crossed: list[str] = []
    server = OnDemandServer(config_of(folder, address="0.0.0.0"), crossed=crossed.append)
    server.serve(LOGS[0])
    try:
        status_of(server.port, token=token)
        status_of(server.port, token=token)
        assert not crossed
    finally:
        server.stop()


# --- with servers that are told what to do ----------------------------------------------------------


class Fake:
    """A server that takes the connection, and ends when it is told to; ``say`` is what a process would print."""

    def __init__(self, config: LogServerConfig) -> None:
        self.config = config
        self.read, self.write = os.pipe()
        self.output: list[dict[str, object]] = []
        self.status: int | None = None
        self.logs: list[str] = []
        self.is_stopped = False
        assert config.descriptor is not None
        with socket.socket(fileno=os.dup(config.descriptor)) as sock:
            sock.accept()[0].close()

    pid = 1

    def fileno(self) -> int:
        return self.read

    def serve(self, log: str) -> None:
        self.logs.append(log)

    def notes(self) -> list[dict[str, object]]:
        output, self.output = self.output, []
        if output and self.status is None:
            os.read(self.read, 1)
        return output

    def ended(self) -> int | None:
        return self.status

    def say(self, note: dict[str, object]) -> None:
        self.output.append(note)
        os.write(self.write, b"x")

    def end(self, status: int) -> None:
        self.status = status
        os.close(self.write)

    def stop(self) -> None:
        if self.status is None:
            os.close(self.write)
        os.close(self.read)
        self.is_stopped = True

    def disown(self) -> None: ...


class Fakes:
    def __init__(self, folder: Path, **given: object) -> None:
        self.started: list[Fake] = []
        self.crossed: list[str] = []
        self.server = OnDemandServer(
            config_of(folder, **given), crossed=self.crossed.append, start=self._start
        )

    def _start(self, config: LogServerConfig) -> Fake:
        self.started.append(Fake(config))
        return self.started[-1]

    def connect(self) -> None:
        socket.create_connection(("127.0.0.1", self.server.port), timeout=5).close()


@pytest.fixture
def fakes(tmp_path: Path) -> Iterator[Fakes]:
    made = Fakes(tmp_path)
    yield made
    made.server.stop()


def test_the_server_is_handed_the_socket_and_what_it_needs(fakes: Fakes) -> None:
    fakes.server.serve(LOGS[0])
    fakes.connect()
    wait_until(lambda: fakes.server.pid is not None, "a server")
    (fake,) = fakes.started
    assert (fake.config.port, fake.config.logs, fake.config.token) == (fakes.server.port, (LOGS[0],), TOKEN)
    assert LogServerConfig.from_json(fake.config.to_json()) == fake.config
    fakes.server.serve(LOGS[1])
    assert fake.logs == [LOGS[1]]


def test_the_first_peer_of_another_host_is_logged_once_for_all_servers(fakes: Fakes) -> None:
    for number in range(2):
        fakes.connect()
        wait_until(lambda: fakes.server.pid is not None, "a server")
        fakes.started[-1].say({"crossed": f"10.0.0.{number}"})
        wait_until(lambda: fakes.crossed, "the note")
        fake = fakes.started[-1]
        fake.end(0)
        wait_until(lambda fake=fake: fake.is_stopped, "its end")  # type: ignore[misc]
    assert fakes.crossed == ["10.0.0.0"]


def test_unauthenticated_clients_that_end_the_server_are_answered_ever_later(
    fakes: Fakes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_demand_server, "_FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(on_demand_server, "_PAUSE_SECONDS_MAX", 0.5)
    begun = time.monotonic()
    while time.monotonic() < begun + 2:
        fakes.connect()
        if fakes.server.pid is not None:
            fake = fakes.started[-1]
            fake.end(-11)
            wait_until(lambda fake=fake: fake.is_stopped, "its end", every=0.001)  # type: ignore[misc]
    assert 3 <= len(fakes.started) <= 9


def test_a_server_that_does_not_start_is_logged_once_and_retried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_demand_server, "_FIRST_PAUSE_SECONDS", 0.01)
    tries: list[float] = []

    def fail(_config: LogServerConfig) -> Fake:
        tries.append(time.monotonic())
        raise TransportError("no room")

    server = OnDemandServer(config_of(tmp_path), start=fail)
    try:
        with caplog.at_level(logging.WARNING), socket.create_connection(("127.0.0.1", server.port)):
            wait_until(lambda: len(tries) >= 3, "three tries")
    finally:
        server.stop()
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == ["no room"]


def test_pauses() -> None:
    pacing, now, starts = StartPacing(), 0.0, []
    while now < 600:
        pause = pacing.pause(now)
        now += pause
        starts.append(now)
        pacing.started(now)
    apart = [b - a for a, b in itertools.pairwise(starts)]
    assert starts[0] == 0 and apart[0] <= 1
    assert max(sum(at <= each < at + 60 for each in starts) for at in starts) <= 11
    assert pacing.pause(now + 60) == 0


# --- listening --------------------------------------------------------------------------------------


def test_a_port_that_becomes_free_is_waited_for() -> None:
    taken = listen("127.0.0.1", 0)
    port = taken.getsockname()[1]
    with pytest.raises(TransportError, match=f"127.0.0.1:{port}: Address already in use"):
        listen("127.0.0.1", port)
    threading.Timer(0.3, taken.close).start()
    listen("127.0.0.1", port, patience=10).close()


def test_the_likeliest_addresses_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    from spark_rtps.serving.server import listening
    from spark_rtps.transport.net.interfaces import Interface

    lo, eth = Interface("lo", "127.0.0.1"), [Interface(f"eth{i}", f"10.{i}.0.5") for i in range(3)]
    routed: Callable[[], str | None] = lambda: "10.2.0.5"  # noqa: E731
    monkeypatch.setattr(listening, "interfaces", lambda: [lo, *eth])
    monkeypatch.setattr(listening, "_routed", routed)
    assert reached_at() == ["10.2.0.5", "10.0.0.5", "10.1.0.5"]
    assert reached_at("10.1.0.5") == ["10.1.0.5", "10.2.0.5", "10.0.0.5"]
    assert reached_at("127.0.0.1") == ["10.2.0.5", "10.0.0.5", "10.1.0.5"]
    monkeypatch.setattr(listening, "interfaces", lambda: [lo])
    assert reached_at() == ["127.0.0.1"]
