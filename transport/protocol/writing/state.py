"""The state of one writer that its stages share.

Every stage may read all of it. The stage on the right alone sets a field::

    guid, qos, policy, batch, message_size    nobody: the writer is created with them
    counters                                  each stage counts what it does itself
    last_sn                                   whatever assigns a number: `Sender`; `Framer` for numbers that it skips;
                                              the history, which skips one when a set is aborted
    last_batch_sn                             `Sender`
    sent_sn, sent_batch_sn                    `UnsentChanges`
    set_begun, sets                           `CoherentSets`; it and `Sender` drop the sets that are sent
    blocked_by                                `Admission`
    written_stamp, written_at                 `StatefulWriter.queue` and `SampleClaims`
    is_asynchronous, backlog                  `AsynchronousPublishing`; `Sender` adds to the backlog
    touch                                     the participant's `Agenda`

State that one stage alone needs belongs to that stage: the send window, the history, the positions, the proxies.

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
    """The state that the stages of one writer share; sequence numbers begin at ``first_sn``."""

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
        #: The number of the newest sample, and of the newest batch; ``first_sn - 1`` if there is none.
        self.last_sn = self.last_batch_sn = first_sn - 1
        #: The newest sample, and the newest batch, that has been sent.
        self.sent_sn = self.sent_batch_sn = first_sn - 1
        #: The first number of the open coherent set; 0 if none is open.
        self.set_begun = 0
        #: First and last number of each coherent set that is not sent yet; the last one of the open set is INFINITE.
        self.sets: deque[tuple[int, int]] = deque()
        #: The :class:`WriterLimit` that stopped the last write; "" if the write took all its samples.
        self.blocked_by = ""
        #: Source timestamp of the newest write, and when it was; writes to the batch in progress count.
        self.written_stamp, self.written_at = NO_TIMESTAMP, 0
        #: Whether datagrams wait for tokens of a token bucket, and how many bytes wait.
        self.is_asynchronous = False
        self.backlog = 0
        #: Called when the writer's timers may have changed (:mod:`..agenda`).
        self.touch: Callable[[], None] = untouched

    @property
    def is_congested(self) -> bool:
        """Datagrams wait for tokens. HEARTBEATs and repairs are withheld: they would wait, and be requested again."""
        return self.is_asynchronous and self.backlog > 0
