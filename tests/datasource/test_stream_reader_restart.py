"""A streaming source that starts again, whose receiver died, and logs that are left over."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.transport.errors import LogLostError, RtpsError
from spark_rtps.transport.log.appending import is_appended_to
from spark_rtps.transport.log.host_clocks import Clocks
from spark_rtps.transport.log.last_use import LAST_USE
from spark_rtps.transport.log.log_retention import remove_given_up
from tests.datasource.stream_reader_scene import ALL, Source, beyond, log_of, planned


class TestRestart:
    @pytest.mark.parametrize("attempts", [1, 3])
    def test_the_first_batch_was_not_committed(
        self, make: Callable[..., Source], tmp_path: Path, attempts: int
    ) -> None:
        """Then Spark asks for an initial offset again, and for the batch from there to the end it had planned.

        The receiver of the first run's log is the only one: another one would take its ports.
        """
        first = make()
        zero = first.begin()
        first.receiver.receive(0, 10)
        first.reader.stop()
        for _ in range(attempts):
            again = make()
            fresh = again.reader.initialOffset()
            assert fresh != zero
            assert again.ids(fresh, zero) == []
            assert [each.log.directory.name for each in again.receivers] == [log_of(zero)]
            if attempts > 1:
                again.reader.stop()
        assert [each.name for each in (tmp_path / "logs").iterdir()] == [log_of(zero)]
        last = again if attempts == 1 else make()
        end = last.reader.latestOffset(zero, ALL)
        assert last.ids(zero, end) == list(range(10))
        last.reader.commit(end)
        last.receiver.receive(10, 3)
        assert last.ids(end, last.reader.latestOffset(end, ALL)) == [10, 11, 12]

    @pytest.mark.parametrize("available_now", [False, True])
    def test_a_first_batch_with_rows_was_not_committed(
        self, make: Callable[..., Source], tmp_path: Path, available_now: bool
    ) -> None:
        """An earlier version's first batch had rows."""
        _, end = planned(make)
        again = make(**{"read.timeout": "0s"})
        if available_now:
            again.reader.prepareForTriggerAvailableNow()
        fresh = again.reader.initialOffset()
        assert again.ids(fresh, end) == list(range(10))
        assert [each.log.directory.name for each in again.receivers] == [log_of(end)]
        assert [each.name for each in (tmp_path / "logs").iterdir()] == [log_of(end)]
        again.reader.commit(end)
        again.receiver.receive(10, 3)
        assert again.ids(end, again.reader.latestOffset(end, ALL)) == [10, 11, 12]

    def test_a_query_that_ended_before_its_first_batch_was_written_down_had_no_receiver(
        self, make: Callable[..., Source]
    ) -> None:
        """Whoever starts it again finds nothing in the checkpoint: what would have been received would be lost."""
        first = make()
        zero = first.reader.initialOffset()
        first.reader.latestOffset(zero, ALL)
        first.reader.stop()
        assert first.receivers == []

    def test_a_first_batch_that_was_written_down_and_no_more_finds_its_log(
        self, make: Callable[..., Source]
    ) -> None:
        """The driver was killed before it asked for the partitions."""
        first = make()
        zero = first.reader.initialOffset()
        first.reader.latestOffset(zero, ALL)
        again = make()
        assert again.ids(again.reader.initialOffset(), zero) == []
        again.receiver.receive(0, 10)
        assert again.ids(zero, again.reader.latestOffset(zero, ALL)) == list(range(10))

    @pytest.mark.parametrize("empty", [False, True])
    def test_the_first_batch_was_not_committed_and_its_log_is_lost(
        self, make: Callable[..., Source], tmp_path: Path, empty: bool
    ) -> None:
        zero, end = planned(make)
        end = zero if empty else end
        shutil.rmtree(tmp_path / "logs" / log_of(end))

        again = make()
        fresh = again.reader.initialOffset()
        with pytest.raises(LogLostError, match="failOnDataLoss"):
            again.reader.partitions(fresh, end)
        careless = make(failOnDataLoss=False)
        fresh = careless.reader.initialOffset()
        assert careless.ids(fresh, end) == []
        begin, left = careless.go_on(end)
        assert left == [] and log_of(begin) != log_of(end)
        careless.receiver.receive(10, 3)
        assert careless.ids(begin, careless.reader.latestOffset(begin, ALL)) == [10, 11, 12]

    def test_a_log_in_place_of_a_lost_one_is_named_before_anything_is_received(
        self, make: Callable[..., Source], tmp_path: Path
    ) -> None:
        """A query that ends before that loses nothing of what a new receiver acknowledged."""
        _, end = planned(make)
        shutil.rmtree(tmp_path / "logs" / log_of(end))
        careless = make(failOnDataLoss=False)
        begin = careless.reader.latestOffset(end, ALL)
        assert careless.receivers == []
        assert careless.ids(end, begin) == []
        careless.receiver.receive(10, 3)
        careless.reader.stop()
        again = make(failOnDataLoss=False)
        assert again.ids(end, begin) == []
        assert again.ids(begin, again.reader.latestOffset(begin, ALL)) == [10, 11, 12]

    def test_planned_range_is_read_again(self, make: Callable[..., Source]) -> None:
        zero, end = planned(make)

        again = make()
        assert again.ids(zero, end) == list(range(10))  # partitions() comes first
        again.receiver.receive(10, 3)
        assert again.ids(end, again.reader.latestOffset(end, ALL)) == [10, 11, 12]

    def test_latest_offset_first(self, make: Callable[..., Source]) -> None:
        first = make()
        zero = first.begin()
        first.receiver.receive(0, 10)
        first.reader.stop()
        again = make()
        assert again.ids(zero, again.reader.latestOffset(zero, ALL)) == list(range(10))

    def test_lost_log_fails_with_the_fix(self, make: Callable[..., Source], tmp_path: Path) -> None:
        zero = make().begin()
        elsewhere = Source(tmp_path / "elsewhere")
        with pytest.raises(LogLostError, match=r"there is no stream log .*failOnDataLoss=false") as raised:
            elsewhere.reader.latestOffset(beyond(zero, 320), ALL)
        assert raised.value.position == 320

    def test_lost_log_is_replaced(
        self, make: Callable[..., Source], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = make()
        zero = first.begin()
        first.receiver.receive(0, 10)
        end = first.reader.latestOffset(zero, ALL)
        elsewhere = Source(tmp_path / "elsewhere", failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            assert elsewhere.reader.partitions(zero, end) == []
        assert "continuing with a new log because failOnDataLoss=false" in caplog.text
        elsewhere.reader.commit(end)  # of the old log: nothing to free here
        begin, left = elsewhere.go_on(end)
        assert left == []
        elsewhere.receiver.receive(50, 2)
        after = elsewhere.reader.latestOffset(begin, ALL)
        assert elsewhere.ids(begin, after) == [50, 51]
        assert elsewhere.receiver.committed == []
        elsewhere.reader.stop()

    def test_log_that_lost_its_end(self, make: Callable[..., Source]) -> None:
        zero, end = planned(make)
        wanted = beyond(end, 3200)
        strict = make()
        with pytest.raises(
            LogLostError, match=r"ends at position 320, but was read up to position 3520.*failOnDataLoss"
        ):
            strict.reader.partitions(zero, wanted)
        tolerant = make(failOnDataLoss="false")
        assert tolerant.ids(zero, wanted) == list(range(10)), "what it still has is read"
        begin, left = tolerant.go_on(wanted)
        assert left == []
        tolerant.receiver.receive(50, 2)
        assert tolerant.ids(begin, tolerant.reader.latestOffset(begin, ALL)) == [50, 51]

    def test_target_of_a_lost_log_is_forgotten(self, make: Callable[..., Source]) -> None:
        zero, end = planned(make)
        again = make(**{"read.timeout": "0s"}, failOnDataLoss="false")
        again.reader.prepareForTriggerAvailableNow()
        assert again.reader.latestOffset(zero, ALL) == end  # the target is where the old log ends
        wanted = beyond(end, 3200)
        assert again.ids(zero, wanted) == list(range(10))
        begin, _ = again.go_on(wanted)
        assert again.reader.latestOffset(begin, ALL) == begin  # nothing in the new log

    @pytest.mark.parametrize("damage", ["writers", "metadata.json"])
    def test_a_log_that_cannot_be_resumed(
        self, make: Callable[..., Source], tmp_path: Path, damage: str
    ) -> None:
        zero, end = planned(make)
        (tmp_path / "logs" / log_of(end) / damage).write_bytes(b"garbage")
        with pytest.raises(LogLostError, match=r"cannot be resumed.*failOnDataLoss=false"):
            make().reader.latestOffset(end, ALL)
        tolerant = make(failOnDataLoss="false")
        # without the metadata nothing in the frames can be verified
        assert tolerant.ids(zero, end) == (list(range(10)) if damage == "writers" else [])
        begin, left = tolerant.go_on(end)
        assert left == []
        tolerant.receiver.receive(50, 2)
        assert tolerant.ids(begin, tolerant.reader.latestOffset(begin, ALL)) == [50, 51]

    def test_exit_hook_is_set_once(
        self, make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hooks: list[Any] = []
        monkeypatch.setattr("atexit.register", hooks.append)
        first = make()
        end = first.begin()
        end["receivers"]["embedded"]["position"] = 3200
        first.reader.stop()
        hooks.clear()
        tolerant = make(failOnDataLoss="false")
        tolerant.reader.partitions(end, end)
        tolerant.go_on(end)
        assert len(tolerant.receivers) == 1
        (hook,) = hooks
        hook()
        assert tolerant.receiver.stopped

    def test_log_in_use(self, make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("spark_rtps.transport.receiver.supervision._LOCK_SECONDS", 0.1)
        zero = make().begin()
        with pytest.raises(RtpsError, match="appends to the log"):
            make().reader.latestOffset(zero, ALL)


class TestDeadReceiver:
    def test_a_dead_receiver_is_restarted(
        self, make: Callable[..., Source], caplog: pytest.LogCaptureFixture
    ) -> None:
        source = make()
        zero = source.begin()
        source.receiver.receive(0, 10)
        source.receiver.die("killed")
        end = source.reader.latestOffset(zero, ALL)
        assert len(source.receivers) == 2
        assert source.ids(zero, end) == list(range(10))
        assert "killed; starting it again on the same log" in caplog.text

    def test_no_waiting_for_the_log_when_stopping(self, make: Callable[..., Source]) -> None:
        source = make()
        zero = source.begin()
        source.receiver.dead = "killed"  # its log is still locked
        source.receiver.stop = lambda **_: None  # type: ignore[method-assign]
        source.reader._process.on_sigterm(15, None)
        began = time.monotonic()
        with pytest.raises(RtpsError, match="appends to the log"):
            source.reader.latestOffset(zero, ALL)
        assert time.monotonic() - began < 5  # it would be 10 s

    def test_a_receiver_that_keeps_dying_ends_the_query(self, make: Callable[..., Source]) -> None:
        source = make()
        zero = source.begin()
        for _ in range(3):
            source.receiver.die("killed")
            source.reader.latestOffset(zero, ALL)
        source.receiver.die("killed")
        with pytest.raises(RtpsError, match="killed; it died 4 times within a minute"):
            source.reader.latestOffset(zero, ALL)


class TestEndedLogs:
    def test_only_old_and_idle_logs_go(self, make: Callable[..., Source], tmp_path: Path) -> None:
        root = tmp_path / "logs"
        old, used = make(), make()
        for source in (old, used):
            source.begin()
        old_log, used_log = (Path(s.receiver.log.directory) for s in (old, used))
        old.reader.stop()
        (root / "something-else").mkdir()
        assert is_appended_to(used_log)
        assert not is_appended_to(old_log)
        now = Clocks.read_now()
        assert remove_given_up(root, now=now, period=3_600 * 10**9) == []
        for log in (old_log, used_log):
            (log / LAST_USE).unlink(missing_ok=True)
            for file in log.iterdir():
                os.utime(file, (1, 1))
        assert remove_given_up(root, now=now, period=3_600 * 10**9) == [old_log]
        assert {path for path in root.iterdir() if path.is_dir()} == {used_log, root / "something-else"}
