"""Durations and sizes, as options and commands read them."""

from __future__ import annotations

import pytest

from spark_rtps.commands import network
from spark_rtps.options.texts import duration, seconds, size
from spark_rtps.transport.structure import INFINITE, NANOSECONDS

DURATIONS = [
    ("7ns", 7),
    ("250us", 250_000),
    ("250µs", 250_000),
    ("200ms", 200_000_000),
    ("3s", 3 * NANOSECONDS),
    ("1.5 sec", 1_500_000_000),
    ("2m", 120 * NANOSECONDS),
    ("5min", 300 * NANOSECONDS),
    ("5MIN", 300 * NANOSECONDS),
    ("1h", 3_600 * NANOSECONDS),
    ("1d", 86_400 * NANOSECONDS),
    ("2147483646s", 2_147_483_646 * NANOSECONDS),
    # Peers are told that these are infinite, and compare that (RTPS 2.5 §9.3.2.3).
    ("2147483647s", INFINITE),
    ("36500d", INFINITE),
    ("infinite", INFINITE),
    ("DURATION_INFINITE", INFINITE),
    ("9" * 30 + "d", INFINITE),
]


@pytest.mark.parametrize(("text", "value"), DURATIONS)
def test_durations_of_options_and_of_commands(text: str, value: int) -> None:
    assert duration(text) == value
    assert network.seconds(f" {text} ") == seconds(value)


def test_a_number_alone_is_of_the_unit_that_is_given() -> None:
    assert duration("1.5", unit="s") == 1_500_000_000
    assert network.seconds("1.5") == 1.5
    with pytest.raises(ValueError, match=r"1\.5"):
        duration("1.5")


@pytest.mark.parametrize("text", ["", "s", "-1s", "3 weeks", "1s2", "9" * 400 + "s"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        duration(text)


def test_sizes() -> None:
    assert [size(text) for text in ("4096", "64KiB", "1MB", "2k", "1 GiB")] == [
        4096,
        65_536,
        10**6,
        2048,
        1 << 30,
    ]
    with pytest.raises(ValueError, match="1s"):
        size("1s")


def test_time_outs_are_seconds_and_infinite_is_longer_than_anybody_waits() -> None:
    assert seconds(200_000_000) == 0.2
    assert seconds(INFINITE) == seconds(INFINITE + 5) == 1e9
