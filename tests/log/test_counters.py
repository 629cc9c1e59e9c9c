"""Counters: one process's numbers, seen by the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark_rtps.transport.errors import LogError, UsageError
from spark_rtps.transport.log.counters import Counters


def test_the_creator_adds_and_all_see(tmp_path: Path) -> None:
    mine = Counters.create(tmp_path / "counters")
    position = mine.counter("log.position")
    position.set(42)
    other = Counters.open(tmp_path / "counters")
    assert other.counter("log.position").get() == 42
    assert mine.counter("log.position") is position

    lost = mine.counter("reader.lost_samples")  # after the other one opened
    assert lost.add() == 1 and lost.add(5) == 6
    assert other.counter("reader.lost_samples").get() == 6
    assert other.snapshot() == mine.snapshot() == {"log.position": 42, "reader.lost_samples": 6}


@pytest.mark.parametrize("value", [0, -1, (1 << 63) - 1, -(1 << 63)])
def test_values_are_int64(tmp_path: Path, value: int) -> None:
    mine = Counters.create(tmp_path / "counters")
    mine.counter("c").set(value)
    assert Counters.open(tmp_path / "counters").counter("c").get() == value


def test_a_reader_adds_no_label(tmp_path: Path) -> None:
    mine = Counters.create(tmp_path / "counters")
    mine.counter("log.base")
    with pytest.raises(LogError, match=r"no counter 'log.bass' .* there are log.base"):
        Counters.open(tmp_path / "counters").counter("log.bass")


def test_labels_are_bounded(tmp_path: Path) -> None:
    mine = Counters.create(tmp_path / "counters", capacity=2)
    for label in ("", "x" * 61, "\N{GREEK SMALL LETTER OMEGA}" * 31):
        with pytest.raises(UsageError, match="1 to 60 bytes"):
            mine.counter(label)
    labels = ["x" * 60, "\N{GREEK SMALL LETTER OMEGA}" * 30]
    for label in labels:
        mine.counter(label).set(1)
    assert list(Counters.open(tmp_path / "counters").snapshot()) == labels
    with pytest.raises(LogError, match="is full"):
        mine.counter("one more")
    with pytest.raises(UsageError):
        Counters.create(tmp_path / "none", capacity=0)


def test_an_invalid_counters_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    with pytest.raises(LogError, match="cannot open"):
        Counters.open(path)
    Counters.create(path)
    whole = path.read_bytes()
    for raw in (b"", whole[:63], whole[:-1], b"X" + whole[1:], whole[:8] + b"\xff" * 8 + whole[16:]):
        path.write_bytes(raw)
        with pytest.raises(LogError, match="is not a counters file"):
            Counters.open(path)
    with pytest.raises(LogError, match="cannot create"):
        Counters.create(tmp_path / "none" / "counters")


def test_recreating_leaves_the_old_file_to_its_holders(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    Counters.create(path).counter("a").set(1)
    old = Counters.open(path)
    Counters.create(path).counter("b").set(2)
    assert old.snapshot() == {"a": 1}
    assert Counters.open(path).snapshot() == {"b": 2}
    assert [p.name for p in tmp_path.iterdir()] == ["counters"]


def test_across_processes(tmp_path: Path) -> None:
    mine = Counters.create(tmp_path / "counters")
    consumer = mine.counter("log.consumer")
    script = """
import sys
from pathlib import Path
from spark_rtps.transport.log.counters import Counters
counters = Counters.open(Path(sys.argv[1]))
counters.counter("log.consumer").set(4096)
print("set", flush=True)
sys.stdin.readline()
print(counters.counter("late").get(), flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "counters")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "set\n"
        assert consumer.get() == 4096
        mine.counter("late").set(-7)
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "-7\n"


def test_a_counter_of_more_than_it_holds_stays_at_the_most(tmp_path: Path) -> None:
    """Two writers that announce to have used all sequence numbers lose more samples than 64 bits count."""
    lost = Counters.create(tmp_path / "counters").counter("reader.lost_samples")
    lost.set(1 << 64)
    assert lost.get() == (1 << 63) - 1
    assert lost.add(5) == (1 << 63) - 1
