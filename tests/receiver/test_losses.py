"""To which cause the loss report puts down what a best-effort writer's stream lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_rtps.transport.log.loss_report import LOSS_REPORT, read_loss_report
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.protocol.policies import LossCause
from spark_rtps.transport.qos import Qos
from spark_rtps.transport.receiver.losses import Losses
from tests.protocol.reader_script import Script

SECOND = 1_000_000_000


class Scene:
    """A reader, its losses, and a clock."""

    def __init__(self, tmp_path: Path) -> None:
        self.now = SECOND
        self.reader = Script(Qos(), reliable=False)
        self.directory = tmp_path
        self.log = StreamLog.create(tmp_path / "log", max_bytes=1 << 24, metadata={})
        self.losses = Losses(tmp_path, "t", {})
        self.overflows = 0

    def later(self, seconds: float) -> Scene:
        """Reports that often come."""
        until = self.now + int(seconds * SECOND)
        while self.now < until:
            self.now += SECOND // 20
            self.losses.report(self.reader.reader, self.log, overflows=self.overflows, now=self.now)
        return self

    def reported(self) -> dict[str, int]:
        path = self.directory / LOSS_REPORT
        return {loss.cause: loss.samples for loss in read_loss_report(path)[0]} if path.exists() else {}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_without_an_overflow(scene: Scene) -> None:
    scene.reader.data(1).data(3)
    scene.later(0.1)
    assert scene.reported() == {LossCause.NOT_RECEIVED: 1}


def test_soon_after_an_overflow(scene: Scene) -> None:
    scene.reader.data(1)
    scene.overflows = 7
    scene.later(1)
    scene.reader.data(2).data(5)
    scene.later(5)
    assert scene.reported() == {LossCause.RECEIVE_BUFFER: 2}


def test_long_after_an_overflow(scene: Scene) -> None:
    scene.reader.data(1)
    scene.overflows = 7
    scene.later(5)
    scene.reader.data(2)
    scene.later(1)
    scene.reader.data(4)
    scene.later(1)
    assert scene.reported() == {LossCause.NOT_RECEIVED: 1}


def test_losses_of_a_writer_silent_since_an_overflow(scene: Scene) -> None:
    scene.overflows = 7
    scene.later(0.1)
    scene.reader.data(1, 10)  # what lay in the buffer
    scene.later(60)
    scene.reader.data(13)
    scene.later(1)
    scene.reader.data(16)
    scene.later(1)
    assert scene.reported() == {LossCause.RECEIVE_BUFFER: 2, LossCause.NOT_RECEIVED: 2}
