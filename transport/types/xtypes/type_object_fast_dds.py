"""The type object that Fast DDS 2 announces under the parameter id of XTypes 1.1's (PID 0x0072).

It is a TypeObject of XTypes 1.2 with its encapsulation header, in XCDR1 that does not mark optional members: an empty
text represents an absent one. Fast DDS sends only the TypeObject of the topic's type, which refers to other types by
their hashes. A type with members of such types therefore cannot be read from it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...errors import DecodeError, DropReason
from ..model import Array, Map, Sequence, String, Struct, Type, resolve
from .structures import TypeObject
from .type_identifiers import EK_COMPLETE
from .type_reading import described_by
from .xcdr2 import decode

_CDR_LE: Final = b"\x00\x01"
_HEADER: Final = 4
#: The bound that Fast DDS announces for unbounded strings.
_UNBOUNDED: Final = 255


def is_of_fast_dds(value: bytes) -> bool:
    """Whether a value has the form of Fast DDS: in XTypes 1.1 its first bytes would be an empty parameter."""
    return value[:2] == _CDR_LE and value[_HEADER : _HEADER + 1] == bytes((EK_COMPLETE,))


def struct_of_fast_dds(value: bytes) -> Struct:
    """The struct in such a value. Raises DecodeError, TypeDefinitionError."""
    described = resolve(described_by(decode(TypeObject, value[_HEADER:], bare=True)))
    if not isinstance(described, Struct):
        raise DecodeError(DropReason.BAD_PARAMETER, "the type is not a struct")
    members = tuple(replace(member, type=_unbounded(member.type), notes=()) for member in described.members)
    return replace(described, members=members)


def _unbounded(t: Type) -> Type:
    if isinstance(t, String) and t.bound == _UNBOUNDED:
        return String()
    if isinstance(t, Sequence | Array):
        return replace(t, element=_unbounded(t.element))
    if isinstance(t, Map):
        return replace(t, key=_unbounded(t.key), value=_unbounded(t.value))
    return t
