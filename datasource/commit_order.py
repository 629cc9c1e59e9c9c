"""Whether Spark records that a micro-batch is processed before it plans the next one.

Normally it does, and reports it by ``commit()`` between the end of the next micro-batch and its partitions: a source
that is asked for an end can therefore release everything before. With ``asyncProgressTrackingEnabled`` Spark records
both later, and reports it later still, once more micro-batches come. Released samples would be missing if the driver
died meanwhile. So they are kept, and a log that is full of processed samples has no space for the micro-batch with
which Spark would commit it: a warning says so. It is not an error: Spark's thread of such a query does not survive one
that a Python source raises, and the query would neither continue nor end.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeAlias

_log = logging.getLogger("spark_rtps.datasource")

_Offset: TypeAlias = Mapping[str, object]


class CommitOrder:
    """The order in which Spark calls one source; each call is recorded here."""

    def __init__(self) -> None:
        #: Whether a micro-batch was planned before the previous one was committed.
        self.is_late = False
        self._initial: _Offset | None = None
        self._asked: _Offset | None = None
        self._committed: _Offset | None = None
        self._planned: _Offset | None = None

    def begins(self, initial: _Offset) -> None:
        """A query begins at ``initial``, which nothing commits."""
        self._initial = initial

    def asked(self, start: _Offset) -> None:
        """Spark asks for the end of the micro-batch that begins at ``start``."""
        self._asked = start

    def plans(self, start: _Offset, end: _Offset) -> None:
        """Spark asks for the partitions of a micro-batch."""
        is_first = self._planned is None and start == self._initial
        self._planned = end
        # not: an empty one, one in the normal order, or one that an earlier run has planned
        if start in (end, self._committed) or start != self._asked or is_first or self.is_late:
            return
        self.is_late = True
        _log.warning(
            "Spark plans micro-batches before it records that the previous ones are processed, as with "
            "asyncProgressTrackingEnabled: samples stay in the stream log until then, and a log that fills up "
            "meanwhile stays full; remove that option of the sink, or raise log.max_bytes"
        )

    def commits(self, end: _Offset) -> None:
        """Spark calls ``commit()``."""
        self._committed = end
