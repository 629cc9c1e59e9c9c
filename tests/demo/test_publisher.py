"""The publisher of the demonstration, without a network."""

from __future__ import annotations

import pytest

from spark_rtps.demo.publisher import steps_between_lines


@pytest.mark.parametrize(("rate", "steps"), [(200.0, 100), (4.0, 2), (1.0, 1), (0.1, 1)])
def test_a_slow_publisher_prints_a_line_with_each_step(rate: float, steps: int) -> None:
    assert steps_between_lines(rate) == steps
