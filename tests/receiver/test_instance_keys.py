"""Telling instances apart on the receiver: by the key hash that was sent, by the key where none was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_rtps.transport.qos import DataRepresentation
from spark_rtps.transport.receiver.instance_keys import InstanceKeys
from spark_rtps.transport.structure import Guid
from spark_rtps.transport.types.cdr import cursors
from spark_rtps.transport.types.cdr.codec import Codec
from spark_rtps.transport.types.idl.parser import parse_idl
from spark_rtps.transport.types.model import Struct
from spark_rtps.transport.wire.framing import frame
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import KEY_ONLY, Run, Samples

IDL = "struct Car { @key string plate; long speed; @key long seat; };"
WRITER = Guid(b"\1" * 12, b"\0\0\1\2")
CARS = pa.record_batch(
    {
        "plate": ["A", "BB", "A", "A"],
        "speed": pa.array([1, 2, 3, 4], pa.int32()),
        "seat": pa.array([1, 1, 1, 2], pa.int32()),
    }
)


def codec() -> Codec:
    struct = parse_idl(IDL)["Car"]
    assert isinstance(struct, Struct)
    return Codec(struct)


def run_of(samples: Samples, flags: int = 0, key_hashes: np.ndarray | None = None) -> Run:
    (block,) = frame(samples, WRITER.entity, 1, budget=60_000, key_hashes=key_hashes, flags=flags)
    (run,) = scan(block.data, 0, len(block.data), WRITER.prefix, 7).runs
    return run


@pytest.mark.parametrize("representation", [DataRepresentation.XCDR1, DataRepresentation.XCDR2])
def test_keys_are_taken_from_the_data_where_no_hash_was_sent(representation: DataRepresentation) -> None:
    keys = InstanceKeys(codec().struct)
    expected = codec().key_hashes(CARS, representation=representation)
    samples = codec().encode_batch(CARS, representation=representation)
    assert (keys(run_of(samples)) == expected).all()
    assert (keys(run_of(samples, key_hashes=expected)) == expected).all()
    only_keys = codec().encode_keys(CARS, representation=representation)
    assert (keys(run_of(only_keys, flags=KEY_ONLY)) == expected).all()


def test_unreadable_samples_are_of_no_instance() -> None:
    samples = codec().encode_batch(CARS)
    samples.data[4:8] = 255  # the length of the first plate
    hashes = InstanceKeys(codec().struct)(run_of(samples))
    assert not hashes[0].any()
    assert hashes[1:].any(axis=1).all()


def test_keys_that_take_much_memory_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "DECODE_LEAVES_MAX", 1)
    samples = codec().encode_batch(CARS)
    samples.data[4:8] = 255
    hashes = InstanceKeys(codec().struct)(run_of(samples))
    assert not hashes[0].any()
    assert (hashes[1:] == codec().key_hashes(CARS, representation=DataRepresentation.XCDR1)[1:]).all()


@pytest.mark.parametrize(
    ("mine", "theirs", "keys"),
    [
        ("@key string<4> k;", "@key string k;", ["ab", "abcdefgh", "abcd"]),
        ("@key string<4> k; @key long n;", "@key string k; @key long n;", ["ab", "abcdefgh", "abcd"]),
        ("@key sequence<octet, 2> k;", "@key sequence<octet> k;", [b"a", b"abc", b"ab"]),
        ("@key Old k;", "@key Older k;", [{"x": 1}] * 3),
    ],
    ids=["string", "two members", "sequence", "absent part"],
)
def test_samples_without_a_key_of_the_type_are_of_no_instance(
    mine: str, theirs: str, keys: list[Any]
) -> None:
    """A peer that tells no type may write what our type cannot hold: it ends no receiver."""
    both = "@appendable struct Older { long x; }; @appendable struct Old { long x; long y; };"
    ours, written = (parse_idl(f"{both} @final struct S {{ {members} }};")["S"] for members in (mine, theirs))
    assert isinstance(ours, Struct) and isinstance(written, Struct)
    codec = Codec(written)
    rows = [{"k": key, "n": 7} for key in keys]
    samples = codec.encode_batch(
        pa.RecordBatch.from_pylist(rows, schema=codec.arrow_schema), representation=DataRepresentation.XCDR2
    )
    found = InstanceKeys(ours)(run_of(samples)).any(axis=1)
    assert found.tolist() == ([False] * 3 if "Old" in mine else [True, False, True])


def test_without_a_type_key_hashes_separate_instances() -> None:
    samples = codec().encode_batch(CARS)
    sent = codec().key_hashes(CARS)
    assert not InstanceKeys(None)(run_of(samples)).any()
    assert (InstanceKeys(None)(run_of(samples, key_hashes=sent)) == sent).all()


# --- writers of both XCDR versions ---------------------------------------------------------------------------

#: A member of 8 bytes behind one of 4 lies elsewhere in the other version.
SEATS = "struct Seat { @key long row; @key long long number; long taken; };"
XCDR1, XCDR2 = DataRepresentation.XCDR1, DataRepresentation.XCDR2


def seats(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "row": pa.array([7] * len(numbers), pa.int32()),
            "number": pa.array(numbers, pa.int64()),
            "taken": pa.array([1] * len(numbers), pa.int32()),
        }
    )


def seat_codec() -> Codec:
    struct = parse_idl(SEATS)["Seat"]
    assert isinstance(struct, Struct)
    return Codec(struct)


def together(*parts: Samples) -> Samples:
    """Samples of several writers, as they are taken in at once."""
    payloads = [bytes(part.payload(i)) for part in parts for i in range(part.count)]
    lengths = np.array([len(each) for each in payloads])
    return Samples.ragged(
        np.frombuffer(bytearray(b"".join(payloads)), np.uint8), np.cumsum(lengths) - lengths, lengths
    )


def separated_instances(
    keys: InstanceKeys, samples: Samples, sent: np.ndarray | None = None, flags: int = 0
) -> list[bytes]:
    found = keys.hashes(samples, np.full(samples.count, flags, np.uint32), sent, keys.codec_of(WRITER))
    return [each.tobytes() for each in found]


@pytest.mark.parametrize("first", [XCDR1, XCDR2])
@pytest.mark.parametrize("sends", ["", "one", "other", "both"], ids=["no hash", "one's", "other's", "both"])
def test_an_instance_is_one_whoever_writes_it(first: DataRepresentation, sends: str) -> None:
    codec, second = seat_codec(), XCDR2 if first is XCDR1 else XCDR1
    one, other = (codec.encode_batch(seats(5, 6), representation=each) for each in (first, second))
    none = np.zeros((2, 16), np.uint8)
    of_one = codec.key_hashes(seats(5, 6), representation=first) if sends in ("one", "both") else none
    of_other = codec.key_hashes(seats(5, 6), representation=second) if sends in ("other", "both") else none
    keys = InstanceKeys(codec.struct)
    alone = separated_instances(keys, one, of_one)
    assert len(set(alone)) == 2
    assert separated_instances(keys, other, of_other) == alone
    assert separated_instances(keys, together(other, one), np.concatenate([of_other, of_one])) == alone * 2
    assert separated_instances(keys, together(one, other), np.concatenate([of_one, of_other])) == alone * 2
    only_keys = codec.encode_keys(seats(5, 6), representation=second)
    assert separated_instances(keys, only_keys, of_other, KEY_ONLY) == alone


def test_a_sample_that_is_a_hash_alone_is_of_the_instance_that_had_this_hash() -> None:
    """As RTI Connext disposes of instances."""
    codec, keys = seat_codec(), InstanceKeys(seat_codec().struct)
    alone = separated_instances(keys, codec.encode_batch(seats(5, 6), representation=XCDR1))
    theirs = codec.key_hashes(seats(5, 6), representation=XCDR2)
    separated_instances(keys, codec.encode_batch(seats(5, 6), representation=XCDR2), theirs)
    bare = Samples.ragged(np.zeros(0, np.uint8), np.zeros(2, np.int64), np.zeros(2, np.int64))
    assert separated_instances(keys, bare, theirs, KEY_ONLY) == alone
    ours = codec.key_hashes(seats(5, 6), representation=XCDR1)
    assert separated_instances(keys, bare, ours, KEY_ONLY) == alone


def test_samples_without_encapsulation_do_not_decide_the_version() -> None:
    codec, keys = seat_codec(), InstanceKeys(seat_codec().struct)
    samples = codec.encode_batch(seats(5, 6), representation=XCDR1)
    broken = together(samples)
    broken.data[1] = 0xEE
    found = separated_instances(keys, broken)
    assert found[0] == bytes(16)
    assert found[1] == codec.key_hashes(seats(6), representation=XCDR1)[0].tobytes()


def test_hashes_that_were_sent_are_taken_as_they_are_while_there_is_one_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codec, keys = seat_codec(), InstanceKeys(seat_codec().struct)
    monkeypatch.setattr(keys, "_fill", pytest.fail)
    sent = codec.key_hashes(seats(5, 6), representation=XCDR2)
    samples = codec.encode_batch(seats(5, 6), representation=XCDR2)
    assert separated_instances(keys, samples, sent) == [each.tobytes() for each in sent]


@pytest.mark.parametrize(
    "reads", ["struct Car { long speed; @key long seat; };", None], ids=["other", "none"]
)
def test_a_key_lies_where_its_writers_type_has_it(reads: str | None) -> None:
    """A reader whose type is derived from columns has no optional members, and its writers may have some."""
    written = parse_idl("struct Car { @optional long speed; @key long seat; };")["Car"]
    read = None if reads is None else parse_idl(reads)["Car"]
    assert isinstance(written, Struct) and (read is None or isinstance(read, Struct))
    cars = pa.record_batch(
        {"speed": pa.array([5, 5, 7], pa.int32()), "seat": pa.array([0, 1, 0], pa.int32())}
    )
    keys = InstanceKeys(read, {WRITER: written}.get)
    found = keys(run_of(Codec(written).encode_batch(cars)))
    assert [each.tobytes()[:4] for each in found] == [bytes(4), b"\0\0\0\1", bytes(4)]
