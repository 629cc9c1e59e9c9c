"""What is on the wire, told from its bytes alone: data, repairs, heartbeats, acknowledgements, requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.submessages import AckNack, Data, DataFrag, Gap, Heartbeat, NackFrag

from .network import MS

_DATA_BATCH: Final = 0x18
_HEARTBEAT_BATCH: Final = 0x19
_ACKNACK_BATCH: Final = 0x17
#: From behind the submessage header: the sequence number of DATA and DATA_FRAG; fragmentStartingNum.
_SN: Final = 12
_FRAGMENT: Final = 20
#: The first sample's sequence number of DATA_BATCH, and how much higher the last one's is.
_BATCH_FIRST_SN: Final = 20
_BATCH_LAST: Final = 28


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
    #: By the virtual millisecond: acknowledgements and requests that reach the writer, repair bytes it sends.
    arrivals: Counter[int] = field(default_factory=Counter)
    repairs: Counter[int] = field(default_factory=Counter)
    #: The newest sample sent, and the newest of its fragments.
    _newest: tuple[int, int] = (0, 0)

    def sent(self, message: bytes, copies: int, now: int) -> None:
        data = repair = 0
        for kind, _, start, stop in iter_submessages(memoryview(message)):
            body = message[start:stop]
            if kind in (Data.KIND, DataFrag.KIND, _DATA_BATCH):
                if self._is_new(kind, body):
                    data += stop - start + 4
                else:
                    repair += stop - start + 4
            elif not self.on:
                continue
            elif kind in (Heartbeat.KIND, _HEARTBEAT_BATCH):
                self.heartbeats += copies
            elif kind == Gap.KIND:
                self.gaps += copies
            elif kind in (AckNack.KIND, NackFrag.KIND, _ACKNACK_BATCH):
                self.ack_bytes += len(message)
                if _requests(kind, body):
                    self.nacks += 1
                else:
                    self.acknacks += 1
        if self.on:
            self.datagrams += copies
            self.data_bytes += data * copies
            self.repair_bytes += repair * copies
            self.repairs[now // MS] += repair * copies

    def _is_new(self, kind: int, body: bytes) -> bool:
        """Whether samples are sent for the first time."""
        if kind == _DATA_BATCH:
            first = _number(body, _BATCH_FIRST_SN)
            number, newest = (first, 0), (first + _word(body, _BATCH_LAST), 0)
        else:
            number = newest = (_number(body, _SN), _word(body, _FRAGMENT) if kind == DataFrag.KIND else 0)
        if number <= self._newest:
            return False
        self._newest = newest
        return True

    def arrived(self, message: bytes, now: int) -> None:
        """At the writer."""
        if self.on:
            kinds = (AckNack.KIND, NackFrag.KIND, _ACKNACK_BATCH)
            count = sum(kind in kinds for kind, *_ in iter_submessages(memoryview(message)))
            self.arrivals[now // MS] += count


def _word(body: bytes, at: int) -> int:
    return int.from_bytes(body[at : at + 4], "little")


def _number(body: bytes, at: int) -> int:
    return _word(body, at) << 32 | _word(body, at + 4)


def _requests(kind: int, body: bytes) -> bool:
    """Whether an ACKNACK (reader id, writer id, base, bits in the bitmap, bitmap) asks for anything."""
    return kind == NackFrag.KIND or any(body[20 : 20 + (_word(body, 16) + 31) // 32 * 4])
