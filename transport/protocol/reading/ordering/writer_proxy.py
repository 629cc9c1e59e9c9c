"""The state of one matched writer at a reader (RTPS 2.5 §8.4.10.4).

Invariants:
* every sequence number below ``expected`` was delivered, is irrelevant, or is lost: only these are ever acknowledged.
  Each was counted as such, except for what passed as no longer there below ``counts_losses_from``. ``expected`` moves
  only in :meth:`WriterProxy.begin_at`, :meth:`WriterProxy.move_to`, where a run is delivered (:mod:`.delivery`), and
  for the next run in order (:mod:`..arrivals`). It never falls: no sample is delivered twice, and a number that was
  passed stays passed, whatever a later message announces;
* ``held`` and ``fragments`` hold numbers at or above ``expected`` only;
* nothing is requested beyond ``announced``: the highest number the writer is known to have used;
* ``expected`` is missing, or nothing is, with two exceptions: samples held there wait for space at the owner, or for
  the end of their coherent set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ....limits import NUMBER_SET_BITS
from ....structure import INFINITE, Guid
from ....wire.numbers import SEQUENCE_NUMBER_MAX, SequenceNumberSet
from ...counts import CountFilter
from ...endpoint_info import WriterInfo
from ...policies import LossCause
from ..received_stream import ReceivedStream
from .batch_numbers import BatchNumbers
from .coherent_access import CoherentAccess
from .fragments import FragmentedSample
from .reorder_buffer import ReorderBudget, ReorderBuffer

#: A writer that for this long is only seen below where an earlier match with it ended was restarted.
ANEW_NS: Final = 1_000_000_000
#: Number of rises that are needed there without a new match: one or two datagrams may be that late.
BACK_MIN: Final = 4


class WriterProxy:
    """The state of one writer: its identity, and the progress of its samples.

    :mod:`..response` decides on the answers to it.
    """

    __slots__ = (
        "announced_from",
        "announced_until",
        "away",
        "away_until",
        "back_at",
        "back_count",
        "back_first",
        "back_last",
        "back_rises",
        "back_since",
        "batches",
        "counts_losses_from",
        "expected",
        "first_sn",
        "fragments",
        "heartbeat_batches",
        "heartbeat_frags",
        "heartbeats",
        "held",
        "info",
        "last_sn",
        "reliable",
        "resting",
        "resumed",
        "resumed_since",
        "seen_below",
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
        announced_until: int = 0,
    ) -> None:
        self.info = info
        #: Both sides are reliable: HEARTBEATs are answered, missing samples are requested.
        self.reliable = reliable
        #: Next sequence number to deliver; not known yet while not ``synced``.
        self.expected = 1 if expected is None else expected
        self.synced = expected is not None
        #: The value of ``expected`` if it comes only from an earlier match with the writer; else 0.
        self.resumed = self.expected if self.expected > 1 else 0
        #: Since when the writer is seen below that; -1: it is not.
        self.resumed_since = -1
        #: The first number below that which arrived from a writer whose samples are not sent again; 0: none did.
        self.seen_below = 0
        #: Since ``back_since`` only what lies below ``expected`` came, from ``back_first`` on, and ``back_last`` as the
        #: last. It rose ``back_rises`` times, by ``back_count`` numbers, of which ``announced_from`` count as doubted.
        self.back_first = self.back_last = self.back_since = 0
        self.back_rises = self.back_count = self.announced_from = 0
        #: The highest number known of the writer at that time.
        self.back_at = 0
        #: What the writer no longer has is lost from this number on. What its first HEARTBEAT announced to all may be
        #: from before the match, still there because others lack it; one to this reader alone tells where it begins.
        self.counts_losses_from = 1 if expected is not None and expected > 1 else INFINITE
        #: The cause of losses up to ``away_until``: the writer had used these numbers before it was matched again.
        #: Of a reliable writer its first HEARTBEAT tells; of a best-effort one it is what lies before its first sample.
        self.away = away
        self.away_until = 0
        if away is not None:
            self.away_until = INFINITE if reliable else self.expected
        #: Samples missing up to this number were counted as lost when an earlier match with the writer ended.
        self.announced_until = announced_until
        self.held = ReorderBuffer(budget, units_max=receive_window)
        #: Only if the reader has coherent access.
        self.sets = CoherentAccess() if coherent else None
        #: Only if the writer was seen to send batches.
        self.batches: BatchNumbers | None = None
        self.fragments: dict[int, FragmentedSample] = {}
        self.stream = ReceivedStream()
        #: The writer was let go: its samples are dropped and acknowledged (:mod:`..untethered`).
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
        """Move ``expected`` to ``sn``: all numbers below are delivered, irrelevant or lost; returns how many these are.

        The caller adds them to the counter of their outcome.
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
        before it knew the reader's new GUID, or keeps no history and had used them before it was matched again."""
        keeps_none = self.away is not None and self.reliable and not self.info.transient_local
        return self.away_in(self.expected, last) if self.away is LossCause.MOVED or keeps_none else 0

    def is_below_resumed(self, last_sn: int) -> bool:
        """Whether the writer, now at ``last_sn``, was only seen below where an earlier match with it ended."""
        is_there = last_sn >= self.expected - 1 or self.held or self.fragments
        if is_there or self.expected != self.resumed:
            self.resumed = 0
        return self.resumed > 0

    def has_begun_anew(self, now: int) -> bool:
        """Whether the writer was below the end of an earlier match for so long that it must have been restarted.
        Samples from before the restart are then no longer on their way."""
        if self.resumed_since < 0:
            self.resumed_since = now
        return now - self.resumed_since >= ANEW_NS

    def has_gone_back(self, first_sn: int, last_sn: int, now: int) -> bool:
        """first_sn..last_sn, which lie below ``expected``, arrived: whether only rising numbers below ``expected`` came
        for ``ANEW_NS``. Samples that the network delivers late or twice neither continue for so long nor rise so often;
        some of the rising ones may be overtaken or come twice."""
        highest = self.announced
        if self.back_at != highest or first_sn < self.back_first:
            self.back_at, self.back_since, self.back_first = highest, now, first_sn
            self.back_last = self.back_rises = self.back_count = self.announced_from = 0
        if last_sn > self.back_last:
            self.back_rises += 1
            self.back_count += last_sn - max(self.back_last, first_sn - 1)
        self.back_last = last_sn
        return now - self.back_since >= ANEW_NS and self.back_rises >= BACK_MIN

    def count_batches(self) -> BatchNumbers:
        """The numbers of the writer's batches, from now on at least."""
        if self.batches is None:
            self.batches = BatchNumbers()
        return self.batches

    def missing_changes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of first..last that did not arrive whole; never below ``expected``."""
        return self.held.covered.holes(max(first, self.expected), last)

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

        A set reaches up to its base + 255. If more samples than that wait unacknowledged for the end of their coherent
        set, they must be acknowledged so that the missing ones behind them can be requested.
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
        held = sum(run.count for run in self.held.runs)
        if not (self.reliable and self.synced):  # a number alone does not prove that there is a sample
            return held + len(self.fragments)
        holes = self.missing_changes(self.announced_until + 1, self.announced)
        return held + sum(last - first + 1 for first, last in holes)

    def reader_sn_state(self, first: int, last: int) -> SequenceNumberSet:
        """The set of an ACKNACK that requests first..last: its base acknowledges all below.

        A sample of which fragments have arrived is requested by NACK_FRAG instead (RTPS 2.5 §8.4.14.1.2).
        """
        base = self.expected if first > last else self.request_base
        base = min(base, SEQUENCE_NUMBER_MAX)
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
        if self.batches is None:
            return None
        self.batches.forget_below(self.expected)
        if any(first <= sn <= last for sn in self.fragments):
            return None
        return self.batches.missing(self.expected, self.missing_changes(first, last))
