"""Reports the samples that a reader lost: to the loss report, by writer, and to the log of the receiver."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path

from ..log.loss_report import LOSS_REPORT, LossReport
from ..log.stream_log import StreamLog
from ..protocol.reading.reader import StatefulReader
from .remedies import LOST_SAMPLES, with_remedies

_log = logging.getLogger("spark_rtps.receiver")


class Losses:
    """What one reader lost and what of it has been reported."""

    def __init__(self, directory: Path, topic: str, remedies: Mapping[str, str]) -> None:
        self._topic = topic
        self._remedies = remedies
        self._report = LossReport(directory / LOSS_REPORT)
        self._reported = 0

    def report(self, reader: StatefulReader, log: StreamLog) -> None:
        """Report what was lost since the last call.

        Nobody has seen the samples: the average size of those in the log stands for theirs.
        """
        for writer, count in reader.take_losses().items():
            size = log.position // max(log.rows, 1)
            self._report.observe(writer, self._topic, count, now=time.time_ns(), sample_bytes=size)
        lost = reader.counters.lost_samples
        self._reported = min(self._reported, lost)  # what a forged jump had passed is not lost after all
        if lost > self._reported:
            _log.warning(
                "topic %r: %d samples lost that their writers no longer had%s",
                self._topic,
                lost - self._reported,
                with_remedies("", [LOST_SAMPLES], self._remedies),
            )
            self._reported = lost
