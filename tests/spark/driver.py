"""A Spark driver to be killed: copies a topic into a directory of Parquet files, until it is stopped.

``python driver.py TOPIC LOG_DIR CHECKPOINT OUTPUT DOMAIN MAX_ROWS_PER_TRIGGER``
"""

import sys

from pyspark.sql import SparkSession

from spark_rtps.java import use_java
from spark_rtps.session import spark_defaults


def main(topic: str, log_dir: str, checkpoint: str, output: str, domain: str, rows: str) -> None:
    use_java()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for key, value in spark_defaults().items():
        builder = builder.config(key, value)
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    (
        spark.readStream.format("rtps")
        .schema("id INT, x DOUBLE")
        .option("domain", domain)
        .option("interface", "lo")
        .option("type", "Point")
        .option("key", "id")
        .option("log.dir", log_dir)
        .option("participant.lease_duration", "120s")  # longer than a start of Spark
        .option("maxRowsPerTrigger", rows)
        .load(topic)
        .writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .start(output)
        .awaitTermination()
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
