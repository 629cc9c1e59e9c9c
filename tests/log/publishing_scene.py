"""A writer of ours with its publication log, without a network, and samples that prove to be whole."""

from __future__ import annotations

import contextlib
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from spark_rtps.transport.log.image import Image
from spark_rtps.transport.net.send_failures import SendFailures
from spark_rtps.transport.protocol.outgoing import Outgoing
from spark_rtps.transport.protocol.participant.events import Event
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.structure import INFINITE, Guid
from spark_rtps.transport.wire.message import submessage_at
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import Data, decode_submessage

#: Encapsulation header, checksum, source and number.
PAYLOAD_HEADER = 16


def payload(source: int, number: int, size: int) -> bytes:
    """A serialized sample of ``size`` bytes, at least ``PAYLOAD_HEADER``, which holds a checksum of itself."""
    text = source.to_bytes(4, "little") + number.to_bytes(4, "little")
    text += random.Random(source << 32 | number).randbytes(size - PAYLOAD_HEADER)
    return b"\0\1\0\0" + zlib.crc32(text).to_bytes(4, "little") + text


def number_of(data: bytes) -> tuple[int, int]:
    """Source and number of a sample, which has to be whole."""
    assert int.from_bytes(data[4:8], "little") == zlib.crc32(data[8:]), "a torn sample"
    return int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little")


def samples_of(payloads: list[bytes]) -> Samples:
    """Payloads of one size."""
    return Samples.uniform(np.frombuffer(b"".join(payloads), np.uint8), len(payloads), len(payloads[0]))


def data_in(body: bytes) -> list[tuple[int, bytes]]:
    """Sequence number and payload of each DATA in the messages that lie end to end in a frame."""
    found, at, raw = [], 0, memoryview(body)
    while at < len(body):
        if body[at : at + 4] == b"RTPS":
            at += 20
            continue
        kind, flags, stop = submessage_at(raw, at, len(body))
        each = decode_submessage(kind, flags, raw[at + 4 : stop])
        if isinstance(each, Data):
            found.append((each.sn, bytes(each.payload or b"")))
        at = stop
    return found


def read_all(image: Image, max_bytes: int = 1 << 20) -> Iterator[tuple[int, bytes]]:
    """Sequence number and payload of each sample that can be read, in order; the image moves on."""
    while (frames := image.poll(max_bytes)) is not None:
        for start, stop, _ in frames.spans:
            yield from data_in(bytes(frames.data[start:stop]))
        image.position = frames.end


class Driver:
    """A node without sockets (`net.blocking_writer.Driver`): what is to be sent goes to ``sent``."""

    def __init__(self, sent: Callable[[list[Outgoing]], object] = lambda _: None) -> None:
        self.lock: Any = threading.RLock()
        self.sleeps_until = INFINITE
        self.send_failures = SendFailures()
        self.duty_cycle = self.directory = self.counters = self
        self.is_closed = False
        self.writer: StatefulWriter | None = None
        self._sent = sent

    def by_label(self) -> dict[str, int]:
        return {}

    def steering(self, *, lingering: bool = False) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def run_once(self, timeout: float) -> int:
        time.sleep(min(timeout, 0.001))
        return self.do_work()

    def do_work(self) -> int:
        """The duty cycle: timers, and what they have to send."""
        with self.lock:
            if self.writer is not None:
                self.writer.handle_timer(time.monotonic_ns())
            return self.flush()

    def flush(self) -> int:
        out = [] if self.writer is None else self.writer.outgoing()
        self._sent(out)
        return len(out)

    def events(self) -> list[Event]:
        return []

    def incompatible(self, guid: Guid) -> Mapping[Guid, tuple[str, ...]]:
        return {}

    def wake(self) -> None:
        pass

    def assert_liveliness(self, writer: Guid | None = None) -> None:
        pass


def each_once_and_in_order(found: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    """The numbers of each source, which have to rise."""
    numbers: dict[int, list[int]] = {}
    for source, number in found:
        numbers.setdefault(source, []).append(number)
    for each in numbers.values():
        assert each == sorted(set(each)), "twice, or out of order"
    return numbers
