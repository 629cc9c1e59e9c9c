"""GSO buffers of whole DATA messages equal submessages that are framed one after another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.wire.framing import frame, frame_messages, message_shape
from spark_rtps.transport.wire.samples import DISPOSED, KEY_ONLY, Samples

WRITER = bytes((0, 0, 1, 2))
HEADERS = bytes(range(32))


@given(
    size=st.sampled_from([0, 4, 8, 68, 132]),
    gap=st.integers(0, 5),
    count=st.integers(1, 60),
    budget=st.integers(200, 900),
    first_sn=st.sampled_from([1, 7, (1 << 32) - 20, (1 << 32) - 1, 1 << 32, (5 << 32) + 3]),
    flags=st.sampled_from([0, DISPOSED, DISPOSED | KEY_ONLY]),
    with_key_hash=st.booleans(),
    coherent_set=st.sampled_from([0, 3]),
    seed=st.integers(0, 9),
)
def test_a_gso_buffer_of_messages_equals_plain_framing(
    size: int,
    gap: int,
    count: int,
    budget: int,
    first_sn: int,
    flags: int,
    with_key_hash: bool,
    coherent_set: int,
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    data = random.integers(0, 256, gap + count * (size + gap), np.uint8)
    samples = Samples(data, count, gap, size + gap, size)
    hashes = random.integers(0, 256, (count, 16), np.uint8) if with_key_hash else None
    shape = message_shape(
        size, budget, len(HEADERS), flags=flags, with_key_hash=with_key_hash, coherent_set=coherent_set
    )
    out = np.full(shape.nbytes(count), 0xAA, np.uint8)
    gso_buffer = frame_messages(
        out, shape, HEADERS, samples, WRITER, first_sn, flags=flags, key_hashes=hashes
    )
    blocks = frame(
        samples, WRITER, first_sn, budget=budget, flags=flags, key_hashes=hashes, coherent_set=coherent_set
    )
    assert out.tobytes() == b"".join(HEADERS + block.data.tobytes() for block in blocks)
    assert (gso_buffer.first_sn, gso_buffer.count, gso_buffer.nbytes) == (first_sn, count, out.nbytes)
    found = list(gso_buffer.blocks(first_sn, first_sn + count - 1))
    assert [(each.first_sn, each.count) for each in found] == [(each.first_sn, each.count) for each in blocks]
