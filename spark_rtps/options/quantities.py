"""Durations and sizes: how users write them, and how time-outs take them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from ..transport.structure import INFINITE, NANOSECONDS

_FOREVER_SECONDS: Final = 1e9
#: Duration_t carries no longer one, but infinite (RTPS 2.5 §9.3.2.3).
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

    From 68 years on a duration is infinite here, too: peers compare what they were told.
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
