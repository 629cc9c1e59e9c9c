"""The consumer groups of one log: what is written when, what expires, and what was trimmed before a group had it."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from spark_rtps.monitoring.consumer_groups import count_groups, read_groups
from spark_rtps.serving.server.consumer_group_file import ConsumerGroupFile
from spark_rtps.serving.server.http_messages import Refusal
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.host_clocks import Clocks

HOUR = 3_600 * 10**9
DAY = 24 * HOUR
NOW = 20_000 * DAY


def clocks(at: int = NOW, *, step: int = 0, boot: str = "first", booted: int = NOW - DAY) -> Clocks:
    """What a host shows that started at ``booted``, and whose wall clock is wrong by ``step``."""
    return Clocks(at + step, at - booted, boot)


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

    def commit(self, name: str, position: int, *, at: int = NOW, step: int = 0, holds: bool = False) -> None:
        now = clocks(at, step=step)
        self.groups.commit(name, Cursor(position), now, base=self.base.get(), holds_log=holds)

    def kept(self) -> dict[str, int]:
        return {group.name: group.position for group in read_groups(self.directory)}

    def told(self) -> dict[str, int]:
        told = json.loads(self.groups.encoded(clocks()))["groups"]
        return {name: each["position"] for name, each in told.items()}

    def keep(self, at: int = NOW, *, step: int = 0, holds: bool = False) -> None:
        self.groups.keep(clocks(at, step=step), holds_log=holds)

    def start_again(self, now: Clocks) -> None:
        """The server, on the host as it is now."""
        self.groups = ConsumerGroupFile(self.directory, DAY)
        self.groups.keep(now, holds_log=False)


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    return Beside(tmp_path)


def test_a_new_group_is_on_the_disk_at_once(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    beside.commit("g", 32)
    assert beside.kept() == {"g": 32} and len(synced) == 2, "the file and its folder"


def test_a_group_that_expires_on_a_full_disk_keeps_no_other_from_committing(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    beside.commit("old", 0)
    beside.commit("g", 0, at=NOW + DAY)
    with monkeypatch.context() as patch:
        patch.setattr("spark_rtps.serving.server.consumer_group_file.replace_text", full)
        later = NOW + DAY + 1
        beside.commit("g", 64, at=later)
        assert json.loads(beside.groups.encoded(clocks(later)))["groups"].keys() == {"g"}
        assert beside.kept() == {"old": 0, "g": 0}
    beside.keep(later)
    assert beside.kept() == {"g": 64}


def test_how_far_it_is_follows(beside: Beside) -> None:
    beside.commit("g", 32)
    beside.commit("g", 64)
    assert (beside.told(), beside.kept()) == ({"g": 64}, {"g": 32})
    beside.keep()
    assert beside.kept() == {"g": 64}
    written = (beside.directory / "groups.json").stat().st_ino
    beside.keep()
    assert (beside.directory / "groups.json").stat().st_ino == written, "nothing has changed"


def test_a_log_that_waits_for_groups_goes_on_when_it_is_written(beside: Beside) -> None:
    beside.commit("g", 32, holds=True)
    beside.commit("g", 64, holds=True)
    assert (beside.kept(), beside.consumer.get()) == ({"g": 64}, 64)


def test_a_receiver_that_starts_again_is_told_what_may_go(beside: Beside) -> None:
    beside.commit("g", 96, holds=True)
    beside.begin(32)
    beside.keep()
    assert beside.consumer.get() == 32, "another retention: nobody is waited for"
    beside.keep(holds=True)
    assert beside.consumer.get() == 96


def test_a_group_that_expires_holds_the_log_no_longer(
    beside: Beside, caplog: pytest.LogCaptureFixture
) -> None:
    beside.commit("slow", 0, holds=True)
    beside.commit("fast", 96, at=NOW + DAY, holds=True)
    beside.keep(NOW + DAY, holds=True)
    assert (beside.consumer.get(), caplog.messages) == (0, [])
    beside.keep(NOW + DAY + 1, holds=True)
    assert (beside.consumer.get(), beside.kept()) == (96, {"fast": 96})
    assert ["slow" in said and "groups_retention" in said for said in caplog.messages] == [True]
    beside.keep(NOW + 3 * DAY, holds=True)
    assert (beside.told(), beside.kept()) == ({}, {})


def test_a_group_that_was_overtaken(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    """Said once, and counted, while it is behind and after it went on."""
    beside.commit("late", 32)
    beside.commit("timely", 256)
    beside.keep()
    assert not caplog.messages
    beside.base.set(128)
    for _ in range(2):
        beside.keep()
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
    beside.keep()
    assert len(caplog.messages) == 1, "each group is named once"
    found = count_groups(beside.directory, base=192, end=256)
    assert (found["groups.overtaken"], found["groups.missed_bytes"]) == (1, 96 + 32)
    beside.commit("late", 256)
    beside.keep()
    found = count_groups(beside.directory, base=192, end=256)
    assert (found["groups.overtaken"], found["groups.missed_bytes"]) == (0, 128)


def test_a_group_that_was_removed_is_named_again(beside: Beside, caplog: pytest.LogCaptureFixture) -> None:
    beside.base.set(64)
    for count in (1, 2):
        beside.groups.commit("g", Cursor(0), clocks(), base=0, holds_log=False)
        beside.keep()
        assert len(caplog.messages) == count
        beside.groups.delete("g", clocks(), holds_log=False)
        beside.keep()


def test_a_log_without_groups_costs_nothing(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counters, "open", lambda *_: pytest.fail("nobody wants to know"))
    beside.keep(holds=True)
    assert count_groups(beside.directory, base=0, end=9) == {}


def test_counters_that_are_not_there_yet(beside: Beside, tmp_path: Path) -> None:
    for make in (lambda path: path.unlink(), lambda path: path.write_bytes(b"?"), Counters.create):
        make(tmp_path / "counters")
        beside.commit("g", 32, holds=True)
        beside.keep(holds=True)
    beside.begin()
    beside.keep(holds=True)
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
            beside.keep()
    beside.keep()
    assert beside.kept() == {"g": 64}


@pytest.mark.parametrize("step", [-9 * DAY, -HOUR, HOUR, 9 * DAY])
def test_a_clock_that_is_set_changes_no_age(beside: Beside, step: int) -> None:
    beside.commit("g", 32)
    beside.keep(NOW + DAY, step=step)
    assert beside.kept() == {"g": 32}
    beside.keep(NOW + DAY + 1, step=step)
    assert beside.kept() == {}


@pytest.mark.parametrize("step", [-9 * DAY, -HOUR, HOUR, 9 * DAY])
def test_nor_does_it_where_only_the_server_starts_again(beside: Beside, step: int) -> None:
    beside.commit("g", 32, step=-step)
    beside.start_again(clocks(NOW + DAY, step=step))
    assert beside.kept() == {"g": 32}
    beside.start_again(clocks(NOW + DAY + 1, step=step))
    assert beside.kept() == {}


def test_a_host_that_was_off(beside: Beside) -> None:
    """The wall clock says for how long, and is believed for half of the retention."""
    on = NOW + 3 * HOUR
    for step, counted in ((-9 * DAY, 0), (0, 3 * HOUR), (HOUR, 4 * HOUR), (9 * DAY, DAY // 2)):
        beside.commit("g", 32)
        beside.start_again(clocks(on, step=step, boot="second", booted=on))
        left = DAY - counted
        beside.start_again(clocks(on + left, step=step, boot="second", booted=on))
        assert beside.kept() == {"g": 32}
        beside.start_again(clocks(on + left + 1, step=step, boot="second", booted=on))
        assert beside.kept() == {}
        beside.groups = ConsumerGroupFile(beside.directory, DAY)


def test_what_a_group_is_idle_is_written_down(beside: Beside) -> None:
    """Else a host that was off soon after would have it all in the half that is believed."""
    beside.commit("g", 32)
    for hour in range(1, 24):
        beside.keep(NOW + hour * HOUR)
    on = NOW + 24 * HOUR
    beside.start_again(clocks(on, boot="second", booted=on))
    beside.start_again(clocks(on + 1, boot="second", booted=on))
    assert beside.kept() == {}


def test_the_clocks_of_this_host() -> None:
    first = Clocks.read()
    assert first.boot and Clocks.read().since(first, at_most=-1) >= 0
    assert abs(first.wall_ns - time.time_ns()) < HOUR


def test_a_kernel_that_has_no_id(beside: Beside) -> None:
    beside.groups.commit("g", Cursor(0), clocks(boot=""), base=0, holds_log=False)
    beside.start_again(clocks(NOW + DAY, boot=""))
    beside.start_again(clocks(NOW + DAY, boot=""))
    assert beside.kept() == {"g": 0}


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


def test_behind_a_damaged_file_no_group_lets_go_before_the_others_are_known_again(beside: Beside) -> None:
    beside.commit("slow", 32, holds=True)
    beside.commit("fast", 96, holds=True)
    path = beside.directory / "groups.json"
    path.write_text(path.read_text()[:-9])
    beside.start_again(clocks())
    beside.commit("fast", 128, holds=True)
    assert beside.consumer.get() == 32, "slow has not read what follows"
    beside.commit("slow", 64, at=NOW + 60 * 10**9, holds=True)
    beside.keep(NOW + 130 * 10**9, holds=True)
    assert beside.consumer.get() == 64


def test_a_group_that_is_not_there(beside: Beside) -> None:
    with pytest.raises(Refusal, match="no such consumer group") as refused:
        beside.groups.delete("g", clocks(), holds_log=False)
    assert refused.value.answer.status == 404
