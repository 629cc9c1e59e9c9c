"""Whether a source can read a topic, or a sink write it, with a given type; and if not, why."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeVar

from ..transport.errors import TypeDefinitionError, UsageError
from ..transport.qos import DataRepresentation, TypeConsistency
from ..transport.types.arrow import arrow_schema
from ..transport.types.cdr.codec import Codec
from ..transport.types.cdr.encoding.encoder import least_representation
from ..transport.types.model import (
    Array,
    Case,
    Extensibility,
    Map,
    Member,
    Primitive,
    PrimitiveKind,
    Sequence,
    Struct,
    Type,
    Union,
    resolve,
)
from ..transport.types.xtypes.assignability import incompatibilities_of_types
from .type_sources import TopicType

_Part = TypeVar("_Part", Member, Case)

_OCTETS: Final = {PrimitiveKind.BYTE, PrimitiveKind.UINT8}


def cannot_read(topic: TopicType, mine: TopicType) -> tuple[str, ...]:
    """Why a source of ``mine`` cannot read a writer of ``topic``; () if it can."""
    assert topic.struct is not None and mine.struct is not None
    if mine.certain:
        return incompatibilities_of_types(topic.struct, mine.struct, TypeConsistency())
    reasons = _cannot_match(topic, mine)
    try:  # the writer's type is read, and the columns picked from it
        Codec(topic.struct, arrow_schema=arrow_schema(mine.struct))
    except (TypeDefinitionError, UsageError) as error:
        reasons.append(str(error))
    return tuple(reasons)


def cannot_write(topic: TopicType, mine: TopicType) -> tuple[str, ...]:
    """Why a sink of ``mine`` cannot write to a reader of ``topic``; () if it can."""
    assert topic.struct is not None and mine.struct is not None
    plain = least_representation(mine.struct) is DataRepresentation.XCDR1
    if mine.certain:
        return incompatibilities_of_types(mine.struct, topic.struct, TypeConsistency(), in_xcdr1=plain)
    written = _read_as(topic.struct, mine.struct, plain=plain)
    assert isinstance(written, Struct)
    reasons = incompatibilities_of_types(written, topic.struct, TypeConsistency())
    return (*_cannot_match(topic, mine), *reasons)


def _cannot_match(topic: TopicType, mine: TopicType) -> list[str]:
    """Why the types do not match by name and key, the only criteria if peers do not know the type."""
    reasons = []
    if topic.type_name != mine.type_name:
        names = f"the topic's is {topic.type_name!r}, yours {mine.type_name!r}"
        reasons.append(f"TYPE: {names}, and names decide where annotations leave it open; set type.name")
    if topic.keyed != mine.keyed:
        with_key, without = ("the topic's", "yours") if topic.keyed else ("your", "the topic's")
        reasons.append(f"KEY: {with_key} type has a key, {without} has none")
    return reasons


def _read_as(topic: Type, mine: Type, *, plain: bool) -> Type:
    """``mine`` with the properties of ``topic`` that do not change its bytes: octet or uint8; and in ``plain`` XCDR1
    final or appendable."""
    topic, mine = resolve(topic), resolve(mine)
    if isinstance(mine, Primitive) and isinstance(topic, Primitive):
        return topic if {mine.kind, topic.kind} == _OCTETS else mine
    if isinstance(mine, Sequence | Array) and isinstance(topic, Sequence | Array):
        return replace(mine, element=_read_as(topic.element, mine.element, plain=plain))
    if isinstance(mine, Map) and isinstance(topic, Map):
        key, value = ((topic.key, mine.key), (topic.value, mine.value))
        return replace(mine, key=_read_as(*key, plain=plain), value=_read_as(*value, plain=plain))
    if isinstance(mine, Struct) and isinstance(topic, Struct):
        members = _parts_read_as(topic.members, mine.members, plain=plain)
        return replace(mine, members=members, extensibility=_extensibility(topic, mine, plain=plain))
    if isinstance(mine, Union) and isinstance(topic, Union):
        cases = _parts_read_as(topic.cases, mine.cases, plain=plain)
        return replace(mine, cases=cases, extensibility=_extensibility(topic, mine, plain=plain))
    return mine


def _parts_read_as(topic: tuple[_Part, ...], mine: tuple[_Part, ...], *, plain: bool) -> tuple[_Part, ...]:
    types = {part.name: part.type for part in topic}
    return tuple(
        replace(part, type=_read_as(types[part.name], part.type, plain=plain)) if part.name in types else part
        for part in mine
    )


def _extensibility(topic: Struct | Union, mine: Struct | Union, *, plain: bool) -> Extensibility:
    mutable = Extensibility.MUTABLE in (topic.extensibility, mine.extensibility)
    return mine.extensibility if mutable or not plain else topic.extensibility
