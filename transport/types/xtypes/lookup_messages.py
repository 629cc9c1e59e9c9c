"""Encodes and decodes samples of the TypeLookup service (XTypes 1.3 §7.6.3.3.4, DDS-RPC 1.0 §7.5.1).

All samples are little-endian XCDR2, encapsulation header included, as in Cyclone DDS. Big-endian replies are refused,
because the hash of a TypeObject is defined by its little-endian bytes (XTypes 1.3 §7.3.4.9).
"""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Any, Final

from ...errors import DecodeError, DropReason
from ...limits import CONTINUATION_POINT_MAX, TYPE_LOOKUP_IDS_MAX
from ...value_classes import value
from ..model import hash_id
from .information import SizedIdentifier
from .type_identifiers import Identifier
from .xcdr2 import (
    I32,
    U8,
    U32,
    Buffer,
    MemberId,
    OctetsLayout,
    TextLayout,
    XcdrCursor,
    encode,
    final,
    layout_of,
    mutable,
)

_CDR2_LE: Final = b"\x00\x07"
_D_CDR2_LE: Final = b"\x00\x09"
_GUID: Final = 16
_SIZE: Final = Struct("<I")

#: Identifiers of the operations (XTypes 1.3 §7.6.3.3.4: @hashid of these names).
_GET_TYPES: Final = hash_id("getTypes")
_GET_DEPENDENCIES: Final = hash_id("getDependencies")
#: RemoteExceptionCode_t, and the result's ReturnCode_t.
_OK: Final = 0
#: EMHEADER of members that begin with their size, which all of these do (XTypes 1.3 §7.4.3.4.2, LC 5).
_SIZED: Final = 5 << 28


class _TypeObjectBytes:
    """A TypeObject in its bytes on the wire, DHEADER included; these bytes are hashed."""

    def write_value(self, out: bytearray, value: bytes) -> None:
        out.extend(bytes(-len(out) % 4) + value)

    def read_value(self, cursor: XcdrCursor) -> bytes:
        size = cursor.u32()
        return _SIZE.pack(size) + bytes(cursor.take_bytes(size))


@final
class _SampleIdentity:
    writer: Annotated[bytes, OctetsLayout(_GUID)]
    high: I32
    low: U32


@final
class _RequestHeader:
    request: _SampleIdentity
    instance: Annotated[str, TextLayout(255)]


@final
class _ReplyHeader:
    request: _SampleIdentity
    exception: I32


@final
class _Pair:
    id: Identifier
    object: Annotated[bytes, _TypeObjectBytes()]


@final
class _IdentifierPair:
    complete: Identifier
    minimal: Identifier


@mutable
class _GetTypesIn:
    ids: Annotated[tuple[Identifier, ...] | None, MemberId(hash_id("type_ids"))]


@mutable
class _GetTypesOut:
    types: Annotated[tuple[_Pair, ...] | None, MemberId(hash_id("types"))]
    complete_to_minimal: Annotated[
        tuple[_IdentifierPair, ...] | None, MemberId(hash_id("complete_to_minimal"))
    ]


@mutable
class _GetDependenciesIn:
    ids: Annotated[tuple[Identifier, ...] | None, MemberId(hash_id("type_ids"))]
    continuation_point: Annotated[tuple[U8, ...] | None, MemberId(hash_id("continuation_point"))]


@mutable
class _GetDependenciesOut:
    dependents: Annotated[tuple[SizedIdentifier, ...] | None, MemberId(hash_id("dependent_typeids"))]
    continuation_point: Annotated[tuple[U8, ...] | None, MemberId(hash_id("continuation_point"))]


@value
class RequestId:
    """The identity of a request: the GUID of the requester's writer, and the requester's number."""

    writer: bytes
    number: int

    def _encoded(self) -> _SampleIdentity:
        return _SampleIdentity(self.writer, self.number >> 32, self.number & 0xFFFF_FFFF)


@value
class GetTypes:
    """A request for the TypeObjects of types."""

    ids: tuple[bytes, ...]


@value
class GetTypeDependencies:
    """A request for the types on which types depend, from the continuation point of an earlier reply on."""

    ids: tuple[bytes, ...]
    continuation_point: bytes = b""


@value
class TypeLookupRequest:
    """A request. ``call`` is None for an unknown operation. ``instance`` names the service that is asked."""

    id: RequestId
    instance: str
    call: GetTypes | GetTypeDependencies | None


@value
class Types:
    """The reply to GetTypes: (identifier, serialized TypeObject) for each type."""

    objects: tuple[tuple[bytes, bytes], ...]


@value
class TypeDependencies:
    """The reply to GetTypeDependencies: types and their sizes. With a continuation point there are more."""

    dependents: tuple[SizedIdentifier, ...]
    continuation_point: bytes = b""


@value
class Reply:
    """A reply. ``result`` is None if the call failed, or if the operation is unknown."""

    id: RequestId
    result: Types | TypeDependencies | None


def instance_name(participant: bytes) -> str:
    """The service of the participant with this GUID (XTypes 1.3 §7.6.3.3.4)."""
    return f"dds.builtin.TOS.{participant.hex()}"


# --- requests -----------------------------------------------------------------------------------------


def encode_request(request: TypeLookupRequest) -> bytes:
    header = encode(_RequestHeader, _RequestHeader(request.id._encoded(), request.instance))
    call = request.call
    if isinstance(call, GetTypeDependencies):
        point = tuple(call.continuation_point)
        body = _members(
            ("type_ids", tuple[Identifier, ...], call.ids), ("continuation_point", tuple[U8, ...], point)
        )
        return _sample(header, _delimited(_GET_DEPENDENCIES, body))
    ids = () if call is None else call.ids
    return _sample(header, _delimited(_GET_TYPES, _members(("type_ids", tuple[Identifier, ...], ids))))


def decode_request(payload: Buffer) -> TypeLookupRequest:
    """Raises DecodeError."""
    cursor = _cursor(payload)
    header: _RequestHeader = layout_of(_RequestHeader).read_value(cursor)

    def call() -> GetTypes | GetTypeDependencies | None:
        operation = cursor.u32()
        if operation == _GET_TYPES:
            return GetTypes(_bounded(layout_of(_GetTypesIn).read_value(cursor).ids))
        if operation == _GET_DEPENDENCIES:
            asked: _GetDependenciesIn = layout_of(_GetDependenciesIn).read_value(cursor)
            return GetTypeDependencies(_bounded(asked.ids), _point(asked.continuation_point))
        return None

    return TypeLookupRequest(_request_id(header.request), header.instance, cursor.delimited(call))


def _bounded(ids: tuple[bytes, ...] | None) -> tuple[bytes, ...]:
    if ids is not None and len(ids) > TYPE_LOOKUP_IDS_MAX:
        raise DecodeError(DropReason.OVER_LIMIT, f"the request asks for {len(ids)} types")
    return ids or ()


# --- replies ------------------------------------------------------------------------------------------


def encode_reply(reply: Reply) -> bytes:
    header = encode(_ReplyHeader, _ReplyHeader(reply.id._encoded(), _OK))
    result = reply.result
    if isinstance(result, TypeDependencies):
        point = tuple(result.continuation_point)
        body = _members(
            ("dependent_typeids", tuple[SizedIdentifier, ...], result.dependents),
            ("continuation_point", tuple[U8, ...], point),
        )
        return _sample(header, _delimited(_GET_DEPENDENCIES, _delimited(_OK, body)))
    pairs = () if result is None else tuple(_Pair(*each) for each in result.objects)
    body = _members(
        ("types", tuple[_Pair, ...], pairs), ("complete_to_minimal", tuple[_IdentifierPair, ...], ())
    )
    return _sample(header, _delimited(_GET_TYPES, _delimited(_OK, body)))


def reply_is_for(payload: Buffer, writer: bytes) -> bool:
    """Whether a reply is for a request of this writer; participants also receive the replies to all others."""
    return bytes(payload[4 : 4 + _GUID]) == writer


def decode_reply(payload: Buffer) -> Reply:
    """Raises DecodeError."""
    cursor = _cursor(payload)
    header: _ReplyHeader = layout_of(_ReplyHeader).read_value(cursor)

    def result() -> Types | TypeDependencies | None:
        operation = cursor.u32()
        if header.exception != _OK or operation not in (_GET_TYPES, _GET_DEPENDENCIES):
            return None
        return cursor.delimited(lambda: returned(operation))

    def returned(operation: int) -> Types | TypeDependencies | None:
        if cursor.u32() != _OK:
            return None
        if operation == _GET_TYPES:
            types: _GetTypesOut = layout_of(_GetTypesOut).read_value(cursor)
            return Types(tuple((pair.id, pair.object) for pair in types.types or ()))
        announced: _GetDependenciesOut = layout_of(_GetDependenciesOut).read_value(cursor)
        return TypeDependencies(announced.dependents or (), _point(announced.continuation_point))

    return Reply(_request_id(header.request), cursor.delimited(result))


# --- both ---------------------------------------------------------------------------------------------


def _sample(header: bytes, body: bytes) -> bytes:
    """The sample with its encapsulation header, whose last two bits count the padding (RTPS 2.5 §10.2.1.2)."""
    content = header + bytes(-len(header) % 4) + body
    padding = -len(content) % 4
    return _CDR2_LE + bytes((0, padding)) + content + bytes(padding)


def _members(*members: tuple[str, Any, tuple[Any, ...]]) -> bytes:
    """A mutable structure, from the name, the type and the value of each member."""
    body = b""
    for name, hint, member in members:
        body += bytes(-len(body) % 4) + _SIZE.pack(_SIZED | hash_id(name)) + encode(hint, member)
    return _SIZE.pack(len(body)) + body


def _delimited(discriminator: int, body: bytes) -> bytes:
    """An appendable union of a long discriminator."""
    return _SIZE.pack(4 + len(body)) + _SIZE.pack(discriminator) + body


def _cursor(payload: Buffer) -> XcdrCursor:
    encapsulation = bytes(payload[:2])
    if encapsulation not in (_CDR2_LE, _D_CDR2_LE) or len(payload) < 4:
        raise DecodeError(
            DropReason.BAD_ENCAPSULATION, f"the encapsulation is {encapsulation.hex()}, not CDR2_LE"
        )
    return XcdrCursor(memoryview(payload)[4:])


def _request_id(identity: _SampleIdentity) -> RequestId:
    return RequestId(identity.writer, identity.high << 32 | identity.low)


def _point(octets: tuple[int, ...] | None) -> bytes:
    if octets is not None and len(octets) > CONTINUATION_POINT_MAX:
        raise DecodeError(DropReason.BAD_PARAMETER, f"the continuation point has {len(octets)} bytes")
    return bytes(octets or ())
