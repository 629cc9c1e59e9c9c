"""PID_COHERENT_SET on the wire: in DATA and in batches, both ways, without leaving the fast road."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from spark_rtps.transport.wire import parameters as p
from spark_rtps.transport.wire.batch import frame_batch
from spark_rtps.transport.wire.framing import frame, frame_end_of_coherent_set
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import NO_TIMESTAMP, Run, Samples
from spark_rtps.transport.wire.submessages import Data, InfoTimestamp, decode_submessage

PREFIX, READER, WRITER = bytes(range(12)), bytes(4), b"\x00\x00\x01\x02"
BOTH_ORDERS = pytest.mark.parametrize("little", [True, False], ids=["LE", "BE"])
SETS = pytest.mark.parametrize("first_sn", [1, 7, 2**32 - 2, 2**40])


def uniform(count: int) -> Samples:
    return Samples.uniform(np.tile(np.array([0, 1, 0, 0, 9, 9, 9, 9], np.uint8), count), count, 8)


def ragged(count: int) -> Samples:
    lengths = 4 + 4 * (np.arange(count, dtype=np.int64) % 5)
    data = np.zeros(int(lengths.sum()), np.uint8)
    offsets = np.cumsum(lengths) - lengths
    data[offsets + 1] = 1
    return Samples.ragged(data, offsets, lengths)


SHAPES = pytest.mark.parametrize("samples_of", [uniform, ragged])


def scan_all(message: bytes) -> list[Run]:
    data, pos, runs = np.frombuffer(message, np.uint8), 0, []
    while pos < len(message):
        found = scan(data, pos, len(message), PREFIX, NO_TIMESTAMP)
        runs += found.runs
        pos = found.pos
    return runs


def data(sn: int, coherent_set: int | None, little: bool, key_hash: bytes | None = None) -> bytes:
    """DATA made the plain way; None: no inline QoS."""
    if coherent_set is None:
        return Data(READER, WRITER, sn, bytes(8)).encode(little)
    parameters = [(p.PID_COHERENT_SET, p.encode_sequence_number(coherent_set, little))]
    if key_hash is not None:
        parameters.insert(0, (p.PID_KEY_HASH, key_hash))
    return Data(READER, WRITER, sn, bytes(8), p.ParameterList(tuple(parameters), little)).encode(little)


@SHAPES
@SETS
@pytest.mark.parametrize("keyed", [False, True])
def test_a_set_is_one_run(samples_of: Callable[[int], Samples], first_sn: int, keyed: bool) -> None:
    samples = samples_of(40)
    hashes = np.arange(640, dtype=np.uint32).astype(np.uint8).reshape(40, 16) if keyed else None
    [block] = frame(samples, WRITER, first_sn, budget=60_000, key_hashes=hashes, coherent_set=first_sn)
    message = block.data.tobytes()
    runs = scan_all(message)
    wraps = first_sn < 2**32 <= first_sn + 39  # a run of equal rows ends where the high word changes
    assert len(runs) <= 1 + wraps
    assert [run.coherent_set for run in runs] == [first_sn] * len(runs)
    assert all((run.stride > 0) == samples.is_uniform or run.count == 1 or wraps for run in runs)
    found = [bytes(run.samples().payload(i)) for run in runs for i in range(run.count)]
    assert found == [bytes(samples.payload(i)) for i in range(40)]
    if hashes is not None:
        sent = [run.key_hashes() for run in runs]
        assert np.concatenate([each for each in sent if each is not None]).tolist() == hashes.tolist()
    # and what the plain decoder makes of it
    for i, (kind, flags, start, stop) in enumerate(iter_submessages(memoryview(bytes(20) + message))):
        one = decode_submessage(kind, flags, memoryview(bytes(20) + message)[start:stop])
        assert isinstance(one, Data) and one.sn == first_sn + i and one.inline_qos is not None
        assert one.inline_qos.get(p.PID_COHERENT_SET) == p.encode_sequence_number(first_sn)


@BOTH_ORDERS
def test_coherent_sets_in_both_byte_orders(little: bool) -> None:
    """Two sets, one sample of none, one that says so: four runs."""
    sets = [5, 5, 5, 8, 8, None, p.SEQUENCENUMBER_UNKNOWN]
    runs = scan_all(b"".join(data(5 + i, each, little) for i, each in enumerate(sets)))
    assert [(run.first_sn, run.last_sn, run.coherent_set) for run in runs] == [
        (5, 7, 5),
        (8, 9, 8),
        (10, 10, 0),
        (11, 11, -1),
    ]
    assert runs[0].stride > 0 and runs[1].stride > 0


@BOTH_ORDERS
def test_a_coherent_set_with_a_timestamp_before_each_sample(little: bool) -> None:
    """As Cyclone DDS batches."""
    message = b"".join(InfoTimestamp(10**9 * i).encode(little) + data(5 + i, 5, little) for i in range(9))
    array = np.frombuffer(message, np.uint8)
    found = scan(array, 12, len(array), PREFIX, 0, after_info_ts=True)
    [run] = found.runs
    assert (run.count, run.coherent_set, found.pos) == (9, 5, len(message))
    assert run.stride > 0
    assert run.timestamps().tolist() == [10**9 * i for i in range(9)]


@SETS
def test_end_of_a_set(first_sn: int) -> None:
    block = frame_end_of_coherent_set(WRITER, first_sn)
    assert (block.first_sn, block.count, block.nbytes, block.end_of(first_sn)) == (first_sn, 1, 40, 40)
    message = block.data.tobytes()
    [run] = scan_all(message)
    assert (run.first_sn, run.count, run.coherent_set, run.flags) == (first_sn, 1, -1, 0)
    assert run.samples().payload(0).nbytes == 0
    one = decode_submessage(message[0], message[1], memoryview(message)[4:])
    expected = ((p.PID_COHERENT_SET, bytes.fromhex("ffffffff00000000")),)
    assert one == Data(READER, WRITER, first_sn, None, p.ParameterList(expected))


def test_vector_of_the_end() -> None:
    assert frame_end_of_coherent_set(WRITER, 9).data.tobytes() == bytes.fromhex(
        "15032400 00001000"  # DATA, E | Q, 36 bytes
        "00000000 00000102 00000000 09000000"  # to every reader; sample 9
        "56000800 ffffffff 00000000"  # PID_COHERENT_SET: SEQUENCENUMBER_UNKNOWN
        "01000000"
    )


@SHAPES
@SETS
def test_a_coherent_set_in_a_batch(samples_of: Callable[[int], Samples], first_sn: int) -> None:
    block = frame_batch(samples_of(40), WRITER, 3, first_sn, coherent_set=first_sn)
    [run] = block.to_run(PREFIX, 0)
    assert (run.first_sn, run.count, run.coherent_set, run.batch_sn) == (first_sn, 40, first_sn, 3)
    [run] = frame_batch(samples_of(40), WRITER, 3, first_sn).to_run(PREFIX, 0)
    assert run.coherent_set == 0


@SHAPES
def test_parts_of_a_run_belong_to_its_set(samples_of: Callable[[int], Samples]) -> None:
    [block] = frame(samples_of(10), WRITER, 5, budget=60_000, coherent_set=5)
    [run] = scan_all(block.data.tobytes())
    kept = run.select(np.arange(10) % 2 == 0)
    assert kept is not None
    assert [part.coherent_set for part in (run.take_range(2, 5), run.copy(), kept)] == [5, 5, 5]


def test_disposed_in_a_set() -> None:
    nothing = Samples.uniform(np.zeros(0, np.uint8), 1, 0, stride=4)
    [block] = frame(
        nothing, WRITER, 6, budget=1000, flags=1, key_hashes=np.zeros((1, 16), np.uint8), coherent_set=5
    )
    [run] = scan_all(block.data.tobytes())
    assert (run.coherent_set, run.flags & 7, run.key_hashes() is not None) == (5, 1, True)


def test_numbers_that_begin_no_set() -> None:
    for number in (0, -1, -(2**40)):
        [run] = scan_all(data(5, number, True))
        assert run.coherent_set == -1


def test_sequence_number_values() -> None:
    assert p.encode_sequence_number(2**32 + 5, False) == bytes.fromhex("0000000100000005")
    assert p.encode_sequence_number(p.SEQUENCENUMBER_UNKNOWN) == bytes.fromhex("ffffffff00000000")
