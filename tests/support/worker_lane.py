"""Which tests run one after the other: those of one lane, which meet on the network, on disk or in Spark."""

from __future__ import annotations

#: What the names of each lane's files begin with below ``tests/``, the longest lane first.
LANES = (
    # two halves, each with a Spark of its own
    ("spark/test_p", "spark/test_q", "spark/test_receiver", "spark/test_ros", "spark/test_s", "spark/test_t"),
    ("spark/", "earlier_spark/"),
    ("cluster/",),
    ("receiver_service/", "receiver/", "conf/"),
    ("interop/",),
    ("demo/",),
    ("net/", "api/"),
)


def lane_of(nodeid: str) -> int:
    """The lane of a test, given its node id or its file as ``tests/<room>/…``; ``len(LANES)`` if it has none."""
    name = nodeid.partition("/")[2]
    return next((group for group, begins in enumerate(LANES) if name.startswith(begins)), len(LANES))


def scope_of(nodeid: str) -> str:
    """What runs in one process: a whole lane, else a file."""
    group = lane_of(nodeid)
    return f"lane {group}" if group < len(LANES) else nodeid.partition("::")[0]
