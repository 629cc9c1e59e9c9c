"""TypeObjects of others, as they are kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_rtps.transport.errors import DecodeError
from spark_rtps.transport.protocol.discovery.type_library import TypeLibrary
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.types.xtypes.structures import TypeObject
from spark_rtps.transport.types.xtypes.type_objects import type_objects_of
from spark_rtps.transport.types.xtypes.xcdr2 import decode

IDL = """
enum Color { RED, GREEN };
struct Point { octet tag; double x; };
struct Rich { octet before; Color c; sequence<Point> path; double v[3]; string name; };
"""


def rich() -> Struct:
    found = parse_idl(IDL)["Rich"]
    assert isinstance(found, Struct)
    return found


def with_another_byte(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each byte in turn, where that makes no difference: padding."""
    meant = decode(TypeObject, data)
    for i in range(len(data)):
        changed = data[:i] + bytes((data[i] ^ 0xA5,)) + data[i + 1 :]
        try:
            if decode(TypeObject, changed) == meant:
                yield i, changed
        except DecodeError:
            pass


def test_padding_bytes_of_a_type_object_are_ignored() -> None:
    """Fast DDS 3 sends whatever was in its memory, and hashes zeros."""
    changed = 0
    for identifier, data in type_objects_of(rich()).objects.items():
        for _, other in with_another_byte(data):
            library = TypeLibrary()
            library.add_type_object(identifier, other)
            assert library[identifier] == data
            changed += 1
    assert changed > 20


def test_anything_else_does() -> None:
    for identifier, data in type_objects_of(rich()).objects.items():
        padding = {i for i, _ in with_another_byte(data)}
        for i in set(range(len(data))) - padding:
            library = TypeLibrary()
            with pytest.raises(DecodeError):
                library.add_type_object(identifier, data[:i] + bytes((data[i] ^ 0xA5,)) + data[i + 1 :])
            assert len(library) == 0
