"""Which frames of a server are taken for a receiver's."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from spark_rtps.serving.client.sound_frames import is_possible
from spark_rtps.transport.log.segment import segment_path
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.samples import DISPOSED, SAMPLE_INDEX, Run
from spark_rtps.transport.wire.submessages import DATA_HEADER_SIZE

WRITER = Guid(bytes(12), b"\0\0\1\2")
COUNT, STRIDE, LENGTH = 24, 28, 76


def frame(directory: Path, run: Run) -> bytearray:
    """The frame that a receiver writes of a run."""
    with StreamLog.create(directory, max_bytes=1 << 20, segment_bytes=1 << 16, metadata={}) as log:
        assert log.append(run, reception=1)
        position = log.position
    return bytearray(segment_path(directory, 0).read_bytes()[:position])


def indexed() -> Run:
    index = np.zeros(20, SAMPLE_INDEX)
    index["offset"], index["length"] = np.arange(20) * 12, 12
    return Run(WRITER, 1, 20, np.zeros(240, np.uint8), index=index)


def uniform(size: int, *, payload: int = 0, flags: int = 0) -> Run:
    data = np.zeros(20 * size, np.uint8)
    return Run(WRITER, 1, 20, data, size, size - payload, payload, flags=flags)


@pytest.mark.parametrize(
    "run",
    [
        indexed(),
        uniform(4, payload=4),
        uniform(36, payload=12),
        uniform(DATA_HEADER_SIZE, flags=DISPOSED),
    ],
    ids=["indexed", "bare payloads", "submessages", "disposals"],
)
def test_a_receivers_own_are(tmp_path: Path, run: Run) -> None:
    assert is_possible(memoryview(frame(tmp_path / "log", run)), 0)


@pytest.mark.parametrize("stride", [1, 4, DATA_HEADER_SIZE - 1])
def test_samples_of_nothing_are_not_as_many_as_bytes(tmp_path: Path, stride: int) -> None:
    """Each would be a row."""
    data = frame(tmp_path / "log", indexed())
    body = len(data) - 104
    struct.pack_into("<I", data, STRIDE, stride)
    struct.pack_into("<I", data, COUNT, body // stride)
    assert not is_possible(memoryview(data), 0)
    struct.pack_into("<I", data, LENGTH, stride + 1)  # nor do they overlap
    assert not is_possible(memoryview(data), 0)
