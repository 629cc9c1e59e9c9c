"""The session of a driver on the cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType

from spark_rtps.session import spark_defaults


@udf(StringType())  # PySpark reads the hints of a function that has them as those of a pandas UDF
def host(_any):  # type: ignore[no-untyped-def]
    """The host whose task made the row."""
    import os

    return os.uname().nodename


def session_on(given: Mapping[str, Any]) -> SparkSession:
    """A session at ``master`` whose driver is reached at ``address``, once both executors are there.

    No task may fail, unless ``settings`` of Spark say so.
    """
    builder = SparkSession.builder.master(given["master"]).appName("cluster")
    settings = {
        **spark_defaults(),
        "spark.driver.host": given["address"],
        "spark.driver.bindAddress": given["address"],
        "spark.ui.enabled": "false",
        "spark.executor.memory": "500m",
        "spark.cores.max": "2",
        "spark.task.maxFailures": "1",
        **given.get("settings", {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    hosts = 1 if given["master"].startswith("local") else 3  # the driver counts as well
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() < hosts:
        time.sleep(0.1)
    return spark


def numbered(spark: SparkSession, given: Mapping[str, Any]) -> Any:
    """The stream of ``topic`` with the ``options`` of its source, and the host whose task read each row."""
    source = spark.readStream.format("rtps").schema("writer INT, number INT, value DOUBLE")
    return source.options(**given["options"]).load(given["topic"]).withColumn("host", host("number"))
