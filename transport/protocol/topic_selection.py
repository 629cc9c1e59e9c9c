"""The topics that one receiver follows together: those of a list, or those whose names match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ..slotted import frozen

#: Repeats several things, or one thing that may be several: Python may try each repetition at each place.
_AMBIGUOUS: Final = re.compile(r"[*+{].*[*+{]|\)[*+{]", re.DOTALL)
#: What Python and RE2 take for different characters or places, beyond what is printed in ASCII.
_UNLIKE: Final = re.compile(r"\\[wdsbWDSB]|\(\?[a-z]*i|\$")
#: ``{,2}`` is no repetition in RE2, and ``[[:alpha:]]`` is no list of characters.
_OF_PYTHON: Final = re.compile(r"\{,\d*\}|\[:.*:\]", re.DOTALL)
#: Of a topic's name (RTPS 2.5 §9.6.4: string<256>).
_NAME_MAX: Final = 256


@frozen
class TopicSelection:
    """Either ``names``, or ``pattern``, a regular expression that a whole name has to match."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def selects(self, topic: str) -> bool:
        if self.pattern is None:
            return topic in self.names
        return _selects(self.pattern, topic)

    def among(self, topics: Iterable[str]) -> list[str]:
        """Those of ``topics`` that are selected, in alphabetical order."""
        if self.pattern is None:
            return sorted(filter(self.selects, topics))
        return sorted(_matching(self.pattern, list(topics)))

    def is_like(self, other: TopicSelection) -> bool:
        """Whether both select the same topics, as far as their texts show it: the order of names says nothing."""
        return self.pattern == other.pattern and set(self.names) == set(other.names)

    def __str__(self) -> str:
        return ",".join(self.names) if self.pattern is None else self.pattern


@lru_cache(maxsize=4_096)
def _selects(pattern: str, topic: str) -> bool:
    return bool(_matching(pattern, [topic]))


def _matching(pattern: str, topics: list[str]) -> list[str]:
    """Those of ``topics`` that match. A peer could name a topic for which Python takes hours to find that an ambiguous
    pattern does not match it: RE2 compares it wherever it means the same, and else, names of RTPS's length do."""
    found: list[str] = []
    if _AMBIGUOUS.search(pattern):
        alike = [each for each in topics if _means_the_same(pattern, each)]
        matching = _in_linear_time(pattern, alike)
        known = set() if matching is None else set(alike)
        found = matching or []
        topics = [each for each in topics if each not in known and len(each) <= _NAME_MAX]
    compiled = _compiled(pattern)
    return found + [each for each in topics if compiled.fullmatch(each)]


def _means_the_same(pattern: str, topic: str) -> bool:
    if _OF_PYTHON.search(pattern):
        return False
    is_plain = topic != "" and topic.isprintable() and topic.isascii() and pattern.isascii()
    return is_plain or not _UNLIKE.search(pattern)


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)


def _in_linear_time(pattern: str, topics: list[str]) -> list[str] | None:
    """What RE2 finds; None: it does not know such a pattern, as one that looks around."""
    import pyarrow as pa  # few patterns are like this
    import pyarrow.compute as pc

    try:
        found = pc.match_substring_regex(pa.array(topics, pa.string()), rf"(?s)\A(?:{pattern})\z")
    except (pa.ArrowException, UnicodeError):
        return None
    return [topic for topic, is_match in zip(topics, found.to_pylist(), strict=True) if is_match]
