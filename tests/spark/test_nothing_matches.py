"""A batch read that matches nobody raises the reason, instead of giving no rows."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.qos import ReliabilityKind
from tests.spark.spark_streams import DOMAIN, Publisher, network

Outcomes = dict[str, int | str]


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession, node: Node, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """How many rows each read has, or its error. They run at the same time, since each of them waits for its end."""
    Publisher(node, "unmatched_qos", reliability=ReliabilityKind.BEST_EFFORT)
    for topic in ("unmatched_type", "rt/unmatched_prefix", "unmatched_2"):
        Publisher(node, topic)
    log_dir = tmp_path_factory.mktemp("logs")

    def read(topic: str, **options: object) -> DataFrame:
        given = network(log_dir, read__timeout="4s", **options)
        return spark.read.format("rtps").schema("id INT, x DOUBLE").options(**given).load(topic)

    reads = {
        "qos": read("unmatched_qos"),
        "type": read("unmatched_type", type="Pint"),
        "prefix": read("unmatched_prefix"),
        "/prefix": read("/unmatched_prefix"),
        "nobody": read("unmatched"),
    }

    def outcome(name: str) -> int | str:
        try:
            return reads[name].count()
        except PySparkException as error:
            return str(error)

    with ThreadPoolExecutor(len(reads)) as pool:
        return dict(zip(reads, pool.map(outcome, reads), strict=True))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("qos", "topic 'unmatched_qos' has writers .*none matches: .*RELIABILITY.*best_effort"),
        ("type", "topic 'unmatched_type' has writers .*none matches: TYPE.*set the option type"),
        ("prefix", f"domain {DOMAIN}; did you mean 'rt/unmatched_prefix'"),
        ("/prefix", f"domain {DOMAIN}; did you mean 'rt/unmatched_prefix'"),
    ],
    ids=["qos", "type", "prefix", "slash_prefix"],
)
def test_the_reason_is_named(outcomes: Outcomes, name: str, why: str) -> None:
    assert re.search(why, str(outcomes[name])), outcomes[name]


def test_a_topic_that_nobody_writes_has_no_rows(outcomes: Outcomes) -> None:
    assert outcomes["nobody"] == 0
