"""Nulls where a schema declares that there are none: Spark would read some number there."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]


@lru_cache(maxsize=16)
def columns_without_nulls(schema: pa.Schema) -> list[int]:
    """The columns that are declared to have no nulls, or none somewhere inside."""
    return [i for i, field in enumerate(schema) if _is_promising(field)]


def _is_promising(field: pa.Field) -> bool:
    return not field.nullable or any(map(_is_promising, _inner_fields(field.type)))


def _inner_fields(t: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(t):
        return [t.item_field]  # no key is ever null
    if pa.types.is_list(t):
        return [t.value_field]
    return [t.field(i) for i in range(t.num_fields)] if pa.types.is_struct(t) else []


def forbidden_nulls(array: pa.Array, field: pa.Field) -> Mask | None:
    """The rows with a null that ``field`` does not allow, at its top or inside; None: there is none."""
    found: Mask | None = None
    if not field.nullable and array.null_count:
        found = array.is_null().to_numpy(zero_copy_only=False)
    for i, inner in enumerate(_inner_fields(field.type)):
        if not _is_promising(inner):
            continue
        if pa.types.is_struct(field.type):
            nulls = forbidden_nulls(array.field(i), inner)
        else:
            nulls = _forbidden_in_elements(array, inner)
        if nulls is not None and array.null_count:
            nulls &= array.is_valid().to_numpy(zero_copy_only=False)
        if nulls is not None:
            found = nulls if found is None else found | nulls
    return found if found is not None and found.any() else None


def _forbidden_in_elements(array: pa.ListArray, inner: pa.Field) -> Mask | None:
    offsets = array.offsets.to_numpy()
    values = array.items if pa.types.is_map(array.type) else array.values
    nulls = forbidden_nulls(values.slice(offsets[0], offsets[-1] - offsets[0]), inner)
    if nulls is None:
        return None
    before = np.concatenate([[0], np.cumsum(nulls)])[offsets - offsets[0]]
    found: Mask = np.diff(before) > 0
    return found
