"""What was said in a log, so that it is said once."""

from __future__ import annotations

from collections.abc import Hashable


class LogOnce:
    """Remembers ``most`` things that were said; then nothing else is new."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._logged: set[Hashable] = set()

    def is_new(self, what: Hashable) -> bool:
        """Whether it is to be said now; from now on it counts as said."""
        if what in self._logged or len(self._logged) >= self._most:
            return False
        self._logged.add(what)
        return True
