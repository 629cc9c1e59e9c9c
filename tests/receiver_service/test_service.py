"""The loop around a supervisor: signals, and what the service manager hears."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.receiver_service import service as service_module
from spark_rtps.receiver_service.config import ReceiverServiceConfig
from spark_rtps.receiver_service.directory import local_token
from spark_rtps.receiver_service.service import Service
from spark_rtps.transport.errors import TransportError


class Script:
    """What happens in each step, what the manager was told, and how it ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.file = tmp_path / "receiver.toml"
        self.file.write_text('directory = "state"\nlisten = "127.0.0.1:0"\n')
        self.steps: list[Callable[[], None]] = []
        self.reported: list[str] = []
        self.reloaded: list[ReceiverServiceConfig] = []
        self.drained: list[bool] = []
        self.is_ready = True
        self.is_alive = True
        self.now = 10**12
        script = self

        class Supervisor:
            keepers: tuple[()] = ()
            port = 7

            def __init__(self, config: ReceiverServiceConfig, _processes: object) -> None:
                script.config = config

            is_ready = property(lambda _: script.is_ready)
            is_alive = property(lambda _: script.is_alive)

            def do_work(self, now: int) -> None:
                script.now += 10**9
                if not script.steps:
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    script.steps.pop(0)()

            def fileno(self) -> None:
                return None

            def reload(self, config: ReceiverServiceConfig) -> list[str]:
                script.reloaded.append(config)
                return []

            def drain(self, *, dispose: bool, **_: Any) -> list[str]:
                script.drained.append(dispose)
                return ["something"]

        self.config: ReceiverServiceConfig
        monkeypatch.setattr(service_module, "Supervisor", Supervisor)
        monkeypatch.setattr(service_module, "notify", lambda *fields: self.reported.extend(fields))
        monkeypatch.setattr(service_module, "watchdog_period", lambda: 3 * 10**9)
        monkeypatch.setattr(service_module, "_STEP_SECONDS", 0.0)
        monkeypatch.setattr(service_module.time, "monotonic_ns", lambda: self.now)  # type: ignore[attr-defined]

    def run(self) -> list[str]:
        return Service(self.file).run()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Script:
    return Script(monkeypatch, tmp_path)


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "dispose"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_the_end(script: Script, number: int, dispose: bool) -> None:
    before = signal.getsignal(number)
    script.steps = [send(number)]
    assert script.run() == ["something"]
    assert script.drained == [dispose]
    assert script.reported[0] == "READY=1" and "STOPPING=1" in script.reported
    assert signal.getsignal(number) is before


def test_hup_reads_the_file_again(script: Script) -> None:
    script.steps = [send(signal.SIGHUP), lambda: None]
    script.run()
    (config,) = script.reloaded
    assert config.tokens == script.config.tokens and set(config.tokens or ()) == {"admin"}
    at = script.reported.index("RELOADING=1")
    assert script.reported[at + 1].startswith("MONOTONIC_USEC=") and "READY=1" in script.reported[at:]


def test_a_bad_file_is_not_taken(script: Script, caplog: pytest.LogCaptureFixture) -> None:
    script.steps = [lambda: script.file.unlink() or send(signal.SIGHUP)(), lambda: None]
    script.run()
    assert not script.reloaded and "keeping the previous configuration" in caplog.text
    assert script.reported.count("READY=1") == 2


def test_an_unexpected_error_in_reading_the_file_again_ends_nothing(
    script: Script, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Path) -> ReceiverServiceConfig:
        raise KeyError("a fault of the program")

    script.steps = [
        lambda: monkeypatch.setattr(service_module, "read_config", fail) or send(signal.SIGHUP)(),
        lambda: None,
        lambda: None,
    ]
    script.run()
    assert not script.steps and not script.reloaded and "keeping the previous configuration" in caplog.text
    assert script.reported.count("READY=1") == 2


def test_warnings_about_the_file_are_logged_at_each_reading(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    token = script.file.with_name("token")
    token.write_text("0123456789abcdef")
    token.chmod(0o644)
    script.file.write_text('tokens.read = "token"\n' + script.file.read_text())
    script.steps = [send(signal.SIGHUP), lambda: None]
    script.run()
    output = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert ["open to all users" in each for each in output] == [True, True]


def test_ready_only_when_it_is(script: Script) -> None:
    def now_ready() -> None:
        assert "READY=1" not in script.reported
        script.is_ready = True

    script.is_ready = False
    script.steps = [lambda: None, now_ready]
    script.run()
    assert "READY=1" in script.reported


def test_a_subscription_that_does_not_start_holds_nobody_up(script: Script) -> None:
    script.is_ready = False
    script.steps = [lambda: None] * 30
    script.run()
    assert "READY=1" in script.reported


def test_the_watchdog_is_fed_while_it_lives(script: Script) -> None:
    script.steps = [lambda: None] * 10
    script.run()
    assert script.reported.count("WATCHDOG=1") >= 8


def test_and_not_when_it_does_not(script: Script) -> None:
    script.is_alive = False
    script.steps = [lambda: None] * 10
    script.run()
    before_the_end = script.reported[: script.reported.index("STOPPING=1")]
    assert "WATCHDOG=1" not in before_the_end


def test_a_failing_service_ends_in_order(script: Script) -> None:
    def fail() -> None:
        raise TransportError("the address is in use")

    script.steps = [fail]
    with pytest.raises(TransportError):
        script.run()
    assert script.drained == [False] and "STOPPING=1" in script.reported


def test_other_users_cannot_read_the_token_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o755)
    modes: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda fd: modes.append(stat.S_IMODE(os.fstat(fd).st_mode)))
    token = local_token(tmp_path)
    assert len(token) == 64 and local_token(tmp_path) == token
    assert modes[0] == stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
