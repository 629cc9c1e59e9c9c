"""Receivers that are killed, come back or leave while a Cyclone DDS writer goes on writing."""

from __future__ import annotations

from collections.abc import Callable

from spark_rtps.transport.structure import NANOSECONDS
from tests.interop.cyclone_peer import CyclonePeer, number_row
from tests.interop.cyclone_types import Number
from tests.interop.subscription import Subscription, qos
from tests.support.waiting import wait_until


def test_killed_and_restarted_on_its_log(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    """Within the lease it has the same GUID and goes on behind the last sample in the log."""
    peer = cyclone(high_watermark="8MB")
    peer.writer("t", Number)
    receiver = subscribe("t", "Number", lease_duration=60 * NANOSECONDS)
    peer.wait_for_match("t")
    (guid,) = peer.matched("t")
    peer.call("start_stream", "t", 0.001)
    for _ in range(2):
        receiver.wait_for(receiver.rows + 300)
        receiver.kill()
        written = peer.call("streamed")
        wait_until(lambda: peer.call("streamed") > written + 50, "writing while nobody listens")  # noqa: B023
        receiver.restart()
        assert peer.matched("t") == [guid]
    receiver.wait_for(receiver.rows + 300)
    count = peer.call("stop_stream")
    peer.wait_for_acks("t")
    received = receiver.wait_for(count)
    assert [sample.sn for sample in received] == list(range(1, count + 1))
    assert [sample.row for sample in received] == [number_row(n) for n in range(count)]
    assert peer.matched("t") == [guid]
    assert len({sample.writer for sample in received}) == 1
    assert receiver.process.counters()["reader.lost_samples"] == 0


def test_stopped_receiver_is_gone_at_once_and_goes_on_later(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    """An orderly end disposes the participant: Cyclone unmatches at once, not with the lease, which is an hour."""
    peer = cyclone()
    peer.writer("t", Number, transient_local=True)
    receiver = subscribe(
        "t", "Number", subscribe=qos(transient_local=True), lease_duration=3600 * NANOSECONDS
    )
    peer.wait_for_match("t")
    (guid,) = peer.matched("t")
    peer.call("write_numbers", "t", 0, 100)
    receiver.wait_for(100)
    receiver.process.stop()
    peer.wait_for_match("t", 0)

    # what it missed it still finds in the writer's history, and nothing twice
    peer.call("write_numbers", "t", 100, 100)
    receiver.restart()
    peer.wait_for_match("t")
    assert peer.matched("t") == [guid]
    assert [sample.row for sample in receiver.wait_for(200)] == [number_row(n) for n in range(200)]


def test_a_writer_that_comes_back_is_a_new_writer(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    receiver = subscribe("t", "Number")
    for _ in range(2):
        with cyclone() as peer:
            peer.writer("t", Number)
            peer.wait_for_match("t")
            peer.call("write_numbers", "t", 0, 50)
            peer.wait_for_acks("t")
    received = receiver.wait_for(100)
    assert [sample.row for sample in received] == [number_row(n) for n in range(50)] * 2
    assert len({sample.writer for sample in received}) == 2
