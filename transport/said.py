"""What was said in a log, so that it is said once."""

from __future__ import annotations

from collections.abc import Hashable


class Said:
    """Remembers ``most`` things that were said; then nothing else is new."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._said: set[Hashable] = set()

    def is_new(self, what: Hashable) -> bool:
        """Whether it is to be said now; from now on it counts as said."""
        if what in self._said or len(self._said) >= self._most:
            return False
        self._said.add(what)
        return True
