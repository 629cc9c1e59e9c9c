"""Converts sequence numbers to batch numbers: what an ACKNACK_BATCH can express about one writer's samples.

The reader counts in sequence numbers. Of batches it knows edges: where a received batch begins and ends, and where the
range of a HEARTBEAT_BATCH begins and ends. Between two edges lie whole batches of any size; without an edge, the answer
is a plain ACKNACK, which is always correct. A base acknowledges only the batches below it. Samples written outside of
batches are acknowledged by sequence number; so if nothing is missing, the base must be the end of a batch.

Invariant: at most REORDER_RUNS_MAX edges of each kind are known; at the limit, all are forgotten and learnt anew.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....limits import NUMBER_SET_BITS, REORDER_RUNS_MAX
from ....wire.numbers import SEQUENCE_NUMBER_MAX, SequenceNumberSet


class BatchNumbers:
    """The edges of one writer's batches."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        #: By the first sequence number behind a batch: the number of the batch behind it.
        self._ends: dict[int, int] = {}
        #: By the first sequence number of a batch, or the one to come: its number.
        self._starts: dict[int, int] = {}

    def on_batch(self, batch_sn: int, first_sn: int, last_sn: int, *, waits: bool) -> None:
        """A batch arrived; ``waits``: something before it is missing, or it belongs to a coherent set."""
        if waits:
            self._note(self._starts, first_sn, batch_sn)
        self._note(self._ends, last_sn + 1, batch_sn + 1)

    def on_heartbeat(self, first_batch: int, last_batch: int, first_sn: int, last_sn: int) -> None:
        """The writer announced which batches and samples it has."""
        self._note(self._ends, first_sn, first_batch)
        self._note(self._starts, last_sn + 1, last_batch + 1)

    def forget_below(self, sn: int) -> None:
        """``sn`` is the next sequence number expected."""
        for edges in (self._ends, self._starts):
            for edge in [edge for edge in edges if edge < sn]:
                del edges[edge]

    def missing(self, expected: int, ranges: Iterable[tuple[int, int]]) -> SequenceNumberSet | None:
        """The set of an ACKNACK_BATCH that requests the samples of ``ranges``; None if none can express that."""
        base = self._ends.get(expected)
        numbers: list[int] = []
        for first, last in ranges:
            start = self._ends.get(first, self._starts.get(first))
            stop = self._starts.get(last + 1)
            if base is None:
                base = self._starts.get(expected)
            if base is None or start is None or stop is None or not base <= start < stop:
                return None
            end = base + NUMBER_SET_BITS
            if start >= end and not numbers:
                return (
                    None  # behind samples that are held unacknowledged: only a sequence number can skip these
                )
            numbers.extend(range(min(start, end), min(stop, end)))
        return None if base is None else SequenceNumberSet.from_numbers(base, numbers)

    @staticmethod
    def _note(edges: dict[int, int], sn: int, batch_sn: int) -> None:
        if len(edges) >= REORDER_RUNS_MAX:
            edges.clear()
        if batch_sn <= SEQUENCE_NUMBER_MAX:
            edges[sn] = batch_sn
