"""A program's rows as record batches: dicts, record batches, tables, and other objects that Arrow can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

import pyarrow as pa

from ..columns.nulls import check_map_keys
from ..transport.errors import EncodeError, UsageError

Row: TypeAlias = Mapping[str, Any]
#: A record batch, a table, a row or rows by column names, or an object with Arrow's C stream interface (a DataFrame).
Rows: TypeAlias = "pa.RecordBatch | pa.Table | Row | Iterable[Row]"


def record_batches(rows: Rows, schema: pa.Schema) -> list[pa.RecordBatch]:
    """The rows as batches, without empty ones. Dicts become columns of ``schema``.

    Raises UsageError for what are no rows, and for a dict with a name that is no column; EncodeError for a value that
    does not fit its column.
    """
    if isinstance(rows, pa.RecordBatch):
        batches = [rows]
    elif isinstance(rows, pa.Table):
        batches = rows.to_batches()
    elif isinstance(rows, Mapping):
        batches = [_of_dicts([rows], schema)]
    elif hasattr(rows, "__arrow_c_stream__"):
        batches = pa.table(rows).to_batches()
    elif isinstance(rows, Iterable):
        batches = [_of_dicts(list(cast("Iterable[Row]", rows)), schema)]
    else:
        raise UsageError(
            f"{type(rows).__name__} are not rows; give a record batch, a table or a list of dicts"
        )
    return [batch for batch in batches if batch.num_rows]


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema`` in its order, in its types.

    Raises UsageError if one is missing, or has values that its type does not hold.
    """
    if batch.schema.equals(schema):
        return batch
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing:
        raise UsageError(
            f"the rows lack the column {', '.join(missing)}; they have {', '.join(batch.schema.names)}"
        )
    table = pa.Table.from_batches([batch]).select(schema.names)
    try:
        for column, field in zip(table.columns, schema, strict=True):
            for chunk in column.chunks:
                check_map_keys(chunk, field.type)
        (found,) = table.cast(schema).combine_chunks().to_batches()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise UsageError(f"the rows are not of the schema: {error}") from None
    return found


def _of_dicts(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    for row in rows:
        if not isinstance(row, Mapping):
            raise UsageError(f"a row is a dict by column names, not {type(row).__name__}")
        if not row.keys() <= set(schema.names):
            strange = sorted(map(str, row.keys() - set(schema.names)))
            raise UsageError(
                f"a row has {', '.join(strange)}, which is no column; columns are {', '.join(schema.names)}"
            )
    try:
        return pa.RecordBatch.from_pylist(rows, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise EncodeError(f"a row does not fit the columns: {error}") from None
