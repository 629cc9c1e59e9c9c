"""What a writer sends again: samples, fragments, and GAPs for what is no more (RTPS 2.5 §8.4.9.2).

Invariant: one response stays within the policy's max_bytes_per_nack_response, one turn to one reader within
max_repair_bytes, and nothing is sent twice to a reader within a turn (:mod:`.reader_proxy`); a reader that
still lacks something asks again.
"""

from __future__ import annotations

from ..structure import ENTITYID_UNKNOWN
from ..wire.numbers import FragmentNumberSet, SequenceNumberSet
from ..wire.submessages import Gap
from .history import Change, LargeSample, WriterHistory, addressed_to
from .outgoing import HEARTBEAT_ROOM, Buffer, Packer
from .policies import WriterCounters, WriterPolicy
from .reader_proxy import ReaderProxy


class Repairs:
    """The repairs of one writer; ``budget`` is the size of its largest DATA submessage."""

    def __init__(
        self,
        writer_id: bytes,
        history: WriterHistory,
        policy: WriterPolicy,
        counters: WriterCounters,
        budget: int,
    ) -> None:
        self.policy = policy
        self.counters = counters
        self._writer_id = writer_id
        self._history = history
        self._budget = budget

    def send(self, packer: Packer, proxy: ReaderProxy, missing: SequenceNumberSet, now: int) -> None:
        """Send again what is requested; GAP for what is no more (RTPS 2.5 §8.4.9.2.6 ff.)."""
        proxy.begin_repair(now, self.policy.nack_suppression)
        done = 0
        for first, last in missing.ranges():
            first, last = max(first, done + 1), min(last, self._history.last_sn)
            if first < proxy.first_relevant:
                self._gap(packer, proxy, first, proxy.first_relevant - 1)
                first = proxy.first_relevant
            done = self._resend(packer, proxy, first, last, at_end=last == missing.base + 255)
            if done < last:
                self.counters.repairs_bounded += 1
                break

    def _resend(self, packer: Packer, proxy: ReaderProxy, first: int, last: int, *, at_end: bool) -> int:
        """Send first..last; returns the last number dealt with: less than ``last`` where bounds were reached.

        ``at_end``: the request fills its bitmap, so the reader could not say that it lacks more. The rest of
        the last block follows, and as much of the history before a late joiner's time as the bounds allow.
        """
        sn = first
        while sn <= last:
            change = self._history.find(sn)
            if change is None or change.first_sn > sn:
                next_sn = self._history.last_sn + 1 if change is None else change.first_sn
                self._gap(packer, proxy, sn, next_sn - 1)
                sn = next_sn
                continue
            if at_end and change.last_sn >= last:
                last = change.last_sn
                following = self._history.find(last + 1)
                if following is not None and following.last_sn <= proxy.joined_sn:
                    last = following.last_sn
            stop = min(change.last_sn, last)
            for a, b in proxy.unsent(sn, stop):
                if not self._resend_change(packer, proxy, change, a, b):
                    return a - 1
            sn = stop + 1
        return sn - 1

    def _resend_change(
        self, packer: Packer, proxy: ReaderProxy, change: Change, first: int, last: int
    ) -> bool:
        content = change.content
        if isinstance(content, LargeSample):
            # Whoever asks for the whole again, and not by NACK_FRAG, goes on where the bounds stopped us.
            sn, start = proxy.fragment_cursor
            start = start if sn == first and start <= content.fragments else 1
            after = self._resend_fragments(packer, proxy, change, start, content.fragments)
            proxy.fragment_cursor = (first, after)
            if after > content.fragments:
                proxy.note_sent(first, last)
            return after > content.fragments
        while first <= last:
            room = self._room_for_repair(packer, proxy)
            if room <= 0:
                return False
            stop = min(max(content.fitting(first, min(room, self._budget)), first), last)
            data: Buffer = content.slice(first, stop)
            if first <= proxy.joined_sn:
                data = addressed_to(proxy.guid.entity, content, first, stop)
            packer.add(data, change.timestamp, reserve=HEARTBEAT_ROOM)
            proxy.note_sent(first, stop)
            self._count_repair(proxy, len(data), samples=stop - first + 1)
            first = stop + 1
        return True

    def _resend_fragments(
        self, packer: Packer, proxy: ReaderProxy, change: Change, first: int, last: int
    ) -> int:
        """Send fragments first..last of a large sample; returns the one to go on with."""
        large, sn = change.content, change.first_sn
        if not isinstance(large, LargeSample):
            return last + 1
        reader_id = proxy.guid.entity if sn <= proxy.joined_sn else ENTITYID_UNKNOWN
        for a, b in proxy.unsent_fragments(sn, first, min(last, large.fragments)):
            for number in range(a, b + 1):
                if self._room_for_repair(packer, proxy) <= 0:
                    self.counters.repairs_bounded += 1
                    return number
                data = large.encode(self._writer_id, sn, number, reader_id)
                packer.add(data, change.timestamp, reserve=HEARTBEAT_ROOM)
                proxy.note_sent_fragments(sn, number, number)
                self._count_repair(proxy, len(data), fragments=1)
        return last + 1

    def send_fragments(
        self, packer: Packer, proxy: ReaderProxy, sn: int, missing: FragmentNumberSet, now: int
    ) -> None:
        """Send fragments of one sample again; GAP if it is no more."""
        proxy.begin_repair(now, self.policy.nack_suppression)
        change = self._history.find(sn)
        if change is None or change.first_sn > sn or sn < proxy.first_relevant:
            self._gap(packer, proxy, sn, sn)
        elif isinstance(change.content, LargeSample):
            for first, last in missing.ranges():
                self._resend_fragments(packer, proxy, change, first, last)

    def _gap(self, packer: Packer, proxy: ReaderProxy, first: int, last: int) -> None:
        """Tell one reader that first..last will never come."""
        gap = Gap(proxy.guid.entity, self._writer_id, first, SequenceNumberSet(last + 1))
        packer.add(gap.encode(), reserve=HEARTBEAT_ROOM)
        self.counters.gaps_sent += 1

    def _room_for_repair(self, packer: Packer, proxy: ReaderProxy) -> int:
        in_response = self.policy.max_bytes_per_nack_response - packer.nbytes
        return min(in_response, self.policy.max_repair_bytes - proxy.repaired_bytes)

    def _count_repair(self, proxy: ReaderProxy, nbytes: int, *, samples: int = 0, fragments: int = 0) -> None:
        proxy.repaired_bytes += nbytes
        self.counters.repaired_bytes += nbytes
        self.counters.repaired_samples += samples
        self.counters.repaired_fragments += fragments
