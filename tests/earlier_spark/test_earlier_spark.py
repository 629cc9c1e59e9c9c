"""PySpark 4.0 and 4.1, each in a Python of its own: queries of receiver services, sinks, and what they cannot do."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_rtps.java import find_java_home
from spark_rtps.receiver_service.backlog import read_counters
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from tests.spark.spark_streams import DOMAIN, Publisher
from tests.spark.test_receiver_services import free_port
from tests.spark.test_restart import files_in, kill, rows_in
from tests.support.child_environment import child_environment
from tests.support.receive_command import Receive
from tests.support.stream_logs import points
from tests.support.waiting import wait_until

HERE = Path(__file__).parent
#: A folder with a virtual environment for each version.
ENVIRONMENTS = Path(os.environ.get("SPARK_RTPS_TEST_PYSPARK", HERE.parents[1] / ".venv"))
SUBSCRIPTION = """\
[subscriptions.{name}]
topic = "{name}"
type = "Point"
keyed = "true"
reliability = "reliable"
history = "keep_all"
"""


@pytest.fixture(params=["4.0", "4.1"])
def python(request: pytest.FixtureRequest) -> Path:
    found = ENVIRONMENTS / f"pyspark-{request.param}" / "bin" / "python"
    assert found.exists(), f"{found}: make test-pyspark makes it"
    return found


@pytest.fixture
def receive(tmp_path: Path) -> Iterator[Receive]:
    root = tmp_path / "receiver"
    root.mkdir()
    made = Receive(root, DOMAIN, free_port())
    made.start(SUBSCRIPTION.format(name="Points") + SUBSCRIPTION.format(name="Written"))
    yield made
    made.close()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    config = NodeConfig(domain=DOMAIN, interface="lo", participant_name="tests")
    with closing(Node.open(config).start()) as node:
        yield Publisher(node, "Points")


def options(receive: Receive, **more: object) -> dict[str, str]:
    token = str(receive.root / "token")
    given = {"topic": "Points", "receivers": f"one=127.0.0.1:{receive.port}", "receiver.token.file": token}
    return {**given, "type": "Point", "key": "id", **{key: str(value) for key, value in more.items()}}


def start(python: Path, *actions: object, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    words = [each if isinstance(each, str) else json.dumps(each) for each in actions]
    environment = child_environment(PYSPARK_PYTHON=str(python), JAVA_HOME=str(find_java_home()))
    environment.pop("SPARK_HOME", None)  # of the PySpark that runs the tests
    return subprocess.Popen(
        [str(python), str(HERE / "query.py"), *words],
        stdout=stdout,
        start_new_session=True,
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
    )


def answers(python: Path, *actions: object) -> list[Any]:
    query = start(python, *actions, stdout=subprocess.PIPE)
    try:
        printed, _ = query.communicate(timeout=120)
    finally:
        if query.poll() is None:
            kill(query)
    assert query.returncode == 0
    found: list[Any] = json.loads(printed.splitlines()[-1])
    return found


def test_every_row_comes_once_over_a_killed_driver(
    python: Path, receive: Receive, publisher: Publisher, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    limited = options(receive, startingOffsets="earliest", maxRowsPerTrigger=100)
    given = {"options": limited, "checkpoint": str(tmp_path / "checkpoint"), "output": str(output)}
    publisher.write(points(0, 1_000))
    driver = start(python, "copy", given)
    try:
        wait_until(lambda: rows_in(output) >= 300, "some batches", 120, every=0.01)
    finally:
        kill(driver)
    assert rows_in(output) < 1_000, "killed too late to show anything"
    publisher.write(points(1_000, 300))

    driver = start(python, "copy", given)
    try:
        wait_until(lambda: rows_in(output) >= 1_300, "the rest", 120, every=0.1)
    finally:
        kill(driver)
    batches = [pq.read_table(file)["id"].to_pylist() for file in files_in(output)]
    assert sorted(each for batch in batches for each in batch) == list(range(1_300))
    assert max(map(len, batches)) == 100


def test_batches_sinks_and_what_needs_a_newer_version(
    python: Path, receive: Receive, publisher: Publisher, tmp_path: Path
) -> None:
    publisher.write(points(0, 50))
    network = {"domain": str(DOMAIN), "interface": "lo", "topic": "Written", "key": "id"}
    written = {**network, "type": "Point", "nullable": "required"}
    checkpoint = {"checkpointLocation": str(tmp_path / "sink")}
    now = {"checkpoint": str(tmp_path / "now"), "output": str(tmp_path / "output")}
    earliest = options(receive, startingOffsets="earliest")
    found = answers(
        python,
        *("available", {"options": earliest, **now}),
        *("read", {"options": options(receive)}),
        *("write", {"options": written, "first": 7}),
        *("read", {"options": options(receive, topic="Written")}),
        *("write_stream", {"options": {**written, **checkpoint}}),
        *("own_receiver", {"options": {**network, "type": "Point", "log.dir": str(tmp_path / "logs")}}),
    )
    assert found[:2] == [50, list(range(50))]
    assert found[3] == list(range(7, 17))
    if "4.0" in str(python):
        assert "needs PySpark 4.1 or newer" in found[4]
        assert "foreachBatch" in found[4]
    else:
        assert found[4] == "written"
        log = receive.log("Written")
        wait_until(lambda: read_counters(log)["log.rows"] > 10, "the rows of the stream")
    assert "a stream with its own receiver needs PySpark 4.2 or newer" in found[5]
    assert "receivers" in found[5]
