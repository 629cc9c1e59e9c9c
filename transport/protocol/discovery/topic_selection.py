"""The topics that one receiver follows together: those of a list, or those whose names match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ...value_classes import value

_REPEATED: Final = re.compile(r"[*+{]")
#: Escapes that match more characters in Python than in RE2, beyond ASCII.
_UNICODE: Final = re.compile(r"\\[wdsbWDSB]|\(\?[a-z]*i")


@value
class TopicSelection:
    """Either ``names``, or ``pattern``, a regular expression that a whole name has to match."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def selects(self, topic: str) -> bool:
        if self.pattern is None:
            return topic in self.names
        return _selects(self.pattern, topic)

    def among(self, topics: Iterable[str]) -> list[str]:
        """The selected ones of ``topics``, in alphabetical order."""
        if self.pattern is None:
            return sorted(filter(self.selects, topics))
        return sorted(_matching(self.pattern, list(topics)))

    def is_like(self, other: TopicSelection) -> bool:
        """Whether both have the same pattern, or the same names in any order."""
        return self.pattern == other.pattern and set(self.names) == set(other.names)

    def __str__(self) -> str:
        return ",".join(self.names) if self.pattern is None else self.pattern


@lru_cache(maxsize=4_096)
def _selects(pattern: str, topic: str) -> bool:
    return bool(_matching(pattern, [topic]))


def _matching(pattern: str, topics: list[str]) -> list[str]:
    """The matching ones of ``topics``. For a pattern with several repetitions, Python may try each of them at each
    position, so that a peer could choose a topic name for which matching takes hours."""
    found: list[str] = []
    if len(_REPEATED.findall(pattern)) > 1:
        alike = [each for each in topics if each.isascii() or not _UNICODE.search(pattern)]
        matching = _in_linear_time(pattern, alike)
        if matching is not None:
            known = set(alike)
            found, topics = matching, [each for each in topics if each not in known]
    compiled = _compiled(pattern)
    return found + [each for each in topics if compiled.fullmatch(each)]


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _in_linear_time(pattern: str, topics: list[str]) -> list[str] | None:
    """The topics that RE2 matches; None: RE2 does not support the pattern, such as one with look-ahead."""
    import pyarrow as pa  # imported here because few patterns need it
    import pyarrow.compute as pc

    try:
        found = pc.match_substring_regex(pa.array(topics, pa.string()), rf"(?s)\A(?:{pattern})\z")
    except (pa.ArrowException, UnicodeError):
        return None
    return [topic for topic, is_match in zip(topics, found.to_pylist(), strict=True) if is_match]
