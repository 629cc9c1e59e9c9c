"""The notation of values: durations, sizes, lists of names and paths; and the conversion of durations to time-outs."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from ..transport.errors import OptionError
from ..transport.structure import INFINITE, NANOSECONDS

# --- durations and sizes ---------------------------------------------------------------------------

_FOREVER_SECONDS: Final = 1e9
#: The longest finite Duration_t (RTPS 2.5 §9.3.2.3).
_DURATION_MAX: Final = 0x7FFF_FFFF * NANOSECONDS
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)", re.IGNORECASE)
_INFINITE_WORDS: Final = frozenset({"infinite", "infinity", "inf", "duration_infinite", "duration_infinity"})
_UNITS_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": NANOSECONDS,
    "sec": NANOSECONDS,
    "min": 60 * NANOSECONDS,
    "m": 60 * NANOSECONDS,
    "h": 3_600 * NANOSECONDS,
    "d": 86_400 * NANOSECONDS,
}
# k, m, g alone are binary, as everywhere in Spark
_UNITS_BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{p}b": 1000**i for i, p in enumerate("kmgt", 1)},
    **{f"{p}ib": 1024**i for i, p in enumerate("kmgt", 1)},
    **{p: 1024**i for i, p in enumerate("kmgt", 1)},
}


def duration(text: str, *, unit: str = "") -> int:
    """Nanoseconds: ``200ms``, ``3s``, ``5min``, ``infinite``; ``unit`` is that of a number without one. Raises
    ValueError.

    Durations of 68 years and more are infinite here, too, because peers compare the announced durations.
    """
    if text.lower() in _INFINITE_WORDS:
        return INFINITE
    value = _quantity(text, _UNITS_NS, unit)
    return value if value < _DURATION_MAX else INFINITE


def size(text: str) -> int:
    """Bytes: ``4096``, ``64KiB``, ``1MB``. Raises ValueError."""
    return _quantity(text, _UNITS_BYTES)


def seconds(duration: int) -> float:
    """A duration in ns as the seconds that time-outs take."""
    return _FOREVER_SECONDS if duration >= INFINITE else duration / NANOSECONDS


def _quantity(text: str, units: Mapping[str, int], unit: str = "") -> int:
    found = _QUANTITY.fullmatch(text)
    scale = None if found is None else units.get(found[2].lower() or unit)
    if found is None or scale is None:
        raise ValueError(text)
    value = float(found[1]) * scale
    if math.isinf(value):
        raise ValueError(text)
    return min(round(value), INFINITE)


# --- lists of names: separated by commas, or JSON arrays where a name has a comma or is empty ------

#: The text between commas; texts in quotes may contain commas.
_QUOTED: Final = re.compile(r"(?:'[^']*'|[^,])+")


def list_text(names: Iterable[str]) -> str:
    """The text that :func:`names_of` takes for these names."""
    found = list(names)
    plain = ",".join(found)
    is_plain = all(names_of(plain, is_quoted=quoted) == tuple(found) for quoted in (False, True))
    return plain if is_plain else json.dumps(found, ensure_ascii=False)


def names_of(text: str, *, is_quoted: bool = False) -> tuple[str, ...]:
    """The names in a text. In a list with commas, spaces around names and empty names are ignored.

    ``is_quoted``: a comma between single quotes does not separate names.
    """
    if text.startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None  # not JSON, for example the pattern [ab]*
        if isinstance(found, list) and all(isinstance(name, str) for name in found):
            return tuple(found)
    parts = _QUOTED.findall(text) if is_quoted else text.split(",")
    return tuple(part for part in (part.strip() for part in parts) if part)


# --- paths: ``~`` is a home directory, and URLs of the scheme ``file`` are paths, too --------------


def path_of(option: str, text: str) -> Path:
    """The path. Raises OptionError for the home directory of a user whom the host does not know."""
    try:
        return Path(text.removeprefix("file://")).expanduser()
    except RuntimeError:
        fix = "begins with a home directory that is not known; write the whole path"
        raise OptionError(option, text, fix) from None
