"""Streams, errors and losses as JSON: the output of ``--json`` and a receiver's answers, and their parsing.

Input comes from another host: it is bounded, and raises ValueError if its form is wrong. Texts may hold anything;
the tables show no control characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

from ..transport.log.error_log import DistinctError
from ..transport.log.loss_report import Loss
from ..transport.structure import Guid
from .query_names import QueryName
from .reports import ErrorReport, LossesOfLog
from .stream_counters import State, Stream, StreamKind, system_counters
from .untrusted_json import (
    NUMBER_MAX,
    parse_list,
    parse_mapping,
    parse_number,
    parse_object,
    parse_optional,
    parse_text,
)

_COUNTERS_MAX: Final = 4_096

_T = TypeVar("_T")


# --- as JSON ----------------------------------------------------------------------------------------


def streams_as_json(
    streams: Sequence[Stream],
    looked_in: Iterable[object],
    time_ns: int,
    *,
    rates: Mapping[Path, float] | None = None,
    byte_rates: Mapping[Path, float] | None = None,
) -> dict[str, Any]:
    """The streams as ``spark-rtps stat --json`` shows them; ``time_ns`` since 1970, rates a second by path."""
    return {
        "time_ns": time_ns,
        "looked_in": [str(place) for place in looked_in],
        "system": system_counters(streams),
        "streams": [_stream_as_json(stream, rates or {}, byte_rates or {}) for stream in streams],
    }


def errors_as_json(reports: Iterable[ErrorReport], looked_in: Iterable[object]) -> dict[str, Any]:
    """The error logs as ``spark-rtps errors --json`` shows them."""
    return {
        "looked_in": [str(place) for place in looked_in],
        "logs": [
            {
                "path": str(report.path),
                "topic": report.topic or None,
                "pid": report.pid,
                "query": report.query.name or None,
                "query_id": report.query.id or None,
                "errors": [asdict(error) for error in report.errors],
                "overflow": report.overflow,
            }
            for report in reports
        ],
    }


def losses_as_json(reports: Iterable[LossesOfLog], looked_in: Iterable[object]) -> dict[str, Any]:
    """The losses as ``spark-rtps loss --json`` shows them."""
    return {
        "looked_in": [str(place) for place in looked_in],
        "reports": [
            {
                "path": str(report.path),
                "topic": report.topic,
                "losses": [_loss_as_json(loss) for loss in report.losses],
                "overflow": report.overflow,
            }
            for report in reports
        ],
    }


def _stream_as_json(
    stream: Stream, rates: Mapping[Path, float], byte_rates: Mapping[Path, float]
) -> dict[str, Any]:
    sender = stream.positions
    return {
        "kind": stream.kind.value,
        "topic": stream.topic,
        "type": stream.type,
        "domain": stream.domain,
        "guid_prefix": stream.guid_prefix,
        "pid": stream.pid,
        "state": stream.state.value,
        "path": str(stream.path),
        "samples": stream.samples,
        "samples_per_second": _rounded(rates.get(stream.path)),
        "bytes": stream.nbytes,
        "bytes_per_second": _rounded(byte_rates.get(stream.path)),
        "behind_samples": stream.behind_samples,
        "behind_bytes": stream.behind_bytes,
        "disk_bytes": stream.disk_bytes,
        "peers": stream.peers,
        "lost": stream.lost,
        "rejected": stream.rejected,
        "malformed": stream.malformed,
        "repairs": stream.repairs,
        "back_pressure": stream.back_pressure,
        "statuses": stream.statuses,
        "drops": stream.drops,
        "positions": None
        if sender is None
        else asdict(sender) | {"window": sender.window, "lag": sender.lag},
        "readers": [{**asdict(reader), "guid": str(reader.guid)} for reader in stream.readers],
        "writers": [{**asdict(w), "guid": str(w.guid), "lag": w.lag} for w in stream.writers],
        "counters": stream.counters,
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 3)


def _loss_as_json(loss: Loss) -> dict[str, object]:
    found = {**asdict(loss), "writer": None if loss.writer is None else str(loss.writer)}
    found["bytes"] = found.pop("nbytes")
    return found


# --- from JSON --------------------------------------------------------------------------------------


def parse_streams(raw: bytes) -> list[Stream]:
    """Parse the output of :func:`streams_as_json`. Raises ValueError."""
    return _parse(raw, "streams", _stream)


def parse_errors(raw: bytes) -> list[ErrorReport]:
    """Parse the output of :func:`errors_as_json`. Raises ValueError."""
    return _parse(raw, "logs", _error_report)


def parse_losses(raw: bytes) -> list[LossesOfLog]:
    """Parse the output of :func:`losses_as_json`. Raises ValueError."""
    return _parse(raw, "reports", _losses)


def _parse(raw: bytes, key: str, made: Callable[[dict[str, Any]], _T]) -> list[_T]:
    return parse_list(parse_object(raw).get(key), made)


def _stream(raw: dict[str, Any]) -> Stream:
    counters = parse_mapping(raw.get("counters"), _COUNTERS_MAX)
    return Stream(
        StreamKind(raw.get("kind")),
        Path(parse_text(raw.get("path"))),
        parse_text(raw.get("topic")),
        parse_optional(raw.get("type"), parse_text),
        parse_optional(raw.get("domain"), parse_number),
        parse_text(raw.get("guid_prefix")),
        parse_number(raw.get("pid")),
        State(raw.get("state")),
        {parse_text(label): parse_number(n, -NUMBER_MAX - 1) for label, n in counters.items()},
    )


def _error_report(raw: dict[str, Any]) -> ErrorReport:
    return ErrorReport(
        Path(parse_text(raw.get("path"))),
        parse_text(raw.get("topic") or ""),
        parse_number(raw.get("pid")),
        parse_list(raw.get("errors"), _error),
        parse_number(raw.get("overflow")),
        QueryName(parse_text(raw.get("query_id") or ""), parse_text(raw.get("query") or "")),
    )


def _error(raw: dict[str, Any]) -> DistinctError:
    return DistinctError(
        parse_text(raw.get("level")),
        parse_text(raw.get("logger")),
        parse_text(raw.get("text")),
        parse_number(raw.get("count")),
        parse_number(raw.get("first_ns")),
        parse_number(raw.get("last_ns")),
    )


def _losses(raw: dict[str, Any]) -> LossesOfLog:
    return LossesOfLog(
        Path(parse_text(raw.get("path"))),
        parse_text(raw.get("topic")),
        parse_list(raw.get("losses"), _loss),
        parse_number(raw.get("overflow")),
    )


def _loss(raw: dict[str, Any]) -> Loss:
    writer = parse_optional(raw.get("writer"), parse_text)
    guid = None if writer is None else Guid.parse(writer)
    if writer is not None and guid is None:
        raise ValueError(f"{writer!r:.40} is not a GUID")
    return Loss(
        guid,
        parse_text(raw.get("topic")),
        parse_number(raw.get("observations")),
        parse_number(raw.get("samples")),
        parse_number(raw.get("bytes")),
        parse_number(raw.get("first_ns")),
        parse_number(raw.get("last_ns")),
        parse_text(raw.get("cause")),
        parse_number(raw.get("unknown")),
    )
