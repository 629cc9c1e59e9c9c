"""A stateful writer driven step by step in virtual time, and what it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spark_rtps.transport.limits import MESSAGE_SIZE_MAX
from spark_rtps.transport.protocol.endpoint_info import ReaderInfo
from spark_rtps.transport.protocol.outgoing import HEADER_ROOM, Outgoing, message_spans
from spark_rtps.transport.protocol.writing.readers import ReaderProxy
from spark_rtps.transport.protocol.writing.writer import StatefulWriter
from spark_rtps.transport.qos import DurabilityKind, HistoryKind, Qos, ReliabilityKind
from spark_rtps.transport.structure import Guid, Locator
from spark_rtps.transport.wire.message import submessage_at
from spark_rtps.transport.wire.numbers import FragmentNumberSet, SequenceNumberSet
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.status_messages import StatusMessage
from spark_rtps.transport.wire.submessages import AckNack, Data, NackFrag, decode_submessage

RELIABLE = Qos(reliability=ReliabilityKind.RELIABLE, history=HistoryKind.KEEP_ALL)
LASTING = replace(RELIABLE, durability=DurabilityKind.TRANSIENT_LOCAL)
ME = Guid(b"w" * 12, b"\0\0\1\3")
MS = 1_000_000


def reader_guid(i: int) -> Guid:
    return Guid(bytes([i]) * 12, b"\0\0\2\4")


def where(i: int) -> Locator:
    return Locator(f"10.0.0.{i}", 7411)


def submessages(outgoing: Outgoing) -> list[object]:
    """Decoded; checks that each datagram stays within its size."""
    raw = memoryview(b"".join(bytes(buffer) for buffer in outgoing.submessages))
    if step := outgoing.segment:
        assert step <= MESSAGE_SIZE_MAX
        spans = message_spans(len(raw), step, outgoing.group)
        return [each for at, stop in spans for each in _submessages(raw[at + 20 : stop])]
    assert len(raw) + HEADER_ROOM <= MESSAGE_SIZE_MAX
    return _submessages(raw)


def _submessages(raw: memoryview) -> list[object]:
    found: list[object] = []
    at = 0
    while at < len(raw):
        kind, flags, stop = submessage_at(raw, at, len(raw))
        found.append(decode_submessage(kind, flags, raw[at + 4 : stop]))
        at = stop
    return found


class Script:
    """A writer driven step by step."""

    def __init__(self, qos: Qos = RELIABLE, readers: int = 1, **options: object) -> None:
        self.writer = StatefulWriter(ME, qos, **options)
        self.now, self.count = 1_000 * MS, 0
        for i in range(1, readers + 1):
            self.match(i)
        self.writer.outgoing()

    def match(
        self,
        i: int,
        *,
        reliable: bool = True,
        transient_local: bool = False,
        no_positive_acks: bool = False,
        status_messages: bool = False,
        batches: bool = False,
    ) -> Script:
        info = ReaderInfo(
            reader_guid(i),
            (where(i),),
            (),
            reliable,
            transient_local,
            no_positive_acks=no_positive_acks,
            status_messages=status_messages,
            batches=batches,
        )
        self.writer.match_reader(info, now=self.now)
        return self

    def reader(self, i: int = 1) -> ReaderProxy:
        return self.writer.readers[reader_guid(i)]

    def samples(self, count: int, size: int = 16) -> Samples:
        return Samples.uniform(np.zeros(count * size, np.uint8), count, size)

    def write(self, count: int, size: int = 16, **options: object) -> int:
        samples = self.samples(count, size)
        return self.writer.write_samples(samples, timestamp=self.now, now=self.now, **options)

    def acknack(self, base: int, *missing: int, i: int = 1, final: bool = True, count: int = 0) -> Script:
        self.count += 1
        numbers = SequenceNumberSet.from_numbers(base, missing)
        acknack = AckNack(reader_guid(i).entity, ME.entity, numbers, count or self.count, final)
        self.writer.feedback.on_acknack(reader_guid(i), acknack, now=self.now)
        return self

    def status(
        self, consumed: int, window: int, *, i: int = 1, tag: int | None = None, end: bool = False
    ) -> Script:
        """A status message."""
        self.count += 1
        message = StatusMessage(reader_guid(i).entity, ME.entity, consumed, window, self.count, tag, end)
        self.writer.feedback.on_status_message(reader_guid(i), message, now=self.now)
        return self

    def nack_frag(self, sn: int, *missing: int, i: int = 1) -> Script:
        self.count += 1
        numbers = FragmentNumberSet.from_numbers(missing[0], missing)
        nack = NackFrag(reader_guid(i).entity, ME.entity, sn, numbers, self.count)
        self.writer.feedback.on_nack_frag(reader_guid(i), nack, now=self.now)
        return self

    def sleep(self, duration: int) -> list[tuple[int, object]]:
        """Let time pass; what was said on the way, and how long after the start."""
        start, output = self.now, [(0, each) for each in self.output()]
        for _ in range(10_000):
            at = self.writer.get_timer()
            if at is None or at > start + duration:
                self.now = start + duration
                return output
            self.now = max(self.now, at)
            self.writer.handle_timer(self.now)
            output += [(self.now - start, each) for each in self.output()]
        raise AssertionError("the timer does not move on")

    def output(self) -> list[object]:
        return [each for out in self.writer.outgoing() for each in submessages(out)]


def sns(output: list[object]) -> list[int]:
    return [each.sn for each in output if isinstance(each, Data)]


def times(output: list[tuple[int, object]], kind: type) -> list[int]:
    """When submessages of a kind were said, in milliseconds."""
    return [at // MS for at, each in output if isinstance(each, kind)]
