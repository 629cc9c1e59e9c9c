"""Which readers a writer waits for: RELIABLE_READER_ACTIVITY_CHANGED (``max_heartbeat_retries``).

A HEARTBEAT, by itself or behind data, counts when the reader lacks something, acknowledges at all, and the one
counted before was sent a heartbeat_period ago or longer: those of a burst, and the fast ones, count as one in
each period. When the reader answers none of max_heartbeat_retries, and the next one is due, it is *inactive* until
its next ACKNACK. So it is when it has answered none for receiver_timeout of the flow control, and as long as it says
that it rests (an untethered reader that stays behind).
"""

from __future__ import annotations

from dataclasses import dataclass

from ...limits import EVENTS_MAX
from ...qos import LENGTH_UNLIMITED
from ...structure import INFINITE, Guid
from ..policies import WriterCounters, WriterPolicy
from .reader_proxy import Missing, ReaderProxy


@dataclass(frozen=True, slots=True)
class ReaderActivityChanged:
    """A reliable reader became inactive, or active again; the counts are from then."""

    reader: Guid
    is_active: bool
    active_count: int
    inactive_count: int


class ReaderActivity:
    """The reliable readers of one writer, active and inactive."""

    def __init__(
        self, policy: WriterPolicy, counters: WriterCounters, receiver_timeout: int = INFINITE
    ) -> None:
        self.policy = policy
        self.counters = counters
        self.gives_up = policy.max_heartbeat_retries != LENGTH_UNLIMITED or receiver_timeout < INFINITE
        self._retries = (
            INFINITE if policy.max_heartbeat_retries == LENGTH_UNLIMITED else policy.max_heartbeat_retries
        )
        self._timeout = receiver_timeout
        #: Those that are waited for.
        self.active: dict[Guid, ReaderProxy] = {}
        #: How many of them acknowledge nothing.
        self.unacknowledging = 0
        self._inactive: set[Guid] = set()
        self._events: list[ReaderActivityChanged] = []

    def add(self, proxy: ReaderProxy) -> None:
        self.active[proxy.guid] = proxy
        self._count()

    def remove(self, guid: Guid) -> None:
        self.active.pop(guid, None)
        self._inactive.discard(guid)
        self._count()

    def silent(self, now: int) -> list[ReaderProxy]:
        """Readers that have left too many HEARTBEATs unanswered, or for too long, now inactive."""
        silent = [proxy for proxy in self.active.values() if self._is_silent(proxy, now)]
        for proxy in silent:
            self._leave(proxy)
        return silent

    def _leave(self, proxy: ReaderProxy) -> None:
        del self.active[proxy.guid]
        self._inactive.add(proxy.guid)
        self._change(proxy, is_active=False)

    def _wake(self, proxy: ReaderProxy) -> None:
        self._inactive.discard(proxy.guid)
        self.active[proxy.guid] = proxy
        self._change(proxy, is_active=True)

    def _is_silent(self, proxy: ReaderProxy, now: int) -> bool:
        over = proxy.unanswered > 0 and now - proxy.silent_since >= self._timeout
        return over or proxy.unanswered > self._retries

    def heard(self, proxy: ReaderProxy, missing: Missing, last_sn: int) -> None:
        """An ACKNACK is an answer, unless it only repeats that the reader does not get on."""
        lacks = missing.base if missing.is_empty else missing.ranges()[0][0]
        repeats = lacks == proxy.lacks and lacks <= last_sn
        proxy.lacks = lacks
        if repeats and self.policy.inactivate_nonprogressing_readers:
            return
        proxy.unanswered = 0
        if not proxy.active and not proxy.rests:
            self._wake(proxy)

    def rest(self, proxy: ReaderProxy, *, rests: bool) -> bool:
        """It says that it rests: it is inactive until it says otherwise. True: that is news."""
        if proxy.rests == rests:
            return False
        proxy.rests = rests
        if rests and proxy.active:
            self._leave(proxy)
        elif not rests and not proxy.active:
            self._wake(proxy)
        return True

    def take_events(self) -> list[ReaderActivityChanged]:
        events, self._events = self._events, []
        return events

    def _change(self, proxy: ReaderProxy, *, is_active: bool) -> None:
        proxy.active = is_active
        self._count()
        self.counters.reader_activity_changes += 1
        if len(self._events) < EVENTS_MAX:
            counts = len(self.active), len(self._inactive)
            self._events.append(ReaderActivityChanged(proxy.guid, is_active, *counts))

    def _count(self) -> None:
        self.unacknowledging = sum(not proxy.positive_acks for proxy in self.active.values())
        self.counters.active_readers = len(self.active)
        self.counters.inactive_readers = len(self._inactive)
