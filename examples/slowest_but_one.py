"""A user-defined flow control strategy and congestion control, which options name.

::

    PYTHONPATH=examples spark-submit --py-files examples/slowest_but_one.py ...

    .option("flow_control.strategy", "slowest_but_one:SlowestButOne")      # of a sink
    .option("congestion_control", "slowest_but_one:HalfOnLoss")            # of a source

Run as a program, it prints the limit for three readers, and the windows before and after a loss.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_rtps.plugins import (
    CongestionControl,
    CongestionControlPolicy,
    FlowControl,
    FlowControlPolicy,
    Receiver,
    StreamInfo,
    WindowOutcome,
)
from spark_rtps.transport.structure import Guid

_WINDOW_LEAST = 64 << 10


class SlowestButOne(FlowControl):
    """The second slowest reader sets the pace, so a single slow reader does not delay the writer.

    One object is made for each writer. `self.stream` has the topic; `self.policy` has the options.
    """

    def pacing(self, receivers: Mapping[Guid, Receiver]) -> Mapping[Guid, Receiver]:
        """The receivers for which the writer waits: at least one."""
        if len(receivers) < 2:
            return receivers
        slowest = min(receivers, key=lambda guid: receivers[guid].limit)
        return {guid: receiver for guid, receiver in receivers.items() if guid != slowest}

    def limit(self, receivers: Mapping[Guid, Receiver]) -> int:
        """The position up to which the writer may send, in bytes of the publication log."""
        return min(receiver.limit for receiver in self.pacing(receivers).values())


class HalfOnLoss(CongestionControl):
    """The window is halved at each loss, and grows by one datagram for each quarter of it that is consumed."""

    def __init__(self, policy: CongestionControlPolicy, stream: StreamInfo) -> None:
        self._most = policy.max_window
        if stream.term_length:
            self._most = min(self._most, stream.term_length // 2)
        self._window = policy.initial_window or self._most

    def on_track_rebuild(
        self, *, now: int, consumption: int, received: int, datagram: int, loss: bool
    ) -> WindowOutcome:
        """Return the new window; called after each quarter of a window, and at each loss."""
        if loss:
            self._window = max(self._window // 2, _WINDOW_LEAST)
        else:
            self._window = min(self._window + datagram, self._most)
        return WindowOutcome(self._window, force_status_message=loss)

    def on_rtt_measurement(self, rtt: int, *, now: int) -> None:
        """Take a measured round trip of ``rtt`` ns (with the option ``congestion_control.measure_rtt``)."""


def main() -> None:
    writer = Guid(b"writer------", b"\0\0\1\3")
    stream = StreamInfo("Square", writer, term_length=16 << 20)
    readers = {Guid(bytes(11) + bytes((n,)), b"\0\0\2\4"): Receiver(n * 1_000, 10_000) for n in range(1, 4)}
    strategy = SlowestButOne(FlowControlPolicy(), stream)
    print(
        f"{len(readers)} readers at 1000, 2000 and 3000 with 10000 bytes free: send up to {strategy.limit(readers)}"
    )
    control = HalfOnLoss(CongestionControlPolicy(), stream)
    for loss in (False, True, False):
        outcome = control.on_track_rebuild(now=0, consumption=0, received=0, datagram=1_408, loss=loss)
        print(f"{'a loss' if loss else 'no loss'}: a window of {outcome.window} bytes")


if __name__ == "__main__":
    main()
