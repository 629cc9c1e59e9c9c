"""Reading, whatever the type: fewer columns, other neighbours, other lanes and damage change no value that is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.types.arrow import arrow_schema
from spark_rtps.transport.types.cdr.codec import Codec, Decoded
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.samples import Samples
from tests.types import idl_types

_FORMS = st.sampled_from(
    [
        (version, big)
        for version in (DataRepresentation.XCDR1, DataRepresentation.XCDR2)
        for big in (False, True)
    ]
)


def relaxed(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
    )


@st.composite
def written(draw: st.DrawFn) -> tuple[Struct, list[bytes]]:
    """A type, and samples of it in one of the representations."""
    struct = draw(idl_types.structs(features=idl_types.FEATURES | {idl_types.ANONYMOUS_ARRAYS}))
    rows = draw(st.lists(idl_types.values(struct), min_size=1, max_size=4))
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(struct))
    version, big_endian = draw(_FORMS)
    samples = Codec(struct).encode_batch(batch, representation=version, big_endian=big_endian)
    return struct, [bytes(samples.payload(i)) for i in range(samples.count)]


def gathered(payloads: list[bytes], between: bytes = b"\xa5") -> Samples:
    """Payloads, each at a multiple of 4, among bytes that are nobody's."""
    pieces = [between * 8]
    offsets = []
    for payload in payloads:
        offsets.append(sum(map(len, pieces)))
        pieces.append(payload + between * (8 + -len(payload) % 4))
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    return Samples.ragged(np.frombuffer(b"".join(pieces), np.uint8), np.array(offsets, np.int64), lengths)


def malformed(decoded: Decoded, count: int) -> list[bool]:
    found = [False] * count if decoded.malformed is None else decoded.malformed.tolist()
    assert [bool(decoded.reason(i)) for i in range(count)] == found
    decoded.batch.validate(full=True)
    assert decoded.batch.num_rows == count - sum(found)
    return found


@st.composite
def fewer(draw: st.DrawFn, t: pa.DataType) -> pa.DataType:
    """The type with some of its fields, in another order, at every depth."""
    if pa.types.is_struct(t):
        fields = draw(st.permutations(list(t)))[: draw(st.integers(1, t.num_fields))]
        return pa.struct([pa.field(field.name, draw(fewer(field.type))) for field in fields])
    if pa.types.is_list(t):
        return pa.list_(draw(fewer(t.value_type)))
    if pa.types.is_map(t):
        return pa.map_(t.key_type, draw(fewer(t.item_type)))
    return t


def projected(value: Any, t: pa.DataType) -> Any:
    """A value with only the fields of a type."""
    if value is None:
        return None
    if pa.types.is_struct(t):
        return {field.name: projected(value[field.name], field.type) for field in t}
    if pa.types.is_list(t):
        return [projected(element, t.value_type) for element in value]
    if pa.types.is_map(t):
        return [(key, projected(item, t.item_type)) for key, item in value]
    return value


@relaxed(150)
@given(written(), st.data())
def test_fewer_columns_have_the_same_values(case: tuple[Struct, list[bytes]], data: st.DataObject) -> None:
    struct, payloads = case
    whole = Codec(struct).decode_samples(gathered(payloads)).batch
    wanted = data.draw(fewer(pa.struct(list(arrow_schema(struct)))))
    decoded = Codec(struct, arrow_schema=pa.schema(list(wanted))).decode_samples(gathered(payloads))
    assert not any(malformed(decoded, len(payloads)))
    assert decoded.batch.to_pylist() == [projected(row, wanted) for row in whole.to_pylist()]


@relaxed(80)
@given(written(), st.integers(1, 40), st.booleans())
def test_few_and_many_samples_have_the_same_values(
    case: tuple[Struct, list[bytes]], times: int, alike: bool
) -> None:
    """One by one, all at once, and so many of the same that all lanes agree on where things are."""
    struct, payloads = case
    codec = Codec(struct)
    if alike:
        payloads = payloads[:1]
    single = [codec.decode_samples(gathered([payload])).batch.to_pylist()[0] for payload in payloads]
    many = codec.decode_samples(gathered(payloads * (4 * times)))
    assert not any(malformed(many, len(payloads) * 4 * times))
    assert many.batch.to_pylist() == single * (4 * times)


@relaxed(150)
@given(written(), st.data())
def test_damage_is_found_alike(case: tuple[Struct, list[bytes]], data: st.DataObject) -> None:
    """Nothing raises; nothing outside a payload is read, so neighbours change nothing; more lanes change nothing; and
    fewer columns find no other values, and none malformed that was not."""
    struct, payloads = case
    damaged = []
    for payload in payloads:
        body = bytearray(payload)
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(body) - 1))
            body[at] = data.draw(st.sampled_from([0, 1, 2, 4, 0x40, 0x7F, 0x80, 0xD8, 0xFF]))
        damaged.append(
            bytes(body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body)
        )
    codec = Codec(struct)
    found = codec.decode_samples(gathered(damaged))
    marks = malformed(found, len(damaged))
    other = codec.decode_samples(gathered(damaged, b"\0"))
    assert malformed(other, len(damaged)) == marks
    rows = str(found.batch.to_pylist())  # NaN is like itself
    assert str(other.batch.to_pylist()) == rows
    assert [other.reason(i) for i in range(len(damaged))] == [found.reason(i) for i in range(len(damaged))]
    repeated = codec.decode_samples(gathered(damaged * 70))
    assert malformed(repeated, 70 * len(damaged)) == marks * 70
    assert str(repeated.batch.slice(0, found.batch.num_rows).to_pylist()) == rows
    wanted = data.draw(fewer(pa.struct(list(arrow_schema(struct)))))
    part = Codec(struct, arrow_schema=pa.schema(list(wanted))).decode_samples(gathered(damaged))
    part_marks = malformed(part, len(damaged))
    assert all(whole or not some for whole, some in zip(marks, part_marks, strict=True))
    kept = [
        row for row, mark in zip(part.batch.to_pylist(), _of_good(marks, part_marks), strict=True) if mark
    ]
    assert str(kept) == str([projected(row, wanted) for row in found.batch.to_pylist()])


def _of_good(marks: list[bool], part_marks: list[bool]) -> list[bool]:
    """Which of the samples the fewer columns tell are told with all columns too."""
    return [not mark for mark, part in zip(marks, part_marks, strict=True) if not part]


@relaxed(60)
@given(written(), st.data())
def test_keys_of_keys(case: tuple[Struct, list[bytes]], data: st.DataObject) -> None:
    """A key payload is read as what the key columns of the sample are, the others being null."""
    struct, payloads = case
    if not struct.is_keyed:
        return
    codec = Codec(struct)
    whole = codec.decode_samples(gathered(payloads)).batch
    version, big_endian = data.draw(_FORMS)
    keys = codec.encode_keys(whole, representation=version, big_endian=big_endian)
    decoded = codec.decode_samples(keys, keys_only=True)
    assert not any(malformed(decoded, len(payloads)))
    for name, column in zip(whole.schema.names, whole.columns, strict=True):
        member = struct.member(name)
        assert member is not None
        key = decoded.batch[name].to_pylist()
        assert all(_is_part(a, b) for a, b in zip(key, column.to_pylist(), strict=True))
        assert member.key or set(key) == {None}


def _is_part(key: Any, value: Any) -> bool:
    """Whether a value is what it is in the sample, but for nulls."""
    if isinstance(key, dict):
        return all(_is_part(key[name], value[name]) for name in key)
    if isinstance(key, list):
        return len(key) == len(value) and all(_is_part(a, b) for a, b in zip(key, value, strict=True))
    return key is None or key == value
