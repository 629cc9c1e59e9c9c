"""What a receiver service does with a log whose end was not on the disk when the power failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spark_rtps.serving.wire_format.misplaced_offset import find_misplacement
from spark_rtps.transport.errors import LogDamagedError
from spark_rtps.transport.log.damage import Damage
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.segment import PAGE
from spark_rtps.transport.log.verification import verify
from spark_rtps.transport.receiver.subscription_log import open_log
from tests.log.make_runs import all_samples, guid, single
from tests.receiver_service.supervisor_scene import Scene

W1 = guid(1)
A = '[subscriptions.a]\ntopic = "A"\n'


@pytest.mark.parametrize("committed_row", [0, 7])
def test_a_power_failure_costs_the_end_of_a_log_and_no_more(scene: Scene, committed_row: int) -> None:
    """What groups committed is synced, the log is not: it may end before."""
    scene.begin(A)
    config = replace(scene.receivers[-1].config, type_name="Number")
    directory = Path(config.log_directory)
    with open_log(config) as log:
        for sn in range(1, 11):
            log.append(single(W1, sn), reception=0)
        on_disk = {path: path.read_bytes() for path in directory.iterdir()}
        while log.position < 3 * PAGE:  # in the page cache alone
            log.append(single(W1, log.rows + 1), reception=0)
        end = log.position
    groups = {"live": Cursor(end - 192, committed_row), "nightly": Cursor(0)}
    scene.commit(directory.name, groups)
    for path, raw in on_disk.items():
        path.write_bytes(raw)
    for path in directory.glob("*.segment"):
        if path not in on_disk:
            path.unlink()
    for restart in range(2):
        scene.begin(A)
        config = replace(scene.receivers[-1].config, type_name="Number")
        assert Path(config.log_directory) == directory, "no new log"
        with open_log(config) as log:
            if not restart:
                first = log.position
                assert first >= end - 192 + (committed_row > 0), "no position is used twice"
                assert log.writers == {W1: 10}, "what is lost is asked for again"
            assert log.append(single(W1, 11 + restart), reception=0)
            view, tail = LogView(directory), Cursor(log.position)
            lost: list[Damage] = []
            got = all_samples(view.frames(groups["nightly"], tail, lost.append))
            assert [sample.sn for sample in got] == [*range(1, 11), *range(11, 12 + restart)]
            assert [(each.position, each.stop) for each in lost] == [(10 * 192, first)]
            with pytest.raises(LogDamagedError, match="an unknown number of samples are lost"):
                all_samples(view.frames(groups["nightly"], tail))
            if committed_row == 0:
                assert find_misplacement(view, groups["live"], base=view.base, tail=tail) is None
                live = all_samples(view.frames(groups["live"], tail))
                assert [sample.sn for sample in live] == [*range(11, 12 + restart)]
            assert verify(view).damage == lost
