"""What Spark calls on a streaming source, in the orders it calls it, with a receiver that has no network."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from spark_rtps.columns.topic_plan import BINARY_SCHEMA
from spark_rtps.datasource import source_process
from spark_rtps.datasource.batch_reader import RtpsBatchReader
from spark_rtps.datasource.receiver_session import ReceiverSession
from spark_rtps.datasource.schema import plan_source, to_spark
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import (
    LogAccessError,
    LogDamagedError,
    LogLostError,
    OptionError,
    RtpsError,
    UsageError,
)
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.receiver.config import ReceiverConfig
from tests.datasource.stream_reader_scene import ALL, COLUMNS, FakeReceiver, Source


class TestFirstStart:
    def test_batches(self, make: Callable[..., Source]) -> None:
        source = make()
        reader = source.reader
        zero = reader.initialOffset()
        assert reader.latestOffset(zero, ALL) == zero
        assert reader.initialOffset() == zero  # Spark asks twice
        assert source.receivers == [], "nothing is received before the checkpoint names the log"
        assert reader.partitions(zero, zero) == []
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

    def test_a_first_batch_that_nobody_reads_starts_the_receiver_with_the_next_one(
        self, make: Callable[..., Source]
    ) -> None:
        """foreachBatch may leave its DataFrame alone; Spark asks for no partitions then."""
        source = make()
        zero = source.reader.initialOffset()
        source.reader.latestOffset(zero, ALL)
        assert source.reader.latestOffset(zero, ALL) == zero
        source.receiver.receive(0, 10)
        assert source.ids(zero, source.reader.latestOffset(zero, ALL)) == list(range(10))

    def test_the_reported_offset_says_how_the_subscription_does(self, make: Callable[..., Source]) -> None:
        reader = make().reader
        assert reader.reportLatestOffset() is None
        source = make()
        reader = source.reader
        zero = source.begin()
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
            "behind_bytes": source.receiver.cursor().position - one["receivers"]["embedded"]["position"],  # type: ignore[operator]
            "lost": 3,
            "rejected": 2,
            "malformed": 0,
            "SAMPLE_REJECTED": {"total_count": 2},
        }
        assert reported == reader.latestOffset(one, ALL)

    def test_offsets_are_equal_as_text(self, make: Callable[..., Source]) -> None:
        source = make()
        zero = source.begin()
        source.receiver.receive(0, 10)
        texts = {json.dumps(source.reader.latestOffset(json.loads(json.dumps(zero)), ALL)) for _ in range(3)}
        assert len(texts) == 1

    def test_rows_per_trigger(self, make: Callable[..., Source]) -> None:
        source = make(maxRowsPerTrigger=4)
        limit = source.reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(4)
        start = source.begin()
        source.receiver.receive(0, 10)
        found = []
        while (end := source.reader.latestOffset(start, limit)) != start:
            found.append(source.ids(start, end))
            start = end
        assert found == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        zero = source.reader.initialOffset()
        assert source.ids(zero, source.reader.latestOffset(zero, ALL)) == list(range(10))

    @pytest.mark.parametrize("restarted", [False, True])
    def test_one_micro_batch_alone_is_refused(self, make: Callable[..., Source], restarted: bool) -> None:
        """Trigger.Once, which asks for no default limit: the batch would end before anything is received."""
        source = make()
        zero = source.begin() if restarted else source.reader.initialOffset()
        assert source.reader.latestOffset(zero, source.reader.getDefaultReadLimit()) == zero
        with pytest.raises(UsageError, match=r"use Trigger\.AvailableNow"):
            source.reader.latestOffset(zero, ReadAllAvailable())

    def test_bytes_per_trigger(self, make: Callable[..., Source]) -> None:
        assert make(maxBytesPerTrigger=100).reader.getDefaultReadLimit() == ReadMaxBytes(100)
        both = make(maxBytesPerTrigger=1, maxRowsPerTrigger=5)
        assert both.reader.getDefaultReadLimit() == ReadMaxRows(5)
        zero = both.begin()
        both.receiver.receive(0, 10)
        assert both.ids(zero, both.reader.latestOffset(zero, ReadMaxRows(5))) == [0]

    def test_commit(self, make: Callable[..., Source]) -> None:
        source = make()
        zero = source.begin()
        source.receiver.receive(0, 10)
        end = source.reader.latestOffset(zero, ALL)
        source.reader.commit(end)
        assert source.receiver.committed == [source.receiver.log.position]

    def test_a_full_log_and_a_writer_that_waits_for_room_do_not_wait_for_each_other(
        self, make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Samples of a fifth of the log, in the order in which Spark calls: it commits when it has planned more."""
        source = make(**{"log.max_bytes": 16 << 20})
        offset = source.begin()
        receiver, sent, got, per = source.receiver, 0, [], 168_000  # type: ignore[var-annotated]  # 3.4 MB
        monkeypatch.setattr(receiver, "commit_position", receiver.log.trim)
        for _ in range(16):
            room = 20 * per + receiver.log.max_bytes // 16  # as it offers its writer
            while receiver.log.free_bytes > room and (got or not sent):
                receiver.receive(sent, per)
                sent += per
            end = source.reader.latestOffset(offset, ALL)
            if end != offset:
                source.reader.commit(offset)
                got += source.ids(offset, end)
                offset = end
        assert got == list(range(len(got))) and len(got) >= 8 * per, "it goes on"

    def test_a_request_beyond_an_offset_commits_it_where_a_window_waits(
        self, make: Callable[..., Source]
    ) -> None:
        source = make(**{"flow_control.consumption": "committed"})
        zero = source.begin()
        source.receiver.receive(0, 10)
        end = source.reader.latestOffset(zero, ALL)
        position = source.receiver.log.position
        assert source.reader.latestOffset(end, ALL) == end
        assert source.receiver.committed[-1] == position, (
            "though there is no batch that commit() would come with"
        )

    def test_min_partitions(self, make: Callable[..., Source]) -> None:
        source = make(minPartitions=3)
        zero = source.begin()
        for i in range(0, 60, 10):
            source.receiver.receive(i, 10)
        end = source.reader.latestOffset(zero, ALL)
        assert len(source.reader.partitions(zero, end)) == 3
        assert source.ids(zero, end) == list(range(60))

    def test_default_log_dir_of_another_user(
        self, make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("spark_rtps.options.log_dir.default_log_dir", lambda: tmp_path / "logs")
        monkeypatch.setattr("os.getuid", lambda: (tmp_path.stat().st_uid) + 1)
        with pytest.raises(OptionError, match=r"option 'log\.dir' = .*belongs to another user; name"):
            make().begin()

    def test_default_log_dir_is_ours_alone(
        self, make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("spark_rtps.options.log_dir.default_log_dir", lambda: tmp_path / "logs")
        make().begin()
        assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o700

    def test_a_task_of_another_user(
        self, make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for address in ("auto", "none"):
            source = make(**{"serve.address": address})
            zero = source.begin()
            source.receiver.receive(0, 10)
            end = source.reader.latestOffset(zero, ALL)
            with monkeypatch.context() as patch:
                patch.setattr(os, "access", lambda *_: False)
                if address == "auto":
                    assert source.ids(zero, end) == list(range(10))  # fetched
                    continue
                with pytest.raises(
                    LogAccessError, match=r"this task runs as user \d+ and may not.*log\.mode=0750"
                ):
                    source.ids(zero, end)

    def test_log_mode(self, make: Callable[..., Source], tmp_path: Path) -> None:
        source = make(**{"log.mode": "0750"})
        source.begin()
        assert source.receiver.mode == 0o750

    def test_log_dir_that_cannot_be(self, make: Callable[..., Source], tmp_path: Path) -> None:
        (tmp_path / "logs").write_text("a file")
        with pytest.raises(OptionError, match=r"option 'log\.dir' = .*cannot be made \(File exists\)"):
            make().begin()

    def test_the_log_server_ends_with_its_reader(
        self, make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = make()
        stopped = []
        monkeypatch.setattr(source.reader._planner.serving, "stop", lambda: stopped.append(True))
        source.reader.stop()
        assert stopped == [True]

    def test_stop(self, make: Callable[..., Source]) -> None:
        source = make()
        source.begin()
        source.reader.stop()
        assert source.receiver.stopped and source.receiver.disposed
        source.reader.stop()

    def test_a_killed_driver_leaves_without_a_dispose(
        self, make: Callable[..., Source], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = make()
        source.begin()
        monkeypatch.setattr(source_process, "_DYING_SECONDS", 30.0)
        parents = iter([os.getppid()] * 3)
        monkeypatch.setattr(os, "getppid", lambda: next(parents, 1))  # it is gone soon
        source.reader.stop()
        assert source.receiver.stopped and not source.receiver.disposed


class TestBatch:
    def test_the_log_of_a_batch_is_ephemeral(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        started = []

        def start(*args: Any, **kwargs: Any) -> Never:
            started.append((args, kwargs))
            raise RtpsError("enough")

        monkeypatch.setattr("spark_rtps.datasource.receiver_session.ReceiverSession.on_new_log", start)
        settings = parse_options({"topic": "T", "log.dir": str(tmp_path)}, AppliesTo.READ)
        reader = RtpsBatchReader(settings, plan_source(settings, COLUMNS))
        with pytest.raises(RtpsError, match="enough"):
            list(reader.read(reader.partitions()[0]))
        assert started[0][1] == {"ephemeral": True}

    @pytest.mark.parametrize("ephemeral", [False, True])
    def test_the_receiver_gets_the_ephemeral_flag(self, tmp_path: Path, ephemeral: bool) -> None:
        configs = []

        def start(config: ReceiverConfig) -> FakeReceiver:
            configs.append(config)
            return FakeReceiver(config)

        settings = parse_options({"topic": "T", "log.dir": str(tmp_path)}, AppliesTo.READ)
        plan = plan_source(settings, COLUMNS)
        ReceiverSession.on_new_log(settings, plan, start=start, ephemeral=ephemeral).stop()
        assert [config.ephemeral for config in configs] == [ephemeral]

    def test_all_that_has_arrived_by_the_timeout_is_read(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Also where it is more than half of the log, which is read at most at a time."""

        def start(config: ReceiverConfig) -> FakeReceiver:
            receiver = FakeReceiver(config)
            for first in range(0, 600_000, 100_000):
                receiver.receive(first, 100_000)
            return receiver

        made = ReceiverSession.on_new_log
        monkeypatch.setattr(ReceiverSession, "on_new_log", lambda *args, **kw: made(*args, start=start, **kw))
        options = {"read.timeout": "1ms", "log.max_bytes": str(16 << 20)}
        settings = parse_options({"topic": "T", "log.dir": str(tmp_path), **options}, AppliesTo.READ)
        reader = RtpsBatchReader(settings, plan_source(settings, COLUMNS))
        rows = [i for batch in reader.read(reader.partitions()[0]) for i in batch["id"].to_pylist()]
        assert rows == list(range(600_000))

    @pytest.mark.parametrize("word", ["true", "false"])
    def test_damage_while_it_listens(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, word: str
    ) -> None:
        """A damaged frame is left out, or fails the read; so does a log that is lost under a receiver that died."""
        receivers = []

        def start(config: ReceiverConfig) -> FakeReceiver:
            receivers.append(receiver := FakeReceiver(config))
            n = len(receivers)
            receiver.receive(100 * n, 10)
            receiver.receive(100 * n + 10, 10)
            if n == 1:
                with (receiver.log.directory / f"{0:020d}.segment").open("r+b") as file:
                    file.seek(320 + 200)
                    file.write(b"damaged")
                cursor = receiver.cursor

                def vanish() -> Cursor:
                    receiver.dead, found = "killed", cursor()
                    receiver.log.close()
                    return found

                receiver.cursor = vanish  # type: ignore[method-assign]
            elif n == 2:
                receiver.log.close()
                raise LogLostError("the log is lost")
            return receiver

        made = ReceiverSession.on_new_log
        monkeypatch.setattr(ReceiverSession, "on_new_log", lambda *args, **kw: made(*args, start=start, **kw))
        options = {"read.max_rows": "40", "read.timeout": "5s", "failOnDataLoss": word}
        settings = parse_options({"topic": "T", "log.dir": str(tmp_path), **options}, AppliesTo.READ)
        reader = RtpsBatchReader(settings, plan_source(settings, COLUMNS))
        rows = (
            row for batch in reader.read(reader.partitions()[0]) for row in batch.column("id").to_pylist()
        )
        if word == "true":
            with pytest.raises(LogDamagedError, match="is damaged at position 320"):
                list(rows)
        else:
            assert [next(rows) for _ in range(30)] == [*range(100, 110), *range(300, 320)]
            rows.close()


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
    def test_names_of_columns(
        self, tmp_path: Path, options: dict[str, str], named: tuple[str | None, bool | None]
    ) -> None:
        assert self.reported(tmp_path, COLUMNS, **options) == named

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({}, (None, None)),
            ({"keyed": "true"}, (None, True)),
            ({"type": "Point"}, ("Point", False)),
            ({"type": "Point", "keyed": "true"}, ("Point", True)),
        ],
    )
    def test_names_of_payloads(
        self, tmp_path: Path, options: dict[str, str], named: tuple[str | None, bool | None]
    ) -> None:
        assert self.reported(tmp_path, to_spark(BINARY_SCHEMA), payload="binary", **options) == named

    def reported(
        self, tmp_path: Path, schema: StructType, **options: object
    ) -> tuple[str | None, bool | None]:
        configs = []

        def start(config: ReceiverConfig) -> FakeReceiver:
            configs.append(ReceiverConfig.from_json(config.to_json()))
            return FakeReceiver(config)

        settings = parse_options({"topic": "T", "log.dir": str(tmp_path), **options}, AppliesTo.READ)  # type: ignore[dict-item]
        ReceiverSession.on_new_log(settings, plan_source(settings, schema), start=start).stop()
        (config,) = configs
        return config.type_name, config.keyed


class TestAvailableNow:
    def test_later_samples_are_left(self, make: Callable[..., Source]) -> None:
        source = make(**{"read.timeout": "0s"}, maxRowsPerTrigger=6)
        source.reader.prepareForTriggerAvailableNow()
        start = source.begin()
        source.receiver.receive(0, 10)
        found: list[Any] = []
        while (end := source.reader.latestOffset(start, ReadMaxRows(6))) != start:
            source.receiver.receive(100 + len(found), 1)
            found.append(source.ids(start, end))
            start = end
        assert found == [list(range(6)), list(range(6, 10))]

    def test_available_now_listens_first(self, make: Callable[..., Source]) -> None:
        source = make(**{"read.timeout": "100ms"})
        source.reader.prepareForTriggerAvailableNow()
        zero = source.begin()
        began = time.monotonic()
        source.reader.latestOffset(zero, ALL)
        assert time.monotonic() - began >= 0.05
