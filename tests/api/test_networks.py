"""`peers.allow` and `readers.allow` between participants of the Python API."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import spark_rtps as rtps
from spark_rtps.transport.errors import DropReason
from tests.support.waiting import PATIENCE, wait_until

Participate = Callable[..., rtps.Participant]
NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False)])


def test_a_participant_from_another_network_is_not_discovered(participate: Participate) -> None:
    closed, open_ = participate(options={"peers.allow": ["10.1.0.0/16"]}), participate()
    publication = open_.publish("t", schema=NUMBERS, options={"on_no_reader": "drop"})
    publication.write([{"n": 1}])
    assert closed.participants() == []
    wait_until(
        lambda: closed.node.participant.drops[DropReason.PEER_NOT_ADMITTED] > 0, "something to be refused"
    )
    assert closed.participants() == [] and closed.endpoints() == []


def test_the_readers_of_allowed_networks_match(participate: Participate) -> None:
    here, there = participate(options={"peers.allow": "127.0.0.0/8"}), participate()
    publication = here.publish("t", schema=NUMBERS, options={"readers.allow": "127.0.0.1"})
    subscription = there.subscribe("t")
    assert subscription.wait_for_writers(PATIENCE)
    publication.write([{"n": 1}])
    assert subscription.read(max_rows=1, timeout=PATIENCE).to_pylist() == [{"n": 1}]


def test_a_refused_reader_is_logged_with_a_hint(participate: Participate) -> None:
    here, there = participate(), participate()
    subscription = there.subscribe("t", schema=NUMBERS)
    publication = here.publish(
        "t", schema=NUMBERS, options={"readers.allow": "10.1.0.0/16", "connect_timeout": 2}
    )
    assert subscription.wait_for_writers(PATIENCE)  # it does not know
    with pytest.raises(rtps.NoReaderError) as caught:
        publication.write([{"n": 1}])
    for part in (
        "the writer serves 10.1.0.0/16",
        "is at 127.0.0.1",
        "add the reader's network to readers.allow",
    ):
        assert part in str(caught.value)
