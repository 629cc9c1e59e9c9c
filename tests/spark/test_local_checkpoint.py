"""``checkpointLocation`` as FILE:/path, which conf/spark-defaults.conf makes a path without checksum files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

STATE_STORES = "org.apache.spark.sql.execution.streaming.state."


@pytest.fixture(params=["HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"])
def state_store(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STATE_STORES + request.param)
    yield
    spark.conf.unset("spark.sql.streaming.stateStore.providerClass")


def checksum_files(checkpoint: Path) -> set[Path]:
    return set(checkpoint.rglob("*.crc"))


@pytest.mark.usefixtures("state_store")
def test_a_checkpoint_goes_on_by_either_name(spark: SparkSession, tmp_path: Path) -> None:
    """State, offsets and commits are there again, whether checksum files were written before or not."""
    checkpoint, given = tmp_path / "checkpoint", tmp_path / "given"
    given.mkdir()
    found: dict[str, int] = {}

    def run(number: int, location: str) -> dict[str, int]:
        (given / f"{number}.json").write_text('{"a": "x"}\n{"a": "y"}\n' * (number + 1))
        rows = spark.readStream.schema("a STRING").json(str(given)).groupBy("a").count()
        query = (
            rows.writeStream.outputMode("complete")
            .foreachBatch(lambda batch, _: found.update(batch.collect()))
            .option("checkpointLocation", location)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
        assert not query.isActive
        return found

    assert run(0, f"FILE:{checkpoint}") == {"x": 1, "y": 1}
    assert run(1, f"FILE:{checkpoint}") == {"x": 3, "y": 3}
    offsets, commits = checkpoint / "offsets", checkpoint / "commits"
    assert {"0", "1"} <= {path.name for path in offsets.iterdir()}
    assert not checksum_files(offsets) | checksum_files(commits)
    assert run(2, str(checkpoint)) == {"x": 6, "y": 6}
    assert checksum_files(offsets)
    before = checksum_files(checkpoint)
    assert run(3, f"FILE:{checkpoint}") == {"x": 10, "y": 10}
    assert checksum_files(offsets) | checksum_files(commits) <= before
    assert run(4, str(checkpoint)) == {"x": 15, "y": 15}


def test_other_paths_are_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    written = tmp_path / "numbers"
    spark.range(3).write.parquet(f"file:{written}")
    assert checksum_files(written)
    assert sorted(spark.sparkContext.textFile(__file__).take(1)) == [
        Path(__file__).read_text().splitlines()[0]
    ]
