"""What is on the wire, told from its bytes alone: data, repairs, heartbeats, acknowledgements, requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from spark_rtps.transport.wire.batch import ACKNACK_BATCH, DATA_BATCH
from spark_rtps.transport.wire.compressed import COMPRESSED, decompress
from spark_rtps.transport.wire.message import SUBMESSAGE_HEADER_SIZE, Buffer, iter_submessages
from spark_rtps.transport.wire.status_messages import RttMeasurement, StatusMessage
from spark_rtps.transport.wire.submessages import (
    AckNack,
    Data,
    DataFrag,
    Gap,
    Heartbeat,
    HeartbeatBatch,
    NackFrag,
)
from tests.simulation.network import MS

#: From behind the submessage header: the sequence number of DATA and DATA_FRAG; fragmentStartingNum.
_SN: Final = 12
_FRAGMENT: Final = 20
#: The first sample's sequence number of DATA_BATCH, and how much higher the last one's is.
_BATCH_FIRST_SN: Final = 20
_BATCH_LAST: Final = 28
_ANSWERS: Final = (AckNack.KIND, NackFrag.KIND, ACKNACK_BATCH)


@dataclass(slots=True)
class Meter:
    """Counts while it is ``on``. Bytes are those of submessages that carry samples, once for each copy sent."""

    on: bool = False
    data_bytes: int = 0
    repair_bytes: int = 0
    datagrams: int = 0
    heartbeats: int = 0
    gaps: int = 0
    #: ACKNACKs that request nothing, and those (and NACK_FRAGs) that do.
    acknacks: int = 0
    nacks: int = 0
    ack_bytes: int = 0
    #: Of ours to ours.
    status_messages: int = 0
    rtt_measurements: int = 0
    #: Of the datagrams' contents, those in numbers of batches; a batch sent again counts again.
    batches: int = 0
    heartbeat_batches: int = 0
    acknack_batches: int = 0
    #: By the virtual millisecond: acknowledgements and requests that reach the writer, repair bytes it sends.
    arrivals: Counter[int] = field(default_factory=Counter)
    repairs: Counter[int] = field(default_factory=Counter)
    #: The newest sample sent in batches, or not, and the newest of its fragments.
    _newest: dict[bool, tuple[int, int]] = field(default_factory=lambda: {False: (0, 0), True: (0, 0)})

    def sent(self, message: bytes, copies: int, now: int) -> None:
        data = repair = 0
        for kind, _, start, stop in iter_submessages(memoryview(message)):
            body: Buffer = memoryview(message)[start:stop]
            if kind == COMPRESSED:
                inner = decompress(body)
                kind, body = inner[0], memoryview(inner)[SUBMESSAGE_HEADER_SIZE:]
            if kind in (Data.KIND, DataFrag.KIND, DATA_BATCH):
                if self._is_new(kind, body):
                    data += stop - start + SUBMESSAGE_HEADER_SIZE
                else:
                    repair += stop - start + SUBMESSAGE_HEADER_SIZE
            if self.on:
                self._count(kind, body, len(message), copies)
        if self.on:
            self.datagrams += copies
            self.data_bytes += data * copies
            self.repair_bytes += repair * copies
            self.repairs[now // MS] += repair * copies

    def _count(self, kind: int, body: Buffer, size: int, copies: int) -> None:
        if kind == DATA_BATCH:
            self.batches += copies
        elif kind in (Heartbeat.KIND, HeartbeatBatch.KIND):
            self.heartbeats += copies
            self.heartbeat_batches += copies * (kind == HeartbeatBatch.KIND)
        elif kind == Gap.KIND:
            self.gaps += copies
        elif kind == StatusMessage.KIND:
            self.status_messages += copies
        elif kind == RttMeasurement.KIND:
            self.rtt_measurements += copies
        elif kind in _ANSWERS:
            self.ack_bytes += size
            self.acknack_batches += kind == ACKNACK_BATCH
            if _requests(kind, body):
                self.nacks += 1
            else:
                self.acknacks += 1

    def _is_new(self, kind: int, body: Buffer) -> bool:
        """Whether samples are sent for the first time."""
        in_batch = kind == DATA_BATCH
        if in_batch:
            first = _number(body, _BATCH_FIRST_SN)
            number, newest = (first, 0), (first + _word(body, _BATCH_LAST), 0)
        else:
            number = newest = (_number(body, _SN), _word(body, _FRAGMENT) if kind == DataFrag.KIND else 0)
        if number <= self._newest[in_batch]:
            return False
        self._newest[in_batch] = newest
        return True

    def arrived(self, message: bytes, now: int) -> None:
        """At the writer."""
        if self.on:
            count = sum(kind in _ANSWERS for kind, *_ in iter_submessages(memoryview(message)))
            self.arrivals[now // MS] += count


def _word(body: Buffer, at: int) -> int:
    return int.from_bytes(body[at : at + 4], "little")


def _number(body: Buffer, at: int) -> int:
    return _word(body, at) << 32 | _word(body, at + 4)


def _requests(kind: int, body: Buffer) -> bool:
    """Whether an ACKNACK (reader id, writer id, base, bits in the bitmap, bitmap) asks for anything."""
    return kind == NackFrag.KIND or any(body[20 : 20 + (_word(body, 16) + 31) // 32 * 4])
