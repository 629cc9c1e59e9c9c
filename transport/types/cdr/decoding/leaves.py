"""The memory that a decoded value takes, in leaves: values of innermost columns, of about 8 bytes each."""

from __future__ import annotations

import pyarrow as pa

from ...model import Array, Bitmask, Bitset, Enum, Struct, Type, Union

_LEAF_BYTES = 8


def absent_leaves(t: Type) -> int:
    """The leaves of a value even if all its members are absent; each list inside it counts as one."""
    if isinstance(t, Struct):
        return sum(absent_leaves(member.type) for member in t.members)
    return 1 + sum(absent_leaves(case.type) for case in t.cases) if isinstance(t, Union) else 1


def leaves(t: Type, target: pa.DataType | None) -> int:
    """The maximum number of leaves of a value that is decoded into the Arrow type ``target``.

    Unlike the leaves of absent members, these count the names of literals and flags, a few bytes for each byte on the
    wire. What sequences and maps inside the value hold is not counted.
    """
    if isinstance(t, Struct):
        return sum(leaves(member.type, _field(target, member.name)) for member in t.members)
    if isinstance(t, Union):
        return 1 + sum(leaves(case.type, _field(target, case.name)) for case in t.cases)
    if isinstance(t, Array):
        for _ in t.dimensions:
            target = target.value_type if target is not None and pa.types.is_list(target) else None
        each = leaves(t.element, target)
        # the elements have bytes of their own in the payload, unless the list is absent
        return 1 + t.length * each if each > absent_leaves(t.element) else 1
    if isinstance(t, Bitset):
        return len(t.fields)
    if isinstance(t, Enum) and target is not None and not pa.types.is_integer(target):
        return max(_name(name) for name, _ in t.literals)
    if isinstance(t, Bitmask) and target is not None and not pa.types.is_integer(target):
        return 1 + sum(_name(name) for name, _ in t.flags)
    return 1


def _field(target: pa.DataType | None, name: str) -> pa.DataType | None:
    if target is None or not pa.types.is_struct(target):
        return None
    at = target.get_field_index(name)
    return None if at < 0 else target.field(at).type


def _name(name: str) -> int:
    return 1 + len(name.encode()) // _LEAF_BYTES
