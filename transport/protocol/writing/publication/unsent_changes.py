"""What a writer has published and not yet sent, and the publication log it lies in.

A change goes into the log as one frame: a whole RTPS message, ready for UDP, for readers on this host that map the
log, and for sending again. Its content then views the log. Without a log, changes keep the memory they came with,
and positions are counted all the same: flow control needs them.

Invariants:
* ``queue`` holds, in order, what lies between ``snd_pos`` and ``pub_pos``;
* what lies below ``positions.cleanable`` is cleaned; a change that is still held then gets memory of its own first;
* a sample that is too large for a frame lies beside the log; an empty frame keeps its place;
* what is committed to the log is put among ``queue``, whatever is raised in between (:meth:`complete`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np

from ....errors import TransportError, UnloggedError
from ....limits import (
    FRAGMENT_TRAIN_BYTES_MAX,
    GROUP_SAMPLES_MAX,
    TRAIN_BYTES_MAX,
    TRAIN_MESSAGES_MAX,
    UDP_PAYLOAD_MAX,
)
from ....structure import INFINITE
from ....wire.batch_train import batch_train_framer
from ....wire.fragment_train import frame_fragments, samples_per_group, train_bytes
from ....wire.framing import DataBlock, frame_messages, message_shape
from ....wire.info import INFO_TS_SIZE
from ....wire.message import HEADER_SIZE, Header
from ....wire.samples import KEY_ONLY, NO_TIMESTAMP, U8
from ....wire.submessages import InfoTimestamp
from ...policies import FlowControlPolicy
from ..batching import PendingBatch
from ..changes import (
    BatchTrainContent,
    Change,
    DataContent,
    FragmentTrainContent,
    Framing,
    MessageTrainContent,
)
from ..state import WriterState
from .history import WriterHistory
from .message_log import (
    FRAME_ALIGNMENT,
    FRAME_HEADER_BYTES,
    TERM_LENGTH,
    Claim,
    MessageLog,
    PublicationResult,
)
from .positions import PublicationPositions, SequencePositions

#: What comes before a change in its place: the headers of frame and message, and INFO_TS.
_BEFORE_CONTENT: Final = FRAME_HEADER_BYTES + HEADER_SIZE + INFO_TS_SIZE
#: The same, with what aligns the next place.
PLACE_BYTES: Final = _BEFORE_CONTENT + FRAME_ALIGNMENT
#: A train is a small part of what may be in flight: HEARTBEATs ride behind whole trains.
_TRAINS_IN_WINDOW: Final = 16
#: Stands for what is still to be framed.
_EMPTY: Final = DataContent(DataBlock(0, 0, np.zeros(0, np.uint8), 0))


class UnsentChanges:
    """The changes of one writer on their way from ``write`` to the network."""

    def __init__(
        self, state: WriterState, history: WriterHistory, policy: FlowControlPolicy, log: MessageLog | None
    ) -> None:
        term_length = policy.term_length or TERM_LENGTH if log is None else log.term_length
        self.positions = PublicationPositions(term_length, policy.term_window)
        #: How far ahead of the readers of the log on this host may be published.
        self.log_window = policy.log_window(term_length)
        self.numbers = SequencePositions()
        #: The changes, in order.
        self.queue: deque[Change] = deque()
        self.log = log
        self._state = state
        self._history = history
        self._writer_id = state.guid.entity
        #: What messages begin with, and with INFO_TS of the newest timestamp.
        self._header = Header(prefix=state.guid.prefix).encode()
        self._timestamp, self._headers = NO_TIMESTAMP, self._header
        self._handed_over = 0
        #: How far spies on this host have read the log.
        self.spies: list[int] = []
        #: The last number of what views the log no more.
        self._spilled_sn = 0
        #: What is being put into the log and among ``queue``, and its place there.
        self._placing: tuple[Change, Claim] | None = None

    def room(self, queued: int) -> int | None:
        """Bytes that may be published beside ``queued`` ones; None: any number.

        Where something waits to be sent, ``pub_lmt`` bounds it. With a log, what was not handed over yet lies there,
        and bounds it as well.
        """
        limits = [self.positions.pub_lmt] if self.queue else []
        if self.log is not None:
            limits.append(self._handed_over + self.positions.term_window)
            limits += [position + self.log_window for position in self.spies]
        return min(limits) - self.positions.pub_pos - queued if limits else None

    def begin_term(self, nbytes: int, *, rotate: bool) -> PublicationResult | None:
        """Begin the next term if ``nbytes``, which are to come together, do not fit in this one any more.

        ADMIN_ACTION: it has begun. BACK_PRESSURED: it is not clean yet. MAX_POSITION_EXCEEDED: there is none. None:
        they fit, or are too many to lie in one frame; or without ``rotate``, which stands for what has no place yet.
        """
        log = self.log
        if log is None:
            return None
        position = log.position
        left = -position % log.term_length or log.term_length
        if position + nbytes > log.max_position:
            return PublicationResult.MAX_POSITION_EXCEEDED
        if not rotate or nbytes <= left or nbytes > log.max_message_length:
            return None
        # With the header of its frame, what just fits does not.
        while (answer := log.claim(left, limit=INFINITE)) is PublicationResult.BACK_PRESSURED:
            if not self._clean(log):
                break
        return answer if isinstance(answer, PublicationResult) else None

    def handed_over(self) -> None:
        """What was sent so far has left for the network."""
        self._handed_over = self.positions.snd_pos

    def publish(self, change: Change) -> None:
        """Put the next change into the log, and among those to be sent."""
        if change.position:  # it was framed there
            pass
        elif self.log is None:
            change.content.own()
            start = self.positions.pub_pos
            change.position = start + (
                _BEFORE_CONTENT + change.nbytes + FRAME_ALIGNMENT - 1 & -FRAME_ALIGNMENT
            )
        else:
            self._place(change, self.log)
        self._published(change)
        self._placing = None

    def placed(self) -> None:
        """Somebody else looks after what was claimed last."""
        self._placing = None

    def complete(self) -> Change | None:
        """An exception has stopped a write: the change that it has published, or has begun to, if it is to be sent.

        What lies in the log is: others may have read it there. What does not has got no number.
        """
        placing, self._placing, queue = self._placing, None, self.queue
        if placing is not None:
            change, claim = placing
            if change.is_claimed:
                claim.abort()
            elif claim.is_committed and (not queue or queue[-1] is not change):
                self._published(change)
        if not queue or queue[-1].last_sn <= self._state.last_sn:
            return None
        newest = queue[-1]
        self.positions.pub_pos = newest.position
        if self.numbers.position_of(newest.last_sn) != newest.position:
            self.numbers.add(newest.last_sn, newest.position)
        return newest

    def trains(
        self, pending: PendingBatch, first_sn: int, budget: int, *, batch_sn: int, coherent_set: int
    ) -> Iterator[Change]:
        """Uniform samples framed in their place, as trains of whole messages."""
        headers = self._message_headers(pending.timestamp)
        samples, hashes = pending.samples, pending.key_hashes
        flags = int(pending.flags)
        shape = message_shape(
            samples.size,
            budget,
            len(headers),
            flags=flags,
            with_key_hash=hashes is not None,
            coherent_set=coherent_set,
        )
        step = shape.per_message * self._messages_max(shape.segment)
        for start in range(0, samples.count, step):
            part = samples.take(start, min(start + step, samples.count))
            last_sn = first_sn + start + part.count - 1
            change = Change(first_sn + start, last_sn, pending.timestamp, _EMPTY, batch_sn)
            out, claim = self._place_for(change, shape.nbytes(part.count), shape.segment)
            train = frame_messages(
                out,
                shape,
                headers,
                part,
                self._writer_id,
                change.first_sn,
                flags=flags,
                key_hashes=None if hashes is None else hashes[start : start + part.count],
            )
            change.content = MessageTrainContent(train)
            yield self._placed(change, claim)

    def batch_trains(
        self, pending: PendingBatch, first_sn: int, batch_sn: int, framing: Framing, *, coherent_set: int
    ) -> Iterator[Change]:
        """Batches that are alike, framed in their place; ``first_sn`` and ``batch_sn`` are the numbers of the first."""
        per, timestamp = pending.per_batch, pending.timestamp
        framer = batch_train_framer(
            self._message_headers(timestamp),
            pending.samples,
            per,
            self._writer_id,
            flags=int(pending.flags),
            key_hashes=None if framing.policy.disable_inline_keyhash else pending.key_hashes,
            coherent_set=coherent_set,
        )
        step, batches = self._messages_max(framer.segment), pending.batches
        for start in range(0, batches, step):
            count = min(step, batches - start)
            first, number = first_sn + start * per, batch_sn + start
            change = Change(first, first + count * per - 1, timestamp, _EMPTY, number + count - 1)
            out, claim = self._place_for(change, count * framer.segment, framer.segment)
            train = framer.frame(out, start, count, batch_sn=number, first_sn=first)
            change.content = BatchTrainContent(train, timestamp, framing.policy, framing.budget)
            yield self._placed(change, claim)

    def fragment_trains(
        self, pending: PendingBatch, first_sn: int, framing: Framing, *, batch_sn: int, group_bytes: int
    ) -> Iterator[Change]:
        """Uniform samples too large for a datagram, framed in their place as trains of fragments.

        The last fragments of samples that have ``group_bytes`` together may share a datagram.
        """
        headers, samples = self._message_headers(pending.timestamp), pending.samples
        size = framing.fragment_size
        step = max(1, FRAGMENT_TRAIN_BYTES_MAX // samples.size)
        per = min(samples_per_group(samples.size, size), GROUP_SAMPLES_MAX, step)
        per = max(1, min(per, group_bytes // samples.size))
        step += per // 2  # whole groups, as near to it as they come
        step -= step % per
        for start in range(0, samples.count, step):
            part = samples.take(start, min(start + step, samples.count))
            change = Change(
                first_sn + start, first_sn + start + part.count - 1, pending.timestamp, _EMPTY, batch_sn
            )
            nbytes = train_bytes(part.count, samples.size, size, len(headers), per)
            out, claim = self._place_for(change, nbytes, 0)
            train = frame_fragments(
                out,
                headers,
                part,
                self._writer_id,
                change.first_sn,
                size,
                per_message=per,
                is_key=bool(int(pending.flags) & KEY_ONLY),
            )
            change.content = FragmentTrainContent(train)
            yield self._placed(change, claim)

    @property
    def next_frame(self) -> int:
        """Where the frame begins that is to be sent next: of a train that is sent in parts, where the train begins."""
        snd_pos, start = self.positions.snd_pos, self.queue[0].start if self.queue else -1
        return min(snd_pos, start) if start >= 0 else snd_pos

    @property
    def takes_fragment_trains(self) -> bool:
        """Whether only the network takes what is published: readers on this host read a large sample as one DATA."""
        return self.log is None or self.log.path is None

    def claim(self, change: Change) -> Claim:
        """Put a change that is still to be filled into the log; its frame is to be committed once it is filled."""
        log, content, headers = self.log, change.content, self._message_headers(change.timestamp)
        if log is None:
            raise UnloggedError("a sample can be claimed only in a publication log, and the writer has none")
        data, head = content.data, len(headers)
        claim = self._claim(log, head + data.nbytes, change)
        self._placing = change, claim
        claim.data[:head] = np.frombuffer(headers, np.uint8)
        claim.data[head:] = data
        content.data, change.start, change.position = claim.data[head:], claim.start, claim.end
        self._published(change)
        return claim

    def withdraw(self, change: Change) -> None:
        """The change will not be sent."""
        if change in self.queue:
            self.queue.remove(change)
        self.settle()

    def _published(self, change: Change) -> None:
        self.queue.append(change)
        self.numbers.add(change.last_sn, change.position)
        self.positions.pub_pos = change.position

    def divide(self, limit: int, *, at_least: int) -> bool:
        """Make the first of ``queue``, if it is a train, end at ``limit``, but with ``at_least`` so many messages.

        False: not one of its messages can go.
        """
        change, begin = self.queue[0], self.positions.snd_pos + FRAME_HEADER_BYTES
        count, nbytes = change.content.fitting_messages(limit - begin, at_least)
        last_sn, end = change.first_sn - 1 + count, begin + nbytes
        if not count or last_sn >= change.last_sn:
            return count > 0
        first = change.part(change.first_sn, last_sn)
        first.position = end
        rest = change.part(last_sn + 1, change.last_sn)
        self._history.divide(change, (first, rest))
        self.numbers.divide(last_sn, end)
        # In this order: what an exception stops in between is sent twice, and not never.
        self.queue.appendleft(first)
        self.queue[1] = rest
        return True

    def sent(self, change: Change) -> None:
        """The first of ``queue`` is on its way."""
        self.queue.popleft()
        self.positions.sent(change.position)
        self._note_sent()

    def give_up(self, first_sn: int) -> None:
        """What begins at ``first_sn`` or behind it is not to be sent."""
        while self.queue and self.queue[-1].first_sn >= first_sn:
            self.queue.pop()
        self.settle()

    def settle(self) -> None:
        """What is published without being a sample counts as sent, up to what waits."""
        if not self.queue:
            self.positions.sent(self.positions.pub_pos)
        self._note_sent()

    def _note_sent(self) -> None:
        """All numbers below the first of ``queue`` are sent, or will never come: readers acknowledge those, too."""
        state = self._state
        if self.queue:
            first = self.queue[0]
            state.sent_sn, state.sent_batch_sn = first.first_sn - 1, first.batch_sn - first.batches
        else:
            state.sent_sn, state.sent_batch_sn = state.last_sn, state.last_batch_sn

    def conduct(self) -> None:
        """Let more be published once more is sent, and clean what lies a term behind (Aeron's conductor)."""
        self.positions.conduct()
        if self.log is not None:
            self._clean(self.log)

    # --- inside ----------------------------------------------------------------------------------

    def _place(self, change: Change, log: MessageLog) -> None:
        """Copy the content of a change into the log, which it views from then on."""
        content, headers = change.content, self._message_headers(change.timestamp)
        headers += content.head_in_log(self._writer_id, change.first_sn)
        data, head = content.data, len(headers)
        if head + data.nbytes > log.max_message_length:
            content.own()
            self._commit(change, self._claim(log, 0, change))
            return
        claim = self._claim(log, head + data.nbytes, change)
        body = claim.data
        body[:head] = np.frombuffer(headers, np.uint8)
        view = body[head:]
        view[:] = data
        content.data, change.start = view, claim.start
        self._commit(change, claim)

    def _commit(self, change: Change, claim: Claim) -> None:
        change.position = claim.end
        self._placing = change, claim
        claim.commit()

    def _placed(self, change: Change, claim: Claim | None) -> Change:
        """The change, framed; its frame in the log is committed, an empty one for what lies beside it."""
        if claim is not None:
            change.start = claim.start if claim.data.size else -1
            self._commit(change, claim)
        return change

    def _messages_max(self, segment: int) -> int:
        """How many messages of so many bytes a train has, at most."""
        log = self.log
        longest = min(TRAIN_BYTES_MAX, self._state.policy.window_bytes // _TRAINS_IN_WINDOW)
        if log is not None:
            longest = min(longest, log.max_message_length)
            if log.path is not None:  # readers on this host take whole frames, as they have room
                longest = min(longest, UDP_PAYLOAD_MAX)
        return max(1, min(longest // segment, TRAIN_MESSAGES_MAX))

    def _place_for(self, change: Change, nbytes: int, segment: int) -> tuple[U8, Claim | None]:
        """Where a train is framed: in the log, if there is one; beside it, if a frame cannot be so long."""
        if self.log is None:
            return np.empty(nbytes, np.uint8), None
        if nbytes > self.log.max_message_length:
            return np.empty(nbytes, np.uint8), self._claim(self.log, 0, change)
        claim = self._claim(self.log, nbytes, change, segment=segment)
        return claim.data, claim

    def _claim(self, log: MessageLog, length: int, change: Change, *, segment: int = 0) -> Claim:
        while True:
            claim = log.claim(
                length, limit=INFINITE, first_sn=change.first_sn, count=change.count, segment=segment
            )
            if not isinstance(claim, PublicationResult):
                if claim.start != self.positions.pub_pos:
                    # What lies between is the padding of a full term, or a claim that an exception has stopped: readers
                    # of the log would wait at it for ever.
                    unblocked = log.unblock(self.positions.pub_pos, claim.start)
                    self._state.counters.unblocked_publications += unblocked
                return claim
            if claim is PublicationResult.ADMIN_ACTION:
                continue  # a term was full: the next one has room
            if claim is not PublicationResult.BACK_PRESSURED or not self._clean(log):
                raise TransportError(f"the publication log takes nothing more ({claim.name})")

    def _message_headers(self, timestamp: int) -> bytes:
        if timestamp != self._timestamp:
            self._timestamp = timestamp
            stamp = b"" if timestamp == NO_TIMESTAMP else InfoTimestamp(timestamp).encode()
            self._headers = self._header + stamp
        return self._headers

    def _clean(self, log: MessageLog) -> bool:
        """Clean a piece of what lies a term behind the sender; False: there is nothing to clean."""
        to, before = self.positions.cleanable, self.positions.clean_pos
        if to <= before:
            return False
        self._spill(to)
        self.positions.cleaned(log.clean(to))
        return self.positions.clean_pos > before

    def _spill(self, to: int) -> None:
        """Give every change that is still held below ``to`` memory of its own."""
        for change in self._history.changes_from(self._spilled_sn + 1):
            if max(change.start, 0) >= to or (change.start < 0 and change.position > to):
                break
            if change.start >= 0:
                change.content.data, change.start = change.content.data.copy(), -1
            self._spilled_sn = change.last_sn
