"""Receivers that come back at another address while a Cyclone DDS writer goes on: what they miss is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark_rtps.transport.log.loss_report import LOSS_REPORT, read_loss_report
from spark_rtps.transport.protocol.policies import LossCause
from spark_rtps.transport.structure import NANOSECONDS
from tests.interop.cyclone_peer import CyclonePeer, number_row
from tests.interop.cyclone_types import Number
from tests.interop.subscription import Received, Subscription, qos
from tests.support.waiting import wait_until

#: All of 127/8 is on the loopback interface.
HERE, THERE = "127.0.0.2", "127.0.0.3"
#: Until a receiver that has moved is matched again, its start included.
MATCHED_SECONDS = 10.0


def restart_at(receiver: Subscription, to: str) -> float:
    """Start a receiver that was killed elsewhere; returns when."""
    node = replace(receiver.config.node, interface=to)
    receiver.config = replace(receiver.config, node=node)
    started = time.monotonic()
    receiver.restart()
    return started


def missed_in_report(receiver: Subscription) -> int:
    losses, _ = read_loss_report(Path(receiver.config.log_directory) / LOSS_REPORT)
    assert {loss.cause for loss in losses} == {LossCause.MOVED}
    return sum(loss.samples for loss in losses)


def numbers(received: list[Received]) -> list[int]:
    """The sequence numbers, each with its own content."""
    for sample in received:
        assert sample.row == number_row(sample.sn - 1)
    return [sample.sn for sample in received]


class Moves:
    """A Cyclone writer that goes on, and a receiver which is killed and comes back elsewhere."""

    def __init__(self, peer: CyclonePeer, receiver: Subscription) -> None:
        self.peer = peer
        self.receiver = receiver
        peer.wait_for_match("t")
        self._old = set(peer.matched("t"))

    def kill(self, *, write: int) -> None:
        """Kill the receiver, while the writer goes on for so many samples at least."""
        self.receiver.kill()
        self.go_on(write)

    def go_on(self, write: int) -> None:
        written = self.peer.call("streamed")
        wait_until(lambda: self.peer.call("streamed") > written + write, "writing while nobody listens")

    def restart(self, to: str) -> None:
        """It is matched again, and samples come, in time."""
        started, rows = restart_at(self.receiver, to), self.receiver.rows
        wait_until(lambda: set(self.peer.matched("t")) - self._old, "a match", MATCHED_SECONDS)
        self._old = set(self.peer.matched("t"))
        self.receiver.wait_for(rows + 300, MATCHED_SECONDS)
        assert time.monotonic() - started < MATCHED_SECONDS

    def missed(self) -> int:
        """End the stream: everything came once, or is counted as missed."""
        count = self.peer.call("stop_stream")
        wait_until(lambda: self.receiver.received()[-1].sn == count, f"number {count}")
        found = numbers(self.receiver.received())
        self.receiver.process.stop()
        assert found == sorted(set(found)), "doubled, or out of order"
        missed = missed_in_report(self.receiver) if len(found) < count else 0
        assert len(found) + missed == count + 1 - found[0]  # best effort, it begins where it matched
        return missed


@pytest.mark.parametrize("keep", [0, 50])
@pytest.mark.parametrize("transient_local", [False, True])
def test_moved_while_the_writer_writes(
    cyclone: Callable[..., CyclonePeer],
    subscribe: Callable[..., Subscription],
    keep: int,
    transient_local: bool,
) -> None:
    peer = cyclone(high_watermark="8MB")
    quality = qos(transient_local=transient_local, keep=keep)
    peer.writer("t", Number, transient_local=transient_local, keep=keep)
    receiver = subscribe("t", "Number", subscribe=quality, interface=HERE, lease_duration=60 * NANOSECONDS)
    moves = Moves(peer, receiver)
    peer.call("start_stream", "t", 0.001)
    for address in (THERE, HERE):
        receiver.wait_for(receiver.rows + 300)
        moves.kill(write=500)
        moves.restart(address)
    missed = moves.missed()
    # what a KEEP_ALL writer still holds for the receiver's old GUID, the new one gets too
    assert missed > 500 if keep else missed == 0


@pytest.mark.parametrize("reliable", [True, False])
def test_moved_when_nobody_waited_any_more(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription], reliable: bool
) -> None:
    """The lease was over, and a volatile writer keeps nothing: where it begins, the reader hears of it."""
    peer = cyclone()
    peer.writer("t", Number, reliable=reliable)
    receiver = subscribe(
        "t", "Number", subscribe=qos(reliable=reliable), interface=HERE, lease_duration=NANOSECONDS
    )
    moves = Moves(peer, receiver)
    peer.call("start_stream", "t", 0.001)
    receiver.wait_for(300)
    moves.kill(write=100)
    peer.wait_for_match("t", 0)
    moves.go_on(write=100)
    moves.restart(THERE)
    assert moves.missed() >= 200
