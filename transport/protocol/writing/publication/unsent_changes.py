"""Changes that a writer has published and not yet sent: Aeron's publication, between ``pub_pos`` and ``snd_pos``.

A change is put into the publication log as one frame (:mod:`.log_frames`), which its content then views. Without a log,
changes keep their memory, and positions are still counted, because flow control needs them.

Invariants:
* ``queue`` holds, in order, the changes between ``snd_pos`` and ``pub_pos``;
* a change that is committed to the log is in ``queue``, even after an exception in between (:meth:`complete`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from ....wire.info import INFO_TS_SIZE
from ....wire.message import HEADER_SIZE
from ...policies import FlowControlPolicy
from ..changes import Change
from ..state import WriterState
from .gso_framer import GsoFramer
from .history import WriterHistory
from .log_frames import LogFrames
from .message_log import FRAME_ALIGNMENT, FRAME_HEADER_BYTES, TERM_LENGTH, LogClaim, MessageLog
from .positions import PublicationPositions, SequencePositions

#: Bytes before the content of a change in its frame: the headers of frame and message, and INFO_TS.
_BEFORE_CONTENT: Final = FRAME_HEADER_BYTES + HEADER_SIZE + INFO_TS_SIZE
#: _BEFORE_CONTENT, and the most bytes that align the next frame.
PLACE_BYTES: Final = _BEFORE_CONTENT + FRAME_ALIGNMENT


class UnsentChanges:
    """The changes of one writer on their way from ``write`` to the network."""

    def __init__(
        self, state: WriterState, history: WriterHistory, policy: FlowControlPolicy, log: MessageLog | None
    ) -> None:
        term_length = policy.term_length or TERM_LENGTH if log is None else log.term_length
        self.positions = PublicationPositions(term_length, policy.term_window)
        #: Bytes that may be published ahead of spies and readers of the log on this host.
        self.log_window = policy.log_window(term_length)
        self.numbers = SequencePositions()
        #: The unsent changes, in order.
        self.queue: deque[Change] = deque()
        self.log = log
        #: Puts changes into the log.
        self.frames = LogFrames(state, history, self.positions, log)
        #: Frames GSO buffers there.
        self.gso_framer = GsoFramer(state, self.frames)
        #: Positions up to which spies on this host have read the log.
        self.spies: list[int] = []
        self._state = state
        self._history = history
        self._handed_over = 0
        #: The last limit at which the sender stopped.
        self._met = -1

    def capacity(self, queued: int) -> int | None:
        """Bytes that may be published in addition to ``queued`` ones; None: any number.

        If changes wait to be sent, ``pub_lmt`` limits it. With a log, bytes in the log that were not handed over yet
        limit it too.
        """
        limits = [self.positions.pub_lmt] if self.queue else []
        if self.log is not None:
            limits.append(self._handed_over + self.positions.term_window)
            limits += [position + self.log_window for position in self.spies]
        return min(limits) - self.positions.pub_pos - queued if limits else None

    def handed_over(self) -> None:
        """The datagrams of all changes sent so far were handed to the network."""
        self._handed_over = self.positions.snd_pos

    def publish(self, change: Change) -> None:
        """Put the next change into the log and the queue."""
        if change.position:  # it was framed in the log
            pass
        elif self.log is None:
            change.content.own()
            start = self.positions.pub_pos
            change.position = start + (
                _BEFORE_CONTENT + change.nbytes + FRAME_ALIGNMENT - 1 & -FRAME_ALIGNMENT
            )
        else:
            self.frames.store_content(change, self.log)
        self._published(change)
        self.frames.placing = None

    def claim(self, change: Change) -> LogClaim:
        """Put a change into the log and the queue that the caller still has to fill, and then to commit."""
        claim = self.frames.claim(change)
        self._published(change)
        return claim

    def _published(self, change: Change) -> None:
        self.queue.append(change)
        self.numbers.add_position(change.last_sn, change.position)
        self.positions.pub_pos = change.position

    def complete(self) -> Change | None:
        """Complete a write that an exception interrupted; returns the change that must still get its number.

        A change that is committed to the log must be sent, since readers may have read it there. Any other change gets
        no number.
        """
        frames, queue = self.frames, self.queue
        placing, frames.placing = frames.placing, None
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
            self.numbers.add_position(newest.last_sn, newest.position)
        return newest

    # --- to the network --------------------------------------------------------------------------

    @property
    def next_frame(self) -> int:
        """Position where the next frame to be sent begins; of a GSO buffer sent in parts, its start."""
        snd_pos, start = self.positions.snd_pos, self.queue[0].start if self.queue else -1
        return min(snd_pos, start) if start >= 0 else snd_pos

    def take_next(self, limit: int, has_consumed: Callable[[int], bool]) -> Change | None:
        """Take the next change that may be sent up to ``limit``, and count it as sent; None if there is none.

        ``has_consumed`` returns whether the pacing readers have consumed everything up to a position.
        """
        queue = self.queue
        if not queue or queue[0].is_claimed:
            self.settle()
            return None
        change = queue[0]
        if change.position > limit and not self._ends_a_set(change):
            # A change that is larger than the whole window is sent alone.
            alone = has_consumed(self.positions.snd_pos)
            if not self._divide(limit, at_least=alone) and not alone:
                self._note_limit(limit)
                self.settle()
                return None
            queue = self.queue
            change = queue[0]
        queue.popleft()
        self.positions.sent(change.position)
        self._note_sent()
        return change

    def _ends_a_set(self, change: Change) -> bool:
        """Whether readers consume nothing before this change: it belongs to the newest coherent set, or to one that is
        sent in part.

        Such a set is sent whole, whatever the readers' windows: they would wait for its end, and the writer for them.
        """
        sets = self._state.sets
        while sets and sets[0][1] < change.first_sn:
            sets.popleft()
        if not sets:
            return False
        first, _ = sets[0]
        return first <= change.first_sn and (len(sets) == 1 or first <= self._state.sent_sn)

    def _note_limit(self, limit: int) -> None:
        """Count that there is more to send than ``limit`` allows; each limit counts once."""
        if limit != self._met:
            self._met = limit
            self.positions.back_pressured()
            self._state.counters.flow_control_limits += 1

    def _divide(self, limit: int, *, at_least: int) -> bool:
        """Divide the first of ``queue`` at ``limit`` if it is a GSO buffer. Its first part has ``at_least`` or more
        messages.

        Returns False if none of its messages can be sent.
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
        # In one statement: an exception leaves either the change or both parts in the queue.
        self.queue = deque((first, rest, *islice(self.queue, 1, None)))
        return True

    def withdraw(self, change: Change) -> None:
        """Remove a change that will not be sent."""
        if change in self.queue:
            self.queue.remove(change)
        self.settle()

    def give_up(self, first_sn: int) -> None:
        """Remove the changes that begin at ``first_sn`` or later."""
        while self.queue and self.queue[-1].first_sn >= first_sn:
            self.queue.pop()
        self.settle()

    def settle(self) -> None:
        """Count positions and numbers without a sample as sent, up to the first change that waits."""
        if not self.queue:
            self.positions.sent(self.positions.pub_pos)
        self._note_sent()

    def _note_sent(self) -> None:
        """Set sent_sn: all numbers below the first of ``queue`` are sent or have no sample."""
        state = self._state
        if self.queue:
            first = self.queue[0]
            state.sent_sn, state.sent_batch_sn = first.first_sn - 1, first.batch_sn - first.batches
        else:
            state.sent_sn, state.sent_batch_sn = state.last_sn, state.last_batch_sn

    def conduct(self) -> None:
        """Let more be published once more is sent, and clean the log a term behind the sender (Aeron's conductor)."""
        self.positions.conduct()
        if self.log is not None:
            self.frames.clean()
