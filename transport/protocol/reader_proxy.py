"""What a writer knows of one matched reader (RTPS 2.5 §8.4.7.5).

Invariants: ``acked`` never falls; a sample is sent again to a reader at most once, and at most
``max_repair_bytes`` in all, per *turn* (the policy's nack_suppression), however many ACKNACKs ask.
"""

from __future__ import annotations

from ..limits import REORDER_RUNS_MAX
from ..structure import INFINITE, Guid
from .counts import CountFilter
from .endpoint_info import ReaderInfo
from .intervals import IntervalSet


class ReaderProxy:
    """State of one reader; the rules that move it are in :mod:`.writer`."""

    __slots__ = (
        "_recent",
        "_recent_fragments",
        "_turn_at",
        "acked",
        "acknacks",
        "acknacks_heard",
        "first_relevant",
        "fragment_cursor",
        "heartbeat_at",
        "heartbeat_interval",
        "info",
        "joined_sn",
        "may_skip",
        "nack_frags",
        "reliable",
        "repaired_bytes",
        "settled",
    )

    def __init__(
        self, info: ReaderInfo, *, reliable: bool, first_relevant: int, joined_sn: int, may_skip: bool
    ) -> None:
        self.info = info
        self.reliable = reliable
        #: Samples below are irrelevant to it: they were written before a volatile reader was matched.
        self.first_relevant = first_relevant
        #: The writer's last number when the reader was matched: up to here is history to it.
        self.joined_sn = joined_sn
        #: It has acknowledged everything up to here.
        self.acked = first_relevant - 1
        self.acknacks_heard = 0
        #: It is volatile and we are not: it starts where it first hears of us.
        self.may_skip = may_skip
        self.settled = False
        self.acknacks = CountFilter()
        self.nack_frags = CountFilter()
        self.heartbeat_at = INFINITE
        self.heartbeat_interval = 0
        #: (large sample, next fragment) where sending it again has to go on.
        self.fragment_cursor = (0, 1)
        self.repaired_bytes = 0
        self._turn_at = 0
        # sequence numbers (and by sequence number, fragments) sent again in this turn and the one before
        self._recent = (IntervalSet(), IntervalSet())
        self._recent_fragments: tuple[dict[int, IntervalSet], dict[int, IntervalSet]] = ({}, {})

    @property
    def guid(self) -> Guid:
        return self.info.guid

    @property
    def is_ready(self) -> bool:
        """Whether all that is written from now on will reach it.

        A reliable reader has to show that it matched us too. A volatile one of a transient-local writer must
        also have settled where it starts, which a pre-emptive ACKNACK (empty, base 1, not final) does not
        tell; one that has spoken three times is believed, whatever flags it sets.
        """
        return not self.reliable or self.settled or self.acknacks_heard >= (3 if self.may_skip else 1)

    @property
    def heard(self) -> bool:
        """It has sent an ACKNACK, so it has matched us too."""
        return self.acknacks_heard > 0

    def begin_repair(self, now: int, turn: int) -> None:
        """Forget what was sent again longer ago than one or two turns."""
        if now - self._turn_at >= turn:
            stale = now - self._turn_at >= 2 * turn
            self._recent = (IntervalSet(), IntervalSet() if stale else self._recent[0])
            self._recent_fragments = ({}, {} if stale else self._recent_fragments[0])
            self.repaired_bytes = 0
            self._turn_at = now

    def unsent(self, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges of first..last not sent again lately."""
        return _unsent(self._recent[0], self._recent[1], first, last)

    def unsent_fragments(self, sn: int, first: int, last: int) -> list[tuple[int, int]]:
        """Ranges of fragments first..last of a sample not sent again lately."""
        nothing = IntervalSet()
        this, before = (turn.get(sn, nothing) for turn in self._recent_fragments)
        return _unsent(this, before, first, last)

    def note_sent(self, first: int, last: int) -> None:
        _note(self._recent[0], first, last)

    def note_sent_fragments(self, sn: int, first: int, last: int) -> None:
        fragments = self._recent_fragments[0]
        if sn in fragments or len(fragments) < REORDER_RUNS_MAX:
            _note(fragments.setdefault(sn, IntervalSet()), first, last)


def _unsent(this: IntervalSet, before: IntervalSet, first: int, last: int) -> list[tuple[int, int]]:
    return [hole for a, b in this.holes(first, last) for hole in before.holes(a, b)]


def _note(turn: IntervalSet, first: int, last: int) -> None:
    if len(turn) < REORDER_RUNS_MAX:  # beyond, the bytes of a turn are the only bound
        turn.add(first, last)
