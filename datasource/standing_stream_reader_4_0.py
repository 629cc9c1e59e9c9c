"""The streaming source over standing receivers as PySpark 4.0 and 4.1 want it.

These versions ask for the end of a micro-batch without saying where it begins. It begins where the one before has
ended: this process has planned it, or, after a restart, Spark has first asked for the partitions of an empty range
there. A new query is asked for an end before it is asked for its beginning.

With Trigger.AvailableNow, and after a restart, they ask for the end even before they repeat the last micro-batch, if it
has not been committed, and ask no second time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from ..options.explanations import explained
from ..transport.errors import RtpsError
from .offsets import Json, StandingOffset
from .range_calculator import Limits
from .standing_stream import StandingStream

_log = logging.getLogger("spark_rtps.datasource")


class StandingStreamReader40(StandingStream):
    """Spark calls all methods but ``read`` in one process on the driver, and that one in tasks."""

    #: Where a restarted query has begun to plan, until it is known whether the micro-batch that ends there is repeated.
    _resumed: StandingOffset | None = None

    @explained()
    def latestOffset(self) -> dict[str, Json]:  # type: ignore[override]  # noqa: N802
        """The end of the next micro-batch, also for Trigger.AvailableNow, which takes one."""
        limits = Limits(self._settings.max_rows_per_trigger, self._settings.max_bytes_per_trigger)
        self._resumed = self._seen if self._planned is None else None
        start = self._planned or self._seen or self._beginning()
        return self._plan_end(start, limits, is_processed=self._resumed is None).to_json()

    def partitions(self, start: dict[str, Json], end: dict[str, Json]) -> Sequence[InputPartition]:
        if start != end:  # what is repeated is not processed, and what is new lets Spark call commit()
            self._resumed = None
        return super().partitions(start, end)

    def stop(self) -> None:
        """Close the connections. What ends here without anything to read has processed all before."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None and self._planned == resumed:
            try:
                self.commit(resumed.to_json())
            except RtpsError as error:
                _log.warning("%s; the receivers are told how far the query is when it runs again", error)
        super().stop()
