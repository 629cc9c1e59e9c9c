"""How often a receiver was started on its log."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from spark_rtps.transport.receiver import identity
from spark_rtps.transport.receiver.identity import next_incarnation


def test_each_start_increments_the_number(tmp_path: Path) -> None:
    assert [next_incarnation(tmp_path) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("text", ["many", "", "-7", "99999999999999999999"])
def test_an_invalid_number_of_starts_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    (tmp_path / "incarnation").write_text(text)
    with caplog.at_level(logging.WARNING):
        assert next_incarnation(tmp_path) == 0
    assert "ignored the number of starts" in caplog.text
    assert next_incarnation(tmp_path) == 1


def test_a_power_failure_brings_no_earlier_number_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, fsync = list[str](), os.fsync

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    next_incarnation(tmp_path)
    assert synced == [str(tmp_path / "incarnation.new"), str(tmp_path)]


def test_a_disk_that_takes_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert next_incarnation(tmp_path / "missing") == 0
    assert "writing the number of starts" in caplog.text


def test_a_disk_without_room_for_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next start would announce under the numbers of this one, which peers take for old news."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for _ in range(9):
        next_incarnation(tmp_path)
    monkeypatch.setattr(identity, "replace_text", full)
    assert [next_incarnation(tmp_path) for _ in range(3)] == [9, 10, 11]
