"""What a reader knows of one matched writer (RTPS 2.5 §8.4.10.4).

Invariants:
* every sequence number below ``expected`` was delivered, is irrelevant, or is lost for good: only these are
  ever acknowledged;
* ``held`` and ``fragments`` hold numbers at or above ``expected`` only;
* nothing is requested beyond ``announced``: the highest number the writer spoke of;
* ``expected`` is missing, or nothing is, but for two cases: what is held there waits for the owner's room, or
  for the end of its coherent set.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...limits import NUMBER_SET_BITS
from ...qos import LENGTH_UNLIMITED
from ...structure import INFINITE, Guid
from ...wire.numbers import SEQUENCE_NUMBER_MAX, SequenceNumberSet
from ..counts import CountFilter
from ..endpoint_info import WriterInfo
from .batch_numbers import BatchNumbers
from .coherent import CoherentSets
from .fragments import FragmentedSample
from .received_stream import ReceivedStream
from .reorder import ReorderBudget, ReorderBuffer


class WriterProxy:
    """State of one writer; the rules that move it are in :mod:`.reader`."""

    __slots__ = (
        "ack_at",
        "acked_base",
        "acknack_count",
        "answer_at",
        "answered_at",
        "batches",
        "counts_losses",
        "expected",
        "first_sn",
        "fragments",
        "heard",
        "heartbeat_batches",
        "heartbeat_frags",
        "heartbeats",
        "held",
        "info",
        "last_sn",
        "nack_at",
        "nack_frag_count",
        "nack_interval",
        "nack_limit",
        "nacked",
        "nacked_at",
        "nacked_base",
        "nacked_head",
        "nacked_tail_at",
        "preemptive_at",
        "preemptive_tries",
        "reliable",
        "requested",
        "requested_fragments",
        "resting",
        "sets",
        "stream",
        "synced",
        "wants_ack",
        "wants_preemptive",
    )

    def __init__(
        self,
        info: WriterInfo,
        budget: ReorderBudget,
        *,
        reliable: bool,
        expected: int | None,
        receive_window: int = LENGTH_UNLIMITED,
        coherent: bool = False,
    ) -> None:
        self.info = info
        #: Both sides are reliable: heartbeats are answered, what is missing is requested.
        self.reliable = reliable
        #: Next sequence number to deliver; not known yet while not ``synced``.
        self.expected = 1 if expected is None else expected
        self.synced = expected is not None
        #: Jumps of the writer's first number are losses only once we had something to lose.
        self.counts_losses = expected is not None and expected > 1
        self.held = ReorderBuffer(budget, units_max=receive_window)
        #: Of a reader with coherent access.
        self.sets = CoherentSets() if coherent else None
        #: Of a writer that was seen to send batches.
        self.batches: BatchNumbers | None = None
        self.fragments: dict[int, FragmentedSample] = {}
        self.stream = ReceivedStream()
        #: It is let go: what it sends is dropped and acknowledged (:mod:`.untethered`).
        self.resting = False
        # what the writer says it has
        self.heard = False
        self.first_sn = 1
        self.last_sn = 0
        self.heartbeats = CountFilter()
        self.heartbeat_frags = CountFilter()
        self.heartbeat_batches = CountFilter()
        # what we say, and when
        self.acknack_count = 0
        self.nack_frag_count = 0
        self.acked_base = 0
        self.ack_at = INFINITE
        #: When the last HEARTBEAT that was answered came, and when its answer was, or is, due.
        self.answered_at = -INFINITE
        self.answer_at = -INFINITE
        self.nack_at = INFINITE
        self.nack_limit = 0
        self.nack_interval = 0
        self.nacked = 0
        self.nacked_at = 0
        self.nacked_base = 0
        self.nacked_head = 0
        self.nacked_tail_at = 0
        self.preemptive_at = INFINITE
        self.preemptive_tries = 0
        # what the next outgoing() is to say
        self.wants_ack = False
        self.wants_preemptive = False
        self.requested = (1, 0)
        self.requested_fragments: dict[int, int] = {}

    @property
    def guid(self) -> Guid:
        return self.info.guid

    @property
    def announced(self) -> int:
        """The highest sequence number the writer is known to have used."""
        highest = max(self.last_sn, self.expected - 1, self.held.highest)
        return max(highest, max(self.fragments)) if self.fragments else highest

    @property
    def timer(self) -> int:
        return min(self.nack_at, self.preemptive_at, self.ack_at, self.stream.timer_at)

    def missing_changes(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of first..last that did not arrive whole; never below ``expected``."""
        return self.held.holes(max(first, self.expected), last)

    @property
    def is_missing(self) -> bool:
        """Whether anything the writer spoke of has not arrived whole."""
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
        """Samples it is known to have sent us or to hold for us, and that were not delivered."""
        if not (self.reliable and self.synced):  # no number proves that there is a sample
            return self.held.samples + len(self.fragments)
        holes = self.missing_changes(self.expected, self.announced)
        return self.held.samples + sum(last - first + 1 for first, last in holes)

    def reader_sn_state(self) -> SequenceNumberSet:
        """The set of the next ACKNACK: base acknowledges all below, bits are what is requested.

        A sample of which fragments have arrived is requested by NACK_FRAG instead (RTPS 2.5 §8.4.14.1.2).
        """
        first, last = self.requested
        base = min(self.expected if first > last else self.request_base, SEQUENCE_NUMBER_MAX)
        last = min(last, base + NUMBER_SET_BITS - 1)
        numbers = (
            sn
            for a, b in self.missing_changes(first, last)
            for sn in range(a, b + 1)
            if sn not in self.fragments
        )
        return SequenceNumberSet.from_numbers(base, numbers)

    def reader_batch_state(self) -> SequenceNumberSet | None:
        """The same in batch numbers; None where batch numbers cannot say it."""
        if self.batches is None:
            return None
        self.batches.forget_below(self.expected)
        first, last = self.requested
        if any(first <= sn <= last for sn in self.fragments):
            return None
        return self.batches.missing(self.expected, self.missing_changes(first, last))
