"""Arrow record batches as serialized samples of one type."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from ....errors import UsageError
from ....qos import DataRepresentation
from ....wire.samples import Samples
from ...keys import key_holder, key_struct
from ...model import Extensibility, Struct, Union, traverse, without_aliases
from ..cursors import I64, U8
from ..layout import Block, Rules
from ..table import Table
from .columns import struct_columns
from .compiler import compile_aggregated
from .draft import Draft, ValueEncoder, blank_and_fill
from .key_hash import hashes_of_keys
from .nodes import RecordEncoder

# Encapsulation identifiers, big-endian (XTypes 1.3 table 60), by XCDR version and the outermost struct.
_IDENTIFIERS: Final = {
    (1, Extensibility.FINAL): 0x00,  # CDR
    (1, Extensibility.APPENDABLE): 0x00,
    (1, Extensibility.MUTABLE): 0x02,  # PL_CDR
    (2, Extensibility.FINAL): 0x06,  # PLAIN_CDR2
    (2, Extensibility.APPENDABLE): 0x08,  # DELIMITED_CDR2
    (2, Extensibility.MUTABLE): 0x0A,  # PL_CDR2
}
_HEADER: Final = 4


def least_representation(struct: Struct) -> DataRepresentation:
    """The representation that a writer uses by default: XCDR2 for a type with @mutable or @optional parts, whose forms
    in XCDR1 differ between vendors; otherwise XCDR1.

    Cyclone DDS 11 prefers XCDR2 for these too, and for @appendable types; its readers then accept both. In XCDR1 an
    @appendable type is written as if it were @final. Cyclone's C library has no XCDR1 at all for types that hold an
    @appendable one, while Fast DDS 2 has nothing else.
    """
    for t in traverse(without_aliases(struct)):
        if isinstance(t, Struct | Union) and t.extensibility is Extensibility.MUTABLE:
            return DataRepresentation.XCDR2
        if isinstance(t, Struct) and any(member.optional for member in t.members):
            return DataRepresentation.XCDR2
    return DataRepresentation.XCDR1


class Encoder:
    """Encodes record batches as samples of one type; see :class:`~..codec.Codec`."""

    def __init__(self, struct: Struct) -> None:
        plain = without_aliases(struct)
        assert isinstance(plain, Struct)
        self.struct = plain
        self._nodes: dict[tuple[int, int], ValueEncoder] = {}
        self._key_struct = key_struct(plain)
        self._key_holder = key_holder(plain)

    def encode_batch(
        self,
        batch: pa.RecordBatch,
        *,
        representation: DataRepresentation = DataRepresentation.XCDR1,
        big_endian: bool = False,
    ) -> Samples:
        """Serialize a batch, one sample for each row; columns are found by name.

        Raises EncodeError, which names the column and row, for a value that does not fit its member.
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
        return hashes_of_keys(samples, samples.all_offsets() + _HEADER, self._sizes(samples), greatest)

    def uniform_size(self, representation: DataRepresentation = DataRepresentation.XCDR1) -> int | None:
        """The size of every sample in bytes, including encapsulation header and padding; None if sizes differ."""
        block = _block(self._node(self.struct, representation))
        return None if block is None else _HEADER + block[0] + -block[0] % 4

    def _keyed(self, struct: Struct | None) -> Struct:
        if struct is None:
            raise UsageError(f"{self.struct.name} has no key")
        return struct

    def _node(self, struct: Struct, representation: DataRepresentation) -> ValueEncoder:
        """The node of ``struct``, which is the type, its key or its key holder."""
        rules = _rules(representation)
        node = self._nodes.get((rules.version, id(struct)))
        if node is None:
            node = self._nodes[rules.version, id(struct)] = compile_aggregated(rules, struct, 8)
        return node

    @staticmethod
    def _sizes(samples: Samples) -> I64:
        """The size of each body in bytes, without padding."""
        padding = samples.data[samples.all_offsets() + 3].astype(np.int64)
        return samples.all_lengths() - _HEADER - padding

    def _encode(
        self, struct: Struct, batch: pa.RecordBatch, representation: DataRepresentation, big_endian: bool
    ) -> Samples:
        node = self._node(struct, representation)
        identifier = _IDENTIFIERS[_rules(representation).version, struct.extensibility] | (not big_endian)
        order, rows = ">" if big_endian else "<", batch.num_rows
        columns = struct_columns(batch, struct)
        fixed = _block(node)
        if fixed is None:
            draft = Draft(order)
            return draft.samples(node.lay_out(draft, columns, np.zeros(rows, np.int64)), identifier)
        assert isinstance(node, RecordEncoder)
        end, block = fixed
        size = _HEADER + end + -end % 4
        samples = Samples.uniform(np.empty(rows * size, np.uint8), rows, size)
        header = np.array([0, identifier, 0, -end % 4], np.uint8).view("=u4")

        def fill(part: Table, first: int) -> None:
            Table(part.data, part.rows, part.start, size, "=").column("u4", 0)[...] = header
            if node.is_delimited:
                part.column("u4", _HEADER)[...] = block.size
            start = part.start + _HEADER + end - block.size
            node.fill_block(block, columns, Table(part.data, part.rows, start, size, order), first)

        blank_and_fill(fill, Table(samples.data, rows, 0, size, order))
        return samples


def _block(node: ValueEncoder) -> tuple[int, Block] | None:
    """The end of samples, and the layout of their members behind the DHEADER, if they are the same for all samples."""
    if not isinstance(node, RecordEncoder) or node.block is None:
        return None
    return node.block.size + (4 if node.is_delimited else 0), node.block


def _rules(representation: DataRepresentation) -> Rules:
    if representation is DataRepresentation.XML:
        raise UsageError("the data representation XML is not supported; use XCDR1 or XCDR2")
    return Rules(1 if representation is DataRepresentation.XCDR1 else 2)
