"""Small files that are replaced as a whole, also by a machine that loses its power."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_rtps.transport.log.small_file import replace_text


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the system, in its order."""
    found: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        found.append("folder" if is_folder else f"file of {os.fstat(descriptor).st_size}")
        fsync(descriptor)

    def noting_replace(old: Path, new: Path) -> None:
        found.append("rename")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    return found


def test_a_durable_file_is_synced_before_it_is_renamed(tmp_path: Path, done: list[str]) -> None:
    replace_text(tmp_path / "a", "told", durable=True)
    assert done == ["file of 4", "rename", "folder"]
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and (tmp_path / "a").read_text() == "told"


def test_a_file_that_is_not_durable_is_not_synced(tmp_path: Path, done: list[str]) -> None:
    replace_text(tmp_path / "a", "told")
    assert done == ["rename"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_file_system_that_cannot_sync_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fsync: Callable[[int], None] = os.fsync

    def refuse_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    before = len(os.listdir("/proc/self/fd"))
    if number == errno.EINVAL:
        replace_text(tmp_path / "a", "told", durable=True)
    else:
        with pytest.raises(OSError, match="Input/output"):
            replace_text(tmp_path / "a", "told", durable=True)
    assert (tmp_path / "a").read_text() == "told"
    assert len(os.listdir("/proc/self/fd")) == before
