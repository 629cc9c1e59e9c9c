"""The log that a run of a query begins: when it is named, and when it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rtps.datasource import new_log
from spark_rtps.datasource.new_log import NewLog
from spark_rtps.datasource.schema import plan_source
from spark_rtps.options import AppliesTo, parse_options
from spark_rtps.transport.errors import LogError
from tests.datasource.stream_reader_scene import COLUMNS


@pytest.fixture
def new(tmp_path: Path) -> NewLog:
    settings = parse_options({"topic": "T", "log.dir": str(tmp_path)}, AppliesTo.READ)
    return NewLog(settings, plan_source(settings, COLUMNS))


def test_a_log_is_made_once_at_the_end_of_the_first_micro_batch(new: NewLog, tmp_path: Path) -> None:
    name = new.choose_name()
    assert name == new.choose_name() and not (tmp_path / name).exists()
    assert new.make_if_next(name) and (tmp_path / name).exists()
    assert not new.make_if_next(name), "Spark has written it down"


def test_no_log_is_made_for_another_run(new: NewLog, tmp_path: Path) -> None:
    name = new.choose_name()
    assert not new.make_if_next("another") and not (tmp_path / name).exists()


def test_a_log_that_replaces_a_lost_one_follows_it(new: NewLog) -> None:
    name = new.choose_name()
    assert new.replace(name).name == new.name != name
    assert new.replaces == name and new.make_if_next(name) and not new.make_if_next(new.name)


def test_a_log_that_cannot_be_made_replaces_nothing(new: NewLog, monkeypatch: pytest.MonkeyPatch) -> None:
    name = new.choose_name()

    def fails(*_: object) -> Path:
        raise LogError("there is no room")

    monkeypatch.setattr(new_log, "make_log", fails)
    with pytest.raises(LogError):
        new.replace(name)
    assert (new.name, new.replaces) == (name, "") and not new.make_if_next("another")
