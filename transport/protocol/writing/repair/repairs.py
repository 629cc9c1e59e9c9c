"""What a writer sends again: samples, fragments, and GAPs for what is no more (RTPS 2.5 §8.4.9.2).

Invariant: one answer stays within the policy's max_bytes_per_nack_response but for its first sample, a datagram
of it within max_samples_per_repair; what goes to one reader within repair_suppression stays within
max_repair_bytes, and nothing goes to it twice (:mod:`..readers.reader_repairs`); what went to it before goes again as
far as :mod:`..readers.repeated_repairs` lets it. A reader that still lacks something asks again.
"""

from __future__ import annotations

from typing import Final

from ....structure import PREFIX_UNKNOWN
from ....value_classes import slotted
from ....wire.fragment_train import FragmentTrain
from ....wire.framing import DataBlock, MessageBlock
from ....wire.numbers import SequenceNumberSet
from ....wire.submessages import Gap
from ...intervals import IntervalSet
from ...outgoing import DATAGRAM_ROOM, HEARTBEAT_ROOM, Buffer, Packer
from ..changes import DATA, BatchContent, BatchTrainContent, Change, LargeSample, addressed_to
from ..publication import WriterHistory
from ..readers import ReaderProxy, Requested
from ..state import WriterState

#: What a GAP is counted as.
GAP_BYTES: Final = 32


@slotted
class Answer(Packer):
    """The datagrams of one answer."""

    samples_max: int = 0
    #: Bytes of samples and fragments.
    repaired: int = 0
    #: Samples in the last datagram.
    _samples: int = 0

    @property
    def free(self) -> int:
        """Samples that the last datagram takes, or the next one if it is full."""
        return max(self.samples_max - self._samples, 0) or self.samples_max

    def add_samples(self, data: Buffer, timestamp: int, count: int) -> None:
        if self._samples + count > self.samples_max:
            self.begin_datagram()
        datagrams = len(self.packed)
        self.add_repair(data, timestamp)
        self._samples = count if len(self.packed) > datagrams else self._samples + count

    def add_repair(self, data: Buffer, timestamp: int, payload: Buffer | None = None) -> None:
        before = self.nbytes
        self.add(data, timestamp, payload=payload, reserve=HEARTBEAT_ROOM)
        self.repaired += self.nbytes - before


class Repairs:
    """The repairs of one writer; ``budget`` is the size of its largest DATA submessage."""

    def __init__(
        self,
        state: WriterState,
        history: WriterHistory,
        *,
        budget: int,
    ) -> None:
        self._state = state
        self._policy = state.policy
        self._counters = state.counters
        self._writer_id = state.guid.entity
        self._history = history
        self._budget = budget

    def answer(self, proxy: ReaderProxy, now: int) -> Answer:
        """What the reader has asked for again, and GAPs for what is no more (RTPS 2.5 §8.4.9.2.6 ff.)."""
        requested = proxy.repairs.take()
        proxy.repairs.recent.forget(now - self._policy.repair_suppression)
        proxy.repairs.repeated.update(
            acked=proxy.acked,
            written=self._counters.written_bytes,
            balance_max=self._policy.max_repair_bytes,
            now=now,
        )
        answer = Answer(
            min(self._state.message_size, proxy.info.message_size_max),
            proxy.info.destinations,
            None if proxy.guid.prefix == PREFIX_UNKNOWN else proxy.guid.prefix,
            samples_max=self._policy.max_samples_per_repair,
        )
        self._send_samples(answer, proxy, requested, now)
        for sn, fragments in requested.fragments.items():
            self._send_fragments(answer, proxy, sn, fragments, now)
        return answer

    # --- samples ---------------------------------------------------------------------------------

    def _send_samples(self, answer: Answer, proxy: ReaderProxy, requested: Requested, now: int) -> None:
        done = 0
        for first, last in requested.samples:
            first, last = max(first, done + 1), min(last, self._state.sent_sn)
            if first < proxy.first_relevant:
                if not proxy.rejoins_at:  # else it is lost, as the HEARTBEAT behind the answer announces
                    self._gap(answer, proxy, first, proxy.first_relevant - 1)
                first = proxy.first_relevant
            done = self._resend(answer, proxy, first, last, now, at_end=last == requested.full_at)
            if done < last:
                self._counters.repairs_bounded += 1
                break

    def _resend(
        self, answer: Answer, proxy: ReaderProxy, first: int, last: int, now: int, *, at_end: bool
    ) -> int:
        """Send first..last; returns the last number dealt with: less than ``last`` where bounds were reached.

        ``at_end``: the request fills its bitmap, so the reader could not ask for more. The rest of
        the last block follows, and as much of the history before a late joiner's time as the bounds allow.
        """
        sn, asked = first, last
        while sn <= last:
            change = self._history.find(sn)
            if change is None or change.first_sn > sn:
                # No further than what was sent: a reader that passes more acknowledges more, which is not believed.
                next_sn = self._state.sent_sn + 1
                if change is not None:
                    next_sn = min(next_sn, change.first_sn)
                self._gone(answer, proxy, sn, next_sn - 1)
                sn = next_sn
                continue
            if at_end and change.last_sn >= last:
                last = change.last_sn
                following = self._history.find(last + 1)
                if (
                    following is not None
                    and last >= proxy.repairs.history_sent
                    and following.last_sn <= proxy.joined_sn
                ):
                    last = following.last_sn
            stop = min(change.last_sn, last)
            unsent = proxy.repairs.recent.unsent(sn, stop)
            if sn <= asked:
                due = sum(min(b, asked) - a + 1 for a, b in unsent if a <= asked)
                self._counters.repairs_suppressed += min(stop, asked) - sn + 1 - due
            for a, b in self._allowed(proxy, unsent):
                if not proxy.repairs.recent.unsent(a, b):
                    continue  # it went with its batch
                if not self._resend_change(answer, proxy, change, a, b, now):
                    return a - 1
            sn = stop + 1
        return sn - 1

    def _allowed(
        self, proxy: ReaderProxy, ranges: list[tuple[int, int]], *, of: int = 0
    ) -> list[tuple[int, int]]:
        """What of these ranges was not sent to the reader too often."""
        repeated = proxy.repairs.repeated
        allowed = [each for first, last in ranges for each in repeated.allowed(first, last, of=of)]
        self._counters.repetitions_bounded += allowed != ranges
        return allowed

    def _note(self, proxy: ReaderProxy, first: int, last: int, nbytes: int, now: int, *, of: int = 0) -> None:
        """first..last was sent again."""
        proxy.sent_again(first, last, nbytes, now, of=of)

    def _resend_change(
        self, answer: Answer, proxy: ReaderProxy, change: Change, first: int, last: int, now: int
    ) -> bool:
        content = change.content
        if isinstance(content, LargeSample | FragmentTrain):
            fits = self._fits(proxy)
            return all(
                self._resend_large(answer, proxy, _large(content, sn, fits), change.timestamp, sn, now)
                for sn in range(first, last + 1)
            )
        if isinstance(content, BatchContent):
            return self._resend_batch(answer, proxy, change, content, first, last, now)
        if isinstance(content, BatchTrainContent):
            batches = change.batches_of(content, first, last)
            return all(self._resend_change(answer, proxy, batch, first, last, now) for batch in batches)
        if isinstance(content, MessageBlock):
            return all(
                self._resend_block(
                    answer,
                    proxy,
                    block,
                    change.timestamp,
                    max(first, block.first_sn),
                    min(last, block.last_sn),
                    now,
                )
                for block in content.blocks(first, last)
            )
        return self._resend_block(answer, proxy, content, change.timestamp, first, last, now)

    def _resend_batch(
        self,
        answer: Answer,
        proxy: ReaderProxy,
        change: Change,
        content: BatchContent,
        first: int,
        last: int,
        now: int,
    ) -> bool:
        """Send the whole batch to a reader that reads batches of its size, else the samples that are asked for."""
        if proxy.form != DATA and content.nbytes <= self._fits(proxy):
            if content.nbytes > self._room(answer, proxy) and not self._may_begin(answer, proxy):
                return False
            data = content.encoded(proxy.form, proxy.guid.entity)
            answer.add_samples(data, change.timestamp, 1)
            self._note(proxy, change.first_sn, change.last_sn, len(data), now)
            proxy.repairs.history_sent = max(proxy.repairs.history_sent, change.last_sn)
            self._counters.repaired_samples += change.count
            self._counters.repaired_bytes += len(data)
            return True
        for stretch in content.stretches():
            a, b = max(first, stretch.first), min(last, stretch.last)
            if a > b:
                continue
            if stretch.block is None:
                self._gap(answer, proxy, a, b)
            elif not self._resend_block(answer, proxy, stretch.block, stretch.timestamp, a, b, now):
                return False
        return True

    def _resend_block(
        self,
        answer: Answer,
        proxy: ReaderProxy,
        content: DataBlock,
        timestamp: int,
        first: int,
        last: int,
        now: int,
    ) -> bool:
        fits = self._fits(proxy)
        while first <= last:
            if content.end_of(first) - content.end_of(first - 1) > fits:
                large = LargeSample.of_block(content, first, fits)
                if not self._resend_large(answer, proxy, large, timestamp, first, now):
                    return False
                first += 1
                continue
            room = min(self._room(answer, proxy), self._budget, fits)
            stop = min(content.fitting(first, room), first + answer.free - 1, last)
            if stop < first:
                if not self._may_begin(answer, proxy):
                    return False
                stop = first
            data = addressed_to(proxy.guid.entity, content, first, stop)
            answer.add_samples(data, timestamp, stop - first + 1)
            self._note(proxy, first, stop, len(data), now)
            proxy.repairs.history_sent = max(proxy.repairs.history_sent, stop)
            self._counters.repaired_samples += stop - first + 1
            self._counters.repaired_bytes += len(data)
            first = stop + 1
        return True

    # --- fragments -------------------------------------------------------------------------------

    def _send_fragments(
        self, answer: Answer, proxy: ReaderProxy, sn: int, fragments: IntervalSet, now: int
    ) -> None:
        """Send fragments of one sample again; GAP if it is no more."""
        if sn > self._state.sent_sn:
            return  # it waits to be sent, or is claimed: what lies in the log there nobody has written yet
        change = self._history.find(sn)
        if sn < proxy.first_relevant:
            if not proxy.rejoins_at:  # else it is lost, as for whole samples
                self._gap(answer, proxy, sn, sn)
        elif change is None or change.first_sn > sn:
            self._gone(answer, proxy, sn, sn)
        elif (found := self._in_fragments(proxy, change, sn)) is not None:
            large, timestamp = found
            for first, last in fragments:
                self._resend_fragments(answer, proxy, large, timestamp, sn, first, last, now)

    def _in_fragments(self, proxy: ReaderProxy, change: Change, sn: int) -> tuple[LargeSample, int] | None:
        """A sample that goes to that reader in fragments, with its timestamp."""
        fits, content, timestamp = self._fits(proxy), change.content, change.timestamp
        if isinstance(content, LargeSample | FragmentTrain):
            return _large(content, sn, fits), timestamp
        if isinstance(content, BatchTrainContent):
            content = content.batch(content.train.index(sn))
        if isinstance(content, BatchContent):
            stretch = next(each for each in content.stretches() if each.last >= sn)
            if stretch.block is None:
                return None
            content, timestamp = stretch.block, stretch.timestamp
        if isinstance(content, MessageBlock):
            content = next(content.blocks(sn, sn))
        if content.end_of(sn) - content.end_of(sn - 1) <= fits:
            return None
        return LargeSample.of_block(content, sn, fits), timestamp

    def _resend_large(
        self, answer: Answer, proxy: ReaderProxy, large: LargeSample, timestamp: int, sn: int, now: int
    ) -> bool:
        # A reader that asks for the whole sample, and not by NACK_FRAG, is sent what the bounds kept back before.
        begun, start = proxy.repairs.fragment_cursor
        start = start if begun == sn and start <= large.fragments else 1
        after = self._resend_fragments(answer, proxy, large, timestamp, sn, start, large.fragments, now)
        proxy.repairs.fragment_cursor = (sn, after)
        if after > large.fragments:
            self._note(proxy, sn, sn, 0, now)
        return after > large.fragments

    def _resend_fragments(
        self,
        answer: Answer,
        proxy: ReaderProxy,
        large: LargeSample,
        timestamp: int,
        sn: int,
        first: int,
        last: int,
        now: int,
    ) -> int:
        """Send fragments first..last of a large sample; returns the one to go on with."""
        last = min(last, large.fragments)
        reader_id = proxy.guid.entity
        unsent = proxy.repairs.recent.unsent(first, last, of=sn)
        self._counters.repairs_suppressed += max(last - first + 1, 0) - sum(b - a + 1 for a, b in unsent)
        for a, b in self._allowed(proxy, unsent, of=sn):
            for number, (head, piece) in enumerate(large.encode(self._writer_id, sn, a, b, reader_id), a):
                nbytes = len(head) + len(piece)
                if self._room(answer, proxy) < nbytes and not self._may_begin(answer, proxy):
                    self._counters.repairs_bounded += 1
                    return number
                answer.add_repair(head, timestamp, piece)
                self._note(proxy, number, number, nbytes, now, of=sn)
                self._counters.repaired_fragments += 1
                self._counters.repaired_bytes += nbytes
        return last + 1

    # --- both ------------------------------------------------------------------------------------

    def _gone(self, answer: Answer, proxy: ReaderProxy, first: int, last: int) -> None:
        """first..last are no more. What the writer gave up before the reader had it is lost, and no GAP makes it
        irrelevant: the HEARTBEAT behind the answer announces where the history begins."""
        lost_before = self._history.lost_before
        if first < lost_before:
            proxy.repairs.wants_heartbeat = True
            first = lost_before
        if first <= last:
            self._gap(answer, proxy, first, last)

    def _gap(self, answer: Answer, proxy: ReaderProxy, first: int, last: int) -> None:
        """Announce to one reader that first..last will never come."""
        if not proxy.repairs.repeated.allowed(first, first):
            self._counters.repetitions_bounded += 1
            return
        proxy.sent_gap(first, last, GAP_BYTES)
        first = self._history.start_of_gap(first)
        gap = Gap(proxy.guid.entity, self._writer_id, first, SequenceNumberSet(last + 1))
        answer.add(gap.encode(), reserve=HEARTBEAT_ROOM)
        self._counters.gaps_sent += 1

    def _fits(self, proxy: ReaderProxy) -> int:
        """How many bytes of submessages a datagram holds that the reader takes."""
        return min(self._state.message_size, proxy.info.message_size_max) - DATAGRAM_ROOM

    def _room(self, answer: Answer, proxy: ReaderProxy) -> int:
        """How many more bytes of samples the answer may hold."""
        most = self._policy.max_bytes_per_nack_response
        if proxy.info.status_messages and not proxy.receiver.presumed:
            most = min(most, proxy.receiver.window)
        room = min(most - answer.repaired, self._policy.max_repair_bytes - proxy.repairs.recent.nbytes)
        return 0 if proxy.repairs.recent.is_full else max(room, 0)

    def _may_begin(self, answer: Answer, proxy: ReaderProxy) -> bool:
        """Whether the answer may hold one sample, whatever its size."""
        used_up = proxy.repairs.recent.is_full or proxy.repairs.recent.nbytes >= self._policy.max_repair_bytes
        return not answer.repaired and not used_up


def _large(content: LargeSample | FragmentTrain, sn: int, budget: int) -> LargeSample:
    """One large sample, in fragments that fit ``budget`` bytes."""
    sample = content if isinstance(content, LargeSample) else LargeSample.of_train(content, sn)
    return sample.fitting(budget)
