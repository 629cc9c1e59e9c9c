"""One subscription that stands: its receiver is started, watched, and started again on the same log.

=========  =========================  =======================================
phase      event                      next
=========  =========================  =======================================
WAITING    its time has come          STARTING
STARTING   the receiver is ready      RUNNING
STARTING   its log is lost            WAITING, with a new log
STARTING   it cannot start            WAITING, for longer each time
RUNNING    it has ended, or hangs     WAITING, at first for no time
RUNNING    another configuration      STOPPING, then WAITING
any        ``end``                    STOPPING, then ENDED
any        an unexpected exception    STOPPING if a receiver runs, then WAITING
=========  =========================  =======================================

Starting and stopping take seconds, so that they happen in pools of threads; everything else in the supervisor's.
"""

from __future__ import annotations

import enum
import logging
import os
import signal
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from ..options.explanations import remedy_of
from ..transport.errors import LogError, LogLostError, RtpsError
from ..transport.log.appending import is_appended_to
from ..transport.log.log_view import LogView
from ..transport.log.stream_log import StreamLog
from ..transport.receiver.config import ReceiverConfig
from ..transport.receiver.process import LOCK_SECONDS
from ..transport.structure import NANOSECONDS
from .backlog import committed
from .restarts import Restarts
from .subscribing import Wanted

_log = logging.getLogger("spark_rtps.receiver_service")

#: A receiver that shows no sign of life for so long is killed.
_HANGS_NS: Final = 60 * NANOSECONDS
_LOOK_NS: Final = NANOSECONDS


class Receiver(Protocol):
    """The part of ReceiverProcess that is needed here."""

    @property
    def pid(self) -> int: ...
    def counters(self) -> dict[str, int]: ...
    def check(self) -> None: ...
    def stop(self, *, goodbye: bool = True) -> None: ...


StartReceiver: TypeAlias = Callable[[ReceiverConfig], Receiver]


class Phase(enum.Enum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    ENDED = "ended"


class Keeper:
    """Keeps one receiver running on one log."""

    def __init__(
        self,
        wanted: Wanted,
        log: str,
        root: Path,
        *,
        is_new: bool,
        start: StartReceiver,
        starts: Executor,
        stops: Executor,
    ) -> None:
        """``log`` is the folder's name below ``root``; ``is_new``: nothing has been received there.

        Receivers are started in the threads of ``starts``, and stopped in those of ``stops``.
        """
        self.wanted = wanted
        self.log = log
        self.phase = Phase.WAITING
        #: Why it does not run; None: it does, or starts.
        self.error: str | None = None
        self._root = root
        #: Nothing has been received into its log.
        self.is_new = is_new
        self._start = start
        self._starts = starts
        self._stops = stops
        self._due = 0
        self._restarts = Restarts()
        self._receiver: Receiver | None = None
        self._starting: Future[Receiver] | None = None
        self._stopping: Future[None] | None = None
        self._replacement: Wanted | None = None
        self._ends = False
        self._goodbye = True
        self._look_at = 0
        #: What its receiver told last, and for how long it has told nothing else.
        self._heartbeat = 0
        self._silent_ns = 0
        #: As the first writer named it.
        self._type: str | None = None

    @property
    def directory(self) -> Path:
        return self._root / self.log

    @property
    def next_wanted(self) -> Wanted:
        """The configuration that the receiver has, or will have once a change is carried out."""
        return self._replacement or self.wanted

    @property
    def state(self) -> str:
        """``starting``, ``running`` or ``failed``."""
        if self._restarts.has_failed and self.phase is Phase.WAITING:
            return "failed"
        return "running" if self.phase is Phase.RUNNING else "starting"

    @property
    def is_settled(self) -> bool:
        """Whether its first start is over, well or badly."""
        return self.phase in (Phase.RUNNING, Phase.ENDED) or self.error is not None

    def counters(self) -> dict[str, int]:
        """What its receiver counts; nothing while there is none."""
        try:
            return self._receiver.counters() if self._receiver is not None else {}
        except (LogError, OSError, ValueError):  # whether the receiver lives, its supervision finds out
            return {}

    def told(self) -> dict[str, Any]:
        """The subscription as the server is told of it."""
        settings = self.wanted.settings
        return {
            "name": self.wanted.name,
            "topic": settings.topic,
            "topics": None if settings.topics is None else asdict(settings.topics),
            "type": self.wanted.plan.type_name if self.wanted.plan.named else self._type,
            "domain": settings.domain,
            "log": self.log,
            "state": self.state,
            "error": self.error,
            "dynamic": self.wanted.dynamic,
            "options": dict(self.wanted.options),
            "retention": settings.retention,
        }

    # --- what others ask ---------------------------------------------------------------------------

    def replace(self, wanted: Wanted) -> None:
        """Go on with another configuration; with a new log where the old one cannot hold what it receives.

        The configuration that the receiver has already takes a change back that was not carried out yet.
        """
        if wanted.is_like(self.wanted):
            self.wanted, self._replacement = wanted, None
        else:
            self._replacement = wanted

    def end(self, *, goodbye: bool) -> None:
        """Stop for good; without a ``goodbye`` writers wait for a successor on the log, for as long as the lease."""
        self._ends, self._goodbye = True, goodbye

    def step(self, now: int) -> None:
        """Do what is due."""
        match self.phase:
            case Phase.WAITING:
                self._wait(now)
            case Phase.STARTING:
                self._see_start(now)
            case Phase.RUNNING:
                self._watch(now)
            case Phase.STOPPING:
                self._see_stop()
            case Phase.ENDED:
                pass

    def failed(self, now: int, error: Exception) -> None:
        """:meth:`step` raised what nobody foresaw: the receiver is started again, as one that has died."""
        _log.error("subscription %s: an unexpected error", self.wanted.name, exc_info=error)
        if self._starting is not None:
            self.phase = Phase.STARTING
        elif self._stopping is not None:
            self.phase = Phase.STOPPING
        elif self._receiver is not None:
            self.phase = Phase.RUNNING
            with suppress(Exception):  # no thread can be started: it runs on, and the next step tries again
                self._stop(goodbye=self._ends and self._goodbye)
                self._count_death(now, f"unexpected error: {error!r}")
        elif self.phase is not Phase.ENDED:
            self._died(now, f"unexpected error: {error!r}")

    # --- inside ------------------------------------------------------------------------------------

    def _wait(self, now: int) -> None:
        if self._ends:
            self.phase = Phase.ENDED
            return
        if self._replacement is not None:
            self._take_replacement(self._replacement, now)
            return
        if now < self._due:
            return
        try:
            is_there = StreamLog.exists(self.directory)
        except OSError as error:  # of a disk, or a file system of another host: it may be there
            self._died(now, f"its log cannot be looked at: {error}")
            return
        if is_there:
            self.is_new = False
        elif not self.is_new:
            self._begin_anew("it is gone")
            return  # the new log is written down before anything is received into it
        try:
            reached = committed(self.directory)
        except OSError as error:
            self._died(now, f"what its consumer groups have committed cannot be read: {error}")
            return
        config = self.wanted.receiver(self.directory, reached=reached)
        self._starting = self._starts.submit(self._start_patiently, config)
        self.phase = Phase.STARTING

    def _start_patiently(self, config: ReceiverConfig) -> Receiver:
        deadline = time.monotonic() + LOCK_SECONDS
        directory = Path(config.log_directory)
        while is_appended_to(directory) and time.monotonic() < deadline and not self._ends:
            time.sleep(0.05)
        return self._start(config)

    def _see_start(self, now: int) -> None:
        assert self._starting is not None
        if self._ends and self._starting.cancel():  # no thread has begun with it
            self._starting, self.phase = None, Phase.ENDED
            return
        if not self._starting.done():
            return
        future, self._starting = self._starting, None
        try:
            self._receiver = future.result()
        except LogLostError as error:
            self.phase = Phase.WAITING
            self._begin_anew(str(error))
            self._due = self._restarts.died(now)
            return
        except (RtpsError, OSError) as error:
            if isinstance(error, RtpsError):
                error.remedy = remedy_of(error)
            self._died(now, str(error))
            return
        self.phase = Phase.RUNNING
        self.error, self.is_new = None, False
        self._look_at, self._heartbeat = now, 0
        self._restarts.runs(now)
        _log.info("subscription %s: its receiver runs, process %d", self.wanted.name, self._receiver.pid)

    def _watch(self, now: int) -> None:
        assert self._receiver is not None
        if self._ends:
            self._stop(goodbye=self._goodbye)
            return
        if self._replacement is not None:
            # nobody comes back to a log that is not gone on with: no writer waits for that
            self._stop(goodbye=self._replacement.needs_new_log(self.wanted))
            return
        try:
            self._receiver.check()
        except RtpsError as error:
            self._receiver.stop(goodbye=False)  # it has ended: this takes no time
            self._receiver = None
            self._died(now, str(error))
            return
        if now >= self._look_at:
            self._see_type()
            self._see_heartbeat(now, self._receiver)
            self._look_at = now + _LOOK_NS

    def _see_heartbeat(self, now: int, receiver: Receiver) -> None:
        """Kill a receiver that hangs.

        Its silence counts only as long as it is looked at: where both processes were stopped, such as in a container
        that was paused, it needs a moment to go on.
        """
        heartbeat = receiver.counters().get("receiver.heartbeat_ns", 0)
        since_look = now - self._look_at + _LOOK_NS
        if heartbeat and heartbeat == self._heartbeat:
            self._silent_ns += min(since_look, 2 * _LOOK_NS)
        else:
            self._heartbeat, self._silent_ns = heartbeat, 0
        if self._silent_ns > _HANGS_NS:
            self._silent_ns = 0  # one that the kernel does not let go of, such as for a disk, outlives that
            _log.error("subscription %s: its receiver hangs, and is killed", self.wanted.name)
            with suppress(ProcessLookupError):
                os.kill(receiver.pid, signal.SIGKILL)

    def _see_type(self) -> None:
        if self._type is None and not self.wanted.plan.named:
            with suppress(LogError, OSError, KeyError, ValueError):
                found = LogView(self.directory).metadata["type"]
                self._type = None if found is None else str(found)

    def _stop(self, *, goodbye: bool) -> None:
        assert self._receiver is not None
        self._stopping = self._stops.submit(self._receiver.stop, goodbye=goodbye)
        self._receiver, self.phase = None, Phase.STOPPING

    def _see_stop(self) -> None:
        assert self._stopping is not None
        if not self._stopping.done():
            return
        future, self._stopping = self._stopping, None
        self.phase = Phase.ENDED if self._ends else Phase.WAITING
        if (error := future.exception()) is not None:
            _log.error(
                "subscription %s: stopping its receiver failed: %r", self.wanted.name, error, exc_info=error
            )

    def _take_replacement(self, wanted: Wanted, now: int) -> None:
        needs_new_log = wanted.needs_new_log(self.wanted)
        self.wanted, self._replacement = wanted, None
        self._due, self.error, self._restarts = now, None, Restarts()
        if needs_new_log:
            self._begin_anew("it receives another topic, type, domain or partition now")

    def _died(self, now: int, why: str) -> None:
        self.phase = Phase.WAITING
        self._count_death(now, why)

    def _count_death(self, now: int, why: str) -> None:
        self.error = why
        self._due = self._restarts.died(now)
        name = self.wanted.name
        if self._restarts.has_failed:
            _log.error("subscription %s: %s; it failed too often, the next try is in a minute", name, why)
        else:
            _log.warning("subscription %s: %s; starting it again", name, why)

    def _begin_anew(self, why: str) -> None:
        lost, self.log = self.directory, str(uuid.uuid4())
        self.is_new, self._type = True, None
        _log.error(
            "subscription %s: its log %s cannot be gone on with: %s. What is received from now on goes into a NEW log, "
            "%s; queries that read the old one have to begin anew",
            self.wanted.name,
            lost,
            why,
            self.directory,
        )
