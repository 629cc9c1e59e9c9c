"""Coherent sets of one writer: begun, ended, aborted (RTPS 2.5 §8.7.5, DDS 1.4 §2.2.2.4.1.10)."""

from __future__ import annotations

from collections.abc import Callable

from ....errors import UsageError
from ....limits import COHERENT_SET_BYTES_MAX, COHERENT_SET_MESSAGES_MAX
from ....structure import INFINITE
from ....wire.framing import frame_end_of_coherent_set
from ..changes import Change, DataContent
from ..publication import UnsentChanges, WriterHistory
from ..readers import Acknowledgments, MatchedReaders
from ..sending import Sender
from ..state import WriterState
from .intake import Intake


class CoherentSets:
    """The coherent sets of one writer, of which at most one is open; ``flush`` sends the batch in progress."""

    def __init__(
        self,
        state: WriterState,
        history: WriterHistory,
        unsent: UnsentChanges,
        readers: MatchedReaders,
        acks: Acknowledgments,
        sender: Sender,
        intake: Intake,
        flush: Callable[[int], None],
    ) -> None:
        self._state = state
        self._history = history
        self._keep_last = history.keep_last
        self._unsent = unsent
        self._readers = readers
        self._acks = acks
        self._window = acks.window
        self._sender = sender
        self._intake = intake
        self._flush = flush
        #: The open set is being aborted.
        self._is_aborting = False

    def begin(self, *, now: int) -> None:
        """Begin a set: samples written until :meth:`end` become visible together (RTPS 2.5 §8.7.5)."""
        state = self._state
        state.touch()
        if self._is_aborting:  # an exception interrupted the last abort
            self.abort(now=now)
        self._check_open(is_open=False)
        self._flush(now)
        self._note_end()  # of the last set, if an exception interrupted its end
        while state.sets and state.sets[0][1] <= state.sent_sn:
            state.sets.popleft()
        state.set_begun = state.last_sn + 1
        state.sets.append((state.set_begun, INFINITE))
        budget = self._readers.framing.budget
        self._window.begin_set(min(COHERENT_SET_BYTES_MAX, COHERENT_SET_MESSAGES_MAX * budget))

    def end(self, *, now: int) -> None:
        """Complete the open set."""
        state = self._state
        state.touch()
        self._check_open(is_open=True)
        self._flush(now)
        if state.last_sn >= state.set_begun:
            self._write_marker(state.set_begun, now)
        self._close()
        self._acks.written(now)  # samples that the set has replaced may be dropped now

    def abort(self, *, now: int) -> None:
        """Abort the open set, so that it does not become visible.

        Its samples become irrelevant. Readers with coherent access drop those that they hold; others keep those that
        they have received.
        """
        state = self._state
        state.touch()
        self._check_open(is_open=True)
        self._is_aborting = True
        self._intake.discard()
        begun = state.set_begun
        is_empty = state.last_sn < begun
        if not is_empty:
            try:
                self._sender.gap(begun, self._history.abort_set(begun))
                self._unsent.give_up(begun)
                self._acks.given_up(begun, now)
            except BaseException:
                self._acks.settle()
                raise
        self._close()
        if not is_empty:
            self._acks.written(now)
            self._sender.heartbeats.request_acknowledgment(now)

    def _close(self) -> None:
        """Close the set. After an exception before this call the set is still open, to be aborted or ended again."""
        state = self._state
        if state.sets and state.sets[-1][1] == INFINITE:
            state.sets.pop()
        self._window.end_set()
        self._is_aborting, state.set_begun = False, 0
        self._note_end()

    def _note_end(self) -> None:
        """Let KEEP_LAST count the samples that the set has replaced."""
        if self._keep_last is not None:
            self._keep_last.note_numbered()

    def _write_marker(self, begun: int, now: int) -> None:
        """Write the end marker of the set, a change without a user's sample."""
        state = self._state
        sn = state.last_sn + 1
        if state.sets and state.sets[-1][0] == begun:
            state.sets.pop()
        state.sets.append((begun, sn))
        end = DataContent(frame_end_of_coherent_set(state.guid.entity, sn))
        marker = Change(sn, sn, state.written_stamp, end, state.last_batch_sn)
        self._sender.write_changes((marker,), 1, now)
        state.counters.written_samples -= 1
        if self._keep_last is not None:
            self._keep_last.note_end_marker(sn)

    def _check_open(self, *, is_open: bool) -> None:
        if is_open != (self._state.set_begun > 0):
            raise UsageError(
                "no coherent set is open: begin one" if is_open else "a coherent set is open already: end it"
            )
