"""Keyed topics: dispose, unregister and both ways of ending an instance, to and from Cyclone DDS.

What goes on the wire: Cyclone sends a dispose or unregister as DATA with the serialized key (K flag), the status
info and no key hash, a write_dispose as DATA with the whole sample and the status info. It takes the same from
us; a key hash beside the key does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.wire.samples import DISPOSED, HAS_KEY_HASH, KEY_ONLY, UNREGISTERED
from tests.interop import cyclone_types
from tests.interop.cyclone_peer import CyclonePeer, Taken
from tests.interop.subscription import Subscription, batch_of, codec, qos
from tests.support.waiting import PATIENCE

Row = dict[str, Any]

VEHICLES: list[Row] = [
    {"id": 7, "note": "seven", "speed": 0.5},
    {"id": -8, "note": "minus eight", "speed": 1.5},
    {"id": 9, "note": "nine", "speed": 2.5},
]
#: Their key is longer than a key hash: it is hashed.
PARTS: list[Row] = [
    {"plant": "a plant with a long name", "number": 1, "weight": 0.5},
    {"plant": "", "number": 2, "weight": 1.5},
    {"plant": "a plant with a long name", "number": 3, "weight": 2.5},
]
CASES = pytest.mark.parametrize(("kind", "rows"), [("Vehicle", VEHICLES), ("Part", PARTS)])
#: And one with a DHEADER before the key, which releases before 11 leave out (tests/types/test_undelimited_keys.py).
ALL_CASES = pytest.mark.parametrize(
    ("kind", "rows"), [("Vehicle", VEHICLES), ("Part", PARTS), ("PartA", PARTS)]
)
HASH = pytest.mark.parametrize("with_hash", [True, False], ids=["key_hash", "no_key_hash"])


def key_of(kind: str, row: Row) -> Row:
    """A row as a key-only sample shows it."""
    keys = {member.name for member in codec(kind).struct.members if member.key}
    return {name: value if name in keys else None for name, value in row.items()}


@ALL_CASES
def test_from_cyclone(
    kind: str, rows: list[Row], cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    peer = cyclone()
    peer.writer("t", getattr(cyclone_types, kind))
    receiver = subscribe("t", kind)
    peer.wait_for_match("t")
    peer.write("t", rows)
    peer.write("t", rows[:1], "dispose")
    peer.write("t", rows[1:2], "unregister_instance")
    peer.write("t", rows[2:], "write_dispose")
    peer.write("t", rows[:1])  # alive again
    received = receiver.wait_for(7)
    assert [(sample.flags & ~HAS_KEY_HASH, sample.row) for sample in received] == [
        *((0, row) for row in rows),
        (KEY_ONLY | DISPOSED, key_of(kind, rows[0])),
        (KEY_ONLY | UNREGISTERED, key_of(kind, rows[1])),
        (DISPOSED, rows[2]),
        (0, rows[0]),
    ]
    assert [sample.sn for sample in received] == list(range(1, 8))


def write(writer: BlockingWriter, kind: str, rows: list[Row], flags: int = 0, *, with_hash: bool) -> None:
    c = codec(kind)
    batch: pa.RecordBatch = batch_of(c, rows)
    samples = c.encode_keys(batch) if flags & KEY_ONLY else c.encode_batch(batch)
    if with_hash:
        writer.write_samples(samples, flags=flags, key_hashes=c.key_hashes(batch))
        return
    # The blocking surface refuses this; what goes on the wire is legal all the same.
    with writer.node.lock:
        now = time.monotonic_ns()
        assert (
            writer.writer.write_samples(samples, timestamp=time.time_ns(), now=now, flags=flags)
            == samples.count
        )
        writer.node.flush()


@CASES
@HASH
def test_to_cyclone(
    with_hash: bool,
    kind: str,
    rows: list[Row],
    cyclone: Callable[..., CyclonePeer],
    participate: Callable[..., Node],
) -> None:
    peer = cyclone()
    peer.reader("t", getattr(cyclone_types, kind))
    writer = participate().create_writer(WriterSpec("t", f"interop::{kind}", qos(), keyed=True))
    assert writer.wait_for_readers(PATIENCE)

    def seen(count: int) -> list[Taken]:
        taken = peer.take("t", count)
        assert len(taken) == count
        return taken

    def key(row: Row) -> Row:
        return {name: value for name, value in row.items() if key_of(kind, row)[name] is not None}

    def key_seen(taken: Taken, row: Row) -> bool:
        return not taken.valid and {name: taken.row[name] for name in key(row)} == key(row)

    write(writer, kind, rows, with_hash=with_hash)
    by_value = sorted(seen(3), key=lambda taken: list(taken.row.values())[-1])  # it gives by instance
    assert by_value == [Taken(row, True, "ALIVE") for row in rows]

    write(writer, kind, rows[:1], DISPOSED | KEY_ONLY, with_hash=with_hash)
    (taken,) = seen(1)
    assert key_seen(taken, rows[0]) and taken.instance_state == "DISPOSED"

    write(writer, kind, rows[1:2], UNREGISTERED | KEY_ONLY, with_hash=with_hash)
    (taken,) = seen(1)
    assert key_seen(taken, rows[1]) and taken.instance_state == "NO_WRITERS"

    write(writer, kind, rows[2:], DISPOSED, with_hash=with_hash)
    assert seen(1) == [Taken(rows[2], True, "DISPOSED")]

    write(writer, kind, rows[:1], with_hash=with_hash)  # alive again
    assert seen(1) == [Taken(rows[0], True, "ALIVE")]

    write(writer, kind, rows[:1], DISPOSED | UNREGISTERED | KEY_ONLY, with_hash=with_hash)
    (taken,) = seen(1)
    assert key_seen(taken, rows[0]) and taken.instance_state == "DISPOSED"


def test_a_late_joiner_of_cyclone_receives_a_dispose(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    """A transient-local writer keeps the dispose as the instance's last sample."""
    peer = cyclone()
    peer.writer("t", cyclone_types.Vehicle, transient_local=True, keep=1)
    peer.write("t", VEHICLES)
    peer.write("t", VEHICLES[:1], "dispose")
    receiver = subscribe("t", "Vehicle", subscribe=qos(transient_local=True))
    received = receiver.wait_for(3)
    assert [(sample.sn, sample.flags, sample.row) for sample in received] == [
        (2, 0, VEHICLES[1]),
        (3, 0, VEHICLES[2]),
        (4, KEY_ONLY | DISPOSED, key_of("Vehicle", VEHICLES[0])),
    ]


def test_cyclone_as_late_joiner_receives_a_dispose(
    cyclone: Callable[..., CyclonePeer], participate: Callable[..., Node]
) -> None:
    writer = participate().create_writer(
        WriterSpec("t", "interop::Vehicle", qos(transient_local=True, keep=1), keyed=True)
    )
    write(writer, "Vehicle", VEHICLES, with_hash=True)
    write(writer, "Vehicle", VEHICLES[:1], DISPOSED | KEY_ONLY, with_hash=True)
    peer = cyclone()
    peer.reader("t", cyclone_types.Vehicle, transient_local=True)
    assert writer.wait_for_readers(PATIENCE)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    taken = peer.take("t", 2)
    assert sorted(t.row["speed"] for t in taken if t.valid) == [1.5, 2.5]
    # Cyclone need not tell of the end of an instance that it never saw alive
    assert [t.instance_state for t in taken if not t.valid] in ([], ["DISPOSED"])
