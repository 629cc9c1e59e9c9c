"""What a receiver service answers about one log: its end, places in it, and what a group commits."""

from __future__ import annotations

import json
import select
import threading
from collections import OrderedDict
from collections.abc import Iterator
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
from ..wire_format.log_scan import scan_log
from ..wire_format.misplaced_offset import MisplacedOffset, find_misplacement
from ..wire_format.receiver_service import PIECES_MAX, TAIL_SECONDS_MAX
from .log_routes import SOON, Answer, Refusal, may_pass
from .tail_watch import TailWatch, TooManyWait

#: Walks along headers at once, and how long others wait for their turn.
_WALKS: Final = 2
_TURN_SECONDS: Final = 8.0
#: Logs whose frames are remembered.
_INDEXES_MAX: Final = 256
_DIGITS_MAX: Final = 19


class LogQueries:
    """Answers about logs that may be read; errors of the log are those of LogView."""

    def __init__(self, watch: TailWatch) -> None:
        self._watch = watch
        self._turns = threading.BoundedSemaphore(_WALKS)
        self._indexes: OrderedDict[Path, FrameIndex] = OrderedDict()
        self._lock = threading.Lock()

    def answer(self, directory: Path, rest: list[str], query: dict[str, str], peer: int | None) -> Answer:
        """The answer to ``GET /v1/logs/LOG/`` and ``rest``; nobody waits whose socket ``peer`` ends. Raises Refusal."""
        match rest:
            case ["tail"]:
                return self._tail(directory, query, peer)
            case ["advance"]:
                return self._advance(directory, query, peer)
            case ["split"]:
                return self._split(directory, query, peer)
            case ["place"]:
                return self._place(directory, query, peer)
            case ["at"]:
                return self._at(directory, query, peer)
            case ["walk"]:
                return self._walk(directory, query)
        raise Refusal(404, "there is nothing at this path")

    def committed(self, directory: Path, told: dict[str, Any]) -> tuple[Cursor, int]:
        """What a group says that it has consumed, and where the log begins; Refusal if it cannot hold that."""
        position, row = told.get("position"), told.get("row", 0)
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

    # --- inside ------------------------------------------------------------------------------------

    def _tail(self, directory: Path, query: dict[str, str], peer: int | None) -> Answer:
        after = -1 if query.get("after", "-1") == "-1" else _number(query, "after")
        seconds = number_of_seconds(query.get("wait", "0"), TAIL_SECONDS_MAX)
        max_bytes = read_metadata(directory).max_bytes
        try:
            self._watch.wait(directory, after, seconds, peer)
        except TooManyWait:
            raise Refusal(503, "too many wait for more already", SOON) from None
        base, tail = _ends(directory)
        try:
            counters = Counters.open(directory / COUNTERS_FILE, writable=False).snapshot()
        except (LogError, OSError, UnicodeDecodeError) as error:
            if not isinstance(error, UnicodeDecodeError) and may_pass(error):
                raise
            counters = {}  # its receiver has not started yet
        told = {"base": base, "position": max(base, tail.position), "rows": tail.rows, "max_bytes": max_bytes}
        return _as_json({"v": 1, **told, "counters": counters})

    def _advance(self, directory: Path, query: dict[str, str], peer: int | None) -> Answer:
        start, tail = _cursor(query), _number(query, "tail")
        limits = {
            name: max(1, _number(query, name)) if name in query else None
            for name in ("max_rows", "max_bytes")
        }
        with self._turn():
            end = min(tail, _ends(directory)[1].position)
            found = self._view(directory, peer).advance(start, **limits, tail=end)
        return _as_json({"v": 1, "cursor": found})

    def _split(self, directory: Path, query: dict[str, str], peer: int | None) -> Answer:
        start, end = _cursor(query), Cursor(_number(query, "end_position"), _number(query, "end_row"))
        pieces = _number(query, "pieces")
        if not 1 <= pieces <= PIECES_MAX or not start < end:
            raise Refusal(400, f"a range that is not empty is split into 1 to {PIECES_MAX} pieces")
        if end > Cursor(most := _ends(directory)[1].position):
            raise Refusal(416, f"position {end.position} is not yet in the log", end=most)
        with self._turn():
            parts = self._view(directory, peer).split(start, end, pieces)
        return _as_json({"v": 1, "cuts": [start, *(stop for _, stop in parts)]})

    def _place(self, directory: Path, query: dict[str, str], peer: int | None) -> Answer:
        cursor = _cursor(query)
        with self._turn():
            found = self._misfit(directory, cursor, peer)
        if found is None:
            return _as_json({"v": 1, "cursor": cursor})
        return _as_json({"v": 1, "cursor": found.place, "what": found.what, "cause": found.cause})

    def _misfit(self, directory: Path, cursor: Cursor, peer: int | None) -> MisplacedOffset | None:
        """What is wrong with a cursor, of a log that may be trimmed meanwhile."""
        while True:
            base, tail = _ends(directory)
            try:
                return find_misplacement(
                    self._view(directory, peer), cursor, base=base, tail=Cursor(tail.position)
                )
            except LogLostError:
                if _ends(directory)[0] <= base:
                    raise

    def _at(self, directory: Path, query: dict[str, str], peer: int | None) -> Answer:
        time_ns = _number(query, "time")
        with self._turn():
            return _as_json({"v": 1, "cursor": self._view(directory, peer).at(time_ns)})

    def _walk(self, directory: Path, query: dict[str, str]) -> Answer:
        start, stop = _number(query, "from"), _number(query, "to") if "to" in query else None
        with self._turn():
            return _as_json(scan_log(directory, start, stop, bodies=_number(query, "bodies") > 0))

    def _view(self, directory: Path, peer: int | None) -> LogView:
        """A view that finds places by what was walked before, and walks only while the ``peer`` is there."""
        with self._lock:
            index = self._indexes.pop(directory, None) or FrameIndex()
            self._indexes[directory] = index
            while len(self._indexes) > _INDEXES_MAX:
                self._indexes.popitem(last=False)
        return LogView(directory, index=index, still=None if peer is None else lambda: _stay(peer))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=_TURN_SECONDS):
            raise Refusal(503, "too many ask for places in logs", SOON)
        try:
            yield
        finally:
            self._turns.release()


def _stay(peer: int) -> None:
    """Raise Refusal if nobody waits any more at the other end of the socket ``peer``."""
    poll = select.poll()
    poll.register(peer, select.POLLRDHUP)
    if poll.poll(0):
        raise Refusal(503, "whoever asked has gone")


def number_of_seconds(text: str, most: float) -> float:
    """Seconds in a query, no more than ``most``. Raises Refusal."""
    try:
        seconds = float(text) if text.isascii() and len(text) < 20 else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise Refusal(400, "this is no number of seconds")
    return min(seconds, most)


def _ends(directory: Path) -> tuple[int, Tail]:
    """Where a log begins and ends. Raises LogLostError if that is damaged."""
    seed, tail = read_metadata(directory).seed, read_tail(directory)
    if tail is None:
        path = directory / WRITERS
        raise LogLostError(f"{path} is damaged", path=path)
    return read_base(directory, seed).position, tail


def _cursor(query: dict[str, str]) -> Cursor:
    return Cursor(_number(query, "position"), _number(query, "row") if "row" in query else 0)


def _number(query: dict[str, str], name: str) -> int:
    text = query.get(name, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX or int(text) > LOG_POSITION_MAX:
        raise Refusal(400, f"{name!r} has to be a number")
    return int(text)


def _as_json(told: dict[str, object]) -> Answer:
    return Answer(200, json.dumps(told).encode())
