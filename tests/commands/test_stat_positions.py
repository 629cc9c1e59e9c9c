"""`spark-rtps stat`: positions, sums over all streams, and statuses."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from spark_rtps.commands.tables import duration
from spark_rtps.monitoring.stream_counters import raised, statuses
from spark_rtps.transport.structure import Guid
from tests.commands.stat_scene import DEAD, SECOND, as_json, run, sink, source

pytestmark = pytest.mark.usefixtures("root")


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

    def test_positions_of_a_sink(self, root: Path) -> None:
        self.sink(root, is_connected=1, fc_receivers=3)
        (stream,) = as_json()["streams"]  # type: ignore[misc]
        assert stream["positions"] == {  # type: ignore[has-type]
            **self.SENDER,
            "is_connected": True,
            "receivers": 3,
            "window": 4096,
            "lag": 1024,
        }
        output = run().stdout
        assert "positions of the sinks" in output
        for text in ("pub-pos", "snd-bpe", "9216", "40960", "8192", "12288", "17", "1.0 KiB", "4.0 KiB"):
            assert text in output
        assert "not connected" not in output

    def test_that_nobody_reads(self, root: Path) -> None:
        self.sink(root, is_connected=0)
        (stream,) = as_json()["streams"]  # type: ignore[misc]
        assert (stream["positions"]["is_connected"], stream["positions"]["receivers"]) == (False, None)  # type: ignore[has-type]
        assert "not connected" in run().stdout

    @pytest.mark.parametrize("name", SENDER)
    def test_that_has_no_publication_log(self, root: Path, name: str) -> None:
        sink(root, **{f"writer__{other}": 1 for other in self.SENDER if other != name})
        (stream,) = as_json()["streams"]  # type: ignore[misc]
        assert stream["positions"] is None  # type: ignore[has-type]
        assert "positions" not in run().stdout

    def test_a_limit_behind_its_position(self, root: Path) -> None:
        """The limit stays where a reader that left had put it; there is no window below nothing."""
        self.sink(root, snd_lmt=4096, pub_pos=8000)
        positions = as_json()["streams"][0]["positions"]
        assert (positions["window"], positions["lag"]) == (0, 0)

    def test_positions_of_a_source(self, root: Path) -> None:
        one = {"rcv_pos": 90, "rcv_hwm": 101, "sub_pos": 80, "window": 131072, "rtt_ns": 250_000}
        self.source(root, one, {"guid_high": 0, "guid_low": 0}, {"rcv_hwm": 7})
        (stream,) = as_json()["streams"]  # type: ignore[misc]
        assert stream["writers"] == [  # type: ignore[has-type]
            {"guid": str(self.WRITER), **one, "lag": 21},
            {"guid": str(self.WRITER), "rcv_pos": 0, "rcv_hwm": 7, "sub_pos": 0, "window": 0}
            | {"rtt_ns": None, "lag": 7},
        ]
        output = run().stdout
        assert "positions of the sources" in output
        for text in (str(self.WRITER), "rcv-pos", "90", "101", "80", "21 B", "128 KiB", "250 us"):
            assert text in output

    @pytest.mark.parametrize(
        ("ns", "text"),
        [(0, "0 ns"), (999, "999 ns"), (1500, "1.5 us"), (20_000_000, "20.0 ms"), (3_000 * SECOND, "3000 s")],
    )
    def test_durations(self, ns: int, text: str) -> None:
        assert duration(ns) == text


class TestSystem:
    def test_sums_over_all_streams(self, root: Path) -> None:
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

    def test_half_counted_is_not_counted(self, root: Path) -> None:
        sink(root, writer__nack_frags=3)
        assert as_json()["system"]["naks_received"] is None
        sink(root, number=1, writer__nack_frags=3, writer__nacks_received=4)
        assert as_json()["system"]["naks_received"] == 7

    def test_only_those_shown(self, root: Path) -> None:
        source(root, receiver__pid=DEAD, reader__nacks_sent=5)
        assert as_json()["system"]["naks_sent"] is None
        assert as_json("--all")["system"]["naks_sent"] == 5

    def test_the_same_keys_without_streams(self, root: Path) -> None:
        empty = as_json()["system"]
        source(root)
        sink(root)
        assert (
            set(as_json()["system"]) == set(empty) > {"naks_received", "flow_control_limits", "repairs_sent"}  # type: ignore[call-overload]
        )

    def test_table(self, root: Path) -> None:
        source(root, reader__nacks_sent=4711)
        assert "all streams together" not in run().stdout
        output = run("--system").stdout
        assert "all streams together" in output
        assert "naks sent" in output
        assert "4711" in output
        assert "status messages sent" in output


class TestStatuses:
    def test_labels(self) -> None:
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

    def test_statuses_have_one_row_each(self, root: Path) -> None:
        source(
            root,
            status__sample_lost__total_count=3,
            status__sample_lost__by_gap=2,
            status__liveliness_changed__alive_count=0,
            status__subscription_matched__current_count=1,
            drop__bad_fragment=4,
            drop__not_rtps=0,
        )
        output = run().stdout
        assert output.count("Square") == 4  # one stream, three rows below
        assert "total_count 3, by_gap 2" in output
        assert "SUBSCRIPTION_MATCHED" in output
        assert "LIVELINESS_CHANGED" not in output
        assert "bad_fragment 4" in output
        assert "not_rtps" not in output

    def test_no_table_without_any(self, root: Path) -> None:
        source(root)
        assert "statuses" not in run().stdout
