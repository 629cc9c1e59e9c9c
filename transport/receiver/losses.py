"""Reports the samples that a reader lost: to the loss report, by writer, and as log messages."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..log.loss_report import LOSS_REPORT, LossReport
from ..log.stream_log import StreamLog
from ..protocol.policies import LossCause
from ..protocol.reading.reader import StatefulReader
from ..structure import Guid
from .addresses import Addresses, write_addresses
from .hints import LOG_DROPPED, lost_for, with_hints

_log = logging.getLogger("spark_rtps.receiver")

#: A best-effort loss is noticed by the next sample, which comes out of a full receive buffer: its cause is an
#: overflow that was seen at most this long ago, or since which its writer was silent.
_OVERFLOW_NS: Final = 2_000_000_000
#: What happened to the samples.
_REPORTED: Final = {
    LossCause.MOVED: "were missed while the receiver moved to another address",
    LossCause.STOPPED: "were lost: they were sent while the receiver was stopped",
    LossCause.OUT_OF_REACH: "were lost: they were sent while their writers were out of reach",
    LossCause.HISTORY: "were lost: their writers no longer had them",
    LossCause.WRITER_GONE: "were lost: their writers left",
    LossCause.COHERENT_SET: "were lost: their coherent sets are incomplete, or too large",
    LossCause.UNTETHERED: "were skipped: the reader was too slow for its writers",
    LossCause.RECEIVE_BUFFER: "were lost: a receive buffer was full",
    LossCause.NOT_RECEIVED: "were not received",
}


class Losses:
    """The losses of one reader, and the part of them that has been reported."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        hints: Mapping[str, str],
        addresses: Addresses | None = None,
        report: LossReport | None = None,
    ) -> None:
        """``report``: the log's report, shared with other readers; None: this reader has its own."""
        self._directory = directory
        self._topic = topic
        self._addresses = addresses
        self._hints = hints
        self._report = report or LossReport(directory / LOSS_REPORT)
        self._overflows = self._overflowed_at = 0
        #: The best-effort writers that were silent for long after the overflow, and the sequence number expected of
        #: each.
        self._silent: dict[Guid, int] = {}
        self._dropped = self._dropped_reported = 0

    def report(self, reader: StatefulReader, log: StreamLog, *, overflows: int, now: int) -> None:
        """Report what was lost since the last call; ``overflows``: the datagrams that the kernel dropped because a
        receive buffer was full.

        The size of lost samples is unknown: the average size of those in the log is used.
        """
        size = log.position // max(log.rows, 1)
        overflowed = self._overflowed(overflows, reader, now)
        counts: Counter[LossCause] = Counter()
        for (writer, cause), count in reader.delivery.losses.take().items():
            if cause is LossCause.NOT_RECEIVED and (overflowed or writer in self._silent):
                cause = LossCause.RECEIVE_BUFFER
            self._report.observe(
                writer, self._topic, count, now=time.time_ns(), sample_bytes=size, cause=cause
            )
            counts[cause] += count
            if cause is LossCause.MOVED and self._addresses is not None and writer in reader.writers:
                self._addresses.moved_from[writer] = reader.writers[writer].expected - 1
        if self._silent:
            self._silent = {
                guid: sn
                for guid, sn in self._silent.items()
                if guid in reader.writers and reader.writers[guid].expected == sn
            }
        for cause, count in counts.items():
            message = f"topic {self._topic!r}: {count} samples {_REPORTED[cause]}"
            _log.warning("%s", with_hints(message, [lost_for(cause)], self._hints))
        if LossCause.MOVED in counts and self._addresses is not None:
            write_addresses(self._directory, self._addresses)

    def _overflowed(self, overflows: int, reader: StatefulReader, now: int) -> bool:
        """Whether receive buffers overflowed while samples were lost whose loss is noticed only now."""
        if overflows > self._overflows:
            self._overflows, self._overflowed_at = overflows, now
        if not self._overflows or now - self._overflowed_at > _OVERFLOW_NS:
            return False
        writers = reader.writers.items()
        self._silent = {guid: proxy.expected for guid, proxy in writers if not proxy.reliable}
        return True

    def report_dropped(self, dropped: Mapping[Guid, int], log: StreamLog) -> None:
        """Report samples that were received while the log was full."""
        size = log.position // max(log.rows, 1)
        for writer, count in dropped.items():
            self._report.observe(
                writer, self._topic, count, now=time.time_ns(), sample_bytes=size, cause=LossCause.LOG_FULL
            )
        self._dropped += sum(dropped.values())
        if self._dropped < 2 * self._dropped_reported:
            return  # samples may be dropped twenty times a second
        self._dropped_reported = self._dropped
        message = f"topic {self._topic!r}: {self._dropped} samples dropped so far because the log is full"
        _log.warning("%s", with_hints(message, [LOG_DROPPED], self._hints))
