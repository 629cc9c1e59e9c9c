"""The arithmetic of the bench's figures; the figures themselves decide no test."""

from __future__ import annotations

import numpy as np

from tests.bench.figures import waits


def test_rows_wait_for_the_micro_batch_that_was_asked_for_after_them() -> None:
    waited = waits(np.array([10.0, 30.0, 90.0]), np.array([0.0, 20.0, 40.0]))
    assert len(waited) == 40
    assert waited[[0, 1, 20, 21, 39]].tolist() == [10.0, 29.0, 10.0, 69.0, 51.0]
