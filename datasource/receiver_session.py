"""The receiver of one stream and its log, as the source's process on the driver sees them."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from ..columns.receiving import receiver_config
from ..columns.topic_plan import TopicPlan
from ..options import Settings
from ..options.log_dir import make_log_dir
from ..transport.errors import LogFullError, LogLostError, RtpsError
from ..transport.log.frame import Cursor
from ..transport.log.host_clocks import Clocks
from ..transport.log.log_retention import (
    CHECKPOINT_GONE,
    note_temporary_checkpoint,
    remove_given_up,
    remove_log,
)
from ..transport.log.stream_log import StreamLog
from ..transport.receiver.config import ReceiverConfig
from ..transport.receiver.new_log import create_log
from ..transport.receiver.process import ReceiverProcess
from ..transport.receiver.supervision import Receiver, ReceiverSupervision, StartReceiver
from .shipping import find_shipped_modules
from .temporary_checkpoint import find_temporary_checkpoint

_log = logging.getLogger("spark_rtps.datasource")

#: Where a log begins.
START: Final = Cursor(0)
#: Spark has written a batch's offsets before it asks for the partitions; a query that writes later gets more chances.
_LOOKS: Final = 3
#: If a receiver dies more often than this within a minute, the query fails.
_DEATHS_MAX: Final = 3


def make_log(settings: Settings, plan: TopicPlan, log: str) -> Path:
    """A new log without a receiver; ended logs past their retention are removed first. Returns its folder.

    Raises OptionError or LogError.
    """
    _clean(settings)
    directory = settings.log_dir / log
    create_log(receiver_config(settings, plan, directory)).close()
    return directory


def _clean(settings: Settings) -> None:
    make_log_dir(settings.log_dir, settings.log_mode)
    remove_given_up(
        settings.log_dir,
        now=Clocks.read_now(),
        period=settings.log_retention,
        nbytes=settings.log_retention_bytes,
    )


class ReceiverSession:
    """One log and the receiver that appends to it. A receiver that dies is started again on the same log."""

    def __init__(
        self,
        settings: Settings,
        plan: TopicPlan,
        log: str,
        *,
        start: StartReceiver = ReceiverProcess.start,
        stopping: Callable[[], bool] = bool,
        ephemeral: bool = False,
        reached: Cursor = START,
    ) -> None:
        """``reached`` is how far the log was read, or planned to be read; LogLostError if it ends before."""
        self.log = log
        self.directory = settings.log_dir / log
        self._start = start
        self._config = receiver_config(settings, plan, self.directory, ephemeral=ephemeral)
        if not ephemeral:  # a batch read ends before there is anything to clean
            self._config = replace(
                self._config,
                ended_logs_period_ns=settings.log_retention,
                ended_logs_bytes=settings.log_retention_bytes,
            )
        if not ephemeral:  # an ephemeral receiver runs in a task, and the driver has logged the warnings
            for warning in settings.warnings:
                _log.warning("topic %r: %s", settings.topic, warning)
        #: How often the session still looks for a temporary checkpoint.
        self._looks = 0 if ephemeral else _LOOKS
        #: Whether there is one, so that no query can resume the log once this one has ended.
        self.is_temporary = False
        self.supervision = ReceiverSupervision(
            self._start_with_modules, is_stopping=stopping, deaths_max=_DEATHS_MAX
        )
        self._reached = reached.position + (reached.row > 0)
        self._receiver = self._start_receiver()

    @classmethod
    def on_new_log(
        cls,
        settings: Settings,
        plan: TopicPlan,
        *,
        start: StartReceiver = ReceiverProcess.start,
        stopping: Callable[[], bool] = bool,
        ephemeral: bool = False,
    ) -> ReceiverSession:
        """A receiver with a new log; ended logs past their retention are removed first.

        The receiver removes an ``ephemeral`` log, even if this process is killed.
        """
        _clean(settings)
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
        reached: Cursor = START,
    ) -> ReceiverSession:
        """A receiver for a log that exists, of this run of the query or an earlier one, and was read up to ``reached``.

        LogLostError if that log is gone, is damaged so that it cannot be resumed, or ends before.
        """
        make_log_dir(settings.log_dir, settings.log_mode)
        directory = settings.log_dir / log
        if not StreamLog.exists(directory):
            raise LogLostError(
                f"there is no stream log {directory}", path=directory, position=reached.position
            )
        return cls(settings, plan, log, start=start, stopping=stopping, reached=reached)

    def base(self) -> int:
        """The lowest position that the log has not trimmed."""
        return self._receiver.base()

    def tail(self) -> Cursor:
        """The end of the log. If the receiver has died, it is started again, a few times.

        LogFullError with ``on_log_full=fail``. LogLostError if the log cannot be resumed then, or ends before what was
        read.
        """
        try:
            self._receiver.check()
        except LogFullError:
            raise  # on_log_full=fail asks for this end
        except RtpsError as error:
            self._revive(error)
        tail = self._receiver.cursor()
        self._reached = max(self._reached, tail.position)
        return tail

    def commit_offset(self, cursor: Cursor) -> None:
        """Spark has processed everything before ``cursor``."""
        self._receiver.commit_position(cursor.position)

    def note_checkpoint(self) -> None:
        """Find out whether the log ends with the query, because its checkpoint does; Spark has written offsets."""
        if not self._looks:
            return
        self._looks -= 1
        checkpoint = find_temporary_checkpoint(self.log)
        if checkpoint is None:
            return
        self._looks, self.is_temporary = 0, True
        try:
            note_temporary_checkpoint(self.directory, checkpoint)
        except OSError as error:
            _log.info("%s: not noted as that of a temporary checkpoint: %s", self.directory, error)

    def counters(self) -> dict[str, int]:
        return self._receiver.counters()

    def why_unmatched(self) -> str | None:
        """Why an ephemeral receiver has matched no writer so far; None: it has matched one, or nothing is known."""
        return self._receiver.why_unmatched()

    def stop(self, *, dispose: bool = True) -> None:
        """End the receiver; without a ``dispose`` writers still wait for the next receiver on the log.

        With it, the log is removed if the checkpoint is a temporary one, which no query starts from again.
        """
        self._receiver.stop(dispose=dispose)
        if dispose and self.is_temporary:
            remove_log(self.directory, CHECKPOINT_GONE)

    # --- inside ------------------------------------------------------------------------------------

    def _start_receiver(self) -> Receiver:
        # This may delay latestOffset() by seconds, but only after a receiver died, when there is no new data anyway.
        return self.supervision.start(replace(self._config, log_reached=self._reached))

    def _start_with_modules(self, config: ReceiverConfig) -> Receiver:
        find_shipped_modules()
        return self._start(config)

    def _revive(self, error: RtpsError) -> None:
        restarts = self.supervision.restarts
        if not restarts.has_failed:
            self.supervision.died(time.monotonic_ns())
        if restarts.has_failed:
            raise RtpsError(f"{error}; it died {_DEATHS_MAX + 1} times within a minute") from None
        _log.warning("%s; starting it again on the same log", error)
        self._receiver.stop()
        self._receiver = self._start_receiver()
