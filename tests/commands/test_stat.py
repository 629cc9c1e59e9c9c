"""`spark-rtps stat`: what it counts and shows, of real counters files."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from spark_rtps.commands.tables import size
from spark_rtps.monitoring import stream_counters
from spark_rtps.monitoring.stream_counters import State, StreamKind, lost, read_streams, rejected
from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.receiver.shown_counters import ShownCounters
from spark_rtps.transport.structure import Guid
from tests.commands.stat_scene import DEAD, KEYS, SECOND, as_json, only, run, sink, source

pytestmark = pytest.mark.usefixtures("root")


def test_a_type_that_no_writer_has_named_yet(root: Path) -> None:
    source(root)
    (directory,) = root.iterdir()
    with StreamLog.open(directory) as log:
        log.amend(type=None)
    assert only(root).type is None
    assert as_json()["streams"][0]["type"] is None


def test_help() -> None:
    assert "--watch" in run("-h").stdout


class TestNothing:
    def test_stat_without_streams_names_the_directories(self, root: Path, tmp_path: Path) -> None:
        output = run("--log-dir", str(tmp_path / "other")).stdout
        assert "no source or sink runs" in output
        assert str(root) in output
        assert str(tmp_path / "other") in output

    def test_as_json(self, root: Path, tmp_path: Path) -> None:
        found = as_json("--log-dir", str(tmp_path / "other"), "-l", str(root))
        assert found["streams"] == []
        assert found["looked_in"] == [str(root), str(tmp_path / "other")]


def test_a_directory_under_two_names_is_searched_once(root: Path, tmp_path: Path) -> None:
    source(root, log__rows=500)
    (tmp_path / "link").symlink_to(root)
    found = as_json("-l", str(tmp_path / "link"), "-l", f"{root}/../{root.name}")
    assert [stream["samples"] for stream in found["streams"]] == [500]  # type: ignore[attr-defined]
    assert found["looked_in"] == [str(root)]


class TestNumbers:
    def test_numbers_of_a_source(self, root: Path) -> None:
        counted = {
            "receiver__domain": 3,
            "log__rows": 500,
            "log__position": 4096,
            "log__base": 512,
            "log__consumer": 1024,
            "reader__matched_writers": 2,
            "reader__lost_samples": 4,
            "reader__nacks_sent": 5,
            "reader__nack_frags_sent": 6,
            "reader__window_closed": 8,
            "status__sample_rejected__total_count": 9,
            "drop__not_rtps": 1,
        }
        source(root, **counted)
        (stream,) = as_json()["streams"]  # type: ignore[misc]
        shown = {key: stream[key] for key in KEYS - {"path", "counters", "disk_bytes"}}  # type: ignore[has-type]
        assert shown == {
            "kind": "source",
            "topic": "Square",
            "type": "ShapeType",
            "domain": 3,
            "guid_prefix": "01" * 12,
            "pid": os.getpid(),
            "state": "alive",
            "samples": 500,
            "samples_per_second": None,
            "bytes": 4096,
            "bytes_per_second": None,
            "behind_samples": None,
            "behind_bytes": 3072,
            "peers": 2,
            "lost": 4,
            "rejected": 9,
            "malformed": 0,
            "repairs": 11,
            "back_pressure": 8,
            "statuses": {"SAMPLE_REJECTED": {"total_count": 9}},
            "drops": {"not_rtps": 1},
            "positions": None,
            "readers": [],
            "writers": [],
        }
        assert {label.replace(".", "__"): n for label, n in stream["counters"].items()}.items() >= (  # type: ignore[has-type]
            counted.items()
        )

    def test_consumer_groups(self, root: Path) -> None:
        source(root, log__base=96, log__position=256)
        assert "consumer groups" not in run().stdout
        (directory,) = root.iterdir()
        group = {"row": 0, "at_ns": 1}
        groups = {"late": {**group, "position": 64}, "missing": {**group, "position": 128, "missed": 5}}
        (directory / "groups.json").write_text(json.dumps({"v": 1, "groups": groups}))
        shown = " ".join(run().stdout.split())
        assert "consumer groups" in shown
        found = only(root).counters
        counted = {"count": 2, "behind_bytes": 192, "overtaken": 1, "missed_bytes": 37}
        assert {name: found[f"groups.{name}"] for name in counted} == counted

    def test_numbers_of_a_sink(self, root: Path) -> None:
        sink(
            root,
            writer__written_samples=100,
            writer__written_bytes=6400,
            writer__behind_samples=7,
            writer__unacknowledged_bytes=700,
            writer__matched_readers=1,
            writer__repaired_samples=3,
            writer__repaired_fragments=2,
            writer__back_pressured=6,
            status__publication_matched__current_count=1,
        )
        (stream,) = as_json()["streams"]  # type: ignore[misc]
        assert set(stream) == KEYS  # type: ignore[has-type]
        assert (stream["kind"], stream["domain"], stream["samples"]) == ("sink", 7, 100)  # type: ignore[has-type]
        assert stream["bytes"] == 6400  # type: ignore[has-type]
        assert (stream["behind_samples"], stream["behind_bytes"], stream["peers"]) == (7, 700, 1)  # type: ignore[has-type]
        assert (stream["repairs"], stream["back_pressure"]) == (5, 6)  # type: ignore[has-type]

    def test_statuses_win_over_the_counters_they_are_made_of(self) -> None:
        counters = {
            "reader.lost_samples": 1,
            "cache.lost_by_history": 2,
            "cache.rejected_by_samples_limit": 4,
        }
        assert (lost(counters), rejected(counters)) == (3, 4)
        counters |= {"status.sample_lost.total_count": 5, "status.sample_rejected.total_count": 6}
        assert (lost(counters), rejected(counters)) == (5, 6)

    def test_the_same_keys_where_nothing_was_counted(self, root: Path) -> None:
        source(root)
        sink(root)
        assert [set(stream) for stream in as_json()["streams"]] == [KEYS, KEYS]  # type: ignore[attr-defined]

    def test_the_readers_of_a_sink(self, root: Path) -> None:
        guid = Guid(b"\xff" * 12, b"\0\0\1\4")
        raw = guid.to_bytes()
        counters = sink(root, writer__last_sn=50)
        halves = [int.from_bytes(half, "big", signed=True) for half in (raw[:8], raw[8:])]
        for i, (acked, reliable, active) in enumerate([(20, 1, 1), (0, 0, 1), (10, 1, 0)]):
            fields = {"guid_high": halves[0], "guid_low": halves[1], "acked_sn": acked}
            for name, value in {**fields, "reliable": reliable, "active": active}.items():
                counters.counter(f"matched.{i}.{name}").set(value)
        (stream,) = as_json()["streams"]  # type: ignore[misc]
        assert stream["readers"] == [  # type: ignore[has-type]
            {"guid": str(guid), "acked_sn": 20, "active": True},
            {"guid": str(guid), "acked_sn": None, "active": True},
            {"guid": str(guid), "acked_sn": 10, "active": False},
        ]
        lines = [line for line in run().stdout.splitlines() if str(guid) in line]
        assert ["30" in lines[0], "best effort" in lines[1], "inactive" in lines[2]] == [True] * 3


class TestTable:
    def test_table_of_all_streams(self, root: Path) -> None:
        source(root, log__rows=12345, log__position=5 << 20)
        sink(root, "[bold]", writer__written_samples=77)
        output = run().stdout
        for text in ("Square", "[bold]", "12345", "5.0 MiB", "77", f"alive {os.getpid()}"):
            assert text in output

    def test_ended_streams_come_last(self, root: Path) -> None:
        source(root, "A", receiver__pid=DEAD)
        source(root, "B")
        assert [s["topic"] for s in as_json()["streams"]] == ["B"]  # type: ignore[attr-defined]
        both = as_json("--all")["streams"]
        assert [(s["topic"], s["state"]) for s in both] == [("B", "alive"), ("A", "ended")]  # type: ignore[attr-defined]

    def test_ended_streams_are_only_counted(self, root: Path) -> None:
        source(root, "Old", receiver__pid=DEAD, drop__not_rtps=1)
        output = run().stdout
        assert "no source or sink runs" in output
        assert "1 more that have ended: --all shows them" in output
        source(root, "New")
        output = run().stdout
        assert ("New" in output, "Old" in output, "1 more that have ended" in output) == (True, False, True)
        output = run("--all").stdout
        assert ("New" in output, "Old" in output, "that have ended:" in output) == (True, True, False)

    def test_logs_elsewhere(self, root: Path, tmp_path: Path) -> None:
        source(tmp_path / "here", "A")
        source(root, "B")
        assert [s["topic"] for s in as_json("-l", str(tmp_path / "here"))["streams"]] == ["A", "B"]  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("nbytes", "text"),
        [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 << 20, "200 MiB"), (1 << 62, "4194304 TiB")],
    )
    def test_sizes(self, nbytes: int, text: str) -> None:
        assert size(nbytes) == text


class TestState:
    def test_a_receiver_that_starts(self, root: Path) -> None:
        source(root, receiver__heartbeat_ns=0)
        assert only(root).state is State.ALIVE

    def test_a_receiver_that_hangs(self, root: Path) -> None:
        source(root)
        assert only(root, time.monotonic_ns() + 2 * SECOND).state is State.ALIVE
        assert only(root, time.monotonic_ns() + 4 * SECOND).state is State.STALLED

    @pytest.mark.parametrize("beat", [1, 1 << 62])
    def test_another_process_with_its_number(self, root: Path, beat: int) -> None:
        source(root, receiver__heartbeat_ns=beat)  # before this process began; or before the machine did
        assert only(root).state is State.ENDED

    @pytest.mark.parametrize("start", [None, 0], ids=["no such process", "another one of that number"])
    def test_a_receiver_in_another_pid_namespace(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, start: int | None
    ) -> None:
        """A container that shares the folder, and not its processes."""
        log = source(root).path.parent
        with StreamLog.open(log) as appended:
            shown, now = ShownCounters(log, appended, domain=0), time.monotonic_ns()
            monkeypatch.setattr(stream_counters, "process_start", lambda pid: start)
            assert only(root, now).state is State.ALIVE  # it starts
            shown.show_heartbeat(now)
            assert only(root, now + 2 * SECOND).state is State.ALIVE
            assert only(root, now + 4 * SECOND).state is State.STALLED
            del shown  # as at the end of its process
            assert only(root, now).state is State.ENDED

    def test_a_process_that_is_no_more(self, root: Path) -> None:
        source(root, receiver__pid=DEAD)
        assert only(root).state is State.ENDED


class TestSafety:
    def test_incomplete_and_foreign_directories_are_skipped(self, root: Path) -> None:
        source(root)
        no_metadata, no_counters, cut, odd, label = (source(root, "X").path.parent for _ in range(5))
        (no_metadata / "metadata.json").unlink()
        (no_counters / "counters").unlink()
        (cut / "counters").write_bytes((cut / "counters").read_bytes()[:100])
        (odd / "metadata.json").write_text("[]")
        raw = bytearray((label / "counters").read_bytes())
        raw[68:72] = b"\xff\xff\xff\xff"
        (label / "counters").write_bytes(raw)
        (root / "file").touch()
        (root / "empty").mkdir()
        assert only(root).topic == "Square"

    def test_vanishing_files_are_skipped(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source(root, "A")
        source(root, "B")
        sink(root, "C")
        opened = Counters.open

        def vanishing(path: Path, *, writable: bool) -> Counters:
            found = opened(path, writable=writable)
            if path.name == "counters":
                shutil.rmtree(path.parent)
            else:
                raise LogError("gone")
            return found

        monkeypatch.setattr(Counters, "open", vanishing)
        assert read_streams([root], now=time.monotonic_ns()) == []

    def test_leftovers_of_dead_sinks_are_removed(self, root: Path) -> None:
        sink(root)
        left = root / "publishers" / f"{DEAD}-5-0.counters"
        left.touch()
        assert [s["kind"] for s in as_json()["streams"]] == [StreamKind.SINK.value]  # type: ignore[attr-defined]
        assert not left.exists()
