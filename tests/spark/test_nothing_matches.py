"""A batch read that matches nobody raises the reason, instead of giving no rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.qos import ReliabilityKind
from tests.spark.spark_streams import DOMAIN, Publisher, network


def count(spark: SparkSession, topic: str, log_dir: Path, **options: object) -> int:
    given = network(log_dir, read__timeout="4s", **options)
    return spark.read.format("rtps").schema("id INT, x DOUBLE").options(**given).load(topic).count()


def test_qos(spark: SparkSession, node: Node, topic: str, log_dir: Path) -> None:
    Publisher(node, topic, reliability=ReliabilityKind.BEST_EFFORT)
    with pytest.raises(
        Exception, match=f"topic '{topic}' has writers .*none matches: .*RELIABILITY.*best_effort"
    ):
        count(spark, topic, log_dir)


def test_the_name_of_the_type(spark: SparkSession, node: Node, topic: str, log_dir: Path) -> None:
    Publisher(node, topic)
    with pytest.raises(
        Exception, match=f"topic '{topic}' has writers .*none matches: TYPE.*set the option type"
    ):
        count(spark, topic, log_dir, type="Pint")


@pytest.mark.parametrize("spelled", ["", "/"])
def test_the_prefix_of_ros_2(
    spark: SparkSession, node: Node, topic: str, log_dir: Path, spelled: str
) -> None:
    Publisher(node, f"rt/{topic}")
    with pytest.raises(Exception, match=f"domain {DOMAIN}; did you mean 'rt/{topic.replace('[', '.')}'"):
        count(spark, spelled + topic, log_dir)


def test_a_topic_that_nobody_writes_has_no_rows(
    spark: SparkSession, node: Node, topic: str, log_dir: Path
) -> None:
    Publisher(node, f"{topic}_2")
    assert count(spark, topic, log_dir) == 0
