"""What lies between values is zero, whatever the memory held that they are written into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.cdr.encoding import draft
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from tests.types import idl_types

REPRESENTATIONS = DataRepresentation.XCDR1, DataRepresentation.XCDR2


def encoded(struct: Struct, batch: pa.RecordBatch, poison: int) -> list[bytes]:
    """The samples in both representations, memory that is not asked to be zero being full of ``poison``."""
    empty = np.empty

    def poisoned(*args: Any, **kwargs: Any) -> Any:
        made = empty(*args, **kwargs)
        if made.dtype == np.uint8:
            made.fill(poison)
        return made

    codec, found = Codec(struct), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "empty", poisoned)
        for representation in REPRESENTATIONS:
            samples = codec.encode_batch(batch, representation=representation)
            found += [bytes(samples.payload(i)) for i in range(samples.count)]
    return found


@settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
@given(st.data())
def test_no_byte_is_left_over(data: st.DataObject) -> None:
    struct = data.draw(idl_types.structs(features=idl_types.FEATURES))
    rows = data.draw(st.lists(idl_types.values(struct), min_size=1, max_size=4))
    # alike, so that samples are one table, and not alike
    for some in (rows, rows[:1] * 3):
        batch = pa.RecordBatch.from_pylist(some, schema=arrow_schema(struct))
        assert encoded(struct, batch, 0xA5) == encoded(struct, batch, 0)


@pytest.mark.parametrize(
    "members",
    [
        "octet a; double b; octet c",
        "octet a; string s; octet b; double c; octet d",
        "octet a; sequence<octet> blob; octet b; double c",
        "octet a; E e[3]; octet b",
        "octet a; sequence<E> e; octet b",
        "octet a; @optional double b; octet c",
    ],
)
@pytest.mark.parametrize("size", [0, 3, 100_001])
def test_no_byte_is_left_over_in_parts(members: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "_PART", 1 << 17)
    struct = parse_idl(f"struct E {{ double x; octet y; }}; @final struct S {{ {members}; }};")["S"]
    assert isinstance(struct, Struct)
    row: dict[str, Any] = {"a": 1, "b": 2, "c": 3, "d": 4, "s": "x" * size, "blob": b"y" * size}
    row["e"] = [{"x": 1.5, "y": 7}] * 3
    schema = arrow_schema(struct)
    for rows in ([row] * 40, [row, row | {"s": "", "blob": b"z"}] * 20):
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
        found = encoded(struct, batch, 0xA5)
        assert found == encoded(struct, batch, 0)
        for i, representation in enumerate(REPRESENTATIONS):
            alone = Codec(struct).encode_batch(batch.slice(0, 1), representation=representation)
            assert found[i * len(rows)] == bytes(alone.payload(0))
