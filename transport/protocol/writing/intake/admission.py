"""Back-pressure: how many samples of a write are admitted, and which limit stops the rest.

The limits are RESOURCE_LIMITS, max_batches, the send window, the publication's limit, and the queue of the token
bucket; the one that admits the fewest samples decides.
"""

from __future__ import annotations

from typing import Final

from ....errors import CoherentSetError, UsageError, WriterLimit
from ....limits import FLOW_CONTROLLER_BYTES_MAX
from ....structure import INFINITE
from ....wire.samples import Samples
from ..batching import Batcher
from ..changes import fitting, overhead
from ..publication import PLACE_BYTES, PublicationResult, UnsentChanges, WriterHistory
from ..readers import Acknowledgments, MatchedReaders
from ..sending import Sender
from ..state import WriterState

#: Headers of frames and messages take at most this fraction of the log.
_PLACES: Final = 8


class Admission:
    """Applies the limits of one writer; ``batcher`` holds the batch in progress."""

    def __init__(
        self,
        state: WriterState,
        batcher: Batcher | None,
        history: WriterHistory,
        unsent: UnsentChanges,
        readers: MatchedReaders,
        acks: Acknowledgments,
        sender: Sender,
    ) -> None:
        #: The limit that stopped the last :meth:`admit`; "" if it admitted all samples.
        self.stopped_by = ""
        self._state = state
        self._max_batches = state.batch.max_batches
        self._batcher = batcher
        self._history = history
        self._unsent = unsent
        self._positions = unsent.positions
        self._readers = readers
        self._acks = acks
        self._active = acks.activity.active
        self._pacing = acks.pacing
        self._window = acks.window
        self._sender = sender

    def waits_for_group(self) -> bool:
        """Whether flow control needs more readers before samples are admitted."""
        if self._positions.is_connected or not self._pacing.wants_group:
            return False
        self.stopped_by = WriterLimit.GROUP
        return True

    def admit(self, samples: Samples, flags: int, *, keyed: bool, now: int) -> int:
        """How many samples from the front are admitted; ``flags`` are those of all, ``keyed``: with key hashes.

        Raises UsageError if no acknowledgement can ever free capacity.
        """
        framing = overhead(flags, with_key_hash=keyed, in_coherent_set=self._state.set_begun != 0)
        count, self.stopped_by = self._acceptable(samples, framing, now)
        if not count and self.stopped_by not in ("", WriterLimit.FLOW_CONTROLLER):
            self._check_set(self.stopped_by)
        return count

    def conclude(self, now: int, *, wrote: bool) -> None:
        """Note which limit stopped the rest, after the admitted samples, if any (``wrote``), were sent."""
        state, stopped_by = self._state, self.stopped_by
        if stopped_by:
            state.counters.back_pressured += 1
            # At the publication's limit the writer waits for status messages, not for acknowledgements.
            useful = stopped_by != WriterLimit.PUBLICATION
            if useful and wrote and self._window.has_unannounced and state.policy.heartbeats_per_max_samples:
                self._sender.heartbeats.piggyback(now)
        if stopped_by or state.blocked_by:
            self._acks.blocked(bool(stopped_by), now)
        state.blocked_by = stopped_by

    def _check_set(self, stopped_by: str) -> None:
        """Raise CoherentSetError if ``stopped_by`` is reached by the open coherent set alone."""
        begun, window = self._state.set_begun, self._window
        if begun and window.is_full_of_one_set:
            raise CoherentSetError(
                f"the coherent set begun at sample {begun} is too large: it reaches {stopped_by} at "
                f"{window.nbytes >> 10} KiB, and readers acknowledge no part of a set before its end; "
                "write smaller sets"
            )

    def begin_term(self, count: int, nbytes: int, *, keyed: bool) -> PublicationResult | None:
        """Begin the next term of the publication log if ``count`` samples of ``nbytes`` in all do not fit this one.

        See `LogFrames.begin_term`. With batching no term is begun, since the samples are not framed yet.
        """
        nbytes += count * overhead(0, with_key_hash=keyed)
        messages = 2 * nbytes // self._readers.framing.budget + 1  # each but the last is more than half full
        nbytes += messages * PLACE_BYTES
        return self._unsent.frames.begin_term(nbytes, rotate=self._batcher is None)

    def check_fits(self, samples: Samples) -> None:
        """Raise UsageError for samples that can never be admitted all at once."""
        window = min(self._window.bytes_max, self._positions.term_window * 7 // 8)
        nbytes = int(samples.all_lengths().sum()) + samples.count * overhead(0, with_key_hash=False)
        if samples.count > 1 and nbytes > window:
            raise UsageError(
                f"{samples.count} samples of {nbytes} bytes never fit at once: {window} bytes may be in flight; "
                "offer fewer samples, or write them"
            )

    def _acceptable(self, samples: Samples, framing: int, now: int) -> tuple[int, str]:
        """How many samples, each with ``framing`` bytes around it, are admitted, and the limit that stops the rest."""
        count, stopped_by, batcher = samples.count, "", self._batcher
        if self._active or self._history.is_for_late_joiners:
            capacity = self._history.capacity
            queued = 0 if batcher is None else batcher.count
            if capacity - queued < count:
                count, stopped_by = max(capacity - queued, 0), WriterLimit.MAX_SAMPLES
            if self._max_batches not in (INFINITE, 0) and batcher is not None:
                batches = max(0, self._max_batches - self._history.batches)
                if (fits := batcher.fitting(samples, count, batches)) < count:
                    count, stopped_by = fits, WriterLimit.MAX_BATCHES
        if self._state.is_asynchronous and count:
            # Half of the queue must be free, so that it is not filled in small pieces.
            free = FLOW_CONTROLLER_BYTES_MAX - self._state.backlog
            fits = fitting(samples, count, framing, free) if 2 * free >= FLOW_CONTROLLER_BYTES_MAX else 0
            if fits < count:
                count, stopped_by = fits, WriterLimit.FLOW_CONTROLLER
        nbytes = 0 if batcher is None else batcher.nbytes
        datagram = self._readers.framing.budget
        if count and (space := self._unsent.capacity(nbytes)) is not None:
            # As in the send window, no small pieces.
            enough = min(2 * datagram, self._positions.term_window // 2)
            fits = fitting(samples, count, framing, space - space // _PLACES) if space >= enough else 0
            if fits < count:
                count, stopped_by = fits, WriterLimit.PUBLICATION
        if not count or not self._active:
            return count, stopped_by
        fits = self._window.fitting(samples, count, framing, datagram, now, queued=nbytes, batcher=batcher)
        return fits, stopped_by if fits == count else WriterLimit.SEND_WINDOW
