"""A file of a recording as ``ros=true`` sees it: its topics of ROS 2 have the names that they have on the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..options.ros import TOPIC_PREFIX, ros_name
from .recorded import Channel, Piece, RecordedSamples, RecordingFile, Section, Times


class WireNames:
    """What bags, and MCAP files of ROS 2, call ``/imu`` is ``rt/imu`` here, as in captures and in the options.

    Pieces are read by the ids of channels, and captures keep their names: a task needs none of this.
    """

    def __init__(self, file: RecordingFile) -> None:
        self._file = file
        self.form = file.form

    def topics(self) -> dict[str, str]:
        return {_wire_name(name): type_name for name, type_name in self._file.topics().items()}

    def channels(self, topic: str, *, typed: bool, hashed: bool = False) -> tuple[Channel, ...]:
        names = filter(None, (topic, ros_name(topic)))
        found = [each for name in names for each in self._file.channels(name, typed=typed, hashed=hashed)]
        return tuple(replace(each, topic=topic) for each in found)

    def sections(self, channels: Iterable[Channel], times: Times) -> list[Section]:
        return self._file.sections(channels, times)

    def read(self, piece: Piece, times: Times) -> Iterator[RecordedSamples]:
        return self._file.read(piece, times)


def _wire_name(name: str) -> str:
    return f"{TOPIC_PREFIX}{name[1:]}" if name.startswith("/") else name
