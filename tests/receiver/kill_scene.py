"""Receivers and publishers that are killed: samples that tell whether they are whole, a load, a reader of the log."""

from __future__ import annotations

import random
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from spark_rtps.transport.errors import RtpsError
from spark_rtps.transport.log.frame import Cursor
from spark_rtps.transport.log.log_view import LogView
from spark_rtps.transport.log.stream_log import StreamLog
from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.policies import BatchPolicy
from spark_rtps.transport.qos import HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.structure import NANOSECONDS, Guid
from spark_rtps.transport.wire.samples import Samples
from tests.support.waiting import PATIENCE

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
BATCHES = BatchPolicy(enable=True, max_data_bytes=20_000, max_flush_delay=5_000_000)
#: Sizes of payloads; in a run all are alike. The largest one does not fit the publication log.
SIZES = (64, 200, 1_000, 40_000, 200_000)


def checksummed(first: int, count: int, size: int) -> Samples:
    """Encapsulation, checksum, number, and what follows from the number."""
    rows = np.zeros((count, size), np.uint8)
    rows[:, 1] = 1
    rows[:, 8:16] = np.arange(first, first + count, dtype="<i8").view(np.uint8).reshape(count, 8)
    rows[:, 16:] = (np.arange(first, first + count)[:, None] * 31 + np.arange(16, size)) & 0xFF
    sums = np.array([zlib.crc32(row[8:].tobytes()) for row in rows], "<u4")
    rows[:, 4:8] = sums.view(np.uint8).reshape(count, 4)
    return Samples.uniform(rows.reshape(-1), count, size)


def shapes(seed: int) -> Iterator[tuple[int, int, int]]:
    """First number, count and size of what is written together: the same for the same seed, without end."""
    rng, first = random.Random(seed), 0
    while True:
        size = rng.choice(SIZES)
        count = rng.randint(1, max(1, 100_000 // size))
        yield first, count, size
        first += count


def load(seed: int) -> Iterator[Samples]:
    for first, count, size in shapes(seed):
        yield checksummed(first, count, size)


def number_of(payload: bytes | memoryview) -> int:
    """The number of a sample, which has to be whole."""
    raw = bytes(payload)
    assert zlib.crc32(raw[8:]) == int.from_bytes(raw[4:8], "little"), "a torn sample"
    return int.from_bytes(raw[8:16], "little")


class LogReader:
    """What is in a stream log, read on from where it was read before."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.end = Cursor(0)
        #: How many samples of each writer there were, which are 0, 1, 2, ...
        self.counts: Counter[Guid] = Counter()

    def read(self, position: int) -> None:
        """Up to ``position``: each writer's samples go on where they were, and no frame is torn."""
        at = self.end.position
        for frame in LogView(self.directory).frames(self.end, Cursor(position)):
            run, samples = frame.run, frame.run.samples()
            assert frame.position >= at
            at = frame.position + frame.length
            assert frame.rows_before == sum(self.counts.values())
            found = [number_of(samples.payload(i)) for i in range(run.count)]
            expected = self.counts[run.writer]
            assert found == list(range(expected, expected + run.count)), "lost, doubled or out of order"
            assert run.first_sn == expected + 1
            self.counts[run.writer] += run.count
        self.end = Cursor(position)

    def check_closed(self, reported: int, max_bytes: int) -> None:
        """Nobody appends now: what the log says of itself is what is in it. ``reported``: how far it was said to go."""
        with StreamLog.open(self.directory, max_bytes=max_bytes) as log:
            assert log.position >= reported, "what was told to be there is there"
            assert log.base <= self.end.position
            self.read(log.position)
            assert log.rows == sum(self.counts.values())
            assert log.writers == dict(self.counts)  # numbers are one less than sequence numbers


def config(directory: Path, domain: int, **changes: object) -> ReceiverConfig:
    node = NodeConfig(domain=domain, interface="lo", receive_buffer=4 << 20, lease_duration=60 * NANOSECONDS)
    whole = ReceiverConfig(
        str(directory),
        "t",
        "T",
        keyed=False,
        qos=RELIABLE,
        node=node,
        log_max_bytes=32 << 20,
        log_segment_bytes=2 << 20,
    )
    return replace(whole, **changes)


class Load:
    """A thread that writes without end, until told to stop."""

    def __init__(self, writer: BlockingWriter, seed: int) -> None:
        self.written = 0
        self._writer = writer
        self._seed = seed
        self._stopping = threading.Event()
        self._failed: list[Exception] = []
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        try:
            for samples in load(self._seed):
                self._writer.write_samples(samples, timeout=PATIENCE)
                self.written += samples.count
                if self._stopping.wait(0.0005):
                    return
        except RtpsError as error:
            self._failed.append(error)

    def stop(self) -> None:
        """It ends when what it is writing is written."""
        self._stopping.set()

    @property
    def has_ended(self) -> bool:
        assert self._failed == []
        return not self._thread.is_alive()
