"""Cyclone DDS's C library as an oracle: it reads a serialized sample and writes it again, in its own way.

Its IDL compiler gives a type's objects, and the library makes of those what its serializer works with. What it reads
and writes again to the same bytes is what it would have sent itself.

Of what its version 11.0.1 has, this does not work, and ends the process at worst; so it is asked about chosen types
only. Mutable unions, long doubles, unions whose discriminator is @key, has 8 bytes or negative labels, or whose default
is not the last branch; negative enums; wchars before other members; optional members in XCDR1; types that hold an
appendable one in XCDR1 (it wants XCDR2 for those); wstrings in a sample or delimited part of odd size, where it means
odd wstrings, and in the byte order that is not the machine's.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from ctypes import POINTER, Structure, byref, c_bool, c_char, c_int, c_int32, c_int64, c_uint32, c_void_p
from pathlib import Path

import cyclonedds
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import make_idl_struct, types
from cyclonedds.topic import Topic

from spark_rtps.transport.types import model
from tests.support import domains
from tests.types.cyclone_idlc import type_information
from tests.types.idl_for_cyclone import idl_text

_DOMAIN = domains.TYPES_ORACLE
_CONFIG = """<CycloneDDS><Domain><General><AllowMulticast>false</AllowMulticast><Interfaces>
<NetworkInterface name="lo"/></Interfaces></General></Domain></CycloneDDS>"""
_KEYHASH = 1  # DDS_CDR_KEY_SERIALIZATION_KEYHASH
_LOCAL = 1  # DDS_FIND_SCOPE_LOCAL_DOMAIN
_NUMBERS = itertools.count()
_DESCRIPTION_SIZE = 512  # struct dds_cdrstream_desc has less than half of it


class _Stream(Structure):
    """dds_istream_t and dds_ostream_t."""

    _fields_ = (("buffer", c_void_p), ("size", c_uint32), ("index", c_uint32), ("version", c_uint32))


class _Allocator(Structure):
    _fields_ = (("malloc", c_void_p), ("realloc", c_void_p), ("free", c_void_p))


@functools.cache
def _library() -> ctypes.CDLL:
    folder = Path(cyclonedds.__file__).parent.with_name("cyclonedds.libs")
    library = ctypes.CDLL(str(next(folder.glob("libddsc-*"))))
    library.dds_get_typeinfo.argtypes = [c_int32, POINTER(c_void_p)]
    library.dds_create_topic_descriptor.argtypes = [c_int, c_int32, c_void_p, c_int64, POINTER(c_void_p)]
    library.dds_cdrstream_desc_from_topic_desc.argtypes = [c_void_p, c_void_p]
    library.dds_stream_normalize.argtypes = [c_void_p, c_uint32, c_bool, c_uint32, c_void_p, c_bool, c_void_p]
    library.dds_stream_normalize.restype = c_bool
    library.dds_stream_read_sample.argtypes = [c_void_p] * 4
    library.dds_stream_read_sample.restype = None
    library.dds_stream_extract_keyBE_from_key.argtypes = [c_void_p, c_void_p, c_int, c_void_p, c_void_p]
    library.dds_stream_extract_keyBE_from_key.restype = None
    for name in ("write_sampleLE", "write_sampleBE", "extract_key_from_data"):
        function = library[f"dds_stream_{name}"]
        function.argtypes, function.restype = [c_void_p] * 4, c_bool
    return library


@functools.cache
def _allocator() -> _Allocator:
    libc = ctypes.CDLL(None)
    return _Allocator(*(ctypes.cast(each, c_void_p) for each in (libc.malloc, libc.realloc, libc.free)))


@functools.cache
def _participant() -> tuple[Domain, DomainParticipant]:
    return Domain(_DOMAIN, _CONFIG), DomainParticipant(_DOMAIN)


class Serializer:
    """The library's serializer of a type."""

    def __init__(self, t: model.Struct) -> None:
        library, participant = _library(), _participant()[1]
        # a class that passes for the type: only its type objects count
        name = f"StandIn{next(_NUMBERS)}"
        stand_in = make_idl_struct(name, t.name.replace("::", "."), {"x": types.int32})
        stand_in.__idl__.populate()
        stand_in.__idl__._xt_bytedata = type_information(idl_text(t), t.name)
        stand_in.__idl__._xt_data = (stand_in, stand_in)  # type: ignore[assignment]
        self._topic = Topic(participant, name, stand_in)
        information, described = c_void_p(), c_void_p()
        code = library.dds_get_typeinfo(self._topic._ref, byref(information))
        code = code or library.dds_create_topic_descriptor(
            _LOCAL, participant._ref, information, 0, byref(described)
        )
        if code:
            raise ValueError(f"error {code} for {t.name}")
        self._description = ctypes.create_string_buffer(_DESCRIPTION_SIZE)
        library.dds_cdrstream_desc_from_topic_desc(self._description, described)

    def rewritten(self, body: bytes, *, version: int, big_endian: bool) -> bytes:
        """A body, read and written again in the same version and byte order. Raises ValueError if it is malformed."""
        stream = self._normalized(body, version, big_endian)
        sample = ctypes.create_string_buffer(c_uint32.from_buffer(self._description).value + 16)
        _library().dds_stream_read_sample(byref(stream), sample, byref(_allocator()), self._description)
        write = _library()[f"dds_stream_write_sample{'BE' if big_endian else 'LE'}"]
        return self._written(write, sample, version)

    def key(self, body: bytes, *, version: int) -> bytes:
        """The key of a little-endian body as it is sent."""
        extract = _library().dds_stream_extract_key_from_data
        return self._written(extract, self._normalized(body, version, False), version)

    def hashed_key(self, body: bytes, *, version: int) -> bytes:
        """What the key hash of a little-endian body is made of."""
        # keys it keeps in XCDR2
        kept = self._written(
            _library().dds_stream_extract_key_from_data, self._normalized(body, version, False), 2
        )
        self._buffer = ctypes.create_string_buffer(kept, max(1, len(kept)))
        source, out = (
            _Stream(ctypes.cast(self._buffer, c_void_p), len(kept), 0, 2),
            _Stream(None, 0, 0, version),
        )
        _library().dds_stream_extract_keyBE_from_key(
            byref(source), byref(out), _KEYHASH, byref(_allocator()), self._description
        )
        return ctypes.string_at(out.buffer, out.index)

    def _normalized(self, body: bytes, version: int, big_endian: bool) -> _Stream:
        self._buffer = ctypes.create_string_buffer(body, max(1, len(body)))
        size = c_uint32()
        if not _library().dds_stream_normalize(
            self._buffer, len(self._buffer), big_endian, version, self._description, False, byref(size)
        ):
            raise ValueError(f"malformed: {body.hex(' ', 4)}")
        return _Stream(ctypes.cast(self._buffer, c_void_p), size.value, 0, version)

    def _written(
        self, write: ctypes._NamedFuncPointer, source: _Stream | ctypes.Array[c_char], version: int
    ) -> bytes:
        out, allocator = _Stream(None, 0, 0, version), byref(_allocator())
        if isinstance(source, _Stream):
            done = write(byref(source), byref(out), allocator, self._description)
        else:
            done = write(byref(out), allocator, source, self._description)
        if not done:
            raise ValueError("cannot be written")
        return ctypes.string_at(out.buffer, out.index)
