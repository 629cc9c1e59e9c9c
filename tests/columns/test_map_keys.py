"""Keys of maps that a cast would make null, which ends the process."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_rtps.api.rows import conformed
from spark_rtps.transport.errors import UsageError

MAP = pa.map_(pa.string(), pa.int32())


def maps(*texts: str | None) -> pa.Array:
    """One map, whose keys are indices of a dictionary of these texts."""
    count = len(texts)
    keys = pa.DictionaryArray.from_arrays(pa.array(range(count), pa.int8()), pa.array(texts))
    return pa.MapArray.from_arrays(pa.array([0, count], pa.int32()), keys, pa.array(range(count), pa.int32()))


def test_rows_whose_keys_are_null_in_a_dictionary_are_refused() -> None:
    schema = pa.schema([("m", MAP)])
    with pytest.raises(UsageError, match="a map has keys that are null"):
        conformed(pa.record_batch([maps("a", None)], names=["m"]), schema)
    rows = conformed(pa.record_batch([maps("a", "b")], names=["m"]), schema)
    assert rows.to_pylist() == [{"m": [("a", 0), ("b", 1)]}]


def test_fields_of_structs_are_checked_by_their_names() -> None:
    inner = pa.StructArray.from_arrays([pa.array([1]), maps("a")], ["n", "m"])
    rows = pa.record_batch([inner], names=["s"])
    schema = pa.schema([("s", pa.struct([("n", pa.int32()), ("m", MAP)]))])
    assert conformed(rows, schema).to_pylist() == [{"s": {"n": 1, "m": [("a", 0)]}}]
    bad = pa.StructArray.from_arrays([pa.array([1]), maps(None)], ["n", "m"])
    with pytest.raises(UsageError, match="a map has keys that are null"):
        conformed(pa.record_batch([bad], names=["s"]), schema)
