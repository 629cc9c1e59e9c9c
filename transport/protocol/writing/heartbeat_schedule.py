"""When which reader is sent a HEARTBEAT (RTPS 2.5 §8.4.7.1.1 heartbeatPeriod; RTI: ``*heartbeat_period``).

Invariants: ``waiting`` holds the reliable readers that have not acknowledged everything, or are not ready:
only they have HEARTBEATs due. The rate is fixed for readers that were heard, until they have answered none for
half a minute. To one that was never heard, whose address may be somebody else's, it slows down from the start.
"""

from __future__ import annotations

from typing import Final

from ...structure import INFINITE, Guid
from ..policies import WriterPolicy
from .keep_duration import KeepDuration
from .reader_proxy import ReaderProxy

#: Between HEARTBEATs to a reader that was never heard, at most; to one that does not answer any more.
_SLOW: Final = 3_000_000_000
#: A reader that has left all HEARTBEATs of this time unanswered is hardly there.
_PATIENCE: Final = 30_000_000_000


class HeartbeatSchedule:
    """The HEARTBEATs of one writer that do not ride along with data."""

    def __init__(self, policy: WriterPolicy, keep: KeepDuration) -> None:
        self.policy = policy
        self.waiting: dict[Guid, ReaderProxy] = {}
        #: The send window is full, or above its high watermark.
        self.fast = False
        self._keep = keep
        self._sent_at = -INFINITE

    def begin(self, proxy: ReaderProxy, now: int) -> None:
        """It lacks something from now on, or was sent its first HEARTBEAT."""
        if proxy.guid not in self.waiting:
            self.waiting[proxy.guid] = proxy
            proxy.heartbeat_at = now + self.interval(proxy, now)

    def end(self, proxy: ReaderProxy) -> None:
        """It has everything, or is gone."""
        self.waiting.pop(proxy.guid, None)
        proxy.heartbeat_at = INFINITE

    def heard(self, proxy: ReaderProxy, now: int) -> None:
        """It has spoken: at the fixed rate from now on."""
        if proxy.guid in self.waiting:
            proxy.heartbeat_at = min(proxy.heartbeat_at, now + self.interval(proxy, now))

    def set_fast(self, fast: bool, now: int) -> None:
        if fast and not self.fast:
            self.fast = True
            for proxy in self.waiting.values():
                proxy.heartbeat_at = min(proxy.heartbeat_at, now + self.interval(proxy, now))
        self.fast = fast

    def interval(self, proxy: ReaderProxy, now: int) -> int:
        """From one HEARTBEAT to the next."""
        if not proxy.heard:
            return max(self.policy.heartbeat_period, proxy.unheard_interval)
        interval = self._interval(proxy)
        if proxy.unanswered and now - proxy.silent_since >= _PATIENCE:
            return max(interval, _SLOW)
        return interval

    def _interval(self, proxy: ReaderProxy) -> int:
        policy = self.policy
        if self.fast:
            return policy.fast_heartbeat_period
        if proxy.is_late_joiner:
            return policy.late_joiner_heartbeat_period
        if not proxy.positive_acks:  # there has to be one before the samples are given up
            kept = max(self._keep.duration // 2, policy.fast_heartbeat_period)
            return min(policy.heartbeat_period, kept)
        return policy.heartbeat_period

    def all_told(self, last_sn: int, now: int) -> None:
        """A HEARTBEAT, with ``last_sn``, rode along with data."""
        for proxy in self.waiting.values():
            self._told(proxy, last_sn, now)

    def sent(self, now: int) -> None:
        """Data left: readers that send status messages may answer it unasked."""
        self._sent_at = now

    def _due_at(self, proxy: ReaderProxy) -> int:
        """To such readers the fast pace begins when no more data leaves."""
        at, policy = proxy.heartbeat_at, self.policy
        if not self.fast or not proxy.heard or not proxy.info.status_messages:
            return at
        fast = policy.fast_heartbeat_period
        return max(at, min(self._sent_at + fast, at - fast + policy.heartbeat_period))

    def due(self, last_sn: int, now: int) -> list[ReaderProxy]:
        """Who is to be sent one now, and will have been."""
        due = [proxy for proxy in self.waiting.values() if self._due_at(proxy) <= now]
        for proxy in due:
            if not proxy.heard:
                slower = max(2 * proxy.unheard_interval, 2 * self.policy.heartbeat_period)
                proxy.unheard_interval = min(slower, _SLOW)
            self._told(proxy, last_sn, now)
        return due

    def _told(self, proxy: ReaderProxy, last_sn: int, now: int) -> None:
        proxy.heartbeat_at = now + self.interval(proxy, now)
        proxy.note_heartbeat(last_sn, self.policy.heartbeat_period, now)

    def get_timer(self) -> int | None:
        return min((self._due_at(proxy) for proxy in self.waiting.values()), default=None)
