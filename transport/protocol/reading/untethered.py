"""An untethered reader lets its writers go when it is too slow for them, and rejoins (Aeron's tethering).

The reader offers each writer a window. When the window has been in the last eighth of what congestion control would
allow for the limit time-out, the writer rests: a status message announces it, what the writer sends is dropped and
acknowledged, and after the resting time-out the reader goes on with the newest sample. A reader of a publication log
may be let go by the log's own tethering first (:mod:`....log.tethering`).

Invariants:
* nothing of a writer that rests is held, asked for or handed out; ``expected`` follows what the writer announces;
* what is passed while a writer rests is counted among the lost samples.
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

#: A window is nearly closed below 1 / 2 ** 3 of what congestion control allows.
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
        #: Since when the windows of writers have been in their last eighth, and until when writers rest.
        self._since: dict[Guid, int] = {}
        self._until: dict[Guid, int] = {}
        #: When to look at the windows again.
        self._look_at = 0

    def rest(self, writer: Guid) -> None:
        """Let a writer go until :meth:`rejoin`, however long that takes."""
        self._until.pop(writer, None)
        proxy = self._writers.get(writer)
        if proxy is None or proxy.resting:
            return
        proxy.resting = True
        self._delivery.counters.unavailable += 1
        self._since.pop(writer, None)
        self._status.starved.pop(writer, None)
        self._delivery.let_go(proxy)
        self._report(proxy)

    def rejoin(self, writer: Guid) -> None:
        """Go on with a writer: what comes next is the newest."""
        self._until.pop(writer, None)
        proxy = self._writers.get(writer)
        if proxy is not None and proxy.resting:
            proxy.resting = False
            self._report(proxy)

    def forget(self, writer: Guid) -> None:
        """A writer is gone."""
        self._since.pop(writer, None)
        self._until.pop(writer, None)

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` has to be called; None: not before a window closes."""
        if self._policy.tether:
            return None
        timers = list(self._until.values())
        if self._status.starved or self._since:
            timers.append(self._look_at)
        return min(timers, default=None)

    def handle_timer(self, now: int) -> None:
        if self._policy.tether:
            return
        for writer in [writer for writer, until in self._until.items() if until <= now]:
            self.rejoin(writer)
        if now < self._look_at:
            return
        timeout = self._policy.untethered_window_limit_timeout
        self._look_at = now + max(timeout >> _BOTTOM, 1)
        low = [writer for writer in self._status.starved if self._is_low(self._writers[writer])]
        self._since = {writer: self._since.get(writer, now) for writer in low}
        for writer, since in list(self._since.items()):
            if now >= since + timeout:
                self.rest(writer)
                self._until[writer] = now + self._policy.untethered_resting_timeout

    def _report(self, proxy: WriterProxy) -> None:
        if proxy.info.status_messages:
            self._responder.report_at_once(proxy)

    def _is_low(self, proxy: WriterProxy) -> bool:
        stream = proxy.stream
        return proxy.reliable and stream.offered_window <= stream.window >> _BOTTOM
