"""The error logs and loss reports of this host: their files, and how to read all of them.

A receiver has both in the directory of its stream log, where tasks also count which samples are malformed
(:mod:`.decoding_report`). Spark's Python workers, and the processes that plan a query, have an error log
``<default log dir>/errors/<pid>-<start>.errors``, where ``start`` is when the process began, because process ids are
used again. The file outlives its process, for that is when it is read; the next process with an error removes the
oldest files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..options.log_dir import default_log_dir, make_log_dir
from ..transport.errors import RtpsError
from ..transport.log.counters import COUNTERS_FILE, Counters
from ..transport.log.error_log import ERROR_LOG, DistinctError, log_errors, read_error_log
from ..transport.log.log_view import LogView
from ..transport.log.loss_report import LOSS_REPORT, Loss, read_loss_report
from ..transport.log.permissions import make_folder
from ..transport.structure import GUID_BYTES, Guid
from ..transport.value_classes import value
from .decoding_report import DECODING_REPORT, DecodingReport, LostPart, read_decoding_report
from .processes import goes_on, process_start
from .query_names import NO_QUERY, QueryName, read_query
from .stream_counters import listed
from .untrusted_json import NUMBER_MAX

FOLDER: Final = "errors"
_NAME: Final = re.compile(r"(\d+)-(\d+)\.errors", re.ASCII)
#: The logger of tasks that decode.
_DECODING: Final = "spark_rtps.datasource"
#: How many error logs of processes that have ended are kept.
_KEPT: Final = 32


@value
class ErrorReport:
    """One error log; or the malformed samples of a stream log as one error for each writer and reason."""

    path: Path
    #: The topic of a receiver; empty for other processes.
    topic: str
    pid: int
    errors: list[DistinctError]
    #: The number of errors beyond the limit.
    overflow: int
    #: The query of a receiver's log, where a task has noted it.
    query: QueryName = NO_QUERY


@value
class LossesOfLog:
    """The losses of one source: the loss report of its receiver, and the losses of its log."""

    path: Path
    topic: str
    losses: list[Loss]
    overflow: int


def record_errors() -> None:
    """From now on record this process's warnings and errors of spark_rtps loggers for ``spark-rtps errors``."""
    log_errors(_own_path)


def read_error_reports(roots: Iterable[Path]) -> list[ErrorReport]:
    """All error logs below the directories of logs ``roots``; the one with the newest error comes first.

    Files that vanish meanwhile, or are not error logs, are skipped.
    """
    found = []
    for root in dict.fromkeys(roots):
        for directory in listed(root):
            if os.path.exists(
                directory / ERROR_LOG
            ):  # os.path, because it does not raise where access is denied
                found.append(
                    _errors(
                        directory / ERROR_LOG, _topic(directory), _receiver(directory), read_query(directory)
                    )
                )
            if os.path.exists(directory / DECODING_REPORT):
                found.append(_malformed(directory))
        for path in listed(root / FOLDER):
            if match := _NAME.fullmatch(path.name):
                found.append(_errors(path, "", int(match[1])))
    reports = [report for report in found if report is not None]
    return sorted(reports, key=lambda r: max((e.last_ns for e in r.errors), default=0), reverse=True)


def read_losses(roots: Iterable[Path]) -> list[LossesOfLog]:
    """The losses of all sources below the directories of logs ``roots``; those with the newest come first."""
    found = []
    for root in dict.fromkeys(roots):
        for directory in listed(root):
            path = directory / LOSS_REPORT
            try:
                losses, overflow = read_loss_report(path)
            except (RtpsError, OSError):
                losses, overflow = [], 0
            if os.path.exists(directory / DECODING_REPORT):
                report = read_decoding_report(directory)
                losses += _lost_by_log(report, _topic(directory))
                overflow += report.lost_overflow
            if losses or overflow or os.path.exists(path):
                found.append(LossesOfLog(path, _topic(directory), losses, overflow))
    return sorted(found, key=lambda r: max((e.last_ns for e in r.losses), default=0), reverse=True)


def remove_old_errors(directory: Path) -> None:
    """Remove the error logs of processes that have ended, except the newest ones."""
    ended = []
    for path in listed(directory):
        match = _NAME.match(path.name)
        if match and not goes_on(path, int(match[1]), int(match[2])):
            try:
                ended.append((path.stat().st_mtime_ns, path))
            except OSError:
                continue
    for _, path in sorted(ended, reverse=True)[_KEPT:]:
        try:
            path.unlink()
        except OSError:
            pass  # another process was quicker


def _own_path() -> Path:
    root = default_log_dir()
    make_log_dir(root)
    directory = root / FOLDER
    make_folder(directory)
    remove_old_errors(directory)
    return directory / f"{os.getpid()}-{process_start(os.getpid())}.errors"


def _errors(path: Path, topic: str, pid: int, query: QueryName = NO_QUERY) -> ErrorReport | None:
    try:
        errors, overflow = read_error_log(path)
    except (RtpsError, OSError):
        return None
    return ErrorReport(path, topic, pid, errors, overflow, query)


def _malformed(directory: Path) -> ErrorReport | None:
    report = read_decoding_report(directory)
    errors = [
        DistinctError(
            "WARNING",
            _DECODING,
            f"malformed sample of writer {m.writer}: {m.reason}",
            m.count,
            m.first_ns,
            m.last_ns,
        )
        for m in report.malformed.values()
    ]
    if not errors:
        return None
    return ErrorReport(
        directory / DECODING_REPORT,
        _topic(directory),
        _receiver(directory),
        errors,
        report.overflow,
        read_query(directory),
    )


def _lost_by_log(report: DecodingReport, topic: str) -> list[Loss]:
    """The losses of the log itself, as one loss for each writer and cause."""
    alike: dict[tuple[str, str], list[LostPart]] = {}
    for part in report.lost.values():
        alike.setdefault((part.writer, part.cause), []).append(part)
    return [
        Loss(
            _guid(writer),
            topic,
            len(parts),
            # clients may report anything; larger numbers could not be sent on as JSON
            min(sum(part.samples or 0 for part in parts), NUMBER_MAX),
            min(sum(part.nbytes for part in parts), NUMBER_MAX),
            min(part.at_ns for part in parts),
            max(part.at_ns for part in parts),
            cause,
            sum(part.samples is None for part in parts),
        )
        for (writer, cause), parts in alike.items()
    ]


def _guid(text: str) -> Guid | None:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    return Guid.from_bytes(raw) if len(raw) == GUID_BYTES else None


def _topic(directory: Path) -> str:
    try:
        return str(LogView(directory).metadata["topic"])
    except (RtpsError, OSError, LookupError, TypeError):
        return ""


def _receiver(directory: Path) -> int:
    """The process id of the last receiver of a log; 0 if it is not known."""
    try:
        return Counters.open(directory / COUNTERS_FILE, writable=False).snapshot().get("receiver.pid", 0)
    except (RtpsError, OSError, ValueError):
        return 0
