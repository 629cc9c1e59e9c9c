"""An untethered reader lets its writers go when others wait for it, and rejoins (Aeron's tethering).

States of each writer::

    ACTIVE   The reader takes all samples. LINGER follows when it was in the last eighth of its window for the limit
             time-out, and the writer answered each question by announcing that other readers wait.
    LINGER   The decision is made and counted; the writer still waits for the reader, which still takes all samples.
             RESTING follows after the same time-out.
    RESTING  A status message announces this state: the writer no longer waits, and its samples are dropped and
             acknowledged. ACTIVE follows after the resting time-out, with the newest sample.

The reader does not know of other readers. So it asks the writer (wire.status_messages) while it is in the last eighth;
a reader that is alone stays ACTIVE, because it delays no other. A reader of a publication log may be let go by the
log's own tethering first (:mod:`....log.tethering`).

Invariants:
* no sample of a resting writer is held, requested or handed out; ``expected`` follows the writer's announcements;
* samples passed while a writer rests are counted as lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...structure import Guid
from ..policies import ReaderPolicy
from .flow.status_reporter import StatusReporter
from .ordering.delivery import Delivery
from .ordering.writer_proxy import WriterProxy
from .response.responder import Responder

#: A window is nearly used up below 1 / 2 ** 3 of what congestion control allows.
_BOTTOM: Final = 3


class Untethered:
    """Which writers of one reader rest, and which soon will; ``writers`` is the reader's own."""

    def __init__(
        self,
        policy: ReaderPolicy,
        writers: Mapping[Guid, WriterProxy],
        delivery: Delivery,
        status: StatusReporter,
        responder: Responder,
    ) -> None:
        self._policy = policy
        self._writers = writers
        self._delivery = delivery
        self._status = status
        self._responder = responder
        #: Since when writers have announced that others wait, until when they linger, and until when they rest.
        self._since: dict[Guid, int] = {}
        self._lingers: dict[Guid, int] = {}
        self._until: dict[Guid, int] = {}
        #: When to look at the windows again.
        self._look_at = 0

    def rest(self, writer: Guid) -> None:
        """Let a writer go until :meth:`rejoin`, however long that takes."""
        lingered = self._lingers.pop(writer, None) is not None
        self._until.pop(writer, None)
        proxy = self._writers.get(writer)
        if proxy is None or proxy.resting:
            return
        proxy.resting = True
        self._delivery.counters.unavailable += not lingered
        self._since.pop(writer, None)
        self._status.starved.pop(writer, None)
        self._delivery.let_go(proxy)
        self._report(proxy)

    def rejoin(self, writer: Guid) -> None:
        """Resume a writer with its newest sample."""
        self._until.pop(writer, None)
        proxy = self._writers.get(writer)
        if proxy is not None and proxy.resting:
            proxy.resting = False
            self._report(proxy)

    def forget_writer(self, writer: Guid) -> None:
        """A writer is gone."""
        for times in (self._since, self._lingers, self._until):
            times.pop(writer, None)

    def on_answer(self, proxy: WriterProxy, *, others_wait: bool, now: int) -> None:
        """The writer announces whether it could send more to others if this reader took more."""
        writer, timeout = proxy.guid, self._policy.untethered_window_limit_timeout
        if self._policy.tether or proxy.resting or writer in self._lingers:
            return
        if not others_wait or not self._is_low(proxy):
            self._since.pop(writer, None)
        elif now >= self._since.setdefault(writer, now) + timeout:
            del self._since[writer]
            self._lingers[writer] = now + timeout
            self._delivery.counters.unavailable += 1

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` has to be called; None: there is no writer to let go."""
        if self._policy.tether:
            return None
        timers = [*self._lingers.values(), *self._until.values()]
        if any(self._may_ask(proxy) for proxy in self._writers.values()):
            timers.append(self._look_at)
        return min(timers, default=None)

    def handle_timer(self, now: int) -> None:
        if self._policy.tether:
            return
        for writer in [writer for writer, until in self._until.items() if until <= now]:
            self.rejoin(writer)
        for writer in [writer for writer, until in self._lingers.items() if until <= now]:
            self.rest(writer)
            self._until[writer] = now + self._policy.untethered_resting_timeout
        if now < self._look_at:
            return
        self._look_at = now + max(self._policy.untethered_window_limit_timeout >> _BOTTOM, 1)
        for writer, proxy in self._writers.items():
            if self._may_ask(proxy) and self._is_low(proxy):
                self._responder.ask(proxy, now)
            else:
                self._since.pop(writer, None)

    def _may_ask(self, proxy: WriterProxy) -> bool:
        """Whether the writer waits for this reader and supports the question, and no decision was made yet."""
        decided = proxy.resting or proxy.guid in self._lingers
        return proxy.reliable and proxy.info.status_messages and not decided

    def _report(self, proxy: WriterProxy) -> None:
        if proxy.info.status_messages:
            self._responder.report_at_once(proxy)

    def _is_low(self, proxy: WriterProxy) -> bool:
        """Whether the writer may send no more than the last eighth of the window, or than one datagram, which may be
        larger than that eighth."""
        stream = proxy.stream
        free = stream.reported_pos + stream.offered_window - stream.rcv_pos
        return free <= max(stream.window >> _BOTTOM, min(stream.datagram, stream.window >> 1))
