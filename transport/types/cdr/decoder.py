"""Serialized samples of one type as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from ...errors import TypeDefinitionError, UsageError
from ...wire.samples import Samples
from ..arrow import arrow_schema, arrow_type
from ..keys import key_holder, key_struct
from ..model import Extensibility, Struct, walk
from .decode import Record, block_arrays, compile_struct
from .lanes import I64, U8, Budget, Lanes, Mask, anywhere
from .layout import Rules, is_alike_in_xcdr
from .parameters import MutableRecord
from .values import Table

# Encapsulation identifiers (XTypes 1.3 table 60): XCDR version and how the outermost struct lies. The odd
# ones are little-endian.
_FORMATS: Final = {
    0x0000: (1, Extensibility.FINAL),  # CDR
    0x0002: (1, Extensibility.MUTABLE),  # PL_CDR
    0x0006: (2, Extensibility.FINAL),  # PLAIN_CDR2
    0x0008: (2, Extensibility.APPENDABLE),  # DELIMITED_CDR2
    0x000A: (2, Extensibility.MUTABLE),  # PL_CDR2
}
_HEADER: Final = 4


@dataclass(frozen=True, slots=True)
class Decoded:
    """``batch`` holds the well-formed samples, in order; ``malformed`` marks the others, (count,) bool."""

    batch: pa.RecordBatch
    malformed: Mask | None


class Decoder:
    """Decodes samples of one type, vectorised over all samples of a call; see :class:`~.codec.Codec`."""

    def __init__(self, struct: Struct, arrow_schema: pa.Schema | None) -> None:
        _check(struct)
        self.struct = struct
        self.arrow_schema = _check_schema(struct, arrow_schema)
        self._decoders: dict[tuple[int, Extensibility, bool], Record | MutableRecord] = {}
        self._key_struct = key_struct(struct)
        self._key_holder = key_holder(struct)

    def decode(self, samples: Samples, *, keys_only: bool = False) -> Decoded:
        """The samples as columns; ``keys_only``: payloads hold the serialized key, other columns are null.

        Never raises for what a payload holds, and reads nothing outside of it.
        """
        if keys_only and self._key_struct is None:
            return Decoded(self._empty(), np.ones(samples.count, np.bool_) if samples.count else None)
        groups = list(_by_encapsulation(samples))
        if len(groups) == 1 and groups[0][1] is None:
            batch, malformed = self._decode_alike(samples, groups[0][0], keys_only)
            return Decoded(batch, malformed)
        batches, rows = [], []
        malformed = np.ones(samples.count, np.bool_)
        for encapsulation, index in groups:
            assert index is not None
            part = Samples.ragged(samples.data, samples.all_offsets()[index], samples.all_lengths()[index])
            batch, bad = self._decode_alike(part, encapsulation, keys_only)
            good = index if bad is None else index[~bad]
            malformed[good] = False
            batches.append(batch)
            rows.append(good)
        if not batches:
            return Decoded(self._empty(), malformed if samples.count else None)
        order = np.argsort(np.concatenate(rows), kind="stable")
        batch = pa.Table.from_batches(batches).combine_chunks().take(pa.array(order)).combine_chunks()
        whole = batch.to_batches()[0] if batch.num_rows else self._empty()
        return Decoded(whole, malformed if malformed.any() else None)

    def _decode_alike(
        self, samples: Samples, encapsulation: int, keys_only: bool
    ) -> tuple[pa.RecordBatch, Mask | None]:
        """Decode samples of one encapsulation; they all have at least its header."""
        node = self._decoder(encapsulation & ~1, keys_only)
        if node is None:
            return self._empty(), np.ones(samples.count, np.bool_)
        order = "<" if encapsulation & 1 else ">"
        wanted = frozenset(self.arrow_schema.names)
        block = node.block
        if block is not None and samples.is_uniform:
            if samples.size - _HEADER < block.size:
                return self._empty(), np.ones(samples.count, np.bool_)
            table = Table(samples.data, samples.count, samples.start + _HEADER, samples.stride, order)
            arrays = block_arrays(block, table, wanted)
            return self._batch(arrays, samples.count, keys_only, None, table.bad)
        return self._decode_lanes(node, samples, order, keys_only)

    def _decode_lanes(
        self, node: Record | MutableRecord, samples: Samples, order: str, keys_only: bool
    ) -> tuple[pa.RecordBatch, Mask | None]:
        wanted = frozenset(self.arrow_schema.names)
        base, limit = samples.all_offsets() + _HEADER, samples.all_lengths() - _HEADER
        lanes = Lanes(samples.data, base, limit, order, Budget())
        node.skip(lanes, np.zeros(len(lanes), np.int64))
        lanes.budget = None
        bad = None
        if lanes.bad.any():
            bad = lanes.bad
            lanes = lanes.pick(~bad)
            if not len(lanes):
                return self._empty(), bad
        arrays, _ = node.decode_members(lanes, np.zeros(len(lanes), np.int64), wanted)
        return self._batch(arrays, len(lanes), keys_only, bad, lanes.wrong if lanes.wrong.any() else None)

    def _decoder(self, encapsulation: int, keys_only: bool) -> Record | MutableRecord | None:
        found = _FORMATS.get(encapsulation)
        if found is None:
            return None
        version, extensibility = found
        key = (version, extensibility, keys_only)
        node = self._decoders.get(key)
        if node is None:
            struct = self._key_struct if keys_only else self.struct
            assert struct is not None
            # The header says how the outermost struct lies, whatever its definition here says.
            struct = replace(struct, extensibility=extensibility)
            node = self._decoders[key] = compile_struct(Rules(version), struct, 8)
            if isinstance(node, Record):
                node.complete = self.struct.extensibility is Extensibility.FINAL
        return node

    def decode_key_hashes(self, hashes: U8) -> Decoded | None:
        """What key hashes, (rows, 16), tell of the samples they are of; columns outside the key are null.

        None if they do not tell: if they are MD5 digests, or if the key may lie in them in two ways, for
        nothing says which XCDR version the writer took them from (XTypes 1.3 §7.6.8.3.1).
        """
        holder = self._key_holder
        if holder is None or not is_alike_in_xcdr(holder):
            return None
        greatest = Rules(1).greatest_size(holder)
        if greatest is None or greatest > 16:
            return None
        rows = len(hashes)
        if not rows:
            return Decoded(self._empty(), None)
        data = np.zeros((rows, _HEADER + 16), np.uint8)
        data[:, _HEADER:] = hashes
        node = compile_struct(Rules(1), holder, 8)
        samples = Samples.uniform(data.reshape(-1), rows, _HEADER + 16)
        return Decoded(*self._decode_lanes(node, samples, ">", True))

    def _batch(
        self, arrays: dict[str, pa.Array], rows: int, keys_only: bool, bad: Mask | None, wrong: Mask | None
    ) -> tuple[pa.RecordBatch, Mask | None]:
        """The columns of the schema; rows that turned out to be ``wrong`` join those known to be ``bad``."""
        if wrong is not None:
            keep = pa.array(~wrong)
            arrays = {name: array.filter(keep) for name, array in arrays.items()}
            malformed = np.zeros(rows, np.bool_) if bad is None else bad.copy()
            malformed[np.flatnonzero(~malformed)[wrong]] = True
            rows, bad = rows - int(wrong.sum()), malformed
        columns = []
        for field in self.arrow_schema:
            array = arrays.get(field.name)
            if array is None:
                array = pa.nulls(rows, field.type)
            elif keys_only:
                member = self.struct.member(field.name)
                assert member is not None
                array = _widen(array, arrow_type(member.type))
            columns.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema), bad

    def _empty(self) -> pa.RecordBatch:
        return _empty_batch(self.arrow_schema)


def _by_encapsulation(samples: Samples) -> Iterable[tuple[int, I64 | None]]:
    """Encapsulation ids and the samples that have them (None: all). Those too short for one are left out."""
    if samples.count == 0:
        return
    if samples.is_uniform:
        if samples.size < _HEADER:
            return
        ids = Table(samples.data, samples.count, samples.start, samples.stride, ">").column("u2", 0)
        if (ids == ids[0]).all():
            yield int(ids[0]), None
            return
        long = None
    else:
        offsets, lengths = samples.all_offsets(), samples.all_lengths()
        long = None if (lengths >= _HEADER).all() else np.flatnonzero(lengths >= _HEADER)
        ids = anywhere(samples.data, ">u2")[offsets if long is None else offsets[long]]
        if long is None and (ids == ids[0]).all():
            yield int(ids[0]), None
            return
    # only those there are: a peer can send thousands of others
    for encapsulation in (number | order for number in _FORMATS for order in (0, 1)):
        index = np.flatnonzero(ids == encapsulation)
        if len(index):
            yield encapsulation, index if long is None else long[index]


def _empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _widen(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Fill what a key leaves out of nested structs with nulls."""
    if array.type == target:
        return array
    if pa.types.is_struct(target):
        children = []
        for field in target:
            index = array.type.get_field_index(field.name)
            children.append(
                pa.nulls(len(array), field.type) if index < 0 else _widen(array.field(index), field.type)
            )
        return pa.StructArray.from_arrays(children, fields=list(target))
    inner = _widen(array.values, target.value_type)
    return pa.ListArray.from_arrays(array.offsets, inner)


def _check(struct: Struct) -> None:
    for t in walk(struct):
        if isinstance(t, Struct):
            if not t.members:
                raise TypeDefinitionError(f"{t.name}: a struct without members cannot be read or written")
            if len({member.id for member in t.members}) < len(t.members):
                raise TypeDefinitionError(f"{t.name}: two members have the same id")


def _check_schema(struct: Struct, schema: pa.Schema | None) -> pa.Schema:
    own = arrow_schema(struct)
    if schema is None:
        return own
    for field in schema:
        index = own.get_field_index(field.name)
        if index < 0:
            raise UsageError(f"{struct.name} has no member {field.name!r}; it has {', '.join(own.names)}")
        if not _is_lossless(own.field(index).type, field.type):
            raise UsageError(
                f"member {field.name!r} of {struct.name} is {own.field(index).type}, not {field.type}"
            )
    return pa.schema([pa.field(field.name, field.type) for field in schema])


_NUMBERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def _is_lossless(have: pa.DataType, want: pa.DataType) -> bool:
    if have == want:
        return True
    if have in _NUMBERS and want in _NUMBERS:
        return _NUMBERS.index(have) < _NUMBERS.index(want)
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        pairs = [(have.field(i), want.field(i)) for i in range(min(have.num_fields, want.num_fields))]
        return have.num_fields == want.num_fields and all(
            a.name == b.name and _is_lossless(a.type, b.type) for a, b in pairs
        )
    if pa.types.is_list(have) and pa.types.is_list(want):
        return _is_lossless(have.value_type, want.value_type)
    return (have, want) in (
        (pa.float32(), pa.float64()),
        (pa.int32(), pa.date32()),
        (pa.string(), pa.large_string()),
        (pa.binary(), pa.large_binary()),
    ) or (have == pa.int64() and pa.types.is_timestamp(want) and want.unit == "us")
