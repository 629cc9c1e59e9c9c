"""Keys of maps before a cast: Arrow ends the process where a cast makes keys that are null."""

from __future__ import annotations

import pyarrow as pa

from ..transport.errors import UsageError


def check_map_keys(array: pa.Array, target: pa.DataType) -> None:
    """Raise UsageError if a map, at any depth, would have keys that are null once it is cast.

    Keys that are indices of a dictionary are not null themselves where the dictionary's value is. Raises ArrowException
    for what cannot be cast.
    """
    t = array.type
    if isinstance(array, pa.ExtensionArray):
        check_map_keys(array.storage, target)
    elif pa.types.is_map(t):
        # first what is inside of the keys, for these are cast here
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
    """The type of a field; something nested is cast only to a type that has fields too."""
    if pa.types.is_map(target):
        return (target.key_type, target.item_type)[i]
    return target.field(i).type if i < target.num_fields else target
