"""Exceptions of plug-ins: what raises in one endpoint's turn keeps nothing from the others."""

from __future__ import annotations


class Failures:
    """The first exception since one was raised; the others had their turn meanwhile."""

    __slots__ = ("first",)

    def __init__(self) -> None:
        self.first: Exception | None = None

    def note(self, error: Exception) -> None:
        if self.first is None:
            self.first = error

    def raise_first(self) -> None:
        """Raise what was noted, if anything was."""
        if (error := self.first) is not None:
            self.first = None
            raise error
