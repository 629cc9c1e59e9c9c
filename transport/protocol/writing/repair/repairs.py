"""What a writer sends again: samples, fragments, and GAPs for what is no more (RTPS 2.5 §8.4.9.2).

Invariant: one answer stays within the policy's max_bytes_per_nack_response but for its first sample, a datagram
of it within max_samples_per_repair; what goes to one reader within repair_suppression stays within
max_repair_bytes, and nothing goes to it twice (:mod:`..readers.reader_repairs`); what went to it before goes again as
far as :mod:`..readers.repeated_repairs` lets it. A reader that still lacks something asks again.
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

#: What a GAP is counted as.
GAP_BYTES: Final = 32


class Repairs:
    """The repairs of one writer; ``budget`` is the size of its largest DATA submessage."""

    def __init__(self, state: WriterState, history: WriterHistory, *, budget: int) -> None:
        self._state = state
        self._history = history
        self._budget = budget

    def answer_requests(self, proxy: ReaderProxy, now: int) -> RepairDatagrams:
        """What the reader has asked for again, and GAPs for what is no more (RTPS 2.5 §8.4.9.2.6 ff.)."""
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
        #: The form in which the reader is sent batches.
        self.form = proxy.form
        self.reader_id = proxy.guid.entity
        #: Bytes of submessages that a datagram holds which the reader takes.
        self.fits = message_size - DATAGRAM_ROOM
        self._state = state
        self._policy = state.policy
        self._counters = state.counters
        self._history = history
        self._proxy = proxy
        self._now = now
        self._budget = budget
        #: Bytes of samples and fragments.
        self._repaired = 0
        #: Samples in the last datagram.
        self._samples = 0

    # --- samples ---------------------------------------------------------------------------------

    def resend_samples(self, requested: Requested) -> None:
        """Add what is requested, as far as the bounds let it."""
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
        """Send first..last; returns the last number dealt with: less than ``last`` where bounds were reached.

        ``at_end``: the request fills its bitmap, so the reader could not ask for more. The rest of
        the last block follows, and as much of the history before a late joiner's time as the bounds allow.
        """
        repairs, history = self._proxy.repairs, self._history
        sn, asked = first, last
        while sn <= last:
            change = history.find_change(sn)
            if change is None or change.first_sn > sn:
                # No further than what was sent: a reader that passes more acknowledges more, which is not believed.
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
                    continue  # it went with its batch
                if not change.content.resend(self, a, b, change.timestamp):
                    return a - 1
            sn = stop + 1
        return sn - 1

    def _allowed(self, ranges: list[tuple[int, int]], *, of: int = 0) -> list[tuple[int, int]]:
        """What of these ranges was not sent to the reader too often."""
        repeated = self._proxy.repairs.repeated
        allowed = [each for first, last in ranges for each in repeated.allowed(first, last, of=of)]
        self._counters.repetitions_bounded += allowed != ranges
        return allowed

    def resend_batch(self, data: Buffer, timestamp: int, first_sn: int, last_sn: int) -> None:
        """Add the whole batch of first_sn..last_sn."""
        self._add_samples(data, timestamp, 1)
        self._note_samples(first_sn, last_sn, len(data))

    def resend_block(self, block: DataBlock, timestamp: int, first: int, last: int) -> bool:
        """Add first..last as DATA; False where bounds were reached before ``last``."""
        fits = self.fits
        while first <= last:
            if block.end_of(first) - block.end_of(first - 1) > fits:
                if not self.resend_large(LargeSample.of_block(block, first, fits), timestamp, first):
                    return False
                first += 1
                continue
            room = min(self._left, self._budget, fits)
            stop = min(block.fitting(first, room), first + self._free - 1, last)
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
        """first..last was sent again."""
        proxy, counters = self._proxy, self._counters
        proxy.sent_again(first, last, nbytes, self._now)
        proxy.repairs.history_sent = max(proxy.repairs.history_sent, last)
        counters.repaired_samples += last - first + 1
        counters.repaired_bytes += nbytes

    @property
    def _free(self) -> int:
        """Samples that the last datagram takes, or the next one if it is full."""
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
        """Add fragments of one sample; a GAP if it is no more."""
        if sn > self._state.sent_sn:
            return  # it waits to be sent, or is claimed: what lies in the log there nobody has written yet
        change = self._history.find_change(sn)
        if sn < self._proxy.first_relevant:
            self._announce_not_for_it(sn, sn)
        elif change is None or change.first_sn > sn:
            self._announce_gone(sn, sn)
        elif (found := change.content.in_fragments(sn, change.timestamp, self.fits)) is not None:
            for first, last in fragments:
                self._resend_range(*found, sn, first, last)

    def resend_large(self, large: LargeSample, timestamp: int, sn: int) -> bool:
        """Add the fragments of one sample; False where bounds were reached before the last one."""
        # A reader that asks for the whole sample, and not by NACK_FRAG, is sent what the bounds kept back before.
        repairs = self._proxy.repairs
        begun, start = repairs.fragment_cursor
        start = start if begun == sn and start <= large.fragments else 1
        after = self._resend_range(large, timestamp, sn, start, large.fragments)
        repairs.fragment_cursor = (sn, after)
        if after > large.fragments:
            self._proxy.sent_again(sn, sn, 0, self._now)
        return after > large.fragments

    def _resend_range(self, large: LargeSample, timestamp: int, sn: int, first: int, last: int) -> int:
        """Send fragments first..last of a large sample; returns the one to go on with."""
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

    # --- what is no more -------------------------------------------------------------------------

    def _announce_gone(self, first: int, last: int) -> None:
        """first..last are no more. What the writer gave up before the reader had it is lost, and no GAP makes it
        irrelevant: the HEARTBEAT behind the answer announces where the history begins."""
        lost_before = self._history.lost_before
        if first < lost_before:
            self._proxy.repairs.wants_heartbeat = True
            first = lost_before
        if first <= last:
            self.announce_gap(first, last)

    def _announce_not_for_it(self, first: int, last: int) -> None:
        """first..last are below what is relevant to the reader: written before its match, before it was dropped, or to
        another reader alone."""
        if first <= self._proxy.joined_sn or self._proxy.rejoins_at:
            # No GAP: a reader that goes on where an earlier life of it ended has lost them. The HEARTBEAT behind the
            # answer tells it so, and any other reader where it begins.
            self._proxy.repairs.wants_heartbeat = True
        else:
            self.announce_gap(first, last)

    def announce_gap(self, first: int, last: int) -> None:
        """Announce to the reader that first..last will never come."""
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
        """Whether the answer may hold that many bytes more, or one sample whatever its size."""
        return nbytes <= self._left or self._may_begin

    @property
    def _left(self) -> int:
        """How many more bytes of samples the answer may hold."""
        proxy, recent = self._proxy, self._proxy.repairs.recent
        most = self._policy.max_bytes_per_nack_response
        if proxy.info.status_messages and not proxy.receiver.presumed:
            most = min(most, proxy.receiver.window)
        room = min(most - self._repaired, self._policy.max_repair_bytes - recent.nbytes)
        return 0 if recent.is_full else max(room, 0)

    @property
    def _may_begin(self) -> bool:
        """Whether the answer may hold one sample, whatever its size."""
        recent = self._proxy.repairs.recent
        used_up = recent.is_full or recent.nbytes >= self._policy.max_repair_bytes
        return not self._repaired and not used_up
