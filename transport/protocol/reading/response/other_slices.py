"""The writers of other slices, to which a reader sends only acknowledgements.

A writer matches a reader by topic and QoS, and knows nothing of slices. So it sends to readers of every slice, and
waits for their acknowledgements; a writer with KEEP_ALL history would block without them. The reader answers its
HEARTBEATs as if it had received everything, whatever history the writer announces, and requests nothing. A status
message at the match tells our own writers that the reader takes nothing and that they need not wait for it; each
acknowledgement repeats this, because the message may be lost.

Invariants:
* only the state for answering such a writer is kept;
* its announcements are not checked: they only decide which number is acknowledged, and to that writer alone;
* each new HEARTBEAT gets at most one message as its answer. A writer that is not reliable gets none.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....limits import MESSAGE_SIZE_LEAST
from ....structure import INFINITE, Guid
from ....wire.numbers import SEQUENCE_NUMBER_MAX, SequenceNumberSet
from ....wire.status_messages import StatusMessage
from ....wire.submessages import AckNack, Heartbeat, HeartbeatBatch
from ...counts import CountFilter, next_count
from ...endpoint_info import WriterInfo
from ...outgoing import Outgoing, Packer
from ...policies import ReaderCounters, ReaderPolicy
from .heartbeat_response import HeartbeatResponse, ResponseState
from .response_delays import ResponseDelays


class _AnsweredWriter:
    """The state for answering one reliable writer."""

    __slots__ = ("acks", "base", "batch_counts", "count", "counts", "info", "reports")

    def __init__(self, info: WriterInfo) -> None:
        self.info = info
        self.acks = HeartbeatResponse()
        #: All numbers below are acknowledged.
        self.base = 1
        self.counts = CountFilter()
        self.batch_counts = CountFilter()
        #: Of the last answer.
        self.count = 0
        #: A status message is due.
        self.reports = info.status_messages


class OtherSlices:
    """The writers on the topic of one reader that are not of its slice."""

    def __init__(
        self, reader_id: bytes, policy: ReaderPolicy, counters: ReaderCounters, delays: ResponseDelays
    ) -> None:
        self._reader_id = reader_id
        self._policy = policy
        self._counters = counters
        self._delays = delays
        self._writers: dict[Guid, _AnsweredWriter] = {}
        self._timers: dict[Guid, int] = {}
        self._responding: dict[Guid, _AnsweredWriter] = {}

    def __len__(self) -> int:
        """How many reliable writers there are."""
        return len(self._writers)

    def match(self, info: WriterInfo, now: int) -> None:
        """A reliable writer is there, or is at new locators."""
        it = self._writers.get(info.guid)
        if it is not None and it.info.status_messages == info.status_messages:
            it.info = info
            return
        self.unmatch(info.guid)
        it = self._writers[info.guid] = _AnsweredWriter(info)
        if it.reports:
            self._respond(it, now)

    def unmatch(self, guid: Guid) -> None:
        """A writer is gone, or matches no longer."""
        self._writers.pop(guid, None)
        self._timers.pop(guid, None)
        self._responding.pop(guid, None)

    def on_heartbeat(self, writer: Guid, heartbeat: Heartbeat | HeartbeatBatch, now: int) -> None:
        """The writer announces what it has: none of it is missing here."""
        it = self._writers.get(writer)
        if it is None:
            return
        counts = it.batch_counts if isinstance(heartbeat, HeartbeatBatch) else it.counts
        if not counts.accept(heartbeat.count, now):
            self._counters.stale_counts += 1
            return
        it.base = min(heartbeat.last_sn + 1, SEQUENCE_NUMBER_MAX)
        if heartbeat.final:
            return
        acks, info = it.acks, it.info
        if info.keeps_silent(self._policy) and not acks.is_idle(it.base, now):
            if info.status_messages:
                it.reports = True
                self._respond(it, now)
            return
        if acks.suppresses(self._policy.heartbeat_suppression_duration, now):
            self._counters.suppressed_heartbeats += 1
            return
        at = acks.answer_at(self._delays, now)
        if at <= now:
            self._owe(it, now)
        elif acks.owe_at(at):
            self._timers[writer] = at

    def timers(self) -> Iterable[int]:
        """When :meth:`handle_timer` wants to be called."""
        return self._timers.values()

    def handle_timer(self, now: int) -> None:
        for guid in [guid for guid, at in self._timers.items() if at <= now]:
            self._owe(self._writers[guid], now)

    @property
    def is_responding(self) -> bool:
        """Whether there is something to send."""
        return bool(self._responding)

    def outgoing(self) -> list[Outgoing]:
        """What to send now. Nothing that the reader holds back concerns these writers."""
        out: list[Outgoing] = []
        responding, self._responding = self._responding, {}
        for it in responding.values():
            out += self._response(it)
        return out

    # --- inside ----------------------------------------------------------------------------------

    def _owe(self, it: _AnsweredWriter, now: int) -> None:
        it.acks.owe()
        self._timers.pop(it.info.guid, None)
        it.reports = it.info.status_messages
        self._respond(it, now)

    def _respond(self, it: _AnsweredWriter, now: int) -> None:
        if it.info.guid not in self._responding:
            self._responding[it.info.guid] = it
            it.count = next_count(it.count, now)

    def _response(self, it: _AnsweredWriter) -> list[Outgoing]:
        info = it.info
        packer = Packer(MESSAGE_SIZE_LEAST, info.destinations, info.guid.prefix)
        if it.acks.state is ResponseState.DUE:
            missing = SequenceNumberSet(it.base)
            packer.add_submessage(
                AckNack(self._reader_id, info.guid.entity, missing, it.count, final=True).encode()
            )
            it.acks.on_acknack(it.base)
            self._counters.acknacks_sent += 1
        if it.reports:
            it.reports = False
            packer.add_submessage(self._rests(it))
            self._counters.status_messages_sent += 1
        return packer.packed

    def _rests(self, it: _AnsweredWriter) -> bytes:
        """A status message which announces that the writer need not wait for this reader."""
        return StatusMessage(
            self._reader_id,
            it.info.guid.entity,
            it.base - 1,
            INFINITE,
            it.count,
            self._policy.group_tag,
            end_of_stream=True,
        ).encode()
