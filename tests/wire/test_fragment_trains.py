"""Trains of fragments, against DATA_FRAGs that are encoded one after another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.structure import ENTITYID_UNKNOWN
from spark_rtps.transport.wire.fragment_train import frame_fragments, train_bytes
from spark_rtps.transport.wire.samples import Samples
from spark_rtps.transport.wire.submessages import DataFrag

WRITER = bytes((0, 0, 1, 2))
HEADERS = bytes(range(32))


@given(
    words=st.integers(2, 90),
    fragment_words=st.integers(1, 40),
    gap=st.integers(0, 5),
    count=st.integers(1, 6),
    first_sn=st.sampled_from([1, 7, (1 << 32) - 2, (1 << 32) - 1, 1 << 32, (5 << 32) + 3]),
    is_key=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_train_holds_the_fragments_that_are_encoded_one_at_a_time(
    words: int, fragment_words: int, gap: int, count: int, first_sn: int, is_key: bool, seed: int
) -> None:
    size, fragment_size = 4 * words, 4 * min(fragment_words, words - 1)
    data = np.random.default_rng(seed).integers(0, 256, gap + count * (size + gap), np.uint8)
    samples = Samples(data, count, gap, size + gap, size)
    out = np.full(train_bytes(count, size, fragment_size, len(HEADERS)), 0xAA, np.uint8)
    train = frame_fragments(out, HEADERS, samples, WRITER, first_sn, fragment_size, is_key=is_key)

    def messages(i: int) -> list[bytes]:
        payload = bytes(samples.payload(i))
        return [
            HEADERS
            + DataFrag(
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

    assert out.tobytes() == b"".join(message for i in range(count) for message in messages(i))
    for i, together in enumerate(train.samples()):
        step = train.message_size
        apart = [together[at : at + step].tobytes() for at in range(0, together.nbytes, step)]
        assert apart == messages(i)
        assert train.payload(first_sn + i).tobytes() == bytes(samples.payload(i))
    part = train.part(first_sn + count // 2, first_sn + count - 1)
    assert part.payload(part.first_sn).tobytes() == bytes(samples.payload(count // 2))
    assert train.messages_within(2 * train.segment - 1) == 1
