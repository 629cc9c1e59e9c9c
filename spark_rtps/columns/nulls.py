"""Finds forbidden nulls: in columns declared NOT NULL, where Spark would read a number, and in keys of maps."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..transport.errors import UsageError

Mask = npt.NDArray[np.bool_]


@lru_cache(maxsize=16)
def columns_without_nulls(schema: pa.Schema) -> list[int]:
    """The columns that forbid nulls, at the top or inside."""
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
    """A mask of the rows with a null that ``field`` forbids, at its top or inside; None: there are none."""
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


# --- keys of maps: Arrow ends the process where a cast makes keys that are null -------------------


def check_map_keys(array: pa.Array, target: pa.DataType) -> None:
    """Raise UsageError if a map, at any depth, would have keys that are null once it is cast.

    An index into a dictionary is not null itself even if the dictionary's value is. Raises ArrowException for keys that
    cannot be cast.
    """
    t = array.type
    if isinstance(array, pa.ExtensionArray):
        check_map_keys(array.storage, target)
    elif pa.types.is_map(t):
        # first the types inside the keys, because the keys are cast here
        check_map_keys(array.keys, inner_type(target, 0))
        check_map_keys(array.items, inner_type(target, 1))
        wanted = inner_type(target, 0)
        if array.keys.type != wanted and array.keys.cast(wanted).null_count:
            raise UsageError("a map has keys that are null")
    elif pa.types.is_struct(t):
        for i, field in enumerate(t):
            at = target.get_field_index(field.name) if pa.types.is_struct(target) else -1
            if at >= 0:
                check_map_keys(array.field(i), target.field(at).type)
    elif pa.types.is_nested(t) and not pa.types.is_union(t):
        check_map_keys(array.values, inner_type(target, 0))
    elif pa.types.is_dictionary(t):
        check_map_keys(array.dictionary, target)


def inner_type(target: pa.DataType, i: int) -> pa.DataType:
    """The type of field ``i``; a nested array can only be cast to a type that has fields too."""
    if pa.types.is_map(target):
        return (target.key_type, target.item_type)[i]
    return target.field(i).type if i < target.num_fields else target
