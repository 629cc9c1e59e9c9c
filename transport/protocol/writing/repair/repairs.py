"""Repairs of a writer: samples, fragments, and GAPs for samples that no longer exist (RTPS 2.5 §8.4.9.2).

Invariants:
* one answer stays within the policy's max_bytes_per_nack_response, except for its first sample; each of its datagrams
  stays within max_samples_per_repair;
* within repair_suppression, repairs to one reader stay within max_repair_bytes, and none is sent to it twice
  (:mod:`..readers.reader_repairs`);
* :mod:`..readers.repeated_repairs` bounds repairs of what was sent to the reader before.

A reader that still lacks something requests it again.
"""

from __future__ import annotations

from typing import Final

from ....structure import PREFIX_UNKNOWN
from ....wire.framing import DataBlock
from ....wire.numbers import SequenceNumberSet
from ....wire.submessages import Gap
from ...intervals import IntervalSet
from ...outgoing import DATAGRAM_ROOM, HEARTBEAT_ROOM, Buffer, Packer
from ..changes import LargeSample, addressed_to
from ..publication import WriterHistory
from ..readers import ReaderProxy, Requested
from ..state import WriterState

#: The bytes that a GAP is counted as.
GAP_BYTES: Final = 32


class Repairs:
    """Builds the repairs of one writer; ``budget`` is the size of its largest DATA submessage."""

    def __init__(self, state: WriterState, history: WriterHistory, *, budget: int) -> None:
        self._state = state
        self._history = history
        self._budget = budget

    def answer_requests(self, proxy: ReaderProxy, now: int) -> RepairDatagrams:
        """The repairs that a reader requests, and GAPs for what no longer exists (RTPS 2.5 §8.4.9.2.6 ff.)."""
        policy = self._state.policy
        requested = proxy.repairs.take_requests()
        proxy.repairs.recent.forget_before(now - policy.repair_suppression)
        proxy.repairs.repeated.update(
            acked=proxy.acked,
            written=self._state.counters.written_bytes,
            balance_max=policy.max_repair_bytes,
            now=now,
        )
        answer = RepairDatagrams(self._state, self._history, proxy, now, budget=self._budget)
        answer.resend_samples(requested)
        for sn, fragments in requested.fragments.items():
            answer.resend_fragments(sn, fragments)
        return answer


class RepairDatagrams(Packer):
    """The datagrams of one answer to one reader, or to the readers of a group."""

    __slots__ = (
        "_budget",
        "_counters",
        "_history",
        "_now",
        "_policy",
        "_proxy",
        "_repaired",
        "_samples",
        "_state",
        "fits",
        "form",
        "reader_id",
    )

    def __init__(
        self, state: WriterState, history: WriterHistory, proxy: ReaderProxy, now: int, *, budget: int
    ) -> None:
        message_size = min(state.message_size, proxy.info.message_size_max)
        prefix = proxy.guid.prefix
        Packer.__init__(
            self, message_size, proxy.info.destinations, None if prefix == PREFIX_UNKNOWN else prefix
        )
        #: The form in which the reader gets batches.
        self.form = proxy.form
        self.reader_id = proxy.guid.entity
        #: Bytes of submessages in a datagram of the size that the reader accepts.
        self.fits = message_size - DATAGRAM_ROOM
        self._state = state
        self._policy = state.policy
        self._counters = state.counters
        self._history = history
        self._proxy = proxy
        self._now = now
        self._budget = budget
        #: Bytes of samples and fragments in the answer.
        self._repaired = 0
        #: Samples in the last datagram.
        self._samples = 0

    # --- samples ---------------------------------------------------------------------------------

    def resend_samples(self, requested: Requested) -> None:
        """Add the requested samples up to the bounds."""
        proxy, done = self._proxy, 0
        for first, last in requested.samples:
            first, last = max(first, done + 1), min(last, self._state.sent_sn)
            if first < proxy.first_relevant:
                self._announce_not_for_it(first, proxy.first_relevant - 1)
                first = proxy.first_relevant
            done = self._resend(first, last, at_end=last == requested.full_at)
            if done < last:
                self._counters.repairs_bounded += 1
                break

    def _resend(self, first: int, last: int, *, at_end: bool) -> int:
        """Send first..last; returns the last number that was handled: less than ``last`` if the bounds were reached.

        ``at_end``: the request reaches the end of its bitmap, so the reader could not request more. Then the rest of
        the last block follows, and as much of the history before a late joiner's match as the bounds allow.
        """
        repairs, history = self._proxy.repairs, self._history
        sn, asked = first, last
        while sn <= last:
            change = history.find_change(sn)
            if change is None or change.first_sn > sn:
                # Not beyond sent_sn: a reader that skips more would acknowledge unsent numbers, which is refused.
                next_sn = self._state.sent_sn + 1
                if change is not None:
                    next_sn = min(next_sn, change.first_sn)
                self._announce_gone(sn, next_sn - 1)
                sn = next_sn
                continue
            if at_end and change.last_sn >= last:
                last = change.last_sn
                following = history.find_change(last + 1)
                if (
                    following is not None
                    and last >= repairs.history_sent
                    and following.last_sn <= self._proxy.joined_sn
                ):
                    last = following.last_sn
            stop = min(change.last_sn, last)
            unsent = repairs.recent.unsent(sn, stop)
            if sn <= asked:
                due = sum(min(b, asked) - a + 1 for a, b in unsent if a <= asked)
                self._counters.repairs_suppressed += min(stop, asked) - sn + 1 - due
            for a, b in self._allowed(unsent):
                if not repairs.recent.unsent(a, b):
                    continue  # its batch was sent just now
                if not change.content.resend(self, a, b, change.timestamp):
                    return a - 1
            sn = stop + 1
        return sn - 1

    def _allowed(self, ranges: list[tuple[int, int]], *, of: int = 0) -> list[tuple[int, int]]:
        """The parts of these ranges that were not repaired to the reader too often."""
        repeated = self._proxy.repairs.repeated
        allowed = [each for first, last in ranges for each in repeated.allowed(first, last, of=of)]
        self._counters.repetitions_bounded += allowed != ranges
        return allowed

    def resend_batch(self, data: Buffer, timestamp: int, first_sn: int, last_sn: int) -> None:
        """Add the whole batch of first_sn..last_sn."""
        self._add_samples(data, timestamp, 1)
        self._note_samples(first_sn, last_sn, len(data))

    def resend_block(self, block: DataBlock, timestamp: int, first: int, last: int) -> bool:
        """Add first..last as DATA; returns False if the bounds were reached before ``last``."""
        fits = self.fits
        while first <= last:
            if block.end_of(first) - block.end_of(first - 1) > fits:
                if not self.resend_large(LargeSample.of_block(block, first, fits), timestamp, first):
                    return False
                first += 1
                continue
            capacity = min(self._left, self._budget, fits)
            stop = min(block.fitting(first, capacity), first + self._free - 1, last)
            if stop < first:
                if not self._may_begin:
                    return False
                stop = first
            data = addressed_to(self.reader_id, block, first, stop)
            self._add_samples(data, timestamp, stop - first + 1)
            self._note_samples(first, stop, len(data))
            first = stop + 1
        return True

    def _note_samples(self, first: int, last: int, nbytes: int) -> None:
        """Count a repair of first..last."""
        proxy, counters = self._proxy, self._counters
        proxy.sent_again(first, last, nbytes, self._now)
        proxy.repairs.history_sent = max(proxy.repairs.history_sent, last)
        counters.repaired_samples += last - first + 1
        counters.repaired_bytes += nbytes

    @property
    def _free(self) -> int:
        """Samples that the last datagram can still hold, or the next one if it is full."""
        most = self._policy.max_samples_per_repair
        return max(most - self._samples, 0) or most

    def _add_samples(self, data: Buffer, timestamp: int, count: int) -> None:
        if self._samples + count > self._policy.max_samples_per_repair:
            self.begin_datagram()
        datagrams = len(self.packed)
        self._add_repair(data, timestamp)
        self._samples = count if len(self.packed) > datagrams else self._samples + count

    def _add_repair(self, data: Buffer, timestamp: int, payload: Buffer | None = None) -> None:
        before = self.nbytes
        self.add_submessage(data, timestamp, payload=payload, reserve=HEARTBEAT_ROOM)
        self._repaired += self.nbytes - before

    # --- fragments -------------------------------------------------------------------------------

    def resend_fragments(self, sn: int, fragments: IntervalSet) -> None:
        """Add fragments of one sample; a GAP if the sample no longer exists."""
        if sn > self._state.sent_sn:
            return  # it waits to be sent, or is claimed: its bytes in the log may not be written yet
        change = self._history.find_change(sn)
        if sn < self._proxy.first_relevant:
            self._announce_not_for_it(sn, sn)
        elif change is None or change.first_sn > sn:
            self._announce_gone(sn, sn)
        elif (found := change.content.in_fragments(sn, change.timestamp, self.fits)) is not None:
            for first, last in fragments:
                self._resend_range(*found, sn, first, last)

    def resend_large(self, large: LargeSample, timestamp: int, sn: int) -> bool:
        """Add the fragments of one sample; returns False if the bounds were reached before the last one."""
        # A reader that requests the whole sample, and not by NACK_FRAG, gets the fragments where the last answer ended.
        repairs = self._proxy.repairs
        begun, start = repairs.fragment_cursor
        start = start if begun == sn and start <= large.fragments else 1
        after = self._resend_range(large, timestamp, sn, start, large.fragments)
        repairs.fragment_cursor = (sn, after)
        if after > large.fragments:
            self._proxy.sent_again(sn, sn, 0, self._now)
        return after > large.fragments

    def _resend_range(self, large: LargeSample, timestamp: int, sn: int, first: int, last: int) -> int:
        """Send fragments first..last of a large sample; returns the one to continue with."""
        proxy, counters = self._proxy, self._counters
        last = min(last, large.fragments)
        unsent = proxy.repairs.recent.unsent(first, last, of=sn)
        counters.repairs_suppressed += max(last - first + 1, 0) - sum(b - a + 1 for a, b in unsent)
        for a, b in self._allowed(unsent, of=sn):
            encoded = large.encode_fragments(self._state.guid.entity, sn, a, b, self.reader_id)
            for number, (head, piece) in enumerate(encoded, a):
                nbytes = len(head) + len(piece)
                if not self.may_add(nbytes):
                    counters.repairs_bounded += 1
                    return number
                self._add_repair(head, timestamp, piece)
                proxy.sent_again(number, number, nbytes, self._now, of=sn)
                counters.repaired_fragments += 1
                counters.repaired_bytes += nbytes
        return last + 1

    # --- numbers without a sample ----------------------------------------------------------------

    def _announce_gone(self, first: int, last: int) -> None:
        """Announce that first..last no longer exist.

        Samples that the writer gave up before the reader had them are lost, and no GAP may make them irrelevant: the
        HEARTBEAT behind the answer announces where the history begins.
        """
        lost_before = self._history.lost_before
        if first < lost_before:
            self._proxy.repairs.wants_heartbeat = True
            first = lost_before
        if first <= last:
            self.announce_gap(first, last)

    def _announce_not_for_it(self, first: int, last: int) -> None:
        """Announce that first..last are irrelevant to the reader: they were written before it matched, before it was
        dropped, or for another reader alone."""
        if first <= self._proxy.joined_sn or self._proxy.rejoins_at:
            # No GAP: a reader that continues an earlier life of it has lost these samples. The HEARTBEAT behind the
            # answer announces that, and announces to any other reader where it begins.
            self._proxy.repairs.wants_heartbeat = True
        else:
            self.announce_gap(first, last)

    def announce_gap(self, first: int, last: int) -> None:
        """Announce to the reader, by a GAP, that first..last will never come."""
        if not self._proxy.repairs.repeated.allowed(first, first):
            self._counters.repetitions_bounded += 1
            return
        self._proxy.sent_gap(first, last, GAP_BYTES)
        first = self._history.skipped.start_of_gap(first)
        gap = Gap(self.reader_id, self._state.guid.entity, first, SequenceNumberSet(last + 1))
        self.add_submessage(gap.encode(), reserve=HEARTBEAT_ROOM)
        self._counters.gaps_sent += 1

    # --- bounds ----------------------------------------------------------------------------------

    def may_add(self, nbytes: int) -> bool:
        """Whether the answer may hold that many bytes more, or one sample of any size."""
        return nbytes <= self._left or self._may_begin

    @property
    def _left(self) -> int:
        """How many more bytes of samples the answer may hold."""
        proxy, recent = self._proxy, self._proxy.repairs.recent
        most = self._policy.max_bytes_per_nack_response
        if proxy.info.status_messages and not proxy.receiver.presumed:
            most = min(most, proxy.receiver.window)
        left = min(most - self._repaired, self._policy.max_repair_bytes - recent.nbytes)
        return 0 if recent.is_full else max(left, 0)

    @property
    def _may_begin(self) -> bool:
        """Whether the answer may hold one sample of any size."""
        recent = self._proxy.repairs.recent
        used_up = recent.is_full or recent.nbytes >= self._policy.max_repair_bytes
        return not self._repaired and not used_up
