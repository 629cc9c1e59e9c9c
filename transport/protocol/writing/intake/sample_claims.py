"""Samples that are written in place: room in the publication log, claimed first and committed later (tryClaim).

A claimed sample has its sequence number already, so nothing behind it is sent before it is committed. When it is
aborted, or is not committed in time, its place becomes padding, and its number a GAP.

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
    """Room for one serialized sample; ``data`` is to be filled, its encapsulation header included.

    On a keyed topic ``key_hash``, (1, 16), is to be filled, too.
    """

    __slots__ = ("at", "change", "claim", "data", "key_hash")

    def __init__(self, change: Change, claim: LogClaim, data: U8, key_hash: U8 | None, at: int) -> None:
        self.change = change
        self.claim = claim
        self.data = data
        self.key_hash = key_hash
        #: When it was made.
        self.at = at

    def detach(self) -> None:
        """It was given up: what is still filled in must not reach the log, whose room others will use."""
        self.data = self.data.copy()
        self.key_hash = None if self.key_hash is None else self.key_hash.copy()

    @property
    def sn(self) -> int:
        return self.change.first_sn

    @property
    def position(self) -> int:
        """Where what comes behind it begins."""
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
        """Room for one sample of ``size`` bytes, padded to a multiple of 4, in the publication log; None: not now.

        The claim is to be handed to :meth:`commit` or :meth:`abort`; until then what is written behind it waits.
        ``wall_clock``: see `StatefulWriter.write`. Raises UsageError for a timestamp that RTPS cannot carry, and for a
        sample that cannot be claimed.
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
            self._unsent.frames.placing = None  # it is looked after here from now on
            self.open.append(made)
        except BaseException:
            self._sender.complete()
            if claim is not None:
                claim.abort()
            if (
                change.last_sn <= state.last_sn
            ):  # it has its number: what comes behind it must not wait for it
                self._withdraw(change, now)
            raise
        return made

    def commit_claim(self, claim: SampleClaim, *, now: int) -> bool:
        """The sample is complete. False: it was overdue, and has been given up."""
        self._state.touch()
        if claim not in self.open or not claim.claim.commit():
            return False
        self._committed(claim, now)
        return True

    def _committed(self, claim: SampleClaim, now: int) -> None:
        # It is open until all of this is done: what an exception stops here, the next abort completes.
        claim.change.is_claimed = False
        if self._keep_last is not None:
            self._keep_last.end_claim(claim.sn, claim.key_hash)
        if self._deadline.is_finite:
            self._deadline.written(claim.key_hash, 0, now)
        self.open.remove(claim)
        self._go_on(now)

    def abort(self, claim: SampleClaim, *, now: int) -> None:
        """There will be no such sample: its number is a GAP. One that lies in the log already is committed instead: an
        exception has stopped its :meth:`commit`."""
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
        """Nothing waits for a claimed change any more. What an exception stops here can be done once more."""
        self._history.withdraw(change)
        self._sender.gap(change.first_sn, change.last_sn)
        self._unsent.withdraw(change)
        self._go_on(now)

    def _go_on(self, now: int) -> None:
        self._sender.transmit(now)
        self._acks.written(now)

    def abort_all(self, now: int) -> None:
        """The writer leaves: what is not complete will not be."""
        while self.open:
            self.abort(self.open[0], now=now)

    def get_timer(self) -> int | None:
        """When the oldest claim is overdue."""
        return self.open[0].at + self._timeout if self.open else None

    def handle_timer(self, now: int) -> None:
        """Give up what nobody committed in time."""
        while self.open and now - self.open[0].at >= self._timeout:
            self._state.counters.unblocked_publications += 1
            self.abort(self.open[0], now=now)
