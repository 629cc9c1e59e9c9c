"""Content filters: ours, which Fast DDS writers evaluate and so send less; theirs, which their readers evaluate."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_rtps.transport.net.node import Node
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from tests.fastdds.fast_peer import FastPeer
from tests.fastdds.our_reader import OurReader, Row, write
from tests.fastdds.shapes import struct
from tests.interop.subscription import qos
from tests.support.waiting import PATIENCE

NUMBER = struct("Number")


def numbers(first: int, last: int) -> list[Row]:
    return [{"id": i % 3, "seq": i, "name": f"number {i % 10}"} for i in range(first, last + 1)]


FILTERS = pytest.mark.parametrize(
    ("expression", "parameters", "passes"),
    [
        pytest.param("seq > 30", (), lambda row: row["seq"] > 30, id="comparison"),
        pytest.param("name LIKE '%ber 7'", (), lambda row: row["name"] == "number 7", id="like"),
        pytest.param(
            "seq < 10 OR seq BETWEEN 50 AND 59", (), lambda r: r["seq"] < 10 or 50 <= r["seq"] < 60, id="or"
        ),
        pytest.param(
            "id = %0 AND name = %1", ("2", "'number 5'"), lambda r: r["seq"] % 30 == 5, id="parameters"
        ),
        pytest.param("seq > 1000", (), lambda row: False, id="nothing"),
    ],
)


@FILTERS
def test_our_filter_at_its_writer(
    expression: str,
    parameters: tuple[str, ...],
    passes: Callable[[int], bool],
    peer: FastPeer,
    node: Node,
    topic: str,
) -> None:
    """What does not pass is told to be irrelevant, but for the last, of which nothing is told: nothing is lost, and the
    order stays."""
    peer.writer(topic, NUMBER)
    reader = OurReader(node, topic, NUMBER, expression=expression, parameters=parameters)
    peer.wait_for_match(topic)
    reader.wait_for_match()
    for first in range(1, 301, 50):
        peer.write(topic, numbers(first, first + 49))
    peer.wait_for_acks(topic)
    expected = [row for row in numbers(1, 300) if passes(row)]
    received = reader.wait_for(len(expected))
    counters = reader.reader.counters
    assert [sample.row for sample in received] == expected
    assert [sample.sn for sample in received] == [row["seq"] for row in expected]
    assert (counters.received_samples, counters.lost_samples) == (len(expected), 0)


def test_our_filter_for_a_late_joiner(peer: FastPeer, node: Node, topic: str) -> None:
    """It evaluates a filter as it writes: what it wrote before it knew of the filter, it sends all the same."""
    peer.writer(topic, NUMBER, transient_local=True)
    peer.write(topic, numbers(1, 10))
    reader = OurReader(node, topic, NUMBER, qos(transient_local=True), expression="id = 1")
    peer.wait_for_match(topic)
    reader.wait_for_match()
    peer.write(topic, numbers(11, 40))
    expected = numbers(1, 10) + [row for row in numbers(11, 40) if row["id"] == 1]
    assert reader.rows(len(expected)) == expected
    assert reader.reader.counters.lost_samples == 0


def test_our_filter_of_a_best_effort_reader(peer: FastPeer, node: Node, topic: str) -> None:
    peer.writer(topic, NUMBER)
    reader = OurReader(node, topic, NUMBER, qos(reliable=False), expression="id = 1")
    peer.wait_for_match(topic)
    reader.wait_for_match()
    peer.write(topic, numbers(1, 30))
    assert reader.rows(10) == [row for row in numbers(1, 30) if row["id"] == 1]


def test_two_readers_of_one_writer(peer: FastPeer, node: Node, topic: str) -> None:
    """Each has what it asked for."""
    peer.writer(topic, NUMBER)
    few = OurReader(node, topic, NUMBER, expression="seq <= 5")
    every = OurReader(node, topic, NUMBER)
    peer.wait_for_match(topic, 2)
    few.wait_for_match()
    every.wait_for_match()
    peer.write(topic, numbers(1, 60))
    assert every.rows(60) == numbers(1, 60)
    assert few.rows(5) == numbers(1, 5)
    peer.wait_for_acks(topic)
    assert (few.reader.counters.received_samples, few.reader.counters.lost_samples) == (5, 0)


@FILTERS
def test_a_filter_of_fast_dds_is_applied_by_our_writer(
    expression: str,
    parameters: tuple[str, ...],
    passes: Callable[[int], bool],
    peer: FastPeer,
    node: Node,
    topic: str,
) -> None:
    """We send everything: it filters for itself."""
    peer.reader(topic, NUMBER, expression=expression, parameters=parameters)
    writer = node.create_writer(WriterSpec(topic, NUMBER.name, qos(), keyed=True))
    assert writer.wait_for_readers(PATIENCE)
    peer.wait_for_match(topic)
    write(writer, NUMBER, numbers(1, 300))
    assert writer.wait_for_acknowledgments(PATIENCE) == {}
    expected = [row for row in numbers(1, 300) if passes(row)]
    taken = peer.take(topic, len(expected))
    assert sorted(each.row["seq"] for each in taken if each.row) == [row["seq"] for row in expected]
