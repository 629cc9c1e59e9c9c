"""Statuses as a DataFrame: a query follows what happens to another one, whose peers are Cyclone DDS's."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Point
from tests.spark.spark_streams import DOMAIN, running, sink_options, source
from tests.support.waiting import wait_until

MS = 1_000_000
TYPED = {"type": "interop::Point", "key": None}
COLUMNS = "x DOUBLE, y DOUBLE, tag SMALLINT"


class Followed:
    """What a query has told, over all its runs, by micro-batch: the last one of a run may be repeated by the next."""

    def __init__(self, statuses: DataFrame, checkpoint: Path) -> None:
        self._batches: dict[int, list[Row]] = {}
        self._stream = statuses.writeStream.foreachBatch(self._take)
        self._stream = self._stream.option("checkpointLocation", str(checkpoint))
        self._query: StreamingQuery | None = None

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        found = batch.collect()
        assert self._batches.setdefault(batch_id, found) == found

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._query = query = self._stream.start()
        try:
            yield
        finally:
            query.stop()

    def reported(self, kind: str, status: str) -> list[Row]:
        rows = itertools.chain.from_iterable(list(self._batches.values()))
        return [row for row in rows if (row.kind, row.status) == (kind, status)]

    def wait_for(self, kind: str, status: str, **changes: int) -> Row:
        """The first row with these changes."""

        def found() -> list[Row]:
            assert self._query is not None and self._query.exception() is None
            return [row for row in self.reported(kind, status) if changes.items() <= row.changes.items()]

        wait_until(found, f"{changes} of {status}", every=0.05)
        return found()[0]


def test_a_query_follows_the_statuses_of_others(
    spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    given = {"statuses": "true", "log.dir": str(log_dir)}
    followed = Followed(spark.readStream.format("rtps").options(**given).load(topic), tmp_path / "followed")
    watched = source(spark, topic, log_dir, COLUMNS, **TYPED, deadline="200ms")

    def now() -> DataFrame:
        return spark.read.format("rtps").options(**given).load(topic)

    assert now().columns[:3] == ["time", "kind", "topic"]
    with running(watched, tmp_path / "c"), CyclonePeer(DOMAIN) as peer:
        with followed.running():
            peer.writer(topic, Point, reliable=True)  # it offers no deadline
            refused = followed.wait_for("source", "REQUESTED_INCOMPATIBLE_QOS", by_deadline=1)
            assert refused.remote is not None and (refused.topic, refused.domain) == (topic, DOMAIN)
        # what happens meanwhile is told when the query goes on, and nothing twice
        with CyclonePeer(DOMAIN) as other:
            other.writer(topic, Point, reliable=True, deadline=100 * MS)
            with followed.running():
                joined = followed.wait_for("source", "SUBSCRIPTION_MATCHED", current_count=1)
                assert joined.remote not in (None, refused.remote) and joined.fields["total_count"] == 1
                assert (joined.participant, joined.pid) == (refused.participant, refused.pid)
                assert joined.time >= refused.time
                other.write(topic, [{"x": 1.0, "y": 2.0, "tag": 3}])
                followed.wait_for("source", "REQUESTED_DEADLINE_MISSED")
                points = spark.range(3).selectExpr(
                    "id / 2 AS x", "id / 3 AS y", "CAST(id AS SMALLINT) AS tag"
                )
                options = sink_options(**TYPED, connect_timeout="60s", deadline="100ms")
                points.write.format("rtps").options(**options).mode("append").save(topic)
                sink = followed.wait_for("sink", "PUBLICATION_MATCHED", total_count=1)
                assert sink.participant != joined.participant
                assert {row.topic for row in now().collect()} == {topic}
                assert len(followed.reported("source", "REQUESTED_INCOMPATIBLE_QOS")) == 1
    wait_until(lambda: not now().where("kind = 'source'").count(), "its receiver to end")
