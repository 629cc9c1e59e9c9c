"""Columns of serialized samples, to values and back: what from_cdr and to_cdr do with a batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.columns.serialized import decoded_values, encoded_values, struct_of_text
from spark_rtps.options import AppliesTo, Settings, parse_options
from spark_rtps.transport.errors import EncodeError, MalformedSampleError, OptionError, TypeDefinitionError
from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import arrow_schema

IDL = """
module m { @final struct Inner { long long stamp; };
           @final struct Outer { Inner at; string name; @optional double x; sequence<octet> raw; }; };
"""


def settings(**given: str) -> Settings:
    return parse_options({"topic": "a column", **given}, AppliesTo.READ)


OUTER = struct_of_text(IDL, settings())
SCHEMA = arrow_schema(OUTER, settings().mapping)
ROWS = [
    {"at": {"stamp": i}, "name": "n" * i, "x": None if i % 3 else i / 2, "raw": bytes(range(i))}
    for i in range(9)
]
VALUES = pa.array(ROWS, pa.struct(list(SCHEMA)))


def sparse(values: pa.Array) -> pa.Array:
    """Every fourth value is null."""
    return values.take(pa.array(np.arange(len(values)), mask=np.arange(len(values)) % 4 == 1))


@pytest.mark.parametrize("representation", [DataRepresentation.XCDR1, DataRepresentation.XCDR2])
@pytest.mark.parametrize("values", [VALUES, sparse(VALUES), VALUES[2:7], VALUES[:0], sparse(VALUES)[1:2]])
def test_encoded_values_are_decoded(values: pa.Array, representation: DataRepresentation) -> None:
    encoded = encoded_values(values, OUTER, representation)
    assert encoded.is_null().equals(values.is_null())
    for fails in (True, False):
        assert decoded_values(encoded, OUTER, SCHEMA, fails=fails).to_pylist() == values.to_pylist()


def test_a_slice_of_chunks() -> None:
    encoded = encoded_values(VALUES, OUTER, DataRepresentation.XCDR2)
    chunked = pa.chunked_array([encoded[:4], encoded[4:]])
    assert decoded_values(chunked, OUTER, SCHEMA, fails=True).to_pylist() == ROWS


@pytest.mark.parametrize("cut", [0, 3, 4, 9, 19])
def test_a_malformed_value_fails_or_is_null(cut: int) -> None:
    encoded = encoded_values(sparse(VALUES), OUTER, DataRepresentation.XCDR2).to_pylist()
    encoded[2] = encoded[2][:cut]
    values = pa.array(encoded, pa.binary())
    with pytest.raises(MalformedSampleError, match=r"^row 2 of 9\b"):
        decoded_values(values, OUTER, SCHEMA, fails=True)
    expected = sparse(VALUES).to_pylist()
    expected[2] = None
    assert decoded_values(values, OUTER, SCHEMA, fails=False).to_pylist() == expected


def test_fields_that_do_not_fit() -> None:
    with pytest.raises(EncodeError, match=r"m::Outer has no member 'nme'; its members are 'at', 'name'"):
        encoded_values(pa.array([{"nme": "a"}]), OUTER, DataRepresentation.XCDR2)
    with pytest.raises(EncodeError, match=r"m::Outer needs also 'at', 'raw'"):
        encoded_values(pa.array([{"name": "a"}]), OUTER, DataRepresentation.XCDR2)


class TestTypes:
    def test_the_outermost_struct(self) -> None:
        assert OUTER.name == "m::Outer"

    @pytest.mark.parametrize("name", ["m::Inner", "Inner"])
    def test_one_of_several_types_by_name(self, name: str) -> None:
        assert struct_of_text(IDL, settings(type=name)).name == "m::Inner"

    def test_ros(self) -> None:
        assert struct_of_text("std_msgs/msg/String", settings()).name == "std_msgs::msg::dds_::String_"

    def test_several(self) -> None:
        with pytest.raises(OptionError, match=r"'A', 'B'; name one"):
            struct_of_text("struct A { long x; }; struct B { long x; };", settings())

    def test_an_unknown_type_name_suggests_the_nearest(self) -> None:
        with pytest.raises(OptionError, match=r"did you mean 'm::Outer'\?"):
            struct_of_text(IDL, settings(type="m::Oter"))

    @pytest.mark.parametrize("text", ["", "enum E { A };", "ImuMessage"])
    def test_no_type(self, text: str) -> None:
        with pytest.raises(TypeDefinitionError):
            struct_of_text(text, settings())
