"""Offsets that the log does not have, and logs that were damaged: right rows or a named loss, never others."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from spark_rtps.monitoring.decoding_report import DAMAGED, LOG_LOST, MISPLACED, NOT_HELD
from spark_rtps.monitoring.reports import read_losses
from spark_rtps.transport.errors import LogDamagedError, LogLostError
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.receiver import writer_types
from spark_rtps.transport.receiver.config import ReceiverConfig
from tests.datasource.stream_reader_scene import ALL, Source, beyond, log_of

#: Of a frame of ten points.
FRAME = 320
TEN = list(range(10))
TWENTY = list(range(20))
LOSS = "failOnDataLoss"


@pytest.fixture
def make(make: Callable[..., Source]) -> Callable[..., Source]:
    """Logs are copied here: short segments."""
    return lambda **options: make(**{"log.segment_bytes": 64 << 10, **options})


@pytest.fixture
def written(make: Callable[..., Source]) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """The offsets of three frames in a log that nobody appends to any more, and its folder."""
    source = make()
    zero = source.begin()
    for first in (0, 10, 20):
        source.receiver.receive(first, 10)
    end = source.reader.latestOffset(zero, ALL)
    assert end["receivers"]["embedded"]["position"] == 3 * FRAME
    source.reader.stop()
    return zero, end, source.receiver.log.directory


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (was,) = file.read(1)
        file.seek(at)
        file.write(bytes([was ^ 0x40]))


def segment(directory: Path) -> Path:
    (found,) = directory.glob("*.segment")
    return found


def losses(root: Path) -> dict[str, int]:
    """Samples lost by cause; a loss of unknown size counts as one."""
    found: dict[str, int] = {}
    for report in read_losses([root]):
        for loss in report.losses:
            found[loss.cause] = found.get(loss.cause, 0) + loss.samples + loss.unknown
    return found


class TestOffsets:
    def test_beyond_the_end(
        self,
        make: Callable[..., Source],
        written: tuple[dict[str, Any], dict[str, Any], Path],
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        _, end, directory = written
        wanted = beyond(end, 96)
        for _ in range(2):  # it does not mend itself
            with pytest.raises(
                LogLostError,
                match=rf"{directory} ends at position 960, but was read up to position 1056\. Samples .*{LOSS}=false",
            ):
                make().reader.latestOffset(wanted, ALL)
        for n in range(3):
            source = make(**{LOSS: "false"})
            fresh, left = source.go_on(wanted)
            assert left == []
            source.receiver.receive(100 + n, 1)
            after = source.reader.latestOffset(fresh, ALL)
            assert source.ids(fresh, after) == [100 + n]
            source.reader.commit(after)
            assert losses(tmp_path / "logs")[LOG_LOST] == n + 1
            source.reader.stop()
        assert "continuing with a new log because failOnDataLoss=false" in caplog.text
        again = make()
        assert again.ids(after, again.reader.latestOffset(after, ALL)) == [], "which goes on as any other"

    def test_samples_that_arrive_at_once_do_not_hide_a_lost_end(
        self, make: Callable[..., Source], written: tuple[dict[str, Any], dict[str, Any], Path]
    ) -> None:
        """The end is looked at before anything is appended."""
        _, end, _ = written
        wanted = beyond(end, 96)
        source = make(**{LOSS: "false"})
        started = source.reader._start

        def busy(config: ReceiverConfig) -> Any:
            receiver = started(config)
            receiver.receive(50, 10)  # type: ignore[attr-defined]
            return receiver

        source.reader._start = busy
        fresh, left = source.go_on(wanted)
        assert log_of(fresh) != log_of(end) and left == []
        assert source.ids(fresh, source.reader.latestOffset(fresh, ALL)) == list(range(50, 60))

    @pytest.mark.parametrize("nbytes", [-FRAME + 32, -1, -FRAME - 32])
    def test_inside_a_frame(
        self,
        make: Callable[..., Source],
        written: tuple[dict[str, Any], dict[str, Any], Path],
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        nbytes: int,
    ) -> None:
        zero, end, directory = written
        inside = beyond(end, nbytes)
        position = 3 * FRAME + nbytes
        for asked in (
            lambda s: s.reader.latestOffset(inside, ALL),
            lambda s: s.reader.partitions(zero, inside),
        ):
            source = make()
            with pytest.raises(
                LogLostError,
                match=rf"is position {position}, where no frame of.* {directory} holds positions 0 to 960",
            ):
                asked(source)  # type: ignore[no-untyped-call]
            source.reader.stop()
        for _ in range(2):  # each restart, and each batch of it, gives the same
            source = make(**{LOSS: "false"})
            before = source.ids(zero, inside)
            after = source.ids(inside, source.reader.latestOffset(inside, ALL))
            assert before + after == list(range(30))
            assert len(before) == -(-position // FRAME) * 10
            source.reader.stop()
        place = -(-position // FRAME) * FRAME
        assert f"continuing at position {place} because failOnDataLoss=false" in caplog.text
        assert losses(tmp_path / "logs") == {MISPLACED: 1}

    def test_a_row_that_its_frame_does_not_have(
        self, make: Callable[..., Source], written: tuple[dict[str, Any], dict[str, Any], Path]
    ) -> None:
        zero, end, _ = written
        source = make(maxRowsPerTrigger=15)
        inside = source.reader.latestOffset(zero, ReadMaxRows(15))
        assert source.ids(zero, inside) == list(range(15))
        source.reader.stop()
        strict = make()
        assert strict.ids(inside, end) == list(range(15, 30)), "after a restart it is right"
        strict.reader.stop()
        inside["receivers"]["embedded"]["row"] = 10
        strict = make()
        with pytest.raises(
            LogLostError, match="is position 320, row 10, but that frame of the stream log is shorter"
        ):
            strict.reader.latestOffset(inside, ALL)
        strict.reader.stop()
        source = make(**{LOSS: "false"})
        assert source.ids(zero, inside) == TWENTY
        assert source.ids(inside, end) == list(range(20, 30))

    def test_before_the_beginning(self, make: Callable[..., Source], tmp_path: Path) -> None:
        source = make(**{"log.segment_bytes": 4096})
        zero = source.begin()
        for first in range(0, 300, 10):
            source.receiver.receive(first, 10)
        end = source.reader.latestOffset(zero, ALL)
        source.receiver.log.trim(2 * 4096)
        base = source.receiver.log.base
        assert 0 < base <= 2 * 4096
        source.reader.stop()
        strict = make()
        with pytest.raises(
            LogLostError, match=rf"holds positions {base} to \d+, but .* is position 0, before its"
        ):
            strict.reader.latestOffset(zero, ALL)
        strict.reader.stop()
        for _ in range(2):
            source = make(**{LOSS: "false"})
            assert source.ids(zero, end) == list(range(240, 300))
            assert source.reader.latestOffset(zero, ALL) == end
            source.reader.stop()
        assert losses(tmp_path / "logs") == {NOT_HELD: 1}

    def test_commit(
        self,
        make: Callable[..., Source],
        written: tuple[dict[str, Any], dict[str, Any], Path],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        _, end, _ = written
        strict = make()
        strict.reader.latestOffset(end, ALL)
        with pytest.raises(LogLostError, match="position 992, beyond its end"):
            strict.reader.commit(beyond(end, 32))
        strict.reader.stop()
        source = make(**{LOSS: "false"})
        source.reader.latestOffset(end, ALL)
        source.reader.commit(beyond(end, 32))
        assert "nothing is committed" in caplog.text
        assert source.receiver.committed == [end["receivers"]["embedded"]["position"]]

    def test_a_receiver_that_is_started_again_on_a_log_that_lost_its_end(
        self, make: Callable[..., Source], written: tuple[dict[str, Any], dict[str, Any], Path]
    ) -> None:
        _, end, directory = written
        for word in ("true", "false"):
            shutil.copytree(directory, directory.with_name("saved"), dirs_exist_ok=True)
            source = make(**{LOSS: word})
            source.reader.latestOffset(end, ALL)
            source.receiver.receive(30, 10)
            after = source.reader.latestOffset(end, ALL)
            source.receiver.die("the disk was taken away")
            shutil.rmtree(directory)
            directory.with_name("saved").rename(directory)  # a backup
            if word == "true":
                with pytest.raises(
                    LogLostError, match="ends at position 960, but was read up to position 1280"
                ):
                    source.reader.latestOffset(after, ALL)
                source.reader.stop()
                continue
            fresh, _ = source.go_on(after)
            source.receiver.receive(50, 2)
            assert source.ids(fresh, source.reader.latestOffset(fresh, ALL)) == [50, 51]


class TestDamage:
    def test_a_frame_between_others(
        self,
        make: Callable[..., Source],
        written: tuple[dict[str, Any], dict[str, Any], Path],
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        zero, end, directory = written
        flip(segment(directory), FRAME + 200)
        strict = make()
        with pytest.raises(
            LogDamagedError,
            match=rf"{directory} is damaged at position 320: 10 samples of writer .* sequence number 11 .*{LOSS}=false",
        ):
            strict.ids(zero, end)
        strict.reader.stop()
        for _ in range(3):
            source = make(**{LOSS: "false"})
            assert source.ids(zero, end) == TEN + list(range(20, 30))
            assert source.ids(zero, end) == TEN + list(range(20, 30)), "a task may read its range again"
            assert source.reader.reportLatestOffset()["status"]["lost"] == 10
            source.reader.stop()
        assert losses(tmp_path / "logs") == {DAMAGED: 10}
        assert "left out because failOnDataLoss=false" in caplog.text

    @pytest.mark.parametrize("at", [4, 8, 100, 200])
    def test_planning_continues_past_damage(
        self, make: Callable[..., Source], written: tuple[dict[str, Any], dict[str, Any], Path], at: int
    ) -> None:
        zero, end, directory = written
        flip(segment(directory), FRAME + at)
        source = make(minPartitions=3, **{LOSS: "false"})
        assert source.ids(zero, end) == TEN + list(range(20, 30))
        found, offset = [], zero
        for _ in range(20):
            following = source.reader.latestOffset(offset, ReadMaxRows(4))
            found += source.ids(offset, following)
            if following == offset:
                break
            offset = following
        assert found == TEN + list(range(20, 30)) and offset == end

    def test_many_damaged_parts(
        self, make: Callable[..., Source], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = make()
        zero = source.begin()
        for first in range(0, 400, 10):
            source.receiver.receive(first, 10)
        end = source.reader.latestOffset(zero, ALL)
        source.reader.stop()
        for n in range(0, 40, 2):
            flip(segment(source.receiver.log.directory), n * FRAME + 150)
        tolerant = make(**{LOSS: "false"})
        with caplog.at_level(logging.WARNING):
            assert len(tolerant.ids(zero, end)) == 200
        assert "12 more damaged parts" in caplog.text
        assert losses(tmp_path / "logs") == {DAMAGED: 200}


@pytest.mark.parametrize("gone", ["all", "metadata.json"])
@pytest.mark.parametrize("word", ["true", "false"])
def test_a_log_that_is_taken_away_under_its_receiver(
    make: Callable[..., Source], word: str, gone: str
) -> None:
    source = make(**{LOSS: word})
    zero = source.begin()
    source.receiver.receive(0, 10)
    end = source.reader.latestOffset(zero, ALL)
    directory = source.receiver.log.directory
    if gone == "all":
        shutil.rmtree(directory)
    else:
        flip(directory / gone, 40)
    if word == "true":
        with pytest.raises(LogLostError, match=rf"{directory}.*{LOSS}=false"):
            source.reader.partitions(zero, end)
        return
    assert source.ids(zero, end) == []
    fresh, left = source.go_on(end)
    assert left == []
    source.receiver.receive(50, 2)
    assert source.ids(fresh, source.reader.latestOffset(fresh, ALL)) == [50, 51]


@pytest.mark.parametrize("word", ["true", "false"])
def test_a_log_that_is_found_lost_when_the_progress_is_shown(make: Callable[..., Source], word: str) -> None:
    """Its receiver died behind the plan. The next plan goes on with a new log, or fails."""
    source = make(**{LOSS: word})
    zero = source.begin()
    source.receiver.receive(0, 10)
    end = source.reader.latestOffset(zero, ALL)
    source.receiver.die("killed")
    shutil.rmtree(source.receiver.log.directory)
    assert source.reader.reportLatestOffset() is None
    if word == "true":
        with pytest.raises(LogLostError, match=f"{LOSS}=false"):
            source.reader.latestOffset(end, ALL)
        return
    fresh, _ = source.go_on(end)
    source.receiver.receive(50, 2)
    assert source.ids(fresh, source.reader.latestOffset(fresh, ALL)) == [50, 51]


def test_a_log_that_is_taken_away_under_a_task(
    make: Callable[..., Source], written: tuple[dict[str, Any], dict[str, Any], Path], tmp_path: Path
) -> None:
    zero, end, directory = written
    for word in ("true", "false"):
        source = make(**{LOSS: word, "serve.address": "none"})  # what is copied back is another folder
        parts = source.reader.partitions(zero, end)
        shutil.copytree(directory, tmp_path / "saved", dirs_exist_ok=True)
        flip(directory / "metadata.json", 40)
        if word == "true":
            with pytest.raises(LogLostError, match=f"{LOSS}=false"):
                list(source.reader.read(parts[0]))
        else:
            assert list(source.reader.read(parts[0])) == []
        shutil.rmtree(directory)
        shutil.copytree(tmp_path / "saved", directory)
        if word == "false":
            flip(directory / "metadata.json", 40)
            list(source.reader.read(parts[0]))
            assert losses(tmp_path / "logs") == {NOT_HELD: 1}
        source.reader.stop()


def test_types_of_writers_that_are_lost(
    make: Callable[..., Source], written: tuple[dict[str, Any], dict[str, Any], Path], tmp_path: Path
) -> None:
    """By a guess, samples of writers with another type might be other rows."""
    zero, end, directory = written
    (directory / "writer_types.jsonl").unlink()
    writer_types._read.cache_clear()
    strict = make()
    with pytest.raises(
        LogDamagedError, match=rf"{directory} has lost the types of some writers: 10 samples of"
    ):
        strict.ids(zero, end)
    strict.reader.stop()
    source = make(**{LOSS: "false"})
    assert source.ids(zero, end) == []
    source.receiver.receive(30, 10)
    assert source.ids(end, source.reader.latestOffset(end, ALL)) == list(range(30, 40))
    assert losses(tmp_path / "logs") == {DAMAGED: 30}


def files(directory: Path) -> list[tuple[str, int]]:
    """Bytes to flip: some of each file that a restart reads."""
    chosen = random.Random(12)
    found = [(segment(directory).name, at) for at in range(0, 3 * FRAME, 13)]
    for name in ("metadata.json", "writers", "writer_types.jsonl"):
        raw = (directory / name).read_bytes()
        used = [at for at, byte in enumerate(raw) if byte] or [0]
        found += [(name, at) for at in chosen.sample(used, min(20, len(used)))]
    return found


def test_any_byte_of_a_log(
    make: Callable[..., Source], written: tuple[dict[str, Any], dict[str, Any], Path], tmp_path: Path
) -> None:
    """With failOnDataLoss=false the query goes on, over several restarts; with true rows are right, or it fails."""
    zero, end, directory = written
    saved = tmp_path / "saved"
    shutil.copytree(directory, saved)
    expected = list(range(30))
    for name, at in files(directory):
        shutil.rmtree(tmp_path / "logs")
        shutil.copytree(saved, directory)
        flip(directory / name, at)
        writer_types._read.cache_clear()  # tasks are other processes
        where = f"byte {at} of {name}"
        strict = make()
        try:
            rows = strict.ids(zero, end)
            rows += strict.ids(end, strict.reader.latestOffset(end, ALL))
            assert rows == expected, where
        except LogLostError as error:
            assert "failOnDataLoss=false" in str(error), where  # noqa: PT017  (most bytes do not matter)
        strict.reader.stop()
        read: list[int] = []
        offset, planned = zero, end
        for n in range(3):
            source = make(**{LOSS: "false"})
            rows = source.ids(offset, planned)
            source.reader.commit(planned)
            offset, left = source.go_on(planned)
            source.receiver.receive(1000 + n, 1)
            planned = source.reader.latestOffset(offset, ALL)
            read += rows + left
            source.reader.stop()
        last = make(**{LOSS: "false"})
        read += last.ids(offset, planned)
        last.reader.stop()
        assert read[-3:] == [1000, 1001, 1002], where
        read = read[:-3]
        assert read == sorted(set(read) & set(expected)), where
        missing = len(expected) - len(read)
        assert missing <= sum(losses(tmp_path / "logs").values()) * 30, where
        assert not missing or losses(tmp_path / "logs"), where


def test_the_view_agrees_about_frames(written: tuple[dict[str, Any], dict[str, Any], Path]) -> None:
    _, _, directory = written
    view = LogView(directory)
    assert [view.is_frame(n * 32) for n in range(31)] == [n % 10 == 0 for n in range(31)]


@pytest.mark.parametrize("gone", [False, True])
def test_a_lost_log_is_counted_once_however_often_its_ranges_are_asked_for(
    make: Callable[..., Source], written: tuple[dict[str, Any], dict[str, Any], Path], gone: bool
) -> None:
    """After a restart Spark asks for the empty range at the last end, and then for the batch that it repeats."""
    _, last, directory = written
    if gone:
        shutil.rmtree(directory)
    end = last if gone else beyond(last, 1 << 20)
    again = make(**{LOSS: False})
    assert again.ids(end, end) == []
    assert again.ids(again.reader.initialOffset(), end) == ([] if gone else list(range(30)))
    following, rows = again.go_on(end)
    assert rows == []
    assert losses(directory.parent) == {LOG_LOST: 1}
    again.receiver.receive(30, 2)
    assert again.ids(following, again.reader.latestOffset(following, ALL)) == [30, 31]
