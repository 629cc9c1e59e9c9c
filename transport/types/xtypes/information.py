"""TypeInformation: what a peer announces in SEDP about an endpoint's type (XTypes 1.3 §7.6.3.2.1)."""

from __future__ import annotations

from typing import Annotated

from .type_identifiers import TK_NONE, Identifier
from .xcdr2 import I32, U32, Buffer, MemberId, appendable, decode, encode, mutable


@appendable
class SizedIdentifier:
    """A type's identifier as bytes (15 of a hashed one) and the size of its serialized TypeObject."""

    id: Identifier
    size: U32


@appendable
class Dependencies:
    """A type and the types that it depends on. ``dependent_count`` may exceed the number of listed types; it is -1 if
    the peer did not count them."""

    type: SizedIdentifier
    dependent_count: I32
    dependents: tuple[SizedIdentifier, ...]


@mutable
class TypeInformation:
    """The minimal and the complete form of the type; None for a form that the peer does not have."""

    minimal: Annotated[Dependencies | None, MemberId(0x1001)]
    complete: Annotated[Dependencies | None, MemberId(0x1002)]


def encode_type_information(info: TypeInformation) -> bytes:
    """The value of PID_TYPE_INFORMATION."""
    return encode(TypeInformation, info)


def decode_type_information(value: Buffer) -> TypeInformation:
    """A value of PID_TYPE_INFORMATION. Raises DecodeError.

    Fast DDS 2 with generated type objects sends one in an encoding of its own, which is refused.
    """
    info = decode(TypeInformation, value)
    none = bytes((TK_NONE,))
    return TypeInformation(
        *(None if form is None or form.type.id == none else form for form in (info.minimal, info.complete))
    )
