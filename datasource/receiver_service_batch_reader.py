"""``spark.read`` of receiver services: a range of what they recorded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..columns.topic_plan import TopicPlan
from ..options import Settings
from ..options.explanations import explained
from ..transport.errors import UsageError
from ..transport.log.frame import Cursor
from .log_reading import read_log
from .offset_checks import describe_cursor
from .range_calculator import LogPartition
from .receiver_service_slices import check_slices
from .receiver_services import Connect, connect, receiver_services

_log = logging.getLogger("spark_rtps.datasource")


class ReceiverServiceBatchReader(DataSourceReader):
    """Reads from startingTimestamp or startingOffsets (default: the earliest) to endingTimestamp or endingOffsets
    (default: the present end)."""

    def __init__(self, settings: Settings, plan: TopicPlan, *, make: Connect = connect) -> None:
        self._settings = settings
        self._plan = plan
        self._make = make

    def __getstate__(self) -> tuple[Settings, TopicPlan]:
        return self._settings, self._plan

    def __setstate__(self, state: tuple[Settings, TopicPlan]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @explained()
    def partitions(self) -> Sequence[InputPartition]:
        """Raises RangeServerError if a receiver is out of reach: a batch does not wait for receivers."""
        settings, found = self._settings, list[LogPartition]()
        receivers = receiver_services(settings, self._make)
        try:
            logs = {name: each.find() for name, each in receivers.items()}
            if (why := check_slices(logs, settings)) is not None:
                _log.warning("%s", why)
            for name, receiver in receivers.items():
                log = logs[name].log
                tail = receiver.await_log(log)
                begin, end = receiver.begin(log, tail, default="earliest"), receiver.end_of_batch(log, tail)
                if settings.starting_time is not None:  # the search may end in samples received since
                    begin = min(begin, Cursor(tail.position))
                if begin > end:
                    raise UsageError(
                        f"receiver {receiver.name}: the batch would begin at {describe_cursor(begin)} and end "
                        f"before, at {describe_cursor(end)}; change where it starts or where it ends"
                    )
                found += receiver.partitions(log, begin, end, settings.min_partitions)
        finally:
            for receiver in receivers.values():
                receiver.client.close()
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPartition):  # Spark's own, where there is nothing to read
            return iter(())
        return read_log(partition, self._plan, fail_on_data_loss=self._settings.fail_on_data_loss)
