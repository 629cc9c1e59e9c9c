"""Reports the samples that a reader lost: to the loss report, by writer, and to the log of the receiver."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path

from ..log.loss_report import LOG_FULL, LOSS_REPORT, MOVED, LossReport
from ..log.stream_log import StreamLog
from ..protocol.reading.reader import StatefulReader
from ..structure import Guid
from .addresses import Addresses, write_addresses
from .remedies import LOG_DROPPED, LOST_SAMPLES, with_remedies

_log = logging.getLogger("spark_rtps.receiver")


class Losses:
    """What one reader lost and what of it has been reported."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        remedies: Mapping[str, str],
        addresses: Addresses | None = None,
        report: LossReport | None = None,
    ) -> None:
        """``report``: the one of the log, which others write as well; None: this is the only one."""
        self._directory = directory
        self._topic = topic
        self._addresses = addresses
        self._remedies = remedies
        self._report = report or LossReport(directory / LOSS_REPORT)
        self._reported = 0
        self._dropped = self._dropped_told = 0

    def report(self, reader: StatefulReader, log: StreamLog) -> None:
        """Report what was lost since the last call.

        Nobody has seen the samples: the average size of those in the log stands for theirs.
        """
        size = log.position // max(log.rows, 1)
        for writer, count in reader.take_losses().items():
            self._report.observe(writer, self._topic, count, now=time.time_ns(), sample_bytes=size)
        if missed := reader.take_missed():
            self._report_missed(reader, missed, size)
        lost = reader.counters.lost_samples - reader.counters.missed_samples
        self._reported = min(self._reported, lost)  # what a forged jump had passed is not lost after all
        if lost > self._reported:
            _log.warning(
                "topic %r: %d samples lost that their writers no longer had%s",
                self._topic,
                lost - self._reported,
                with_remedies("", [LOST_SAMPLES], self._remedies),
            )
            self._reported = lost

    def report_dropped(self, dropped: Mapping[Guid, int], log: StreamLog) -> None:
        """Report samples that came while the log was full."""
        size = log.position // max(log.rows, 1)
        for writer, count in dropped.items():
            self._report.observe(
                writer, self._topic, count, now=time.time_ns(), sample_bytes=size, cause=LOG_FULL
            )
        self._dropped += sum(dropped.values())
        if self._dropped < 2 * self._dropped_told:
            return  # there may be some twenty times a second
        self._dropped_told = self._dropped
        told = f"topic {self._topic!r}: {self._dropped} samples dropped so far because the log is full"
        _log.warning("%s", with_remedies(told, [LOG_DROPPED], self._remedies))

    def _report_missed(self, reader: StatefulReader, missed: Mapping[Guid, int], size: int) -> None:
        for writer, count in missed.items():
            now = time.time_ns()
            self._report.observe(writer, self._topic, count, now=now, sample_bytes=size, cause=MOVED)
            if self._addresses is not None and writer in reader.writers:
                self._addresses.moved_from[writer] = reader.writers[writer].expected - 1
        _log.warning(
            "topic %r: %d samples of %d writers were missed while the receiver moved to another address",
            self._topic,
            sum(missed.values()),
            len(missed),
        )
        if self._addresses is not None:
            write_addresses(self._directory, self._addresses)
