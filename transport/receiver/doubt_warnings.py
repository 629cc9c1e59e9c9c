"""What a receiver says, once, of a writer that may have been restarted under the same GUID while its reader goes on.

What such a reliable writer sends may be repairs for others: the reader drops what has numbers that it read before, and
counts it as doubted_samples (:mod:`..protocol.reading.reader`).
"""

from __future__ import annotations

import logging

from ..protocol.reading.reader import StatefulReader
from .config import ReceiverConfig
from .remedies import DOUBTED, with_remedies

_log = logging.getLogger("spark_rtps.receiver")


class DoubtWarnings:
    """That of one subscription."""

    def __init__(self, config: ReceiverConfig) -> None:
        self._topic = config.topic
        self._remedies = config.remedies
        self._is_said = False

    def look(self, reader: StatefulReader) -> None:
        """Warn if it is the first time that the reader is in doubt."""
        if self._is_said or not reader.counters.doubted_samples:
            return
        self._is_said = True
        text = with_remedies(
            "a reliable writer sends only samples with numbers that were read before: it repeats them for others, "
            "or was restarted under the same GUID; they are dropped",
            [DOUBTED],
            self._remedies,
        )
        _log.warning("topic %r: %s", self._topic, text)
