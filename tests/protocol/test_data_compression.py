"""Samples outside of batches, compressed between our own ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spark_rtps.transport.errors import DropReason
from spark_rtps.transport.protocol.policies import BatchPolicy, Compression
from spark_rtps.transport.qos import HistoryKind, Qos
from spark_rtps.transport.wire.compressed import SERIES, compress, compress_series, decompress
from spark_rtps.transport.wire.message import SUBMESSAGE_HEADER_SIZE, Header
from spark_rtps.transport.wire.samples import Samples
from tests.protocol.batch_scene import (
    COMPRESSED,
    DATA,
    DATA_BATCH,
    DATA_FRAG,
    HEARTBEAT,
    LASTING,
    Scene,
    numbers,
    samples,
)
from tests.wire.plain_data import data as plain_data

ZSTD = BatchPolicy(data_compression=Compression.ZSTD)
LZ4 = BatchPolicy(data_compression=Compression.LZ4)


def bytes_sent(scene: Scene) -> int:
    """Bytes of what the writer's host sent since ``network.log`` was set."""
    host = scene.network.address_of(scene.one)
    return sum(len(datagram) for source, _, datagram in scene.network.log or () if source == host)


def written(policy: BatchPolicy, what: Samples, *, ours: bool = True, **network: object) -> Scene:
    scene = Scene(policy, **network)
    scene.join(ours=ours)
    scene.network.log = []
    scene.write(what)
    scene.settle()
    return scene


@pytest.mark.parametrize("policy", [ZSTD, LZ4], ids=["zstd", "lz4"])
def test_samples_that_share_datagrams_are_compressed_together(policy: BatchPolicy) -> None:
    plain = written(BatchPolicy(), samples(0, 5_000))
    packed = written(policy, samples(0, 5_000))
    assert numbers(packed.taken[0]) == list(range(5_000))
    kinds = packed.kinds()
    assert kinds[COMPRESSED] > 0 and kinds[DATA] == kinds[DATA_BATCH] == 0 and kinds[HEARTBEAT] > 0
    assert bytes_sent(packed) * 2 < bytes_sent(plain)


def test_a_large_sample_is_compressed_fragment_by_fragment() -> None:
    scene = written(ZSTD, samples(0, 2, 300_000))
    assert numbers(scene.taken[0]) == [0, 1]
    kinds = scene.kinds()
    assert kinds[COMPRESSED] > 2 and kinds[DATA_FRAG] == kinds[DATA] == 0


def test_small_or_incompressible_payloads_are_sent_uncompressed() -> None:
    small = written(ZSTD, samples(0, 1))
    assert (small.kinds()[COMPRESSED], small.kinds()[DATA]) == (0, 1)
    low = written(replace(ZSTD, compression_threshold=0), samples(0, 1, 100))
    assert (low.kinds()[COMPRESSED], low.kinds()[DATA]) == (1, 0)
    noise = np.random.default_rng(1).integers(0, 256, 4_000, np.uint8)
    noise[:4] = 0, 1, 0, 0
    random = written(ZSTD, Samples.uniform(noise, 1, 4_000))
    assert (random.kinds()[COMPRESSED], random.kinds()[DATA]) == (0, 1)


def test_readers_that_do_not_know_the_codec_are_sent_data() -> None:
    scene = Scene(ZSTD)
    scene.join()
    scene.join(ours=False)
    scene.network.log = []
    scene.write(samples(0, 500))
    scene.settle()
    assert scene.kinds()[COMPRESSED] == 0 and scene.kinds()[DATA] > 0
    assert [numbers(scene.taken[i]) for i in (0, 1)] == [list(range(500))] * 2


def test_batches_and_their_compression_are_another_matter() -> None:
    scene = written(
        BatchPolicy(enable=True, max_data_bytes=1 << 16, data_compression=Compression.ZSTD), samples(0, 500)
    )
    assert scene.kinds()[DATA_BATCH] > 0 and scene.kinds()[COMPRESSED] == 0


@pytest.mark.parametrize("seed", range(4))
def test_all_arrives_once_in_order_under_loss(seed: int) -> None:
    scene = Scene(ZSTD, seed=seed, loss=0.2)
    scene.join()
    for i in range(40):
        scene.write(samples(25 * i, 25))
        scene.run(5_000_000)
    scene.settle()
    scene.run(2_000_000_000)
    assert numbers(scene.taken[0]) == list(range(1_000))
    assert scene.one.drops[DropReason.BAD_ENCAPSULATION] == 0


def test_source_timestamps_and_late_joiners_are_as_without() -> None:
    scene = Scene(ZSTD, qos=LASTING)
    scene.join(LASTING)
    stamps = []
    for i in range(20):
        stamps.append(scene.network.now)
        scene.write(samples(10 * i, 10, 100))
        scene.run(1_000_000)
    scene.settle()
    late = scene.join(LASTING)
    scene.settle()
    for reader in (0, late):
        found = [stamp for run in scene.taken[reader] for stamp in run.timestamps().tolist()]
        assert found == [stamp for stamp in stamps for _ in range(10)]


def test_best_effort_readers_take_it_too() -> None:
    quality = Qos(history=HistoryKind.KEEP_ALL)
    scene = Scene(ZSTD, qos=quality)
    scene.join(quality)
    scene.network.log = []
    scene.write(samples(0, 300))
    scene.run(100_000_000)
    assert numbers(scene.taken[0]) == list(range(300)) and scene.kinds()[COMPRESSED] > 0


# --- what a series may hold -------------------------------------------------------------------------------


def series(*submessages: bytes) -> bytes:
    packed = compress_series(b"".join(submessages), "zstd")
    assert packed is not None
    return packed


def test_a_series_comes_back_as_it_was() -> None:
    inside = b"".join(plain_data(True, sn, b"\0\1\0\0" + b"abcd" * 20) for sn in range(1, 30))
    packed = series(inside)
    assert len(packed) < len(inside)
    found = decompress(packed[SUBMESSAGE_HEADER_SIZE:])
    assert found[0] == SERIES and found[SUBMESSAGE_HEADER_SIZE:] == inside


@pytest.mark.parametrize("inside", ["COMPRESSED", "HEARTBEAT", "nonsense", "cut"])
def test_nothing_but_samples_is_in_a_series(inside: str) -> None:
    scene = Scene(ZSTD)
    scene.join()
    reader, local = scene.readers[0]
    good = plain_data(True, 1, b"\0\1\0\0" + bytes(400))
    within = {
        "COMPRESSED": compress(good, "zstd") or b"",
        "HEARTBEAT": b"\x07\1\x1c\0" + bytes(28),
        "nonsense": bytes(range(64)),
        "cut": good[:100],
    }[inside]
    message = Header(prefix=scene.writer.guid.prefix).encode() + series(within * 10)
    before = sum(reader.drops.values())
    view = np.frombuffer(message, np.uint8)
    reader.receive(view, [(0, len(message), scene.network.address_of(scene.one))], now=scene.network.now)
    assert sum(reader.drops.values()) > before
    assert not list(local.take_runs())
