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


class Sidecar:
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
        self.groups.commit_offset(name, Cursor(position), now, base=self.base.get(), holds_log=holds)

    def kept(self) -> dict[str, int]:
        return {group.name: group.position for group in read_groups(self.directory)}

    def reported(self) -> dict[str, int]:
        reported = json.loads(self.groups.encoded(clocks()))["groups"]
        return {name: each["position"] for name, each in reported.items()}

    def keep(self, at: int = NOW, *, step: int = 0, holds: bool = False) -> None:
        self.groups.keep(clocks(at, step=step), holds_log=holds)

    def start_again(self, now: Clocks) -> None:
        """The server, on the host as it is now."""
        self.groups = ConsumerGroupFile(self.directory, DAY)
        self.groups.keep(now, holds_log=False)


@pytest.fixture
def sidecar(tmp_path: Path) -> Sidecar:
    return Sidecar(tmp_path)


def test_a_new_group_is_on_the_disk_at_once(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    sidecar.commit("g", 32)
    assert sidecar.kept() == {"g": 32} and len(synced) == 2, "the file and its folder"


def test_a_group_that_expires_on_a_full_disk_keeps_no_other_from_committing(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    sidecar.commit("old", 0)
    sidecar.commit("g", 0, at=NOW + DAY)
    with monkeypatch.context() as patch:
        patch.setattr("spark_rtps.serving.server.consumer_group_file.replace_text", full)
        later = NOW + DAY + 1
        sidecar.commit("g", 64, at=later)
        assert json.loads(sidecar.groups.encoded(clocks(later)))["groups"].keys() == {"g"}
        assert sidecar.kept() == {"old": 0, "g": 0}
    sidecar.keep(later)
    assert sidecar.kept() == {"g": 64}


def test_the_position_of_a_group_is_written_later(sidecar: Sidecar) -> None:
    sidecar.commit("g", 32)
    sidecar.commit("g", 64)
    assert (sidecar.reported(), sidecar.kept()) == ({"g": 64}, {"g": 32})
    sidecar.keep()
    assert sidecar.kept() == {"g": 64}
    written = (sidecar.directory / "groups.json").stat().st_ino
    sidecar.keep()
    assert (sidecar.directory / "groups.json").stat().st_ino == written, "nothing has changed"


def test_a_log_that_waits_for_groups_goes_on_when_it_is_written(sidecar: Sidecar) -> None:
    sidecar.commit("g", 32, holds=True)
    sidecar.commit("g", 64, holds=True)
    assert (sidecar.kept(), sidecar.consumer.get()) == ({"g": 64}, 64)


def test_a_restarted_receiver_gets_the_trim_position(sidecar: Sidecar) -> None:
    sidecar.commit("g", 96, holds=True)
    sidecar.begin(32)
    sidecar.keep()
    assert sidecar.consumer.get() == 32, "another retention: nobody is waited for"
    sidecar.keep(holds=True)
    assert sidecar.consumer.get() == 96


def test_a_group_that_expires_holds_the_log_no_longer(
    sidecar: Sidecar, caplog: pytest.LogCaptureFixture
) -> None:
    sidecar.commit("slow", 0, holds=True)
    sidecar.commit("fast", 96, at=NOW + DAY, holds=True)
    sidecar.keep(NOW + DAY, holds=True)
    assert (sidecar.consumer.get(), caplog.messages) == (0, [])
    sidecar.keep(NOW + DAY + 1, holds=True)
    assert (sidecar.consumer.get(), sidecar.kept()) == (96, {"fast": 96})
    assert ["slow" in output and "groups_retention" in output for output in caplog.messages] == [True]
    sidecar.keep(NOW + 3 * DAY, holds=True)
    assert (sidecar.reported(), sidecar.kept()) == ({}, {})


def test_a_group_that_was_overtaken(sidecar: Sidecar, caplog: pytest.LogCaptureFixture) -> None:
    """LogOnce once, and counted, while it is behind and after it went on."""
    sidecar.commit("late", 32)
    sidecar.commit("timely", 256)
    sidecar.keep()
    assert not caplog.messages
    sidecar.base.set(128)
    for _ in range(2):
        sidecar.keep()
    (output,) = caplog.messages
    assert all(part in output for part in ("late", "96 bytes", str(sidecar.directory), "log.max_bytes"))
    counted = {
        "groups.count": 2,
        "groups.behind_bytes": 224,
        "groups.overtaken": 1,
        "groups.missed_bytes": 96,
    }
    assert count_groups(sidecar.directory, base=128, end=256) == counted
    sidecar.commit("late", 160)
    sidecar.base.set(192)
    sidecar.keep()
    assert len(caplog.messages) == 1, "each group is named once"
    found = count_groups(sidecar.directory, base=192, end=256)
    assert (found["groups.overtaken"], found["groups.missed_bytes"]) == (1, 96 + 32)
    sidecar.commit("late", 256)
    sidecar.keep()
    found = count_groups(sidecar.directory, base=192, end=256)
    assert (found["groups.overtaken"], found["groups.missed_bytes"]) == (0, 128)


def test_a_group_that_was_removed_is_named_again(sidecar: Sidecar, caplog: pytest.LogCaptureFixture) -> None:
    sidecar.base.set(64)
    for count in (1, 2):
        sidecar.groups.commit_offset("g", Cursor(0), clocks(), base=0, holds_log=False)
        sidecar.keep()
        assert len(caplog.messages) == count
        sidecar.groups.delete("g", clocks(), holds_log=False)
        sidecar.keep()


def test_a_log_without_groups_costs_nothing(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counters, "open", lambda *_: pytest.fail("nobody wants to know"))
    sidecar.keep(holds=True)
    assert count_groups(sidecar.directory, base=0, end=9) == {}


def test_counters_that_are_not_there_yet(sidecar: Sidecar, tmp_path: Path) -> None:
    for make in (lambda path: path.unlink(), lambda path: path.write_bytes(b"?"), Counters.create):
        make(tmp_path / "counters")
        sidecar.commit("g", 32, holds=True)
        sidecar.keep(holds=True)
    sidecar.begin()
    sidecar.keep(holds=True)
    assert sidecar.consumer.get() == 32


def test_a_disk_that_refuses(sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    sidecar.commit("g", 32)
    with monkeypatch.context() as full:
        full.setattr(os, "replace", refuse)
        with pytest.raises(Refusal, match="No space") as refused:
            sidecar.commit("new", 32)
        assert refused.value.answer.status == 503 and sidecar.reported() == {"g": 32}
        sidecar.commit("g", 64)
        with pytest.raises(Refusal, match="No space"):
            sidecar.keep()
    sidecar.keep()
    assert sidecar.kept() == {"g": 64}


@pytest.mark.parametrize("step", [-9 * DAY, -HOUR, HOUR, 9 * DAY])
def test_a_clock_that_is_set_changes_no_age(sidecar: Sidecar, step: int) -> None:
    sidecar.commit("g", 32)
    sidecar.keep(NOW + DAY, step=step)
    assert sidecar.kept() == {"g": 32}
    sidecar.keep(NOW + DAY + 1, step=step)
    assert sidecar.kept() == {}


@pytest.mark.parametrize("step", [-9 * DAY, -HOUR, HOUR, 9 * DAY])
def test_nor_does_it_where_only_the_server_starts_again(sidecar: Sidecar, step: int) -> None:
    sidecar.commit("g", 32, step=-step)
    sidecar.start_again(clocks(NOW + DAY, step=step))
    assert sidecar.kept() == {"g": 32}
    sidecar.start_again(clocks(NOW + DAY + 1, step=step))
    assert sidecar.kept() == {}


def test_a_host_that_was_off(sidecar: Sidecar) -> None:
    """The wall clock says for how long, and is believed for half of the retention."""
    on = NOW + 3 * HOUR
    for step, counted in ((-9 * DAY, 0), (0, 3 * HOUR), (HOUR, 4 * HOUR), (9 * DAY, DAY // 2)):
        sidecar.commit("g", 32)
        sidecar.start_again(clocks(on, step=step, boot="second", booted=on))
        left = DAY - counted
        sidecar.start_again(clocks(on + left, step=step, boot="second", booted=on))
        assert sidecar.kept() == {"g": 32}
        sidecar.start_again(clocks(on + left + 1, step=step, boot="second", booted=on))
        assert sidecar.kept() == {}
        sidecar.groups = ConsumerGroupFile(sidecar.directory, DAY)


def test_the_idle_time_of_a_group_is_written(sidecar: Sidecar) -> None:
    """Else a host that was off soon after would have it all in the half that is believed."""
    sidecar.commit("g", 32)
    for hour in range(1, 24):
        sidecar.keep(NOW + hour * HOUR)
    on = NOW + 24 * HOUR
    sidecar.start_again(clocks(on, boot="second", booted=on))
    sidecar.start_again(clocks(on + 1, boot="second", booted=on))
    assert sidecar.kept() == {}


def test_the_clocks_of_this_host() -> None:
    first = Clocks.read_now()
    assert first.boot and Clocks.read_now().since(first, at_most=-1) >= 0
    assert abs(first.wall_ns - time.time_ns()) < HOUR


def test_a_kernel_that_has_no_id(sidecar: Sidecar) -> None:
    sidecar.groups.commit_offset("g", Cursor(0), clocks(boot=""), base=0, holds_log=False)
    sidecar.start_again(clocks(NOW + DAY, boot=""))
    sidecar.start_again(clocks(NOW + DAY, boot=""))
    assert sidecar.kept() == {"g": 0}


def test_a_file_that_was_cut(sidecar: Sidecar, caplog: pytest.LogCaptureFixture) -> None:
    """It is put aside and named; groups are known again as they commit."""
    path = sidecar.directory / "groups.json"
    path.write_text('{"v":1,"groups":{"g":{"position":1')
    assert sidecar.reported() == {} and not path.exists()
    assert path.with_name("groups.json.damaged").read_text().endswith('"position":1')
    (output,) = caplog.messages
    assert str(path) in output and "groups.json.damaged" in output
    sidecar.commit("g", 32)
    assert sidecar.kept() == {"g": 32}


def test_a_damaged_file_stops_trims_until_all_groups_are_known_again(sidecar: Sidecar) -> None:
    sidecar.commit("slow", 32, holds=True)
    sidecar.commit("fast", 96, holds=True)
    path = sidecar.directory / "groups.json"
    path.write_text(path.read_text()[:-9])
    sidecar.start_again(clocks())
    sidecar.commit("fast", 128, holds=True)
    assert sidecar.consumer.get() == 32, "slow has not read what follows"
    sidecar.commit("slow", 64, at=NOW + 60 * 10**9, holds=True)
    sidecar.keep(NOW + 130 * 10**9, holds=True)
    assert sidecar.consumer.get() == 64


def test_a_group_that_is_not_there(sidecar: Sidecar) -> None:
    with pytest.raises(Refusal, match="no such consumer group") as refused:
        sidecar.groups.delete("g", clocks(), holds_log=False)
    assert refused.value.answer.status == 404
