"""TypeObjects as Fast DDS 3 makes them of IDL."""

from __future__ import annotations

from dataclasses import replace

from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.types.xtypes import structures as x
from spark_rtps.transport.types.xtypes.type_identifiers import TypeIdentifier
from spark_rtps.transport.types.xtypes.type_objects import identifier_of, struct_of, type_objects_of
from spark_rtps.transport.types.xtypes.xcdr2 import decode, encode


def test_literals_are_qualified() -> None:
    expected = parse_idl("module s3 { enum Color { RED, GREEN }; @final struct Car { Color c; }; };")[
        "s3::Car"
    ]
    assert isinstance(expected, Struct)
    reported = type_objects_of(expected)
    assert reported.information.complete is not None
    top, (color,) = reported.information.complete.type.id, reported.information.complete.dependents

    described = decode(x.TypeObject, reported.objects[color.id])
    enum = described.value.value
    assert isinstance(enum, x.EnumeratedType)
    literals = tuple(
        replace(each, detail=replace(each.detail, name=f"s3::{each.detail.name}"))
        for each in enum.literal_seq
    )
    qualified = encode(
        x.TypeObject,
        replace(described, value=replace(described.value, value=replace(enum, literal_seq=literals))),
    )
    identifier = identifier_of(qualified)

    described = decode(x.TypeObject, reported.objects[top])
    car = described.value.value
    assert isinstance(car, x.StructType)
    (member,) = car.member_seq
    common = replace(member.common, member_type_id=TypeIdentifier(identifier[0], identifier[1:]))
    car = replace(car, member_seq=(replace(member, common=common),))
    raw = encode(x.TypeObject, replace(described, value=replace(described.value, value=car)))
    assert struct_of(identifier_of(raw), {identifier: qualified, identifier_of(raw): raw}) == expected
