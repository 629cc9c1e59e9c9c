"""Choosing samples of a run: numbers, payloads, stamps and flags stay with their samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.structure import Guid
from spark_rtps.transport.wire.framing import frame
from spark_rtps.transport.wire.runs import scan
from spark_rtps.transport.wire.samples import Run, Samples

WRITER = Guid(b"\1" * 12, b"\0\0\1\3")


def run_of(lengths: list[int], key_hashes: bool) -> Run:
    offsets = np.cumsum([0, *lengths[:-1]])
    data = np.zeros(sum(lengths), np.uint8)
    for i, at in enumerate(offsets.tolist()):
        data[at : at + 4] = 0, 1, 0, 0
        data[at + 4 : at + lengths[i]] = i
    hashes = None
    if key_hashes:
        hashes = np.repeat(np.arange(len(lengths), dtype=np.uint8), 16).reshape(-1, 16)
    samples = Samples.ragged(data, offsets.astype(np.int64), np.array(lengths, np.int64))
    if len(set(lengths)) == 1:
        samples = Samples.uniform(data, len(lengths), lengths[0])
    (block,) = frame(samples, WRITER.entity, 10, budget=60_000, key_hashes=hashes)
    (run,) = scan(block.data, 0, len(block.data), WRITER.prefix, 7).runs
    return run


def facts(run: Run) -> list[tuple[int, bytes, int, bytes]]:
    samples, hashes = run.samples(), run.key_hashes()
    return [
        (
            int(sn),
            bytes(samples.payload(i)),
            int(run.timestamps()[i]),
            b"" if hashes is None else hashes[i].tobytes(),
        )
        for i, sn in enumerate(run.sequence_numbers())
    ]


@pytest.mark.parametrize("key_hashes", [False, True])
@given(
    lengths=st.one_of(
        st.lists(st.sampled_from([8, 12, 20]), min_size=2, max_size=12),
        st.integers(2, 12).map(lambda n: [16] * n),
    ),
    data=st.data(),
)
def test_select_keeps_what_belongs_together(
    lengths: list[int], data: st.DataObject, key_hashes: bool
) -> None:
    run = run_of(lengths, key_hashes)
    expected = facts(run)
    for _ in range(3):  # also of what was selected already
        keep = np.array(data.draw(st.lists(st.booleans(), min_size=run.count, max_size=run.count)))
        chosen = run.select(keep)
        expected = [fact for fact, kept in zip(expected, keep, strict=True) if kept]
        if chosen is None:
            assert not expected
            return
        run = chosen
        assert facts(run) == expected
        assert run.last_sn == expected[-1][0]
        assert facts(run.copy()) == expected
        half = run.count // 2
        if half > 0:
            assert facts(run.take_range(0, half)) + facts(run.take_range(half, run.count)) == expected
