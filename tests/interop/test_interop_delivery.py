"""Reliability, durability and history against Cyclone DDS, both ways, with late joiners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spark_rtps.transport.net.blocking_writer import BlockingWriter
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.qos import Qos
from tests.interop.cyclone_peer import CyclonePeer, number_row
from tests.interop.cyclone_types import Number, Vehicle
from tests.interop.subscription import Subscription, batch_of, codec, qos
from tests.support.waiting import PATIENCE

StartPeer = Callable[..., CyclonePeer]
StartNode = Callable[..., Node]
StartReceiver = Callable[..., Subscription]

COUNT = 500
#: Each a datagram, and all at once: any socket's buffer holds them.
FEW = 100
HISTORY = 5_000
RELIABLE = pytest.mark.parametrize("reliable", [True, False], ids=["reliable", "best_effort"])
DURABLE = pytest.mark.parametrize("transient_local", [False, True], ids=["volatile", "transient_local"])


def create_writer(node: Node, topic: str, kind: str, offered: Qos) -> BlockingWriter:
    return node.create_writer(
        WriterSpec(topic, f"interop::{kind}", offered, keyed=codec(kind).struct.is_keyed)
    )


def write(writer: BlockingWriter, kind: str, rows: list[dict[str, Any]]) -> None:
    c = codec(kind)
    batch = batch_of(c, rows)
    writer.write_samples(c.encode_batch(batch), key_hashes=c.key_hashes(batch) if c.struct.is_keyed else None)


def numbers(first: int, count: int) -> list[dict[str, Any]]:
    return [number_row(n) for n in range(first, first + count)]


@RELIABLE
@DURABLE
def test_from_cyclone(
    reliable: bool, transient_local: bool, cyclone: StartPeer, subscribe: StartReceiver
) -> None:
    level = {"reliable": reliable, "transient_local": transient_local}
    peer = cyclone()
    peer.writer("t", Number, **level)
    receiver = subscribe("t", "Number", subscribe=qos(**level))
    receiver.wait_for_match()
    peer.wait_for_match("t")
    count = COUNT if reliable else FEW
    peer.call("write_numbers", "t", 0, count)
    assert [sample.row for sample in receiver.wait_for(count)] == numbers(0, count)


@RELIABLE
@DURABLE
def test_to_cyclone(
    reliable: bool, transient_local: bool, cyclone: StartPeer, participate: StartNode
) -> None:
    level = {"reliable": reliable, "transient_local": transient_local}
    peer = cyclone()
    peer.reader("t", Number, **level)
    writer = create_writer(participate(), "t", "Number", qos(**level))
    peer.wait_for_match("t")
    assert writer.wait_for_readers(PATIENCE)
    write(writer, "Number", numbers(0, COUNT))
    assert [sample.row for sample in peer.take("t", COUNT)] == numbers(0, COUNT)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


@DURABLE
def test_late_joiner_of_cyclone(transient_local: bool, cyclone: StartPeer, subscribe: StartReceiver) -> None:
    peer = cyclone()
    peer.writer("t", Number, transient_local=True)
    peer.call("write_numbers", "t", 0, HISTORY)
    receiver = subscribe("t", "Number", subscribe=qos(transient_local=transient_local))
    history = HISTORY if transient_local else 0
    receiver.wait_for(history)
    receiver.wait_for_match()
    peer.wait_for_match("t")
    peer.wait_for_acks("t")
    peer.call("write_numbers", "t", HISTORY, 20)
    peer.wait_for_acks("t")
    assert [sample.row for sample in receiver.wait_for(history + 20)] == numbers(
        HISTORY - history, history + 20
    )


@DURABLE
def test_cyclone_as_late_joiner(transient_local: bool, cyclone: StartPeer, participate: StartNode) -> None:
    writer = create_writer(participate(), "t", "Number", qos(transient_local=True))
    write(writer, "Number", numbers(0, HISTORY))
    peer = cyclone()
    peer.reader("t", Number, transient_local=transient_local)
    history = numbers(0, HISTORY) if transient_local else []
    assert [sample.row for sample in peer.take("t", len(history))] == history
    peer.wait_for_match("t")
    assert writer.wait_for_readers(PATIENCE)
    write(writer, "Number", numbers(HISTORY, 20))
    assert [sample.row for sample in peer.take("t", 20)] == numbers(HISTORY, 20)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


def vehicles() -> list[dict[str, Any]]:
    """Five rounds of three instances."""
    return [{"id": n % 3, "note": f"n{n}", "speed": n / 4} for n in range(15)]


LAST_TWO = vehicles()[-6:]  # of each instance


def test_late_joiner_of_cyclone_finds_the_last_of_each_instance(
    cyclone: StartPeer, subscribe: StartReceiver
) -> None:
    peer = cyclone()
    peer.writer("t", Vehicle, transient_local=True, keep=2)
    peer.write("t", vehicles())
    receiver = subscribe("t", "Vehicle", subscribe=qos(transient_local=True))
    peer.wait_for_match("t")
    peer.wait_for_acks("t")
    received = receiver.wait_for(len(LAST_TWO))
    assert [sample.row for sample in received] == LAST_TWO
    assert [sample.sn for sample in received] == [10, 11, 12, 13, 14, 15]
    assert receiver.counters(len(received))["reader.lost_samples"] == 0


def test_cyclone_as_late_joiner_finds_the_last_of_each_instance(
    cyclone: StartPeer, participate: StartNode
) -> None:
    writer = create_writer(participate(), "t", "Vehicle", qos(transient_local=True, keep=2))
    for first in range(0, 15, 4):  # in batches and across them
        write(writer, "Vehicle", vehicles()[first : first + 4])
    peer = cyclone()
    peer.reader("t", Vehicle, transient_local=True)
    # Cyclone hands out instance by instance
    taken = sorted((sample.row for sample in peer.take("t", len(LAST_TWO))), key=lambda row: row["speed"])
    assert taken == LAST_TWO
    assert writer.wait_for_readers(PATIENCE)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    assert peer.call("take", "t") == []


def test_late_joiners_of_a_keyless_topic_find_the_last(
    cyclone: StartPeer, subscribe: StartReceiver, participate: StartNode
) -> None:
    peer = cyclone()
    peer.writer("from", Number, transient_local=True, keep=3)
    peer.call("write_numbers", "from", 0, 50)
    receiver = subscribe("from", "Number", subscribe=qos(transient_local=True))
    assert [sample.row for sample in receiver.wait_for(3)] == numbers(47, 3)

    writer = create_writer(participate(), "to", "Number", qos(transient_local=True, keep=3))
    write(writer, "Number", numbers(0, 50))
    peer.reader("to", Number, transient_local=True)
    assert [sample.row for sample in peer.take("to", 3)] == numbers(47, 3)
    assert writer.wait_for_readers(PATIENCE)
    assert writer.wait_for_acknowledgments(PATIENCE) == {}


def test_order_of_source_timestamps(cyclone: StartPeer, subscribe: StartReceiver) -> None:
    """Cyclone stamps each sample; the log keeps the stamps."""
    peer = cyclone()
    peer.writer("t", Number)
    receiver = subscribe("t", "Number")
    peer.wait_for_match("t")
    peer.call("write_numbers", "t", 0, 50)
    receiver.wait_for(50)
    stamps = np.concatenate([run.timestamps() for run in receiver.runs()])
    assert (np.diff(stamps) > 0).all()
