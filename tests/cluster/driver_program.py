"""A driver on the cluster, whose session runs one query after the other: ``python driver_program.py JSON``, with

``master``, ``address``, ``settings`` of Spark, and ``scenes``, a folder. When ``0.json`` is there the query that it
asks for runs, then that of ``1.json``, and so on; ``0.done`` has the exit status that a driver of this query alone
would have, and ``null`` instead of a query ends the driver. It may be killed and started again.

A query is asked for with its ``name`` (the function here), ``topic``, ``options`` of the source, ``checkpoint`` and
``flag`` (written when it runs). To each row it adds the host whose task read it.
"""

import itertools
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.cluster.session import numbered, session_on

Given = Mapping[str, Any]


def batches_in(checkpoint: Path, output: Path) -> list[int]:
    """Rows of each batch that is committed, at the source and at the sink."""
    rows = []
    for number in range(len(list((checkpoint / "commits").glob("[0-9]*")))):
        lines = (output / "_spark_metadata" / str(number)).read_text().splitlines()[1:]
        files = (json.loads(line)["path"].removeprefix("file://") for line in lines)
        rows.append(sum(pq.read_metadata(file).num_rows for file in files))
    return rows


def copy_rows(spark: SparkSession, given: Given) -> None:
    """Copy the topic into Parquet files, ``output``, until they have ``rows``."""
    # The rows of each batch are counted by its entry in the sink's log, so no entries may be put together.
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "1000")
    query = _copying(spark, given, "500 milliseconds")
    checkpoint, output = Path(given["checkpoint"]), Path(given["output"])
    _run(query, given, lambda: sum(batches_in(checkpoint, output)) >= given["rows"])
    print("batches:", batches_in(checkpoint, output), flush=True)


def copy(spark: SparkSession, given: Given) -> None:
    """Copy the topic into Parquet files, ``output``, until the file ``end`` is there."""
    _run(_copying(spark, given, "300 milliseconds"), given, Path(given["end"]).exists)


def relay(spark: SparkSession, given: Given) -> None:
    """Write the topic to another one, ``onward`` with the options ``sink``, until the file ``end`` is there.

    The host whose task read a row is the one that writes it.
    """
    query = (
        numbered(spark, given)
        .select("writer", "number", "host")
        .writeStream.format("rtps")
        .options(**given["sink"])
        .option("checkpointLocation", given["checkpoint"])
        .trigger(processingTime="500 milliseconds")
        .start(given["onward"])
    )
    _run(query, given, Path(given["end"]).exists)


def _copying(spark: SparkSession, given: Given, interval: str) -> StreamingQuery:
    rows = numbered(spark, given).writeStream.format("parquet")
    rows = rows.option("checkpointLocation", given["checkpoint"]).trigger(processingTime=interval)
    return rows.start(given["output"])  # type: ignore[no-any-return]


def _run(query: StreamingQuery, given: Given, is_enough: Callable[[], bool]) -> None:
    Path(given["flag"]).touch()
    try:
        while not is_enough():
            error = query.exception()
            if error is not None:
                raise error
            time.sleep(0.1)
    finally:
        query.stop()


def main(text: str) -> None:
    given = json.loads(text)
    spark = session_on(given)
    for number in itertools.count():
        asked = Path(given["scenes"], f"{number}.json")
        while not asked.exists():
            time.sleep(0.05)
        query = json.loads(asked.read_text())
        if query is None:
            break
        try:
            {"copy_rows": copy_rows, "copy": copy, "relay": relay}[query["name"]](spark.newSession(), query)
            status = 0
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        unready = asked.with_suffix(".unready")
        unready.write_text(str(status))
        unready.replace(asked.with_suffix(".done"))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
