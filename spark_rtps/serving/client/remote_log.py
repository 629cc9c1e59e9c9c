"""The files of a stream log on another host, as a view reads them: a log server's descriptions, and parts of
segments."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from ...monitoring.range_tally import RangeTally
from ...monitoring.untrusted_json import parse_number, parse_object
from ...transport.errors import LogLostError, RangeServerError, RtpsError
from ...transport.limits import LOG_POSITION_MAX
from ...transport.log.checkpoint import WRITERS, Base, Tail
from ...transport.log.frame import ALIGNMENT, HEADER_BYTES, align
from ...transport.log.segment import SegmentFile, StreamLogMetadata, lost
from ...transport.log_once import LogOnce
from ...transport.receiver.writer_types import AnnouncedTypes, parse_writer_types
from ...transport.value_classes import value
from ..wire_format.served import WRITER_TYPES_BYTES_MAX, Served
from .http_client import PATIENCE_SECONDS, HttpClient
from .prefetch import Arriving, FetchedFrames, WantedBytes

_log = logging.getLogger("spark_rtps.datasource")

_ABOUT_BYTES_MAX: Final = 4 << 20
_SEGMENTS_MAX: Final = 1 << 16
_SEED_MAX: Final = (1 << 32) - 1
_REPORT_BYTES_MAX: Final = 1 << 20
#: The time that a task spends on a report at most.
_REPORT_SECONDS: Final = 5.0
#: Logs whose reports this process could not deliver.
_LOGGED: Final = LogOnce(64)


@value
class About:
    """A server's description of a log at one moment."""

    metadata: StreamLogMetadata
    base: Base | None  # None: it is damaged
    tail: Tail | None
    segments: list[SegmentFile]

    @classmethod
    def parse(cls, raw: bytes) -> About:
        """Raises ValueError if the form is wrong, or the values are impossible."""
        parsed = parse_object(raw)
        match parsed:
            case {
                "v": 1,
                "metadata": {
                    "max_bytes": max_bytes,
                    "segment_bytes": size,
                    "seed": seed,
                    "given": dict(given),
                },
                "base": base,
                "tail": tail,
                "segments": list(segments),
            }:
                metadata = StreamLogMetadata(
                    _number(max_bytes), _number(size), _number(seed, _SEED_MAX), given
                )
                start = parsed.get("start", base)  # older servers do not send it
                begin = None if base is None else Base(_number(base), _number(start))
                return cls(metadata, begin, _parse_tail(tail), _parse_segments(segments))
        raise ValueError("it is not of version 1")


class RemoteLog:
    """The log in ``directory`` on a host where it is ``served`` as ``log``. Close it: it may have a thread.

    Each range begins with the server's current description. Refusals raise the errors of a local log; RangeServerError:
    the server is not reached, or sent invalid data.
    """

    def __init__(
        self, served: Served, log: str, directory: Path, *, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._directory = directory
        self._served = served
        self._log = log
        self._patience = patience
        self._client = self._new_client()
        self._about: About | None = None
        self._expected = (0, 0)
        self._arriving: list[Arriving] = []

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def in_place(self) -> bool:
        return False

    def close(self) -> None:
        """End a request that is under way."""
        self._client.close()
        for arriving in self._arriving:
            arriving.close()
        self._arriving.clear()

    # --- what a view reads -------------------------------------------------------------------------

    def metadata(self) -> StreamLogMetadata:
        return self._fetch_about().metadata

    def base(self, seed: int) -> Base:
        base = self._fetch_about(anew=True).base
        if base is None:
            path = self._directory / WRITERS
            raise lost(f"{path} is damaged", path=path)
        return base

    def tail(self) -> Tail | None:
        return self._fetch_about(anew=True).tail

    def segments(self) -> list[SegmentFile]:
        return self._fetch_about().segments

    def expect(self, start: int, stop: int) -> None:
        self._expected = (start, stop)

    def map(self, file: SegmentFile, seed: int) -> FetchedFrames:
        for old in self._arriving[:-1]:
            old.close()
        wanted, background = self._wanted(file), self._new_client()
        arriving = Arriving(self._log, file, wanted, self._client, background, self._is_appended)
        self._arriving = [*self._arriving[-1:], arriving]
        try:
            arriving.start()
        except LogLostError as error:
            self._about = None
            raise FileNotFoundError(str(error)) from error
        return FetchedFrames(file.base, arriving, seed)

    # --- sidecar files -------------------------------------------------------------------------

    def writer_types(self) -> AnnouncedTypes:
        """The types that the log's writers announced."""
        raw = self._client.get(
            f"/v1/logs/{self._log}/writer-types", "the types of writers", max_bytes=WRITER_TYPES_BYTES_MAX
        )
        return parse_writer_types(raw, self._directory)

    def report(self, found: RangeTally) -> None:
        """Have ``found`` counted by the server; counts that cannot be delivered are dropped, and that is logged
        once."""
        try:
            patience = min(self._patience, _REPORT_SECONDS)
            client = HttpClient(self._served, self._directory, patience=patience)
            for body in found.split(_REPORT_BYTES_MAX):
                client.post(f"/v1/logs/{self._log}/report", "a report", body)
        except RtpsError as error:
            _unreported(self._directory, str(error))

    # --- inside ------------------------------------------------------------------------------------

    def _new_client(self) -> HttpClient:
        return HttpClient(self._served, self._directory, patience=self._patience)

    def _fetch_about(self, *, anew: bool = False) -> About:
        if self._about is None or anew:
            self._about = None
            raw = self._client.get(f"/v1/logs/{self._log}", "the log", max_bytes=_ABOUT_BYTES_MAX)
            try:
                self._about = About.parse(raw)
            except ValueError as error:
                raise RangeServerError(
                    f"the server at {', '.join(self._served.addresses)} sent invalid data for the stream log "
                    f"{self._directory}: {error}",
                    addresses=self._served.addresses,
                ) from error
        return self._about

    def _is_appended(self) -> int:
        """The position up to which there may be frames."""
        tail = self._fetch_about().tail
        return LOG_POSITION_MAX if tail is None else tail.most - tail.most % ALIGNMENT

    def _wanted(self, file: SegmentFile) -> WantedBytes:
        """The part of a segment that is fetched at once; of the frame that begins last, only the header."""
        start, stop = (position - file.base for position in self._expected)
        if stop % ALIGNMENT:
            stop = align(stop + HEADER_BYTES)
        stop = max(0, min(stop, file.size, self._is_appended() - file.base))
        start = min(max(0, start - start % ALIGNMENT), stop)
        return WantedBytes(start, stop)


def _unreported(directory: Path, why: str) -> None:
    if _LOGGED.is_new(directory):
        _log.warning(
            "%s; `spark-rtps errors` and `loss` will not show the samples of the log %s that gave no rows",
            why,
            directory,
        )


def _number(value: object, most: int = LOG_POSITION_MAX) -> int:
    return parse_number(value, most=most)


def _parse_tail(parsed: object) -> Tail | None:
    match parsed:
        case None:
            return None
        case {"position": position, "rows": rows, "most": most}:
            tail = Tail(_number(position), _number(rows), _number(most))
            if tail.position % ALIGNMENT or tail.most < tail.position:
                raise ValueError(f"{tail} is not the end of a log")
            return tail
    raise ValueError("its tail has the wrong form")


def _parse_segments(parsed: list[object]) -> list[SegmentFile]:
    if len(parsed) > _SEGMENTS_MAX:
        raise ValueError(f"{len(parsed)} segments are too many")
    found: list[SegmentFile] = []
    for each in parsed:
        match each:
            case [base, size]:
                file = SegmentFile(_number(base), _number(size) // ALIGNMENT * ALIGNMENT)
            case _:
                raise ValueError(f"{each!r:.40} is not a segment")
        if found and file.base < found[-1].end:
            raise ValueError(f"the segments at {found[-1].base} and {file.base} overlap")
        if file.size and not file.base % ALIGNMENT:  # no frame begins elsewhere
            found.append(file)
    return found
