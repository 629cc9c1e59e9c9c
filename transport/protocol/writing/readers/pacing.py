"""How far a writer may send, and which readers it waits for: a flow control strategy, fed with reports of readers.

Our own readers report in status messages how far they have consumed and how many more bytes they can take. All other
readers only send ACKNACKs. What they acknowledge counts as consumed; the send window bounds what is written and not
acknowledged, so everything that is published may be sent to them.

Invariants: a limit that readers allowed stays allowed as long as none of them leaves; without reliable, active readers
there is no limit. A reader that has not reported its window yet is presumed to have a small one.
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

#: The presumed window of a reader before its first status message (Aeron's initial window).
_FIRST_WINDOW: Final = 128 << 10
#: A reader is at the top of its window with at most 1 / 2 ** 3 of it left to consume.
_TOP: Final = 3


class Pacing:
    """The flow control of one writer; ``active`` are the reliable readers that it waits for."""

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
        #: The limit that the readers have allowed, and how many readers there were then.
        self._allowed = 0
        self._readers = 0
        self._window = policy.window_bytes
        self._window_max = window_max
        self._numbers = numbers
        self._active = active
        #: The readers that report their window.
        self._reporting: set[Guid] = set()
        self._waits_for_all = type(strategy) is FlowControl
        #: Whether samples are sent to a multicast group.
        self.is_multicast = False
        #: The strategy for multicast, None if it is the same; and the one for unicast.
        self.of_groups: FlowControl | None = None
        self._of_unicast = strategy

    def reaches(self, *, groups: bool) -> None:
        """Note whether samples are sent to a multicast group from now on, and use the strategy for that."""
        self.is_multicast = groups
        if self.of_groups is not None:
            self.strategy = self.of_groups if groups else self._of_unicast
            self._waits_for_all = type(self.strategy) is FlowControl
            self.begin_anew()
            self.update()

    @property
    def is_connected(self) -> bool:
        """Whether the strategy has enough readers."""
        if self._waits_for_all and not self.wants_group:
            return True  # without a look at each reader
        return self.strategy.is_connected(self._receivers())

    @property
    def window(self) -> int:
        """Bytes that may be in flight if all active readers report their window; 0 if some do not."""
        active = self._active
        return self._window_max if active and active.keys() <= self._reporting else 0

    def least_window(self, matched: int) -> int:
        """The smallest window of ``matched`` readers; 0 if some do not report one."""
        active = self._active
        if not matched or len(active) != matched or not active.keys() <= self._reporting:
            return 0
        return min(proxy.receiver.window for proxy in active.values())

    @property
    def wants_group(self) -> bool:
        """Whether writes must wait until there is a group of readers."""
        return self.policy.group_min_size > 0

    def has_consumed(self, position: int) -> bool:
        """Whether the pacing readers have consumed everything up to ``position``, and their windows are open."""
        pacing = self.strategy.pacing(self._receivers()).values() if self._active else ()
        return all(receiver.position >= position and receiver.window > 0 for receiver in pacing)

    def join(self, proxy: ReaderProxy) -> None:
        """A reliable reader was matched; the caller then calls :meth:`update`."""
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
        """A status message came. The consumed position never falls, but the window may. Samples that were never sent
        do not count as consumed, whatever the message claims."""
        receiver = proxy.receiver
        receiver.group_tag = message.group_tag
        proxy.consumed = max(proxy.consumed, min(message.consumption_sn, sent_sn))
        if proxy.is_on_host:
            return  # its position in the log is newer
        receiver.position = max(receiver.position, self._numbers.position_of(proxy.consumed))
        # Repairs, and readers on this host, reach at most a term behind the sender.
        receiver.window, receiver.presumed = min(message.receiver_window, self._window_max), False

    def on_position(self, proxy: ReaderProxy, position: int, window: int) -> None:
        """A reader on this host has read the log up to ``position`` (Aeron's IPC: no status messages)."""
        receiver = proxy.receiver
        self._reporting.add(proxy.guid)
        receiver.position = max(receiver.position, position)
        receiver.window, receiver.presumed = window, False

    def begin_anew(self) -> None:
        """Forget the allowed limit: the strategy, or the way in which readers get samples, has changed."""
        self._allowed = 0

    def update(self) -> None:
        """Compute the limit anew."""
        if self._waits_for_all and not self._reporting:  # no reader has a window
            self._readers = len(self._active)
            self.limit = INFINITE
            return
        receivers = self._receivers()
        if len(receivers) < self._readers:
            self._allowed = 0  # a reader left, which may have allowed the limit
        self._readers = len(receivers)
        if not receivers:
            self.limit = INFINITE
            return
        limit = self.strategy.limit(receivers)
        # An unlimited or presumed limit is not kept: readers that join later have not allowed it.
        if limit < INFINITE and not any(receiver.presumed for receiver in receivers.values()):
            self._allowed = max(self._allowed, limit)
        self.limit = max(self._allowed, limit)

    def acknowledged(self, none: int) -> int:
        """The number up to which samples count as acknowledged; ``none`` if there is no reader to wait for."""
        active = self._active
        if not active:
            return none
        return self.strategy.acknowledged(
            self._receivers(), {guid: proxy.acked for guid, proxy in active.items()}
        )

    def is_held_up_without(self, proxy: ReaderProxy) -> bool:
        """Whether a reader that left changes nothing: all are waited for, and another one has acknowledged no more."""
        return self._waits_for_all and any(each.acked <= proxy.acked for each in self._active.values())

    def is_behind(self, proxy: ReaderProxy, snd_pos: int) -> bool:
        """Whether another active reader is at the top of its window, and allows more than this one."""
        for each in self._active.values():
            other = each.receiver
            top = snd_pos - (min(other.window, self._window_max) >> _TOP)
            if each is not proxy and other.limit > proxy.receiver.limit and other.position >= top:
                return True
        return False

    def consumed(self, none: int) -> int:
        """The lowest number that readers report as consumed; ``none`` if no reader reports one."""
        return min(
            (proxy.consumed for proxy in self._active.values() if proxy.info.status_messages), default=none
        )

    @property
    def send_limit(self) -> tuple[int, Guid | None]:
        """The position up to which the writer may send, INFINITE if nothing limits it; and the pacing reader whose
        limit is reached first."""
        pacing = self.strategy.pacing(self._receivers()) if self._active else {}
        slowest = min(pacing, key=lambda guid: pacing[guid].limit, default=None)
        return self.limit, slowest if slowest in self._active else None

    def _receivers(self) -> dict[Guid, Receiver]:
        active = self._active.items()
        here = {guid: proxy.receiver for guid, proxy in active if not proxy.rejoins_at}
        return here or {guid: proxy.receiver for guid, proxy in active}
