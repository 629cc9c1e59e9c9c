"""The frames of a segment while its wanted part is being fetched.

The buffer is as long as the segment, so frames lie where they do in the segment's file. Memory is taken only by bytes
that have arrived, since the system gives a page when it is first stored to. A reader of bytes waits until they are
there. Bytes outside the wanted part, which damage at its edges makes necessary, are fetched when they are read.

Fetched frames are checked like frames of a local file, and more: a server knows the seed of the checksums, so frames
count only if their samples lie within their bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from ...transport.errors import RangeServerError, RtpsError
from ...transport.log.buffers import buffer
from ...transport.log.frame import ALIGNMENT, align
from ...transport.log.frame_scan import FrameHeader
from ...transport.log.partial_frames import PartialFrames
from ...transport.log.segment import SegmentFile
from ...transport.protocol.intervals import IntervalSet
from .connections import CONNECT_SECONDS
from .http_client import Cancelled, HttpClient
from .sound_frames import is_indexed, is_possible, lies_within

#: Bytes fetched on demand come in parts of this size, so that scanning headers needs few requests.
_DEMANDED_BYTES: Final = 64 << 10
#: A shorter part is not worth a thread.
_AT_ONCE_BYTES: Final = 128 << 10
_JOIN_SECONDS: Final = 2 * CONNECT_SECONDS


class WantedBytes(NamedTuple):
    """The bytes [start, stop) of a segment that are fetched at once, from its beginning."""

    start: int
    stop: int


class Arriving:
    """The bytes of a segment of ``log``: one thread reads them, another one fetches them.

    The fetching thread uses ``background``; ``client`` fetches what else is missing. ``is_appended`` gives the position
    up
    to which there may be frames.
    """

    def __init__(
        self,
        log: str,
        file: SegmentFile,
        wanted: WantedBytes,
        client: HttpClient,
        background: HttpClient,
        is_appended: Callable[[], int],
    ) -> None:
        try:
            self.data = buffer(file.size)
        except MemoryError as error:
            raise RangeServerError(f"there is no memory for a segment of {file.size} bytes") from error
        self._bytes = memoryview(self.data)
        self._log = log
        self._file = file
        self._wanted = wanted
        self._have = wanted.start
        self._others = IntervalSet()
        self._client = client
        self._background = background
        self._is_appended = is_appended
        self._change = threading.Condition()
        #: The waiting thread is woken when this many bytes are there; -1: at the first answer.
        self._awaited = -1
        self._is_answered = False
        self._is_over = False
        self._error: RtpsError | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to fetch the wanted bytes, and wait for the server's answer. Raises its refusal."""
        start, stop = self._wanted
        if start >= stop:
            return
        if stop - start <= _AT_ONCE_BYTES:
            self._fetch()
        else:
            self._thread = threading.Thread(target=self._fetch, name="spark-rtps fetch", daemon=True)
            self._thread.start()
            with self._change:
                self._change.wait_for(lambda: self._is_answered or self._is_over)
                self._awaited = self._file.size + 1
        if self._error is not None and not self._is_answered:
            raise self._error

    def need(self, start: int, stop: int) -> None:
        """Return when the bytes [start, stop) are there; bytes that were never appended are not waited for."""
        low, high = self._wanted
        if low <= start and stop <= self._have:
            return
        limit = min(self._file.size, self._is_appended() - self._file.base)
        if limit < stop:
            self.data[max(start, limit) : stop] = 0
            stop = limit
        if start < low:
            self._demand(start, min(stop, low), low)
        if low < stop and start < high:
            self._wait(min(stop, high))
        if high < stop:
            self._demand(max(start, high), stop, limit)

    def close(self) -> None:
        """End the thread, if it still runs."""
        self._background.close()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    # --- inside ------------------------------------------------------------------------------------

    def _wait(self, stop: int) -> None:
        if stop <= self._have:
            return
        with self._change:
            self._awaited = stop
            self._change.wait_for(lambda: stop <= self._have or self._is_over)
            self._awaited = self._file.size + 1
        if stop > self._have:
            raise self._error or RangeServerError("the thread that fetched a range has ended")

    def _demand(self, start: int, stop: int, limit: int) -> None:
        """Fetch the missing bytes of [start, stop), and perhaps some more before ``limit``.

        Nothing is fetched twice: bytes may have been handed out, and may be overwritten at the server.
        """
        while start < stop:
            held = self._others.around(start)
            if held is not None:
                start = held[1] + 1
                continue
            low = start - start % ALIGNMENT
            behind = min((first for first, _ in self._others if first > low), default=limit)
            high = min(limit, behind, max(align(stop), low + _DEMANDED_BYTES))
            self._client.fetch(self._log, self._file.base + low, self._bytes[low:high], _unnoticed)
            self._others.add_range(low, high - 1)
            start = high

    def _fetch(self) -> None:
        start, stop = self._wanted
        try:
            self._background.fetch(self._log, self._file.base + start, self._bytes[start:stop], self._arrived)
        except RtpsError as error:
            self._error = error
        except Cancelled:
            self._error = RangeServerError("fetching was ended by the client")
        finally:
            with self._change:
                self._is_over = True
                self._change.notify_all()

    def _arrived(self, count: int) -> None:
        self._is_answered = True
        self._have = self._wanted.start + count
        if self._have >= self._awaited:  # a thread that begins to wait now looks first
            with self._change:
                self._change.notify_all()


def _unnoticed(_count: int) -> None:
    """The caller waits for all bytes."""


class FetchedFrames(PartialFrames):
    """The frames of a segment, as far as they have arrived."""

    __slots__ = ("_arriving",)

    searched_bytes = 256 << 10

    def __init__(self, base: int, arriving: Arriving, seed: int) -> None:
        super().__init__(base, arriving.data, seed)
        self._arriving = arriving

    def header(self, position: int) -> FrameHeader | None:
        header = super().header(position)
        return header if header is not None and is_possible(self._bytes, position - self.base) else None

    def is_whole(self, header: FrameHeader) -> bool:
        if not super().is_whole(header):
            return False
        return not is_indexed(self._bytes, header.position - self.base) or lies_within(
            self.read_frame(header)[1]
        )

    def _bring(self, start: int, stop: int) -> None:
        self._arriving.need(start, stop)
