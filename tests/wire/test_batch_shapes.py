"""DATA_BATCH whose sample infos differ in shape: one walk finds what the comparison of parts finds, and is quick."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_rtps.transport.errors import DecodeError, DropReason
from spark_rtps.transport.limits import RUNS_PER_BATCH_MAX
from spark_rtps.transport.wire import batch_scan
from spark_rtps.transport.wire.samples import DISPOSED, UNREGISTERED
from tests.fuzz.expensive import batches
from tests.wire.plain_batches import BOTH_ORDERS, NOON, Sample, encode, expected, rows_of, scanned

KEY_HASH = bytes(range(16))
SHAPES = [
    Sample(),
    Sample(payload=None),
    Sample(payload=b"long" * 5),
    Sample(timestamp=NOON + 1),
    Sample(key_hash=KEY_HASH),
    Sample(key_hash=KEY_HASH, timestamp=NOON + 7),
    Sample(payload=None, status=DISPOSED, key_hash=KEY_HASH),
    Sample(payload=b"key!", key=True, status=DISPOSED | UNREGISTERED),
    Sample(coherent_set=100),
    Sample(removed=True),
]


@st.composite
def mixtures(draw: st.DrawFn) -> list[Sample]:
    """Samples of every shape by turns; some name their numbers."""
    samples, number = [], -1
    numbered = draw(st.booleans())
    for shape in draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=60)):
        number += 1
        if numbered and draw(st.booleans()):
            number += draw(st.sampled_from([0, 0, 1, 7]))
            shape = replace(shape, offset=number)
        samples.append(shape)
    return samples


@given(samples=mixtures(), little=st.booleans())
def test_the_scan_finds_what_the_comparison_finds(samples: list[Sample], little: bool) -> None:
    """Both roads, whichever :func:`scan_batch` takes, and the plain one."""
    compared, walked = [], []  # type: ignore[var-annotated]
    for many, found in ((1 << 20, compared), (0, walked)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch_scan, "_PARTS_MANY", many)
            batch = scanned(encode(samples, little))
            found += rows_of(batch.runs)
            found += [run.coherent_set for run in batch.runs]
    assert walked == compared
    assert walked[: len(samples)] == expected(samples)


words = st.lists(
    st.sampled_from([0, 1, 2, 4, 8, 0x0200, 0x0300, 0x0100, 0x40000, 0x40200, 0xC0300, 0x80400, 0x100070, 0x40071])
    | st.integers(0, 2**32 - 1),
    min_size=1,
    max_size=60,
)  # fmt: skip


@given(words=words, little=st.booleans())
def test_the_scan_refuses_what_the_comparison_refuses(words: list[int], little: bool) -> None:
    infos = np.array(words, "<u4" if little else ">u4").view(np.uint8)
    outcomes = []
    for many in (1 << 20, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(batch_scan, "_PARTS_MANY", many)
            try:
                parts = batch_scan._parts(infos, 0, len(infos), little)
                if parts is None:
                    found = batch_scan._walk(infos, 0, len(infos), little)
                else:
                    found = batch_scan._columns(parts, little)
                outcomes.append([None if each is None else np.asarray(each).tolist() for each in found])
            except DecodeError as error:
                outcomes.append([error.reason])
    if len(outcomes[0]) == 1 or len(outcomes[1]) == 1:
        assert len(outcomes[0]) == len(outcomes[1])
    else:
        assert outcomes[0] == outcomes[1]


@BOTH_ORDERS
def test_two_thousand_samples_of_all_shapes_arrive(little: bool) -> None:
    shapes = [replace(shape, coherent_set=0) for shape in SHAPES]
    samples = [shapes[i * 7 % len(shapes)] for i in range(2_000)]
    found = scanned(encode(samples, little)[:4] + encode(samples, little)[4:])
    assert rows_of(found.runs) == expected(samples)
    assert len(found.runs) == 1


def test_a_batch_in_too_many_pieces_is_refused() -> None:
    pieces = [Sample(offset=2 * i) for i in range(RUNS_PER_BATCH_MAX + 1)]
    assert len(scanned(encode(pieces[:-1])).runs) == RUNS_PER_BATCH_MAX
    with pytest.raises(DecodeError) as caught:
        scanned(encode(pieces))
    assert caught.value.reason is DropReason.OVER_LIMIT


@pytest.mark.parametrize(
    ("name", "submessage"), [(name, parts[0]) for name, parts in batches() if name.count(",") == 1]
)
def test_no_batch_takes_long(name: str, submessage: bytes) -> None:
    best = 1.0
    for _ in range(3):
        begun = time.process_time()
        try:
            scanned(submessage)
        except DecodeError:
            pass
        best = min(best, time.process_time() - begun)
    assert best < 0.02, name
