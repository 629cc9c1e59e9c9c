"""Which tests run one after the other: those of one lane, which meet on the network, on disk or in Spark."""

from __future__ import annotations

#: The rooms of each lane, the longest lane first.
LANES = (
    ("spark", "earlier_spark", "demo"),
    ("interop", "receiver", "net", "api", "cluster", "standing", "conf"),
)


def lane_of(nodeid: str) -> int:
    """The lane of a test, given its node id or its file as ``tests/<room>/…``; ``len(LANES)`` if it has none."""
    room = nodeid.split("/")[1]
    return next((lane for lane, rooms in enumerate(LANES) if room in rooms), len(LANES))


def scope_of(nodeid: str) -> str:
    """What runs in one process: a whole lane, else a file."""
    lane = lane_of(nodeid)
    return f"lane {lane}" if lane < len(LANES) else nodeid.partition("::")[0]
