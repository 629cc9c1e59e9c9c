"""What is true of one writer now, as far as its stages have to agree on it.

Every stage may read all of it. Each field has one writer::

    guid, qos, policy, batch, message_size    nobody: the writer is created with them
    counters                                  each stage counts what it does itself
    last_sn                                   what takes a number: `Sender`; `Framer` for what it skips; the history,
                                              which skips one when a set is aborted
    last_batch_sn                             `Sender`
    sent_sn, sent_batch_sn                    `UnsentChanges`
    set_begun, sets                           `CoherentSets`; it and `Sender` drop the sets that are sent
    blocked_by                                `Admission`
    written_stamp, written_at                 `StatefulWriter.queue` and `SampleClaims`
    is_asynchronous, backlog                  `AsynchronousPublishing`; `Sender` adds to the backlog
    touch                                     the participant's `Agenda`

What only one stage needs to know is that stage's own: the send window, the history, the positions, the proxies.

Invariants: ``sent_sn <= last_sn`` and ``sent_batch_sn <= last_batch_sn``; none of the four falls. ``set_begun`` is 0 or
at most ``last_sn + 1``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...qos import Qos
from ...structure import Guid
from ...wire.samples import NO_TIMESTAMP
from ..agenda import untouched
from ..policies import BatchPolicy, WriterCounters, WriterPolicy


class WriterState:
    """See the module. Sequence numbers begin at ``first_sn``."""

    __slots__ = (
        "backlog",
        "batch",
        "blocked_by",
        "counters",
        "guid",
        "is_asynchronous",
        "last_batch_sn",
        "last_sn",
        "message_size",
        "policy",
        "qos",
        "sent_batch_sn",
        "sent_sn",
        "set_begun",
        "sets",
        "touch",
        "written_at",
        "written_stamp",
    )

    def __init__(
        self,
        guid: Guid,
        qos: Qos,
        policy: WriterPolicy,
        batch: BatchPolicy,
        *,
        message_size: int,
        first_sn: int = 1,
    ) -> None:
        self.guid = guid
        self.qos = qos
        self.policy = policy
        self.batch = batch
        #: Bytes of a datagram, at most.
        self.message_size = message_size
        self.counters = WriterCounters()
        #: The newest sample, and the newest batch, that has a number; one below the first if there is none.
        self.last_sn = self.last_batch_sn = first_sn - 1
        #: The newest sample, and the newest batch, that has been sent.
        self.sent_sn = self.sent_batch_sn = first_sn - 1
        #: The first number of the open coherent set; 0: none is open.
        self.set_begun = 0
        #: First and last number of each coherent set that is not sent yet, and of the open one, which has no last one.
        self.sets: deque[tuple[int, int]] = deque()
        #: What the last write could not take all for, a :class:`WriterLimit`; "" if it took all.
        self.blocked_by = ""
        #: Source timestamp of the newest write, be it only to the batch in progress, and when that was.
        self.written_stamp, self.written_at = NO_TIMESTAMP, 0
        #: Whether what is sent waits for tokens of a token bucket, and how many bytes wait.
        self.is_asynchronous = False
        self.backlog = 0
        #: Called when something is done to the writer (:mod:`..agenda`).
        self.touch: Callable[[], None] = untouched

    @property
    def is_congested(self) -> bool:
        """What is sent now would wait, and be asked for again meanwhile: no HEARTBEATs then, and no repairs."""
        return self.is_asynchronous and self.backlog > 0
