"""From a reader to the stream log: whatever is delivered is appended before the next datagram is processed.

The reader acknowledges what is in the log. Runs that do not fit wait here; meanwhile the window is closed and nothing
is acknowledged. If the user prefers that to writers that wait, such runs are dropped and counted, or end the receiver.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from ..errors import LogError, LogFullError
from ..limits import TYPED_WRITERS_MAX
from ..log.frame import goes_on
from ..log.segment import is_scarce
from ..log.stream_log import StreamLog
from ..protocol.reading.cache.reader_cache import ReaderCache
from ..protocol.reading.reader import StatefulReader
from ..structure import NANOSECONDS, Guid
from ..wire.samples import U8, Run
from .consumption import Consumed, Consumption
from .full_log_warning import OnLogFull
from .hints import DISK_FULL, LOG_FULL, with_hints
from .sample_retention import Retention
from .shown_counters import ShownCounters
from .writer_types import WriterTypes

_log = logging.getLogger("spark_rtps.receiver")

#: Part of the log kept free for what one receive burst delivers beyond its window (frame headers, runs that waited
#: for a missing one).
_RESERVED_PART: Final = 16
#: How long the system may refuse the same request. A process that lacks descriptors gets them back by a restart.
_REFUSED_NS: Final = 5 * NANOSECONDS
#: Part of a log that is always available, where the oldest samples are trimmed for new ones.
_ROOM_PART: Final = 4


class _Refused:
    """A refusal by the system is retried, and becomes an error if it lasts."""

    def __init__(self) -> None:
        self._since_ns: int | None = None

    def refused(self, error: LogError) -> None:
        """Log the first refusal. Raises the error after a while."""
        now = time.monotonic_ns()
        if self._since_ns is None:
            self._since_ns = now
            _log.error("%s; retrying", error)
        elif now - self._since_ns > _REFUSED_NS:
            raise error

    def done(self) -> None:
        self._since_ns = None


class LogAppender:
    """The recipient of a subscription's reader.

    ``consumption``: tracks samples until Spark commits them; None: what is in the log counts as consumed.
    ``writer_types`` records the types of the writers, if they are needed. ``retention`` trims samples for new ones;
    None: only commits free space. ``hints`` has the user's options for a full log; ``on_full`` decides about runs that
    do not fit. ``topic``: the reader's topic, if other readers append to the log, too.
    """

    def __init__(
        self,
        log: StreamLog,
        cache: ReaderCache,
        shown: ShownCounters,
        consumption: Consumption | None,
        writer_types: WriterTypes | None,
        *,
        hints: Mapping[str, str],
        retention: Retention | None = None,
        topic: str | None = None,
        on_full: OnLogFull = OnLogFull.HOLD,
    ) -> None:
        self._log = log
        self._cache = cache
        self._shown = shown
        self._consumption = consumption
        self._writer_types = writer_types
        self._hints = hints
        self._retention = retention
        self._topic = topic
        #: The reader; another reader's appender may ask it to vacate its reserved frames in the log.
        self.reader: StatefulReader | None = None
        self._on_full = on_full
        self._dropped: dict[Guid, int] = {}
        #: Delivered runs that did not fit into the log, each with its consumption (the log may keep only a part of
        #: it).
        self._pending: deque[tuple[Run | None, Consumed]] = deque()
        self._reported_disk_full = self._reported_many_writers = False
        self._appends, self._trims = _Refused(), _Refused()

    @property
    def is_full(self) -> bool:
        """Whether a run does not fit: it waits, or its writer does."""
        return bool(self._pending) or not self._free()

    def take_dropped(self) -> dict[Guid, int]:
        """The number of samples of each writer that were dropped since the last call because the log was full."""
        dropped, self._dropped = self._dropped, {}
        return dropped

    def room(self) -> int:
        if self._retention is not None or self._on_full is not OnLogFull.HOLD:
            return 0 if self._pending else self._log.max_bytes // _ROOM_PART
        return 0 if self._pending else self._free()

    def _free(self) -> int:
        return max(0, self._log.free_bytes - self._log.max_bytes // _RESERVED_PART)

    def place(self, nbytes: int, count: int = 1) -> U8 | None:
        """Memory in which fragments are joined: in the log, if their samples are likely to be appended next."""
        places = self._log.places
        if self._pending or (places and places.reader is not self.reader):
            return None
        places.reader = self.reader
        return self._log.place(nbytes, count)

    def _vacate(self) -> None:
        """Move fragments out of the log, since other samples are appended first."""
        places = self._log.places
        if places:
            if places.reader is not None:
                places.reader.vacate()
            places.clear()

    def deliver(self, reader: StatefulReader, runs: list[Run]) -> None:
        """Append all runs; those that do not fit wait, and the window closes."""
        reception = time.time_ns()
        if self._pending:
            runs = [
                run.copy() for run in runs
            ]  # an append may overwrite fragments that were joined in the log
            self._append_pending(reception)
        now, most = time.monotonic_ns(), self._log.shared_bytes_max
        accepted: list[tuple[Run | None, Consumed]] = []
        for delivered in runs:
            run = self._cache.accept(delivered, reception=reception, now=now)
            whole = Consumed(0, delivered.writer, delivered.last_sn, delivered.nbytes)
            accepted.append((run, whole))
        places = self._log.places
        if places and not places.hold([run for run, _ in accepted]):
            accepted = [(None if run is None else run.copy(), whole) for run, whole in accepted]
            self._vacate()
        group: list[tuple[Run | None, Consumed]] = []
        last: Run | None = None
        nbytes = 0
        for run, whole in accepted:
            nbytes += whole.nbytes
            if last is None or run is None or nbytes > most or not goes_on(last, run):
                self._append_group(group, reception)
                group, nbytes = [], whole.nbytes
            group.append((run, whole))
            last = run
        self._append_group(group, reception)
        reader.hold_acknowledgments = bool(self._pending)
        self._shown.show_log(self._log)

    def commit_position(self, reader: StatefulReader, position: int) -> None:
        """Everything before ``position`` is consumed and may be trimmed: append the runs that wait."""
        if position > self._log.base:
            try:
                self._log.trim(min(position, self._log.position))
            except LogError as error:
                self._trims.refused(error)
            else:
                self._trims.done()
        if self._consumption is not None:
            for done in self._consumption.on_commit(position):
                reader.consumed(done.writer, done.last_sn, done.nbytes)
        self._append_pending(time.time_ns())
        reader.hold_acknowledgments = bool(self._pending)
        self._shown.show_log(self._log)

    def _append_group(self, group: list[tuple[Run | None, Consumed]], reception: int) -> None:
        """Append runs that may share a frame, or keep them until there is space."""
        if group and (self._pending or not self._append(group, reception)):
            self._pending += [(None if run is None else run.copy(), whole) for run, whole in group]

    def _append_pending(self, reception: int) -> None:
        if self._pending:
            self._vacate()
        while self._pending and self._append([self._pending[0]], reception):
            self._pending.popleft()

    def _append(self, group: list[tuple[Run | None, Consumed]], reception: int) -> bool:
        """Append the kept part of delivered runs, each of which continues the one before; False: they do not fit."""
        run = group[0][0]
        more = [each for each, _ in group[1:] if each is not None]
        try:
            taken = run is None or self._append_run(run, more, reception)
        except LogFullError as error:
            if self._on_full is OnLogFull.FAIL:
                raise
            if not self._reported_disk_full:
                then = "samples are dropped" if self._on_full is OnLogFull.DROP else "writers are held back"
                message = f"{error}; {then} until there is space"
                kind = DISK_FULL if error.limit is None else LOG_FULL
                _log.error("%s", with_hints(message, [kind], self._hints, needed=error.needed))
            self._reported_disk_full = True
            taken = False
        except LogError as error:
            if not is_scarce(error):
                raise
            self._appends.refused(error)
            return False  # not a full log: ``on_full`` does not apply
        else:
            self._reported_disk_full = self._reported_disk_full and not taken
            self._appends.done()
        if not taken:
            taken = self._drop(group)
        if taken and self._consumption is not None:
            for _, whole in group:
                self._consumption.on_append(self._log.position, *whole[1:])
        return taken

    def _drop(self, group: list[tuple[Run | None, Consumed]]) -> bool:
        """Apply ``on_full`` to runs that do not fit: True: they are lost; False: they wait. Raises LogFullError."""
        if self._on_full is OnLogFull.FAIL:
            raise LogFullError(
                f"the log in {self._log.directory} is full: its limit is {self._log.max_bytes} bytes, and the samples "
                "in it are not committed",
                path=self._log.directory,
                limit=self._log.max_bytes,
                needed=2 * self._log.max_bytes,
            )
        if self._on_full is OnLogFull.HOLD:
            return False
        self._count_dropped(run for run, _ in group if run is not None)
        return True

    def _append_run(self, run: Run, more: list[Run], reception: int) -> bool:
        """Append, after trimming the oldest samples if that is allowed; False: the runs do not fit. Raises LogError,
        also LogFullError."""
        log, types = self._log, self._writer_types
        while True:
            try:
                # A writer's line comes before its first sample, which cannot be decoded without it.
                is_noted = types is None or types.record_writer(
                    run.writer, self._topic, log.position, log.base
                )
                if is_noted and log.append(run, reception=reception, more=more):
                    if types is not None:
                        types.appended(run.writer, log.position)
                    return True
            except LogFullError as error:
                if error.limit is not None or self._retention is None or not self._retention.make_room():
                    raise
                continue
            if self._retention is None or not self._retention.make_room():
                if not is_noted:
                    self._report_many_writers(run.writer)
                    if self._on_full is OnLogFull.HOLD:
                        # The wait might never end: only further samples fill the segment that has to be trimmed.
                        self._count_dropped([run, *more])
                        return True
                return False

    def _report_many_writers(self, writer: Guid) -> None:
        if not self._reported_many_writers:
            self._reported_many_writers = True
            _log.error(
                "the log in %s has samples of %d writers, the most whose types and topics it records: samples of "
                "further writers, such as %s, are dropped until older samples are trimmed",
                self._log.directory,
                TYPED_WRITERS_MAX,
                writer,
            )

    def _count_dropped(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._dropped[run.writer] = self._dropped.get(run.writer, 0) + run.count
