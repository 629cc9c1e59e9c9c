"""A congestion control, shipped as a user ships it, which writes down what it is told."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from spark_rtps.plugins import CongestionControl, CongestionControlPolicy, StreamInfo, WindowOutcome


def notes(topic: str) -> Path:
    """Where it is written down for the streams of a topic."""
    return Path(tempfile.gettempdir()) / f"spark-rtps-windows-{topic}.jsonl"


class Quarter(CongestionControl):
    """A quarter of the window that the options allow, whatever is lost."""

    def __init__(self, policy: CongestionControlPolicy, stream: StreamInfo) -> None:
        self._window = policy.max_window // 4
        reported = {
            "topic": stream.topic,
            "writer": str(stream.writer),
            "channel": stream.channel,
            "term_length": stream.term_length,
            "session": stream.session,
            "window": self._window,
        }
        with notes(stream.topic).open("a") as file:
            file.write(json.dumps(reported) + "\n")

    def on_track_rebuild(
        self, *, now: int, consumption: int, received: int, datagram: int, loss: bool
    ) -> WindowOutcome:
        return WindowOutcome(self._window)

    def on_rtt_measurement(self, rtt: int, *, now: int) -> None:
        pass
