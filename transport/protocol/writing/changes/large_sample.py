"""Samples too large for a datagram: they travel as DATA_FRAGs (RTPS 2.5 §8.3.8.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ....limits import FRAGMENT_SIZE
from ....structure import ENTITYID_UNKNOWN, PREFIX_UNKNOWN
from ....wire.framing import DataBlock
from ....wire.parameters import (
    COHERENT_SET_SIZE,
    KEY_HASH_SIZE,
    PID_COHERENT_SET,
    PID_KEY_HASH,
    PID_STATUS_INFO,
    SENTINEL_SIZE,
    STATUS_INFO_SIZE,
    ParameterList,
    encode_sequence_number,
    encode_status_info,
)
from ....wire.runs import scan
from ....wire.samples import DISPOSED, FILTERED, KEY_ONLY, NO_TIMESTAMP, U8, UNREGISTERED
from ....wire.submessages import DataFrag

#: DATA_FRAG header, and its inline QoS with key hash, status info, coherent set and sentinel.
_DATA_FRAG_ROOM: Final = 36 + KEY_HASH_SIZE + STATUS_INFO_SIZE + COHERENT_SET_SIZE + SENTINEL_SIZE


def fragment_size_for(budget: int) -> int:
    """Bytes of a fragment that fits a datagram with ``budget`` bytes for submessages."""
    return min(FRAGMENT_SIZE, budget - _DATA_FRAG_ROOM) & ~3


@dataclass(slots=True)
class LargeSample:
    """A sample that travels as DATA_FRAGs of ``fragment_size`` bytes each."""

    #: The payload.
    data: U8
    fragment_size: int
    flags: int
    key_hash: bytes | None
    coherent_set: int = 0

    @property
    def fragments(self) -> int:
        return -(-self.data.nbytes // self.fragment_size)

    def encode(self, writer_id: bytes, sn: int, number: int, reader_id: bytes = ENTITYID_UNKNOWN) -> bytes:
        """The DATA_FRAG submessage of fragment ``number`` (from 1)."""
        start = (number - 1) * self.fragment_size
        piece = memoryview(self.data)[start : start + self.fragment_size]
        return DataFrag(
            reader_id,
            writer_id,
            sn,
            number,
            1,
            self.fragment_size,
            self.data.nbytes,
            piece,
            self._inline_qos(),
            bool(self.flags & KEY_ONLY),
        ).encode()

    def fitting(self, budget: int) -> LargeSample:
        """The same sample in fragments that fit ``budget`` bytes."""
        size = min(self.fragment_size, fragment_size_for(budget))
        return self if size == self.fragment_size else replace(self, fragment_size=size)

    @classmethod
    def of_block(cls, block: DataBlock, sn: int, budget: int) -> LargeSample:
        """A sample that was framed as DATA."""
        data = np.array(np.frombuffer(block.slice(sn, sn), np.uint8))
        run = scan(data, 0, data.nbytes, PREFIX_UNKNOWN, NO_TIMESTAMP).runs[0]
        hashes = run.key_hashes()
        key_hash = None if hashes is None else hashes[0].tobytes()
        payload = np.frombuffer(run.samples().payload(0), np.uint8)
        flags = int(run.sample_flags()[0])
        return cls(payload, fragment_size_for(budget), flags, key_hash, run.coherent_set)

    def _inline_qos(self) -> ParameterList | None:
        parameters = []
        if self.key_hash is not None:
            parameters.append((PID_KEY_HASH, self.key_hash))
        status = self.flags & (DISPOSED | UNREGISTERED | FILTERED)
        if status:
            parameters.append((PID_STATUS_INFO, encode_status_info(status)))
        if self.coherent_set:
            parameters.append((PID_COHERENT_SET, encode_sequence_number(self.coherent_set)))
        return ParameterList(tuple(parameters)) if parameters else None
