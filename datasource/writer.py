"""The sink, batch and streaming: the record batches of a task become samples, which are written and acknowledged."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..api.writer_session import WriterSession
from ..columns.encoding import encoder_for
from ..columns.topic_plan import TopicPlan
from ..options import Settings
from ..options.explanations import explained
from ..transport.errors import RtpsError
from .workers import settle
from .writer_pool import WRITERS


@dataclass(frozen=True)
class RtpsCommitMessage(WriterCommitMessage):
    """The numbers of rows and samples that one task wrote."""

    rows: int
    samples: int


class TaskWriter:
    """Writes the rows of one task; Spark pickles it for the tasks."""

    def __init__(self, settings: Settings, plan: TopicPlan) -> None:
        self._settings = settings
        self._plan = plan

    @explained()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        encode = encoder_for(self._plan)
        session: WriterSession | None = None
        rows = written = 0
        try:
            for batch in iterator:
                if not batch.num_rows:
                    continue
                if session is None:  # a partition without rows needs no participant
                    session = WRITERS.session(self._settings, self._plan)
                session.wait_for_reader()
                if not rows:
                    session.begin_coherent_set()
                samples, key_hashes = encode(batch)
                session.write(samples, key_hashes)
                rows += batch.num_rows
                written += samples.count
            if session is not None:
                if session.in_coherent_set and _spark_has_hung_up():
                    raise RtpsError("Spark gave the task up; nothing that it wrote becomes visible")
                session.end_coherent_set()
        except BaseException:
            if session is not None:
                session.abort_coherent_set()
            raise
        if session is not None:
            session.wait_for_acknowledgments()
        return RtpsCommitMessage(rows, written)


def _spark_has_hung_up() -> bool:
    """Whether the rows ended because computing them failed or the task was killed.

    In this case Spark ends the rows as if there were no more, and closes its end of the worker's connection, which only
    pyspark/worker.py knows.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        connection = frame.f_locals.get("infile")
        if frame.f_code.co_name == "main" and connection is not None:
            poll = select.poll()
            poll.register(connection.fileno(), select.POLLRDHUP)
            return bool(poll.poll(0))
        frame = frame.f_back
    return False


class RtpsArrowWriter(TaskWriter, DataSourceArrowWriter):
    """``df.write``: each task returns when its rows are acknowledged; a retried task writes them again."""
