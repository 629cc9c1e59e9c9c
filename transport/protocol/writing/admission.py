"""How much a writer takes of what is written, and what stops the rest: back-pressure by name.

RESOURCE_LIMITS, max_batches, the send window, the publication's limit, and the queue of the flow controller; the
first that is full decides.
"""

from __future__ import annotations

from typing import Final

from ...limits import FLOW_CONTROLLER_BYTES_MAX
from ...qos import LENGTH_UNLIMITED
from ...wire.samples import Samples
from ..policies import BatchPolicy
from .batching import Batcher
from .changes import fitting
from .history import WriterHistory
from .publication import Publication
from .send_window import SendWindow

#: What ``blocked_by`` says where tokens are lacking.
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
        history: WriterHistory,
        window: SendWindow,
        batcher: Batcher | None,
        publication: Publication,
    ) -> None:
        self._max_batches = policy.max_batches
        self._history = history
        self._window = window
        self._batcher = batcher
        self._publication = publication

    def acceptable(
        self,
        samples: Samples,
        framing: int,
        datagram: int,
        *,
        kept: bool,
        awaited: bool,
        backlog: int | None,
        now: int,
    ) -> tuple[int, str]:
        """How many samples from the front are let in; what stops the rest, "" if nothing does.

        Each takes ``framing`` bytes more, a datagram has room for ``datagram``. ``kept``: they go into the history;
        ``awaited``: readers have to acknowledge them; ``backlog``: bytes that wait for tokens, None without a
        flow controller.
        """
        count, stopped_by, batcher = samples.count, "", self._batcher
        if kept:
            room = self._history.room
            queued = 0 if batcher is None else batcher.count
            if room is not None and room - queued < count:
                count, stopped_by = max(room - queued, 0), "resource_limits.max_samples"
            if self._max_batches not in (LENGTH_UNLIMITED, 0) and batcher is not None:
                batches = max(0, self._max_batches - self._history.batches)
                if (fits := batcher.fitting(samples, count, batches)) < count:
                    count, stopped_by = fits, "max_batches"
        if backlog is not None and count:
            # Half of it has to be free: else it would be filled in dribbles.
            room = FLOW_CONTROLLER_BYTES_MAX - backlog
            fits = fitting(samples, count, framing, room) if 2 * room >= FLOW_CONTROLLER_BYTES_MAX else 0
            if fits < count:
                count, stopped_by = fits, FLOW_CONTROLLER
        nbytes = 0 if batcher is None else batcher.nbytes
        if count and (room := self._publication.room(nbytes)) is not None:
            # As in the send window: not in dribbles.
            enough = min(2 * datagram, self._publication.positions.term_window // 2)
            fits = fitting(samples, count, framing, room - room // _PLACES) if room >= enough else 0
            if fits < count:
                count, stopped_by = fits, PUBLICATION_LIMIT
        if not awaited or not count:
            return count, stopped_by
        fits = self._window.fitting(samples, count, framing, datagram, now, queued=nbytes, batcher=batcher)
        return fits, stopped_by if fits == count else "send window"
