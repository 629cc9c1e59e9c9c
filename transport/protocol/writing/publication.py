"""What a writer has published and not yet sent, and the publication log it lies in.

A change goes into the log as one frame: a whole RTPS message, ready for UDP, for readers on this host that map the
log, and for sending again. Its content then views the log. Without a log, changes keep the memory they came with,
and positions are counted all the same: flow control needs them.

Invariants:
* ``unsent`` holds, in order, what lies between ``snd_pos`` and ``pub_pos``;
* what lies below ``positions.cleanable`` is cleaned; a change that is still held then gets memory of its own first;
* a sample larger than a frame may be lies beside the log; an empty frame keeps its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from ...errors import TransportError, UsageError
from ...limits import TRAIN_MESSAGES_MAX, UDP_PAYLOAD_MAX
from ...structure import INFINITE, Guid
from ...wire.framing import Block, Train, fill_train, long_data_header, train_shape
from ...wire.message import Header
from ...wire.samples import NO_TIMESTAMP, U8
from ...wire.submessages import InfoTimestamp
from ..policies import FlowControlPolicy
from .batching import PendingBatch
from .history import Change, WriterHistory
from .large_sample import LargeSample
from .positions import PublicationPositions
from .sequence_positions import SequencePositions

#: Of a frame in the publication log, and of the message in it.
_FRAME_HEADER: Final = 32
_ALIGNMENT: Final = 32
#: What a claim answers (Aeron's codes): no room is clean; the term was full, and is another one now.
BACK_PRESSURED: Final = -2
ADMIN_ACTION: Final = -3
#: RTPS header and INFO_TS.
_MESSAGE_HEADER: Final = 20 + 12
#: For positions where there is no log (Aeron's default).
TERM_LENGTH: Final = 16 << 20


#: Stands for what is still to be framed.
_EMPTY: Final = Block(0, 0, np.zeros(0, np.uint8), 0)


class Claim(Protocol):
    """Room in the log, to be filled and committed."""

    @property
    def data(self) -> U8: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    def commit(self) -> object: ...
    def abort(self) -> None: ...


class PublicationLog(Protocol):
    """The publication log, as far as a writer uses it (`log.publication_log`)."""

    @property
    def path(self) -> Path | None: ...
    @property
    def token(self) -> int: ...
    @property
    def term_length(self) -> int: ...
    @property
    def max_message_length(self) -> int: ...
    @property
    def position(self) -> int: ...
    def claim(
        self, length: int, *, limit: int, first_sn: int = 0, count: int = 0, segment: int = 0
    ) -> Claim | int: ...
    def clean(self, to: int) -> int: ...


class Publication:
    """The changes of one writer on their way from ``write`` to the network."""

    def __init__(
        self, writer: Guid, history: WriterHistory, policy: FlowControlPolicy, log: PublicationLog | None
    ) -> None:
        term_length = policy.term_length or TERM_LENGTH if log is None else log.term_length
        self.positions = PublicationPositions(term_length, policy.term_window)
        self.numbers = SequencePositions()
        self.unsent: deque[Change] = deque()
        self.log = log
        self._history = history
        self._writer_id = writer.entity
        #: What messages begin with, and with INFO_TS of the newest timestamp.
        self._header = Header(prefix=writer.prefix).encode()
        self._timestamp, self._headers = NO_TIMESTAMP, self._header
        self._handed_over = 0
        #: How far spies on this host have read the log.
        self.spies: list[int] = []
        #: The last number of what views the log no more.
        self._spilled_sn = 0

    def room(self, queued: int) -> int | None:
        """Bytes that may be published beside ``queued`` ones; None: any number.

        Where something waits to be sent, ``pub_lmt`` bounds it. What was not handed over yet lies in the log, if there
        is one: it bounds that, too.
        """
        limits = [self.positions.pub_lmt] if self.unsent else []
        if self.log is not None:
            limits += [position + self.positions.term_window for position in (self._handed_over, *self.spies)]
        return min(limits) - self.positions.pub_pos - queued if limits else None

    def handed_over(self) -> None:
        """What was sent so far has left for the network."""
        self._handed_over = self.positions.snd_pos

    def publish(self, change: Change) -> None:
        """Put the next change into the log, and among those to be sent."""
        if change.position:  # it was framed there
            end = change.position
        elif self.log is None:
            start = self.positions.pub_pos
            end = start + (_FRAME_HEADER + _MESSAGE_HEADER + change.nbytes + _ALIGNMENT - 1 & -_ALIGNMENT)
        else:
            end = self._place(change, self.log)
        self._published(change, end)

    def trains(
        self, pending: PendingBatch, first_sn: int, budget: int, *, batch_sn: int, coherent_set: int
    ) -> Iterator[Change]:
        """Uniform samples framed in their place, as whole messages that leave in one system call."""
        headers = self._message_headers(pending.timestamp)
        samples, hashes, log = pending.samples, pending.key_hashes, self.log
        flags = int(pending.flags)
        shape = train_shape(
            samples.size,
            budget,
            len(headers),
            flags=flags,
            with_key_hash=hashes is not None,
            coherent_set=coherent_set,
        )
        longest = UDP_PAYLOAD_MAX if log is None else min(UDP_PAYLOAD_MAX, log.max_message_length)
        step = shape.per_message * max(1, min(longest // shape.segment, TRAIN_MESSAGES_MAX))
        for start in range(0, samples.count, step):
            part = samples.take(start, min(start + step, samples.count))
            last_sn = first_sn + start + part.count - 1
            change = Change(first_sn + start, last_sn, pending.timestamp, _EMPTY, batch_sn)
            nbytes, claim = shape.nbytes(part.count), None
            if log is None:
                out: U8 = np.empty(nbytes, np.uint8)
            else:
                claim = self._claim(log, nbytes, change, segment=shape.segment)
                out = claim.data
            change.content = fill_train(
                out,
                shape,
                headers,
                part,
                self._writer_id,
                change.first_sn,
                flags=flags,
                key_hashes=None if hashes is None else hashes[start : start + part.count],
            )
            if claim is not None:
                claim.commit()
                change.start, change.position = claim.start, claim.end
            yield change

    def claim(self, change: Change) -> Claim:
        """The same for a change that is filled in its place; the frame is to be committed when it is."""
        log, content, headers = self.log, change.content, self._message_headers(change.timestamp)
        if log is None:
            raise UsageError("a sample can be claimed only in a publication log; set publication.term_length")
        data, head = content.data, len(headers)
        claim = self._claim(log, head + data.nbytes, change)
        claim.data[:head] = np.frombuffer(headers, np.uint8)
        claim.data[head:] = data
        content.data, change.start = claim.data[head:], claim.start
        self._published(change, claim.end)
        return claim

    def withdraw(self, change: Change) -> None:
        """It will not be sent."""
        self.unsent.remove(change)
        self.settle()

    def _published(self, change: Change, end: int) -> None:
        change.position = self.positions.pub_pos = end
        self.numbers.add(change.last_sn, end)
        self.unsent.append(change)

    def divide(self, limit: int, *, at_least: int) -> bool:
        """Make the first of ``unsent``, if it is a train, end at ``limit``, but with ``at_least`` so many messages.

        False: not one of its messages can go.
        """
        change = self.unsent[0]
        train = change.content
        if not isinstance(train, Train):
            return False
        fits = max(train.messages_within(limit - self.positions.snd_pos - _FRAME_HEADER), at_least)
        last_sn = change.first_sn - 1 + fits * train.per_message
        if not fits or last_sn >= change.last_sn:
            return fits > 0
        end = self.positions.snd_pos + _FRAME_HEADER + fits * train.segment
        first = replace(change, last_sn=last_sn, position=end, content=train.part(change.first_sn, last_sn))
        rest = replace(change, first_sn=last_sn + 1, content=train.part(last_sn + 1, change.last_sn))
        self.unsent.popleft()
        self.unsent.extendleft((rest, first))
        self._history.divide(change, (first, rest))
        self.numbers.divide(last_sn, end)
        return True

    def sent(self, change: Change) -> None:
        """The first of ``unsent`` is on its way."""
        self.unsent.popleft()
        self.positions.sent(change.position)
        history = self._history
        if self.unsent:
            history.sent_sn, history.sent_batch_sn = change.last_sn, change.batch_sn
        else:
            history.all_sent()

    def give_up(self, first_sn: int) -> None:
        """What begins at that number or behind it is not to be sent."""
        while self.unsent and self.unsent[-1].first_sn >= first_sn:
            self.unsent.pop()
        self.settle()

    def settle(self) -> None:
        """Where nothing waits to be sent, what is published without being a sample counts as sent."""
        if not self.unsent:
            self.positions.sent(self.positions.pub_pos)
            self._history.all_sent()

    def conduct(self) -> None:
        """Let more be published where more was sent, and clean what lies a term behind (Aeron's conductor)."""
        self.positions.conduct()
        if self.log is not None:
            self._clean(self.log)

    # --- inside ----------------------------------------------------------------------------------

    def _place(self, change: Change, log: PublicationLog) -> int:
        """Copy the content of a change into the log, which it views from then on; returns where its frame ends."""
        content, headers = change.content, self._message_headers(change.timestamp)
        if isinstance(content, LargeSample):
            headers += long_data_header(
                self._writer_id, change.first_sn, content.flags, content.key_hash, content.coherent_set
            )
        data, head = content.data, len(headers)
        if head + data.nbytes > log.max_message_length:
            claim = self._claim(log, 0, change)
            claim.commit()
            return claim.end
        claim = self._claim(log, head + data.nbytes, change)
        body = claim.data
        body[:head] = np.frombuffer(headers, np.uint8)
        view = body[head:]
        view[:] = data
        claim.commit()
        content.data, change.start = view, claim.start
        return claim.end

    def _claim(self, log: PublicationLog, length: int, change: Change, *, segment: int = 0) -> Claim:
        while True:
            claim = log.claim(
                length, limit=INFINITE, first_sn=change.first_sn, count=change.count, segment=segment
            )
            if not isinstance(claim, int):
                return claim
            if claim == ADMIN_ACTION:
                continue  # a term was full: the next one has room
            if claim != BACK_PRESSURED or not self._clean(log):
                raise TransportError(f"the publication log takes nothing more ({claim})")

    def _message_headers(self, timestamp: int) -> bytes:
        if timestamp != self._timestamp:
            self._timestamp = timestamp
            stamp = b"" if timestamp == NO_TIMESTAMP else InfoTimestamp(timestamp).encode()
            self._headers = self._header + stamp
        return self._headers

    def _clean(self, log: PublicationLog) -> bool:
        """Clean a piece of what lies a term behind; False: there is nothing to clean."""
        to, before = self.positions.cleanable, self.positions.clean_pos
        if to <= before:
            return False
        self._spill(to)
        self.positions.cleaned(log.clean(to))
        return self.positions.clean_pos > before

    def _spill(self, to: int) -> None:
        """What is still held below ``to`` gets memory of its own."""
        for change in self._history.changes_from(self._spilled_sn + 1):
            if max(change.start, 0) >= to or (change.start < 0 and change.position > to):
                break
            if change.start >= 0:
                change.content.data, change.start = change.content.data.copy(), -1
            self._spilled_sn = change.last_sn
