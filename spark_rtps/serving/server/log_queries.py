"""Requests to a receiver service about one log: its end, cursors in it, and commits of a group."""

from __future__ import annotations

import select
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ...transport.errors import LogError, LogLostError
from ...transport.limits import LOG_POSITION_MAX
from ...transport.log.checkpoint import WRITERS, Tail, read_base, read_tail
from ...transport.log.counters import COUNTERS_FILE, Counters
from ...transport.log.frame import Cursor
from ...transport.log.frame_index import FrameIndex
from ...transport.log.log_view import LogView
from ...transport.log.segment import read_metadata
from ..wire_format.log_scan import scan_directory
from ..wire_format.misplaced_offset import MisplacedOffset, find_misplacement
from ..wire_format.receiver_service import PIECES_MAX, TAIL_SECONDS_MAX
from .http_messages import SOON, HttpResponse, Refusal, Request, json_answer, may_pass
from .router import Handler, Router
from .tail_watch import TailWatch, TooManyWait

#: Scans of headers at the same time, and how long others wait for their turn.
_WALKS: Final = 2
_TURN_SECONDS: Final = 8.0
#: Logs whose frame positions are remembered.
_INDEXES_MAX: Final = 256


class LogQueries:
    """Answers about logs that may be read; errors of the log are those of LogView."""

    def __init__(self, watch: TailWatch) -> None:
        self._watch = watch
        self._turns = threading.BoundedSemaphore(_WALKS)
        self._indexes: OrderedDict[Path, FrameIndex] = OrderedDict()
        self._lock = threading.Lock()

    def add_to(self, router: Router, directory_of: Callable[[str], Path]) -> None:
        """Add the paths of a log. ``directory_of`` finds a log's folder, or raises Refusal."""
        for name, query in (
            ("tail", self.tail),
            ("advance", self.advance),
            ("split", self.split),
            ("place", self.place),
            ("at", self.at),
            ("walk", self.scan),
        ):
            router.add(f"/v1/logs/{{log}}/{name}", GET=_in_log(query, directory_of))

    # --- inside ------------------------------------------------------------------------------------

    def tail(self, directory: Path, request: Request) -> HttpResponse:
        after = -1 if request.query.get("after", "-1") == "-1" else request.number("after")
        seconds = number_of_seconds(request.query.get("wait", "0"), TAIL_SECONDS_MAX)
        max_bytes = read_metadata(directory).max_bytes
        try:
            self._watch.wait(directory, after, seconds, request.peer)
        except TooManyWait:
            raise Refusal(503, "too many requests wait for more already", SOON) from None
        base, tail = _ends(directory)
        try:
            counters = Counters.open(directory / COUNTERS_FILE, writable=False).snapshot()
        except (LogError, OSError, UnicodeDecodeError) as error:
            if not isinstance(error, UnicodeDecodeError) and may_pass(error):
                raise
            counters = {}  # its receiver has not started yet
        parsed = {
            "base": base,
            "position": max(base, tail.position),
            "rows": tail.rows,
            "max_bytes": max_bytes,
        }
        return json_answer({"v": 1, **parsed, "counters": counters})

    def advance(self, directory: Path, request: Request) -> HttpResponse:
        start, tail = _cursor(request), request.number("tail")
        limits = {
            name: max(1, request.number(name)) if name in request.query else None
            for name in ("max_rows", "max_bytes")
        }
        with self._turn():
            end = min(tail, _ends(directory)[1].position)
            found = self._view(directory, request.peer).advance(start, **limits, tail=end)
        return json_answer({"v": 1, "cursor": found})

    def split(self, directory: Path, request: Request) -> HttpResponse:
        start, end = (
            _cursor(request),
            Cursor(request.number("end_position"), request.number("end_row")),
        )
        pieces = request.number("pieces")
        if not 1 <= pieces <= PIECES_MAX or not start < end:
            raise Refusal(400, f"a range that is not empty is split into 1 to {PIECES_MAX} pieces")
        if end > Cursor(most := _ends(directory)[1].position):
            raise Refusal(416, f"position {end.position} is not yet in the log", end=most)
        with self._turn():
            parts = self._view(directory, request.peer).split(start, end, pieces)
        return json_answer({"v": 1, "cuts": [start, *(stop for _, stop in parts)]})

    def place(self, directory: Path, request: Request) -> HttpResponse:
        cursor = _cursor(request)
        with self._turn():
            found = self._misplacement(directory, cursor, request.peer)
        if found is None:
            return json_answer({"v": 1, "cursor": cursor})
        return json_answer({"v": 1, "cursor": found.place, "what": found.what, "cause": found.cause})

    def _misplacement(self, directory: Path, cursor: Cursor, peer: int | None) -> MisplacedOffset | None:
        """The fault of a cursor, of a log that may be trimmed meanwhile."""
        while True:
            base, tail = _ends(directory)
            try:
                return find_misplacement(
                    self._view(directory, peer), cursor, base=base, tail=Cursor(tail.position)
                )
            except LogLostError:
                if _ends(directory)[0] <= base:
                    raise

    def at(self, directory: Path, request: Request) -> HttpResponse:
        time_ns = request.number("time")
        with self._turn():
            return json_answer({"v": 1, "cursor": self._view(directory, request.peer).at(time_ns)})

    def scan(self, directory: Path, request: Request) -> HttpResponse:
        start, stop = (
            request.number("from"),
            request.number("to") if "to" in request.query else None,
        )
        with self._turn():
            return json_answer(scan_directory(directory, start, stop, bodies=request.number("bodies") > 0))

    def _view(self, directory: Path, peer: int | None) -> LogView:
        """A view that knows the frames of earlier scans, and scans only while the ``peer`` is connected."""
        with self._lock:
            index = self._indexes.pop(directory, None) or FrameIndex()
            self._indexes[directory] = index
            while len(self._indexes) > _INDEXES_MAX:
                self._indexes.popitem(last=False)
        return LogView(directory, index=index, still=None if peer is None else lambda: _stay(peer))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=_TURN_SECONDS):
            raise Refusal(503, "too many requests search logs", SOON)
        try:
            yield
        finally:
            self._turns.release()


def committed(directory: Path, parsed: dict[str, Any]) -> tuple[Cursor, int]:
    """The cursor that a group commits, and where the log begins; Refusal if the log cannot hold that cursor."""
    position, row = parsed.get("position"), parsed.get("row", 0)
    for value in (position, row):
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LOG_POSITION_MAX:
            raise Refusal(400, '"position" and "row" have to be numbers')
    cursor = Cursor(position, row)  # type: ignore[arg-type]
    base, tail = _ends(directory)
    if cursor.position < base:
        why = f"position {cursor.position} is no longer in the log, which begins at {base}"
        raise Refusal(410, why, base=base)
    if cursor > Cursor(tail.position):
        raise Refusal(416, f"position {cursor.position} is not yet in the log", end=tail.position)
    return cursor, base


def _stay(peer: int) -> None:
    """Raise Refusal if the peer of the socket ``peer`` no longer waits for the answer."""
    poll = select.poll()
    poll.register(peer, select.POLLRDHUP)
    if poll.poll(0):
        raise Refusal(503, "the client of this request has left")


def number_of_seconds(text: str, most: float) -> float:
    """Seconds of a query, ``most`` at most. Raises Refusal."""
    try:
        seconds = float(text) if text.isascii() and len(text) < 20 else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise Refusal(400, "this is not a number of seconds")
    return min(seconds, most)


def _ends(directory: Path) -> tuple[int, Tail]:
    """Where a log begins and ends. Raises LogLostError if that is damaged."""
    seed, tail = read_metadata(directory).seed, read_tail(directory)
    if tail is None:
        path = directory / WRITERS
        raise LogLostError(f"{path} is damaged", path=path)
    return read_base(directory, seed).position, tail


def _cursor(request: Request) -> Cursor:
    row = request.number("row") if "row" in request.query else 0
    return Cursor(request.number("position"), row)


def _in_log(query: Callable[[Path, Request], HttpResponse], directory_of: Callable[[str], Path]) -> Handler:
    return lambda request, log: query(directory_of(log), request)
