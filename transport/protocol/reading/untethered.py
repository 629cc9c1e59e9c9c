"""A reader with ``tether=false`` lets its writers go when it is too slow for them, and rejoins (Aeron's tethering).

What it offers a writer is its window. When that has been in the last eighth of what congestion control would allow for
the limit time-out, the reader rests: it tells the writer so, drops what comes and acknowledges it, and after the
resting time-out goes on with the newest. A writer whose publication log it reads says itself when it rests
(`writing.tethering`).

Invariants:
* nothing of a resting writer is held, asked for or handed out; ``expected`` follows what the writer announces;
* what is passed meanwhile is among the lost samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...structure import INFINITE, Guid
from ..policies import ReaderCounters, ReaderPolicy
from .delivery import Delivery
from .reassembly import Reassembly
from .responder import Responder
from .status_messages import StatusMessages
from .writer_proxy import WriterProxy

#: The part of the window that is its bottom, in bits.
_BOTTOM: Final = 3


class Untethered:
    """Which writers of one reader rest, and which soon will; ``writers`` is the reader's own."""

    def __init__(
        self,
        policy: ReaderPolicy,
        counters: ReaderCounters,
        writers: Mapping[Guid, WriterProxy],
        delivery: Delivery,
        reassembly: Reassembly,
        status: StatusMessages,
        responder: Responder,
    ) -> None:
        self._policy = policy
        self._counters = counters
        self._writers = writers
        self._delivery = delivery
        self._reassembly = reassembly
        self._status = status
        self._responder = responder
        #: Since when the windows of writers are in their bottom, and until when writers rest.
        self._since: dict[Guid, int] = {}
        self._until: dict[Guid, int] = {}
        #: When to look at the windows again.
        self._look_at = 0

    # --- rest and rejoin -------------------------------------------------------------------------

    def rest(self, proxy: WriterProxy) -> None:
        """Let a writer go until :meth:`rejoin`."""
        if proxy.resting:
            return
        proxy.resting = True
        self._counters.unavailable += 1
        self._since.pop(proxy.guid, None)
        self._delivery.closed.pop(proxy.guid, None)
        self._status.starved.pop(proxy.guid, None)
        if proxy.synced:
            self.pass_by(proxy, proxy.announced)
        self._reassembly.discard_below(proxy, INFINITE + 1)
        proxy.held.clear()
        self._responder.tell_at_once(proxy)

    def rejoin(self, proxy: WriterProxy) -> None:
        """Take part again: what comes next is the newest."""
        if proxy.resting:
            proxy.resting = False
            self._until.pop(proxy.guid, None)
            self._responder.tell_at_once(proxy)

    def pass_by(self, proxy: WriterProxy, last_sn: int) -> None:
        """All up to ``last_sn`` is not for us."""
        if proxy.synced and last_sn >= proxy.expected:
            self._counters.lost_samples += last_sn + 1 - proxy.expected
            if proxy.sets is not None:
                proxy.sets.lose(proxy.expected, last_sn)
            proxy.expected = last_sn + 1

    def forget(self, writer: Guid) -> None:
        """A writer is gone."""
        self._since.pop(writer, None)
        self._until.pop(writer, None)

    # --- time ------------------------------------------------------------------------------------

    def get_timer(self) -> int | None:
        """When :meth:`handle_timer` wants to be called; None: not before a window closes."""
        if self._policy.tether:
            return None
        timers = list(self._until.values())
        if self._status.starved:
            timers.append(self._look_at)
        return min(timers, default=None)

    def handle_timer(self, now: int) -> None:
        if self._policy.tether:
            return
        for guid in [guid for guid, until in self._until.items() if until <= now]:
            self.rejoin(self._writers[guid])
        if now < self._look_at:
            return
        timeout = self._policy.untethered_window_limit_timeout
        self._look_at = now + max(timeout >> _BOTTOM, 1)
        low = [guid for guid in self._status.starved if self._is_low(self._writers[guid])]
        self._since = {guid: self._since.get(guid, now) for guid in low}
        for guid, since in list(self._since.items()):
            if now >= since + timeout:
                self._until[guid] = now + self._policy.untethered_resting_timeout
                self.rest(self._writers[guid])

    def _is_low(self, proxy: WriterProxy) -> bool:
        stream = proxy.stream
        return proxy.reliable and not proxy.is_on_host and stream.told_window <= stream.window >> _BOTTOM
