"""Samples that leave in fragments: their bytes against DATA_FRAGs encoded one at a time, and whose memory they are."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from spark_rtps.transport.log.publication_log import PublicationLog
from spark_rtps.transport.protocol.participant.packing import pack
from spark_rtps.transport.protocol.writing.changes import LargeSample
from spark_rtps.transport.structure import ENTITYID_UNKNOWN
from spark_rtps.transport.wire.message import iter_submessages
from spark_rtps.transport.wire.parameters import (
    PID_COHERENT_SET,
    PID_KEY_HASH,
    PID_STATUS_INFO,
    ParameterList,
    encode_sequence_number,
    encode_status_info,
)
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, Samples
from spark_rtps.transport.wire.submessages import DataFrag, InfoTimestamp
from tests.protocol.writer_script import LASTING, ME, MS, Script
from tests.support.campaigns import seeds

READER = b"\0\0\2\4"


def plain(large: LargeSample, sn: int, number: int, reader_id: bytes) -> bytes:
    """One fragment, encoded by itself."""
    parameters = [] if large.key_hash is None else [(PID_KEY_HASH, large.key_hash)]
    if large.flags & DISPOSED:
        parameters.append((PID_STATUS_INFO, encode_status_info(DISPOSED)))
    if large.coherent_set:
        parameters.append((PID_COHERENT_SET, encode_sequence_number(large.coherent_set)))
    at, size = (number - 1) * large.fragment_size, large.fragment_size
    return DataFrag(
        reader_id,
        ME.entity,
        sn,
        number,
        1,
        size,
        large.data.nbytes,
        large.data.tobytes()[at : at + size],
        ParameterList(tuple(parameters)) if parameters else None,
        bool(large.flags & KEY_ONLY),
    ).encode()


@pytest.mark.parametrize("seed", seeds(30))
def test_fragments_are_those_encoded_one_at_a_time(seed: int) -> None:
    r = Random(seed)
    data = np.frombuffer(r.randbytes(4 * r.randint(1, 3_000)), np.uint8)
    large = LargeSample(
        data,
        4 * r.choice([16, 100, 300, data.nbytes // 4]),
        r.choice([0, DISPOSED | KEY_ONLY]),
        r.choice([None, r.randbytes(16)]),
        r.choice([0, 5]),
    )
    first = r.randint(1, large.fragments)
    last = r.randint(first, large.fragments)
    sn, reader_id = r.choice([1, 2**32 + 7]), r.choice([ENTITYID_UNKNOWN, READER])
    encoded = [head + piece for head, piece in large.encode_fragments(ME.entity, sn, first, last, reader_id)]
    assert encoded == [plain(large, sn, number, reader_id) for number in range(first, last + 1)]


def sample(data: np.ndarray) -> Samples:
    return Samples.uniform(data, 1, data.nbytes)


def fragments(s: Script) -> list[tuple[int, int, bytes, int]]:
    """What was sent: number of the sample and of the fragment, its bytes, the timestamp in force."""
    found = []
    for datagrams in pack(ME.prefix, s.writer.outgoing()):
        for message in datagrams.messages():
            stamp = 0
            for kind, flags, start, stop in iter_submessages(memoryview(message)):
                body = memoryview(message)[start:stop]
                if kind == InfoTimestamp.KIND:
                    stamp = InfoTimestamp.decode(flags, body).timestamp or 0
                if kind == DataFrag.KIND:
                    frag = DataFrag.decode(flags, body)
                    found.append((frag.sn, frag.first_fragment, bytes(frag.payload), stamp))
    return found


@pytest.mark.parametrize(
    "term_length", [0, 16 << 20, 64 << 10], ids=["no log", "in the log", "beside the log"]
)
def test_the_caller_may_use_its_buffer_again(term_length: int) -> None:
    s = Script(log=PublicationLog.create(term_length) if term_length else None)
    data = np.frombuffer(Random(1).randbytes(300_000), np.uint8).copy()
    kept = data.tobytes()
    s.writer.write_samples(sample(data), timestamp=s.now, now=s.now)
    data[:] = 0xEE
    sent = fragments(s)
    assert b"".join(piece for _, _, piece, _ in sent) == kept
    s.now += 100 * MS
    s.nack_frag(1, 2, 3)
    assert [each[:3] for each in fragments(s)] == [each[:3] for each in sent[1:3]]


def test_each_sample_has_its_own_timestamp() -> None:
    s = Script()
    stamps = [7 * MS, 7 * MS, 9 * MS, 7 * MS]
    for stamp in stamps:
        s.writer.write_samples(sample(np.zeros(100_000, np.uint8)), timestamp=stamp, now=s.now)
    assert {(sn, stamp) for sn, _, _, stamp in fragments(s)} == set(enumerate(stamps, 1))


def several(s: Script, count: int, size: int = 200_000) -> list[bytes]:
    """Write so many large samples that are alike, in one call; what they hold."""
    data = np.frombuffer(Random(2).randbytes(count * size), np.uint8)
    taken = s.writer.write_samples(Samples.uniform(data, count, size), timestamp=s.now, now=s.now)
    assert taken == count
    return [data[i * size : (i + 1) * size].tobytes() for i in range(count)]


@pytest.mark.parametrize(
    ("term_length", "size"),
    [(0, 200_000), (16 << 20, 200_000), (16 << 20, 2_200_000)],
    ids=["no log", "in the log", "beside the log"],
)
def test_samples_that_are_alike_leave_as_if_each_were_alone(term_length: int, size: int) -> None:
    s = Script(log=PublicationLog.create(term_length, zeroes=False) if term_length else None)
    s.writer.window.reaches(64 << 20)
    wrote = several(s, 7 if size < 1 << 20 else 3, size)
    sent = fragments(s)
    count = -(-size // len(sent[0][2]))
    assert [(sn, number) for sn, number, _, _ in sent] == [
        (sn, number) for sn in range(1, len(wrote) + 1) for number in range(1, count + 1)
    ]
    for sn, payload in enumerate(wrote, 1):
        assert b"".join(piece for of, _, piece, _ in sent if of == sn) == payload
    s.now += 100 * MS
    s.nack_frag(3, 2, 4)
    assert fragments(s) == [each for each in sent if each[0] == 3 and each[1] in (2, 4)]
    s.now += 100 * MS
    s.acknack(2, 2)
    assert fragments(s)[0] == next(each for each in sent if each[0] == 2)
    s.acknack(len(wrote) + 1)
    assert s.writer.history.samples == s.writer.window.samples == 0


def test_a_part_of_them_goes_where_the_reader_takes_no_more() -> None:
    s = Script(readers=0)
    s.match(1, status_messages=True).acknack(1).status(0, 500_000)
    wrote = several(s, 5)
    assert {sn for sn, *_ in fragments(s)} == {1, 2}
    s.status(2, 500_000)
    s.acknack(3)
    assert {sn for sn, *_ in fragments(s)} == {3, 4}
    s.status(4, 500_000)
    assert b"".join(piece for _, _, piece, _ in fragments(s)) == wrote[4]


def test_a_late_joiner_is_sent_the_fragments_again() -> None:
    s = Script(LASTING)
    wrote = several(s, 3)
    s.writer.outgoing()
    s.acknack(4)
    assert s.writer.history.samples == 3
    s.match(2, transient_local=True).acknack(1, i=2)
    found: dict[int, bytes] = {}
    for _ in range(20):
        s.now += 100 * MS
        s.acknack(1, 1, 2, 3, i=2)
        for sn, number, piece, _ in fragments(s):
            if number == 1:
                found[sn] = b""
            found[sn] += piece
    assert [found[sn] for sn in (1, 2, 3)] == wrote
