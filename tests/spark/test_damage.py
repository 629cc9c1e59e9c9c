"""A query that restarts on a damaged log, or on one that lacks what the checkpoint refers to, through real Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_rtps.monitoring.decoding_report import DAMAGED, LOG_LOST
from spark_rtps.monitoring.reports import read_losses
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from tests.spark.spark_streams import Publisher, source
from tests.support.stream_logs import points
from tests.support.waiting import wait_until

#: For a writer and a reader to find each other on a busy machine.
LONG = "8s"


def test_right_rows_or_a_named_loss(
    spark: SparkSession, publisher: Publisher, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"

    def start(got: list[int], *, listens: str = "3s", **options: object) -> StreamingQuery:
        """A query that listens for a while, processes what has come, and ends."""
        df = source(spark, topic, log_dir, read__timeout=listens, **options)
        writer = df.writeStream.foreachBatch(lambda batch, _: got.extend(row.id for row in batch.collect()))
        return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()

    def again(**options: object) -> list[int]:
        """The rows of the planned batch, as if it had not been committed."""
        for file in (checkpoint / "commits").iterdir():
            file.unlink()
        got: list[int] = []
        query = start(got, failOnDataLoss="false", **options)
        assert query.awaitTermination(90)
        return got

    rows: list[int] = []
    query = start(rows, listens=LONG)
    for first in (0, 100, 200):
        publisher.write(points(first, 100))
    assert query.awaitTermination(90)
    assert rows == list(range(300))

    (log,) = log_dir.iterdir()
    view = LogView(log)
    frames = list(view.frames(Cursor(0), Cursor(view.end)))
    assert len(frames) >= 3
    damaged, first_lost = frames[1], frames[0].run.count
    (segment,) = log.glob("*.segment")
    with segment.open("r+b") as file:
        file.seek(damaged.position + 200)
        byte = file.read(1)[0]
        file.seek(damaged.position + 200)
        file.write(bytes([byte ^ 1]))
    left = [i for i in range(300) if not first_lost <= i < first_lost + damaged.run.count]

    for file in (checkpoint / "commits").iterdir():  # type: ignore[assignment]
        file.unlink()  # type: ignore[attr-defined]
    strict = start([])
    with pytest.raises(
        StreamingQueryException, match=rf"damaged at position {damaged.position}: .*OnDataLoss=false"
    ):
        strict.awaitTermination(90)
    assert again() == left
    assert again() == left, "as often as it is read"
    assert causes(log_dir) == {DAMAGED: damaged.run.count}

    offsets = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    *head, last = offsets.read_text().splitlines()
    place = json.loads(last)
    place["receivers"]["embedded"]["position"] += 3200
    offsets.write_text("\n".join([*head, json.dumps(place, separators=(",", ":"))]))
    for crc in offsets.parent.glob(".*.crc"):
        crc.unlink()  # Hadoop's own checksum of the file
    got: list[int] = []
    for file in (checkpoint / "commits").iterdir():  # type: ignore[assignment]
        file.unlink()  # type: ignore[attr-defined]
    wait_until(lambda: not publisher.ready(), "the dispose of the reader before")
    query = start(got, listens=LONG, failOnDataLoss="false")
    publisher.write(points(1000, 10))
    assert query.awaitTermination(90)
    assert got == [*left, *range(1000, 1010)]
    assert causes(log_dir)[LOG_LOST] == 1


def causes(log_dir: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for report in read_losses([log_dir]):
        for loss in report.losses:
            found[loss.cause] = found.get(loss.cause, 0) + loss.samples + loss.unknown
    return found
