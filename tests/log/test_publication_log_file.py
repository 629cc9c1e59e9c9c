"""The publication log as a file: for other processes, never a damaged one, with slots for its subscribers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spark_rtps.monitoring.decoding_report import update_decoding_report
from spark_rtps.transport.errors import LogError, LogFullError
from spark_rtps.transport.log.appending import is_appended_to
from spark_rtps.transport.log.image import CopyBuffer, Image
from spark_rtps.transport.log.permissions import LOCK
from spark_rtps.transport.log.publication_log import FrameClaim, PublicationLog
from spark_rtps.transport.log.subscriber_slots import SUBSCRIBERS_MAX, SubscriberSlots, SubscriberState
from tests.log.make_runs import guid

TERM = 64 << 10
ANY = 1 << 62


def write(log: PublicationLog, body: bytes, *, first_sn: int = 0, count: int = 0) -> None:
    claim = log.claim(len(body), limit=ANY, first_sn=first_sn, count=count)
    assert isinstance(claim, FrameClaim)
    claim.data[:] = np.frombuffer(body, np.uint8)
    assert claim.commit()


def test_another_process_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    about = {"topic": "Square", "qos": {"depth": 3}}
    log = PublicationLog.create(TERM, path=path, about=about, token=77)
    write(log, b"hello", first_sn=1, count=2)
    script = (
        "import sys; from pathlib import Path; from spark_rtps.transport.log.publication_log import PublicationLog;"
        "from spark_rtps.transport.log.image import CopyBuffer, Image;"
        "log = PublicationLog.open(Path(sys.argv[1])); data = Image(log, 0, CopyBuffer()).poll(100).data;"
        "print(log.token, log.about, log.position, data[32:37].tobytes(), log.metadata.owner_lives)"
    )
    got = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert got.stdout.strip() == f"77 {about} 64 b'hello' True"


def test_the_metadata_grows_with_its_entries(tmp_path: Path) -> None:
    about = {"text": "x" * 100_000}
    PublicationLog.create(TERM, path=tmp_path / "log", about=about)
    assert PublicationLog.open(tmp_path / "log").about == about


def test_a_file_is_for_its_user_alone(tmp_path: Path) -> None:
    PublicationLog.create(TERM, path=tmp_path / "log")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_no_room_for_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, at: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(LogFullError, match="No space left"):
        PublicationLog.create(TERM, path=tmp_path / "log")
    assert not list(tmp_path.iterdir())


def test_no_place_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot create the publication log"):
        PublicationLog.create(TERM, path=tmp_path / "missing" / "log")
    with pytest.raises(LogError, match="cannot open the publication log"):
        PublicationLog.open(tmp_path / "missing")


@pytest.mark.parametrize("cut", [0, 7, 100, 4095, 4096, 4096 + 3 * TERM - 1, 4096 + 3 * TERM + 1])
def test_a_file_that_was_cut_or_grown_is_none(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log"
    PublicationLog.create(TERM, path=path)
    assert path.stat().st_size == 4096 + 3 * TERM
    os.truncate(path, cut)
    with pytest.raises(LogError, match="publication log"):
        PublicationLog.open(path)


def test_a_file_of_another_kind_is_none(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(os.urandom(8192))
    with pytest.raises(LogError, match="is not a publication log"):
        PublicationLog.open(path)


@pytest.mark.parametrize(
    ("word", "value", "reported"),
    [
        (1, 2, "version 1"),
        (3, TERM + 1, "damaged or truncated"),
        (3, 2 * TERM, "damaged or truncated"),
        (5, 0, "damaged or truncated"),
        (5, -4096, "damaged or truncated"),
        (6, -1, "damaged or truncated"),
        (6, 1, "damaged or truncated"),
        (6, 1 << 62, "damaged or truncated"),
        (11, -1, "damaged or truncated"),
        (11, 1, "damaged or truncated"),
        (11, 1 << 62, "damaged or truncated"),
        (12, (1005 << 32) + TERM + 32, "damaged or truncated"),
        (12, 1006 << 32, "damaged or truncated"),
        (20, -1, "damaged or truncated"),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, word: int, value: int, reported: str) -> None:
    path = tmp_path / "log"
    PublicationLog.create(TERM, path=path, initial_term_id=1005)
    with path.open("r+b") as file:
        file.seek(word * 8)
        file.write(struct.pack("<q", value))
    with pytest.raises(LogError, match=reported):
        PublicationLog.open(path)


def test_any_metadata_is_a_log_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = PublicationLog.create(TERM, path=path, about={"a": 1})
    write(log, b"x")
    whole = path.read_bytes()[:4096]
    rng = random.Random(4)
    for _ in range(300):
        bad = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(200) if rng.random() < 0.8 else rng.randrange(2816, 2840)] = rng.randrange(256)
        with path.open("r+b") as file:
            file.write(bad)
        try:
            again = PublicationLog.open(path)
        except LogError:
            continue
        with contextlib.suppress(LogError):
            Image(again, 0, CopyBuffer()).poll(ANY)


def test_the_owner_of_a_log_lives_or_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "log"
    script = (
        "import sys; from pathlib import Path; from spark_rtps.transport.log.publication_log import PublicationLog;"
        "log = PublicationLog.create(65536, path=Path(sys.argv[1])); log.claim(5, limit=999);"
        "print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        child.stdout.readline()
        log = PublicationLog.open(path)
        assert log.metadata.owner_lives and log.metadata.owner.process == child.pid
        child.kill()
    assert not log.metadata.owner_lives
    assert not Image(log, 0, CopyBuffer()).has_more and log.position == 64, "a claim that nobody will commit"


def test_end_of_stream_is_seen(tmp_path: Path) -> None:
    log = PublicationLog.create(TERM, path=tmp_path / "log")
    other = PublicationLog.open(tmp_path / "log")
    assert not other.metadata.end_of_stream
    log.metadata.end_of_stream = True
    assert other.metadata.end_of_stream


# --- subscribers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("in_file", [False, True])
def test_subscribers(in_file: bool, tmp_path: Path) -> None:
    log = PublicationLog.create(TERM, path=tmp_path / "log" if in_file else None)
    theirs = PublicationLog.open(tmp_path / "log") if in_file else log
    one_, two = (theirs.subscribe(guid(n), position=32 * n, now=n) for n in (1, 2))
    assert one_ and two
    assert [(s.guid, s.position, s.heartbeat, s.state) for s in log.subscribers()] == [
        (guid(1), 32, 1, SubscriberState.ACTIVE),
        (guid(2), 64, 2, SubscriberState.ACTIVE),
    ]
    one_.position, one_.heartbeat = 640, 9
    log.subscribers()[1].state = SubscriberState.RESTING
    assert (log.subscribers()[0].position, log.subscribers()[0].heartbeat) == (640, 9)
    assert two.state is SubscriberState.RESTING
    one_.leave()
    assert [s.guid for s in log.subscribers()] == [guid(2)]
    again = theirs.subscribe(guid(2), position=96, now=3)
    assert again and [(s.guid, s.position) for s in log.subscribers()] == [(guid(2), 96)], "it has one slot"


def test_subscribers_are_bounded() -> None:
    log = PublicationLog.create(TERM, about={"next": "to the slots"})
    slots = [log.subscribe(guid(n), position=-1, now=-1) for n in range(SUBSCRIBERS_MAX)]
    assert all(slots)
    assert log.subscribe(guid(99), position=0, now=0) is None
    assert log.metadata.about == {"next": "to the slots"} and log.position == 0
    slots[5].leave()
    assert log.subscribe(guid(99), position=0, now=0) is not None
    assert not log.data.any()


def is_appended(directory: Path) -> None:
    """Look for a moment whether somebody appends to a log."""
    (directory / LOCK).touch()
    assert not is_appended_to(directory)


def subscribe(directory: Path) -> None:
    assert PublicationLog.create(TERM, path=directory / "log").subscribe(guid(1), position=0, now=0)


def count(directory: Path) -> None:
    update_decoding_report(directory, lambda _: None)


@pytest.mark.parametrize("hold", [is_appended, subscribe, count])
def test_a_child_that_is_forked_while_a_lock_is_held_does_not_hold_it(
    hold: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, children, (wait, end) = fcntl.flock, dict[int, Path](), os.pipe()

    def forking(fd: int, operation: int) -> None:
        flock(fd, operation)
        if children or not operation & fcntl.LOCK_EX:
            return
        locked = Path(os.readlink(f"/proc/self/fd/{fd}"))
        child = os.fork()
        if not child:
            os.close(end)
            os.read(wait, 1)
            os._exit(not SubscriberSlots._subscribing.acquire(blocking=False))
        children[child] = locked

    monkeypatch.setattr(fcntl, "flock", forking)
    try:
        hold(tmp_path)
        ((child, locked),) = children.items()
        with open(locked) as file:
            flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(end)
    assert os.waitpid(child, 0)[1] == 0
    os.close(wait)
