"""The streaming source over receiver services, for PySpark 4.2 and newer.

Spark passes the beginning and the limits of a micro-batch, stops at the end where Trigger.AvailableNow began, and shows
the progress of the receivers.
"""

from __future__ import annotations

from typing import cast

from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ..monitoring.stream_counters import lost, rejected
from ..options.explanations import explained
from ..transport.log.frame import Cursor
from .offsets import Json, Offset, ReceiverServiceOffset
from .read_limits import default_read_limit, limits_of
from .receiver_service_stream import ReceiverServiceStream


class ReceiverServiceStreamReader(ReceiverServiceStream, SupportsTriggerAvailableNow):
    """Spark calls all methods but ``read`` in one process on the driver, and ``read`` in tasks."""

    _available_now = False

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return default_read_limit(self._settings)

    @explained()
    def latestOffset(self, start: dict[str, Json], limit: ReadLimit) -> dict[str, Json]:  # noqa: N802
        """The end of the next micro-batch."""
        offset = ReceiverServiceOffset.from_json(start)
        if self._available_now and self._targets is None:
            self._targets = {n: Offset(log, Cursor(tail.position)) for n, (log, tail) in self._poll().items()}
        return self._plan_end(offset, limits_of(limit, self._settings)).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True

    def reportLatestOffset(self) -> dict[str, Json] | None:  # noqa: N802
        """The ends of the logs as last seen, and the state of each receiver; Spark only shows it."""
        if self._planned is None:
            return None
        ends = {n: Offset(log, Cursor(tail.position)) for n, (log, tail) in self._tails.items()}
        shown = ReceiverServiceOffset(self._planned.group, {**self._planned.by_receiver, **ends}).to_json()
        shown["status"] = {name: self._status(name) for name in sorted(self._open())}
        return shown

    def _status(self, name: str) -> Json:
        if name not in self._tails or self._planned is None:
            return {"state": "unreached"}
        log, tail = self._tails[name]
        log_offset = self._planned.by_receiver.get(name)
        at = log_offset.cursor.position if log_offset is not None and log_offset.log == log else tail.base
        counters = dict(tail.counters)
        return cast(
            "Json",
            {
                "state": "reached",
                "behind_bytes": max(0, tail.position - at),
                "lost": lost(counters),
                "missed": counters.get("reader.missed_samples", 0),
                "rejected": rejected(counters),
            },
        )
