"""Which logs without a receiver may go, and that nobody loses one that is in use."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import uuid
from pathlib import Path

import pytest

from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log import log_retention as ended_logs_module
from spark_rtps.transport.log.error_log import ERROR_LOG, ErrorLog, read_error_log
from spark_rtps.transport.log.host_clocks import Clocks
from spark_rtps.transport.log.last_use import LAST_USE, note_in_use
from spark_rtps.transport.log.log_retention import (
    CHECKPOINT_GONE,
    TOO_MUCH,
    TOO_OLD,
    disk_bytes,
    ended_logs,
    given_up,
    note_temporary_checkpoint,
    remove_given_up,
    remove_log,
)
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.permissions import LOCK
from spark_rtps.transport.log.segment import list_segments
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.log.verification import verify
from spark_rtps.transport.receiver import log_retention
from spark_rtps.transport.receiver.config import ReceiverConfig
from tests.support.stream_logs import RECEPTION, encoded, points, run_of
from tests.support.waiting import wait_until

HOUR = 3_600 * 10**9
NOW = 1_700_000_000 * 10**9


def log(root: Path, *, age: int = 0) -> Path:
    """A log with samples, which changed so many ns before NOW."""
    directory = root / str(uuid.uuid4())
    with StreamLog.create(directory, max_bytes=1 << 20, metadata={"topic": "T"}) as made:
        assert made.append(run_of(encoded(points(0, 10)), 1), reception=RECEPTION)
    changed(directory, age)
    return directory


def changed(directory: Path, age: int) -> None:
    """As if it had last been looked at before."""
    (directory / LAST_USE).unlink(missing_ok=True)
    for file in directory.iterdir():
        os.utime(file, ns=(NOW - age, NOW - age))


def clocks(passed: int = 0, *, step: int = 0, boot: str = "first") -> Clocks:
    """So many ns after NOW, where the wall clock was set by ``step``."""
    return Clocks(NOW + passed + step, HOUR + passed, boot)


def named(root: Path, **limits: int) -> list[tuple[Path, str]]:
    return [(each.directory, why) for each, why in given_up(ended_logs(root, now=clocks()), **limits)]


def test_by_age_by_size_and_by_checkpoint(tmp_path: Path) -> None:
    oldest, older, young = (log(tmp_path, age=age * HOUR) for age in (30, 2, 1))
    (tmp_path / "no-log").mkdir()
    each = disk_bytes(young)
    assert each > 0 and [found.nbytes for found in ended_logs(tmp_path, now=clocks())] == [each] * 3
    assert named(tmp_path, period=40 * HOUR) == []
    assert named(tmp_path, period=24 * HOUR) == [(oldest, TOO_OLD)]
    assert named(tmp_path, period=24 * HOUR, nbytes=2 * each) == [(oldest, TOO_OLD)]
    assert named(tmp_path, period=24 * HOUR, nbytes=each) == [(oldest, TOO_OLD), (older, TOO_MUCH)]
    assert named(tmp_path, period=40 * HOUR, nbytes=0) == [(d, TOO_MUCH) for d in (oldest, older, young)]
    checkpoint = tmp_path / "temporary-1"
    checkpoint.mkdir()
    note_temporary_checkpoint(young, checkpoint)
    changed(young, HOUR)
    assert named(tmp_path, period=40 * HOUR) == []
    checkpoint.rmdir()
    assert named(tmp_path, period=40 * HOUR) == [(young, CHECKPOINT_GONE)]
    assert remove_given_up(tmp_path, now=clocks(), period=24 * HOUR) == [oldest, young]
    assert sorted(tmp_path.iterdir()) == sorted([older, tmp_path / "no-log"])


def test_size_spares_what_may_be_started_again_at_any_moment(tmp_path: Path) -> None:
    log(tmp_path, age=HOUR // 100)
    assert named(tmp_path, period=HOUR, nbytes=0) == []


def test_logs_in_use_or_of_a_receiver_service_stay(tmp_path: Path) -> None:
    directory = log(tmp_path, age=2 * HOUR)
    (found,) = ended_logs(tmp_path, now=clocks())
    with StreamLog.open(directory):
        assert ended_logs(tmp_path, now=clocks()) == []
        assert not remove_log(found.directory, TOO_OLD)  # a receiver has begun since
        assert not remove_log(found.directory, CHECKPOINT_GONE)
    assert list_segments(directory)
    (tmp_path / "supervisor.lock").touch()
    assert (
        ended_logs(tmp_path, now=clocks()) == [] and remove_given_up(tmp_path, now=clocks(), period=0) == []
    )
    changed(directory, 2 * HOUR)
    assert ended_logs(tmp_path, now=clocks(), in_use={directory.name}) == []
    assert remove_given_up(tmp_path, now=clocks(), period=0, in_use=()) == [directory], "it asks itself"


@pytest.mark.parametrize("mode", [0o700, 0o750])
def test_reports_outlive_the_samples_of_a_temporary_checkpoint(tmp_path: Path, mode: int) -> None:
    directory = log(tmp_path)
    directory.chmod(mode)
    ErrorLog(directory / ERROR_LOG).record("WARNING", "spark_rtps", "something", now=NOW)
    note_temporary_checkpoint(directory, tmp_path / "gone")
    changed(directory, HOUR)
    assert named(tmp_path, period=2 * HOUR) == [(directory, CHECKPOINT_GONE)]
    assert remove_log(directory, CHECKPOINT_GONE)
    assert not list_segments(directory) and directory.stat().st_mode & 0o777 == mode
    assert [error.text for error in read_error_log(directory / ERROR_LOG)[0]] == ["something"]
    assert verify(LogView(directory)).damage == []  # it is a sound log, whose samples are trimmed
    changed(directory, HOUR)
    assert named(tmp_path, period=2 * HOUR) == []
    assert named(tmp_path, period=HOUR - 1) == [(directory, TOO_OLD)]


def test_a_damaged_log_of_a_temporary_checkpoint_is_removed_before_its_reports(
    tmp_path: Path,
) -> None:
    directory = log(tmp_path)
    (directory / "writers").write_bytes(bytes(1 << 16))
    ErrorLog(directory / ERROR_LOG).record("WARNING", "spark_rtps", "something", now=NOW)
    note_temporary_checkpoint(directory, tmp_path / "gone")
    changed(directory, HOUR)
    assert remove_given_up(tmp_path, now=clocks(), period=2 * HOUR) == [directory]
    assert not list_segments(directory) and (directory / ERROR_LOG).exists()
    changed(directory, 3 * HOUR)
    assert remove_given_up(tmp_path, now=clocks(), period=2 * HOUR) == [directory]
    assert not directory.exists()


def test_a_log_that_is_used_while_others_are_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = log(tmp_path, age=4 * HOUR), log(tmp_path, age=3 * HOUR)
    remove = ended_logs_module.remove_log

    def slowly(directory: Path, why: str, **more: int) -> bool:
        if directory == first:
            with StreamLog.open(second) as again:
                assert again.append(run_of(encoded(points(10, 10)), 11), reception=RECEPTION)
        return remove(directory, why, **more)

    monkeypatch.setattr(ended_logs_module, "remove_log", slowly)
    assert remove_given_up(tmp_path, now=clocks(), period=2 * HOUR) == [first]
    assert second.exists()


def test_a_log_that_is_being_removed_is_opened_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files go in any order, that of the lock first."""
    directory = log(tmp_path)
    rmtree = shutil.rmtree

    def slowly(path: Path) -> None:
        (path / LOCK).unlink()
        with pytest.raises(LogError):
            StreamLog.open(path)
        for file in path.glob("*.segment"):
            file.unlink()
        with pytest.raises(LogError):
            StreamLog.open(path)
        rmtree(path)

    monkeypatch.setattr(ended_logs_module.shutil, "rmtree", slowly)  # type: ignore[attr-defined]
    assert remove_log(directory, TOO_OLD) and not directory.exists()


def test_a_log_that_was_in_use_a_moment_ago_is_young_on_any_file_system(tmp_path: Path) -> None:
    directory = log(tmp_path, age=30 * HOUR)
    with StreamLog.open(directory) as again:
        changed(directory, 30 * HOUR)  # tmpfs dates no file because it is appended to
        assert again.append(run_of(encoded(points(10, 10)), 11), reception=RECEPTION)
        note_in_use(directory)
        dates = [file.stat().st_mtime_ns for file in directory.iterdir()]
    assert min(dates) > NOW
    assert named(tmp_path, period=HOUR, nbytes=0) == []


def test_a_short_lock_on_a_log_refuses_no_receiver(tmp_path: Path) -> None:
    directory = log(tmp_path)
    looking = os.open(directory / "lock", os.O_RDWR)
    fcntl.flock(looking, fcntl.LOCK_EX)
    threading.Timer(0.02, os.close, (looking,)).start()
    StreamLog.open(directory).close()


def test_a_receiver_cleans_the_directory_of_its_log_repeatedly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clocks, "read_now", clocks)
    config = ReceiverConfig(str(tmp_path / "own"), "T", "Point", True)
    assert log_retention.start_log_retention(config) is None  # a receiver service's
    object.__setattr__(config, "ended_logs_period_ns", HOUR)
    before = log(tmp_path, age=2 * HOUR)
    end = log_retention.start_log_retention(config)
    assert end is not None
    wait_until(lambda: not before.exists(), "what is old already to be removed at once")
    end.set()
    end = log_retention.start_log_retention(config, period=0.01)
    assert end is not None
    for number in range(2):
        made = log(tmp_path / f"other-{number}", age=2 * HOUR)
        old = made.rename(tmp_path / made.name)
        wait_until(lambda old=old: not old.exists(), "the old log to be removed")  # type: ignore[misc]
    end.set()


YEAR = 365 * 24 * HOUR


@pytest.mark.parametrize("boot", ["first", "second"])
@pytest.mark.parametrize("step", [50 * YEAR, -50 * YEAR], ids=["forward", "back"])
def test_a_clock_that_is_set_makes_no_log_older_or_younger(tmp_path: Path, step: int, boot: str) -> None:
    """A host without a battery for its clock starts in 1970, or anywhere else; then the clock is set."""
    directory = log(tmp_path, age=2 * HOUR)
    assert remove_given_up(tmp_path, now=clocks(), period=24 * HOUR) == []
    for hours in (1, 2, 10):
        now = clocks(hours * HOUR, step=step, boot=boot)
        assert remove_given_up(tmp_path, now=now, period=40 * HOUR) == []
    # Across a start of the host, nobody knows how much of that was time.
    now = clocks(50 * HOUR, step=step, boot=boot)
    assert remove_given_up(tmp_path, now=now, period=40 * HOUR) == [directory]


def test_a_log_of_the_right_time_stays_as_old_as_it_is(tmp_path: Path) -> None:
    """A clock that is wrong after the host was started, and is set again, changes nothing about older logs."""
    directory = log(tmp_path, age=20 * HOUR)
    assert remove_given_up(tmp_path, now=clocks(), period=24 * HOUR) == []
    for wrong in (-50 * YEAR, 50 * YEAR):
        assert remove_given_up(tmp_path, now=clocks(HOUR, step=wrong), period=24 * HOUR) == []
        assert remove_given_up(tmp_path, now=clocks(HOUR), period=24 * HOUR) == []
    assert remove_given_up(tmp_path, now=clocks(3 * HOUR), period=24 * HOUR) == []
    assert remove_given_up(tmp_path, now=clocks(5 * HOUR), period=24 * HOUR) == [directory]


def test_a_log_that_was_in_use_when_the_clock_was_set_is_not_old_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = log(tmp_path)
    monkeypatch.setattr(Clocks, "read_now", clocks)
    note_in_use(directory)
    for file in directory.iterdir():
        os.utime(file, ns=(NOW, NOW))
    later = clocks(HOUR, step=50 * YEAR)
    assert remove_given_up(tmp_path, now=later, period=2 * HOUR) == []
    assert remove_given_up(tmp_path, now=later, period=HOUR // 2) == [directory]


def test_a_host_that_was_off_again_and_again_keeps_no_log_for_ever(tmp_path: Path) -> None:
    directory = log(tmp_path)
    boots = 0
    while directory.exists():
        boots += 1
        remove_given_up(tmp_path, now=clocks(20 * HOUR * boots, boot=str(boots)), period=7 * 24 * HOUR)
    assert boots == 9


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "[1, 2, 3, 4]", "7", '["x", 1, ""]', "[1e999, 1, 1]"])
def test_clocks_that_nobody_wrote_change_no_date(tmp_path: Path, text: str) -> None:
    directory = log(tmp_path, age=2 * HOUR)
    (directory / LAST_USE).write_text(text)
    assert remove_given_up(tmp_path, now=clocks(), period=24 * HOUR) == []
    assert remove_given_up(tmp_path, now=clocks(1, step=50 * YEAR), period=24 * HOUR) == []
    assert remove_given_up(tmp_path, now=clocks(23 * HOUR, step=50 * YEAR), period=24 * HOUR) == [directory]
