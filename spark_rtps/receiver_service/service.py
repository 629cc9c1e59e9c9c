"""The process of ``spark-rtps receive``: its signals, the service manager, and the loop around the supervisor."""

from __future__ import annotations

import dataclasses
import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final

from ..transport.errors import RtpsError
from ..transport.net.service_manager import notify, watchdog_period
from ..transport.receiver.process import ReceiverProcess
from .children import start_server
from .config import ReceiverServiceConfig, read_config
from .directory import TOKEN_FILE, hold_directory, local_token
from .supervisor import Processes, Supervisor
from .topic_watch import join_domain

_log = logging.getLogger("spark_rtps.receiver_service")

#: How long a turn waits for clients; children that died and signals are noticed as soon.
_STEP_SECONDS: Final = 0.1
#: Receivers that are started at the same time: each takes a core for a second.
_STARTS: Final = 4
#: Receivers that are stopped at the same time: the threads only wait.
_STOPS: Final = 16
#: After this time, the service manager no longer waits for a subscription that does not start.
_READY_NS: Final = 20 * 10**9
_DRAIN_SECONDS: Final = 40.0


class Service:
    """One receiver service, from its file to its end."""

    def __init__(self, file: Path) -> None:
        """Reads the file. Raises ReceiverFileError."""
        self._file = file
        self._config = read_config(file)
        self._reload_wanted = False
        self._end_wanted: int | None = None
        self._dispose = False

    def run(self, show: Callable[[Supervisor], None] | None = None) -> list[str]:
        """Receive until TERM or INT; returns the backlog, in sentences. ``show`` is called after each turn.

        Raises RtpsError if the directory cannot be used, or the server cannot listen.
        """
        handlers = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        _warn(self._config)
        lock = hold_directory(self._config.directory)
        pools = [ThreadPoolExecutor(count, "rtps-receiver-service") for count in (_STARTS, _STOPS, 1, 1)]
        try:
            join = partial(join_domain, self._config.directory)
            processes = Processes(ReceiverProcess.start, start_server, join, *pools)
            supervisor = Supervisor(_with_token(self._config), processes)
            try:
                self._loop(supervisor, show)
            finally:
                left = self._drain(supervisor)
        finally:
            for pool in pools:
                pool.shutdown(wait=False, cancel_futures=True)
            os.close(lock)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return left

    # --- inside ------------------------------------------------------------------------------------

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self._reload_wanted = True
            return
        self._end_wanted = number
        # Ctrl-C ends it for good; a service manager often restarts it at once
        self._dispose = self._dispose or number == signal.SIGINT

    def _loop(self, supervisor: Supervisor, show: Callable[[Supervisor], None] | None) -> None:
        begun = time.monotonic_ns()
        period = watchdog_period()
        is_ready, barked_at, shown = False, 0, ""
        while self._end_wanted is None:
            if self._reload_wanted:
                self._reload_wanted = False
                self._reload(supervisor)
            now = time.monotonic_ns()
            supervisor.do_work(now)
            if not is_ready and (supervisor.is_ready or _is_late(supervisor, now - begun)):
                is_ready = True
                notify("READY=1", _status(supervisor))
                _log.info("ready: %s", _status(supervisor).removeprefix("STATUS="))
            if period is not None and now - barked_at >= period // 3 and supervisor.is_alive:
                barked_at = now
                notify("WATCHDOG=1")
            if is_ready and shown != (status := _status(supervisor)):
                shown = status
                notify(status)
            if show is not None:
                show(supervisor)
            self._wait(supervisor)

    def _wait(self, supervisor: Supervisor) -> None:
        waiting = supervisor.fileno()
        if waiting is None:
            time.sleep(_STEP_SECONDS)
        else:
            poll = select.poll()  # select() cannot wait for descriptors above 1023
            poll.register(waiting, select.POLLIN)
            poll.poll(_STEP_SECONDS * 1_000)

    def _reload(self, supervisor: Supervisor) -> None:
        notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")
        try:
            config = read_config(self._file)
            changed = supervisor.reload(_with_token(config))
        except RtpsError as error:
            _log.error("%s; keeping the previous configuration", error)
        except Exception:  # noqa: BLE001  (the receivers continue)
            _log.exception("reading %s failed; keeping the previous configuration", self._file)
        else:
            _warn(config)
            _log.info("read %s again: %s", self._file, "; ".join(changed) or "nothing has changed")
        notify("READY=1")

    def _drain(self, supervisor: Supervisor) -> list[str]:
        notify("STOPPING=1")
        _log.info("ending: the receivers stop, then the server")
        pulse = _Pulse()
        try:
            return supervisor.drain(
                dispose=self._dispose, patience=_DRAIN_SECONDS, pause=lambda: time.sleep(0.02)
            )
        finally:
            pulse.stop()


class _Pulse:
    """Serves the service manager's watchdog during the end, which is bounded."""

    def __init__(self) -> None:
        self._period = watchdog_period()
        self._ended = threading.Event()
        if self._period is not None:
            threading.Thread(target=self._run, args=(self._period,), daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self, period: int) -> None:
        while not self._ended.wait(period / 3e9):
            notify("WATCHDOG=1")


def _with_token(config: ReceiverServiceConfig) -> ReceiverServiceConfig:
    """Add a token for this host where the file has none, and clients have no certificates."""
    if config.tokens is not None or config.client_ca is not None:
        return config
    token = local_token(config.directory)
    _log.info("clients on this host find the token in %s", config.directory / TOKEN_FILE)
    return dataclasses.replace(config, tokens={"admin": token})


def _warn(config: ReceiverServiceConfig) -> None:
    for warning in config.warnings:
        _log.warning("%s", warning)


def _is_late(supervisor: Supervisor, elapsed: int) -> bool:
    return elapsed > _READY_NS and supervisor.port is not None


def _status(supervisor: Supervisor) -> str:
    states = [each.state for each in supervisor.keepers]
    failed = f", {states.count('failed')} failed" if "failed" in states else ""
    return f"STATUS={states.count('running')} of {len(states)} subscriptions run{failed}"
