"""Parses JSON from another host: every part has a bound, and a wrong form raises ValueError.

Texts may hold anything; the tables show no control characters.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

#: Bytes of one answer.
ANSWER_BYTES_MAX: Final = 16 << 20
NUMBER_MAX: Final = (1 << 63) - 1
_ENTRIES_MAX: Final = 4_096
_TEXT_MAX: Final = 4_096

_T = TypeVar("_T")


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``. Raises ValueError."""
    try:
        found = json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def parse_entries(value: object, parse: Callable[[Any], _T], most: int = _ENTRIES_MAX) -> list[_T]:
    """The results of ``parse`` for the entries of a list. Raises ValueError."""
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"{value!r:.40} has to be a list of at most {most} entries")
    return [parse(each) for each in value]


def parse_list(value: object, parse: Callable[[dict[str, Any]], _T], most: int = _ENTRIES_MAX) -> list[_T]:
    """The results of ``parse`` for the objects in a list. Raises ValueError."""

    def parse_entry(entry: object) -> _T:
        if not isinstance(entry, dict):
            raise ValueError(f"{entry!r:.40} is no JSON object")
        return parse(entry)

    return parse_entries(value, parse_entry, most)


def parse_mapping(value: object, most: int = _ENTRIES_MAX) -> dict[str, Any]:
    """A JSON object inside another one. Raises ValueError."""
    if not isinstance(value, dict) or len(value) > most:
        raise ValueError(f"{value!r:.40} has to be an object with at most {most} entries")
    return value


def parse_optional(value: object, parse: Callable[[object], _T]) -> _T | None:
    """The result of ``parse``; None stays None. Raises ValueError."""
    return None if value is None else parse(value)


def parse_text(value: object) -> str:
    """A text, cut to the length that a valid one may have. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} has to be a text")
    return value[:_TEXT_MAX]


def parse_number(value: object, least: int = 0, most: int = NUMBER_MAX) -> int:
    """A number of 63 bits, which is not negative unless ``least`` says so. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{value!r:.40} has to be a number")
    return value
