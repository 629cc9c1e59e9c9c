"""One subscription of a receiver service: its receiver is started, watched, and restarted on the same log.

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

Starting and stopping take seconds and run in pools of threads; everything else runs in the supervisor's thread.
"""

from __future__ import annotations

import enum
import logging
import os
import signal
import uuid
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ..options.explanations import hint_of
from ..transport.errors import LogError, LogLostError, RtpsError
from ..transport.log.log_view import LogView
from ..transport.log.stream_log import StreamLog
from ..transport.receiver.supervision import Receiver, ReceiverSupervision, StartReceiver
from ..transport.structure import NANOSECONDS
from .backlog import committed
from .subscribing import Wanted

_log = logging.getLogger("spark_rtps.receiver_service")

_LOOK_NS: Final = NANOSECONDS


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
        #: Why it does not run; None: it runs, or starts.
        self.error: str | None = None
        self._root = root
        #: Nothing has been received into its log.
        self.is_new = is_new
        self._starts = starts
        self._stops = stops
        self._due = 0
        self._supervision = ReceiverSupervision(start, is_stopping=lambda: self._ends)
        self._receiver: Receiver | None = None
        self._starting: Future[Receiver] | None = None
        self._stopping: Future[None] | None = None
        self._replacement: Wanted | None = None
        self._ends = False
        self._dispose = True
        self._look_at = 0
        #: The type as the first writer named it.
        self.found_type: str | None = None

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
        if self._supervision.restarts.has_failed and self.phase is Phase.WAITING:
            return "failed"
        return "running" if self.phase is Phase.RUNNING else "starting"

    @property
    def is_settled(self) -> bool:
        """Whether its first start is over, successful or not."""
        return self.phase in (Phase.RUNNING, Phase.ENDED) or self.error is not None

    def counters(self) -> dict[str, int]:
        """The counters of its receiver; none while there is none."""
        try:
            return self._receiver.counters() if self._receiver is not None else {}
        except (LogError, OSError, ValueError):  # the watch notices if the receiver has died
            return {}

    # --- interface ---------------------------------------------------------------------------

    def replace(self, wanted: Wanted) -> None:
        """Continue with another configuration; with a new log if the old one cannot hold the new samples.

        The receiver's present configuration revokes a change that was not carried out yet.
        """
        if wanted.is_like(self.wanted):
            self.wanted, self._replacement = wanted, None
        else:
            self._replacement = wanted

    def end_receiver(self, *, dispose: bool) -> None:
        """Stop for good; without a ``dispose`` writers wait for a successor on the log, for as long as the lease."""
        self._ends, self._dispose = True, dispose

    def do_work(self, now: int) -> None:
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
        """:meth:`do_work` raised an unexpected error: restart the receiver as if it had died."""
        _log.error("subscription %s: an unexpected error", self.wanted.name, exc_info=error)
        if self._starting is not None:
            self.phase = Phase.STARTING
        elif self._stopping is not None:
            self.phase = Phase.STOPPING
        elif self._receiver is not None:
            self.phase = Phase.RUNNING
            with suppress(
                Exception
            ):  # no thread can be started: it keeps running, and the next call tries again
                self._stop(dispose=self._ends and self._dispose)
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
        except (
            OSError
        ) as error:  # the disk, or the file system of another host, may have failed: the log may be there
            self._died(now, f"its log cannot be opened: {error}")
            return
        if is_there:
            self.is_new = False
        elif not self.is_new:
            self._begin_anew("it was removed")
            return  # the new log is recorded before anything is received into it
        try:
            reached = committed(self.directory)
        except OSError as error:
            self._died(now, f"the commits of its consumer groups cannot be read: {error}")
            return
        config = self.wanted.receiver(self.directory, reached=reached)
        self._starting = self._starts.submit(self._supervision.start, config)
        self.phase = Phase.STARTING

    def _see_start(self, now: int) -> None:
        assert self._starting is not None
        if self._ends and self._starting.cancel():  # no thread has begun it
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
            self._due = self._supervision.died(now)
            return
        except (RtpsError, OSError) as error:
            if isinstance(error, RtpsError):
                error.hint = hint_of(error)
            self._died(now, str(error))
            return
        self.phase = Phase.RUNNING
        self.error, self.is_new = None, False
        self._look_at = now
        self._supervision.restarts.runs(now)
        _log.info("subscription %s: its receiver runs, process %d", self.wanted.name, self._receiver.pid)

    def _watch(self, now: int) -> None:
        assert self._receiver is not None
        if self._ends:
            self._stop(dispose=self._dispose)
            return
        if self._replacement is not None:
            # no receiver returns to a log that is not resumed, so its writers need not wait
            self._stop(dispose=self._replacement.needs_new_log(self.wanted))
            return
        try:
            self._receiver.check()
        except RtpsError as error:
            self._receiver.stop(dispose=False)  # it has ended, so this takes no time
            self._receiver = None
            self._died(now, str(error))
            return
        if now >= self._look_at:
            self._see_type()
            since_look = min(now - self._look_at + _LOOK_NS, 2 * _LOOK_NS)
            if self._supervision.hangs(self._receiver, since_look=since_look):
                _log.error(
                    "subscription %s: its receiver hangs and was killed; starting it again", self.wanted.name
                )
                with suppress(ProcessLookupError):
                    os.kill(self._receiver.pid, signal.SIGKILL)
            self._look_at = now + _LOOK_NS

    def _see_type(self) -> None:
        if self.found_type is None and not self.wanted.plan.named:
            with suppress(LogError, OSError, KeyError, ValueError):
                found = LogView(self.directory).metadata["type"]
                self.found_type = None if found is None else str(found)

    def _stop(self, *, dispose: bool) -> None:
        assert self._receiver is not None
        self._stopping = self._stops.submit(self._receiver.stop, dispose=dispose)
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
        self._due, self.error = now, None
        self._supervision.forget_deaths()
        if needs_new_log:
            self._begin_anew("the subscription has another topic, type, domain or partition now")

    def _died(self, now: int, why: str) -> None:
        self.phase = Phase.WAITING
        self._count_death(now, why)

    def _count_death(self, now: int, why: str) -> None:
        self.error = why
        self._due = self._supervision.died(now)
        name = self.wanted.name
        if self._supervision.restarts.has_failed:
            _log.error("subscription %s: %s; it failed too often; trying again in a minute", name, why)
        else:
            _log.warning("subscription %s: %s; starting it again", name, why)

    def _begin_anew(self, why: str) -> None:
        lost, self.log = self.directory, str(uuid.uuid4())
        self.is_new, self.found_type = True, None
        _log.error(
            "subscription %s: its log %s cannot be resumed: %s. New samples go into a NEW log, %s; queries that read "
            "the old one need a new checkpoint",
            self.wanted.name,
            lost,
            why,
            self.directory,
        )


def describe(keeper: Keeper) -> dict[str, Any]:
    """The subscription as the server gets it."""
    wanted = keeper.wanted
    settings = wanted.settings
    return {
        "name": wanted.name,
        "topic": settings.topic,
        "topics": None if settings.topics is None else asdict(settings.topics),
        "type": wanted.plan.type_name if wanted.plan.named else keeper.found_type,
        "domain": settings.domain,
        "log": keeper.log,
        "state": keeper.state,
        "error": keeper.error,
        "dynamic": wanted.dynamic,
        "options": dict(wanted.options),
        "retention": settings.retention,
    }
