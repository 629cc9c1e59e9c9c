"""The streaming source over receiver services, for PySpark 4.0 and 4.1.

These versions ask for the end of a micro-batch without passing its beginning. It begins where the previous one ended:
this process has planned that one, or, after a restart, Spark has first asked for the partitions of an empty range
there. A new query is asked for an end before it is asked for its beginning.

With Trigger.AvailableNow, and after a restart, they ask for the end even before they repeat the last micro-batch, if it
has not been committed, and do not ask again. Only commit() shows whether that was committed, and it is called when
there is more: until then the consumer group is held where it is.
"""

from __future__ import annotations

from ..options.explanations import explained
from ..transport.errors import LogLostError, RangeServerError
from ..transport.log.frame import Cursor
from .offsets import Json
from .range_calculator import Limits
from .receiver_service_stream import ReceiverServiceStream
from .receiver_services import at_once


class ReceiverServiceStreamReader40(ReceiverServiceStream):
    """Spark calls all methods but ``read`` in one process on the driver, and ``read`` in tasks."""

    @explained()
    def latestOffset(self) -> dict[str, Json]:  # type: ignore[override]  # noqa: N802
        """The end of the next micro-batch, also for Trigger.AvailableNow, which takes one."""
        limits = Limits(self._settings.max_rows_per_trigger, self._settings.max_bytes_per_trigger)
        is_resumed = self._planned is None and self._seen is not None
        start = self._planned or self._seen or self._beginning()
        if is_resumed:
            self._hold(self._settings.receiver_group or start.group)
        return self._plan_end(start, limits, is_processed=not is_resumed).to_json()

    def _hold(self, group: str) -> None:
        """Have the receivers keep the group where it is. A receiver that lost the group keeps its whole log."""

        def hold(name: str) -> None:
            log, tail = tails[name]
            client = self._receivers[name].client
            try:
                client.commit_offset(log, group, client.groups(log).get(group, Cursor(tail.base)))
            except (RangeServerError, LogLostError) as error:
                self._say(f"receiver {name}: {error}; the next commit repeats the offset")

        tails = self._poll()
        at_once(hold, list(tails))
