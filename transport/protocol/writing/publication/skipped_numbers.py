"""Numbers of a writer that never had a sample, and are announced by GAPs (RTPS 2.5 §8.3.8.4)."""

from __future__ import annotations

from ....limits import REORDER_RUNS_MAX
from ....structure import INFINITE
from ...intervals import IntervalSet
from .keep_last import KeepLast


class SkippedNumbers:
    """Skipped numbers of one writer that some reader may not know yet, and its aborted coherent sets."""

    def __init__(self, keep_last: KeepLast | None) -> None:
        self._keep_last = keep_last
        self._skipped = IntervalSet()
        #: Aborted sets, each with the number behind its last one.
        self._aborted = IntervalSet()

    def skip_numbers(self, first_sn: int, last_sn: int) -> None:
        """The newest numbers, first_sn..last_sn, will never have samples."""
        if self._keep_last is not None:
            self._keep_last.note_hollow(first_sn, last_sn)
        self._skipped.add_range(first_sn, last_sn)

    def note_aborted_set(self, begun: int, last_sn: int) -> None:
        """A coherent set, with the number behind it, will never be complete."""
        self._aborted.add_range(begun, last_sn)
        if len(self._aborted) > REORDER_RUNS_MAX:
            self._aborted.remove_range(*self._aborted.lowest)
        self.skip_numbers(begun, last_sn)

    def settle(self, last_sn: int) -> None:
        """Forget numbers above ``last_sn`` after an exception: they were not assigned."""
        self._aborted.remove_range(last_sn + 1, INFINITE)
        self._skipped.remove_range(last_sn + 1, INFINITE)

    def forget(self, acknowledged: int) -> None:
        """Every reader knows the numbers up to ``acknowledged``."""
        if self._skipped:
            self._skipped.remove_range(0, acknowledged)

    def lowest(self, first_sn: int) -> int:
        """The lowest skipped number if it is below ``first_sn``, else ``first_sn``."""
        return min(first_sn, self._skipped.lowest[0]) if self._skipped else first_sn

    def start_of_gap(self, sn: int) -> int:
        """The first number of a GAP that covers ``sn``: an aborted set is announced as a whole."""
        aborted = self._aborted.around(sn)
        return sn if aborted is None else aborted[0]
