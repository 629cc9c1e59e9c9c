"""One Spark, one DDS participant and one domain for all tests here; every test has topics of its own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_rtps.java import use_java
from spark_rtps.session import CONF, spark_defaults
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from tests.spark.spark_streams import DOMAIN, Publisher
from tests.support.surroundings import INTERFACE, LOGS, MASTER, spark_settings


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    use_java()
    builder = SparkSession.builder.master(MASTER).appName("spark-rtps tests")
    for key, value in {**spark_defaults(), **spark_settings()}.items():
        builder = builder.config(key, value)
    log4j = f"-Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}"
    session = (
        builder.config("spark.sql.shuffle.partitions", 1)
        .config("spark.ui.enabled", "false")
        # of a query that has nothing to read; by default it asks its source a hundred times a second
        .config("spark.sql.streaming.pollingDelay", "50ms")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", log4j)
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture
def chatty(spark: SparkSession) -> Iterator[None]:
    """Progress also of triggers without data, more often than every ten seconds."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100ms")
    yield
    spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    node = Node.open(NodeConfig(domain=DOMAIN, interface=INTERFACE, participant_name="tests")).start()
    yield node
    node.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return re.sub(r"\W", "_", request.node.name)


@pytest.fixture
def publisher(node: Node, topic: str) -> Publisher:
    return Publisher(node, topic)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "logs" if LOGS is None else Path(LOGS) / f"{tmp_path.parent.name}-{tmp_path.name}"
