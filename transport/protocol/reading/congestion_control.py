"""How much a writer may send ahead of what its reader consumed, judged by what the network lost (Aeron).

The reader does it: it alone sees the loss, and its window is what the writer goes by. A window is in bytes; it
may shrink at any time, though what was offered before is not taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cbrt
from typing import Final, NamedTuple, Protocol

from ...structure import NANOSECONDS
from ..policies import CongestionControlPolicy

#: The constants of CUBIC as Aeron has them: growth, and the part of the window that a loss costs.
C: Final = 0.4
B: Final = 0.2
INITIAL_DATAGRAMS: Final = 10
#: What a datagram is taken to hold until a longer one is seen: the payload of Aeron's default MTU.
DATAGRAM: Final = 1_408


class Outcome(NamedTuple):
    """The window to offer, and whether the writer must hear of it at once."""

    window: int
    force_status_message: bool = False


class CongestionControl(Protocol):
    """What sizes the window of one stream; ``now`` and durations in ns, positions in bytes since the match."""

    def on_track_rebuild(
        self, *, now: int, consumption: int, received: int, datagram: int, loss: bool
    ) -> Outcome:
        """Told every quarter of a window, and at each loss.

        ``consumption`` and ``received``: up to where the stream is consumed, and the most that was seen of it.
        ``datagram``: the longest one seen, at least DATAGRAM. ``loss``: a gap is new, and is not of the same
        round trip as the one told before.
        """
        ...

    def on_rtt_measurement(self, rtt: int, *, now: int) -> None:
        """A round trip took so long."""
        ...


CongestionControlFactory = Callable[[CongestionControlPolicy], CongestionControl]


class StaticWindow:
    """Always the same window: no congestion control at all."""

    def __init__(self, policy: CongestionControlPolicy) -> None:
        self._outcome = Outcome(min(policy.initial_window or policy.max_window, policy.max_window))

    def on_track_rebuild(
        self, *, now: int, consumption: int, received: int, datagram: int, loss: bool
    ) -> Outcome:
        return self._outcome

    def on_rtt_measurement(self, rtt: int, *, now: int) -> None:
        pass


class Cubic:
    """CUBIC in units of datagrams, with Aeron's constants.

    Other than Aeron's, which begins next to the largest window, it begins with slow start (RFC 9438 §4.10): what
    is consumed makes the window grow by as much until something is lost. From then on the window is a cubic
    function of the time since the last loss, looked at once a round trip.

    Invariant: one datagram <= window <= ``max_window``, if that is at least a datagram.
    """

    def __init__(self, policy: CongestionControlPolicy) -> None:
        self._policy = policy
        self._datagram = DATAGRAM
        self._max_cwnd = max(1, policy.max_window // DATAGRAM)
        self.cwnd = self._initial_cwnd()
        #: The window at the last loss, and seconds from there until it is that large again; 0: nothing was lost yet.
        self.w_max = 0
        self.k = 0.0
        self.rtt = policy.min_rtt
        self._lost_at = 0
        self._updated_at = 0
        self._consumption = 0
        #: When it was last looked how much of the window is used (0: never), what had come by then, and whether it is.
        self._seen_at = 0
        self._seen = 0
        self._is_used = True
        self._is_measured = False

    def _initial_cwnd(self) -> int:
        initial = self._policy.initial_window // self._datagram or 1
        return min(initial if self._policy.initial_window else INITIAL_DATAGRAMS, self._max_cwnd)

    @property
    def window(self) -> int:
        return self.cwnd * self._datagram

    def on_rtt_measurement(self, rtt: int, *, now: int) -> None:
        self.rtt, self._is_measured = max(rtt, 1), True

    def on_track_rebuild(
        self, *, now: int, consumption: int, received: int, datagram: int, loss: bool
    ) -> Outcome:
        if datagram > self._datagram:
            self._resize(datagram)
        if loss:
            self.w_max, self._lost_at, self._updated_at = self.cwnd, now, now
            self.k = cbrt(self.w_max * B / C)
            self.cwnd = max(1, int(self.cwnd * (1.0 - B)))
            return Outcome(self._offer(consumption, received), True)
        # With one datagram at a time the writer waits for each word of ours.
        force = self.cwnd == 1 and consumption > self._consumption
        self._note_use(received, now)
        if not self._is_used:
            self._consumption = consumption
        elif not self.w_max:
            self._slow_start(consumption)
        else:
            self._consumption = consumption
            if now - self._updated_at >= self.rtt:
                self._updated_at = now
                self.cwnd = min(max(self._w_cubic(now), 1), self._max_cwnd)
        return Outcome(self._offer(consumption, received), force)

    def _offer(self, consumption: int, received: int) -> int:
        """What has arrived is on its way no more, consumed or not: the writer goes on while a hole is repaired."""
        return min(self.window + received - consumption, max(self._policy.max_window, self.window))

    def _note_use(self, received: int, now: int) -> None:
        """A window of which the writer uses less than half proves nothing, and does not grow (RFC 9438 §5.8). Where
        no round trip is measured it is thought to be used."""
        elapsed = now - self._seen_at
        if not self._is_measured or elapsed < self.rtt:
            return
        if self._seen_at:
            self._is_used = 2 * (received - self._seen) * self.rtt >= elapsed * self.window
            if not self._is_used:
                self._lost_at += elapsed
        self._seen_at, self._seen = now, received

    def _resize(self, datagram: int) -> None:
        """Datagrams are longer than they were thought to be: the same window, in other units."""
        untouched = not self.w_max and self.cwnd == self._initial_cwnd()
        window, before, self._datagram = self.window, self._datagram, datagram
        self._max_cwnd = max(1, self._policy.max_window // datagram)
        self.cwnd = min(max(window // datagram, 1), self._max_cwnd)
        if self.w_max:
            self.w_max = max(self.w_max * before // datagram, 1)
            self.k = cbrt(self.w_max * B / C)
        elif untouched:
            self.cwnd = self._initial_cwnd()

    def _slow_start(self, consumption: int) -> None:
        datagrams = (consumption - self._consumption) // self._datagram
        self._consumption += datagrams * self._datagram
        self.cwnd = min(self.cwnd + datagrams, self._max_cwnd)

    def _w_cubic(self, now: int) -> int:
        elapsed = (now - self._lost_at) / NANOSECONDS
        cwnd = self.w_max + int(C * (elapsed - self.k) ** 3)
        if self._policy.tcp_mode and cwnd < self.w_max:
            # RFC 9438 §4.3: what TCP Reno would have by now
            reno = self.w_max * (1.0 - B) + 3.0 * B / (2.0 - B) * elapsed / (self.rtt / NANOSECONDS)
            cwnd = max(cwnd, int(reno))
        return cwnd


_BUILT_IN: Final[dict[str, CongestionControlFactory]] = {"static": StaticWindow, "cubic": Cubic}


def built_in(policy: CongestionControlPolicy) -> CongestionControl:
    """The one that ``policy.kind`` names; of a kind of the user's own the owner hands in the factory, and until
    then its windows are static."""
    return _BUILT_IN.get(policy.kind, StaticWindow)(policy)
