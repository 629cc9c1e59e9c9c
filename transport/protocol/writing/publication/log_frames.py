"""The frames of a writer's publication log. They hold its changes ready for UDP, for readers on this host that map the
log, and for repairs.

A frame holds a whole RTPS message, or a GSO buffer of them. A writer without a log keeps changes in their own memory.

Invariants:
* the log below ``positions.cleanable`` is cleaned; a change that is still held there first gets memory of its own;
* a sample that is too large for a frame lies outside the log, which has an empty frame for it;
* ``placing`` is the change that is being put into the log and is not among the unsent changes yet; after an exception
  `UnsentChanges.complete` finds it there.
"""

from __future__ import annotations

import numpy as np

from ....errors import TransportError, UnloggedError
from ....structure import INFINITE
from ....wire.message import Header
from ....wire.samples import NO_TIMESTAMP, U8
from ....wire.submessages import InfoTimestamp
from ..changes import Change
from ..state import WriterState
from .history import WriterHistory
from .message_log import LogClaim, MessageLog, PublicationResult
from .positions import PublicationPositions


class LogFrames:
    """Puts the changes of one writer into its ``log``, and cleans the log a term behind the sender."""

    def __init__(
        self,
        state: WriterState,
        history: WriterHistory,
        positions: PublicationPositions,
        log: MessageLog | None,
    ) -> None:
        self.log = log
        #: The change that is being put into the log, and its claim there.
        self.placing: tuple[Change, LogClaim] | None = None
        self._state = state
        self._history = history
        self._positions = positions
        self._writer_id = state.guid.entity
        #: The bytes with which messages begin: the header; and the header with INFO_TS of the newest timestamp.
        self._header = Header(prefix=state.guid.prefix).encode()
        self._timestamp, self._headers = NO_TIMESTAMP, self._header
        #: The last number whose change no longer views the log.
        self._spilled_sn = 0

    def begin_term(self, nbytes: int, *, rotate: bool) -> PublicationResult | None:
        """Begin the next term if ``nbytes``, to be published together, do not fit in the current term.

        Returns ADMIN_ACTION if the next term has begun, BACK_PRESSURED if it is not clean yet, MAX_POSITION_EXCEEDED if
        there is none; None if the bytes fit, if they are too many for one frame, or without ``rotate``.
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
        # The rest of the term does not fit itself, since its frame has a header, so this claim ends the term.
        while (answer := log.claim(left, limit=INFINITE)) is PublicationResult.BACK_PRESSURED:
            if not self.clean():
                break
        return answer if isinstance(answer, PublicationResult) else None

    def headers_of(self, timestamp: int) -> bytes:
        """The bytes with which a message of samples with that source timestamp begins."""
        if timestamp != self._timestamp:
            self._timestamp = timestamp
            stamp = b"" if timestamp == NO_TIMESTAMP else InfoTimestamp(timestamp).encode()
            self._headers = self._header + stamp
        return self._headers

    # --- changes into the log --------------------------------------------------------------------

    def store_content(self, change: Change, log: MessageLog) -> None:
        """Copy the content of a change into the log, which it views from then on."""
        content, headers = change.content, self.headers_of(change.timestamp)
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

    def claim(self, change: Change) -> LogClaim:
        """Claim the frame of a change that the caller still has to fill, and then to commit."""
        log, content, headers = self.log, change.content, self.headers_of(change.timestamp)
        if log is None:
            raise UnloggedError("the writer has no publication log to claim a sample in: write it instead")
        data, head = content.data, len(headers)
        claim = self._claim(log, head + data.nbytes, change)
        self.placing = change, claim
        claim.data[:head] = np.frombuffer(headers, np.uint8)
        claim.data[head:] = data
        content.data, change.start, change.position = claim.data[head:], claim.start, claim.end
        return claim

    def reserve(self, change: Change, nbytes: int, segment: int) -> tuple[U8, LogClaim | None]:
        """The memory for a GSO buffer: in the log, if there is one and a frame can be so long, else outside it."""
        if self.log is None:
            return np.empty(nbytes, np.uint8), None
        if nbytes > self.log.max_message_length:
            return np.empty(nbytes, np.uint8), self._claim(self.log, 0, change)
        claim = self._claim(self.log, nbytes, change, segment=segment)
        return claim.data, claim

    def placed(self, change: Change, claim: LogClaim | None) -> Change:
        """The framed change, after its frame in the log is committed; the frame is empty if the change lies outside."""
        if claim is not None:
            change.start = claim.start if claim.data.size else -1
            self._commit(change, claim)
        return change

    def _commit(self, change: Change, claim: LogClaim) -> None:
        change.position = claim.end
        self.placing = change, claim
        claim.commit()

    def _claim(self, log: MessageLog, length: int, change: Change, *, segment: int = 0) -> LogClaim:
        while True:
            claim = log.claim(
                length, limit=INFINITE, first_sn=change.first_sn, count=change.count, segment=segment
            )
            if not isinstance(claim, PublicationResult):
                if claim.start != self._positions.pub_pos:
                    # Between them is the padding of a full term, or a claim that an exception interrupted, at which
                    # readers of the log would wait for ever.
                    unblocked = log.unblock(self._positions.pub_pos, claim.start)
                    self._state.counters.unblocked_publications += unblocked
                return claim
            if claim is PublicationResult.ADMIN_ACTION:
                continue  # a term was full: the next one has capacity
            if claim is not PublicationResult.BACK_PRESSURED or not self.clean():
                raise TransportError(
                    f"cannot append a frame of {length} bytes to the publication log: {claim.name}"
                )

    # --- a term behind the sender ----------------------------------------------------------------

    def clean(self) -> bool:
        """Clean a piece of the log a term behind the sender; returns False if there is nothing to clean."""
        log, positions = self.log, self._positions
        to, before = positions.cleanable, positions.clean_pos
        if log is None or to <= before:
            return False
        self._spill(to)
        positions.cleaned(log.clean(to))
        return positions.clean_pos > before

    def _spill(self, to: int) -> None:
        """Give every held change below ``to`` memory of its own."""
        for change in self._history.changes_from(self._spilled_sn + 1):
            if max(change.start, 0) >= to or (change.start < 0 and change.position > to):
                break
            if change.start >= 0:
                change.content.data, change.start = change.content.data.copy(), -1
            self._spilled_sn = change.last_sn
