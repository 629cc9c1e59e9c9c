"""``subscriptions.json``: which log belongs to which subscription, so that a restart resumes it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ..serving.wire_format.receiver_service import is_log, is_name
from ..transport.errors import LogError
from ..transport.log.small_file import replace_text
from ..transport.value_classes import value

_log = logging.getLogger("spark_rtps.receiver_service")

FILE: Final = "subscriptions.json"
_BYTES_MAX: Final = 64 << 20


@value
class LogRecord:
    """The log of one subscription, and the options it had."""

    log: str
    options: Mapping[str, str]
    dynamic: bool = False
    #: The subscription of the file whose pattern found the topic.
    pattern: str | None = None
    #: Nothing has been received yet: a missing log is not a lost one.
    is_new: bool = False


def read_records(directory: Path) -> dict[str, LogRecord]:
    """The records by name; none where there is no file.

    Raises LogError if the file cannot be read: otherwise new logs would replace the existing ones.
    """
    path = directory / FILE
    try:
        if path.stat().st_size > _BYTES_MAX:
            raise ValueError("it is too large")
        raw = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict):
            raise ValueError("it is not an object")
        return {name: _record(name, each) for name, each in raw.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        message = (
            f"{path} cannot be read ({error}): it maps subscriptions to their logs. Restore it, or "
            "remove it, and every subscription gets a new log"
        )
        raise LogError(message, path=path) from None


def write_records(directory: Path, records: Mapping[str, LogRecord]) -> None:
    """Replace the file. Raises LogError if it cannot be written."""
    raw: dict[str, Any] = {}
    for name, each in records.items():
        raw[name] = {"log": each.log, "options": dict(each.options), "dynamic": each.dynamic}
        if each.pattern is not None:
            raw[name]["pattern"] = each.pattern
        if each.is_new:
            raw[name]["new"] = True
    path = directory / FILE
    text = json.dumps(raw, indent=1)
    if len(text) > _BYTES_MAX:
        raise LogError(f"{path} cannot be written: it would have {len(text)} bytes", path=path)
    try:
        replace_text(path, text, durable=True)
    except OSError as error:
        raise LogError(f"{path} cannot be written: {error}", path=path) from None


def _record(name: str, raw: object) -> LogRecord:
    if not is_name(name) or not isinstance(raw, dict):
        raise ValueError(f"{name!r:.80} is not a subscription")
    log, options, pattern = raw.get("log"), raw.get("options"), raw.get("pattern")
    if not isinstance(log, str) or not is_log(log):
        raise ValueError(f"{name}: {log!r:.80} is not a log")
    if not isinstance(options, dict) or not all(isinstance(text, str) for text in options.values()):
        raise ValueError(f"{name}: its options are not texts")
    if pattern is not None and not isinstance(pattern, str):
        raise ValueError(f"{name}: {pattern!r:.80} is not the name of a pattern")
    return LogRecord(log, options, raw.get("dynamic") is True, pattern, raw.get("new") is True)
