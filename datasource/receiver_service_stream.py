"""The streaming source over receiver services: it plans ranges of their logs, each from its last offset.

The versions of PySpark call a source differently: :mod:`.receiver_service_stream_reader` and
:mod:`.receiver_service_stream_reader_4_0`.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ..columns.topic_plan import TopicPlan
from ..monitoring.reports import record_errors
from ..options import Settings
from ..options.explanations import explained
from ..serving.wire_format.receiver_service import LogTail, SubscriptionInfo
from ..transport.errors import LogLostError, RangeServerError, UsageError
from ..transport.log.frame import Cursor
from ..transport.log_once import LogOnce
from .commit_order import CommitOrder
from .offsets import Json, Offset, ReceiverServiceOffset
from .range_calculator import Limits, LimitShares, LogPartition, half_of_log
from .receiver_service_commits import GroupCommits
from .receiver_service_offsets import OffsetPlacement
from .receiver_service_slices import check_slices
from .receiver_services import Connect, ReceiverService, at_once, connect, receiver_services
from .task_reader import TaskReader, reduce

_log = logging.getLogger("spark_rtps.datasource")

#: How often the beginning of a range is requested again after it was trimmed during planning.
_TRIES: Final = 3


class ReceiverServiceStream(DataSourceStreamReader):
    """Spark calls all methods but ``read`` in one process on the driver; tasks are sent its :class:`TaskReader`."""

    def __init__(self, settings: Settings, plan: TopicPlan, *, make: Connect = connect) -> None:
        self._settings = settings
        self._plan = plan
        self._make = make
        self._receivers: dict[str, ReceiverService] = {}
        self._group = settings.receiver_group or ""
        self._order = CommitOrder()
        #: Trigger.AvailableNow reads no further than this.
        self._targets: dict[str, Offset] | None = None
        self._shares = LimitShares()
        self._tails: dict[str, tuple[str, LogTail]] = {}
        self._initial: ReceiverServiceOffset | None = None
        self._planned: ReceiverServiceOffset | None = None
        #: The end of the first range that Spark asked for: after a restart, that of the last micro-batch.
        self._seen: ReceiverServiceOffset | None = None
        #: Since when receivers are awaited that have not answered yet, in ns since 1970.
        self._awaited: dict[str, int] = {}
        self._logged = LogOnce(256)
        self._commits = GroupCommits(self._receivers, self._say)
        self._offsets = OffsetPlacement(
            self._receivers, self._say, fails_on_data_loss=settings.fail_on_data_loss
        )
        #: The subscriptions whose slices were checked last.
        self._sliced: dict[str, SubscriptionInfo] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self._settings, self._plan, notes_query=False)

    # --- offsets -----------------------------------------------------------------------------------

    @explained()
    def initialOffset(self) -> dict[str, Json]:  # noqa: N802
        """The offsets of startingOffsets or startingTimestamp, at each receiver that answers. Spark calls this twice,
        and
        again if the query was stopped in its first micro-batch."""
        return self._beginning().to_json()

    def _beginning(self) -> ReceiverServiceOffset:
        if self._initial is None:
            seen = self._seen
            if seen is not None and seen.since is not None:
                self._initial = ReceiverServiceOffset(seen.group, seen.since)
            elif seen is not None:  # nothing was read: the range ended where it began
                self._initial = seen
            else:
                self._group = self._group or str(uuid.uuid4())
                now = time.time_ns()
                log_offsets = self._new(self._group, self._poll(), {}, {})
                self._initial = ReceiverServiceOffset(
                    self._group,
                    log_offsets,
                    awaited=self._awaited_now(log_offsets, dict.fromkeys(self._open(), now)),
                )
            self._order.begins(self._initial.to_json())
        return self._initial

    def _plan_end(
        self, start: ReceiverServiceOffset, limits: Limits, *, is_processed: bool = True
    ) -> ReceiverServiceOffset:
        """The end of the next micro-batch. Receivers out of reach keep their offset.

        ``is_processed``: nothing before ``start`` has to be read again.
        """
        self._order.asked(start.to_json())
        offset = self._known(start)
        tails = self._poll()
        group = self._settings.receiver_group or offset.group
        if is_processed and not self._order.is_late:
            # Spark calls commit() only when there is more: a receiver whose full log waits for its groups would
            # otherwise
            # wait for that for ever.
            self._commits.commit(
                group, {name: log_offset for name, log_offset in offset.by_receiver.items() if name in tails}
            )
        log_offsets, behind = dict(offset.by_receiver), dict[str, Cursor]()
        for name, log_offset in offset.by_receiver.items():
            if name not in tails:
                continue
            log, tail = tails[name]
            if log != log_offset.log:
                log_offsets[name] = self._offsets.on_another_log(name, log_offset, log, tail)
                self._commits.commit(group, {name: log_offsets[name]})  # the group holds the log from now on
                continue
            try:
                begin = self._offsets.place(name, log_offset, tail)
            except RangeServerError as error:
                self._receivers[name].missed(error)
                continue
            if begin < self._target(name, log, tail):
                behind[name] = begin
                continue
            self._receivers[name].planned()
            if begin < log_offset.cursor:  # the log was cut, and continues from here
                log_offsets[name] = Offset(log, begin)
        for name, share in self._shares.divide(list(behind), limits).items():
            try:
                end = self._end(name, behind[name], *tails[name], share)
            except RangeServerError as error:
                self._receivers[name].missed(error)
                continue
            self._receivers[name].planned()
            log_offsets[name] = self._offsets.trust(name, Offset(tails[name][0], end))
        log_offsets |= self._new(offset.group, tails, log_offsets, offset.awaited or {})
        since = start.by_receiver if start == self._initial else None
        if log_offsets == start.by_receiver:
            self._planned = start
        else:
            awaited = self._awaited_now(log_offsets, offset.awaited or {})
            self._planned = ReceiverServiceOffset(offset.group, log_offsets, since, awaited)
        return self._planned

    def _end(self, name: str, begin: Cursor, log: str, tail: LogTail, share: Limits) -> Cursor:
        """The end of a receiver's range that begins at ``begin``.

        Raises LogLostError if the range is trimmed meanwhile. With failOnDataLoss=false it begins behind the trimmed
        part; if
        that is trimmed again and again, the next micro-batch does.
        """
        end = self._target(name, log, tail)
        for _ in range(_TRIES):
            try:
                limits = half_of_log(share, begin, end, tail.max_bytes)
                return self._receivers[name].advance(log, begin, end, limits)
            except LogLostError:  # trimmed since it was located
                if self._settings.fail_on_data_loss:
                    raise
                begin = self._offsets.locate(name, Offset(log, begin))
                if begin >= end:
                    return end
        return begin

    # --- ranges ------------------------------------------------------------------------------------

    @explained()
    def partitions(self, start: dict[str, Json], end: dict[str, Json]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch. After a restart Spark calls this first: from the last end to the last end."""
        first, last = (
            ReceiverServiceOffset.from_json(start),
            self._known(ReceiverServiceOffset.from_json(end)),
        )
        self._order.plans(start, end)
        self._seen = self._seen or last
        # not: a new receiver, nothing to read, or a log that is lost
        ranges = {
            name: (before, log_offset)
            for name, log_offset in last.by_receiver.items()
            if (before := first.by_receiver.get(name)) is not None
            and before != log_offset
            and before.log == log_offset.log
        }
        tails = self._tails_of(list(ranges))
        found: list[LogPartition] = []
        for name, (before, log_offset) in ranges.items():
            receiver, begin = self._receivers[name], before.cursor
            if name in tails:
                log, tail = tails[name]
                if log != log_offset.log:
                    self._offsets.on_another_log(name, log_offset, log, tail)
                    continue
                try:
                    begin = self._offsets.place(name, before, tail)
                except RangeServerError as error:
                    receiver.missed(error)
            if begin >= log_offset.cursor:
                continue
            found += receiver.partitions(
                log_offset.log, begin, log_offset.cursor, self._settings.min_partitions
            )
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As :meth:`TaskReader.read`, which Spark calls in tasks."""
        return TaskReader(self._plan, self._settings.fail_on_data_loss, notes_query=False).read(partition)

    @explained()
    def commit(self, end: dict[str, Json]) -> None:
        """Commit each receiver's offset for the group. One that fails is repeated when the next batch is planned."""
        self._order.commits(end)
        offset, receivers = ReceiverServiceOffset.from_json(end), self._open()
        group = self._settings.receiver_group or offset.group
        unreported = self._commits.unreported(
            {n: log_offset for n, log_offset in offset.by_receiver.items() if n in receivers}
        )
        if unreported:
            tails = self._tails_of(list(unreported))
            self._commits.commit(
                group, {name: log_offset for name, log_offset in unreported.items() if name in tails}
            )

    def stop(self) -> None:
        """Close the connections. The receivers continue."""
        for each in self._receivers.values():
            each.client.close()

    # --- inside ------------------------------------------------------------------------------------

    def _open(self) -> dict[str, ReceiverService]:
        if not self._receivers:
            record_errors()
            self._receivers.update(receiver_services(self._settings, self._make))
        return self._receivers

    def _poll(self) -> dict[str, tuple[str, LogTail]]:
        """Log and end of each receiver that answers."""
        self._tails = self._tails_of(list(self._open()))
        return self._tails

    def _tails_of(self, names: list[str]) -> dict[str, tuple[str, LogTail]]:
        """Those of some receivers, which are asked at the same time: each that is out of reach takes half a second."""
        found = zip(names, at_once(lambda name: self._receivers[name].tail(), names), strict=True)
        self._check_slices()
        return {name: tail for name, tail in found if tail is not None}

    def _check_slices(self) -> None:
        """Raise or log a UsageError for missing or repeated slices, once a receiver has answered with its
        subscription."""
        found = {n: each.known for n, each in self._receivers.items() if each.known is not None}
        if found == self._sliced:
            return
        why = check_slices(found, self._settings)
        if why is not None:
            self._say(why)
        self._sliced = found

    def _new(
        self,
        group: str,
        tails: dict[str, tuple[str, LogTail]],
        known: Mapping[str, Offset],
        awaited: Mapping[str, int],
    ) -> dict[str, Offset]:
        """Where to begin with receivers that have no offset yet. They hold it for the group from now on."""
        found: dict[str, Offset] = {}
        for name, (log, tail) in tails.items():
            if name in known:
                continue
            receiver, since = self._receivers[name], awaited.get(name, self._awaited.get(name))
            try:
                cursor = receiver.begin(log, tail, default="latest", since=since)
            except RangeServerError as error:
                receiver.missed(error)
                continue
            receiver.planned()
            found[name] = self._offsets.trust(name, Offset(log, cursor))
        self._commits.commit(self._settings.receiver_group or group, found)
        return found

    def _awaited_now(
        self, log_offsets: Mapping[str, Offset], known: Mapping[str, int]
    ) -> dict[str, int] | None:
        """Since when receivers without an offset are awaited; None: there are none."""
        now = time.time_ns()
        for name in self._open():
            if name not in log_offsets:
                self._awaited.setdefault(name, known.get(name, now))
        return {name: since for name, since in self._awaited.items() if name not in log_offsets} or None

    def _known(self, offset: ReceiverServiceOffset) -> ReceiverServiceOffset:
        """The offset without receivers that the option does not name; that is an error, or a warning."""
        missing = sorted(offset.by_receiver.keys() - self._open().keys())
        if not missing:
            return offset
        what = f"the checkpoint has positions of {', '.join(missing)}, which receivers does not name"
        if self._settings.fail_on_data_loss:
            raise UsageError(f"{what}; name them, or set failOnDataLoss=false to continue without them")
        self._say(f"{what}; continuing without them because failOnDataLoss=false")
        return replace(offset, by_receiver={n: p for n, p in offset.by_receiver.items() if n not in missing})

    def _target(self, name: str, log: str, tail: LogTail) -> Cursor:
        if self._targets is None:
            return Cursor(tail.position)
        target = self._targets.get(name)
        return target.cursor if target is not None and target.log == log else Cursor(0)

    def _say(self, sentence: str) -> None:
        if self._logged.is_new(sentence):
            _log.warning("%s", sentence)
