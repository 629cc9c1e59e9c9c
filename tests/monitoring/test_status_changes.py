"""What changed between two looks at the statuses of sources and sinks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.monitoring import status_changes
from spark_rtps.monitoring.status_changes import (
    Json,
    ObservedChange,
    changes_between,
    is_alike,
    nothing_yet,
    take_snapshot,
)
from spark_rtps.monitoring.stream_counters import State, Stream, StreamKind
from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.structure import Guid

PREFIX = "01" * 12
REMOTE = Guid(b"\xff\2" * 6, b"\0\0\1\2")
MATCHED = "status.subscription_matched."


def last(status: str, guid: Guid = REMOTE) -> dict[str, int]:
    raw = guid.to_bytes()
    halves = {"high": raw[:8], "low": raw[8:]}
    return {f"last.{status}.guid_{h}": int.from_bytes(n, "big", signed=True) for h, n in halves.items()}


def stream(path: str = "/logs/a", *, topic: str = "Square", pid: int = 7, **counters: int) -> Stream:
    named = {label.replace("__", "."): value for label, value in counters.items()}
    return Stream(StreamKind.SOURCE, Path(path), topic, "T", 3, PREFIX, pid, State.ALIVE, named)


def snapshot(*streams: Stream, topic: str = "", wall: int = 5_000) -> dict[str, Json]:
    taken = take_snapshot(streams, topic=topic, wall=wall)
    found: dict[str, Json] = json.loads(json.dumps(taken))
    assert found == taken  # an offset is JSON
    return found


def changes(start: dict[str, Json], end: dict[str, Json]) -> list[ObservedChange]:
    return list(changes_between(start, end))


def matched(total: int, current: int, *, pid: int = 7, **more: int) -> Stream:
    counters = {f"{MATCHED}total_count": total, f"{MATCHED}current_count": current}
    return stream(pid=pid, **counters, **last("subscription_matched"), **more)


def test_the_first_look_shows_what_is_and_each_further_one_what_changed() -> None:
    one, two, three = (snapshot(matched(total, now)) for total, now in ((0, 0), (1, 1), (1, 0)))
    assert changes(nothing_yet(), one) == []
    (joined,) = changes(nothing_yet(), two)
    assert joined == ObservedChange(
        5_000,
        "source",
        "Square",
        3,
        PREFIX,
        7,
        "SUBSCRIPTION_MATCHED",
        {"current_count": 1, "total_count": 1},
        {"current_count": 1, "total_count": 1},
        str(REMOTE),
    )
    (left,) = changes(two, three)
    assert left == replace(
        joined, fields={"current_count": 0, "total_count": 1}, changes={"current_count": -1}
    )
    assert changes(three, three) == []


def test_only_changed_statuses_are_reported() -> None:
    lost = {"status__sample_lost__total_count": 2, "status__sample_lost__by_writer": 2}
    (change,) = changes(snapshot(matched(1, 1)), snapshot(matched(1, 1, **lost)))
    assert (change.status, change.remote) == ("SAMPLE_LOST", None)
    assert change.changes == {"total_count": 2, "by_writer": 2}


@pytest.mark.parametrize("pid", [7, 8], ids=["same id", "other id"])
def test_a_process_that_began_anew_counts_from_zero(pid: int) -> None:
    """In a container that is started again it may have the id that it had."""
    lost = {"status__sample_lost__total_count": 2}
    (change,) = changes(snapshot(matched(5, 1, **lost)), snapshot(matched(2, 1, pid=pid)))
    assert change.changes == {"total_count": 2, "current_count": 1}
    assert changes(snapshot(matched(5, 1)), snapshot()) == []


def test_two_looks_are_alike_whenever_they_were() -> None:
    assert is_alike(snapshot(matched(1, 1), wall=1), snapshot(matched(1, 1), wall=2))
    assert not is_alike(snapshot(matched(1, 1)), snapshot(matched(1, 0)))


def test_ended_and_other_streams_are_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = replace(stream("/logs/b"), state=State.ENDED)
    streams = stream("/logs/c"), stream("/logs/a", topic="Circle"), ended

    def looked_at(topic: str = "") -> list[str]:
        found: Any = snapshot(*streams, topic=topic)["endpoints"]
        return list(found)

    assert looked_at() == ["/logs/a", "/logs/c"]
    assert looked_at("Circle") == ["/logs/a"]
    monkeypatch.setattr(status_changes, "STATUS_ENDPOINTS_MAX", 1)
    assert looked_at() == ["/logs/c"]


@pytest.mark.parametrize("what", [{}, {"at": 1, "endpoints": 2}, {"at": 1, "endpoints": {"/logs/a": 5}}])
def test_invalid_snapshots_are_ignored(what: dict[str, Json]) -> None:
    with pytest.raises(UsageError, match="no offset of statuses"):
        changes(nothing_yet(), what)
