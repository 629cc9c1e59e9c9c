"""What a peer's IPC stream may become."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.columns import ipc_batches
from spark_rtps.columns.ipc_batches import read_batches

LONGS = pa.schema([("x", pa.int64())])
TEXTS = pa.schema([("x", pa.string())])
TOO_MUCH = "the batches would take more memory than the size of the sample allows"


def stream(*columns: pa.Array, compression: str | None = None) -> pa.Buffer:
    """One batch for each column."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("x", columns[0].type)])
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for column in columns:
            writer.write_batch(pa.RecordBatch.from_arrays([column], schema=schema))
    return sink.getvalue()


def lists_of_nulls(length: int) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, length], pa.int32()), pa.nulls(length))


def views_of_one_text(count: int) -> pa.Array:
    views = np.zeros((count, 4), "<i4")
    views[:, 0], views[:, 1] = 1 << 16, int.from_bytes(b"abab", "little")
    text = pa.py_buffer(b"ab" * (1 << 15))
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(views), text])


def shared_elements(count: int) -> pa.Array:
    offsets, sizes = pa.array([0] * count, pa.int32()), pa.array([1000] * count, pa.int32())
    return pa.ListViewArray.from_arrays(offsets, sizes, pa.array(range(1000)))


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_buffers_are_limited(compression: str) -> None:
    few, many = (pa.array(np.zeros(n, np.int64)) for n in (1 << 16, 1 << 26))
    ipc = stream(many, compression=compression)
    assert ipc.size < 4 << 20
    assert read_batches(ipc, LONGS) == ([], TOO_MUCH)
    batches, why = read_batches(stream(few, few, compression=compression), LONGS)
    assert (why, [batch["x"] for batch in batches]) == ("", [few, few])


def test_a_forged_length_hides_nothing() -> None:
    """Arrow does not look at the validity of a column without nulls."""
    raw = bytearray(stream(pa.array(np.zeros(1 << 16, np.int64)), compression="zstd"))
    buffers = struct.pack(
        "<Iqqq", 2, 0, 0, 0
    )  # how many, offset and length of the validity, offset of the values
    assert raw.count(buffers) == 1
    struct.pack_into("<q", raw, raw.find(buffers) + 12, -(1 << 40))
    assert pa.ipc.open_stream(pa.py_buffer(bytes(raw))).read_all().num_rows == 1 << 16
    assert read_batches(pa.py_buffer(bytes(raw)), LONGS) == ([], "a buffer has a negative length")


def test_the_compression_of_old_is_refused() -> None:
    batch = pa.record_batch([pa.array([1])], schema=LONGS)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.ipc.new_stream(sink, LONGS, options=options) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    assert read_batches(sink.getvalue(), LONGS) == ([], "the batch is compressed as before Arrow 1.0")


def test_compressed_dictionaries_are_limited() -> None:
    longs = pa.array(np.zeros(1 << 26, np.int64))
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), longs)
    assert read_batches(stream(column, compression="zstd"), LONGS) == ([], TOO_MUCH)
    short = pa.array(["a", "b", "a"] * 100).dictionary_encode()
    ((batch,), _) = read_batches(stream(short, compression="zstd"), TEXTS)
    assert batch["x"].to_pylist() == short.to_pylist()


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.nulls(1 << 30), pa.int64()),
        (pa.nulls(1 << 30), pa.null()),
        (lists_of_nulls(1 << 30), pa.list_(pa.int64())),
        (
            pa.StructArray.from_arrays([lists_of_nulls(1 << 30)], ["y"]),
            pa.struct([("y", pa.list_(pa.int8()))]),
        ),
        (
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(1 << 14, np.int8)), ["x" * (1 << 16)]),
            pa.string(),
        ),
        (views_of_one_text(1 << 14), pa.string()),
    ],
)
def test_the_result_of_a_cast_is_limited(column: pa.Array, wanted: pa.DataType) -> None:
    ipc = stream(column)
    assert ipc.size < 1 << 20
    assert read_batches(ipc, pa.schema([("x", wanted)])) == ([], TOO_MUCH)


def test_lists_that_share_their_elements_are_not_spread() -> None:
    batches, why = read_batches(stream(shared_elements(1 << 16)), pa.schema([("x", pa.list_(pa.int64()))]))
    assert not batches and "share their elements" in why


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.nulls(1000), pa.int64()),
        (pa.nulls(1000), pa.struct([("y", pa.int64())])),
        (lists_of_nulls(1000), pa.list_(pa.int64())),
        (pa.array(["a", None, "b" * 40], pa.string_view()), pa.string()),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)), pa.list_(pa.int32())),
        (pa.array([[(1, "a")]], pa.map_(pa.int64(), pa.string())), pa.map_(pa.int64(), pa.large_string())),
        (pa.array([1, 2, None]), pa.decimal128(20)),
        (pa.array([1, 2, None]), pa.string()),
        (pa.array(range(1_000_000), pa.int32()), pa.int64()),
    ],
)
def test_usual_columns_are_cast(column: pa.Array, wanted: pa.DataType) -> None:
    ((batch,), why) = read_batches(stream(column), pa.schema([("x", wanted)]))
    assert why == "" and batch["x"] == column.cast(wanted)


def test_columns_that_share_their_bytes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    column = pa.array(range(1000))
    schema = pa.schema([(f"x{i}", pa.int64()) for i in range(40)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([column] * 40, schema=schema))
    data = bytearray(sink.getvalue())
    # of all columns the first one's bytes: offset and length of each buffer stand in the message
    body = data.index(np.arange(1000).tobytes())
    for i in range(40):
        # that of its validity, which is empty, and that of its values
        at = data.find(np.array([8000 * i, 0, 8000 * i, 8000], "<i8").tobytes())
        assert 0 < at < body
        data[at : at + 24] = bytes(24)
    del data[body + 8000 : body + 40 * 8000]
    length = data.index(np.array([40 * 8000], "<i8").tobytes())
    data[length : length + 8] = np.array([8000], "<i8").tobytes()
    ((batch,), _) = read_batches(pa.py_buffer(bytes(data)), schema)
    assert all(shared == column for shared in batch.columns)
    monkeypatch.setattr(ipc_batches, "ARROW_BATCH_BYTES_MAX", 0)
    assert read_batches(pa.py_buffer(bytes(data)), schema) == ([], TOO_MUCH)


def test_damaged_streams_never_raise() -> None:
    random = np.random.default_rng(11)
    column = pa.array(["a", "bb"] * 50).dictionary_encode()
    for compression in (None, "zstd"):
        whole = np.frombuffer(stream(column, column, compression=compression), np.uint8)
        for _ in range(300):
            data = whole.copy()
            data[random.integers(0, len(data), 2)] = random.integers(0, 256, 2)
            batches, why = read_batches(pa.py_buffer(data), TEXTS)
            assert not why or not batches
        for size in range(0, len(whole), 7):
            read_batches(pa.py_buffer(whole[:size].copy()), TEXTS)


def test_keys_of_maps_that_a_cast_would_make_null_are_refused() -> None:
    """Arrow would end the process: an index is not null where the dictionary's value is."""
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    maps = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), keys, pa.array([1, 2]))
    wanted = pa.map_(pa.string(), pa.int64())
    refused = ([], "a map has keys that are null")  # type: ignore[var-annotated]
    assert read_batches(stream(maps), pa.schema([("x", wanted)])) == refused
    structs = pa.StructArray.from_arrays([maps], ["m"])
    assert read_batches(stream(structs), pa.schema([("x", pa.struct([("m", wanted)]))])) == refused
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), maps)
    assert read_batches(stream(lists), pa.schema([("x", pa.list_(wanted))])) == refused
    known = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["a"]))
    nested = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), maps, pa.array([1]))
    assert read_batches(stream(nested), pa.schema([("x", pa.map_(wanted, pa.int64()))])) == refused
    sound = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), known, pa.array([1]))
    batches, why = read_batches(stream(sound), pa.schema([("x", wanted)]))
    assert (why, [batch["x"].to_pylist() for batch in batches]) == ("", [[[("a", 1)]]])


def opaque(storage: pa.Array) -> pa.Array:
    """Values of a type that PyArrow knows as an extension, with any storage that a peer likes."""
    return pa.ExtensionArray.from_storage(pa.opaque(storage.type, "thing", "peer"), storage)


def test_storages_of_extension_types_are_looked_into() -> None:
    """Arrow casts them as it casts any other values."""
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", None]))
    maps = opaque(pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), keys, pa.array([1, 2])))
    wanted = pa.map_(pa.string(), pa.int64())
    refused = ([], "a map has keys that are null")  # type: ignore[var-annotated]
    assert read_batches(stream(maps), pa.schema([("x", wanted)])) == refused
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), maps)
    assert read_batches(stream(lists), pa.schema([("x", pa.list_(wanted))])) == refused
    indices, text = pa.array(np.zeros(1 << 14, np.int8)), pa.array(["x" * (1 << 16)])
    for repeated in (
        opaque(pa.DictionaryArray.from_arrays(indices, text)),
        pa.DictionaryArray.from_arrays(indices, opaque(text)),
        opaque(views_of_one_text(1 << 14)),
    ):
        assert read_batches(stream(repeated), TEXTS) == ([], TOO_MUCH)
    ((batch,), why) = read_batches(stream(opaque(pa.array(["a", None]))), TEXTS)
    assert (why, batch["x"].to_pylist()) == ("", ["a", None])


@pytest.mark.parametrize(
    ("kind", "width"),
    [
        (pa.map_(pa.string(), pa.int32()), 4),
        (pa.list_(pa.int32()), 4),
        (pa.large_list(pa.int32()), 8),
        (pa.struct([("a", pa.map_(pa.string(), pa.int32()))]), 4),
        (pa.string(), 4),
    ],
    ids=str,
)
def test_arrays_without_values_need_no_offsets(kind: pa.DataType, width: int) -> None:
    """A stream may leave them out; Arrow's ``nbytes`` reads them all the same, and ended the process."""
    raw = bytearray(stream(pa.array([], kind)))
    buffers = struct.pack("<qqqq", 0, 0, 0, width)  # of the validity, and of the offsets
    assert buffers in raw
    struct.pack_into("<q", raw, raw.find(buffers) + 24, 0)
    wanted = pa.list_(pa.int32()) if pa.types.is_large_list(kind) else kind
    batches, why = read_batches(pa.py_buffer(bytes(raw)), pa.schema([("x", wanted)]))
    assert why == "" and [batch["x"].to_pylist() for batch in batches] == [[]]


def test_names_that_are_not_utf8_are_malformed() -> None:
    """They were an error of the task, which failed again at every restart."""
    raw = bytes(stream(pa.array([1]))).replace(b"\x01\0\0\0x\0\0\0", b"\x01\0\0\0\xff\0\0\0")
    batches, why = read_batches(pa.py_buffer(raw), LONGS)
    assert batches == [] and "utf-8" in why


def test_views_that_end_with_other_bytes_are_measured() -> None:
    raw = bytearray(stream(pa.array(["a" * 20]).cast(pa.string_view())))
    views = struct.pack("<qq", 0, 16)  # offset and length of the views
    assert raw.count(views) == 1
    struct.pack_into("<q", raw, raw.find(views) + 8, 18)
    batches, why = read_batches(pa.py_buffer(bytes(raw)), TEXTS)
    assert (why, [batch["x"].to_pylist() for batch in batches]) == ("", [["a" * 20]])


def test_types_that_python_has_no_class_for_are_malformed() -> None:
    interval = pa.type_for_alias("month_day_nano_interval")
    raw = bytearray(stream(pa.array([pa.MonthDayNano([1, 2, 3])], interval)))
    found = [i for i in range(len(raw)) if raw[i] == 2]  # the unit MONTH_DAY_NANO, somewhere in the schema
    for i in found:
        changed = raw[:i] + b"\0" + raw[i + 1 :]
        assert read_batches(pa.py_buffer(bytes(changed)), LONGS)[0] == []
