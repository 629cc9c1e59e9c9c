"""Time_t and Duration_t."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import UsageError
from spark_rtps.transport.structure import INFINITE, NANOSECONDS
from spark_rtps.transport.wire.ntp import duration_from_ntp, duration_to_ntp, from_ntp, to_ntp


def test_known_times() -> None:
    assert to_ntp(0) == (0, 0)
    assert to_ntp(1_500_000_000) == (1, 0x8000_0000)
    assert from_ntp(1, 0x8000_0000) == 1_500_000_000
    assert from_ntp(1, 0xFFFF_FFFF) == 2_000_000_000  # rounds up into the next second
    assert to_ntp((1 << 32) * NANOSECONDS - 1) == (0xFFFF_FFFF, 0xFFFF_FFFC)


@given(ns=st.integers(0, (1 << 32) * NANOSECONDS - 1))
def test_nanoseconds_survive(ns: int) -> None:
    seconds, fraction = to_ntp(ns)
    assert from_ntp(seconds, fraction) == ns
    assert seconds * NANOSECONDS + (fraction * NANOSECONDS >> 32) == ns  # a reader that cuts off


@pytest.mark.parametrize("ns", [-1, -(1 << 63), (1 << 32) * NANOSECONDS])
def test_times_rtps_cannot_carry(ns: int) -> None:
    with pytest.raises(UsageError, match="1970 to 2106"):
        to_ntp(ns)


@given(ns=st.integers(0, 0x7FFF_FFFF * NANOSECONDS - 1))
def test_durations_survive(ns: int) -> None:
    assert duration_from_ntp(*duration_to_ntp(ns)) == ns


def test_infinite_durations() -> None:
    assert duration_to_ntp(INFINITE) == (0x7FFF_FFFF, 0xFFFF_FFFF)
    assert duration_to_ntp(0x7FFF_FFFF * NANOSECONDS) == (0x7FFF_FFFF, 0xFFFF_FFFF)
    assert duration_from_ntp(0x7FFF_FFFF, 0xFFFF_FFFF) == INFINITE
    assert duration_from_ntp(0x7FFF_FFFF, 0x7FFF_FFFF) == INFINITE  # DDS's own constant
    assert duration_from_ntp(0xFFFF_FFFF, 0xFFFF_FFFF) == INFINITE  # RTPS 2.1


def test_negative_durations() -> None:
    with pytest.raises(UsageError):
        duration_to_ntp(-1)
    with pytest.raises(ValueError, match="negative"):
        duration_from_ntp(0xFFFF_FFFE, 0)
