"""The directory of named publication logs: whose it is, what is found there, what killed processes left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_rtps.transport.errors import LogError, LogFullError
from spark_rtps.transport.log import named_logs as module
from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.named_logs import NamedLogs, directory_of_user, remove
from spark_rtps.transport.log.owner_lock import OwnerLock
from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.log.publication_log_metadata import _OWNER_PID

TERM = 64 << 10


@pytest.fixture
def logs(tmp_path: Path) -> NamedLogs:
    return NamedLogs(tmp_path / "logs")


def left_by_a_dead_process(directory: Path) -> Path:
    """A log whose owner is gone."""
    script = (
        "import os, sys; from pathlib import Path\n"
        "from spark_rtps.transport.log.named_logs import NamedLogs\n"
        f"print(NamedLogs(Path(sys.argv[1])).create({TERM}, {{}}).path, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(directory)], capture_output=True, text=True)
    return Path(done.stdout.strip())


def test_the_directory_is_in_shared_memory_and_nobody_elses() -> None:
    where = directory_of_user()
    assert where.name == f"spark-rtps-{os.getuid()}"
    assert where.parent == (Path("/dev/shm") if os.access("/dev/shm", os.W_OK | os.X_OK) else where.parent)


def test_without_shared_memory_it_is_in_the_temporary_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_SHARED_MEMORY", tmp_path / "none")
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))  # type: ignore[attr-defined]
    assert directory_of_user() == tmp_path / f"spark-rtps-{os.getuid()}"


def test_a_log_is_made_found_opened_and_removed(logs: NamedLogs) -> None:
    assert logs.listing() == []
    log = logs.create(TERM, {"topic": "Square"})
    assert logs.directory.stat().st_mode & 0o777 == 0o700
    assert log.path is not None and [(each.path, each.about) for each in logs.listing()] == [
        (log.path, {"topic": "Square"})
    ]
    opened = NamedLogs(logs.directory).map_log(log.path.name)
    assert opened.token == log.token
    log.claim(4, limit=TERM).commit()
    remove(log)
    assert logs.listing() == [] and not log.path.exists()
    assert opened.metadata.end_of_stream and Image(opened, 0, CopyBuffer()).has_more, (
        "who has mapped it reads on"
    )


def test_every_log_has_a_name_of_its_own(logs: NamedLogs) -> None:
    assert len({logs.create(TERM, {}).path for _ in range(10)}) == 10


@pytest.mark.parametrize(
    "name",
    [
        "../etc/passwd",
        "/etc/passwd",
        "",
        ".",
        "..",
        "x.publication",
        "0" * 32 + ".publication.new",
        "0" * 32 + ".publication\n",
        "0" * 31 + "/.publication",
        "\0" * 32 + ".publication",
    ],
)
def test_invalid_names_are_not_looked_for(logs: NamedLogs, name: str) -> None:
    logs.create(TERM, {})
    with pytest.raises(LogError, match="not a name of a publication log"):
        logs.map_log(name)


def test_a_name_that_is_not_there(logs: NamedLogs) -> None:
    with pytest.raises(LogError):
        logs.map_log("0" * 32 + ".publication")
    logs.create(TERM, {})
    with pytest.raises(LogError, match="No such file"):
        logs.map_log("0" * 32 + ".publication")


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_directory_that_others_may_enter_is_refused(logs: NamedLogs, mode: int) -> None:
    logs.directory.mkdir()
    logs.directory.chmod(mode)
    with pytest.raises(LogError, match="only this user can enter"):
        logs.create(TERM, {})
    with pytest.raises(LogError, match="only this user can enter"):
        logs.map_log("0" * 32 + ".publication")


def test_a_link_to_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "logs").symlink_to(tmp_path / "theirs")
    with pytest.raises(LogError, match="only this user can enter"):
        NamedLogs(tmp_path / "logs").create(TERM, {})


def test_a_file_in_its_place_is_refused(logs: NamedLogs) -> None:
    logs.directory.write_text("")
    with pytest.raises(LogError):
        logs.create(TERM, {})
    with pytest.raises(LogError):
        logs.listing()


def test_another_users_directory_is_refused(logs: NamedLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.create(TERM, {})
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    with pytest.raises(LogError, match="only this user can enter"):
        logs.create(TERM, {})
    with pytest.raises(LogError, match="only this user can enter"):
        logs.listing()


def test_no_room(logs: NamedLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(LogFullError, match="No space left"):
        logs.create(TERM, {})
    assert list(logs.directory.iterdir()) == []


def test_files_of_a_killed_process_are_removed(logs: NamedLogs) -> None:
    alive = logs.create(TERM, {})
    dead = left_by_a_dead_process(logs.directory)
    assert dead.exists()
    assert [each.path for each in logs.listing()] == [alive.path]
    with pytest.raises(LogError, match="is gone"):
        logs.map_log(dead.name)
    assert logs.remove_dead() == [dead]
    assert not dead.exists() and alive.path is not None and alive.path.exists()
    assert logs.remove_dead() == []


def test_whoever_makes_a_log_removes_the_dead_ones(logs: NamedLogs) -> None:
    dead = left_by_a_dead_process(logs.directory)
    logs.create(TERM, {})
    assert not dead.exists()


def test_foreign_files_are_left_alone(logs: NamedLogs) -> None:
    _ours = logs.create(TERM, {})
    strange = logs.directory / ("1" * 32 + ".publication")
    strange.write_bytes(b"of another version")
    other = logs.directory / "notes.txt"
    other.write_text("")
    assert logs.remove_dead() == [] and len(logs.listing()) == 1
    assert strange.exists() and other.exists()


def test_an_old_file_that_was_never_finished_is_removed(logs: NamedLogs) -> None:
    _ours = logs.create(TERM, {})
    young, old = (logs.directory / (digit * 32 + ".publication.new") for digit in "12")
    young.write_bytes(b"")
    old.write_bytes(b"")
    os.utime(old, (time.time() - 1_000, time.time() - 1_000))
    assert logs.remove_dead() == [old]
    assert young.exists()


def test_a_log_is_looked_into_once(logs: NamedLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    _ours = logs.create(TERM, {"topic": "t"})
    assert len(logs.listing()) == 1
    monkeypatch.setattr(PublicationLog, "open", lambda path: pytest.fail("it was looked into before"))
    assert len(logs.listing()) == 1


# --- who owns a log --------------------------------------------------------------------------------

MAKES = (
    "import os, sys; from pathlib import Path\n"
    "from spark_rtps.transport.log.named_logs import NamedLogs\n"
    f"log = NamedLogs(Path(sys.argv[1])).create({TERM}, {{}})\n"
    "print(log.path, flush=True)\n"
)


def maker(directory: Path, *, then: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that has made a log and then waits, and the log."""
    child = subprocess.Popen(
        [sys.executable, "-c", MAKES + then, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_the_log_of_a_writer_whose_process_is_not_visible_here_is_read_and_stays(logs: NamedLogs) -> None:
    """In another PID namespace, such as a container's, its process has an id that is none here, or another's."""
    log = logs.create(TERM, {"topic": "t"})
    assert log.path is not None
    for process in (4_194_303, os.getppid()):
        log.metadata.words[_OWNER_PID] = process
        theirs = NamedLogs(logs.directory)
        assert [each.path for each in theirs.listing()] == [log.path]
        assert theirs.remove_dead() == [] and theirs.map_log(log.path.name).metadata.owner_lives
    other = theirs.create(TERM, {})
    assert log.path.exists() and other.path is not None and other.path.exists()


def test_the_log_of_a_killed_process_that_nobody_has_waited_for_is_removed(logs: NamedLogs) -> None:
    child, path = maker(logs.directory, then="sys.stdin.read()")
    with child:
        assert [each.path for each in logs.listing()] == [path] and logs.remove_dead() == []
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        assert logs.listing() == [], "what was known of it does not keep it alive"
        assert logs.remove_dead() == [path] and not path.exists()


def test_a_forked_child_does_not_keep_the_log_of_a_killed_process(logs: NamedLogs) -> None:
    then = "if os.fork() == 0:\n    print(flush=True); sys.stdin.read(); os._exit(0)\nimport time; time.sleep(600)"
    child, path = maker(logs.directory, then=then)
    with child:
        assert child.stdout is not None
        child.stdout.readline()  # the child of the child runs
        child.kill()
        child.wait()
        assert logs.remove_dead() == [path]


def test_a_log_without_a_lock_is_judged_by_its_process(
    logs: NamedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an earlier version, or of a system without such locks."""
    monkeypatch.setattr(OwnerLock, "hold", lambda path: None)
    log = logs.create(TERM, {})
    assert log.path is not None and [each.path for each in logs.listing()] == [log.path]
    log.metadata.words[_OWNER_PID] = 4_194_303
    assert not log.metadata.owner_lives and logs.remove_dead() == [log.path]


def test_a_log_that_is_closed_has_no_owner(logs: NamedLogs) -> None:
    log = logs.create(TERM, {})
    log.close()
    assert not log.metadata.owner_lives and logs.listing() == []
