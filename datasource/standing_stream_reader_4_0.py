"""The streaming source over standing receivers as PySpark 4.0 and 4.1 want it.

These versions ask for the end of a micro-batch without saying where it begins. It begins where the one before has
ended: this process has planned it, or, after a restart, Spark has first asked for the partitions of an empty range
there. A new query is asked for an end before it is asked for its beginning.
"""

from __future__ import annotations

from ..options.explanations import explained
from .offsets import Json
from .range_calculator import Limits
from .standing_stream import StandingStream


class StandingStreamReader40(StandingStream):
    """Spark calls all methods but ``read`` in one process on the driver, and that one in tasks."""

    @explained()
    def latestOffset(self) -> dict[str, Json]:  # type: ignore[override]  # noqa: N802
        """The end of the next micro-batch, also for Trigger.AvailableNow, which takes one."""
        limits = Limits(self._settings.max_rows_per_trigger, self._settings.max_bytes_per_trigger)
        return self._plan_end(self._planned or self._seen or self._beginning(), limits).to_json()
