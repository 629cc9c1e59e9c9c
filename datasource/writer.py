"""The sink, batch and streaming: the record batches of a task become samples, which are written and acknowledged."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..api.writer_session import WriterSession
from ..columns.encoding import Encoder, encoder_for
from ..columns.routing import Route, Routing
from ..options.explanations import explained
from ..transport.errors import RtpsError, UsageError
from ..transport.value_classes import slotted
from .workers import settle
from .writer_pool import WRITERS, WRITERS_MAX


@dataclass(frozen=True)
class RtpsCommitMessage(WriterCommitMessage):
    """The numbers of rows and samples that one task wrote."""

    rows: int
    samples: int


class TaskWriter:
    """Writes the rows of one task; Spark pickles it for the tasks."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    @explained()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        settle()
        routes: dict[Route, _RouteWriter] = {}
        rows = 0
        try:
            for batch in iterator:
                if not batch.num_rows:
                    continue
                for route, part in self._routing.parts(batch):
                    writing = routes.get(route)
                    if writing is None:  # a partition without rows needs no participant
                        writing = routes[route] = self._begin(route, len(routes))
                    writing.write(part)
                rows += batch.num_rows
            sessions = [writing.session for writing in routes.values()]
            if any(session.in_coherent_set for session in sessions) and _spark_has_hung_up():
                raise RtpsError("Spark gave up the task: nothing that it wrote becomes visible")
            for session in sessions:
                session.end_coherent_set()
        except BaseException:
            with ExitStack() as aborts:  # all of them, also where one raises
                for writing in routes.values():
                    aborts.callback(writing.session.abort_coherent_set)
            raise
        for session in sessions:
            session.wait_for_acknowledgments()
        return RtpsCommitMessage(rows, sum(writing.samples for writing in routes.values()))

    def _begin(self, route: Route, others: int) -> _RouteWriter:
        if others >= WRITERS_MAX:
            raise UsageError(
                f"a task writes to {WRITERS_MAX} topics at most: bring the rows of a topic together first, by "
                "repartition('topic') with as many partitions as that takes"
            )
        settings, plan = self._routing.along(route)
        return _RouteWriter(WRITERS.session(settings, plan), encoder_for(plan))


@slotted
class _RouteWriter:
    """Writes a task's rows to one topic."""

    session: WriterSession
    encode: Encoder
    samples: int = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.session.wait_for_reader()
        if not self.samples:
            self.session.begin_coherent_set()
        samples, key_hashes = self.encode(batch)
        self.session.write_samples(samples, key_hashes)
        self.samples += samples.count


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
