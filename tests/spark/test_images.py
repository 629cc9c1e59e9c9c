"""A camera's images of 6 MB, thirty a second, from the first batch of a query on."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark_rtps.transport.log.counters import COUNTERS_FILE, Counters
from spark_rtps.transport.log.loss_report import LOSS_REPORT, read_loss_report
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.policies import LossCause
from spark_rtps.transport.qos import ReliabilityKind
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.ros import ros_type
from tests.spark.spark_streams import Publisher, rows, running, source, wait_for_rows
from tests.support.waiting import wait_until

IMAGE = "sensor_msgs/msg/Image"
WIDTH, HEIGHT = 1920, 1080
BYTES = WIDTH * HEIGHT * 3
IMAGES = 75
PERIOD = 1 / 30


def image(number: int, nbytes: int = BYTES) -> pa.RecordBatch:
    stamp = {"sec": number, "nanosec": 0}
    row = {
        "header": {"stamp": stamp, "frame_id": "camera"},
        "height": HEIGHT,
        "width": WIDTH,
        "encoding": "rgb8",
        "is_bigendian": 0,
        "step": WIDTH * 3,
        "data": bytes([number]) * nbytes,
    }
    return pa.RecordBatch.from_pylist([row], schema=Codec(ros_type(IMAGE)).arrow_schema)


def is_matched(log_dir: Path) -> bool:
    """Whether the receiver knows the writer, too: of a best-effort writer it reads what is sent from then on."""
    counters = [Counters.open(path).snapshot() for path in log_dir.glob(f"*/{COUNTERS_FILE}")]
    return [each.get("reader.matched_writers") for each in counters] == [1]


def losses(log_dir: Path) -> dict[str, int]:
    paths = list(log_dir.glob(f"*/{LOSS_REPORT}"))
    return {loss.cause: loss.samples for path in paths for loss in read_loss_report(path)[0]}


@pytest.mark.parametrize(
    ("reliable", "more"),
    [(True, {}), (False, {}), (False, {"receive_buffer": "128KiB"})],
    ids=["reliable", "best_effort", "best_effort_without_room"],
)
def test_each_image_arrives_or_is_reported_lost(
    spark: SparkSession,
    node: Node,
    topic: str,
    log_dir: Path,
    tmp_path: Path,
    *,
    reliable: bool,
    more: dict[str, str],
) -> None:
    reliability = ReliabilityKind.RELIABLE if reliable else ReliabilityKind.BEST_EFFORT
    publisher = Publisher(node, topic, ros_type(IMAGE), reliability=reliability)
    options = {"type": IMAGE, "key": None, "reliability": reliability.name.lower(), **more}
    df = source(spark, topic, log_dir, None, **options)
    df = df.selectExpr(
        "header.stamp.sec AS number", "length(data) AS nbytes", "hex(substr(data, -1)) AS last"
    )
    with running(df, tmp_path / "checkpoint") as query:
        publisher.wait_for_readers()
        wait_until(lambda: is_matched(log_dir), "the receiver's match")
        begun = time.monotonic()
        for number in range(IMAGES):
            time.sleep(max(0.0, begun + number * PERIOD - time.monotonic()))  # as a camera does
            publisher.write_unread(image(number))
        sent, seen = IMAGES, -1
        if reliable:
            wait_for_rows(spark, query, IMAGES)
            assert losses(log_dir) == {}

        def is_reported() -> bool:
            """What of a best-effort writer is lost shows by what comes behind it."""
            nonlocal sent, seen
            before, seen = seen, rows(spark, query).count() + sum(losses(log_dir).values())
            if seen == before != sent:
                publisher.write_unread(image(sent, 1))
                sent += 1
            return seen == sent

        wait_until(
            is_reported, lambda: f"{sent} images: {seen} came or are lost; {losses(log_dir)}", every=0.2
        )
        found = rows(spark, query).toArrow().sort_by("number").to_pylist()
    numbers = [row["number"] for row in found]
    assert numbers == sorted(set(numbers)), "none came twice"
    expected = [{"number": n, "nbytes": BYTES if n < IMAGES else 1, "last": f"{n:02X}"} for n in numbers]
    assert found == expected
    assert set(losses(log_dir)) <= {LossCause.RECEIVE_BUFFER}
