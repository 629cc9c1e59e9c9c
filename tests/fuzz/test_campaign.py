"""The campaign in small: no finding, and no datagram by construction that takes long."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.campaign import CPU_MAX, Campaign, timed_alone
from tests.fuzz.expensive import datagrams
from tests.protocol.hostile_scene import EVIL_IP, Scene
from tests.support.campaigns import fresh_seeds, share

#: What tests allow on machines that do other things meanwhile.
SLACK = 3
EXECUTIONS = share(40_000)


@pytest.mark.parametrize("seed", [0, *fresh_seeds(1)])
def test_mutated_datagrams_find_nothing(seed: int) -> None:
    campaign = Campaign(seed, captures=4)
    report = campaign.run(60.0, executions=EXECUTIONS)
    assert report.executions >= EXECUTIONS or report.seconds >= 60
    assert not [what for what, _ in report.findings if "ms of CPU" not in what], str(report)
    assert max(report.slowest, default=(0.0, b""))[0] < SLACK * CPU_MAX, str(report)


def test_no_datagram_made_to_be_expensive_is() -> None:
    """One for each submessage kind, form and mixture; each on a scene of its own."""
    slow = {}
    for name, datagram in datagrams(Scene()):
        data = np.frombuffer(bytearray(datagram), np.uint8)
        best = 1.0
        for _ in range(3):
            if best > CPU_MAX:
                best = min(best, timed_alone(Scene(), data, (0, len(datagram), EVIL_IP)))
        if best > SLACK * CPU_MAX:
            slow[name] = best
    assert not slow
