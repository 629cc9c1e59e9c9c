"""What another host tells as JSON: bounded, and a ValueError if it is not of its form.

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


def told_json(raw: bytes) -> dict[str, Any]:
    """The JSON object in ``raw``. Raises ValueError."""
    try:
        found = json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def told_list(value: object, made: Callable[[dict[str, Any]], _T], most: int = _ENTRIES_MAX) -> list[_T]:
    """What ``made`` makes of each object in a list. Raises ValueError."""
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"a list of at most {most} entries has to be where {value!r:.40} is")
    for each in value:
        if not isinstance(each, dict):
            raise ValueError(f"{each!r:.40} is no JSON object")
    return [made(each) for each in value]


def told_text(value: object) -> str:
    """A text, of which no more is kept than an honest one has. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"a text has to be where {value!r:.40} is")
    return value[:_TEXT_MAX]


def told_number(value: object, least: int = 0) -> int:
    """A number of 63 bits, which is not negative unless ``least`` says so. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= NUMBER_MAX:
        raise ValueError(f"a number has to be where {value!r:.40} is")
    return value
