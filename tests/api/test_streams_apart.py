"""One stream does not affect another: a publication that is blocked, and its neighbours of the same participant."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import spark_rtps as rtps
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer
from tests.support.waiting import PATIENCE, wait_until

Participate = Callable[..., rtps.Participant]
SCHEMA = pa.schema([("id", pa.int32()), ("note", pa.string()), ("speed", pa.float64())])
OPTIONS: dict[str, Any] = {
    "nullable": "required",
    "publication.term_length": "64KiB",
    "reliable_writer.send_window_bytes": 20_000,
    "offer_timeout": "10min",
}


def publication(participant: rtps.Participant, topic: str, **options: object) -> rtps.Publication:
    return participant.publish(
        topic,
        schema=SCHEMA,
        type="interop::Vehicle",
        key="id",
        options={**OPTIONS, **options},  # type: ignore[dict-item]
    )


def vehicles(first: int, count: int) -> pa.RecordBatch:
    rows = [{"id": n, "note": "n" * 50, "speed": 0.0} for n in range(first, first + count)]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


@pytest.mark.parametrize(
    "options",
    [{}, {"batch.enable": "true"}, {"publish_mode": "asynchronous"}],
    ids=["data", "batches", "async"],
)
def test_a_blocked_publication_leaves_its_neighbour_alone(
    participate: Participate, cyclone: Callable[..., CyclonePeer], options: dict[str, object]
) -> None:
    peer = cyclone()
    peer.reader("stuck", cyclone_types.Vehicle)
    ours = participate()
    flowing_reader = participate().subscribe("flowing", schema=SCHEMA, type="interop::Vehicle", key="id")
    stuck, flowing = publication(ours, "stuck", **options), publication(ours, "flowing", **options)
    assert stuck.wait_for_readers(PATIENCE) and flowing.wait_for_readers(PATIENCE)
    stopped_at = []

    def write() -> None:
        for at in range(100):
            stuck.write(vehicles(100 * at, 100), wait=False)

    with peer.suspended():
        writing = threading.Thread(target=write)
        writing.start()
        wait_until(lambda: stuck.counters()["back_pressured"] > 0, "the publication to be blocked")
        stopped_at.append(stuck.positions)
        taken = 0
        slowest = 0.0
        for at in range(50):
            began = time.monotonic()
            flowing.write(vehicles(100 * at, 100))
            slowest = max(slowest, time.monotonic() - began)
            taken += flowing_reader.take(max_rows=100, timeout=PATIENCE).num_rows
        assert taken == 5_000
        assert writing.is_alive(), "the other one is still blocked"
        assert stuck.positions.snd_pos - stopped_at[0].snd_pos <= 64 << 10
        flow = flowing.counters()
        assert flow["repaired_samples"] == 0
    writing.join(PATIENCE)
    assert not writing.is_alive()
    stuck.wait_for_acknowledgments(PATIENCE)
    assert slowest < PATIENCE
