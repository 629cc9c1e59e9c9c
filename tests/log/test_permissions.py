"""Who may read and change what a log's folder holds: its files follow it, whatever the umask."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_rtps.monitoring.decoding_report import update_decoding_report
from spark_rtps.transport.errors import LogAccessError, LogError
from spark_rtps.transport.log import permissions
from spark_rtps.transport.log.counters import Counters
from spark_rtps.transport.log.error_log import ERROR_LOG, ErrorLog
from spark_rtps.transport.log.loss_report import LOSS_REPORT, LossReport
from spark_rtps.transport.log.permissions import create_file, make_folder
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.receiver.identity import next_incarnation
from spark_rtps.transport.receiver.known_participants import write_known_participants
from spark_rtps.transport.receiver.writer_types import WriterTypes
from tests.support.stream_logs import RECEPTION, WRITER, encoded, points, run_of

NOBODY = 65_534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture(params=[0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may enter; pytest's own may not."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def fill(directory: Path, mode: int) -> None:
    """All files that a receiver and the tasks of a query make."""
    if StreamLog.exists(directory):
        log = StreamLog.open(directory, mode=mode)
    else:
        log = StreamLog.create(directory, max_bytes=1 << 20, metadata={}, mode=mode)
    with log:
        assert log.append(run_of(encoded(points(0, 3)), 1), reception=RECEPTION)
    Counters.create(directory / "counters")
    LossReport(directory / LOSS_REPORT).observe(WRITER, "T", 1, now=1)
    ErrorLog(directory / ERROR_LOG).record("WARNING", "logger", "text", now=1)
    next_incarnation(directory)
    write_known_participants(directory, [])
    WriterTypes(directory, lambda _: None).record_writer(WRITER)
    update_decoding_report(directory, lambda _: None)


def modes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}


@pytest.mark.parametrize(
    ("mode", "files", "locks"),
    [(0o700, 0o600, 0o600), (0o750, 0o640, 0o600), (0o770, 0o660, 0o660), (0o755, 0o644, 0o600)],
)
@pytest.mark.usefixtures("umask")
def test_files_follow_their_folder(tmp_path: Path, mode: int, files: int, locks: int) -> None:
    fill(tmp_path / "log", mode)
    assert (tmp_path / "log").stat().st_mode & 0o777 == mode
    found = modes(tmp_path / "log")
    assert len(found) == 12, sorted(found)
    assert found.pop("lock") == 0o600, "who may open it can hold it"
    assert found.pop("decoding_report.lock") == locks
    assert set(found.values()) == {files}


def test_a_log_that_was_open_to_others_is_closed(tmp_path: Path) -> None:
    fill(tmp_path / "log", 0o755)
    for path in (tmp_path / "log").iterdir():
        path.chmod(0o666)
    fill(tmp_path / "log", 0o700)
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
    assert set(modes(tmp_path / "log").values()) == {0o600}


def test_a_folder_that_was_there_already(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir(mode=0o777)
    (tmp_path / "log").chmod(0o2777)
    fill(tmp_path / "log", 0o700)
    assert (tmp_path / "log").stat().st_mode & 0o7777 == 0o2700, "what it hands on is the user's matter"


@as_root
def test_other_users_cannot_hold_the_lock(open_folder: Path) -> None:
    for mode in (0o700, 0o755):
        fill(open_folder / "log", mode)
        held = subprocess.run(
            ["flock", "-n", open_folder / "log" / "lock", "true"], user=NOBODY, group=NOBODY
        )
        assert held.returncode != 0, oct(mode)
        read = subprocess.run(
            ["cat", open_folder / "log" / "incarnation"], user=NOBODY, group=NOBODY, capture_output=True
        )
        assert (read.returncode == 0) == (mode == 0o755)


@as_root
def test_a_log_of_another_user_is_refused(open_folder: Path) -> None:
    fill(open_folder / "log", 0o700)
    os.chown(open_folder / "log", NOBODY, NOBODY)
    with pytest.raises(LogAccessError, match=rf"log belongs to another user \({NOBODY}\)$") as raised:
        StreamLog.open(open_folder / "log")
    assert raised.value.owner == NOBODY
    os.chown(open_folder, NOBODY, NOBODY)  # as where a file system shows one owner for everything
    StreamLog.open(open_folder / "log").close()


def test_a_file_system_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "log", 0o755)

    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(LogError, match=r"cannot open the stream log in .*: Operation not permitted"):
        StreamLog.open(tmp_path / "log")
    StreamLog.open(tmp_path / "log", mode=0o755).close()  # nothing to change


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"):
        create_file(tmp_path / "lock", os.O_RDWR | os.O_TRUNC)
    assert (tmp_path / "other").read_text() == "kept"


def test_folders_above_are_made_as_the_umask_has_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        make_folder(tmp_path / "above" / "folder")
    finally:
        os.umask(before)
    assert (tmp_path / "above").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "above" / "folder").stat().st_mode & 0o777 == permissions.PRIVATE
