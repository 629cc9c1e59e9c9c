"""Whether Spark has written down that a micro-batch is processed before it plans the next one.

It has, and tells the source so, by ``commit()``, between the end of the next micro-batch and its partitions: a source
that is asked for an end can therefore let go everything before. With ``asyncProgressTrackingEnabled`` Spark writes both
down later, and tells it later still, once more micro-batches come. What was let go would be missing if the driver died
meanwhile. Where it is kept, a log that is full of what was read has no room for what Spark would commit it with, which
is warned of. It is no error: Spark's thread of such a query does not outlive one that a Python source raises, and the
query would neither go on nor end.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TypeAlias

_log = logging.getLogger("spark_rtps.datasource")

_Offset: TypeAlias = Mapping[str, object]


class CommitOrder:
    """The order in which Spark calls one source, which tells of each call."""

    def __init__(self) -> None:
        #: Whether a micro-batch was planned while the one before was not committed.
        self.is_late = False
        self._initial: _Offset | None = None
        self._asked: _Offset | None = None
        self._committed: _Offset | None = None
        self._planned: _Offset | None = None

    def begins(self, initial: _Offset) -> None:
        """A query begins there, which nothing commits."""
        self._initial = initial

    def asked(self, start: _Offset) -> None:
        """Spark asks for the end of the micro-batch that begins at ``start``."""
        self._asked = start

    def plans(self, start: _Offset, end: _Offset) -> None:
        """Spark asks for the partitions of a micro-batch."""
        is_first = self._planned is None and start == self._initial
        self._planned = end
        # not: an empty one, one as it should be, or one that an earlier run has planned
        if start in (end, self._committed) or start != self._asked or is_first or self.is_late:
            return
        self.is_late = True
        _log.warning(
            "Spark plans micro-batches before it has written down that those before are processed, as it does with "
            "asyncProgressTrackingEnabled: samples stay in the stream log until it has, and a log that is full by then "
            "stays full; remove that option of the sink, or raise log.max_bytes"
        )

    def commits(self, end: _Offset) -> None:
        """Spark calls ``commit()``."""
        self._committed = end
