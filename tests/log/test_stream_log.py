"""The appender: what it keeps, what it bounds, what it refuses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from spark_rtps.transport.errors import LogError, LogFullError, LogLostError, UsageError
from spark_rtps.transport.log import segment, stream_log
from spark_rtps.transport.log.frame import HEADER_BYTES, Cursor, align, frame_length
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import read_metadata
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.wire.samples import Run
from tests.log.make_runs import RECEPTION, guid, indexed, read, samples, single, uniform
from tests.support.child_environment import child_environment

W1, W2 = guid(1), guid(2)
PAGE = segment.PAGE


def create(directory: Path, *, segments: int = 8) -> StreamLog:
    return StreamLog.create(directory, max_bytes=segments * PAGE, segment_bytes=PAGE, metadata={"topic": "T"})


def disk_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.segment"))


def segments_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.segment"))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[StreamLog]:
    with create(tmp_path / "log") as log:
        yield log


def test_runs_come_back_as_they_were(log: StreamLog) -> None:
    runs = [uniform(W1, 1, 7), indexed(W1, 8, 11), single(W1, 19), single(W2, 1, 0), uniform(W2, 2, 1)]
    for number, run in enumerate(runs):
        assert log.append(run, reception=RECEPTION + number)
    frames = list(LogView(log.directory).frames(Cursor(0), Cursor(log.position)))
    assert [samples(frame.run) for frame in frames] == [samples(run) for run in runs]
    assert [frame.reception for frame in frames] == [RECEPTION + number for number in range(5)]
    assert [frame.rows_before for frame in frames] == [0, 7, 18, 19, 20]
    assert [frame.length for frame in frames] == [align(frame_length(run)) for run in runs]
    assert [frame.run.reader_id for frame in frames] == [run.reader_id for run in runs]
    assert log.position == sum(frame.length for frame in frames)
    assert (log.rows, log.base, log.writers) == (21, 0, {W1: 19, W2: 2})


def test_frames_of_the_log_cannot_be_written_to(log: StreamLog) -> None:
    log.append(uniform(W1, 1, 2), reception=0)
    (frame,) = LogView(log.directory).frames(Cursor(0), Cursor(log.position))
    with pytest.raises(ValueError, match="read-only"):
        frame.run.data[0] = 1


def test_metadata_is_kept(tmp_path: Path) -> None:
    create(tmp_path / "log").close()
    with StreamLog.open(tmp_path / "log") as log:
        assert log.metadata == {"topic": "T"}
    assert LogView(tmp_path / "log").metadata == {"topic": "T"}


def test_metadata_is_amended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(tmp_path / "log") as log:
        log.append(uniform(W1, 1, 2), reception=0)
        assert LogView(log.directory).metadata == {"topic": "T"}
        log.amend(type="X")
        assert log.metadata == LogView(log.directory).metadata == {"topic": "T", "type": "X"}
        end = log.position
    with StreamLog.open(tmp_path / "log") as log:
        assert (log.metadata, log.position) == ({"topic": "T", "type": "X"}, end)

        def refuse(*_: object, **_named: object) -> None:
            raise OSError(errno.ENOSPC, "no room")

        monkeypatch.setattr("spark_rtps.transport.log.segment.replace_text", refuse)
        with pytest.raises(LogFullError, match="write the metadata of the stream log"):
            log.amend(type="Y")
        assert log.metadata["type"] == "X"


def test_metadata_that_replaces_those_of_samples_outlive_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a file has its name, and not yet its content, nothing of the log could be read any more."""
    directory, calls = tmp_path / "log", list[str]()
    fsync, replace = os.fsync, os.replace

    def synced(fd: int) -> None:
        calls.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    def replaced(before: Path, after: Path) -> None:
        calls.append(after.name)
        replace(before, after)

    with StreamLog.create(directory, max_bytes=64 * PAGE, segment_bytes=PAGE, metadata={}) as log:
        assert log.append(single(guid(1), 1, 100), reception=0)
        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "replace", replaced)
        log.amend(type="T")
    with StreamLog.open(directory, max_bytes=32 * PAGE):
        pass
    assert calls == ["metadata.json.new", "metadata.json", "log"] * 2


def test_segments_are_named_by_base_and_end_in_a_pad(log: StreamLog) -> None:
    sn = 1
    while log.position <= 2 * PAGE:
        assert log.append(uniform(W1, sn, 10), reception=0)
        sn += 10
    assert segments_of(log.directory) == [f"{base:020d}.segment" for base in (0, PAGE, 2 * PAGE)]
    assert [sample.sn for sample in read(log.directory, 0, log.position)] == list(range(1, sn))


def test_a_frame_that_fits_exactly_leaves_no_pad(log: StreamLog) -> None:
    for sn in (1, 2):
        assert log.append(single(W1, sn, PAGE - HEADER_BYTES - 40), reception=0)
        assert log.position == sn * PAGE
    log.trim(PAGE)
    assert [sample.sn for sample in read(log.directory, PAGE, log.position)] == [2]


def test_a_long_run_gets_a_segment_of_its_own(log: StreamLog) -> None:
    log.append(single(W1, 1), reception=0)
    assert log.append(single(W1, 2, 3 * PAGE), reception=0)
    assert log.append(single(W1, 3), reception=0)
    assert segments_of(log.directory) == [f"{base:020d}.segment" for base in (0, PAGE, 5 * PAGE)]
    got = read(log.directory, 0, log.position)
    assert got == [s for sn, size in ((1, 32), (2, 3 * PAGE), (3, 32)) for s in samples(single(W1, sn, size))]


def test_an_append_that_fails_midway_leaves_no_frame(log: StreamLog) -> None:
    log.append(single(W1, 1), reception=0)
    position = log.position
    odd = Run(W1, 2, 8, np.zeros(8, np.float64), stride=8)
    with pytest.raises(TypeError, match="Cannot cast"):
        log.append(odd, reception=0)
    assert (log.position, log.rows, log.writers) == (position, 1, {W1: 1})
    raw = (log.directory / segments_of(log.directory)[0]).read_bytes()
    assert int.from_bytes(raw[position : position + 4], "little", signed=True) == -frame_length(odd)
    with pytest.raises(LogLostError):
        read(log.directory, 0, position + 160)
    assert log.append(single(W1, 2), reception=0)
    assert [sample.sn for sample in read(log.directory, 0, log.position)] == [1, 2]


# --- bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [False, True])
def test_an_append_that_is_interrupted_once_its_frame_is_there(
    sealed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The frame counts when the log is opened again: its writer is not asked for it once more."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    log = create(tmp_path / "log")
    log.append(single(W1, 1), reception=0)
    monkeypatch.setattr(stream_log, "remember", interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.append(single(W1, 2, 2 * PAGE if sealed else 10), reception=0)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="interrupted"):
        log.append(single(W1, 3), reception=0)
    log.close()
    with StreamLog.open(tmp_path / "log") as again:
        assert (again.rows, again.writers, again.damage) == (2, {W1: 2}, [])
        assert read(again.directory, 0, again.position) == [
            *samples(single(W1, 1)),
            *samples(single(W1, 2, 2 * PAGE if sealed else 10)),
        ]


def test_max_bytes_bounds_the_disk_and_trimming_makes_room(log: StreamLog) -> None:
    sn = 1
    while log.append(single(W1, sn, 1000), reception=0):
        sn += 1
    full = log.position, log.rows, dict(log.writers)
    assert disk_bytes(log.directory) == log.max_bytes
    assert not log.append(single(W1, sn, 1000), reception=0)
    assert full == (log.position, log.rows, log.writers)
    log.trim(PAGE)
    assert log.append(single(W1, sn, 1000), reception=0)
    assert disk_bytes(log.directory) <= log.max_bytes


def test_an_append_of_free_bytes_fits(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    with StreamLog.create(tmp_path / "log", max_bytes=64 * PAGE, segment_bytes=4 * PAGE, metadata={}) as log:
        for _ in range(20):
            free = log.free_bytes
            while True:
                run = single(W1, log.rows + 1, int(rng.integers(0, PAGE // 2 - HEADER_BYTES - 40)))
                free -= align(frame_length(run))
                if free < 0:
                    break
                assert log.append(run, reception=0)
            log.trim(int(rng.integers(log.base, log.position + 1)))


@pytest.mark.parametrize("size", [10, 1500, PAGE, 2 * PAGE, 6 * PAGE])
def test_a_consumer_that_keeps_up_never_leaves_the_log_full(log: StreamLog, size: int) -> None:
    for sn in range(1, 60):
        assert log.append(single(W1, sn, size if sn % 3 else 500), reception=0)
        log.trim(log.position)


def test_a_run_that_never_fits_says_so(log: StreamLog) -> None:
    with pytest.raises(LogFullError, match=f"it needs at least {10 * PAGE}") as raised:
        log.append(single(W1, 1, 8 * PAGE), reception=0)
    error = raised.value
    assert (error.path, error.needed, error.limit, error.free) == (
        log.directory,
        10 * PAGE,
        log.max_bytes,
        None,
    )
    assert (log.position, log.rows) == (0, 0)


def test_segments_shrink_to_fit_max_bytes(tmp_path: Path) -> None:
    with StreamLog.create(tmp_path / "log", max_bytes=10 * PAGE, metadata={}) as log:
        assert log.segment_bytes == 2 * PAGE
    with pytest.raises(UsageError, match="least"):
        StreamLog.create(tmp_path / "tiny", max_bytes=PAGE, metadata={})


def test_max_bytes_may_change_between_lives(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        while log.append(single(W1, log.rows + 1, 1000), reception=0):
            pass
    with StreamLog.open(tmp_path / "log", max_bytes=16 * PAGE) as log:
        assert log.append(single(W1, log.rows + 1, 1000), reception=0)
    with StreamLog.open(tmp_path / "log", max_bytes=4 * PAGE) as log:
        assert log.free_bytes == 0 or log.free_bytes < PAGE
        log.trim(log.position)
        for sn in range(log.rows + 1, log.rows + 20):
            assert log.append(single(W1, sn, 1000), reception=0)
            log.trim(log.position)


def test_writers_are_bounded_and_the_longest_silent_goes_first(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_rtps.transport.log.checkpoint.WRITERS_MAX", 3)
    for number in (1, 2, 3, 1, 4):
        log.append(single(guid(number), 10 + number), reception=0)
    assert log.writers == {guid(3): 13, guid(1): 11, guid(4): 14}


def test_writers_that_have_left_go_before_one_that_is_there_and_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that keeps its history would send all of it again after a restart, if it was forgotten."""
    monkeypatch.setattr("spark_rtps.transport.log.checkpoint.WRITERS_MAX", 4)
    with create(tmp_path / "log") as log:
        for number in (1, 2):  # which stay, and send no more
            log.append(single(guid(number), 10 + number), reception=0)
        log.writer_gone(guid(2))
        log.writer_back(guid(2))
        for number in range(3, 30):
            log.append(single(guid(number), 10 + number), reception=0)
            log.writer_gone(guid(number))
        assert log.writers.keys() == {guid(n) for n in (1, 2, 28, 29)}
        log.writer_gone(guid(99))  # of which nothing was received
    with StreamLog.open(tmp_path / "log") as log:
        for number in (30, 31):
            log.append(single(guid(number), 10 + number), reception=0)
        assert log.writers == {guid(n): 10 + n for n in (1, 2, 30, 31)}


# --- trimming -------------------------------------------------------------------------------------


def test_trim_deletes_whole_segments_only(log: StreamLog) -> None:
    ends = []
    while log.position <= 3 * PAGE:
        log.append(single(W1, log.rows + 1, 500), reception=0)
        ends.append(log.position)
    log.trim(PAGE - 1)
    assert log.base == 0
    log.trim(2 * PAGE + 1)
    assert log.base == max(end for end in ends if end <= 2 * PAGE), "where the last trimmed sample ends"
    assert segments_of(log.directory)[0] == f"{2 * PAGE:020d}.segment"
    assert [sample.sn for sample in read(log.directory, log.base, log.position)][-1] == log.rows
    with pytest.raises(LogLostError, match="position 0 is no longer in the log"):
        read(log.directory, 0, log.position)
    with pytest.raises(UsageError, match="ends at"):
        log.trim(log.position + 1)


def test_an_empty_log_remembers_its_writers(tmp_path: Path) -> None:
    with create(tmp_path / "log") as log:
        log.append(single(W2, 5), reception=0)
        log.append(single(W1, 77, PAGE - HEADER_BYTES - 40), reception=0)
        position = log.position
        log.trim(position)
        assert (log.base, segments_of(log.directory)) == (position, [])
    with StreamLog.open(tmp_path / "log") as log:
        assert (log.position, log.base, log.rows, log.writers) == (position, position, 2, {W2: 5, W1: 77})
        assert log.append(single(W1, 78), reception=0)
    assert [sample.sn for sample in read(tmp_path / "log", position, position + 192)] == [78]


# --- one appender, misuse, strange directories ----------------------------------------------------


def test_a_second_appender_is_refused(log: StreamLog) -> None:
    with pytest.raises(LogError, match=f"process {os.getpid()} appends"):
        StreamLog.open(log.directory)
    script = f"""
from pathlib import Path
from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log.stream_log import StreamLog
try:
    StreamLog.open(Path({str(log.directory)!r}))
except LogError as error:
    print(error)
"""
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert f"process {os.getpid()} appends" in output
    log.close()
    StreamLog.open(log.directory).close()


def test_a_directory_holds_one_log(log: StreamLog) -> None:
    log.close()
    assert StreamLog.exists(log.directory)
    with pytest.raises(LogError, match="holds a stream log already"):
        create(log.directory)
    StreamLog.open(log.directory).close()


def test_opening_a_missing_log_is_an_error(tmp_path: Path) -> None:
    assert not StreamLog.exists(tmp_path / "none")
    with pytest.raises(LogError, match="there is no stream log"):
        StreamLog.open(tmp_path / "none")
    (tmp_path / "metadata.json").write_text("{}")
    with pytest.raises(LogLostError, match="is not a stream log's"):
        StreamLog.open(tmp_path)
    (tmp_path / "metadata.json").write_text("{")
    with pytest.raises(LogLostError, match=r"is damaged .*cannot be resumed") as raised:
        StreamLog.open(tmp_path)
    assert raised.value.path == tmp_path / "metadata.json"
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="cannot create a stream log"):
        create(tmp_path / "file" / "log")


def test_misuse(log: StreamLog) -> None:
    data = np.zeros(64, np.uint8)
    for run in (
        Run(W1, 1, 0, data, stride=32),
        Run(W1, 1, 3, data, stride=32),
        Run(W1, 1, 1, data),
        Run(W1, 1, 2, data, index=single(W1, 1).index),
    ):
        with pytest.raises(UsageError):
            log.append(run, reception=0)
    assert log.position == 0
    log.close()
    log.close()
    with pytest.raises(UsageError, match="closed"):
        log.append(single(W1, 1), reception=0)


# --- a full disk ----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB, where we may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.fail("this test fills a file system of its own, and mounting one needs root: run it as root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_logged_and_survived(small_disk: Path) -> None:
    def fill(log: StreamLog) -> None:
        while log.append(single(W1, log.rows + 1, 32 << 10), reception=0):
            pass

    where = small_disk / "log"
    log = StreamLog.create(where, max_bytes=1 << 30, segment_bytes=256 << 10, metadata={})
    with log, pytest.raises(LogFullError, match=f"in {where} .*No space left") as raised:
        fill(log)
    error = raised.value
    assert (error.path, error.needed, error.limit) == (where, 256 << 10, None)
    assert error.free is not None and error.free < 256 << 10
    rest = os.open(small_disk / "rest", os.O_WRONLY | os.O_CREAT)
    while os.fstatvfs(rest).f_bavail:
        os.write(rest, bytes(4096))  # not a page is left to the log
    os.close(rest)
    with StreamLog.open(where) as log:
        rows = log.rows
        assert len(read(where, 0, log.position)) == rows > 10
        with pytest.raises(LogFullError):
            fill(log)
        log.trim(log.position // 2)
        while log.rows < rows + 10:
            assert log.append(single(W1, log.rows + 1, 32 << 10), reception=0)
        got = [sample.sn for sample in read(where, log.base, log.position)]
        assert got == list(range(got[0], rows + 11))


def test_a_file_size_limit_is_a_full_disk(tmp_path: Path) -> None:
    script = f"""
import resource
from pathlib import Path
from spark_rtps.transport.errors import LogFullError
from spark_rtps.transport.log.stream_log import StreamLog
from tests.log.make_runs import guid, single
directory = Path({str(tmp_path / "log")!r})
log = StreamLog.create(directory, max_bytes=1 << 30, segment_bytes=1 << 20, metadata={{}})
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, 1 << 19))
try:
    log.append(single(guid(1), 1), reception=0)
except LogFullError as error:
    print(log.position, error, error.needed, error.limit)
"""
    child = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=child_environment(),
    )
    assert child.stdout.startswith(f"0 cannot allocate {1 << 20} bytes in {tmp_path / 'log'}")
    assert child.stdout.endswith("File too large 1048576 None\n"), "needed, limit"
    assert list((tmp_path / "log").glob("*.new")) == []


def test_only_a_full_disk_is_called_full(log: StreamLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(code: int) -> None:
        def fallocate(fd: int, offset: int, length: int) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "posix_fallocate", fallocate)

    fail(errno.ENOSPC)
    with pytest.raises(LogFullError, match="No space left on device"):
        log.append(single(W1, 1), reception=0)
    fail(errno.EIO)
    with pytest.raises(LogError, match="cannot allocate") as caught:
        log.append(single(W1, 1), reception=0)
    assert not isinstance(caught.value, LogFullError)
    monkeypatch.undo()
    assert log.append(single(W1, 1), reception=0)


def test_sparse_runs_keep_their_numbers_in_the_log_and_across_recovery(tmp_path: Path) -> None:
    data = np.arange(40, dtype=np.uint8)
    chosen = Run(W1, 10, 5, data, 8, 0, 8).select(np.array([False, True, False, True, False]))
    assert chosen is not None
    with create(tmp_path / "log") as log:
        assert log.append(chosen, reception=1)
        assert log.writers == {W1: 13}
        end = Cursor(log.position)
    (frame,) = LogView(tmp_path / "log").frames(Cursor(0), end)
    assert frame.run.sequence_numbers().tolist() == [11, 13]
    assert [bytes(frame.run.samples().payload(i)) for i in (0, 1)] == [
        bytes(range(8, 16)),
        bytes(range(24, 32)),
    ]
    with StreamLog.open(tmp_path / "log", max_bytes=8 * PAGE) as log:
        assert (log.writers, log.rows) == ({W1: 13}, 2)


def test_a_limit_that_was_changed_is_the_one_that_readers_plan_by(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    StreamLog.create(directory, max_bytes=64 * PAGE, segment_bytes=PAGE, metadata={"a": 1}).close()
    for limit in (16 * PAGE, 128 * PAGE):
        StreamLog.open(directory, max_bytes=limit).close()
        found = read_metadata(directory)
        assert (found.max_bytes, found.segment_bytes, found.given) == (limit, PAGE, {"a": 1})
