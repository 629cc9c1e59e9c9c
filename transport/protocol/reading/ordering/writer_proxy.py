"""What a reader knows of one matched writer (RTPS 2.5 §8.4.10.4).

Invariants:
* every sequence number below ``expected`` was delivered, is irrelevant, or is lost for good, and was counted as
  such: only these are ever acknowledged. ``expected`` moves in :meth:`WriterProxy.begin_at`,
  :meth:`WriterProxy.move_to`, where a run is delivered (:mod:`.delivery`), and nowhere else, but for the run that is
  simply the next one (:meth:`..reader.StatefulReader.on_run`). It falls only where a jump is taken back
  (:mod:`.sequence_jumps`);
* nothing is acknowledged from ``acks_below`` on, which the writer has not used;
* ``held`` and ``fragments`` hold numbers at or above ``expected`` only;
* nothing is requested beyond ``announced``: the highest number the writer is known to have used;
* ``expected`` is missing, or nothing is, with two exceptions: what is held there waits for the owner to have room, or
  for the end of its coherent set.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....limits import NUMBER_SET_BITS
from ....structure import INFINITE, Guid
from ....wire.numbers import SEQUENCE_NUMBER_MAX, SequenceNumberSet
from ...counts import CountFilter
from ...endpoint_info import WriterInfo
from ...loss_causes import LossCause
from ..received_stream import ReceivedStream
from .batch_numbers import BatchNumbers
from .coherent_access import CoherentAccess
from .fragments import FragmentedSample
from .reorder_buffer import ReorderBudget, ReorderBuffer
from .sequence_jumps import SequenceJumps


class WriterProxy:
    """State of one writer: its identity, and how far its samples have come in their order.

    What the reader answers it is in :mod:`..response`.
    """

    __slots__ = (
        "acks_below",
        "away",
        "away_until",
        "batches",
        "counts_losses",
        "expected",
        "first_sn",
        "fragments",
        "heartbeat_batches",
        "heartbeat_frags",
        "heartbeats",
        "held",
        "info",
        "jumps",
        "last_sn",
        "reliable",
        "resting",
        "sets",
        "stream",
        "synced",
    )

    def __init__(
        self,
        info: WriterInfo,
        budget: ReorderBudget,
        *,
        reliable: bool,
        expected: int | None,
        receive_window: int = INFINITE,
        coherent: bool = False,
        away: LossCause | None = None,
    ) -> None:
        self.info = info
        #: Both sides are reliable: heartbeats are answered, what is missing is requested.
        self.reliable = reliable
        #: Next sequence number to deliver; not known yet while not ``synced``.
        self.expected = 1 if expected is None else expected
        self.synced = expected is not None
        self.acks_below = INFINITE
        self.jumps = SequenceJumps(budget, resumed=self.expected if self.expected > 1 else 0)
        #: Jumps of the writer's first number are losses only once the reader had something to lose.
        self.counts_losses = expected is not None and expected > 1
        #: Why what is lost up to ``away_until`` is lost: the writer had used these numbers before it was matched again.
        #: Of a reliable writer its first HEARTBEAT tells; of a best-effort one it is what lies before its first sample.
        self.away = away
        self.away_until = 0
        if away is not None:
            self.away_until = INFINITE if reliable else self.expected
        self.held = ReorderBuffer(budget, units_max=receive_window)
        #: Only if the reader has coherent access.
        self.sets = CoherentAccess() if coherent else None
        #: Only if the writer was seen to send batches.
        self.batches: BatchNumbers | None = None
        self.fragments: dict[int, FragmentedSample] = {}
        self.stream = ReceivedStream()
        #: The writer is let go: what it sends is dropped and acknowledged (:mod:`..untethered`).
        self.resting = False
        # what the writer announced
        self.first_sn = 1
        self.last_sn = 0
        self.heartbeats = CountFilter()
        self.heartbeat_frags = CountFilter()
        self.heartbeat_batches = CountFilter()

    @property
    def guid(self) -> Guid:
        return self.info.guid

    @property
    def announced(self) -> int:
        """The highest sequence number the writer is known to have used."""
        highest = max(self.last_sn, self.expected - 1, self.held.highest)
        return max(highest, max(self.fragments)) if self.fragments else highest

    def begin_at(self, sn: int) -> None:
        """The stream is synchronised: everything from ``sn`` on is delivered, and nothing before it."""
        self.synced = True
        self.expected = sn

    def move_to(self, sn: int) -> int:
        """Every number below ``sn`` is delivered, irrelevant or lost; returns how many numbers that passes.

        The caller puts them into the counter of what became of them.
        """
        passed = sn - self.expected
        self.expected = sn
        return passed

    def away_in(self, first: int, last: int) -> int:
        """How many of the numbers first..last, which pass, the writer had used before it was matched again."""
        if first > self.away_until:
            return 0
        return (min(last, self.away_until) if self.reliable else last) + 1 - first

    def missed_in(self, last: int) -> int:
        """How many of the numbers from ``expected`` to ``last``, which pass, are missed: the writer had used them
        before it knew the reader's new GUID."""
        return self.away_in(self.expected, last) if self.away is LossCause.MOVED else 0

    def go_back_to(self, sn: int) -> None:
        """What was passed from ``sn`` on has not been used yet; nothing is held."""
        self.expected = sn
        self.first_sn = min(self.first_sn, sn)
        if self.sets is not None:
            self.sets = CoherentAccess()
            self.sets.lose(1, sn - 1)
        if self.batches is not None:
            self.batches = BatchNumbers()
        self.stream.go_back_to(sn)

    def count_batches(self) -> BatchNumbers:
        """The numbers of the writer's batches, from now on at least."""
        if self.batches is None:
            self.batches = BatchNumbers()
        return self.batches

    def missing_changes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of first..last that did not arrive whole; never below ``expected``."""
        return self.held.holes(max(first, self.expected), last)

    @property
    def is_missing(self) -> bool:
        """Whether anything the writer announced has not arrived whole."""
        return next(self.missing_changes(self.expected, self.announced), None) is not None

    @property
    def first_missing(self) -> int:
        """The lowest number that has not arrived whole."""
        hole = next(self.missing_changes(self.expected, self.announced + 1), None)
        return self.expected if hole is None else hole[0]

    @property
    def request_base(self) -> int:
        """The base of a set that requests something.

        A set reaches no further than its base + 255. Where what waits unacknowledged for the end of its
        coherent set is longer than that, it has to be acknowledged for the sake of what is missing behind it.
        """
        if self.sets is None or not self.held:
            return self.expected
        first = self.first_missing
        return self.expected if first < self.expected + NUMBER_SET_BITS else first

    def requestable(self, first: int, limit: int) -> int:
        """The last number up to ``limit`` that one ACKNACK, or ACKNACK_BATCH, from ``first`` on can request."""
        last = self.request_base + NUMBER_SET_BITS - 1
        if limit <= last:
            return limit
        if self.batches is not None and not self.fragments:
            if self.batches.missing(self.expected, self.missing_changes(first, limit)) is not None:
                return limit
        return last

    @property
    def undelivered(self) -> int:
        """Samples that the writer is known to have sent or to hold for this reader, and that were not delivered."""
        if not (self.reliable and self.synced):  # a number alone proves no sample
            return self.held.samples + len(self.fragments)
        holes = self.missing_changes(self.expected, self.announced)
        return self.held.samples + sum(last - first + 1 for first, last in holes)

    def reader_sn_state(self, first: int, last: int) -> SequenceNumberSet:
        """The set of an ACKNACK that requests first..last: its base acknowledges all below.

        A sample of which fragments have arrived is requested by NACK_FRAG instead (RTPS 2.5 §8.4.14.1.2).
        """
        base = self.expected if first > last else self.request_base
        base = min(base, self.acks_below, SEQUENCE_NUMBER_MAX)
        last = min(last, base + NUMBER_SET_BITS - 1)
        numbers = (
            sn
            for a, b in self.missing_changes(first, last)
            for sn in range(a, b + 1)
            if sn not in self.fragments
        )
        return SequenceNumberSet.from_numbers(base, numbers)

    def reader_batch_state(self, first: int, last: int) -> SequenceNumberSet | None:
        """The set of an ACKNACK_BATCH that requests first..last; None where batch numbers cannot express it."""
        if self.batches is None or self.acks_below < self.expected:
            return None
        self.batches.forget_below(self.expected)
        if any(first <= sn <= last for sn in self.fragments):
            return None
        return self.batches.missing(self.expected, self.missing_changes(first, last))
