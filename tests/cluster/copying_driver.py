"""A driver that copies a topic into Parquet: ``python copying_driver.py JSON``, with

``master``, ``topic``, ``options`` of the source, ``checkpoint``, ``output``, ``flag`` (written when the query runs) and
``rows`` (of all files together, until the query is stopped). To each row it adds the host whose task read it.
"""

import json
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from spark_rtps.session import spark_defaults


@udf(StringType())
def host(_number):
    import os

    return os.uname().nodename


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
    builder = SparkSession.builder.master(given["master"]).appName("cluster")
    settings = {
        **spark_defaults(),
        "spark.driver.host": given["address"],
        "spark.driver.bindAddress": given["address"],
        "spark.ui.enabled": "false",
        "spark.executor.memory": "500m",
        "spark.cores.max": "2",
        "spark.task.maxFailures": "1",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < 3:  # the driver counts as well
        time.sleep(0.1)
    source = spark.readStream.format("rtps").schema("writer INT, number INT, value DOUBLE")
    for key, value in given["options"].items():
        source = source.option(key, value)
    rows = source.load(given["topic"]).withColumn("host", host("number"))
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
