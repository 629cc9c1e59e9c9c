"""``spark.read`` of a recording: its files, divided among tasks, which read only the parts that a query asks for."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..columns.decoding import needs_writer_types
from ..columns.topic_plan import TopicPlan
from ..columns.type_sources import TopicType
from ..options import Payload, Settings
from ..options.explanations import explained
from ..recordings.files import recording_files
from ..recordings.recorded import TIME_MAX, TIME_MIN, Piece, Times
from ..recordings.recorded_topic import bytes_of, pieces, planned_type, topic_files, type_of_topics
from ..recordings.rows import decode_piece
from .range_calculator import PARTITION_BYTES
from .workers import settle

_log = logging.getLogger("spark_rtps.datasource")


@dataclass(frozen=True)
class RecordingPartition(InputPartition):
    """A part of one file of a recording."""

    piece: Piece
    times: Times


def type_of_recording(settings: Settings) -> TopicType | None:
    """The topic's type in the files, unless options give it; None: it is not needed, or topics have several types."""
    if settings.payload is not Payload.CDR:
        return None
    return type_of_topics(settings)


def times_of(settings: Settings) -> Times:
    """The time range of startingTime and endingTime."""
    since, until = settings.recording_since, settings.recording_until
    return Times(TIME_MIN if since is None else since, TIME_MAX if until is None else until)


def partitions_of(
    paths: Iterable[str], settings: Settings, plan: TopicPlan, times: Times
) -> list[RecordingPartition]:
    """The topic in these files, in at least ``minPartitions`` parts if there are so many."""
    files = topic_files(paths, settings, typed=needs_writer_types(plan), type_name=planned_type(plan))
    least = settings.min_partitions
    nbytes = bytes_of(files, times)
    count = least * max(1, -(-nbytes // (PARTITION_BYTES * least)))
    found = pieces(files, times, nbytes=max(1, -(-nbytes // count)))
    return [RecordingPartition(piece, times) for piece in found]


class RecordingReader(DataSourceReader):
    """The rows of a recording, in the order of its files.

    It takes no filters of Spark (``pushFilters``): PySpark 4.3 keeps what was pushed last for all uses of a DataFrame,
    so a union of two ``where`` would have the rows of one of them twice.
    """

    def __init__(self, settings: Settings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan
        self._times = times_of(settings)

    @explained()
    def partitions(self) -> Sequence[InputPartition]:
        settings = self._settings
        return partitions_of(recording_files(settings.recording), settings, self._plan, self._times)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RecordingPartition):  # Spark's own, where there is nothing to read
            return iter(())
        return read_piece(partition, self._settings, self._plan)


def read_piece(
    partition: RecordingPartition, settings: Settings, plan: TopicPlan
) -> Iterator[pa.RecordBatch]:
    """The rows of a partition. Reading it again gives the same rows."""
    settle()
    path, is_lenient = partition.piece.path, not settings.fail_on_data_loss
    if is_lenient and not os.path.exists(path):
        _log.warning(
            "%s: it was removed before it was read; continuing without it because failOnDataLoss=false", path
        )
        return
    with explained():
        yield from decode_piece(partition.piece, plan, partition.times, is_lenient=is_lenient)
