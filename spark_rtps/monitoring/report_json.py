"""Streams, errors and losses as JSON: what ``--json`` prints and what a receiver answers, and how that is read again.

What is read came from another host: it is bounded, and a ValueError if it is not of its form. Texts may hold anything;
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
from .stream_counters import Kind, State, Stream, system_counters
from .told import NUMBER_MAX, told_json, told_list, told_number, told_text

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


def told_streams(raw: bytes) -> list[Stream]:
    """The streams of what :func:`streams_as_json` made. Raises ValueError."""
    return _told(raw, "streams", _stream)


def told_errors(raw: bytes) -> list[ErrorReport]:
    """The error logs of what :func:`errors_as_json` made. Raises ValueError."""
    return _told(raw, "logs", _error_report)


def told_losses(raw: bytes) -> list[LossesOfLog]:
    """The losses of what :func:`losses_as_json` made. Raises ValueError."""
    return _told(raw, "reports", _losses)


def _told(raw: bytes, key: str, made: Callable[[dict[str, Any]], _T]) -> list[_T]:
    return told_list(told_json(raw).get(key), made)


def _stream(told: dict[str, Any]) -> Stream:
    counters = told.get("counters")
    if not isinstance(counters, dict) or len(counters) > _COUNTERS_MAX:
        raise ValueError(f"at most {_COUNTERS_MAX} counters have to be where {counters!r:.40} is")
    name, domain = told.get("type"), told.get("domain")
    return Stream(
        Kind(told.get("kind")),
        Path(told_text(told.get("path"))),
        told_text(told.get("topic")),
        None if name is None else told_text(name),
        None if domain is None else told_number(domain),
        told_text(told.get("guid_prefix")),
        told_number(told.get("pid")),
        State(told.get("state")),
        {told_text(label): told_number(n, -NUMBER_MAX - 1) for label, n in counters.items()},
    )


def _error_report(told: dict[str, Any]) -> ErrorReport:
    return ErrorReport(
        Path(told_text(told.get("path"))),
        told_text(told.get("topic") or ""),
        told_number(told.get("pid")),
        told_list(told.get("errors"), _error),
        told_number(told.get("overflow")),
        QueryName(told_text(told.get("query_id") or ""), told_text(told.get("query") or "")),
    )


def _error(told: dict[str, Any]) -> DistinctError:
    return DistinctError(
        told_text(told.get("level")),
        told_text(told.get("logger")),
        told_text(told.get("text")),
        told_number(told.get("count")),
        told_number(told.get("first_ns")),
        told_number(told.get("last_ns")),
    )


def _losses(told: dict[str, Any]) -> LossesOfLog:
    return LossesOfLog(
        Path(told_text(told.get("path"))),
        told_text(told.get("topic")),
        told_list(told.get("losses"), _loss),
        told_number(told.get("overflow")),
    )


def _loss(told: dict[str, Any]) -> Loss:
    writer = told.get("writer")
    guid = None if writer is None else Guid.parse(told_text(writer))
    if writer is not None and guid is None:
        raise ValueError(f"{writer!r:.40} is no GUID")
    return Loss(
        guid,
        told_text(told.get("topic")),
        told_number(told.get("observations")),
        told_number(told.get("samples")),
        told_number(told.get("bytes")),
        told_number(told.get("first_ns")),
        told_number(told.get("last_ns")),
        told_text(told.get("cause")),
        told_number(told.get("unknown")),
    )
