"""Samples that are too large for a datagram and travel as DATA_FRAGs (RTPS 2.5 §8.3.8.3)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from ....limits import FRAGMENT_SIZE
from ....structure import ENTITYID_UNKNOWN, PREFIX_UNKNOWN
from ....value_classes import slotted
from ....wire.framing import DataBlock
from ....wire.gso_fragments import GsoFragments, plain_head
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
from ....wire.submessages import DATA_FRAG_NUMBER_AT, DATA_FRAG_SN_AT, DataFrag

#: Bytes of a DATA_FRAG header, and of inline QoS with key hash, status info, coherent set and sentinel.
_DATA_FRAG_ROOM: Final = 36 + KEY_HASH_SIZE + STATUS_INFO_SIZE + COHERENT_SET_SIZE + SENTINEL_SIZE

_NUMBERS: Final = struct.Struct("<III")


def fragment_size_for(budget: int) -> int:
    """Bytes of a fragment that fits a datagram with ``budget`` bytes for submessages."""
    return min(FRAGMENT_SIZE, budget - _DATA_FRAG_ROOM) & ~3


@slotted
class LargeSample:
    """A sample that travels as DATA_FRAGs of ``fragment_size`` bytes each."""

    #: The payload; until it is published, a view of the caller's memory.
    data: U8
    fragment_size: int
    flags: int
    key_hash: bytes | None
    coherent_set: int = 0

    @property
    def fragments(self) -> int:
        return -(-self.data.nbytes // self.fragment_size)

    def encode_fragments(
        self, writer_id: bytes, sn: int, first: int, last: int, reader_id: bytes = ENTITYID_UNKNOWN
    ) -> Iterator[tuple[bytes, memoryview]]:
        """The DATA_FRAG submessages of the fragments first..last (from 1): for each, its head, and its piece of the
        sample, which is a view."""
        data, size = memoryview(self.data), self.fragment_size
        head, length = b"", -1
        for number in range(first, last + 1):
            piece = data[(number - 1) * size : number * size]
            if len(piece) != length:  # for the first fragment, and for the last one of the sample
                length = len(piece)
                head = self._head(writer_id, sn, number, piece, reader_id)
            else:
                head = (
                    head[:DATA_FRAG_NUMBER_AT]
                    + number.to_bytes(4, "little")
                    + head[DATA_FRAG_NUMBER_AT + 4 :]
                )
            yield head, piece

    def _head(self, writer_id: bytes, sn: int, number: int, piece: memoryview, reader_id: bytes) -> bytes:
        is_key, qos = bool(self.flags & KEY_ONLY), self._inline_qos()
        sizes = self.fragment_size, self.data.nbytes
        if qos is not None:
            return DataFrag(reader_id, writer_id, sn, number, 1, *sizes, piece, qos, is_key).encode_head()
        head = plain_head(reader_id, writer_id, *sizes, len(piece), is_key)
        numbers = _NUMBERS.pack(sn >> 32, sn & 0xFFFF_FFFF, number)
        return head[:DATA_FRAG_SN_AT] + numbers + head[DATA_FRAG_SN_AT + _NUMBERS.size :]

    def fitting(self, budget: int) -> LargeSample:
        """The same sample in fragments that fit ``budget`` bytes."""
        size = min(self.fragment_size, fragment_size_for(budget))
        return self if size == self.fragment_size else replace(self, fragment_size=size)

    @classmethod
    def of_gso(cls, gso_buffer: GsoFragments, sn: int) -> LargeSample:
        """A sample that was framed in a GSO buffer."""
        return cls(
            gso_buffer.payload(sn), gso_buffer.fragment_size, KEY_ONLY if gso_buffer.is_key else 0, None
        )

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
