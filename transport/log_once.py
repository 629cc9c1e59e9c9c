"""Suppresses repeated log messages."""

from __future__ import annotations

from collections.abc import Hashable


class LogOnce:
    """Keeps up to ``most`` keys; when it is full, every other key counts as already logged."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._logged: set[Hashable] = set()

    def is_new(self, key: Hashable) -> bool:
        """Return True the first time that ``key`` is given."""
        if key in self._logged or len(self._logged) >= self._most:
            return False
        self._logged.add(key)
        return True
