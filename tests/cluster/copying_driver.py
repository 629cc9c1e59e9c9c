"""A driver that copies a topic into Parquet: ``python copying_driver.py JSON``, with

``master``, ``topic``, ``options`` of the source, ``checkpoint``, ``output``, ``flag`` (written when the query runs) and
``rows`` (of all files together, until the query is stopped). To each row it adds the host whose task read it.
"""

import json
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from tests.cluster.session import numbered, session_on


def batches_in(checkpoint: Path, output: Path) -> list[int]:
    """Rows of each batch that is committed, at the source and at the sink."""
    rows = []
    for number in range(len(list((checkpoint / "commits").glob("[0-9]*")))):
        lines = (output / "_spark_metadata" / str(number)).read_text().splitlines()[1:]
        files = (json.loads(line)["path"].removeprefix("file://") for line in lines)
        rows.append(sum(pq.read_metadata(file).num_rows for file in files))
    return rows


def main(text: str) -> None:
    given = json.loads(text)
    spark = session_on(given)
    # The rows of each batch are counted by its entry in the sink's log, so no entries may be put together.
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "1000")
    rows = numbered(spark, given)
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", given["checkpoint"])
        .trigger(processingTime="500 milliseconds")
        .start(given["output"])
    )
    Path(given["flag"]).touch()
    checkpoint, output = Path(given["checkpoint"]), Path(given["output"])
    while sum(batches_in(checkpoint, output)) < given["rows"]:
        if query.exception() is not None:
            raise query.exception()
        time.sleep(0.2)
    print("batches:", batches_in(checkpoint, output), flush=True)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
