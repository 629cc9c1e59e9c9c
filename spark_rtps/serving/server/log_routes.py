"""The answers of a log server: plain functions of a request and of the logs on the disk.

=======  ================================  ====================================================================
GET      /v1/logs/LOG                      what the log is and where it begins and ends, as JSON
GET      /v1/logs/LOG/frames?from=P&to=Q   the bytes between two positions of one segment
GET      /v1/logs/LOG/writer-types         the types that its writers announced
POST     /v1/logs/LOG/report               what a task counted, as JSON
GET      /healthz                          the server is alive; needs no token
=======  ================================  ====================================================================

All other paths need the header ``Authorization: Bearer TOKEN``. A refusal is a JSON object with the reason in
``error``. 410 adds the log's ``base``, below which it is trimmed; 416 adds its ``end``; 404 adds ``lost`` where the log
should have what was asked for.

Frames that are trimmed while they are sent may be overwritten then. The client detects that by their checksums and by
the log's base.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ...monitoring.decoding_report import update_decoding_report
from ...monitoring.range_tally import RangeTally
from ...transport.errors import LogLostError
from ...transport.log.checkpoint import Base, Tail, read_base, read_tail
from ...transport.log.frame import ALIGNMENT
from ...transport.log.segment import list_segments, read_metadata, segment_path
from ...transport.receiver.writer_types import WRITER_TYPES
from ..wire_format.served import RANGE_BYTES_MAX
from .http_messages import FileRange, HttpResponse, Refusal, Request, json_answer
from .router import Router
from .token_access import TokenAccess

_TEXT: Final = "text/plain; charset=utf-8"
_BYTES: Final = "application/octet-stream"


class LogRoutes:
    """The allowed logs of ``log_dir``, for clients that know the token."""

    def __init__(self, log_dir: Path, token: str, allowed: Iterable[str] = ()) -> None:
        self.access = TokenAccess({"admin": token})
        self.allowed = set(allowed)
        self._log_dir = log_dir
        self._router = Router()
        add_log_routes(self._router, self._directory)
        self.answer = self._router.answer

    def _directory(self, log: str) -> Path:
        """The folder of a log; the name becomes a path only if it is a UUID, and this log was allowed."""
        try:
            canonical = str(uuid.UUID(log)) == log
        except ValueError:
            canonical = False
        if not canonical or log not in self.allowed:
            raise Refusal(404, "there is no such log")
        return self._log_dir / log


def add_log_routes(router: Router, directory_of: Callable[[str], Path]) -> None:
    """Add the paths of every log server. ``directory_of`` finds a log's folder, or raises Refusal."""
    #: Reports are unpacked one at a time, which bounds the memory of many.
    reporting = threading.Lock()

    def health(_: Request) -> HttpResponse:
        return HttpResponse(200, b"ok\n", _TEXT)

    def about(_: Request, log: str) -> HttpResponse:
        return json_answer(_about(directory_of(log)))

    def frames(request: Request, log: str) -> HttpResponse:
        directory = directory_of(log)
        return HttpResponse(200, _frames(directory, request.number("from"), request.number("to")), _BYTES)

    def writer_types(_: Request, log: str) -> HttpResponse:
        return HttpResponse(200, _writer_types(directory_of(log)), _TEXT)

    def report(request: Request, log: str) -> HttpResponse:
        directory = directory_of(log)
        with reporting:
            return _report(directory, request.body)

    router.add("/healthz", GET=health)
    router.add("/v1/logs/{log}", GET=about)
    router.add("/v1/logs/{log}/frames", GET=frames)
    router.add("/v1/logs/{log}/writer-types", GET=writer_types)
    router.add("/v1/logs/{log}/report", POST=report)


def _about(directory: Path) -> dict[str, object]:
    metadata, tail = read_metadata(directory), read_tail(directory)
    try:
        base: Base | None = read_base(directory, metadata.seed)
    except LogLostError:
        base = None  # the ranges are known all the same
    return {
        "v": 1,
        "metadata": {
            "max_bytes": metadata.max_bytes,
            "segment_bytes": metadata.segment_bytes,
            "seed": metadata.seed,
            "given": metadata.given,
        },
        "base": None if base is None else base.position,
        "start": None if base is None else base.start,
        "tail": None if tail is None else tail._asdict(),
        "segments": [[file.base, file.size] for file in list_segments(directory)],
    }


def _frames(directory: Path, start: int, stop: int) -> FileRange:
    if start >= stop or start % ALIGNMENT or stop % ALIGNMENT:
        raise Refusal(400, f"a range begins and ends at multiples of {ALIGNMENT} and is not empty")
    if stop - start > RANGE_BYTES_MAX:
        raise Refusal(400, f"a range has at most {RANGE_BYTES_MAX} bytes", max_bytes=RANGE_BYTES_MAX)
    metadata, tail = read_metadata(directory), read_tail(directory)
    for file in list_segments(directory):
        if not file.base <= start < file.end:
            continue
        if tail is not None and file.base > tail.most:  # created and not yet used
            raise _not_yet(start, tail)
        if stop > file.end:
            raise Refusal(400, f"the segment at {file.base} ends at {file.end}", segment_end=file.end)
        try:
            fd = os.open(segment_path(directory, file.base), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            break  # trimmed meanwhile
        return FileRange(fd, start - file.base, stop - start)
    base = read_base(directory, metadata.seed).start
    if start < base:
        raise Refusal(410, f"position {start} is no longer in the log, which begins at {base}", base=base)
    if tail is not None and start >= tail.most:
        raise _not_yet(start, tail)
    raise Refusal(404, f"position {start} lies in no segment of the log", lost=True)


def _not_yet(position: int, tail: Tail) -> Refusal:
    return Refusal(416, f"position {position} is not yet in the log", end=tail.position)


def _writer_types(directory: Path) -> bytes:
    try:
        return (directory / WRITER_TYPES).read_bytes()
    except FileNotFoundError:
        return b""


def _report(directory: Path, body: bytes) -> HttpResponse:
    try:
        tally = RangeTally.from_json(body)
    except ValueError as error:
        raise Refusal(400, f"the report has the wrong form: {error}") from error
    read_metadata(directory)  # a report is kept in a log's folder only
    update_decoding_report(directory, tally.add_to)
    return HttpResponse(204)
