"""Samples that are written in place: memory in the publication log, claimed first and committed later (Aeron's
tryClaim).

A claimed sample has its sequence number already, so no later sample is sent before it is committed. If it is aborted,
or not committed in time, its frame becomes padding, and its number a GAP.

Invariants: ``open`` holds the claims in the order of their numbers; each is among the unsent changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from ....errors import UsageError
from ....structure import KEY_HASH_BYTES, is_keyed
from ....wire.framing import frame, framed_key_hash
from ....wire.samples import U8, Samples, check_timestamp
from ..changes import Change, DataContent, overhead
from ..publication import LogClaim, UnsentChanges, WriterHistory
from ..readers import Acknowledgments, MatchedReaders
from ..sending import Sender
from ..state import WriterState
from .admission import Admission
from .offered_deadline import OfferedDeadline


class SampleClaim:
    """Memory for one serialized sample. The caller fills ``data``, which includes the encapsulation header.

    On a keyed topic the caller also fills ``key_hash``, (1, 16).
    """

    __slots__ = ("at", "change", "claim", "data", "key_hash")

    def __init__(self, change: Change, claim: LogClaim, data: U8, key_hash: U8 | None, at: int) -> None:
        self.change = change
        self.claim = claim
        self.data = data
        self.key_hash = key_hash
        #: When the claim was made.
        self.at = at

    def detach(self) -> None:
        """Detach the memory from the log after the claim was given up, so that late writes to it do not reach the log,
        where other frames will lie."""
        self.data = self.data.copy()
        self.key_hash = None if self.key_hash is None else self.key_hash.copy()

    @property
    def sn(self) -> int:
        return self.change.first_sn

    @property
    def position(self) -> int:
        """The position at which the next frame begins."""
        return self.change.position


class SampleClaims:
    """The open claims of one writer, each given up after ``timeout`` ns. ``flush`` sends the batch in progress."""

    def __init__(
        self,
        state: WriterState,
        history: WriterHistory,
        unsent: UnsentChanges,
        readers: MatchedReaders,
        acks: Acknowledgments,
        sender: Sender,
        admission: Admission,
        deadline: OfferedDeadline,
        expire: Callable[[int], None],
        *,
        timeout: int,
        flush: Callable[[int], None],
    ) -> None:
        self.open: deque[SampleClaim] = deque()
        self._state = state
        self._history = history
        self._keep_last = history.keep_last
        self._unsent = unsent
        self._readers = readers
        self._acks = acks
        self._sender = sender
        self._admission = admission
        self._deadline = deadline
        self._expire = expire
        self._keyed = is_keyed(state.guid.entity)
        self._timeout = timeout
        self._flush = flush

    def make(
        self, size: int, *, timestamp: int, now: int, wall_clock: int | None = None
    ) -> SampleClaim | None:
        """Claim memory for one sample of ``size`` bytes, padded to a multiple of 4; None under back-pressure.

        The caller passes the claim to :meth:`commit_claim` or :meth:`abort`; until then all later samples wait.
        ``wall_clock``: see `StatefulWriter.write_samples`. Raises UsageError for a timestamp that RTPS cannot carry,
        and for a sample that cannot be claimed.
        """
        state = self._state
        check_timestamp(timestamp)
        state.touch()
        self._flush(now)
        self._history.lifespan.note_time(timestamp if wall_clock is None else wall_clock, now)
        self._expire(now)
        padded = size + 3 & ~3
        framed = padded + overhead(0, with_key_hash=self._keyed)
        if framed > self._readers.framing.budget:
            raise UsageError(f"a sample of {size} bytes is too large to be claimed: write it instead")
        if state.set_begun:
            raise UsageError("a coherent set is open, in which no sample can be claimed: write it instead")
        one = Samples.uniform(np.zeros(padded, np.uint8), 1, padded)
        count = self._admission.admit(one, 0, keyed=self._keyed, now=now)
        self._admission.conclude(now, wrote=False)
        if not count:
            return None
        state.written_stamp, state.written_at = timestamp, now
        sn = state.last_sn + 1
        unknown = np.zeros((1, KEY_HASH_BYTES), np.uint8) if self._keyed else None
        (block,) = frame(one, state.guid.entity, sn, budget=framed, key_hashes=unknown)
        change = Change(sn, sn, timestamp, DataContent(block), state.last_batch_sn, is_claimed=True)
        claim = None
        try:
            claim = self._unsent.claim(change)
            self._sender.published(change)
            if self._keep_last is not None:
                self._keep_last.begin_claim(sn)
            key_hash = framed_key_hash(block.data) if self._keyed else None
            made = SampleClaim(change, claim, block.data[block.nbytes - padded :], key_hash, now)
            state.counters.written_samples += 1
            self._unsent.frames.placing = None  # ``open`` holds it from now on
            self.open.append(made)
        except BaseException:
            self._sender.complete()
            if claim is not None:
                claim.abort()
            if change.last_sn <= state.last_sn:  # it has its number: later samples must not wait for it
                self._withdraw(change, now)
            raise
        return made

    def commit_claim(self, claim: SampleClaim, *, now: int) -> bool:
        """The sample is complete. Returns False if the claim was given up before, since it was overdue."""
        self._state.touch()
        if claim not in self.open or not claim.claim.commit():
            return False
        self._committed(claim, now)
        return True

    def _committed(self, claim: SampleClaim, now: int) -> None:
        # The claim stays open until all of this is done: after an exception, the next abort completes it.
        claim.change.is_claimed = False
        if self._keep_last is not None:
            self._keep_last.end_claim(claim.sn, claim.key_hash)
        if self._deadline.is_finite:
            self._deadline.written(claim.key_hash, 0, now)
        self.open.remove(claim)
        self._resume(now)

    def abort(self, claim: SampleClaim, *, now: int) -> None:
        """Abort a claim: its number becomes a GAP. A claim that is committed to the log is completed instead: an
        exception interrupted its :meth:`commit_claim`."""
        state = self._state
        state.touch()
        if claim not in self.open:
            return
        if claim.claim.is_committed:
            self._committed(claim, now)
            return
        claim.claim.abort()
        claim.detach()
        self._withdraw(claim.change, now)
        self.open.remove(claim)
        state.counters.written_samples -= 1

    def _withdraw(self, change: Change, now: int) -> None:
        """Withdraw a claimed change, so that nothing waits for it. After an exception the call can be repeated."""
        self._history.withdraw(change)
        self._sender.gap(change.first_sn, change.last_sn)
        self._unsent.withdraw(change)
        self._resume(now)

    def _resume(self, now: int) -> None:
        self._sender.transmit(now)
        self._acks.written(now)

    def abort_all(self, now: int) -> None:
        """Abort all open claims, because the writer closes."""
        while self.open:
            self.abort(self.open[0], now=now)

    def get_timer(self) -> int | None:
        """When the oldest claim is overdue."""
        return self.open[0].at + self._timeout if self.open else None

    def handle_timer(self, now: int) -> None:
        """Give up claims that were not committed in time."""
        while self.open and now - self.open[0].at >= self._timeout:
            self._state.counters.unblocked_publications += 1
            self.abort(self.open[0], now=now)
