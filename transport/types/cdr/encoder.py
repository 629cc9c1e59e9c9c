"""Arrow record batches as serialized samples of one type."""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import pyarrow as pa

from ...errors import UsageError
from ...qos import DataRepresentation
from ...wire.samples import Samples
from ..keys import key_holder, key_struct
from ..model import Struct
from .columns import struct_columns
from .encode import Record, compile_struct
from .lanes import I64, U8, Sink, align, gather_bytes, offsets_of
from .layout import Block, Rules
from .values import Table

_HEADER: Final = 4


class Encoder:
    """Encodes record batches as samples of one type; see :class:`~.codec.Codec`."""

    def __init__(self, struct: Struct) -> None:
        self.struct = struct
        self._encoders: dict[tuple[int, Struct], Record] = {}
        self._key_struct = key_struct(struct)
        self._key_holder = key_holder(struct)

    def encode(
        self,
        batch: pa.RecordBatch,
        *,
        representation: DataRepresentation = DataRepresentation.XCDR1,
        big_endian: bool = False,
    ) -> Samples:
        """Serialize a batch, one sample a row; columns are found by name.

        Raises EncodeError naming column and row of a value that does not fit its member.
        """
        return self._encode(self.struct, batch, representation, big_endian)

    def encode_keys(
        self,
        batch: pa.RecordBatch,
        *,
        representation: DataRepresentation = DataRepresentation.XCDR1,
        big_endian: bool = False,
    ) -> Samples:
        """Serialize the keys only (as for a dispose); only key columns are needed."""
        return self._encode(self._keyed(self._key_struct), batch, representation, big_endian)

    def key_hashes(
        self, batch: pa.RecordBatch, *, representation: DataRepresentation = DataRepresentation.XCDR1
    ) -> U8:
        """Key hashes, (rows, 16) uint8: the big-endian key if it never exceeds 16 bytes, else its MD5
        (RTPS 2.5 §9.6.4.8)."""
        holder = self._keyed(self._key_holder)
        samples = self._encode(holder, batch, representation, True)
        greatest = _rules(representation).greatest_size(holder)
        hashes = np.zeros((batch.num_rows, 16), np.uint8)
        offsets, sizes = samples.all_offsets(), self._sizes(samples)
        if greatest is not None and greatest <= 16:
            pieces = gather_bytes(samples.data, offsets + _HEADER, sizes)
            rows = np.repeat(np.arange(len(sizes)), sizes)
            hashes[rows, np.arange(len(rows)) - offsets_of(sizes)[:-1].repeat(sizes)] = pieces
            return hashes
        view = memoryview(samples.data)
        for i, (at, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
            key = view[at + _HEADER : at + _HEADER + size]
            hashes[i] = np.frombuffer(hashlib.md5(key, usedforsecurity=False).digest(), np.uint8)
        return hashes

    def uniform_size(self, representation: DataRepresentation = DataRepresentation.XCDR1) -> int | None:
        """Bytes of every sample, encapsulation header and padding included; None if they differ."""
        size = self._encoder(self.struct, representation).size
        return None if size is None else _HEADER + size + -size % 4

    def _keyed(self, struct: Struct | None) -> Struct:
        if struct is None:
            raise UsageError(f"{self.struct.name} has no key")
        return struct

    def _encoder(self, struct: Struct, representation: DataRepresentation) -> Record:
        rules = _rules(representation)
        node = self._encoders.get((rules.version, struct))
        if node is None:
            node = self._encoders[rules.version, struct] = compile_struct(rules, struct, 8)
        return node

    @staticmethod
    def _sizes(samples: Samples) -> I64:
        """Bytes of each body, without padding."""
        padding = samples.data[samples.all_offsets() + 3].astype(np.int64)
        return samples.all_lengths() - _HEADER - padding

    def _encode(
        self, struct: Struct, batch: pa.RecordBatch, representation: DataRepresentation, big_endian: bool
    ) -> Samples:
        node = self._encoder(struct, representation)
        identifier = (0 if representation is DataRepresentation.XCDR1 else 8 if node.delimited else 6) + (
            0 if big_endian else 1
        )
        order, rows = ">" if big_endian else "<", batch.num_rows
        fields = struct_columns(batch, struct)
        if node.size is not None:
            size = _HEADER + node.size + -node.size % 4
            samples = Samples.uniform(np.zeros(rows * size, np.uint8), rows, size)
            header = np.array([0, identifier, 0, -node.size % 4], np.uint8).view(np.uint32)
            Table(samples.data, rows, 0, size, "=").column("u4", 0)[...] = header
            step = node.steps[0]
            if not node.delimited and isinstance(step, Block):
                node.fill_block(step, fields, None, Table(samples.data, rows, _HEADER, size, order))
                return samples
        else:
            ends = node.measure(fields, None, np.zeros(rows, np.int64))
            lengths = _HEADER + align(ends, 4)
            offsets = offsets_of(lengths)
            samples = Samples.ragged(np.zeros(int(offsets[-1]), np.uint8), offsets[:-1], lengths)
            samples.data[offsets[:-1] + 1] = identifier
            samples.data[offsets[:-1] + 3] = -ends % 4
        sink = Sink(samples.data, samples.all_offsets() + _HEADER, order)
        node.write(fields, None, sink, np.zeros(rows, np.int64))
        return samples


def _rules(representation: DataRepresentation) -> Rules:
    if representation is DataRepresentation.XML:
        raise UsageError("the data representation XML is not supported; use XCDR1 or XCDR2")
    return Rules(1 if representation is DataRepresentation.XCDR1 else 2)
