"""Trimmed segments become the next ones: nothing of what they held comes back, and they take no more room."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_rtps.transport.errors import LogFullError, LogLostError
from spark_rtps.transport.log import segment, stream_log
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.frame_scan import FrameHeader, SegmentFrames
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.small_file import UNFINISHED
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.log.verification import verify
from tests.log.make_runs import all_samples, guid, read, samples, single, uniform

W1 = guid(1)
PAGE = segment.PAGE
SEGMENT = 2 * PAGE


@pytest.fixture
def log(tmp_path: Path) -> StreamLog:
    return StreamLog.create(tmp_path / "log", max_bytes=8 * SEGMENT, segment_bytes=SEGMENT, metadata={})


def append(log: StreamLog, payload_bytes: int = 300) -> None:
    assert log.append(single(W1, log.rows + 1, payload_bytes), reception=0)


def fill(log: StreamLog, segments: int) -> None:
    """Append until so many segments are begun."""
    while len(log._segments.files) < segments:
        append(log)


def files(log: StreamLog, kind: str) -> dict[int, Path]:
    return {path.stat().st_ino: path for path in log.directory.glob(f"*.{kind}")}


def crashed(log: StreamLog) -> Path:
    twin = log.directory.with_name("crashed")
    shutil.rmtree(twin, ignore_errors=True)
    return Path(shutil.copytree(log.directory, twin))


def test_a_trimmed_segment_is_the_next_one(log: StreamLog) -> None:
    fill(log, 3)
    first = set(files(log, "segment"))
    log.trim(2 * SEGMENT)
    spares = set(files(log, "spare"))
    assert len(spares) == 2 and spares < first
    fill(log, 3)
    assert set(files(log, "segment")) == first, "no new file"
    assert not files(log, "spare")


def test_spare_segments_are_few_and_count_in_the_size(log: StreamLog) -> None:
    fill(log, 8)
    log.trim(log.position)
    assert len(files(log, "spare")) == 4
    append(log, 5 * SEGMENT)  # a segment of its own, for which spares make room
    held = [*files(log, "segment").values(), *files(log, "spare").values()]
    assert sum(path.stat().st_size for path in held) <= log.max_bytes


def test_a_segment_that_is_trimmed_soon_is_not_mapped_again(log: StreamLog) -> None:
    fill(log, 1)
    first = log._tail
    fill(log, 2)
    log.trim(SEGMENT)
    fill(log, 2)
    assert log._tail is not None and log._tail is first
    append(log)
    assert [s.sn for s in read(log.directory, log.base, log.position)][-1] == log.rows


def test_few_segments_stay_mapped(log: StreamLog) -> None:
    fill(log, 8)
    assert len(log._segments._spares._mapped) == 4
    log.trim(log.position)
    log.close()
    assert not log._segments._spares._mapped


def test_a_replaced_spare_is_written_by_its_new_file(log: StreamLog) -> None:
    """Somebody put a copy in the place of a spare: its old mapping is not what others read."""
    fill(log, 3)
    log.trim(2 * SEGMENT)
    for spare in files(log, "spare").values():
        copy = spare.with_suffix(".copy")
        shutil.copy(spare, copy)
        copy.replace(spare)
    fill(log, 3)
    assert [s.sn for s in read(log.directory, log.base, log.position)][-1] == log.rows
    assert verify(LogView(log.directory)).is_sound


def test_no_spares_are_left_behind(log: StreamLog) -> None:
    fill(log, 4)
    log.trim(log.position)
    twin = crashed(log)
    assert list(twin.glob("*.spare"))
    with StreamLog.open(twin):
        assert not list(twin.glob("*.spare"))
    log.close()
    assert not files(log, "spare")


def test_a_spare_that_was_removed_or_cut_is_no_loss(log: StreamLog) -> None:
    fill(log, 5)
    log.trim(4 * SEGMENT)
    removed, cut, *_ = files(log, "spare").values()
    removed.unlink()
    with cut.open("r+b") as file:
        file.truncate(PAGE)
    fill(log, 6)
    assert [s.sn for s in read(log.directory, log.base, log.position)][-1] == log.rows
    assert all(path.stat().st_size == SEGMENT for path in files(log, "segment").values())


def test_a_killed_appender_is_resumed_wherever_it_is_in_a_spare(log: StreamLog) -> None:
    """Old frames lie behind each new one, some where one begins; they are neither frames nor damage."""
    fill(log, 6)
    log.trim(5 * SEGMENT)
    while len(log._segments.files) < 5:
        append(log, 36 + log.rows % 5 * 32)
        with StreamLog.open(crashed(log)) as again:
            assert not again.damage
            assert (again.position, again.rows) == (log.position, log.rows)
            assert again.append(uniform(W1, again.rows + 1, 3), reception=0)
            numbers = [s.sn for s in read(again.directory, again.base, again.position)]
            assert numbers == list(range(numbers[0], again.rows + 1))
            assert verify(LogView(again.directory)).is_sound


def test_a_killed_appender_is_resumed_in_a_spare_without_a_frame(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 3)
    log.trim(2 * SEGMENT)

    class Killed(BaseException):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    while log._tail is not None and log._tail.end - log.position > 512:
        append(log)
    with monkeypatch.context() as patched:
        patched.setattr(stream_log, "write_run", kill)
        with pytest.raises(Killed):
            append(log, 400)
    assert len(log._segments.files) == 2 and not list(
        LogView(log.directory).frames(*[Cursor(log.position)] * 2)
    )
    with StreamLog.open(crashed(log)) as again:
        assert not again.damage
        assert again.rows == log.rows


def test_a_reader_fails_when_its_range_was_overwritten(log: StreamLog) -> None:
    fill(log, 3)
    end = Cursor(log.position)
    frames = LogView(log.directory).frames(Cursor(0), end)
    got = samples(next(frames).run)
    log.trim(log.position)
    fill(log, 3)
    with pytest.raises(LogLostError, match="is no longer in the log"):
        got += all_samples(frames)
    assert [s.sn for s in got] == [1]


def test_a_reader_fails_at_its_end_when_its_range_was_trimmed(log: StreamLog) -> None:
    fill(log, 3)
    frames = LogView(log.directory).frames(Cursor(0), Cursor(log.position))
    for frame in frames:
        if frame.stop == log.position:
            break
    log.trim(SEGMENT)
    with pytest.raises(LogLostError, match="position 0 is no longer in the log"):
        next(frames)


def test_a_body_that_is_overwritten_while_it_is_verified_is_trimmed_and_not_damaged(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 3)
    frames = LogView(log.directory).frames(Cursor(0), Cursor(log.position))

    def overwritten(_segment: SegmentFrames, _header: FrameHeader) -> bool:
        log.trim(log.position)
        return False

    monkeypatch.setattr(SegmentFrames, "is_whole", overwritten)
    with pytest.raises(LogLostError, match="position 0 is no longer in the log"):
        next(frames)


def test_on_a_full_disk_spares_make_room_for_a_long_frame(
    log: StreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 6)
    log.trim(log.position)
    allocate = segment.allocate

    def scarce(fd: int, directory: Path, size: int) -> None:
        if files(log, "spare"):  # all that the disk has
            raise LogFullError("no room", path=directory)
        allocate(fd, directory, size)

    monkeypatch.setattr(segment, "allocate", scarce)
    append(log, 2 * SEGMENT)
    assert [s.sn for s in read(log.directory, log.base, log.position)][-1] == log.rows


def test_opening_a_log_leaves_what_other_processes_write_just_now(log: StreamLog) -> None:
    log.close()
    theirs = log.directory / f"decoding_report{UNFINISHED}"
    theirs.write_text("x")
    StreamLog.open(log.directory).close()
    assert theirs.exists()
