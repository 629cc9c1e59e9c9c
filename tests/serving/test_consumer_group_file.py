"""The consumer groups of one log: what is written when, what expires, and what was trimmed before a group had it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from spark_rtps.monitoring.consumer_groups import count_groups, read_groups
from spark_rtps.serving.consumer_group_file import ConsumerGroupFile
from spark_rtps.serving.served_logs import Refusal
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.frame import Cursor

DAY = 86_400 * 10**9
NOW = 20_000 * DAY


class Beside:
    """The folder of a log, its receiver's counters, and its groups."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.groups = ConsumerGroupFile(directory, DAY)
        self.begin()

    def begin(self, base: int = 0) -> None:
        """The receiver starts, and writes its counters anew."""
        counters = Counters.create(self.directory / "counters")
        self.base, self.consumer = counters.counter("log.base"), counters.counter("log.consumer")
        self.base.set(base)
        self.consumer.set(base)

    def commit(self, name: str, position: int, *, at: int = NOW, holds: bool = False) -> None:
        self.groups.commit(name, Cursor(position), at, base=self.base.get(), holds_log=holds)

    def kept(self) -> dict[str, int]:
        return {group.name: group.position for group in read_groups(self.directory)}

    def told(self, at: int = NOW) -> dict[str, int]:
        return {name: each["position"] for name, each in json.loads(self.groups.told(at))["groups"].items()}


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    return Beside(tmp_path)


def test_a_new_group_is_on_the_disk_at_once(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    beside.commit("g", 32)
    assert beside.kept() == {"g": 32} and len(synced) == 2, "the file and its folder"


def test_how_far_it_is_follows(beside: Beside) -> None:
    beside.commit("g", 32)
    beside.commit("g", 64)
    assert (beside.told(), beside.kept()) == ({"g": 64}, {"g": 32})
    beside.groups.keep(NOW, holds_log=False)
    assert beside.kept() == {"g": 64}
    written = (beside.directory / "groups.json").stat().st_ino
    beside.groups.keep(NOW, holds_log=False)
    assert (beside.directory / "groups.json").stat().st_ino == written, "nothing has changed"


def test_a_log_that_waits_for_groups_goes_on_when_it_is_written(beside: Beside) -> None:
    beside.commit("g", 32, holds=True)
    beside.commit("g", 64, holds=True)
    assert (beside.kept(), beside.consumer.get()) == ({"g": 64}, 64)


def test_a_receiver_that_starts_again_is_told_what_may_go(beside: Beside) -> None:
    beside.commit("g", 96, holds=True)
    beside.begin(32)
    beside.groups.keep(NOW, holds_log=False)
    assert beside.consumer.get() == 32, "another retention: nobody is waited for"
    beside.groups.keep(NOW, holds_log=True)
    assert beside.consumer.get() == 96


def test_a_group_that_expires_holds_the_log_no_longer(
    beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    beside.commit("slow", 0, holds=True)
    beside.commit("fast", 96, at=NOW + DAY, holds=True)
    beside.groups.keep(NOW + DAY, holds_log=True)
    assert (beside.consumer.get(), caplog.messages) == (0, [])
    beside.groups.keep(NOW + DAY + 1, holds_log=True)
    assert (beside.consumer.get(), beside.kept()) == (96, {"fast": 96})
    assert ["slow" in said and "groups_retention" in said for said in caplog.messages] == [True]
    beside.groups.keep(NOW + 3 * DAY, holds_log=True)
    assert (beside.told(), beside.kept()) == ({}, {})


def test_a_group_that_was_overtaken(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    """Said once, and counted, while it is behind and after it went on."""
    beside.commit("late", 32)
    beside.commit("timely", 256)
    beside.groups.keep(NOW, holds_log=False)
    assert not caplog.messages
    beside.base.set(128)
    for _ in range(2):
        beside.groups.keep(NOW, holds_log=False)
    (said,) = caplog.messages
    assert all(part in said for part in ("late", "96 bytes", str(beside.directory), "log.max_bytes"))
    counted = {
        "groups.count": 2,
        "groups.behind_bytes": 224,
        "groups.overtaken": 1,
        "groups.missed_bytes": 96,
    }
    assert count_groups(beside.directory, base=128, end=256) == counted
    beside.commit("late", 160)
    beside.base.set(192)
    beside.groups.keep(NOW, holds_log=False)
    assert len(caplog.messages) == 1, "each group is named once"
    found = count_groups(beside.directory, base=192, end=256)
    assert (found["groups.overtaken"], found["groups.missed_bytes"]) == (1, 96 + 32)
    beside.commit("late", 256)
    beside.groups.keep(NOW, holds_log=False)
    found = count_groups(beside.directory, base=192, end=256)
    assert (found["groups.overtaken"], found["groups.missed_bytes"]) == (0, 128)


def test_a_group_that_was_removed_is_named_again(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    beside.base.set(64)
    for count in (1, 2):
        beside.groups.commit("g", Cursor(0), NOW, base=0, holds_log=False)
        beside.groups.keep(NOW, holds_log=False)
        assert len(caplog.messages) == count
        beside.groups.delete("g", NOW, holds_log=False)
        beside.groups.keep(NOW, holds_log=False)


def test_a_log_without_groups_costs_nothing(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counters, "open", lambda *_: pytest.fail("nobody wants to know"))
    beside.groups.keep(NOW, holds_log=True)
    assert count_groups(beside.directory, base=0, end=9) == {}


def test_counters_that_are_not_there_yet(beside: Beside, tmp_path: Path) -> None:
    for make in (lambda path: path.unlink(), lambda path: path.write_bytes(b"?"), Counters.create):
        make(tmp_path / "counters")
        beside.commit("g", 32, holds=True)
        beside.groups.keep(NOW, holds_log=True)
    beside.begin()
    beside.groups.keep(NOW, holds_log=True)
    assert beside.consumer.get() == 32


def test_a_disk_that_refuses(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    beside.commit("g", 32)
    with monkeypatch.context() as full:
        full.setattr(os, "replace", refuse)
        with pytest.raises(Refusal, match="No space") as refused:
            beside.commit("new", 32)
        assert refused.value.answer.status == 503 and beside.told() == {"g": 32}
        beside.commit("g", 64)
        with pytest.raises(Refusal, match="No space"):
            beside.groups.keep(NOW, holds_log=False)
    beside.groups.keep(NOW, holds_log=False)
    assert beside.kept() == {"g": 64}


def test_clocks_that_are_set_back(beside: Beside) -> None:
    beside.commit("g", 32, at=NOW + 9 * DAY)
    again = ConsumerGroupFile(beside.directory, DAY)
    again.keep(NOW, holds_log=False)
    again.keep(NOW + DAY + 1, holds_log=False)
    assert beside.kept() == {}


def test_a_file_that_was_cut(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    """It is put aside and named; groups are known again as they commit."""
    path = beside.directory / "groups.json"
    path.write_text('{"v":1,"groups":{"g":{"position":1')
    assert beside.told() == {} and not path.exists()
    assert path.with_name("groups.json.damaged").read_text().endswith('"position":1')
    (said,) = caplog.messages
    assert str(path) in said and "groups.json.damaged" in said
    beside.commit("g", 32)
    assert beside.kept() == {"g": 32}


def test_a_group_that_is_not_there(beside: Beside) -> None:
    with pytest.raises(Refusal, match="no such consumer group") as refused:
        beside.groups.delete("g", NOW, holds_log=False)
    assert refused.value.answer.status == 404
