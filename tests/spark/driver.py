"""A Spark driver to be killed: copies a topic into a directory of Parquet files, until it is stopped.

``python driver.py TOPIC LOG_DIR CHECKPOINT OUTPUT DOMAIN MAX_ROWS_PER_TRIGGER [PLACE...]``

At each of the places (:mod:`tests.support.killer`) Spark's process of the source kills itself; the query fails, and is
started again. The file ``OUTPUT.unharmed`` shows that the last one runs.
"""

import os
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_rtps.java import use_java
from spark_rtps.session import spark_defaults
from tests.support.surroundings import INTERFACE, MASTER, spark_settings


def main(
    topic: str, log_dir: str, checkpoint: str, output: str, domain: str, rows: str, *places: str
) -> None:
    use_java()
    builder = SparkSession.builder.master(MASTER).config("spark.ui.enabled", "false")
    for key, value in {**spark_defaults(), **spark_settings()}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    copying = (
        spark.readStream.format("rtps")
        .schema("id INT, x DOUBLE")
        .option("domain", domain)
        .option("interface", INTERFACE)
        .option("type", "Point")
        .option("key", "id")
        .option("log.dir", log_dir)
        .option("participant.lease_duration", "120s")  # longer than a start of Spark
        .option("maxRowsPerTrigger", rows)
        .load(topic)
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
    )
    for place in places:
        Path(os.environ["KILL_AT"]).write_text(place)
        try:
            copying.start(output).awaitTermination()
        except StreamingQueryException:
            print("the query failed at", place, file=sys.stderr)
    if places:
        Path(os.environ["KILL_AT"]).unlink()
        Path(f"{output}.unharmed").touch()
    copying.start(output).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
