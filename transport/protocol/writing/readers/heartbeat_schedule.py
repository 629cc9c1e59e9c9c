"""Which readers get a HEARTBEAT, and at which interval (RTPS 2.5 §8.4.7.1.1; RTI: ``*heartbeat_period``).

The interval of a reader that is PACED (:mod:`.heartbeat_timer`) is the first of the following that applies. Once a
reader has answered none for half a minute, the interval is at least a tenth of its silence. That tenth is at most half
a minute; it is at most three seconds if unanswered HEARTBEATs are counted, so that their limit is soon reached::

    fast_heartbeat_period          the send window is full, or above its high watermark
    late_joiner_heartbeat_period   the reader has not caught up with the history it found
    a third of the keep duration   the reader sends no positive acknowledgements; heartbeat_period at most
    heartbeat_period               otherwise

Invariant: ``waiting`` holds the reliable readers whose timer is not IDLE: those that have not acknowledged everything,
or are not ready.
"""

from __future__ import annotations

from typing import Final

from ....structure import INFINITE, Guid
from ...policies import WriterPolicy
from .heartbeat_timer import UNRECEIVED
from .keep_duration import KeepDuration
from .reader_proxy import ReaderProxy

#: A reader that has answered no HEARTBEAT for this time has probably left. From then on its interval is a tenth of its
#: silence: three seconds at first.
_PATIENCE: Final = 30_000_000_000
#: The longest interval for such a reader; and if unanswered HEARTBEATs are counted.
_SELDOM: Final = 30_000_000_000
_SELDOM_COUNTED: Final = 3_000_000_000


class HeartbeatSchedule:
    """Schedules the HEARTBEATs of one writer that are not piggybacked on data."""

    def __init__(self, policy: WriterPolicy, keep: KeepDuration) -> None:
        self.policy = policy
        self.waiting: dict[Guid, ReaderProxy] = {}
        #: The send window is full, or above its high watermark.
        self.fast = False
        self._keep = keep
        self._data_sent_at = -INFINITE
        self._seldom = _SELDOM if policy.max_heartbeat_retries >= INFINITE else _SELDOM_COUNTED

    def begin(self, proxy: ReaderProxy, now: int) -> None:
        """The reader lacks something from now on, or was just matched."""
        if proxy.guid not in self.waiting:
            proxy.heartbeats.lacks(received=proxy.received)
            proxy.heartbeats.sent(self._interval(proxy, now), now)
            # Last, because a reader in ``waiting`` without a due time would wait for ever.
            self.waiting[proxy.guid] = proxy

    def end(self, proxy: ReaderProxy) -> None:
        """The reader has everything, or is not matched any more."""
        self.waiting.pop(proxy.guid, None)
        proxy.heartbeats.complete()

    def received(self, proxy: ReaderProxy, now: int) -> None:
        """An ACKNACK of the reader came: from now on its HEARTBEATs have the interval of a PACED reader."""
        if proxy.guid in self.waiting:
            proxy.heartbeats.hurries(self._interval(proxy, now), now)

    def set_fast(self, fast: bool, now: int) -> None:
        if fast and not self.fast:
            self.fast = True
            for proxy in self.waiting.values():
                proxy.heartbeats.hurries(self._interval(proxy, now), now)
        self.fast = fast

    def _interval(self, proxy: ReaderProxy, now: int) -> int:
        """Nanoseconds from one HEARTBEAT to the next."""
        if proxy.heartbeats.state is UNRECEIVED:
            interval = max(self.policy.heartbeat_period, proxy.heartbeats.unacknowledged_interval)
        else:
            interval = self._paced(proxy)
        activity = proxy.activity
        silence = now - activity.silent_since if activity.unanswered else 0
        return interval if silence < _PATIENCE else max(interval, min(silence // 10, self._seldom))

    def _paced(self, proxy: ReaderProxy) -> int:
        policy = self.policy
        if self.fast:
            return policy.fast_heartbeat_period
        if proxy.is_late_joiner:
            return policy.late_joiner_heartbeat_period
        if not proxy.positive_acks:  # at least two HEARTBEATs within the keep duration, since one may be lost
            kept = max(self._keep.duration // 3, policy.fast_heartbeat_period)
            return min(policy.heartbeat_period, kept)
        return policy.heartbeat_period

    def sent_to_all(self, last_sn: int, now: int) -> None:
        """A HEARTBEAT with ``last_sn`` was piggybacked on data to all readers."""
        for proxy in self.waiting.values():
            self._sent(proxy, last_sn, now)

    def data_sent(self, now: int) -> None:
        """Data was sent: readers that send status messages may answer it without a HEARTBEAT."""
        self._data_sent_at = now

    def _due_at(self, proxy: ReaderProxy) -> int:
        """For readers that send status messages the fast period starts once no more data is sent."""
        at, policy = proxy.heartbeats.due_at, self.policy
        if not self.fast or proxy.heartbeats.state is UNRECEIVED or not proxy.info.status_messages:
            return at
        fast = policy.fast_heartbeat_period
        return max(at, min(self._data_sent_at + fast, at - fast + policy.heartbeat_period))

    def due(self, last_sn: int, now: int) -> list[ReaderProxy]:
        """The readers that are due a HEARTBEAT with ``last_sn`` now; each counts as sent."""
        due = [proxy for proxy in self.waiting.values() if self._due_at(proxy) <= now]
        for proxy in due:
            proxy.heartbeats.overdue(self.policy.heartbeat_period)
            self._sent(proxy, last_sn, now)
        return due

    def _sent(self, proxy: ReaderProxy, last_sn: int, now: int) -> None:
        proxy.heartbeats.sent(self._interval(proxy, now), now)
        if proxy.positive_acks and proxy.acked < last_sn:
            proxy.activity.asked(self.policy.heartbeat_period, now)

    def get_timer(self) -> int | None:
        return min((self._due_at(proxy) for proxy in self.waiting.values()), default=None)
