"""How much a writer may send ahead of its reader's consumption, according to the losses of the network (Aeron).

The reader decides, because only the reader sees losses; the writer follows the window that the reader offers. A window
is in bytes; it may shrink at any time, but bytes that were offered are not taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cbrt
from typing import Final, NamedTuple, Protocol

from ....structure import NANOSECONDS
from ...endpoint_info import WriterInfo
from ...policies import CongestionControlPolicy
from ..received_stream import DATAGRAM

#: The constants of CUBIC as Aeron has them: growth, and the part of the window that a loss costs.
C: Final = 0.4
B: Final = 0.2
INITIAL_DATAGRAMS: Final = 10


class WindowOutcome(NamedTuple):
    """The window to offer, in bytes, and whether it must be sent to the writer at once."""

    window: int
    force_status_message: bool = False


class CongestionControl(Protocol):
    """Sizes the window of one stream; ``now`` and durations are in ns, positions in bytes since the match.

    User code is a subclass, or any class with these methods, and is created with ``(policy, stream)``: the
    `CongestionControlPolicy` of the options, and a `StreamInfo`.
    """

    def on_track_rebuild(
        self, *, now: int, consumption: int, received: int, datagram: int, loss: bool
    ) -> WindowOutcome:
        """Called every quarter of a window, and at each loss.

        ``consumption`` and ``received``: the position up to which the stream is consumed, and the highest position
        received. ``datagram``: bytes of the longest datagram seen, at least DATAGRAM. ``loss``: there is a new gap, in
        another round trip than the loss reported before.
        """
        ...

    def on_rtt_measurement(self, rtt: int, *, now: int) -> None:
        """A round trip took ``rtt`` ns."""
        ...


#: Makes the congestion control of the stream of one writer.
CongestionControlFactory = Callable[[CongestionControlPolicy, WriterInfo], CongestionControl]


class StaticWindow:
    """Always the same window: no congestion control."""

    def __init__(self, policy: CongestionControlPolicy) -> None:
        self._outcome = WindowOutcome(min(policy.initial_window or policy.max_window, policy.max_window))

    def on_track_rebuild(
        self, *, now: int, consumption: int, received: int, datagram: int, loss: bool
    ) -> WindowOutcome:
        return self._outcome

    def on_rtt_measurement(self, rtt: int, *, now: int) -> None:
        pass


class Cubic:
    """CUBIC in units of datagrams, with Aeron's constants.

    Aeron's CUBIC begins close to the largest window; this one begins with slow start (RFC 9438 §4.10): the window grows
    by the bytes consumed until the first loss. From then on the window is a cubic function of the time since the last
    loss, evaluated once per round trip.

    Invariant: one datagram <= window <= ``max_window``, if that is at least a datagram.
    """

    def __init__(self, policy: CongestionControlPolicy) -> None:
        self._policy = policy
        self._datagram = DATAGRAM
        self._max_cwnd = max(1, policy.max_window // DATAGRAM)
        self.cwnd = self._initial_cwnd()
        #: The window at the last loss (0: nothing was lost yet), and the seconds until it is that large again.
        self.w_max = 0
        self.k = 0.0
        self.rtt = policy.min_rtt
        self._lost_at = 0
        self._updated_at = 0
        self._consumption = 0
        #: When the use of the window was last judged (0: never), what had arrived by then, and the judgement.
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
    ) -> WindowOutcome:
        if datagram > self._datagram:
            self._resize(datagram)
        if loss:
            self.w_max, self._lost_at, self._updated_at = self.cwnd, now, now
            self.k = cbrt(self.w_max * B / C)
            self.cwnd = max(1, int(self.cwnd * (1.0 - B)))
            return WindowOutcome(self._offer(consumption, received), True)
        # With one datagram at a time the writer waits for each status message.
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
        return WindowOutcome(self._offer(consumption, received), force)

    def _offer(self, consumption: int, received: int) -> int:
        """The window beyond ``consumption``. Received bytes are no longer on the way even if they are not consumed: so
        the writer continues while a hole is repaired."""
        return min(self.window + received - consumption, max(self._policy.max_window, self.window))

    def _note_use(self, received: int, now: int) -> None:
        """Note whether the writer uses at least half of the window; otherwise the window does not grow (RFC 9438 §5.8).
        Without a measured round trip, the window counts as used."""
        elapsed = now - self._seen_at
        if not self._is_measured or elapsed < self.rtt:
            return
        if self._seen_at:
            self._is_used = 2 * (received - self._seen) * self.rtt >= elapsed * self.window
            if not self._is_used:
                self._lost_at += elapsed
        self._seen_at, self._seen = now, received

    def _resize(self, datagram: int) -> None:
        """Convert the window to a longer datagram as its unit."""
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
            # RFC 9438 §4.3: the window of TCP Reno at this time
            reno = self.w_max * (1.0 - B) + 3.0 * B / (2.0 - B) * elapsed / (self.rtt / NANOSECONDS)
            cwnd = max(cwnd, int(reno))
        return cwnd


_BUILT_IN: Final[dict[str, Callable[[CongestionControlPolicy], CongestionControl]]] = {
    "static": StaticWindow,
    "cubic": Cubic,
}


def built_in(policy: CongestionControlPolicy, writer: WriterInfo) -> CongestionControl:
    """The congestion control that ``policy.kind`` names. For user code the owner sets the factory; until then windows
    are static."""
    return _BUILT_IN.get(policy.kind, StaticWindow)(policy)
