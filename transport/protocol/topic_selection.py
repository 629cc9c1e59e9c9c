"""The topics that one receiver follows together: those of a list, or those whose names match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ..slotted import frozen


@frozen
class TopicSelection:
    """Either ``names``, or ``pattern``, a regular expression that a whole name has to match."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def selects(self, topic: str) -> bool:
        if self.pattern is None:
            return topic in self.names
        return _compiled(self.pattern).fullmatch(topic) is not None

    def among(self, topics: Iterable[str]) -> list[str]:
        """Those of ``topics`` that are selected, in alphabetical order."""
        return sorted(filter(self.selects, topics))

    def is_like(self, other: TopicSelection) -> bool:
        """Whether both select the same topics, as far as their texts show it: the order of names says nothing."""
        return self.pattern == other.pattern and set(self.names) == set(other.names)

    def __str__(self) -> str:
        return ",".join(self.names) if self.pattern is None else self.pattern


@lru_cache(maxsize=16)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.DOTALL)
