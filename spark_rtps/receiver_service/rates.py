"""The live table of a receiver service: a row for each subscription."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..transport.structure import NANOSECONDS
from ..transport.value_classes import value
from .backlog import Behind, groups_behind
from .keeper import Keeper

#: Groups that a row names.
_GROUPS_MAX: Final = 4


@value
class Row:
    """One subscription now. ``rate``: samples a second since the previous row; ``nbytes``: the size of its log."""

    name: str
    topic: str
    state: str
    error: str | None
    writers: int
    rate: float
    nbytes: int
    behind: tuple[Behind, ...]


class Rates:
    """Computes the rows of subscriptions, repeatedly."""

    def __init__(self) -> None:
        self._at = 0
        self._rows: dict[Path, int] = {}

    def rows(self, keepers: Iterable[Keeper], now: int) -> list[Row]:
        """A row for each subscription, by name; ``now`` is monotonic, in ns."""
        elapsed = (now - self._at) / NANOSECONDS
        before, self._rows, self._at = self._rows, {}, now
        return [self._row(each, before, elapsed) for each in sorted(keepers, key=lambda k: k.wanted.name)]

    def _row(self, keeper: Keeper, before: dict[Path, int], elapsed: float) -> Row:
        counters = keeper.counters()
        rows, position = counters.get("log.rows", 0), counters.get("log.position", 0)
        if counters:
            self._rows[keeper.directory] = rows
        more = rows - before.get(keeper.directory, rows)
        return Row(
            keeper.wanted.name,
            keeper.wanted.settings.topic,
            keeper.state,
            keeper.error,
            counters.get("reader.matched_writers", 0),
            max(more, 0) / elapsed if elapsed > 0 else 0.0,
            position - counters.get("log.base", 0),
            tuple(groups_behind(keeper.directory, position)[:_GROUPS_MAX]),
        )
