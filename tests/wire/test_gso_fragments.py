"""GSO buffers of fragments, against DATA_FRAGs that are encoded one after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.limits import FRAGMENT_SIZE
from spark_rtps.transport.protocol.outgoing import message_spans
from spark_rtps.transport.structure import ENTITYID_UNKNOWN
from spark_rtps.transport.wire.gso_fragments import frame_fragments, gso_bytes, samples_per_group
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import DataFrag

WRITER = bytes((0, 0, 1, 2))
HEADERS = bytes(range(32))


@given(
    words=st.integers(2, 90),
    fragment_words=st.integers(1, 40),
    gap=st.integers(0, 5),
    count=st.integers(1, 9),
    per_message=st.integers(1, 4),
    first_sn=st.sampled_from([1, 7, (1 << 32) - 2, (1 << 32) - 1, 1 << 32, (5 << 32) + 3]),
    is_key=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_gso_buffer_holds_the_fragments_of_single_encoding(
    words: int,
    fragment_words: int,
    gap: int,
    count: int,
    per_message: int,
    first_sn: int,
    is_key: bool,
    seed: int,
) -> None:
    size, fragment_size = 4 * words, 4 * min(fragment_words, words - 1)
    per = min(per_message, samples_per_group(size, fragment_size))
    data = np.random.default_rng(seed).integers(0, 256, gap + count * (size + gap), np.uint8)
    samples = Samples(data, count, gap, size + gap, size)
    out = np.full(gso_bytes(count, size, fragment_size, len(HEADERS), per), 0xAA, np.uint8)
    gso_buffer = frame_fragments(
        out, HEADERS, samples, WRITER, first_sn, fragment_size, per_message=per, is_key=is_key
    )

    def fragments(i: int) -> list[bytes]:
        payload = bytes(samples.payload(i))
        return [
            DataFrag(
                ENTITYID_UNKNOWN,
                WRITER,
                first_sn + i,
                at // fragment_size + 1,
                1,
                fragment_size,
                size,
                payload[at : at + fragment_size],
                None,
                is_key,
            ).encode()
            for at in range(0, size, fragment_size)
        ]

    messages = []
    for low in range(0, count, per):
        group = [fragments(i) for i in range(low, min(low + per, count))]
        messages += [HEADERS + each for sample in group for each in sample[:-1]]
        messages.append(HEADERS + b"".join(sample[-1] for sample in group))
    assert out.tobytes() == b"".join(messages)
    spans = message_spans(gso_buffer.nbytes, gso_buffer.message_size, gso_buffer.segment)
    assert [out[start:stop].tobytes() for start, stop in spans] == messages
    for i in range(count):
        assert gso_buffer.payload(first_sn + i).tobytes() == bytes(samples.payload(i))
    part = gso_buffer.part(first_sn + count // 2, first_sn + count - 1)
    assert part.first_sn == first_sn + count // 2 // per * per
    assert part.count == count - count // 2 // per * per
    assert part.payload(part.first_sn).tobytes() == bytes(samples.payload(part.first_sn - first_sn))
    assert gso_buffer.messages_within(2 * gso_buffer.segment - 1) == 1


@pytest.mark.parametrize(
    ("sample_size", "shared"),
    [
        (FRAGMENT_SIZE + 4, 1588),
        ((64 << 10) + 4, 30),
        (95_232, 1),
        (2 * FRAGMENT_SIZE, 1),
        ((64 << 10) + 3, 1),
    ],
)
def test_a_message_of_last_fragments_is_no_longer_than_others(sample_size: int, shared: int) -> None:
    assert samples_per_group(sample_size, FRAGMENT_SIZE) == shared
