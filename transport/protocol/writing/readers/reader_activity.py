"""Which readers a writer waits for, and the events of RELIABLE_READER_ACTIVITY_CHANGED.

Invariant: ``active`` holds the readers whose :mod:`.activity` is ACTIVE, and no others.
"""

from __future__ import annotations

from ....limits import EVENTS_MAX
from ....structure import INFINITE, Guid
from ....value_classes import value
from ...policies import WriterCounters, WriterPolicy
from .activity import FALLS_SILENT, RESTS, RESUMES, ActivityEvent
from .reader_proxy import ReaderProxy
from .reader_repairs import Missing


@value
class ReaderActivityChanged:
    """A reliable reader became inactive, or active again; the counts are those at that moment."""

    reader: Guid
    is_active: bool
    active_count: int
    inactive_count: int


class ReaderActivity:
    """Tracks which reliable readers of one writer are active."""

    def __init__(
        self, policy: WriterPolicy, counters: WriterCounters, receiver_timeout: int = INFINITE
    ) -> None:
        self.policy = policy
        self.counters = counters
        self.gives_up = min(policy.max_heartbeat_retries, receiver_timeout) < INFINITE
        self._retries = policy.max_heartbeat_retries
        self._timeout = receiver_timeout
        #: The readers that the writer waits for.
        self.active: dict[Guid, ReaderProxy] = {}
        #: How many of them send no positive acknowledgements.
        self.unacknowledging = 0
        self._inactive: set[Guid] = set()
        self._events: list[ReaderActivityChanged] = []

    def add_reader(self, proxy: ReaderProxy) -> None:
        self._activate(proxy)
        self._count()

    def remove_reader(self, guid: Guid) -> None:
        self._deactivate(guid)
        self._inactive.discard(guid)
        self._count()

    def silent(self, now: int) -> list[ReaderProxy]:
        """Make readers inactive that left too many HEARTBEATs unanswered, or for too long; returns these readers."""
        silent = [proxy for proxy in self.active.values() if self._is_silent(proxy, now)]
        for proxy in silent:
            self._on(proxy, FALLS_SILENT)
        return silent

    def _is_silent(self, proxy: ReaderProxy, now: int) -> bool:
        activity = proxy.activity
        over = activity.unanswered > 0 and now - activity.silent_since >= self._timeout
        return over or activity.unanswered > self._retries

    def received(self, proxy: ReaderProxy, missing: Missing, last_sn: int) -> None:
        """An ACKNACK came. It counts as an answer unless it only shows that the reader makes no progress."""
        repeats = proxy.activity.repeats(missing, last_sn)
        if repeats and self.policy.inactivate_nonprogressing_readers:
            return
        if proxy.activity.answered():
            self._changed(proxy)

    def rest(self, proxy: ReaderProxy, *, rests: bool) -> bool:
        """The reader reports whether it rests; returns whether that changed its state."""
        return self._on(proxy, RESTS if rests else RESUMES)

    def take_events(self) -> list[ReaderActivityChanged]:
        events, self._events = self._events, []
        return events

    def _on(self, proxy: ReaderProxy, event: ActivityEvent) -> bool:
        changed = proxy.activity.on(event)
        if changed:
            self._changed(proxy)
        return changed

    def _changed(self, proxy: ReaderProxy) -> None:
        """The reader's state changed: report it if the reader became active or inactive."""
        is_active = proxy.active
        if is_active == (proxy.guid in self.active):
            return
        if is_active:
            self._inactive.discard(proxy.guid)
            self._activate(proxy)
        else:
            self._deactivate(proxy.guid)
            self._inactive.add(proxy.guid)
        self._count()
        self.counters.reader_activity_changes += 1
        if len(self._events) < EVENTS_MAX:
            counts = len(self.active), len(self._inactive)
            self._events.append(ReaderActivityChanged(proxy.guid, is_active, *counts))

    def _activate(self, proxy: ReaderProxy) -> None:
        self.active[proxy.guid] = proxy
        self.unacknowledging += not proxy.positive_acks

    def _deactivate(self, guid: Guid) -> None:
        if (proxy := self.active.pop(guid, None)) is not None:
            self.unacknowledging -= not proxy.positive_acks

    def _count(self) -> None:
        self.counters.active_readers = len(self.active)
        self.counters.inactive_readers = len(self._inactive)
