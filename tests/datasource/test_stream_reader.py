"""What Spark calls on a streaming source, in the orders it calls it, with a receiver that has no network."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType
from stream_logs import RECEPTION, encoded, points, run_of

from spark_rtps.datasource import stream_reader
from spark_rtps.datasource.batch_reader import RtpsBatchReader
from spark_rtps.datasource.offsets import Offset
from spark_rtps.datasource.options import AppliesTo, parse_options
from spark_rtps.datasource.receiving import Receiving, is_appended_to, remove_stale_logs
from spark_rtps.datasource.schema import BINARY_SCHEMA, plan_reading, to_spark
from spark_rtps.datasource.stream_reader import RtpsStreamReader
from spark_rtps.transport.errors import LogLostError, OptionError, RtpsError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.receiver.config import ReceiverConfig

COLUMNS = StructType().add("id", "integer").add("x", "double")
ALL = ReadAllAvailable()


class FakeReceiver:
    """A receiver that appends what the test hands it."""

    pid = 0

    def __init__(self, config) -> None:
        directory = Path(config.log_directory)
        if StreamLog.exists(directory):
            self.log = StreamLog.open(directory)
        else:
            self.log = StreamLog.create(directory, max_bytes=config.log_max_bytes, metadata={})
        self.dead: str | None = None
        self.stopped = False
        self.committed: list[int] = []
        self.counted: dict[str, int] = {}

    def receive(self, first: int, count: int) -> None:
        assert self.log.append(run_of(encoded(points(first, count)), first + 1), reception=RECEPTION)

    def die(self, why: str) -> None:
        self.dead = why
        self.log.close()

    def cursor(self) -> Cursor:
        return Cursor(self.log.position)

    def commit(self, position: int) -> None:
        self.committed.append(position)

    def counters(self) -> dict[str, int]:
        return {"log.base": self.log.base, **self.counted}

    def check(self) -> None:
        if self.dead:
            raise RtpsError(self.dead)

    def stop(self, *, goodbye: bool = True) -> None:
        self.stopped, self.said_goodbye = True, goodbye
        self.log.close()


class Source:
    """A reader and the receivers it started."""

    def __init__(self, log_dir: Path, **options: object) -> None:
        given = {"topic": "T", "log.dir": str(log_dir), **{k: str(v) for k, v in options.items()}}
        settings = parse_options(given, AppliesTo.READ)
        self.receivers: list[FakeReceiver] = []
        self.reader = RtpsStreamReader(settings, plan_reading(settings, COLUMNS), start=self._start)

    def _start(self, config) -> FakeReceiver:
        self.receivers.append(FakeReceiver(config))
        return self.receivers[-1]

    @property
    def receiver(self) -> FakeReceiver:
        return self.receivers[-1]

    def ids(self, start, end) -> list[int]:
        reader = pickle.loads(pickle.dumps(self.reader))  # as a task has it
        return [
            i
            for part in self.reader.partitions(start, end)
            for batch in reader.read(pickle.loads(pickle.dumps(part)))
            for i in batch.column("id").to_pylist()
        ]


def log_of(offset) -> str:
    return Offset.from_json(offset).log


def planned(make) -> tuple:
    """Where a batch of ten samples starts and ends that a run planned before it was stopped."""
    first = make()
    zero = first.reader.initialOffset()
    first.receiver.receive(0, 10)
    end = first.reader.latestOffset(zero, ALL)
    first.reader.stop()
    return zero, end


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_reader, "_DYING_SECONDS", 0.0)
    made: list[Source] = []

    def source(**options: object) -> Source:
        made.append(Source(tmp_path / "logs", **options))
        return made[-1]

    yield source
    for one in made:
        one.reader.stop()


class TestFirstStart:
    def test_batches(self, make):
        source = make()
        reader = source.reader
        zero = reader.initialOffset()
        assert reader.initialOffset() == zero  # Spark asks twice
        assert len(source.receivers) == 1
        assert reader.latestOffset(zero, ALL) == zero
        source.receiver.receive(0, 10)
        one = reader.latestOffset(zero, ALL)
        source.receiver.receive(10, 5)
        two = reader.latestOffset(one, ALL)
        assert source.ids(zero, one) == list(range(10))
        assert source.ids(one, two) == list(range(10, 15))
        assert source.ids(zero, two) == list(range(15))
        assert source.ids(two, two) == []

    def test_the_reported_offset_says_how_the_subscription_does(self, make):
        reader = make().reader
        assert reader.reportLatestOffset() is None
        source = make()
        reader = source.reader
        zero = reader.initialOffset()
        source.receiver.receive(0, 10)
        one = reader.latestOffset(zero, ALL)
        status = {"behind_bytes": 0, "lost": 0, "rejected": 0, "malformed": 0}
        assert reader.reportLatestOffset() == {**one, "status": status}
        source.receiver.receive(10, 5)
        source.receiver.counted = {
            "reader.lost_samples": 3,
            "status.sample_rejected.total_count": 2,
            "status.liveliness_changed.alive_count": 0,
        }
        reported = reader.reportLatestOffset()
        assert reported.pop("status") == {
            "behind_bytes": source.receiver.cursor().position - one["receivers"]["embedded"]["position"],
            "lost": 3,
            "rejected": 2,
            "malformed": 0,
            "SAMPLE_REJECTED": {"total_count": 2},
        }
        assert reported == reader.latestOffset(one, ALL)

    def test_offsets_are_equal_as_text(self, make):
        source = make()
        zero = source.reader.initialOffset()
        source.receiver.receive(0, 10)
        texts = {json.dumps(source.reader.latestOffset(json.loads(json.dumps(zero)), ALL)) for _ in range(3)}
        assert len(texts) == 1

    def test_rows_per_trigger(self, make):
        source = make(maxRowsPerTrigger=4)
        limit = source.reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(4)
        start = source.reader.initialOffset()
        source.receiver.receive(0, 10)
        found = []
        while (end := source.reader.latestOffset(start, limit)) != start:
            found.append(source.ids(start, end))
            start = end
        assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        zero = source.reader.initialOffset()
        assert source.ids(zero, source.reader.latestOffset(zero, ALL)) == list(range(10))

    def test_bytes_per_trigger(self, make):
        assert make(maxBytesPerTrigger=100).reader.getDefaultReadLimit() == ReadMaxBytes(100)
        both = make(maxBytesPerTrigger=1, maxRowsPerTrigger=5)
        assert both.reader.getDefaultReadLimit() == ReadMaxRows(5)
        zero = both.reader.initialOffset()
        both.receiver.receive(0, 10)
        assert both.ids(zero, both.reader.latestOffset(zero, ReadMaxRows(5))) == [0]

    def test_commit(self, make):
        source = make()
        zero = source.reader.initialOffset()
        source.receiver.receive(0, 10)
        end = source.reader.latestOffset(zero, ALL)
        source.reader.commit(end)
        assert source.receiver.committed == [source.receiver.log.position]

    def test_what_is_asked_behind_is_committed_where_a_window_waits_for_it(self, make):
        source = make(**{"flow_control.consumption": "committed"})
        zero = source.reader.initialOffset()
        source.receiver.receive(0, 10)
        end = source.reader.latestOffset(zero, ALL)
        position = source.receiver.log.position
        assert source.reader.latestOffset(end, ALL) == end
        assert source.receiver.committed[-1] == position, (
            "though there is no batch that commit() would come with"
        )

    def test_min_partitions(self, make):
        source = make(minPartitions=3)
        zero = source.reader.initialOffset()
        for i in range(0, 60, 10):
            source.receiver.receive(i, 10)
        end = source.reader.latestOffset(zero, ALL)
        assert len(source.reader.partitions(zero, end)) == 3
        assert source.ids(zero, end) == list(range(60))

    def test_default_log_dir_of_another_user(self, make, monkeypatch, tmp_path):
        monkeypatch.setattr("spark_rtps.datasource.receiving.default_log_dir", lambda: tmp_path / "logs")
        monkeypatch.setattr("os.getuid", lambda: (tmp_path.stat().st_uid) + 1)
        with pytest.raises(OptionError, match=r"option 'log\.dir' = .*belongs to another user; name"):
            make().reader.initialOffset()

    def test_default_log_dir_is_ours_alone(self, make, monkeypatch, tmp_path):
        monkeypatch.setattr("spark_rtps.datasource.receiving.default_log_dir", lambda: tmp_path / "logs")
        make().reader.initialOffset()
        assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700

    def test_log_dir_that_cannot_be(self, make, tmp_path):
        (tmp_path / "logs").write_text("a file")
        with pytest.raises(OptionError, match=r"option 'log\.dir' = .*cannot be made \(File exists\)"):
            make().reader.initialOffset()

    def test_stop(self, make):
        source = make()
        source.reader.initialOffset()
        source.reader.stop()
        assert source.receiver.stopped and source.receiver.said_goodbye
        source.reader.stop()

    def test_a_driver_that_was_killed_says_no_goodbye(self, make, monkeypatch):
        source = make()
        source.reader.initialOffset()
        monkeypatch.setattr(stream_reader, "_DYING_SECONDS", 30.0)
        parents = iter([os.getppid()] * 3)
        monkeypatch.setattr(os, "getppid", lambda: next(parents, 1))  # it is gone soon
        source.reader.stop()
        assert source.receiver.stopped and not source.receiver.said_goodbye


class TestBatch:
    def test_its_log_is_ephemeral(self, monkeypatch, tmp_path):
        started = []

        def start(*args, **kwargs):
            started.append((args, kwargs))
            raise RtpsError("enough")

        monkeypatch.setattr("spark_rtps.datasource.receiving.Receiving.on_new_log", start)
        settings = parse_options({"topic": "T", "log.dir": str(tmp_path)}, AppliesTo.READ)
        reader = RtpsBatchReader(settings, plan_reading(settings, COLUMNS))
        with pytest.raises(RtpsError, match="enough"):
            list(reader.read(reader.partitions()[0]))
        assert started[0][1] == {"ephemeral": True}

    @pytest.mark.parametrize("ephemeral", [False, True])
    def test_its_receiver_is_told(self, tmp_path, ephemeral):
        configs = []

        def start(config):
            configs.append(config)
            return FakeReceiver(config)

        settings = parse_options({"topic": "T", "log.dir": str(tmp_path)}, AppliesTo.READ)
        plan = plan_reading(settings, COLUMNS)
        Receiving.on_new_log(settings, plan, start=start, ephemeral=ephemeral).stop()
        assert [config.ephemeral for config in configs] == [ephemeral]


class TestNaming:
    """What the receiver is told of the type's name, and of its key; None: the first writer of the topic says it."""

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({}, (None, None)),
            ({"key": "id"}, (None, True)),
            ({"type": "Point"}, ("Point", False)),
            ({"type.name": "Point", "key": "id"}, ("Point", True)),
            ({"ownership": "exclusive"}, (None, False)),
            ({"payload": "arrow"}, ("spark_rtps::ArrowBatch", False)),
        ],
    )
    def test_of_columns(self, tmp_path, options, named):
        assert self.told(tmp_path, COLUMNS, **options) == named

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({}, (None, None)),
            ({"keyed": "true"}, (None, True)),
            ({"type": "Point"}, ("Point", False)),
            ({"type": "Point", "keyed": "true"}, ("Point", True)),
        ],
    )
    def test_of_payloads(self, tmp_path, options, named):
        assert self.told(tmp_path, to_spark(BINARY_SCHEMA), payload="binary", **options) == named

    def told(self, tmp_path, schema, **options):
        configs = []

        def start(config):
            configs.append(ReceiverConfig.from_json(config.to_json()))
            return FakeReceiver(config)

        settings = parse_options({"topic": "T", "log.dir": str(tmp_path), **options}, AppliesTo.READ)
        Receiving.on_new_log(settings, plan_reading(settings, schema), start=start).stop()
        (config,) = configs
        return config.type_name, config.keyed


class TestAvailableNow:
    def test_later_samples_are_left(self, make):
        source = make(**{"read.timeout": "0s"}, maxRowsPerTrigger=6)
        source.reader.prepareForTriggerAvailableNow()
        start = source.reader.initialOffset()
        source.receiver.receive(0, 10)
        found = []
        while (end := source.reader.latestOffset(start, ReadMaxRows(6))) != start:
            source.receiver.receive(100 + len(found), 1)
            found.append(source.ids(start, end))
            start = end
        assert found == [list(range(6)), list(range(6, 10))]

    def test_it_listens_first(self, make):
        source = make(**{"read.timeout": "100ms"})
        source.reader.prepareForTriggerAvailableNow()
        zero = source.reader.initialOffset()
        began = time.monotonic()
        source.reader.latestOffset(zero, ALL)
        assert time.monotonic() - began >= 0.05


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
        with pytest.raises(LogLostError, match=r"there is no stream log .*failOnDataLoss=false"):
            elsewhere.reader.latestOffset(zero, ALL)

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
        first = make()
        zero = first.reader.initialOffset()
        first.receiver.receive(0, 10)
        end = first.reader.latestOffset(zero, ALL)
        beyond = json.loads(json.dumps(end))
        beyond["receivers"]["embedded"]["position"] += 3200
        first.reader.stop()
        strict = make()
        with pytest.raises(LogLostError, match="but the checkpoint wants 0 to"):
            strict.reader.partitions(zero, beyond)
        strict.reader.stop()
        tolerant = make(failOnDataLoss="false")
        assert tolerant.reader.partitions(zero, beyond) == []
        assert len(tolerant.receivers) == 2

    def test_target_of_a_lost_log_is_forgotten(self, make):
        first = make()
        zero = first.reader.initialOffset()
        first.receiver.receive(0, 10)
        end = first.reader.latestOffset(zero, ALL)
        beyond = json.loads(json.dumps(end))
        beyond["receivers"]["embedded"]["position"] += 3200
        first.reader.stop()
        again = make(**{"read.timeout": "0s"}, failOnDataLoss="false")
        again.reader.prepareForTriggerAvailableNow()
        assert again.reader.latestOffset(zero, ALL) == end  # the target is where the old log ends
        assert again.reader.partitions(zero, beyond) == []
        assert again.reader.latestOffset(beyond, ALL) == beyond  # nothing in the new log

    @pytest.mark.parametrize("damage", ["writers", "metadata.json", "*.segment"])
    def test_damaged_log(self, make, damage):
        first = make()
        zero = first.reader.initialOffset()
        first.receiver.receive(0, 10)
        end = first.reader.latestOffset(zero, ALL)
        first.reader.stop()
        (file,) = first.receiver.log.directory.glob(damage)
        file.unlink() if damage == "*.segment" else file.write_bytes(b"garbage")
        with pytest.raises(LogLostError, match=r"cannot be resumed.*failOnDataLoss=false"):
            make().reader.latestOffset(end, ALL)
        tolerant = make(failOnDataLoss="false")
        assert tolerant.reader.partitions(zero, end) == []
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
        assert len(tolerant.receivers) == 2
        (hook,) = hooks
        hook()
        assert [receiver.stopped for receiver in tolerant.receivers] == [True, True]

    def test_log_in_use(self, make, monkeypatch):
        monkeypatch.setattr("spark_rtps.datasource.receiving._LOCK_SECONDS", 0.1)
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


class TestStaleLogs:
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
        assert remove_stale_logs(root, 3_600 * 10**9, now=now) == []
        for log in (old_log, used_log):
            for file in log.iterdir():
                os.utime(file, (1, 1))
        assert remove_stale_logs(root, 3_600 * 10**9, now=now) == [old_log]
        assert sorted(root.iterdir()) == sorted([used_log, root / "something-else"])
