"""Spark Connect: streams, batches and sinks of sessions that know no JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps.java import find_java_home
from tests.spark.spark_streams import DOMAIN
from tests.spark.test_receiver_services import free_port
from tests.support.child_environment import ROOT, child_environment
from tests.support.receive_command import Receive
from tests.support.surroundings import IS_CLUSTER
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(IS_CLUSTER, reason="its session is on this host")

TOKEN = "of-the-receiver-of-a-connect-session-01234"
CYCLONE = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces></General>'
    "</Domain></CycloneDDS>"
)


@pytest.fixture
def receive(tmp_path: Path, topic: str) -> Iterator[Receive]:
    """It records the topic, and the one that the program writes."""
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    found = Receive(tmp_path, DOMAIN, free_port())
    try:
        found.start(
            f'reliability = "reliable"\nhistory = "keep_all"\n[tokens]\ncommit = "{token}"\n'
            f'[subscriptions.numbers]\ntopic = "{topic}"\n[subscriptions.onward]\ntopic = "{topic}_onward"\n'
        )
        yield found
    finally:
        found.close()


@pytest.fixture
def numbers(topic: str, receive: Receive) -> Iterator[None]:
    """A Cyclone DDS writer that numbers its samples from 0 on."""
    writer = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/receiver_service/number_writer.py"), topic, str(DOMAIN), "0.01"],
        stdin=subprocess.PIPE,
        env={**os.environ, "CYCLONEDDS_URI": CYCLONE},
    )
    yield
    writer.kill()
    writer.communicate()


def test_a_session_reads_and_writes(receive: Receive, numbers: None, topic: str, tmp_path: Path) -> None:
    given = {
        "domain": str(DOMAIN),
        "topic": topic,
        "receivers": f"here=127.0.0.1:{receive.port}",
        "token": TOKEN,
        "onward": f"{topic}_onward",
        "folder": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("connect_program.py")), json.dumps(given)],
        env=child_environment(
            JAVA_HOME=str(find_java_home()), PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1"
        ),
        capture_output=True,
        text=True,
        timeout=400,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported["session"] == "pyspark.sql.connect.session"
    first = reported["embedded"][0]
    assert reported["embedded"] == list(range(first, first + len(reported["embedded"])))
    assert reported["service"] == list(range(len(reported["service"])))
    assert reported["recorded"] >= len(reported["service"]) and reported["listened"] == 5
    wait_until(lambda: receive.numbers("onward") == list(range(7)), receive.printed)
