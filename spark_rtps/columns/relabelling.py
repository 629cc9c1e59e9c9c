"""Record batches under other names: a column that Spark calls ``avg(x)`` is written as the member ``avg_x_``."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa


def relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same columns under the names of ``schema``, at every depth, by position; nothing is copied.

    Types stay those of the batch: it may have a large string where ``schema`` has a string.
    """
    return pa.record_batch(_Relabelled(batch, _schema(batch.schema, schema)))


class _Relabelled:
    """A batch with new column names, exported through Arrow's C data interface."""

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        _, array = self._batch.__arrow_c_array__()
        return self._schema.__arrow_c_schema__(), array


@lru_cache(maxsize=16)
def _schema(given: pa.Schema, names: pa.Schema) -> pa.Schema:
    """The schema of ``given``, which is the layout in memory, under these names."""
    return pa.schema([_field(*pair) for pair in zip(given, names, strict=True)])


def _field(given: pa.Field, named: pa.Field) -> pa.Field:
    return pa.field(named.name, _type(given.type, named.type), given.nullable)


def _type(given: pa.DataType, named: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(given):
        fields = zip(_fields(given), _fields(named), strict=True)
        return pa.struct([_field(*pair) for pair in fields])
    if pa.types.is_map(given):
        key = pa.field(given.key_field.name, _type(given.key_type, named.key_type), nullable=False)
        item = given.item_field.with_type(_type(given.item_type, named.item_type))
        return pa.map_(key, item, keys_sorted=given.keys_sorted)
    for is_kind, kind in ((pa.types.is_list, pa.list_), (pa.types.is_large_list, pa.large_list)):
        if is_kind(given):
            return kind(given.value_field.with_type(_type(given.value_type, named.value_type)))
    if pa.types.is_fixed_size_list(given):
        element = given.value_field.with_type(_type(given.value_type, named.value_type))
        return pa.list_(element, given.list_size)
    return given


def _fields(t: pa.DataType) -> list[pa.Field]:
    return [t.field(i) for i in range(t.num_fields)]
