"""Removal of old logs: the stream logs of a directory that have no appender any more, and those that may be removed.

A log is needed for as long as its query's checkpoint may be started again. When that is over is unknown, except for a
checkpoint that Spark made in its temporary directory: the query's source notes its path in the log's folder, and once
it is removed the log cannot be resumed. For all other logs there are an age and a size.

The reports of losses and errors lie beside the segments. They are small, and users look for them after the end of a
query: with a temporary checkpoint the samples are removed, and the rest only if there are no reports.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import uuid
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from ..errors import LogLostError, RtpsError
from ..structure import NANOSECONDS
from ..value_classes import value
from . import last_use
from .appending import is_appended_to, let_go
from .error_log import ERROR_LOG
from .host_clocks import Clocks
from .loss_report import LOSS_REPORT
from .permissions import LOCK
from .segment import METADATA, list_segments, segment_path
from .small_file import replace_text
from .stream_log import StreamLog

#: File in the folder of a log: the path of the temporary checkpoint to which it belongs.
TEMPORARY_CHECKPOINT: Final = "temporary_checkpoint"
#: File in a directory in which a receiver service keeps its logs. Only the service knows which of them it resumes.
_OF_RECEIVER_SERVICE: Final = "supervisor.lock"
#: A log that changed within this time is not removed for its size: its query may be about to start again.
_RESTART_NS: Final = 600 * NANOSECONDS
_BLOCK: Final = 512
#: The reports that users look for after the end of a query; the last one is written by tasks about undecoded samples.
_REPORTS: Final = (ERROR_LOG, LOSS_REPORT, "decoding_report")

#: Why a log may be removed.
CHECKPOINT_GONE: Final = "its temporary checkpoint is gone"
TOO_OLD: Final = "it has not changed for longer than is kept"
TOO_MUCH: Final = "ended logs take more than is kept, and it is among the oldest"


@value
class EndedLog:
    """A log without an appender. ``changed`` is in ns since 1970, ``age`` the ns since it was in use, and ``nbytes``
    its size on the disk."""

    directory: Path
    changed: int
    age: int
    nbytes: int
    #: Whether its samples can no longer be requested, and it has samples, or no reports worth keeping.
    is_left_over: bool


def disk_bytes(directory: Path) -> int:
    """The size of a folder's files on the disk; 0 if it was removed."""
    total = 0
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
                except OSError:
                    continue  # trimmed meanwhile
    except OSError:
        return 0
    return total


def note_temporary_checkpoint(directory: Path, checkpoint: Path) -> None:
    """Note that the log in ``directory`` is useless once ``checkpoint`` is removed. Raises OSError."""
    replace_text(directory / TEMPORARY_CHECKPOINT, f"{checkpoint}\n")


def ended_logs(root: Path, *, now: Clocks, in_use: Collection[str] | None = None) -> list[EndedLog]:
    """The logs in ``root`` without an appender, the oldest first.

    Logs of a receiver service are left out, unless the service itself calls and names the folders that are ``in_use``.
    """
    if in_use is None and (root / _OF_RECEIVER_SERVICE).exists():
        return []
    found = (log for log in _ended(root, now) if log.directory.name not in (in_use or ()))
    return sorted(found, key=lambda log: -log.age)


def given_up(
    logs: Iterable[EndedLog], *, period: int, nbytes: int | None = None
) -> list[tuple[EndedLog, str]]:
    """The logs of ``logs``, the oldest first, that may be removed, with the reasons.

    These are older than ``period`` ns, or have a temporary checkpoint that was removed. Of the others the oldest are
    removed until they take at most ``nbytes``; None: no limit.
    """
    found, kept = [], []
    for log in logs:
        if log.age > period:
            found.append((log, TOO_OLD))
        elif log.is_left_over:
            found.append((log, CHECKPOINT_GONE))
        else:
            kept.append(log)
    over = 0 if nbytes is None else sum(log.nbytes for log in kept) - nbytes
    for log in kept:
        if over <= 0 or log.age <= _RESTART_NS:
            break
        found.append((log, TOO_MUCH))
        over -= log.nbytes
    return found


def remove_log(directory: Path, why: str, *, changed: int | None = None) -> bool:
    """Remove a log; False: it has an appender, or cannot be removed, or has changed after ``changed``.

    Its reports stay if only its checkpoint was removed. The lock is held meanwhile, so that no receiver resumes a log
    that is being removed.
    """
    try:
        keeps_reports = why == CHECKPOINT_GONE and _has_reports(directory)
        if keeps_reports:
            if changed is not None and last_use.changed(directory) > changed:
                return False
            if _trim_all(directory):
                return True
            changed = None  # the attempt to open the log has changed it
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_NOFOLLOW) if (directory / LOCK).exists() else None
        try:
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if changed is not None and last_use.changed(directory) > changed:
                return False  # a receiver resumed it meanwhile
            if keeps_reports:
                for file in list_segments(directory):
                    segment_path(directory, file.base).unlink()
            else:
                # Without the metadata there is no log: once the lock's file is removed as well, the lock would be
                # invisible.
                (directory / METADATA).unlink(missing_ok=True)
                shutil.rmtree(directory)
        finally:
            if lock is not None:
                let_go(lock)
    except (OSError, RtpsError):  # also BlockingIOError, of the lock
        return False
    return True


def _trim_all(directory: Path) -> bool:
    """Trim all samples of a log; False: it is damaged, and cannot be opened."""
    mode = stat.S_IMODE(directory.stat().st_mode)
    try:
        with StreamLog.open(directory, mode=mode) as log:
            log.trim_all()
    except LogLostError:
        return False
    return True


def remove_given_up(
    root: Path, *, now: Clocks, period: int, nbytes: int | None = None, in_use: Collection[str] | None = None
) -> list[Path]:
    """Remove the logs in ``root`` that :func:`given_up` selects from :func:`ended_logs`; returns their folders."""
    logs = ended_logs(root, now=now, in_use=in_use)
    for log in logs:
        last_use.keep_age(log.directory, log.age, now)
    found = given_up(logs, period=period, nbytes=nbytes)
    return [log.directory for log, why in found if remove_log(log.directory, why, changed=log.changed)]


def _ended(root: Path, now: Clocks) -> Iterator[EndedLog]:
    try:
        directories = list(root.iterdir())
    except OSError:
        return
    for directory in directories:
        try:
            uuid.UUID(directory.name)
            if not is_appended_to(directory):
                dated = last_use.changed(directory)
                age = last_use.age(directory, dated, now)
                yield EndedLog(directory, dated, age, disk_bytes(directory), _is_left_over(directory))
        except (ValueError, OSError, RtpsError):
            continue  # not a stream log, or another process removes it, or the system refuses just now


def _is_left_over(directory: Path) -> bool:
    try:
        checkpoint = (directory / TEMPORARY_CHECKPOINT).read_text(encoding="utf-8").strip()
    except OSError:
        return False
    if not checkpoint or os.path.exists(checkpoint):
        return False
    return not _has_reports(directory) or bool(list_segments(directory))


def _has_reports(directory: Path) -> bool:
    return any((directory / name).exists() for name in _REPORTS)
