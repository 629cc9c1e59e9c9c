"""The readers of a publication log that hold its writer back, and untethered ones that are excluded (Aeron's
tethering).

::

    ACTIVE   The reader's position counts. LINGER follows when it was in the last eighth of the window for the limit
             time-out, while another consumer was at the top of the window.
    LINGER   The reader's position still counts, while it learns of its state and stops reading. RESTING follows after
             the same time-out.
    RESTING  The reader's position counts no more. ACTIVE follows after the resting time-out, at the newest position.

A tethered reader is always ACTIVE: the writer waits for it, however slow it is.

Invariant: a reader that is the only consumer is never let go, since it holds up no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..structure import Guid
from .subscriber_slots import SubscriberState

#: The bottom of the window, as a part of it.
_BOTTOM: Final = 8


class Consumer(NamedTuple):
    """One reader of the log, which has consumed everything before ``position``."""

    position: int
    tethered: bool


class Tethering:
    """The states of the untethered readers of one log; positions and ``window`` in bytes, time-outs in ns."""

    def __init__(self, window: int, limit_timeout: int, resting_timeout: int) -> None:
        self._window = window
        self._limit_timeout = limit_timeout
        self._resting_timeout = resting_timeout
        #: The state of each untethered reader, and since when; for ACTIVE: when it was last above the bottom.
        self._states: dict[Guid, tuple[SubscriberState, int]] = {}

    def state(self, guid: Guid) -> SubscriberState:
        return self._states.get(guid, (SubscriberState.ACTIVE, 0))[0]

    def update(
        self, consumers: Mapping[Guid, Consumer], sent: int, *, now: int
    ) -> list[tuple[Guid, SubscriberState]]:
        """The readers that change their state, and their new states.

        ``sent`` is the position sent to consumers that do not read the log; 0: there are none.
        """
        changes = []
        self._states = {guid: state for guid, state in self._states.items() if guid in consumers}
        for guid, consumer in consumers.items():
            if consumer.tethered:
                self._states.pop(guid, None)
                continue
            state, since = self._states.setdefault(guid, (SubscriberState.ACTIVE, now))
            follows = self._next(guid, consumers, sent, state, since, now)
            if follows is not state:
                changes.append((guid, follows))
            if follows is not state or (
                state is SubscriberState.ACTIVE and not self._lags(guid, consumers, sent)
            ):
                self._states[guid] = follows, now
        return changes

    def _next(
        self,
        guid: Guid,
        consumers: Mapping[Guid, Consumer],
        sent: int,
        state: SubscriberState,
        since: int,
        now: int,
    ) -> SubscriberState:
        if state is SubscriberState.RESTING:
            return SubscriberState.ACTIVE if now >= since + self._resting_timeout else state
        if now < since + self._limit_timeout:
            return state
        if state is SubscriberState.LINGER:
            return SubscriberState.RESTING
        return SubscriberState.LINGER if self._lags(guid, consumers, sent) else state

    def _lags(self, guid: Guid, consumers: Mapping[Guid, Consumer], sent: int) -> bool:
        """Whether the reader is in the bottom of the window while another consumer has reached the top."""
        others = (
            consumer.position
            for other, consumer in consumers.items()
            if other != guid and self.state(other) is not SubscriberState.RESTING
        )
        top = max(others, default=0)
        bottom = max(top, sent) - self._window + self._window // _BOTTOM
        return consumers[guid].position <= bottom and max(top, sent) > 0

    def get_timer(self) -> int | None:
        """When :meth:`update` may change a state without a change of positions; None: never."""
        timeouts = {SubscriberState.RESTING: self._resting_timeout}
        due = (
            since + timeouts.get(state, self._limit_timeout)
            for state, since in self._states.values()
            if state is not SubscriberState.ACTIVE
        )
        return min(due, default=None)
