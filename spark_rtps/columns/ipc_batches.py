"""The record batches of an ArrowBatch sample: a peer's IPC stream, read within a limit of memory.

A few bytes of a stream can expand to many: compressed buffers, columns of the null type, which have only a length,
indices of a dictionary with one long value, views of one text, columns that share their bytes.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..transport.errors import UsageError
from ..transport.limits import ARROW_BATCH_BYTES_MAX, ARROW_BATCH_BYTES_PER_BYTE_MAX
from .nulls import check_map_keys, inner_type

#: Bytes that a list, or the text of a number, takes after a cast; other texts are measured.
_VARIABLE_BYTES: Final = 32
_TEXTS: Final = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
#: Types whose values may share their bytes.
_VIEWS: Final = (pa.string_view(), pa.binary_view())
#: The errors of PyArrow for a malformed stream, for types without a class, and for names that are not UTF-8.
_UNSOUND: Final = (
    pa.ArrowException,
    OSError,
    MemoryError,
    UsageError,
    struct.error,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
)
_EXPERIMENTAL_COMPRESSION: Final = b"ARROW:experimental_compression"
#: Field numbers of Arrow's Message, DictionaryBatch and RecordBatch in the Flatbuffers schema.
_MESSAGE_HEADER, _DICTIONARY_DATA, _BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 1, 2, 3


class _Allowance:
    """The bytes that the batches of one sample may still take."""

    def __init__(self, ipc: pa.Buffer) -> None:
        self._left = ARROW_BATCH_BYTES_MAX + ARROW_BATCH_BYTES_PER_BYTE_MAX * ipc.size

    def take_bytes(self, nbytes: int) -> None:
        self._left -= nbytes
        if nbytes < 0 or self._left < 0:
            raise UsageError("the batches would take more memory than the size of the sample allows")


def read_batches(ipc: pa.Buffer, schema: pa.Schema) -> tuple[list[pa.RecordBatch], str]:
    """The batches of a peer's IPC stream, or why it is malformed."""
    try:
        uncompressed, held = _Allowance(ipc), _Allowance(ipc)
        for message in pa.ipc.MessageReader.open_stream(ipc):
            uncompressed.take_bytes(_uncompressed_bytes(message))
        return [_conform(batch, schema, held) for batch in pa.ipc.open_stream(ipc)], ""
    except _UNSOUND as error:
        # the stream is from a peer: a task that failed on it would fail again at every restart
        return [], str(error) or type(error).__name__


def _conform(batch: pa.RecordBatch, schema: pa.Schema, held: _Allowance) -> pa.RecordBatch:
    """The columns of ``schema`` out of a peer's ``batch``, by name, cast where types differ.

    Raises UsageError if a column is missing, a value does not fit or the memory limit is exceeded, ArrowException if
    the batch is malformed.
    """
    batch.validate(full=True)  # offsets too: the JVM does not check them
    held.take_bytes(batch.num_rows + sum(map(_bytes_of, batch.columns)))
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            raise UsageError(f"there is no column {field.name!r} among {batch.schema.names}")
        column = batch.column(at) if batch.num_rows else pa.array([], batch.schema.types[at])
        if column.type != field.type:
            try:
                held.take_bytes(_cast_bytes(column, field.type))
                check_map_keys(column, field.type)
                column = column.cast(field.type)
            except pa.ArrowException as error:
                raise UsageError(
                    f"column {field.name!r} is {column.type} and does not fit {field.type}: {error}"
                ) from None
        if not field.nullable and column.null_count:
            raise UsageError(f"column {field.name!r} is declared NOT NULL and has nulls")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# --- what an array takes ------------------------------------------------------------------------------------


def _bytes_of(array: pa.Array) -> int:
    """Bytes of the values of an array, each counted as often as it is used.

    Arrow's ``nbytes`` ends the process if an array without values has no offsets, which a stream may contain.
    """
    t, count = array.type, len(array)
    if not count:
        return 0
    if isinstance(array, pa.ExtensionArray):
        return _bytes_of(array.storage)
    if pa.types.is_struct(t):
        return count + sum(_bytes_of(array.field(i)) for i in range(t.num_fields))
    if pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_map(t):
        first, last = array.offsets[0].as_py(), array.offsets[count].as_py()
        inner = (array.keys, array.items) if pa.types.is_map(t) else (array.values,)
        return 8 * count + sum(_bytes_of(each[first:last]) for each in inner)
    if pa.types.is_dictionary(t):
        return int(array.indices.nbytes) + _bytes_of(array.dictionary)
    if pa.types.is_nested(t):
        return int(array.get_total_buffer_size())
    return int(array.nbytes)


# --- what a cast takes ----------------------------------------------------------------------------------


def _cast_bytes(array: pa.Array, target: pa.DataType) -> int:
    """The maximum number of bytes of the array after a cast."""
    t = array.type
    if isinstance(array, pa.ExtensionArray):
        return _cast_bytes(array.storage, target)
    taken = len(array) * _width(target)
    if pa.types.is_dictionary(t):
        return taken + _text_bytes(array.dictionary, array.indices)
    if t in _VIEWS:
        return taken + _view_bytes(array)
    if pa.types.is_struct(t):
        return taken + sum(_cast_bytes(array.field(i), inner_type(target, i)) for i in range(t.num_fields))
    if pa.types.is_map(t):
        return (
            taken
            + _cast_bytes(array.keys, inner_type(target, 0))
            + _cast_bytes(array.items, inner_type(target, 1))
        )
    if pa.types.is_nested(t):
        # list views may share their elements; a cast would copy them for each list
        if (pc.sum(pc.list_value_length(array)).as_py() or 0) > len(array.values):
            raise UsageError(f"lists of {t} share their elements")
        return taken + _cast_bytes(array.values, inner_type(target, 0))
    return taken + _bytes_of(array)


def _width(t: pa.DataType) -> int:
    if pa.types.is_struct(t):
        return sum(_width(field.type) for field in t)
    try:
        return (int(t.bit_width) + 7) // 8
    except ValueError:
        return _VARIABLE_BYTES


def _text_bytes(values: pa.Array, indices: pa.Array) -> int:
    """Bytes of the values at these indices, for types of variable size; else 0."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if values.type in _TEXTS:
        return int(pc.sum(pc.binary_length(values).cast(pa.int64()).take(indices)).as_py() or 0)
    if values.type in _VIEWS or pa.types.is_nested(values.type):
        return len(indices) * _bytes_of(values)
    return 0


def _view_bytes(array: pa.Array) -> int:
    if not len(array):
        return 0
    # the buffer may end with anything
    lengths = np.frombuffer(array.buffers()[1], "<i4", 4 * (array.offset + len(array)))[::4]
    return int(lengths[array.offset :].sum(dtype=np.int64))


# --- what a message's buffers take uncompressed -----------------------------------------------------


def _uncompressed_bytes(message: pa.ipc.Message) -> int:
    """The uncompressed sizes that a message declares for its buffers; PyArrow allocates them unchecked."""
    metadata, body = message.metadata, message.body
    if (
        _EXPERIMENTAL_COMPRESSION in metadata.to_pybytes()
    ):  # the form before Arrow 1.0, which PyArrow still reads
        raise UsageError("the batch is compressed as before Arrow 1.0")
    if message.type not in ("record batch", "dictionary") or body is None:
        return 0
    table = _table(metadata, _field(metadata, _table(metadata, 0), _MESSAGE_HEADER))
    if message.type == "dictionary":
        table = _table(metadata, _field(metadata, table, _DICTIONARY_DATA))
    if not _field(metadata, table, _BATCH_COMPRESSION):
        return 0
    at = _table(metadata, _field(metadata, table, _BATCH_BUFFERS))
    (count,) = struct.unpack_from("<I", metadata, at)
    taken: int = 0
    for i in range(count):
        offset, length = struct.unpack_from("<qq", metadata, at + 4 + 16 * i)
        if length < 0:
            raise UsageError("a buffer has a negative length")
        if length:
            (declared,) = struct.unpack_from("<q", body, offset)
            taken += length if declared < 0 else declared  # -1: this one is not compressed
    return taken


def _field(data: pa.Buffer, table: int, number: int) -> int:
    """The offset of a field of a Flatbuffers table; 0 if the field is absent."""
    vtable = table - int(struct.unpack_from("<i", data, table)[0])
    (size,) = struct.unpack_from("<H", data, vtable)
    at = 4 + 2 * number
    offset = int(struct.unpack_from("<H", data, vtable + at)[0]) if at < size else 0
    return table + offset if offset else 0


def _table(data: pa.Buffer, at: int) -> int:
    """The position that the offset at ``at`` points to."""
    return at + int(struct.unpack_from("<I", data, at)[0])
