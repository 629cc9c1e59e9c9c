"""The receiver of one stream and its log, as the source's process on the driver sees them."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from ..transport.errors import LogLostError, OptionError, RtpsError
from ..transport.log.frame import Cursor
from ..transport.log.segment import LOCK
from ..transport.log.stream_log import StreamLog
from ..transport.qos import Qos
from ..transport.receiver.config import ReceiverConfig
from ..transport.receiver.process import ReceiverProcess
from ..transport.structure import NANOSECONDS
from ..transport.types.idl.printer import print_idl
from .options import Payload, Settings, default_log_dir
from .participants import node_config
from .schema import TopicPlan

_log = logging.getLogger("spark_rtps.datasource")

#: A receiver that dies more often than this within the period fails the query.
_RESTARTS_MAX: Final = 3
_RESTARTS_PERIOD_NS: Final = 60 * NANOSECONDS
#: After a driver was killed, its receiver needs a moment to notice and to let go of the log.
_LOCK_SECONDS: Final = 10.0


class Receiver(Protocol):
    """What is used of :class:`ReceiverProcess`."""

    @property
    def pid(self) -> int: ...
    def cursor(self) -> Cursor: ...
    def commit(self, position: int) -> None: ...
    def counters(self) -> dict[str, int]: ...
    def check(self) -> None: ...
    def stop(self, *, goodbye: bool = True) -> None: ...


StartReceiver: TypeAlias = Callable[[ReceiverConfig], Receiver]


def _keyed(qos: Qos, plan: TopicPlan) -> bool | None:
    """None: as the first writer has it. Who tells instances apart needs to know by what."""
    return plan.keyed if plan.named or plan.keyed or qos.tells_instances else None


class Receiving:
    """One log and the receiver that appends to it, started anew on the same log when it dies."""

    def __init__(
        self,
        settings: Settings,
        plan: TopicPlan,
        log: str,
        *,
        start: StartReceiver = ReceiverProcess.start,
        stopping: Callable[[], bool] = bool,
        ephemeral: bool = False,
    ) -> None:
        self.log = log
        self.directory = settings.log_dir / log
        self._start = start
        self._stopping = stopping
        self._config = ReceiverConfig(
            log_directory=str(self.directory),
            topic=plan.topic,
            type_name=plan.type_name if plan.named else None,
            keyed=_keyed(settings.qos, plan),
            qos=settings.qos,
            policy=settings.reader_policy,
            type=None if plan.struct is None else (print_idl(plan.struct), plan.struct.name),
            announces_type=plan.announced and plan.struct is not None,
            records_writer_types=plan.payload is Payload.CDR and not plan.announced,
            tells_instances=plan.struct is not None and plan.keyed and settings.qos.tells_instances,
            filter=None if plan.filter is None else (plan.filter.expression, plan.filter.parameters),
            accept_writer_removed_batch_samples=settings.accept_writer_removed_batch_samples,
            node=node_config(settings),
            log_max_bytes=settings.log_max_bytes,
            log_segment_bytes=settings.log_segment_bytes,
            consumption=settings.consumption,
            spy=settings.spy,
            ephemeral=ephemeral,
        )
        if not ephemeral:  # that is a task, and the driver has said it
            for warning in settings.warnings:
                _log.warning("topic %r: %s", settings.topic, warning)
        self._deaths: deque[int] = deque()
        self._receiver = self._start_patiently()

    @classmethod
    def on_new_log(
        cls,
        settings: Settings,
        plan: TopicPlan,
        *,
        start: StartReceiver = ReceiverProcess.start,
        stopping: Callable[[], bool] = bool,
        ephemeral: bool = False,
    ) -> Receiving:
        """A receiver with a log of its own; logs untouched for ``log.retention`` are removed first.

        An ``ephemeral`` log is removed by its receiver, also when this process is killed.
        """
        make_log_dir(settings.log_dir)
        remove_stale_logs(settings.log_dir, settings.log_retention, now=time.time_ns())
        log = str(uuid.uuid4())
        return cls(settings, plan, log, start=start, stopping=stopping, ephemeral=ephemeral)

    @classmethod
    def on_old_log(
        cls,
        settings: Settings,
        plan: TopicPlan,
        log: str,
        *,
        start: StartReceiver = ReceiverProcess.start,
        stopping: Callable[[], bool] = bool,
    ) -> Receiving:
        """The receiver goes on with the log of an earlier run of the query; LogLostError if it is gone."""
        make_log_dir(settings.log_dir)
        directory = settings.log_dir / log
        if not StreamLog.exists(directory):
            raise LogLostError(f"there is no stream log {directory}")
        return cls(settings, plan, log, start=start, stopping=stopping)

    def tail(self) -> Cursor:
        """The end of the log. A receiver found dead is started again, a few times."""
        try:
            self._receiver.check()
        except RtpsError as error:
            self._revive(error)
        return self._receiver.cursor()

    def commit(self, cursor: Cursor) -> None:
        """Spark is done with everything before ``cursor``."""
        self._receiver.commit(cursor.position)

    def counters(self) -> dict[str, int]:
        return self._receiver.counters()

    def stop(self, *, goodbye: bool = True) -> None:
        """End it; without a ``goodbye`` writers still wait for who goes on with the log."""
        self._receiver.stop(goodbye=goodbye)

    def discard(self) -> None:
        """End it, and remove its log: nobody has read of it."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- inside ------------------------------------------------------------------------------------

    def _start_patiently(self) -> Receiver:
        # This may hold latestOffset() up for seconds, but only where a receiver died: it has no data to tell of.
        deadline = time.monotonic() + _LOCK_SECONDS
        while is_appended_to(self.directory) and time.monotonic() < deadline and not self._stopping():
            time.sleep(0.05)
        return self._start(self._config)

    def _revive(self, error: RtpsError) -> None:
        now = time.monotonic_ns()
        while self._deaths and now - self._deaths[0] > _RESTARTS_PERIOD_NS:
            self._deaths.popleft()
        if len(self._deaths) >= _RESTARTS_MAX:
            raise RtpsError(f"{error}; it died {_RESTARTS_MAX + 1} times within a minute") from None
        self._deaths.append(now)
        _log.warning("%s; starting it again on the same log", error)
        self._receiver.stop()
        self._receiver = self._start_patiently()


def make_log_dir(path: Path) -> None:
    """Make the directory of all logs; OptionError if that cannot be, or it is somebody else's trap.

    A directory the user named may belong to anybody. The default one lies where everybody can make it first.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = path.lstat().st_uid
    except OSError as error:
        fix = f"cannot be made ({error.strerror}); name a directory that can"
        raise OptionError("log.dir", str(path), fix) from None
    if path == default_log_dir() and owner != os.getuid():
        raise OptionError("log.dir", str(path), "belongs to another user; name a directory of your own")


def is_appended_to(directory: Path) -> bool:
    """Whether some process is the appender of the log in ``directory``."""
    try:
        lock = os.open(directory / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def remove_stale_logs(root: Path, retention: int, *, now: int) -> list[Path]:
    """Remove logs below ``root`` whose files have not changed for ``retention`` ns; returns them."""
    removed = []
    for directory in root.iterdir():
        try:
            uuid.UUID(directory.name)
            newest = max(
                (f.stat().st_mtime_ns for f in directory.iterdir()), default=directory.stat().st_mtime_ns
            )
            if now - newest > retention and not is_appended_to(directory):
                shutil.rmtree(directory)
                removed.append(directory)
        except (ValueError, OSError):
            continue  # not ours, or somebody else is removing it
    return removed
