"""What a log server answers: plain functions of a request and of the logs on the disk.

=======  ================================  ====================================================================
GET      /v1/logs/LOG                      what the log is and where it begins and ends, as JSON
GET      /v1/logs/LOG/frames?from=P&to=Q   the bytes between two positions of one segment
GET      /v1/logs/LOG/writer-types         what its writers told of their types
POST     /v1/logs/LOG/report               what a task counted, as JSON
GET      /healthz                          whether the server is there; needs no token
=======  ================================  ====================================================================

All else needs the header ``Authorization: Bearer TOKEN``. What is refused has a JSON object for an answer, with the
reason in ``error``. 410 has the log's ``base`` beside it, since what lies before is trimmed; 416 has its ``end``; 404
has ``lost`` where the log should have what was asked for.

Frames that are trimmed while they are sent may be overwritten then. Whoever fetches them finds that by their checksums,
and by the log's base.
"""

from __future__ import annotations

import hmac
import json
import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from ...monitoring.decoding_report import update_decoding_report
from ...monitoring.range_tally import RangeTally
from ...transport.errors import LogError, LogLostError, reason
from ...transport.log.checkpoint import Base, Tail, read_base, read_tail
from ...transport.log.frame import ALIGNMENT
from ...transport.log.segment import list_segments, read_metadata, segment_path
from ...transport.receiver.writer_types import WRITER_TYPES
from ...transport.value_classes import slotted, value
from ..wire_format.served import RANGE_BYTES_MAX

#: With a refusal that is over in a moment.
SOON: Final = (("Retry-After", "1"),)
_DIGITS_MAX: Final = 19
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_BYTES: Final = "application/octet-stream"


class FileRange(NamedTuple):
    """A part of a file that is open; whoever sends it closes it."""

    fd: int
    offset: int
    nbytes: int


@value
class Answer:
    """A response; ``body`` is sent as it is, or from a file."""

    status: int
    body: bytes | FileRange = b""
    kind: str = _JSON
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def length(self) -> int:
        return self.body.nbytes if isinstance(self.body, FileRange) else len(self.body)


class Refusal(Exception):
    """A request is answered with an error; ``facts`` go beside the sentence."""

    def __init__(
        self, status: int, error: str, headers: tuple[tuple[str, str], ...] = (), **facts: object
    ) -> None:
        super().__init__(error)
        body = json.dumps({"error": error, **facts}).encode()
        self.answer = Answer(status, body, headers=headers)


def may_pass(error: LogError | OSError) -> bool:
    """Whether the system alone refuses to read a log, such as for want of descriptors: it says nothing of the log."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError | NotADirectoryError)


def refusal_of(error: LogError | OSError) -> Refusal:
    """How a request is answered whose log cannot be read. What may pass is no loss."""
    if isinstance(error, LogLostError):
        return Refusal(404, str(error), lost=True)
    if may_pass(error):
        why = reason(error) if isinstance(error, OSError) else str(error)
        return Refusal(503, f"the log cannot be read now: {why}", (("Retry-After", "1"),))
    return Refusal(404, str(error))


@slotted
class LogRoutes:
    """The logs of ``log_dir`` that were allowed, for those who know the token."""

    log_dir: Path
    token: str = field(repr=False)
    allowed: set[str] = field(default_factory=set)
    #: Reports are unpacked one at a time, so that many at once do not take the memory of many.
    _reporting: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def admit(
        self, method: str, target: str, headers: Mapping[bytes, bytes], *, certified: bool = False
    ) -> bool:
        """Whether the request needs no token; Refusal if it does and has a wrong one."""
        if (method, target) == ("GET", "/healthz"):
            return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        expected = self.token.encode()
        if not hmac.compare_digest(given.strip(), expected) or scheme.lower() != b"bearer":
            said = (("WWW-Authenticate", "Bearer"),)
            raise Refusal(401, "this server answers those who know its token only", said)
        return False

    def answer(self, method: str, target: str, body: bytes, peer: int | None = None) -> Answer:
        """The answer to a request that was admitted. Raises Refusal."""
        try:
            parts = urlsplit(target)
            query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query), max_num_fields=8))
        except ValueError:
            raise Refusal(400, "the request's target is malformed") from None
        match parts.path.split("/"):
            case ["", "healthz"]:
                expected, result = "GET", Answer(200, b"ok\n", _TEXT)
            case ["", "v1", "logs", log, *rest]:
                expected = "POST" if rest == ["report"] else "GET"
                if method != expected:
                    raise _wrong_method(expected)
                directory = self._directory(log)
                try:
                    return self._of_log(directory, rest, query, body)
                except (LogError, OSError) as error:
                    raise refusal_of(error) from error
            case _:
                raise Refusal(404, "there is nothing at this path")
        if method != expected:
            raise _wrong_method(expected)
        return result

    # --- inside ------------------------------------------------------------------------------------

    def _directory(self, log: str) -> Path:
        """Where a log lies; the name becomes a path only if it is a UUID, and this log was allowed."""
        try:
            canonical = str(uuid.UUID(log)) == log
        except ValueError:
            canonical = False
        if not canonical or log not in self.allowed:
            raise Refusal(404, "there is no such log")
        return self.log_dir / log

    def _of_log(self, directory: Path, rest: list[str], query: dict[str, str], body: bytes) -> Answer:
        match rest:
            case []:
                return Answer(200, json.dumps(_about(directory)).encode())
            case ["frames"]:
                return Answer(200, _frames(directory, _number(query, "from"), _number(query, "to")), _BYTES)
            case ["writer-types"]:
                return Answer(200, _writer_types(directory), _TEXT)
            case ["report"]:
                with self._reporting:
                    return _report(directory, body)
        raise Refusal(404, "there is nothing at this path")


def _wrong_method(expected: str) -> Refusal:
    return Refusal(405, f"only {expected} is possible here", (("Allow", expected),))


def _number(query: dict[str, str], name: str) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        raise Refusal(400, f"{name!r} has to be a position")
    return int(text)


def _about(directory: Path) -> dict[str, object]:
    metadata, tail = read_metadata(directory), read_tail(directory)
    try:
        base: Base | None = read_base(directory, metadata.seed)
    except LogLostError:
        base = None  # which ranges are there is known all the same
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
        if tail is not None and file.base > tail.most:  # made and not yet used
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


def _report(directory: Path, body: bytes) -> Answer:
    try:
        tally = RangeTally.from_json(body)
    except ValueError as error:
        raise Refusal(400, f"the report is not of its form: {error}") from error
    read_metadata(directory)  # a report is kept beside a log only
    update_decoding_report(directory, tally.add_to)
    return Answer(204)
