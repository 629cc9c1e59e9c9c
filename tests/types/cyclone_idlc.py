"""Cyclone DDS's own IDL compiler as an oracle: the type information and the type objects it makes of an IDL text.

The wheel's ``idlc`` program cannot be run, but the library it is made of can be called. Its structures are those of
11.0: a few of their members are found by offset.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_int, c_size_t, c_ubyte, c_uint32, c_void_p
from pathlib import Path

import cyclonedds

FINAL, APPENDABLE = 0, 1
_FLAGS = 1 << 2 | 1 << 3 | 1 << 4  # extended data types, anonymous types, annotations
_DEFAULT_EXTENSIBILITY, _GLOBAL_SCOPE = 8, 48


class _Name(Structure):
    _fields_ = (("location", c_ubyte * 48), ("identifier", c_char_p), ("is_annotation", c_bool))


class _Declaration(Structure):
    _fields_ = (
        ("kind", c_int),
        ("next", c_void_p),
        ("local_scope", c_void_p),
        ("name", c_void_p),
        ("scoped_name", c_void_p),
        ("node", c_void_p),
        ("scope", c_void_p),
    )


class _Serialized(Structure):
    _fields_ = (
        ("type_information", c_void_p),
        ("type_information_size", c_size_t),
        ("type_mapping", c_void_p),
        ("type_mapping_size", c_size_t),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    folder = Path(cyclonedds.__file__).parent.with_name("cyclonedds.libs")
    ctypes.CDLL(str(next(folder.glob("libddsc-*"))), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(next(folder.glob("libcycloneddsidl-*"))))
    library.idl_create_pstate.argtypes = [c_uint32, c_void_p, POINTER(c_void_p)]
    library.idl_parse_string.argtypes = [c_void_p, c_char_p]
    library.idl_find.argtypes = [c_void_p, c_void_p, POINTER(_Name), c_uint32]
    library.idl_find.restype = POINTER(_Declaration)
    library.generate_type_meta_ser.argtypes = [c_void_p, c_void_p, POINTER(_Serialized)]
    library.idl_delete_pstate.argtypes = [c_void_p]
    return library


def type_information(text: str, name: str, *, extensibility: int = FINAL) -> tuple[bytes, bytes]:
    """The serialized TypeInformation and TypeMapping of a struct; ``extensibility`` is that of unannotated types."""
    library = _library()
    state = c_void_p()
    if library.idl_create_pstate(_FLAGS, None, byref(state)):
        raise MemoryError
    assert state.value is not None
    try:
        c_int.from_address(state.value + _DEFAULT_EXTENSIBILITY).value = extensibility
        code = library.idl_parse_string(state, text.encode())
        if code:
            raise ValueError(f"error {code} in\n{text}")
        scope = c_void_p.from_address(state.value + _GLOBAL_SCOPE).value
        node = None
        for part in name.split("::"):
            found = library.idl_find(state, scope, byref(_Name(identifier=part.encode())), 0)
            scope, node = found.contents.scope, found.contents.node
        made = _Serialized()
        code = library.generate_type_meta_ser(state, node, byref(made))
        if code:
            raise ValueError(f"error {code} in\n{text}")
        return (
            ctypes.string_at(made.type_information, made.type_information_size),
            ctypes.string_at(made.type_mapping, made.type_mapping_size),
        )
    finally:
        library.idl_delete_pstate(state)
