"""A streaming source that starts again, whose receiver died, and logs that are left over."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path

import pytest

from spark_rtps.transport.errors import LogLostError, RtpsError
from spark_rtps.transport.log.appending import is_appended_to
from spark_rtps.transport.log.ended_logs import remove_given_up
from tests.datasource.stream_reader_scene import ALL, Source, beyond, log_of, planned


class TestRestart:
    def test_the_first_batch_was_not_committed(self, make, tmp_path):
        """Then Spark asks for an initial offset again, and for the batch from there to the end it had planned."""
        zero, end = planned(make)

        again = make()
        fresh = again.reader.initialOffset()
        assert fresh != zero
        assert again.ids(fresh, end) == list(range(10))
        assert again.receivers[0].stopped
        assert [each.name for each in (tmp_path / "logs").iterdir()] == [log_of(end)], (
            "and no other log is left"
        )
        again.reader.commit(end)
        again.receiver.receive(10, 3)
        assert again.ids(end, again.reader.latestOffset(end, ALL)) == [10, 11, 12]

    def test_the_first_batch_was_not_committed_and_its_log_is_lost(self, make, tmp_path):
        _, end = planned(make)
        shutil.rmtree(tmp_path / "logs" / log_of(end))

        again = make()
        fresh = again.reader.initialOffset()
        with pytest.raises(LogLostError, match="failOnDataLoss"):
            again.reader.partitions(fresh, end)
        careless = make(failOnDataLoss=False)
        fresh = careless.reader.initialOffset()
        assert careless.ids(fresh, end) == []
        careless.receiver.receive(10, 3)
        assert careless.ids(end, careless.reader.latestOffset(end, ALL)) == [10, 11, 12]

    def test_what_came_before_the_log_was_found_to_be_lost_is_kept(self, make, tmp_path):
        """The receiver of the fresh log has acknowledged it."""
        _, end = planned(make)
        again = make(failOnDataLoss=False)
        fresh = again.reader.initialOffset()
        again.receiver.receive(10, 3)
        far = beyond(end, 10_000)
        assert again.ids(fresh, far) == list(range(10)), (
            "what the lost log holds, and nothing of the fresh one"
        )
        assert len(again.receivers) == 1 and not again.receiver.stopped
        again.receiver.receive(13, 2)
        assert again.ids(far, again.reader.latestOffset(far, ALL)) == [10, 11, 12, 13, 14]

    @pytest.mark.parametrize("lost", [False, True])
    def test_the_fresh_log_goes_where_it_is_not_needed(self, make, tmp_path, lost):
        _, end = planned(make)
        again = make()
        fresh = again.reader.initialOffset()
        again.receiver.receive(10, 3)
        if lost:
            with pytest.raises(LogLostError):
                again.reader.partitions(fresh, beyond(end, 10_000))
        else:
            assert again.ids(fresh, end) == list(range(10))
        assert again.receivers[0].stopped
        assert [each.name for each in (tmp_path / "logs").iterdir()] == [log_of(end)]

    def test_planned_range_is_read_again(self, make):
        zero, end = planned(make)

        again = make()
        assert again.ids(zero, end) == list(range(10))  # partitions() comes first
        again.receiver.receive(10, 3)
        assert again.ids(end, again.reader.latestOffset(end, ALL)) == [10, 11, 12]

    def test_latest_offset_first(self, make):
        first = make()
        zero = first.reader.initialOffset()
        first.receiver.receive(0, 10)
        first.reader.stop()
        again = make()
        assert again.ids(zero, again.reader.latestOffset(zero, ALL)) == list(range(10))

    def test_lost_log_fails_with_the_fix(self, make, tmp_path):
        zero = make().reader.initialOffset()
        elsewhere = Source(tmp_path / "elsewhere")
        with pytest.raises(LogLostError, match=r"there is no stream log .*failOnDataLoss=false") as raised:
            elsewhere.reader.latestOffset(beyond(zero, 320), ALL)
        assert raised.value.position == 320

    def test_lost_log_is_replaced(self, make, tmp_path, caplog):
        first = make()
        zero = first.reader.initialOffset()
        first.receiver.receive(0, 10)
        end = first.reader.latestOffset(zero, ALL)
        elsewhere = Source(tmp_path / "elsewhere", failOnDataLoss="false")
        with caplog.at_level(logging.WARNING):
            assert elsewhere.reader.partitions(zero, end) == []
        assert "going on because failOnDataLoss=false" in caplog.text
        assert elsewhere.reader.latestOffset(end, ALL) == end
        elsewhere.receiver.receive(50, 2)
        after = elsewhere.reader.latestOffset(end, ALL)
        assert elsewhere.ids(end, after) == [50, 51]
        elsewhere.reader.commit(end)  # of the old log: nothing to free here
        assert elsewhere.receiver.committed == []
        elsewhere.reader.stop()

    def test_log_that_lost_its_end(self, make):
        zero, end = planned(make)
        wanted = beyond(end, 3200)
        strict = make()
        with pytest.raises(
            LogLostError, match=r"ends at position 320, but was read up to 3520.*failOnDataLoss"
        ):
            strict.reader.partitions(zero, wanted)
        tolerant = make(failOnDataLoss="false")
        assert tolerant.ids(zero, wanted) == list(range(10)), "what it still has is read"
        tolerant.receiver.receive(50, 2)
        assert tolerant.ids(wanted, tolerant.reader.latestOffset(wanted, ALL)) == [50, 51]

    def test_target_of_a_lost_log_is_forgotten(self, make):
        zero, end = planned(make)
        again = make(**{"read.timeout": "0s"}, failOnDataLoss="false")
        again.reader.prepareForTriggerAvailableNow()
        assert again.reader.latestOffset(zero, ALL) == end  # the target is where the old log ends
        wanted = beyond(end, 3200)
        assert again.ids(zero, wanted) == list(range(10))
        assert again.reader.latestOffset(wanted, ALL) == wanted  # nothing in the new log

    @pytest.mark.parametrize("damage", ["writers", "metadata.json"])
    def test_a_log_that_cannot_be_resumed(self, make, tmp_path, damage):
        zero, end = planned(make)
        (tmp_path / "logs" / log_of(end) / damage).write_bytes(b"garbage")
        with pytest.raises(LogLostError, match=r"cannot be resumed.*failOnDataLoss=false"):
            make().reader.latestOffset(end, ALL)
        tolerant = make(failOnDataLoss="false")
        # without the metadata nothing in the frames can be verified
        assert tolerant.ids(zero, end) == (list(range(10)) if damage == "writers" else [])
        tolerant.receiver.receive(50, 2)
        assert tolerant.ids(end, tolerant.reader.latestOffset(end, ALL)) == [50, 51]

    def test_exit_hook_is_set_once(self, make, monkeypatch):
        hooks = []
        monkeypatch.setattr("atexit.register", hooks.append)
        first = make()
        end = first.reader.initialOffset()
        end["receivers"]["embedded"]["position"] = 3200
        first.reader.stop()
        hooks.clear()
        tolerant = make(failOnDataLoss="false")
        tolerant.reader.partitions(end, end)
        assert len(tolerant.receivers) == 1
        (hook,) = hooks
        hook()
        assert tolerant.receiver.stopped

    def test_log_in_use(self, make, monkeypatch):
        monkeypatch.setattr("spark_rtps.datasource.receiver_session._LOCK_SECONDS", 0.1)
        zero = make().reader.initialOffset()
        with pytest.raises(RtpsError, match="is appending to the log"):
            make().reader.latestOffset(zero, ALL)


class TestDeadReceiver:
    def test_it_is_started_again(self, make, caplog):
        source = make()
        zero = source.reader.initialOffset()
        source.receiver.receive(0, 10)
        source.receiver.die("killed")
        end = source.reader.latestOffset(zero, ALL)
        assert len(source.receivers) == 2
        assert source.ids(zero, end) == list(range(10))
        assert "killed; starting it again on the same log" in caplog.text

    def test_no_waiting_for_the_log_when_stopping(self, make):
        source = make()
        zero = source.reader.initialOffset()
        source.receiver.dead = "killed"  # its log is still locked
        source.receiver.stop = lambda **_: None
        source.reader._on_sigterm(15, None)
        began = time.monotonic()
        with pytest.raises(RtpsError, match="is appending to the log"):
            source.reader.latestOffset(zero, ALL)
        assert time.monotonic() - began < 5  # it would be 10 s

    def test_not_for_ever(self, make):
        source = make()
        zero = source.reader.initialOffset()
        for _ in range(3):
            source.receiver.die("killed")
            source.reader.latestOffset(zero, ALL)
        source.receiver.die("killed")
        with pytest.raises(RtpsError, match="killed; it died 4 times within a minute"):
            source.reader.latestOffset(zero, ALL)


class TestEndedLogs:
    def test_only_old_and_idle_logs_go(self, make, tmp_path):
        root = tmp_path / "logs"
        old, used = make(), make()
        for source in (old, used):
            source.reader.initialOffset()
        old_log, used_log = (Path(s.receiver.log.directory) for s in (old, used))
        old.reader.stop()
        (root / "something-else").mkdir()
        assert is_appended_to(used_log)
        assert not is_appended_to(old_log)
        now = time.time_ns()
        assert remove_given_up(root, now=now, period=3_600 * 10**9) == []
        for log in (old_log, used_log):
            for file in log.iterdir():
                os.utime(file, (1, 1))
        assert remove_given_up(root, now=now, period=3_600 * 10**9) == [old_log]
        assert sorted(root.iterdir()) == sorted([used_log, root / "something-else"])
