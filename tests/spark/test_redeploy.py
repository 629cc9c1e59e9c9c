"""A query that is stopped and started again at once, while a Cyclone DDS writer goes on writing."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Number
from tests.spark.spark_streams import DOMAIN
from tests.support.surroundings import INTERFACE
from tests.support.waiting import wait_until


def test_nothing_is_lost_with_leave_on_stop_false(
    spark: SparkSession, topic: str, log_dir: Path, tmp_path: Path
) -> None:
    given = {"domain": DOMAIN, "interface": INTERFACE, "log.dir": str(log_dir), "leave_on_stop": "false"}
    with CyclonePeer(DOMAIN, high_watermark="8MB", lease_seconds=60) as peer:
        peer.writer(topic, Number)
        df = spark.readStream.format("rtps").options(**given).load(topic)
        files = df.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))

        def rows() -> int:
            path = tmp_path / "rows"
            return (
                spark.read.schema("id BIGINT").parquet(str(path)).count()
                if (path / "_spark_metadata").exists()
                else 0
            )

        guids = set()
        query = files.start(str(tmp_path / "rows"))
        peer.wait_for_match(topic)
        peer.call("start_stream", topic, 0.001)
        for _ in range(2):
            before = rows()
            wait_until(lambda before=before: rows() > before + 300, "rows of the stream", every=0.2)  # type: ignore[misc]
            guids.update(peer.matched(topic))
            query.stop()
            written = peer.call("streamed")
            wait_until(lambda: peer.call("streamed") > written + 50, "writing while nobody listens")  # noqa: B023
            assert peer.matched(topic)  # it is expected back
            query = files.start(str(tmp_path / "rows"))
        count = peer.call("stop_stream")
        peer.wait_for_acks(topic)
        wait_until(lambda: rows() >= count, lambda: f"{count} rows; there are {rows()}", every=0.2)
        query.stop()
        written_rows = spark.read.schema("id BIGINT").parquet(str(tmp_path / "rows"))
        found = sorted(row.id for row in written_rows.collect())
        assert found == list(range(count))
        assert len(guids) == 1 and set(peer.matched(topic)) == guids
