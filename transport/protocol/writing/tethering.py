"""Which readers of a publication log hold its writer, and which untethered ones are let go (Aeron's tethering).

::

    ACTIVE   its position counts. In the last eighth of the window for the limit time-out, while another consumer is
             at the top of it: LINGER
    LINGER   its position still counts, while it is told and stops reading; after the same time-out: RESTING
    RESTING  its position counts no more; after the resting time-out: ACTIVE, at the newest position

A tethered one is always ACTIVE, and waited for however slow it is.

Invariant: one that is alone is never let go, for nobody is held up by it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from ...structure import Guid

#: The part of the window that is its bottom.
_BOTTOM: Final = 8


class TetherState(enum.IntEnum):
    """Aeron's names; the numbers are those in a log's slots."""

    ACTIVE = 1
    LINGER = 2
    RESTING = 3


class Consumer(NamedTuple):
    """One reader of the log: all before ``position`` is consumed."""

    position: int
    tethered: bool


class Tethering:
    """The states of the untethered readers of one log; positions and ``window`` in bytes, time-outs in ns."""

    def __init__(self, window: int, limit_timeout: int, resting_timeout: int) -> None:
        self._window = window
        self._limit_timeout = limit_timeout
        self._resting_timeout = resting_timeout
        #: State of the untethered, and since when; of the ACTIVE: when they last were not in the bottom.
        self._states: dict[Guid, tuple[TetherState, int]] = {}

    def state(self, guid: Guid) -> TetherState:
        return self._states.get(guid, (TetherState.ACTIVE, 0))[0]

    def update(
        self, consumers: Mapping[Guid, Consumer], sent: int, *, now: int
    ) -> list[tuple[Guid, TetherState]]:
        """Who changes into which state. ``sent``: how far is sent to consumers that are not in the log; 0: to none."""
        changes = []
        self._states = {guid: state for guid, state in self._states.items() if guid in consumers}
        for guid, consumer in consumers.items():
            if consumer.tethered:
                self._states.pop(guid, None)
                continue
            state, since = self._states.setdefault(guid, (TetherState.ACTIVE, now))
            follows = self._next(guid, consumers, sent, state, since, now)
            if follows is not state:
                changes.append((guid, follows))
            if follows is not state or (
                state is TetherState.ACTIVE and not self._lags(guid, consumers, sent)
            ):
                self._states[guid] = follows, now
        return changes

    def _next(
        self,
        guid: Guid,
        consumers: Mapping[Guid, Consumer],
        sent: int,
        state: TetherState,
        since: int,
        now: int,
    ) -> TetherState:
        if state is TetherState.RESTING:
            return TetherState.ACTIVE if now >= since + self._resting_timeout else state
        if now < since + self._limit_timeout:
            return state
        if state is TetherState.LINGER:
            return TetherState.RESTING
        return TetherState.LINGER if self._lags(guid, consumers, sent) else state

    def _lags(self, guid: Guid, consumers: Mapping[Guid, Consumer], sent: int) -> bool:
        """Whether it is in the bottom of the window whose top another consumer has reached."""
        others = (
            consumer.position
            for other, consumer in consumers.items()
            if other != guid and self.state(other) is not TetherState.RESTING
        )
        top = max(others, default=0)
        bottom = max(top, sent) - self._window + self._window // _BOTTOM
        return consumers[guid].position <= bottom and max(top, sent) > 0

    def get_timer(self) -> int | None:
        """When :meth:`update` may have something to change, whatever the positions; None: not before they do."""
        timeouts = {TetherState.RESTING: self._resting_timeout}
        due = (
            since + timeouts.get(state, self._limit_timeout)
            for state, since in self._states.values()
            if state is not TetherState.ACTIVE
        )
        return min(due, default=None)
