"""A source that receives, without Spark: what its query would read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from spark_rtps.columns.decoding import decode_range
from spark_rtps.columns.topic_plan import TopicPlan
from spark_rtps.datasource.receiver_session import ReceiverSession
from spark_rtps.datasource.schema import plan_source
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.options import AppliesTo
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from tests.support.waiting import wait_until


@contextmanager
def receiving(found: RtpsDataSource) -> Iterator[tuple[ReceiverSession, TopicPlan]]:
    """The source's receiver, on a new log, and its plan."""
    schema = found.schema()
    plan = plan_source(found._settings(AppliesTo.READ), schema, found._topic_type)
    session = ReceiverSession.on_new_log(found._settings(AppliesTo.READ), plan)
    try:
        yield session, plan
    finally:
        session.stop()


def rows(session: ReceiverSession, plan: TopicPlan, count: int) -> list[dict[str, Any]]:
    """All rows, once there are so many samples."""
    wait_until(lambda: session.counters()["log.rows"] >= count, f"{count} samples")
    batches = decode_range(LogView(session.directory), Cursor(0), session.tail(), plan)
    return [row for batch in batches for row in batch.to_pylist()]
