"""What a receiver answers about itself, read again as the commands read it."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

import spark_rtps as rtps
from spark_rtps.monitoring.decoding_report import LOST, LostPart, update_decoding_report
from spark_rtps.monitoring.range_tally import RangeTally
from spark_rtps.monitoring.report_json import parse_errors, parse_losses, parse_streams
from spark_rtps.monitoring.reports import read_error_reports, read_losses
from spark_rtps.monitoring.seen_topics import SeenTopics
from spark_rtps.monitoring.stream_counters import State, read_streams
from spark_rtps.serving.server import report_queries
from spark_rtps.serving.server.report_queries import TopicListener
from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.log.error_log import ERROR_LOG, ErrorLog
from spark_rtps.transport.log.loss_report import LOSS_REPORT, LossReport
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.receiver.addresses import Addresses, write_addresses
from spark_rtps.transport.structure import Guid, Locator
from tests.commands.stat_scene import DEAD, source
from tests.support import domains
from tests.support.waiting import wait_until

ON_LOOPBACK = NodeConfig(domain=domains.SERVING_TOPICS, interface="lo", participant_name="another")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The logs of a subscription that runs, and of one that has ended."""
    source(tmp_path, "Old", receiver__pid=DEAD)
    folder = source(tmp_path, "Square", log__rows=5).path.parent
    ErrorLog(folder / ERROR_LOG).record("WARNING", "spark_rtps", "soon", now=1)
    LossReport(folder / LOSS_REPORT).observe(Guid(bytes(12), b"\0\0\1\2"), "Square", 3, now=1)
    return tmp_path


def test_streams_with_those_that_ended(directory: Path) -> None:
    reported = parse_streams(report_queries.streams(directory))
    assert [(stream.topic, stream.state) for stream in reported] == [
        ("Square", State.ALIVE),
        ("Old", State.ENDED),
    ]
    assert reported == read_streams([directory], now=time.monotonic_ns())


def test_errors_and_losses(directory: Path) -> None:
    errors, losses = read_error_reports([directory]), read_losses([directory])
    assert errors and losses
    assert parse_errors(report_queries.errors(directory)) == errors
    assert parse_losses(report_queries.losses(directory)) == losses


def test_huge_counts_of_a_client_stay_readable(directory: Path) -> None:
    (log,) = (each.path for each in read_streams([directory], now=0) if each.topic == "Square")
    most = 1 << 62
    parts = tuple(LostPart("gone", position, 1, most, most) for position in (8, 16, 24))
    report = RangeTally.from_json(RangeTally(lost=parts).to_json())
    update_decoding_report(log, report.add_to)
    assert (1 << 63) - 1 in {
        each.counters.get(LOST) for each in parse_streams(report_queries.streams(directory))
    }
    lost = [loss for each in parse_losses(report_queries.losses(directory)) for loss in each.losses]
    assert ((1 << 63) - 1, (1 << 63) - 1) in {(loss.samples, loss.nbytes) for loss in lost}
    assert report_queries.metrics(directory)


def test_metrics(directory: Path) -> None:
    text = report_queries.metrics(directory).decode()
    (samples,) = [line for line in text.splitlines() if line.startswith("spark_rtps_samples_total")]
    assert 'topic="Square"' in samples and samples.endswith(" 5.0")
    assert report_queries.metrics(directory)  # a scrape leaves nothing behind that the next one meets


def test_metrics_without_their_package(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match="pip install"):
        report_queries.metrics(directory)


def test_topics(tmp_path: Path) -> None:
    listener = TopicListener(ON_LOOPBACK, tmp_path)
    with rtps.Participant(
        domains.SERVING_TOPICS, interface="lo", options={"participant.name": "robot"}
    ) as robot:
        robot.subscribe("Square", type="ShapeType", payload="binary")

        def seen() -> SeenTopics:
            reported = listener.topics(0.3)
            assert reported is not None
            return SeenTopics.parse(reported)

        wait_until(lambda: [each.topic for each in seen().endpoints] == ["Square"])
        (participant,) = seen().participants
    assert participant.name == "robot"
    assert seen().domain == domains.SERVING_TOPICS


def test_a_listener_takes_no_ports_of_a_receiver_that_is_down_briefly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log").mkdir()
    write_addresses(tmp_path / "log", Addresses.from_locators(0, [Locator("127.0.0.1", 7410)], 10**9))
    joined: list[NodeConfig] = []

    def join(config: NodeConfig) -> None:
        joined.append(config)
        raise rtps.TransportError("no")

    monkeypatch.setattr(report_queries.Node, "open", join)  # type: ignore[attr-defined]
    with pytest.raises(rtps.TransportError):
        TopicListener(ON_LOOPBACK, tmp_path).topics(0.0)
    assert joined[0].reserved_ports == (7410,)


def test_a_single_request_listens_at_a_time(tmp_path: Path) -> None:
    listener = TopicListener(ON_LOOPBACK, tmp_path)
    thread = threading.Thread(target=listener.topics, args=(0.5,))
    thread.start()
    wait_until(listener._lock.locked)
    assert listener.topics(0.0) is None
    thread.join()
    assert listener.topics(0.0) is not None


@pytest.mark.parametrize(("asked", "slept"), [(1e9, 10.0), (-1.0, 0.0), (2.5, 2.5)])
def test_a_request_listens_for_a_limited_time(
    asked: float, slept: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times: list[float] = []
    monkeypatch.setattr(report_queries.time, "sleep", times.append)  # type: ignore[attr-defined]
    assert TopicListener(ON_LOOPBACK, tmp_path).topics(asked) is not None
    assert slept in times


def test_a_listener_is_gone_when_it_cannot_join(tmp_path: Path) -> None:
    listener = TopicListener(NodeConfig(interface="none-such"), tmp_path)
    for _ in range(2):
        with pytest.raises(rtps.RtpsError):
            listener.topics(0.0)
