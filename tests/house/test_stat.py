"""`spark-rtps stat`: real counters files, a clock of the test's own."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
from typer.testing import CliRunner, Result

from spark_rtps.cli import app
from spark_rtps.commands import stat
from spark_rtps.commands.stat import look_around
from spark_rtps.commands.tables import duration, size
from spark_rtps.datasource.publisher_counters import process_start
from spark_rtps.datasource.stream_counters import (
    Kind,
    State,
    Stream,
    lost,
    raised,
    read_streams,
    rejected,
    statuses,
)
from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.structure import Guid

SECOND = 1_000_000_000
DEAD = 1 << 30
#: Every key of a stream, whatever it is.
KEYS = {
    "kind",
    "topic",
    "type",
    "domain",
    "guid_prefix",
    "pid",
    "state",
    "path",
    "samples",
    "samples_per_second",
    "bytes",
    "bytes_per_second",
    "behind_samples",
    "behind_bytes",
    "peers",
    "lost",
    "rejected",
    "malformed",
    "repairs",
    "back_pressure",
    "statuses",
    "drops",
    "positions",
    "readers",
    "writers",
    "counters",
}


class FakeTime:
    """The clock of the command; whoever sleeps on it wakes up in a scene of the test's, and at last by Ctrl-C."""

    def __init__(self, *scenes: Callable[[], None]) -> None:
        self.now = time.monotonic_ns()
        self.scenes = list(scenes)

    def monotonic_ns(self) -> int:
        return self.now

    def time_ns(self) -> int:
        return 1_700_000_000 * SECOND

    def sleep(self, seconds: float) -> None:
        if not self.scenes:
            raise KeyboardInterrupt
        self.now += int(seconds * SECOND)
        self.scenes.pop(0)()


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default directory of logs."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / f"spark-rtps-{os.getuid()}"


def source(root: Path, topic: str = "Square", **counted: int) -> Counters:
    """A log and the counters of its receiver, which is this process; a__b is the label a.b."""
    directory = root / str(uuid.uuid4())
    directory.mkdir(parents=True)
    metadata = {"topic": topic, "type": "ShapeType", "guid_prefix": "01" * 12}
    StreamLog.create(directory, max_bytes=1 << 20, metadata=metadata).close()
    counters = Counters.create(directory / "counters")
    given = {"receiver__pid": os.getpid(), "receiver__heartbeat_ns": time.monotonic_ns(), **counted}
    return fill(counters, **given)


def sink(root: Path, topic: str = "Circle", number: int = 0, **counted: int) -> Counters:
    folder = root / "publishers"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{os.getpid()}-{process_start(os.getpid())}-{number}"
    about = {"topic": topic, "type": "ShapeType", "domain": 7, "guid_prefix": "02" * 12}
    (folder / f"{name}.json").write_text(json.dumps(about))
    return fill(Counters.create(folder / f"{name}.counters"), **counted)


def fill(counters: Counters, **counted: int) -> Counters:
    for label, value in counted.items():
        counters.counter(label.replace("__", ".")).set(value)
    return counters


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["stat", *arguments])
    assert result.exit_code == 0, result.output
    return result


def as_json(*arguments: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(run("--json", *arguments).stdout)
    return found


def only(root: Path, now: int | None = None) -> Stream:
    (stream,) = read_streams([root], now=time.monotonic_ns() if now is None else now)
    return stream


def test_a_type_that_no_writer_has_named_yet(root):
    source(root)
    (directory,) = root.iterdir()
    with StreamLog.open(directory) as log:
        log.amend(type=None)
    assert only(root).type is None
    assert as_json()["streams"][0]["type"] is None


def test_help():
    assert "--watch" in run("-h").stdout


class TestNothing:
    def test_says_so_and_where_it_looked(self, root, tmp_path):
        said = run("--log-dir", str(tmp_path / "other")).stdout
        assert "no source or sink runs" in said
        assert str(root) in said
        assert str(tmp_path / "other") in said

    def test_as_json(self, root, tmp_path):
        found = as_json("--log-dir", str(tmp_path / "other"), "-l", str(root))
        assert found["streams"] == []
        assert found["looked_in"] == [str(root), str(tmp_path / "other")]


class TestNumbers:
    def test_of_a_source(self, root):
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
        (stream,) = as_json()["streams"]
        shown = {key: stream[key] for key in KEYS - {"path", "counters"}}
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
        assert {label.replace(".", "__"): n for label, n in stream["counters"].items()}.items() >= (
            counted.items()
        )

    def test_of_a_sink(self, root):
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
        (stream,) = as_json()["streams"]
        assert set(stream) == KEYS
        assert (stream["kind"], stream["domain"], stream["samples"]) == ("sink", 7, 100)
        assert stream["bytes"] == 6400
        assert (stream["behind_samples"], stream["behind_bytes"], stream["peers"]) == (7, 700, 1)
        assert (stream["repairs"], stream["back_pressure"]) == (5, 6)

    def test_statuses_win_over_the_counters_they_are_made_of(self):
        counters = {
            "reader.lost_samples": 1,
            "cache.lost_by_history": 2,
            "cache.rejected_by_samples_limit": 4,
        }
        assert (lost(counters), rejected(counters)) == (3, 4)
        counters |= {"status.sample_lost.total_count": 5, "status.sample_rejected.total_count": 6}
        assert (lost(counters), rejected(counters)) == (5, 6)

    def test_the_same_keys_where_nothing_was_counted(self, root):
        source(root)
        sink(root)
        assert [set(stream) for stream in as_json()["streams"]] == [KEYS, KEYS]

    def test_the_readers_of_a_sink(self, root):
        guid = Guid(b"\xff" * 12, b"\0\0\1\4")
        raw = guid.to_bytes()
        counters = sink(root, writer__last_sn=50)
        halves = [int.from_bytes(half, "big", signed=True) for half in (raw[:8], raw[8:])]
        for i, (acked, reliable, active) in enumerate([(20, 1, 1), (0, 0, 1), (10, 1, 0)]):
            fields = {"guid_high": halves[0], "guid_low": halves[1], "acked_sn": acked}
            for name, value in {**fields, "reliable": reliable, "active": active}.items():
                counters.counter(f"matched.{i}.{name}").set(value)
        (stream,) = as_json()["streams"]
        assert stream["readers"] == [
            {"guid": str(guid), "acked_sn": 20, "active": True},
            {"guid": str(guid), "acked_sn": None, "active": True},
            {"guid": str(guid), "acked_sn": 10, "active": False},
        ]
        lines = [line for line in run().stdout.splitlines() if str(guid) in line]
        assert ["30" in lines[0], "best effort" in lines[1], "inactive" in lines[2]] == [True] * 3


class TestPositions:
    SENDER: ClassVar = {"pub_pos": 9216, "pub_lmt": 40960, "snd_pos": 8192, "snd_lmt": 12288, "snd_bpe": 17}
    WRITER = Guid(b"\xfe" * 12, b"\0\0\1\2")

    def sink(self, root: Path, **more: int) -> None:
        sink(root, **{f"writer__{name}": value for name, value in {**self.SENDER, **more}.items()})

    def source(self, root: Path, *slots: dict[str, int]) -> None:
        counters = source(root)
        raw = self.WRITER.to_bytes()
        for i, slot in enumerate(slots):
            high, low = (int.from_bytes(half, "big", signed=True) for half in (raw[:8], raw[8:]))
            for name, value in {"guid_high": high, "guid_low": low, **slot}.items():
                counters.counter(f"stream.{i}.{name}").set(value)

    def test_of_a_sink(self, root):
        self.sink(root, is_connected=1, fc_receivers=3)
        (stream,) = as_json()["streams"]
        assert stream["positions"] == {
            **self.SENDER,
            "is_connected": True,
            "receivers": 3,
            "window": 4096,
            "lag": 1024,
        }
        said = run().stdout
        assert "positions of the sinks" in said
        for text in ("pub-pos", "snd-bpe", "9216", "40960", "8192", "12288", "17", "1.0 KiB", "4.0 KiB"):
            assert text in said
        assert "not connected" not in said

    def test_that_nobody_reads(self, root):
        self.sink(root, is_connected=0)
        (stream,) = as_json()["streams"]
        assert (stream["positions"]["is_connected"], stream["positions"]["receivers"]) == (False, None)
        assert "not connected" in run().stdout

    @pytest.mark.parametrize("name", SENDER)
    def test_that_has_no_publication_log(self, root, name):
        sink(root, **{f"writer__{other}": 1 for other in self.SENDER if other != name})
        (stream,) = as_json()["streams"]
        assert stream["positions"] is None
        assert "positions" not in run().stdout

    def test_a_limit_behind_its_position(self, root):
        """The limit stays where a reader that left had put it; there is no window below nothing."""
        self.sink(root, snd_lmt=4096, pub_pos=8000)
        positions = as_json()["streams"][0]["positions"]
        assert (positions["window"], positions["lag"]) == (0, 0)

    def test_of_a_source(self, root):
        one = {"rcv_pos": 90, "rcv_hwm": 101, "sub_pos": 80, "window": 131072, "rtt_ns": 250_000}
        self.source(root, one, {"guid_high": 0, "guid_low": 0}, {"rcv_hwm": 7})
        (stream,) = as_json()["streams"]
        assert stream["writers"] == [
            {"guid": str(self.WRITER), **one, "lag": 21},
            {"guid": str(self.WRITER), "rcv_pos": 0, "rcv_hwm": 7, "sub_pos": 0, "window": 0}
            | {"rtt_ns": None, "lag": 7},
        ]
        said = run().stdout
        assert "positions of the sources" in said
        for text in (str(self.WRITER), "rcv-pos", "90", "101", "80", "21 B", "128 KiB", "250 us"):
            assert text in said

    @pytest.mark.parametrize(
        ("ns", "text"),
        [(0, "0 ns"), (999, "999 ns"), (1500, "1.5 us"), (20_000_000, "20.0 ms"), (3_000 * SECOND, "3000 s")],
    )
    def test_durations(self, ns, text):
        assert duration(ns) == text


class TestSystem:
    def test_sums_over_all_streams(self, root):
        source(root, reader__nacks_sent=5, reader__nack_frags_sent=2, drop__not_rtps=3, drop__bad_fragment=1)
        source(root, reader__nacks_sent=10, reader__overruns=4, reader__lost_samples=8)
        sink(root, writer__snd_bpe=6, writer__short_sends=2, writer__unblocked_publications=1)
        sink(root, number=1, writer__snd_bpe=7, writer__status_messages_received=9)
        found = as_json()["system"]
        assert found["naks_sent"] == 17
        assert (found["invalid_packets"], found["samples_lost"], found["overruns"]) == (4, 8, 4)
        assert (found["sender_back_pressure"], found["short_sends"]) == (13, 2)
        assert (found["unblocked_publications"], found["status_messages_received"]) == (1, 9)
        assert found["status_messages_sent"] is None  # nobody counts them

    def test_half_counted_is_not_counted(self, root):
        sink(root, writer__nack_frags=3)
        assert as_json()["system"]["naks_received"] is None
        sink(root, number=1, writer__nack_frags=3, writer__nacks_received=4)
        assert as_json()["system"]["naks_received"] == 7

    def test_only_those_shown(self, root):
        source(root, receiver__pid=DEAD, reader__nacks_sent=5)
        assert as_json()["system"]["naks_sent"] is None
        assert as_json("--all")["system"]["naks_sent"] == 5

    def test_the_same_keys_without_streams(self, root):
        empty = as_json()["system"]
        source(root)
        sink(root)
        assert (
            set(as_json()["system"]) == set(empty) > {"naks_received", "flow_control_limits", "repairs_sent"}
        )

    def test_table(self, root):
        source(root, reader__nacks_sent=4711)
        assert "all streams together" not in run().stdout
        said = run("--system").stdout
        assert "all streams together" in said
        assert "naks sent" in said
        assert "4711" in said
        assert "status messages sent" in said


class TestStatuses:
    def test_labels(self):
        counters = {
            "status.sample_lost.total_count": 3,
            "status.sample_lost.lost_by_writer": 0,
            "status.liveliness_changed.alive_count": 0,
            "status.sample_rejected.total_count_change": 1,
            "status.odd": 1,
            "reader.received_samples": 5,
        }
        assert set(statuses(counters)) == {"SAMPLE_LOST", "LIVELINESS_CHANGED", "SAMPLE_REJECTED"}
        assert raised(counters) == {"SAMPLE_LOST": {"total_count": 3}}

    def test_one_row_each(self, root):
        source(
            root,
            status__sample_lost__total_count=3,
            status__sample_lost__by_gap=2,
            status__liveliness_changed__alive_count=0,
            status__subscription_matched__current_count=1,
            drop__bad_fragment=4,
            drop__not_rtps=0,
        )
        said = run().stdout
        assert said.count("Square") == 4  # one stream, three rows below
        assert "total_count 3, by_gap 2" in said
        assert "SUBSCRIPTION_MATCHED" in said
        assert "LIVELINESS_CHANGED" not in said
        assert "bad_fragment 4" in said
        assert "not_rtps" not in said

    def test_no_table_without_any(self, root):
        source(root)
        assert "statuses" not in run().stdout


class TestTable:
    def test_of_everything(self, root):
        source(root, log__rows=12345, log__position=5 << 20)
        sink(root, "[bold]", writer__written_samples=77)
        said = run().stdout
        for text in ("Square", "[bold]", "12345", "5.0 MiB", "77", f"alive {os.getpid()}"):
            assert text in said

    def test_those_that_ended_come_last(self, root):
        source(root, "A", receiver__pid=DEAD)
        source(root, "B")
        assert [s["topic"] for s in as_json()["streams"]] == ["B"]
        both = as_json("--all")["streams"]
        assert [(s["topic"], s["state"]) for s in both] == [("B", "alive"), ("A", "ended")]

    def test_those_that_ended_are_only_counted(self, root):
        source(root, "Old", receiver__pid=DEAD, drop__not_rtps=1)
        said = run().stdout
        assert "no source or sink runs" in said
        assert "1 that ended: --all shows them" in said
        source(root, "New")
        said = run().stdout
        assert ("New" in said, "Old" in said, "1 that ended" in said) == (True, False, True)
        said = run("--all").stdout
        assert ("New" in said, "Old" in said, "that ended:" in said) == (True, True, False)

    def test_logs_elsewhere(self, root, tmp_path):
        source(tmp_path / "here", "A")
        source(root, "B")
        assert [s["topic"] for s in as_json("-l", str(tmp_path / "here"))["streams"]] == ["A", "B"]

    @pytest.mark.parametrize(
        ("nbytes", "text"),
        [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 << 20, "200 MiB"), (1 << 62, "4194304 TiB")],
    )
    def test_sizes(self, nbytes, text):
        assert size(nbytes) == text


class TestState:
    def test_a_receiver_that_starts(self, root):
        source(root, receiver__heartbeat_ns=0)
        assert only(root).state is State.ALIVE

    def test_a_receiver_that_hangs(self, root):
        source(root)
        assert only(root, time.monotonic_ns() + 2 * SECOND).state is State.ALIVE
        assert only(root, time.monotonic_ns() + 4 * SECOND).state is State.STALLED

    @pytest.mark.parametrize("beat", [1, 1 << 62])
    def test_another_process_with_its_number(self, root, beat):
        source(root, receiver__heartbeat_ns=beat)  # before this process began; or before the machine did
        assert only(root).state is State.ENDED

    def test_a_process_that_is_no_more(self, root):
        source(root, receiver__pid=DEAD)
        assert only(root).state is State.ENDED


class TestRates:
    def test_from_one_look_to_the_next(self, root):
        one, two = source(root, "A", log__rows=100), sink(root, "B", writer__written_samples=5)
        looks = [look_around([root], 10 * SECOND)]
        one.counter("log.rows").set(300)
        looks.append(look_around([root], 12 * SECOND, looks[-1]))
        two.counter("writer.written_samples").set(2)  # began anew
        source(root, "C", log__rows=50)
        looks.append(look_around([root], 13 * SECOND, looks[-1]))
        topics = [{s.topic: look.rates.get(s.path) for s in look.streams} for look in looks]
        assert topics == [
            {"A": None, "B": None},
            {"A": 100.0, "B": 0.0},
            {"A": 0.0, "B": None, "C": None},
        ]

    def test_bytes(self, root):
        one, two = source(root, "A", log__position=4096), sink(root, "B", writer__written_bytes=1000)
        looks = [look_around([root], 10 * SECOND)]
        one.counter("log.position").set(8192)
        two.counter("writer.written_bytes").set(1500)
        looks.append(look_around([root], 12 * SECOND, looks[-1]))
        rates = [{s.topic: look.byte_rates.get(s.path) for s in look.streams} for look in looks]
        assert rates == [{"A": None, "B": None}, {"A": 2048.0, "B": 250.0}]

    def test_no_time_between(self, root):
        source(root)
        look = look_around([root], SECOND)
        assert look_around([root], SECOND, look).rates == {}

    def test_watch(self, root, monkeypatch):
        rows = source(root, log__rows=1000).counter("log.rows")
        clock = FakeTime(lambda: rows.set(2000), lambda: rows.set(2001))
        monkeypatch.setattr(stat, "time", clock)
        said = run("--watch", "500ms").stdout
        assert said.count("Square") == 3
        assert [wanted in said for wanted in ("1000", "2000", "2001")] == [True] * 3

    def test_watch_on_a_terminal_takes_the_screen_and_leaves_the_last_look(self, root, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        rows = source(root, log__rows=1000, log__position=4096).counter("log.rows")
        monkeypatch.setattr(stat, "time", FakeTime(lambda: rows.set(2000), lambda: rows.set(3001)))
        said = run("--watch", "500ms").stdout
        screen, _, after = said.partition("\x1b[?1049l")
        assert "\x1b[?1049h" in screen
        assert [wanted in screen for wanted in ("1000", "2000", "3001")] == [True] * 3
        assert [wanted in after for wanted in ("1000", "2000", "3001")] == [False, False, True]
        assert "2002" in after

    def test_watch_on_a_terminal_that_ends_at_once(self, root, monkeypatch):
        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setattr(stat, "look_around", interrupted)
        assert "Square" not in run("--watch", "1").stdout

    def test_watch_as_json_is_a_line_a_look(self, root, monkeypatch):
        rows = source(root, log__rows=1000).counter("log.rows")
        monkeypatch.setattr(stat, "time", FakeTime(lambda: rows.set(2000)))
        looks = [json.loads(line) for line in run("--json", "--watch", "500ms").stdout.splitlines()]
        assert [look["streams"][0]["samples_per_second"] for look in looks] == [None, 2000.0]
        assert {look["time_ns"] for look in looks} == {1_700_000_000 * SECOND}

    def test_streams_come_and_go(self, root, monkeypatch):
        source(root, "A")
        clock = FakeTime(lambda: shutil.rmtree(root), lambda: source(root, "B") and None)
        monkeypatch.setattr(stat, "time", clock)
        looks = [json.loads(line) for line in run("--json", "--watch", "1").stdout.splitlines()]
        assert [[s["topic"] for s in look["streams"]] for look in looks] == [["A"], [], ["B"]]

    @pytest.mark.parametrize("text", ["0", "soon"])
    def test_no_time_to_wait(self, text):
        result = CliRunner().invoke(app, ["stat", "--watch", text])
        assert result.exit_code == 2
        assert "as in 2s" in result.output or "write it as 200ms" in result.output


class TestSafety:
    def test_what_is_half_made_or_no_log(self, root):
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

    def test_what_vanishes_meanwhile(self, root, monkeypatch):
        source(root, "A")
        source(root, "B")
        sink(root, "C")
        opened = Counters.open

        def vanishing(path: Path) -> Counters:
            found = opened(path)
            if path.name == "counters":
                shutil.rmtree(path.parent)
            else:
                raise LogError("gone")
            return found

        monkeypatch.setattr(Counters, "open", vanishing)
        assert read_streams([root], now=time.monotonic_ns()) == []

    def test_leftovers_of_dead_sinks_are_removed(self, root):
        sink(root)
        left = root / "publishers" / f"{DEAD}-5-0.counters"
        left.touch()
        assert [s["kind"] for s in as_json()["streams"]] == [Kind.SINK.value]
        assert not left.exists()
