"""How much a writer takes of what is written, and what stops the rest: back-pressure by name.

RESOURCE_LIMITS, max_batches, the send window, the publication's limit, and the queue of the flow controller; the
first that is full decides.
"""

from __future__ import annotations

from typing import Final

from ...errors import UsageError
from ...limits import FLOW_CONTROLLER_BYTES_MAX
from ...qos import LENGTH_UNLIMITED
from ...wire.samples import Samples
from ..policies import BatchPolicy
from .batching import Batcher
from .changes import fitting, overhead
from .coherent_sets import CoherentSets
from .matched_readers import MatchedReaders
from .sender import Sender

#: What ``stopped_by`` says where tokens are lacking.
FLOW_CONTROLLER: Final = "flow controller"
#: Too few readers are there for the flow control strategy.
GROUP: Final = "flow_control.group_min_size"
#: The publication is as far ahead of its sender as it may be.
PUBLICATION_LIMIT: Final = "publication limit"
#: The part of the log that headers of frames and messages take, at most.
_PLACES: Final = 8


class Admission:
    """The bounds of one writer; ``batcher`` holds what waits in the batch in progress."""

    def __init__(
        self,
        policy: BatchPolicy,
        batcher: Batcher | None,
        readers: MatchedReaders,
        sender: Sender,
        sets: CoherentSets,
    ) -> None:
        #: What the last :meth:`admit` let not all in for, "" if it did.
        self.stopped_by = ""
        self._max_batches = policy.max_batches
        self._batcher = batcher
        self._readers = readers
        self._sender = sender
        self._history = sender.history
        self._publication = sender.publication
        self._positions = sender.publication.positions
        self._acks = sender.acks
        self._active = sender.acks.activity.active
        self._sets = sets

    def waits_for_group(self) -> bool:
        """Whether flow control wants more readers: nothing is let in then."""
        if self._positions.is_connected or not self._acks.pacing.wants_group:
            return False
        self.stopped_by = GROUP
        return True

    def admit(self, samples: Samples, flags: int, *, keyed: bool, now: int) -> int:
        """How many samples from the front are let in; ``flags`` are those of all, ``keyed``: with key hashes.

        Raises UsageError for what no acknowledgement makes room for.
        """
        framing = overhead(flags, with_key_hash=keyed, in_coherent_set=self._sets.begun != 0)
        count, self.stopped_by = self._acceptable(samples, framing, now)
        if not count and self.stopped_by not in ("", FLOW_CONTROLLER):
            self._sets.check_room(self.stopped_by)
        return count

    def check_fits(self, samples: Samples) -> None:
        """UsageError for samples that can never be let in all at once."""
        window = min(self._sender.policy.send_window_bytes, self._positions.term_window * 7 // 8)
        nbytes = int(samples.all_lengths().sum()) + samples.count * overhead(0, with_key_hash=False)
        if samples.count > 1 and nbytes > window:
            raise UsageError(
                f"{samples.count} samples of {nbytes} bytes never fit at once: {window} bytes may be on their way; "
                "write them, or offer fewer"
            )

    def _acceptable(self, samples: Samples, framing: int, now: int) -> tuple[int, str]:
        """How many, each with ``framing`` bytes around it, and what stops the rest."""
        count, stopped_by, batcher = samples.count, "", self._batcher
        if self._acks.keeps:
            room = self._history.room
            queued = 0 if batcher is None else batcher.count
            if room is not None and room - queued < count:
                count, stopped_by = max(room - queued, 0), "resource_limits.max_samples"
            if self._max_batches not in (LENGTH_UNLIMITED, 0) and batcher is not None:
                batches = max(0, self._max_batches - self._history.batches)
                if (fits := batcher.fitting(samples, count, batches)) < count:
                    count, stopped_by = fits, "max_batches"
        if self._sender.is_asynchronous and count:
            # Half of it has to be free: else it would be filled in dribbles.
            room = FLOW_CONTROLLER_BYTES_MAX - self._sender.backlog
            fits = fitting(samples, count, framing, room) if 2 * room >= FLOW_CONTROLLER_BYTES_MAX else 0
            if fits < count:
                count, stopped_by = fits, FLOW_CONTROLLER
        nbytes = 0 if batcher is None else batcher.nbytes
        datagram = self._readers.framing.budget
        if count and (room := self._publication.room(nbytes)) is not None:
            # As in the send window: not in dribbles.
            enough = min(2 * datagram, self._positions.term_window // 2)
            fits = fitting(samples, count, framing, room - room // _PLACES) if room >= enough else 0
            if fits < count:
                count, stopped_by = fits, PUBLICATION_LIMIT
        if not count or not self._active:
            return count, stopped_by
        window = self._acks.window
        fits = window.fitting(samples, count, framing, datagram, now, queued=nbytes, batcher=batcher)
        return fits, stopped_by if fits == count else "send window"
