"""How far a writer may send, and what it waits for: a flow control strategy, fed with what readers report.

Our own readers report in status messages what they have consumed and how much more they take. The only report of all
others is the ACKNACK: what they acknowledge counts as consumed, and the send window bounds what is written but not
acknowledged, so all that is published may be sent to them.

Invariants: what readers once allowed stays allowed as long as none of them leaves; without reliable, active readers
there is no limit. A reader that has not reported yet what it takes is presumed to take a little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....structure import INFINITE, Guid
from ....wire.status_messages import StatusMessage
from ...policies import WriterPolicy
from ..flow import FlowControl, Receiver
from ..publication import SequencePositions
from .reader_proxy import ReaderProxy

#: What a reader that sends status messages is presumed to take before its first one (Aeron's initial window).
_FIRST_WINDOW: Final = 128 << 10
#: A reader is at the top of its window with at most 1 / 2 ** 3 of it left to consume.
_TOP: Final = 3


class Pacing:
    """The flow control of one writer; ``active`` are its reliable readers that are waited for."""

    def __init__(
        self,
        policy: WriterPolicy,
        strategy: FlowControl,
        numbers: SequencePositions,
        active: Mapping[Guid, ReaderProxy],
        window_max: int,
    ) -> None:
        self.policy = strategy.policy
        self.strategy = strategy
        self.limit = INFINITE
        #: What the readers have allowed, and how many there were then.
        self._allowed = 0
        self._readers = 0
        self._window = policy.window_bytes
        self._window_max = window_max
        self._numbers = numbers
        self._active = active
        #: The readers that report what they take.
        self._reporting: set[Guid] = set()
        self._waits_for_all = type(strategy) is FlowControl
        #: Samples are sent to a multicast group.
        self.is_multicast = False
        #: The strategy meanwhile, and the one at other times; None: they are one.
        self.of_groups: FlowControl | None = None
        self._of_unicast = strategy

    def reaches(self, *, groups: bool) -> None:
        """Samples are sent to a multicast group from now on, or are not."""
        self.is_multicast = groups
        if self.of_groups is not None:
            self.strategy = self.of_groups if groups else self._of_unicast
            self._waits_for_all = type(self.strategy) is FlowControl
            self.begin_anew()
            self.update()

    @property
    def is_connected(self) -> bool:
        """Whether the strategy has the readers that it wants."""
        if self._waits_for_all and not self.wants_group:
            return True  # without looking at all of them
        return self.strategy.is_connected(self._receivers())

    @property
    def window(self) -> int:
        """Bytes that may be in flight where all readers report how much they take; 0: they do not."""
        active = self._active
        return self._window_max if active and active.keys() <= self._reporting else 0

    def least_window(self, matched: int) -> int:
        """Bytes that each of ``matched`` readers takes; 0: some do not report that."""
        active = self._active
        if not matched or len(active) != matched or not active.keys() <= self._reporting:
            return 0
        return min(proxy.receiver.window for proxy in active.values())

    @property
    def wants_group(self) -> bool:
        """Whether nothing is to be written before a group is there."""
        return self.policy.group_min_size > 0

    def has_consumed(self, position: int) -> bool:
        """Whether the readers that pace have consumed all that was sent, up to ``position``, and take more."""
        pacing = self.strategy.pacing(self._receivers()).values() if self._active else ()
        return all(receiver.position >= position and receiver.window > 0 for receiver in pacing)

    def join(self, proxy: ReaderProxy) -> None:
        """A reliable reader was matched; :meth:`update` follows."""
        reports = proxy.info.status_messages
        window = min(_FIRST_WINDOW, self._window, self._window_max) if reports else INFINITE
        proxy.consumed = proxy.acked
        proxy.receiver = Receiver(self._numbers.position_of(proxy.acked), window, presumed=reports)
        if reports:
            self._reporting.add(proxy.guid)

    def leave(self, proxy: ReaderProxy) -> None:
        """A reliable reader is not matched any more."""
        self._reporting.discard(proxy.guid)
        self.update()

    def on_acknowledgment(self, proxy: ReaderProxy) -> None:
        """The reader has acknowledged more."""
        if not proxy.info.status_messages:
            proxy.receiver.position = self._numbers.position_of(proxy.acked)

    def on_status(self, proxy: ReaderProxy, message: StatusMessage, sent_sn: int) -> None:
        """A status message came. What is consumed never falls, but the window may; what was never sent counts as not
        consumed, whatever the message claims."""
        receiver = proxy.receiver
        receiver.group_tag = message.group_tag
        proxy.consumed = max(proxy.consumed, min(message.consumption_sn, sent_sn))
        if proxy.is_on_host:
            return  # its position in the log is newer
        receiver.position = max(receiver.position, self._numbers.position_of(proxy.consumed))
        # What is repaired, and read on this host, lies a term behind the sender at most.
        receiver.window, receiver.presumed = min(message.receiver_window, self._window_max), False

    def on_position(self, proxy: ReaderProxy, position: int, window: int) -> None:
        """A reader on this host has read the log up to there (Aeron's IPC: no status messages)."""
        receiver = proxy.receiver
        self._reporting.add(proxy.guid)
        receiver.position = max(receiver.position, position)
        receiver.window, receiver.presumed = window, False

    def begin_anew(self) -> None:
        """What readers are sent, or who paces, is another: what was allowed before no longer holds."""
        self._allowed = 0

    def update(self) -> None:
        """Compute the limit anew."""
        if self._waits_for_all and not self._reporting:  # nobody has a window: none is looked at
            self._readers = len(self._active)
            self.limit = INFINITE
            return
        receivers = self._receivers()
        if len(receivers) < self._readers:
            self._allowed = 0  # by a reader that is gone
        self._readers = len(receivers)
        if not receivers:
            self.limit = INFINITE
            return
        limit = self.strategy.limit(receivers)
        # That nobody limits the writer is no promise of those who join later.
        if limit < INFINITE and not any(receiver.presumed for receiver in receivers.values()):
            self._allowed = max(self._allowed, limit)
        self.limit = max(self._allowed, limit)

    def acknowledged(self, none: int) -> int:
        """The number up to which nothing is waited for any more; ``none`` if there is no reader to wait for."""
        active = self._active
        if not active:
            return none
        return self.strategy.acknowledged(
            self._receivers(), {guid: proxy.acked for guid, proxy in active.items()}
        )

    def is_held_up_without(self, proxy: ReaderProxy) -> bool:
        """Whether a reader that is gone makes no difference: another one has no more, and all are waited for."""
        return self._waits_for_all and any(each.acked <= proxy.acked for each in self._active.values())

    def is_behind(self, proxy: ReaderProxy, snd_pos: int) -> bool:
        """Whether another reader that is waited for is at the top of its window, and takes more than this one."""
        for each in self._active.values():
            other = each.receiver
            top = snd_pos - (min(other.window, self._window_max) >> _TOP)
            if each is not proxy and other.limit > proxy.receiver.limit and other.position >= top:
                return True
        return False

    def consumed(self, none: int) -> int:
        """The lowest of the numbers that readers report to have consumed; ``none`` if no reader reports any."""
        return min(
            (proxy.consumed for proxy in self._active.values() if proxy.info.status_messages), default=none
        )

    @property
    def send_limit(self) -> tuple[int, Guid | None]:
        """How far the writer may send, INFINITE where nothing limits it, and the reader that it waits for: the one
        whose limit is reached first."""
        pacing = self.strategy.pacing(self._receivers()) if self._active else {}
        slowest = min(pacing, key=lambda guid: pacing[guid].limit, default=None)
        return self.limit, slowest if slowest in self._active else None

    def _receivers(self) -> dict[Guid, Receiver]:
        active = self._active.items()
        here = {guid: proxy.receiver for guid, proxy in active if not proxy.rejoins_at}
        return here or {guid: proxy.receiver for guid, proxy in active}
