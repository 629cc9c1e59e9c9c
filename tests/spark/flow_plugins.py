"""Flow control strategies, shipped to the workers as a user ships them, which write down what they are told."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from spark_rtps.plugins import FlowControl, FlowControlPolicy, Receiver, StreamInfo
from spark_rtps.transport.structure import Guid


def notes(topic: str) -> Path:
    """Where it is written down for the streams of a topic."""
    return Path(tempfile.gettempdir()) / f"spark-rtps-strategy-{topic}.jsonl"


class Noted(FlowControl):
    """`min`, which says so."""

    def __init__(self, policy: FlowControlPolicy, stream: StreamInfo) -> None:
        super().__init__(policy, stream)
        self._notes = notes(stream.topic)
        self._note(
            topic=stream.topic,
            writer=str(stream.writer),
            channel=stream.channel,
            term_length=stream.term_length,
            session=stream.session,
            group=policy.group_min_size,
        )

    def limit(self, receivers: Mapping[Guid, Receiver]) -> int:
        self._note(receivers=len(receivers))
        return super().limit(receivers)

    def _note(self, **reported: object) -> None:
        with self._notes.open("a") as file:
            file.write(json.dumps(reported) + "\n")


def broken(policy: FlowControlPolicy, stream: StreamInfo) -> FlowControl:
    raise RuntimeError(f"nobody paces {stream.topic}")


def none(policy: FlowControlPolicy, stream: StreamInfo) -> None:
    pass
