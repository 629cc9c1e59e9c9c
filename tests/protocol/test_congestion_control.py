"""Windows by congestion control: CUBIC against the formula, and within its bounds whatever happens."""

from __future__ import annotations

from dataclasses import replace
from math import cbrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.protocol.endpoint_info import WriterInfo
from spark_rtps.transport.protocol.policies import CongestionControlPolicy
from spark_rtps.transport.protocol.reading.flow.congestion_control import (
    CongestionControl,
    Cubic,
    StaticWindow,
    WindowOutcome,
    built_in,
)
from spark_rtps.transport.protocol.reading.received_stream import DATAGRAM
from spark_rtps.transport.structure import Guid

S = 1_000_000_000
US = 1_000
POLICY = CongestionControlPolicy("cubic", max_window=1_000 * DATAGRAM)
WRITER = WriterInfo(Guid(b"w" * 12, b"\0\0\1\3"), (), (), True, False)


class Stream:
    """What congestion control is told of one stream."""

    def __init__(self, control: CongestionControl) -> None:
        self.control = control
        self.now, self.position = 5 * S, 0

    def track(
        self, consumed: int = 0, *, after: int = 0, loss: bool = False, datagram: int = DATAGRAM
    ) -> WindowOutcome:
        self.now += after
        self.position += consumed
        return self.control.on_track_rebuild(
            now=self.now, consumption=self.position, received=self.position, datagram=datagram, loss=loss
        )


def cubic(datagrams: int, policy: CongestionControlPolicy = POLICY) -> tuple[Cubic, Stream]:
    """A CUBIC that has grown to so many datagrams."""
    control = Cubic(policy)
    stream = Stream(control)
    stream.track((datagrams - control.cwnd) * DATAGRAM)
    assert control.cwnd == datagrams
    return control, stream


class TestStatic:
    @pytest.mark.parametrize(
        ("initial", "largest", "window"), [(0, 4096, 4096), (1024, 4096, 1024), (8192, 4096, 4096)]
    )
    def test_the_static_window_is_constant(self, initial: int, largest: int, window: int) -> None:
        stream = Stream(StaticWindow(CongestionControlPolicy(initial_window=initial, max_window=largest)))
        for loss in (False, True):
            assert stream.track(10_000, after=S, loss=loss) == WindowOutcome(window, False)


class TestSlowStart:
    def test_slow_start_begins_with_ten_datagrams(self) -> None:
        assert Stream(Cubic(POLICY)).track() == WindowOutcome(10 * DATAGRAM)

    def test_or_as_the_policy_says(self) -> None:
        assert Cubic(replace(POLICY, initial_window=50_000)).cwnd == 50_000 // DATAGRAM

    def test_slow_start_grows_by_consumed_bytes(self) -> None:
        stream = Stream(Cubic(POLICY))
        assert stream.track(10 * DATAGRAM).window == 20 * DATAGRAM
        assert stream.track(20 * DATAGRAM).window == 40 * DATAGRAM

    def test_parts_of_datagrams_add_up(self) -> None:
        stream = Stream(Cubic(POLICY))
        for _ in range(4):
            window = stream.track(DATAGRAM // 4).window
        assert window == 11 * DATAGRAM

    def test_longer_datagrams_are_ten_as_well(self) -> None:
        assert Stream(Cubic(POLICY)).track(datagram=60_000).window == 10 * 60_000


class TestCubic:
    def test_a_loss_reduces_the_window_by_a_fifth_and_is_announced_at_once(self) -> None:
        control, stream = cubic(100)
        assert stream.track(loss=True) == WindowOutcome(80 * DATAGRAM, True)
        assert (control.w_max, control.k) == (100, pytest.approx(cbrt(100 * 0.2 / 0.4)))  # type: ignore[comparison-overlap]

    def test_the_formula(self) -> None:
        """W(t) = 0.4 (t - K)^3 + 100, K = cbrt(50) = 3.684 s, cut to whole datagrams as Aeron does."""
        control, stream = cubic(100)
        stream.track(loss=True)
        lost_at = stream.now
        for at, cwnd in (
            (1.0, 93),
            (2.0, 99),
            (3.684, 100),
            (5.0, 100),
            (6.0, 104),
            (7.368, 119),
            (10.0, 200),
        ):
            stream.now = lost_at
            assert stream.track(after=int(at * S)).window == cwnd * DATAGRAM, at
            assert cwnd == 100 + int(0.4 * (at - control.k) ** 3)

    def test_the_window_is_looked_at_once_a_round_trip(self) -> None:
        _, stream = cubic(100, replace(POLICY, min_rtt=S))
        assert stream.track(loss=True).window == 80 * DATAGRAM
        assert stream.track(after=S - 1).window == 80 * DATAGRAM
        assert stream.track(after=1).window == 93 * DATAGRAM

    def test_a_measured_round_trip_counts_instead(self) -> None:
        control, stream = cubic(100)
        control.on_rtt_measurement(S, now=stream.now)
        stream.track(loss=True)
        assert stream.track(after=S // 2).window == 80 * DATAGRAM

    def test_losses_add_up(self) -> None:
        control, stream = cubic(100)
        for cwnd in (80, 64, 51, 40):
            assert stream.track(loss=True).window == cwnd * DATAGRAM
        assert control.w_max == 51

    def test_tcp_mode_is_no_slower_than_reno(self) -> None:
        """W_tcp(t) = 0.8 w_max + 3 B / (2 - B) t / RTT: with B = 0.2 a third of a datagram each round trip."""
        for tcp_mode, cwnd in ((False, 93), (True, 96)):
            control, stream = cubic(100, replace(POLICY, tcp_mode=tcp_mode))
            control.on_rtt_measurement(S // 50, now=stream.now)
            stream.track(loss=True)
            assert stream.track(after=S).window == cwnd * DATAGRAM

    def test_a_window_of_one_datagram_announces_each_consumption(self) -> None:
        _, stream = cubic(10)
        for _ in range(20):
            stream.track(loss=True)
        assert stream.track(DATAGRAM, after=US) == WindowOutcome(DATAGRAM, True)
        assert stream.track(0, after=US) == WindowOutcome(DATAGRAM, False)

    def test_longer_datagrams_keep_the_window(self) -> None:
        control, stream = cubic(100)
        stream.track(loss=True)
        outcome = stream.track(datagram=10 * DATAGRAM)
        assert outcome.window == 80 * DATAGRAM
        assert control.w_max == 10


steps = st.tuples(
    st.integers(0, 1 << 24), st.integers(0, 100 * S), st.booleans(), st.integers(DATAGRAM, 65_507)
)


@given(
    policy=st.builds(
        CongestionControlPolicy,
        st.sampled_from(["static", "cubic"]),
        st.integers(0, 1 << 24),
        st.integers(65_507, 1 << 24),
        st.integers(1, S),
        st.booleans(),
        st.booleans(),
    ),
    steps=st.lists(steps, max_size=30),
    rtt=st.none() | st.integers(0, 1 << 62),
)
def test_a_window_stays_within_its_bounds(
    policy: CongestionControlPolicy, steps: list[tuple[int, int, bool, int]], rtt: int | None
) -> None:
    stream = Stream(built_in(policy, WRITER))
    longest = DATAGRAM
    if rtt is not None:
        stream.control.on_rtt_measurement(rtt, now=stream.now)
    for consumed, after, loss, datagram in steps:
        longest = max(longest, datagram)
        before = stream.track(datagram=longest).window
        window = stream.track(consumed, after=after, loss=loss, datagram=longest).window
        assert window <= policy.max_window
        if policy.kind == "cubic":
            assert window >= longest
            assert not loss or window == longest or window < before


def test_a_kind_of_the_users_own_is_static_until_it_is_handed_in() -> None:
    assert isinstance(built_in(CongestionControlPolicy("mine:Own"), WRITER), StaticWindow)
