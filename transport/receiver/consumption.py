"""The samples of each writer that are committed once the log is committed up to a position.

Writers get sequence numbers, Spark commits positions of the log. One entry for each appended run is exact. When there
are too many entries, every other entry of a writer is merged into its next one: the writer then learns of the
consumption a little later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from ..structure import Guid

#: Entries that are kept before they are thinned; with more writers than this, one for each.
_ENTRIES_MAX: Final = 4_096


class Consumed(NamedTuple):
    """``nbytes`` more of a writer are consumed, up to ``last_sn``, once everything before ``position`` is committed."""

    position: int
    writer: Guid
    last_sn: int
    nbytes: int


class Consumption:
    """The runs in the log that Spark has not committed yet."""

    def __init__(self) -> None:
        self._waiting: deque[Consumed] = deque()
        self._thin_at = _ENTRIES_MAX

    def __len__(self) -> int:
        return len(self._waiting)

    def on_append(self, position: int, writer: Guid, last_sn: int, nbytes: int) -> None:
        """All samples of a writer up to ``last_sn`` are in the log, which ends at ``position``, or were dropped."""
        self._waiting.append(Consumed(position, writer, last_sn, nbytes))
        if len(self._waiting) >= self._thin_at:
            self._thin()

    def on_commit(self, position: int) -> Iterator[Consumed]:
        """Everything before ``position`` is committed: one entry for each writer that has samples consumed by it."""
        done: dict[Guid, Consumed] = {}
        while self._waiting and self._waiting[0].position <= position:
            entry = self._waiting.popleft()
            before = done.get(entry.writer)
            done[entry.writer] = entry if before is None else _merged(before, entry)
        return iter(done.values())

    def _thin(self) -> None:
        kept: deque[Consumed] = deque()
        seen: dict[Guid, int] = {}
        into_next: dict[Guid, Consumed] = {}
        counts: dict[Guid, int] = {}
        for entry in self._waiting:
            counts[entry.writer] = counts.get(entry.writer, 0) + 1
        for entry in self._waiting:
            writer = entry.writer
            seen[writer] = seen.get(writer, 0) + 1
            # Counted from the last entry, which stays: an entry without a next one cannot be merged.
            if (counts[writer] - seen[writer]) % 2:
                into_next[writer] = entry
            else:
                before = into_next.pop(writer, None)
                kept.append(entry if before is None else _merged(before, entry))
        self._waiting = kept
        self._thin_at = max(_ENTRIES_MAX, 2 * len(kept))


def _merged(before: Consumed, after: Consumed) -> Consumed:
    last_sn = max(before.last_sn, after.last_sn)
    return Consumed(after.position, after.writer, last_sn, before.nbytes + after.nbytes)
