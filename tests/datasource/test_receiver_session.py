"""A session's receiver and log: what a new one begins with, and what a batch read does with its own."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from spark_rtps.datasource.batch_reader import RtpsBatchReader
from spark_rtps.datasource.receiver_session import ReceiverSession
from spark_rtps.datasource.schema import plan_source
from spark_rtps.datasource.source import RtpsDataSource
from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.transport.errors import LogLostError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.receiver.config import ReceiverConfig
from tests.datasource.stream_reader_scene import COLUMNS, FakeReceiver


def settings(log_dir: Path, **options: str) -> Settings:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return parse_options({"topic": "T", "log.dir": str(log_dir), **given}, AppliesTo.READ)


class Started:
    """The receivers that were started, by their configurations."""

    def __init__(self) -> None:
        self.configs: list[ReceiverConfig] = []
        self.receivers: list[FakeReceiver] = []

    def __call__(self, config: ReceiverConfig) -> FakeReceiver:
        self.configs.append(config)
        self.receivers.append(FakeReceiver(config))
        return self.receivers[-1]


def test_a_new_log_removes_those_that_nobody_goes_on_with(tmp_path: Path) -> None:
    old, new = (tmp_path / str(uuid.uuid4()) for _ in range(2))
    for each, age in ((old, 10_000), (new, 0)):
        each.mkdir()
        (each / "file").touch()
        os.utime(each / "file", (each.stat().st_mtime - age,) * 2)
    asked, started = settings(tmp_path, log__retention="1h"), Started()
    session = ReceiverSession.on_new_log(asked, plan_source(asked, COLUMNS), start=started)
    assert (old.exists(), new.exists(), session.directory.exists()) == (False, True, True)
    assert session.directory == tmp_path / session.log
    session.stop()


@pytest.mark.parametrize("ephemeral", [True, False])
def test_warnings_about_options_are_logged_where_the_query_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ephemeral: bool
) -> None:
    asked, started = settings(tmp_path, log__max_bytes="1GiB"), Started()
    object.__setattr__(asked, "warnings", ("a doubtful option",))
    session = ReceiverSession.on_new_log(
        asked, plan_source(asked, COLUMNS), start=started, ephemeral=ephemeral
    )
    session.stop()
    assert ("topic 'T': a doubtful option" in caplog.text) is not ephemeral


def test_a_receiver_that_died_goes_on_where_the_log_was_read_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked, started = settings(tmp_path), Started()
    session = ReceiverSession.on_new_log(asked, plan_source(asked, COLUMNS), start=started)
    started.receivers[0].receive(0, 10)
    end = session.tail()
    started.receivers[0].die("killed")
    with caplog.at_level(logging.WARNING):
        assert session.tail() == end
    assert [config.log_reached for config in started.configs] == [0, end.position]
    assert started.configs[0].log_directory == started.configs[1].log_directory == str(session.directory)
    assert started.receivers[0].stopped and "killed; starting it again on the same log" in caplog.text
    session.commit_offset(Cursor(end.position))
    assert started.receivers[1].committed == [end.position]
    session.stop()
    assert started.receivers[1].disposed


def test_a_receiver_that_died_does_not_begin_its_log_again(tmp_path: Path) -> None:
    """Positions would be used twice."""
    asked, started = settings(tmp_path), Started()
    session = ReceiverSession.on_new_log(asked, plan_source(asked, COLUMNS), start=started)
    started.receivers[0].receive(0, 10)
    end = session.tail()
    started.receivers[0].die("killed")
    shutil.rmtree(session.directory)
    with pytest.raises(LogLostError, match=f"there is no stream log .* read up to position {end.position}"):
        session.tail()


def test_an_old_log_is_resumed_where_reading_ended(tmp_path: Path) -> None:
    asked, started = settings(tmp_path), Started()
    plan = plan_source(asked, COLUMNS)
    first = ReceiverSession.on_new_log(asked, plan, start=started)
    started.receivers[0].receive(0, 10)
    end = first.tail()
    first.stop()
    second = ReceiverSession.on_old_log(asked, plan, first.log, start=started, reached=end)
    assert second.directory == first.directory and started.configs[1].log_reached == end.position
    second.stop(dispose=False)
    assert not started.receivers[1].disposed


def test_a_batch_read_takes_no_more_than_its_rows_and_commits_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Started()

    def start(config: ReceiverConfig) -> FakeReceiver:
        receiver = started(config)
        receiver.receive(0, 10)
        receiver.receive(10, 10)
        return receiver

    made = ReceiverSession.on_new_log
    monkeypatch.setattr(ReceiverSession, "on_new_log", lambda *args, **kw: made(*args, start=start, **kw))
    asked = settings(tmp_path, read__max_rows="15", read__timeout="30s")
    reader = RtpsBatchReader(asked, plan_source(asked, COLUMNS))
    found = [each for batch in reader.read(reader.partitions()[0]) for each in batch["id"].to_pylist()]
    assert found == list(range(15))
    (receiver,) = started.receivers
    assert receiver.stopped and receiver.committed
    assert not receiver.log.directory.exists()
    assert not any(tmp_path.iterdir())


def test_a_sink_warns_of_doubtful_options(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[Any] = []
    monkeypatch.setattr("spark_rtps.datasource.source._warn", warned.append)
    RtpsDataSource({"topic": "T", "type": "Point"}).writer(COLUMNS, overwrite=False)
    assert [each.topic for each in warned] == ["T"]
