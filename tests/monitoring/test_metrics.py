"""The exporter for Prometheus: real counters files, a real port of loopback; and the dashboard that queries it."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import make_server

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spark_rtps.monitoring import metrics
from spark_rtps.monitoring.decoding_report import DAMAGED, LOG_LOST, LostPart, update_decoding_report
from spark_rtps.monitoring.metrics import StreamCollector, start_exporter
from spark_rtps.monitoring.processes import process_start
from spark_rtps.transport.errors import OptionError
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.error_log import ERROR_LOG, ErrorLog
from spark_rtps.transport.log.loss_report import LOSS_REPORT, LossReport
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.structure import Guid

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text(encoding="utf-8"))
NOW = 1_700_000_000_000_000_000
DEAD = 1 << 30
PEER = Guid(b"\xfe" * 12, b"\0\0\1\2")
#: A metric's name to its samples: labels and value.
Scraped = dict[str, list[tuple[dict[str, str], float]]]


def source(root: Path, topic: str = "Square", **counted: int) -> Path:
    """A log and the counters of its receiver, which is this process; a__b is the label a.b."""
    directory = root / str(uuid.uuid4())
    directory.mkdir(parents=True)
    metadata = {"topic": topic, "type": "ShapeType", "guid_prefix": "01" * 12}
    StreamLog.create(directory, max_bytes=1 << 20, metadata=metadata).close()
    given = {"receiver__pid": os.getpid(), "receiver__heartbeat_ns": time.monotonic_ns(), **counted}
    fill(directory / "counters", given)
    return directory


def sink(root: Path, topic: str = "Circle", number: int = 0, **counted: int) -> None:
    folder = root / "publishers"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{process_start(os.getpid())}-{number}"
    about = {"topic": topic, "type": "ShapeType", "domain": 7, "guid_prefix": "02" * 12}
    (folder / f"{name}.json").write_text(json.dumps(about))
    fill(folder / f"{name}.counters", counted)


def fill(path: Path, counted: dict[str, int]) -> None:
    counters = Counters.create(path)
    for label, value in counted.items():
        counters.counter(label.replace("__", ".")).set(value)


def guid_counters(which: str) -> dict[str, int]:
    raw = PEER.to_bytes()
    return {
        f"{which}__0__guid_high": int.from_bytes(raw[:8], "big", signed=True),
        f"{which}__0__guid_low": int.from_bytes(raw[8:], "big", signed=True),
    }


def everything(root: Path) -> None:
    """A source and a sink that have all there is."""
    stream = {"rcv_pos": 90, "rcv_hwm": 101, "sub_pos": 80, "window": 4096, "rtt_ns": 250_000}
    directory = source(
        root,
        receiver__domain=3,
        log__rows=500,
        log__position=4096,
        reader__lost_samples=4,
        reader__nacks_sent=5,
        reader__repairs_received=1,
        reader__heartbeats=1,
        reader__status_messages_sent=2,
        reader__overruns=1,
        reader__underruns=1,
        drop__not_rtps=6,
        **guid_counters("stream"),
        **{f"stream__0__{name}": value for name, value in stream.items()},
    )
    LossReport(directory / LOSS_REPORT).observe(PEER, "Square", 4, now=NOW, sample_bytes=10)
    ErrorLog(directory / ERROR_LOG).record("WARNING", "x", "4 lost", now=NOW)
    writer = {
        "written_samples": 100,
        "pub_pos": 9216,
        "pub_lmt": 40960,
        "snd_pos": 8192,
        "snd_lmt": 12288,
        "snd_bpe": 17,
        "is_connected": 1,
        "fc_receivers": 2,
        "heartbeats_sent": 1,
        "nacks_received": 1,
        "repaired_samples": 1,
        "back_pressured": 1,
        "short_sends": 1,
        "unblocked_publications": 1,
        "status_messages_received": 1,
        "flow_control_limits": 1,
    }
    reader = {"matched__0__reliable": 1, "matched__0__active": 1, "matched__0__acked_sn": 77}
    counted = {f"writer__{name}": value for name, value in writer.items()}
    sink(root, **counted, **guid_counters("matched"), **reader)


def scrape(*roots: Path) -> Scraped:
    return by_name(StreamCollector(roots).collect())


def by_name(families: Any) -> Scraped:
    found: Scraped = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


class TestCollector:
    def test_numbers_of_a_source(self, tmp_path: Path) -> None:
        everything(tmp_path)
        found = scrape(tmp_path)
        (labels, rows), (_, written) = found["spark_rtps_samples_total"][::-1]
        assert {rows, written} == {500.0, 100.0}
        (sample,) = [s for s in found["spark_rtps_bytes_total"] if s[0]["kind"] == "source"]
        labels, value = sample
        assert value == 4096
        assert (labels["topic"], labels["domain"], labels["pid"]) == ("Square", "3", str(os.getpid()))
        assert uuid.UUID(labels["stream"])
        peer = {**labels, "peer": str(PEER)}
        assert found["spark_rtps_rcv_hwm_bytes"] == [(peer, 101.0)]
        assert found["spark_rtps_receiver_lag_bytes"] == [(peer, 21.0)]
        assert found["spark_rtps_round_trip_seconds"] == [(peer, 0.00025)]
        assert found["spark_rtps_dropped_messages_total"] == [({**labels, "reason": "not_rtps"}, 6.0)]
        assert found["spark_rtps_writer_lost_samples_total"] == [(peer, 4.0)]
        assert found["spark_rtps_writer_lost_bytes_total"] == [(peer, 40.0)]
        assert found["spark_rtps_status_messages_sent_total"] == [(labels, 2.0)]

    def test_a_name_with_half_a_character_is_scraped_with_the_others(self, tmp_path: Path) -> None:
        sink(tmp_path, "half \ud800", 0)
        sink(tmp_path, "Circle", 1)
        registry = CollectorRegistry()
        registry.register(StreamCollector([tmp_path]))
        scraped = generate_latest(registry).decode()
        assert 'topic="Circle"' in scraped and 'topic="half ?"' in scraped

    def test_numbers_of_a_sink(self, tmp_path: Path) -> None:
        everything(tmp_path)
        found = scrape(tmp_path)
        labels = {"kind": "sink", "topic": "Circle", "domain": "7", "pid": str(os.getpid())}
        labels["stream"] = f"{os.getpid()}-{process_start(os.getpid())}-0"
        assert found["spark_rtps_pub_pos_bytes"] == [(labels, 9216.0)]
        assert found["spark_rtps_sender_window_bytes"] == [(labels, 4096.0)]
        assert found["spark_rtps_connected"] == [(labels, 1.0)]
        assert found["spark_rtps_sender_back_pressure_total"] == [(labels, 17.0)]
        assert found["spark_rtps_acknowledged_sn"] == [({**labels, "peer": str(PEER)}, 77.0)]

    def test_errors_by_level(self, tmp_path: Path) -> None:
        directory = source(tmp_path)
        log = ErrorLog(directory / ERROR_LOG)
        for text in ("a", "a", "b"):
            log.record("WARNING", "x", text, now=NOW)
        log.record("ERROR", "x", "a", now=NOW)
        (tmp_path / "errors").mkdir()
        ErrorLog(tmp_path / "errors" / f"{DEAD}-5.errors").record("ERROR", "x", "a", now=NOW)
        found = scrape(tmp_path)
        of = {"topic": "Square", "pid": str(os.getpid()), "stream": directory.name}
        process = {"topic": "", "pid": str(DEAD), "stream": f"{DEAD}-5", "level": "error"}

        def ordered(name: str) -> list[tuple[dict[str, str], float]]:
            return sorted(found[name], key=lambda s: (s[0]["topic"], s[0]["level"]))

        assert ordered("spark_rtps_errors_total") == [
            (process, 1.0),
            ({**of, "level": "error"}, 1.0),
            ({**of, "level": "warning"}, 3.0),
        ]
        assert [value for _, value in ordered("spark_rtps_distinct_errors")] == [1.0, 1.0, 2.0]

    def test_absent_counters_have_no_series(self, tmp_path: Path) -> None:
        source(tmp_path)
        found = scrape(tmp_path)
        assert found["spark_rtps_samples_total"][0][1] == 0
        assert "spark_rtps_pub_pos_bytes" not in found
        assert "spark_rtps_short_sends_total" not in found
        assert "spark_rtps_rcv_pos_bytes" not in found

    def test_ended_streams_are_not_exported(self, tmp_path: Path) -> None:
        directory = source(tmp_path, receiver__pid=DEAD)
        LossReport(directory / LOSS_REPORT).observe(PEER, "Square", 4, now=NOW)
        assert scrape(tmp_path) == {}

    def test_no_two_samples_have_the_same_labels(self, tmp_path: Path) -> None:
        """Prometheus refuses the whole scrape then. A process may have several writers of a topic."""
        root = tmp_path / "logs"
        everything(root)
        source(root)
        sink(root, "Circle", 1, writer__written_samples=1)
        (tmp_path / "link").symlink_to(root)
        for name, samples in scrape(root, tmp_path / "link").items():
            labels = [tuple(sorted(labels.items())) for labels, _ in samples]
            assert len(labels) == len(set(labels)), name

    def test_nothing_to_look_at(self, tmp_path: Path) -> None:
        assert scrape(tmp_path / "none") == {}


class TestExporter:
    @pytest.fixture(autouse=True)
    def exporters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metrics, "_EXPORTERS", metrics._Exporters())

    @pytest.fixture
    def port(self) -> int:
        with make_server("127.0.0.1", 0, lambda *_: []) as server:
            return int(server.server_port)

    @pytest.fixture
    def taken(self) -> Iterator[int]:
        with make_server("", 0, lambda *_: []) as server:
            yield int(server.server_port)

    @staticmethod
    def get(port: int) -> Scraped:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return by_name(text_string_to_metric_families(answer.read().decode()))

    def test_over_http(self, tmp_path: Path, port: int) -> None:
        everything(tmp_path)
        start_exporter(port, [tmp_path])
        found = self.get(port)
        assert found == scrape(tmp_path)
        assert len(found) > 40

    def test_one_series_for_all_causes_of_a_loss(self, tmp_path: Path) -> None:
        everything(tmp_path)
        (directory,) = (path.parent for path in tmp_path.rglob(LOSS_REPORT))
        part = LostPart(DAMAGED, 1, NOW, 10, 3, PEER.to_bytes().hex())
        update_decoding_report(directory, lambda report: report.lose(part))
        update_decoding_report(directory, lambda report: report.lose(LostPart(LOG_LOST, 1, NOW)))
        found = scrape(tmp_path)["spark_rtps_writer_lost_samples_total"]
        assert sorted((labels["peer"], count) for labels, count in found) == [
            (str(PEER), 7.0),
            ("unknown", 1.0),
        ]

    def test_once_a_process(self, tmp_path: Path, port: int) -> None:
        source(tmp_path / "a", "A")
        source(tmp_path / "b", "B")
        for name in ("a", "b", "a"):
            start_exporter(port, [tmp_path / name])
        topics = sorted(labels["topic"] for labels, _ in self.get(port)["spark_rtps_up"])
        assert topics == ["A", "B"]

    def test_off(self, tmp_path: Path) -> None:
        start_exporter(0, [tmp_path])
        assert metrics._EXPORTERS.by_place == {}

    def test_a_port_that_is_taken(self, tmp_path: Path, taken: int) -> None:
        for _ in range(2):
            with pytest.raises(
                OptionError, match=r"'metrics.port' = \d+: cannot be listened on \(Address alr"
            ):
                start_exporter(taken, [tmp_path])

    def test_a_port_that_processes_share(self, tmp_path: Path) -> None:
        source(tmp_path)
        with make_server("", 0, lambda *_: []) as server:
            port = int(server.server_port)
            start_exporter(port, [tmp_path], shared=True)
            assert metrics._EXPORTERS.by_place == {}
        start_exporter(port, [tmp_path], shared=True)  # whoever had it has ended
        assert len(self.get(port)["spark_rtps_up"]) == 1
        with pytest.raises(OptionError):
            start_exporter(1 << 16, [tmp_path], shared=True)

    def test_this_host_alone_unless_an_address_is_given(self, tmp_path: Path, port: int) -> None:
        source(tmp_path)
        start_exporter(port, [tmp_path])
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=10)
        start_exporter(port, [tmp_path], address="127.0.0.2")
        with urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=10) as answer:
            assert b"spark_rtps_up" in answer.read()

    @pytest.mark.parametrize("address", ["192.0.2.1", "no.such.host.invalid"])
    def test_an_address_that_is_none_of_this_host(self, tmp_path: Path, port: int, address: str) -> None:
        with pytest.raises(
            OptionError, match=rf"'metrics.address' = '{address}': is not an address of this host"
        ):
            start_exporter(port, [tmp_path], address=address)

    @pytest.mark.parametrize("port", [1 << 16, 1 << 40])
    def test_a_port_that_is_none(self, tmp_path: Path, port: int) -> None:
        with pytest.raises(OptionError, match="cannot be listened on"):
            start_exporter(port, [tmp_path])

    def test_without_the_package(self, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        with pytest.raises(OptionError, match=r"pip install 'spark-rtps\[metrics\]'"):
            start_exporter(port, [tmp_path])

    def test_a_forked_child_starts_its_own(
        self, tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start_exporter(port, [tmp_path])
        monkeypatch.setattr(os, "getpid", lambda: DEAD)
        with pytest.raises(OptionError):  # the parent has the port
            start_exporter(port, [tmp_path])


class TestDashboard:
    @staticmethod
    def queries() -> list[str]:
        targets = [t["expr"] for panel in DASHBOARD["panels"] for t in panel.get("targets", ())]
        return [*targets, *(v["definition"] for v in DASHBOARD["templating"]["list"] if "definition" in v)]

    def test_every_metric_it_queries_is_exposed(self, tmp_path: Path) -> None:
        everything(tmp_path)
        exposed = set(scrape(tmp_path))
        queried = {name for query in self.queries() for name in re.findall(r"spark_rtps_\w+", query)}
        assert len(queried) > 20
        assert queried <= exposed

    def test_every_label_it_names_is_there(self, tmp_path: Path) -> None:
        everything(tmp_path)
        found = scrape(tmp_path)
        for panel in DASHBOARD["panels"]:
            for target in panel.get("targets", ()):
                (name,) = re.findall(r"spark_rtps_\w+", target["expr"])
                labels = {label for given, _ in found[name] for label in given}
                assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels, target
                assert set(re.findall(r"(\w+)=~", target["expr"])) <= labels, target

    def test_counters_are_rates_and_gauges_are_not(self) -> None:
        for query in self.queries():
            assert ("_total" in query) == ("rate(" in query or "increase(" in query), query

    def test_the_panels_do_not_overlap(self) -> None:
        cells = set()
        for panel in DASHBOARD["panels"]:
            grid = panel["gridPos"]
            for x in range(grid["x"], grid["x"] + grid["w"]):
                for y in range(grid["y"], grid["y"] + grid["h"]):
                    assert (x, y) not in cells, panel["title"]
                    cells.add((x, y))
        assert max(x for x, _ in cells) < 24
        assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
