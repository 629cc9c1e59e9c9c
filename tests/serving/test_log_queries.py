"""What a receiver service answers about places in a log, without a server."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.serving.server.http_messages import Refusal, Request
from spark_rtps.serving.server.log_queries import LogQueries
from spark_rtps.serving.server.tail_watch import TailWatch
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import guid, single


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    """A segment of many frames."""
    made = StreamLog.create(tmp_path / "log", max_bytes=1 << 22, segment_bytes=1 << 20, metadata={})
    for number in range(4_000):
        assert made.append(single(guid(1), number + 1, 100), reception=number)
    return made


def test_a_log_is_not_scanned_for_a_closed_connection(log: StreamLog) -> None:
    answers = LogQueries(TailWatch())
    here, there = socket.socketpair()
    with here, there:
        request = Request({"time": "3500"}, b"", here.fileno())
        found = json.loads(answers.at(log.directory, request).body)["cursor"]
        assert found == [log.position // 4_000 * 3_500, 0]
    other = LogQueries(TailWatch())
    here, there = socket.socketpair()
    with here:
        there.close()
        with pytest.raises(Refusal, match="has left"):
            other.at(log.directory, Request({"time": "3500"}, b"", here.fileno()))


def test_a_place_of_a_log_that_is_trimmed_meanwhile_is_its_new_base(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20_000):
        if not log.append(single(guid(1), log.rows + 1, 100), reception=number):
            break
    answers, ends = LogQueries(TailWatch()), []
    from spark_rtps.serving.server import log_queries

    real = log_queries._ends

    def trimmed_behind(directory: Path) -> Any:
        ends.append(real(directory))
        if len(ends) == 1:
            log.trim_oldest()
        return ends[-1]

    monkeypatch.setattr(log_queries, "_ends", trimmed_behind)
    query = {"position": "32"}
    reported = json.loads(answers.place(log.directory, Request(query, b"", None)).body)
    assert reported["cursor"] == [log.base, 0] and "before its beginning" in reported["what"]
