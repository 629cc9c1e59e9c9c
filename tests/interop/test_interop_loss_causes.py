"""What is lost of a Cyclone DDS writer's samples is told by cause: each sample arrives, or counts once as lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_rtps.cli import app
from spark_rtps.options.explanations import RECEIVER_HINTS
from spark_rtps.transport.log.error_log import ERROR_LOG, read_error_log
from spark_rtps.transport.log.loss_report import LOSS_REPORT, read_loss_report
from spark_rtps.transport.protocol.policies import LossCause
from tests.interop.cyclone_peer import CyclonePeer, blob_row
from tests.interop.cyclone_types import Blob
from tests.interop.subscription import Subscription, qos
from tests.support.stopped import stopped
from tests.support.waiting import wait_until

IMAGE = 1920 * 1080 * 3


def losses(receiver: Subscription) -> dict[str, int]:
    path = Path(receiver.config.log_directory) / LOSS_REPORT
    return {loss.cause: loss.samples for loss in read_loss_report(path)[0]} if path.exists() else {}


def warnings(receiver: Subscription) -> list[str]:
    path = Path(receiver.config.log_directory) / ERROR_LOG
    return [error.text for error in read_error_log(path)[0]] if path.exists() else []


def write_until_all_is_reported(peer: CyclonePeer, receiver: Subscription, sent: int) -> None:
    """A best-effort loss shows only by what comes behind it."""

    seen = -1

    def is_reported() -> bool:
        nonlocal sent, seen
        before, seen = seen, receiver.rows + sum(losses(receiver).values())
        if seen == before != sent:
            peer.write("t", [blob_row(sent, 10)])
            sent += 1
        return seen == sent

    wait_until(is_reported, lambda: f"{sent} samples: {receiver.rows} came, {losses(receiver)} are lost")


def test_a_receive_buffer_that_is_full(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    peer = cyclone()
    peer.writer("t", Blob, reliable=False)
    receiver = subscribe(
        "t",
        "Blob",
        subscribe=qos(reliable=False),
        receive_buffer=1 << 16,
        receiver={"hints": RECEIVER_HINTS},
    )
    peer.wait_for_match("t")
    receiver.wait_for_match()
    peer.write("t", [blob_row(0, 10)])
    receiver.wait_for(1)
    with stopped(receiver.process.pid):
        peer.write("t", [blob_row(number) for number in range(1, 51)])
    write_until_all_is_reported(peer, receiver, 51)
    assert set(losses(receiver)) == {LossCause.RECEIVE_BUFFER}
    assert losses(receiver)[LossCause.RECEIVE_BUFFER] >= 49, "one of 100,000 bytes does not fit"
    wait_until(lambda: bool(warnings(receiver)), "a warning")
    assert all(
        "a receive buffer was full" in each and "net.core.rmem_max" in each for each in warnings(receiver)
    )


def test_a_reliable_writer_that_no_longer_has_what_did_not_arrive(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    """A history of two: what overran the receive buffer meanwhile is replaced before it can be sent again."""
    peer = cyclone()
    peer.writer("t", Blob, keep=2)
    receiver = subscribe("t", "Blob", receive_buffer=1 << 16, receiver={"hints": RECEIVER_HINTS})
    peer.wait_for_match("t")
    receiver.wait_for_match()
    peer.write("t", [blob_row(0, 10)])
    receiver.wait_for(1)
    with stopped(receiver.process.pid):
        peer.write("t", [blob_row(number) for number in range(1, 51)])
    peer.wait_for_acks("t")
    wait_until(
        lambda: receiver.rows + sum(losses(receiver).values()) == 51,
        lambda: f"51 samples: {receiver.rows} came, {losses(receiver)} are lost",
    )
    count = 51 - receiver.rows
    assert count >= 45, "few of 100,000 bytes each fit into the buffer, and two could be sent again"
    assert losses(receiver) == {LossCause.HISTORY: count}
    wait_until(lambda: receiver.process.counters()["reader.lost_samples"] == count, "the count")
    wait_until(lambda: bool(warnings(receiver)), "a warning")
    assert all("their writers no longer had" in each for each in warnings(receiver))
    folder = str(Path(receiver.config.log_directory).parent)
    wide = CliRunner(env={"COLUMNS": "300"})
    shown = {name: wide.invoke(app, [name, "-l", folder]).output for name in ("loss", "errors")}
    assert LossCause.HISTORY in shown["loss"] and "longer HISTORY, or KEEP_ALL" in shown["errors"]


@pytest.mark.parametrize("reliable", [False, True])
def test_a_receiver_that_was_stopped(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription], *, reliable: bool
) -> None:
    peer = cyclone()
    peer.writer("t", Blob, reliable=reliable)
    receiver = subscribe("t", "Blob", subscribe=qos(reliable=reliable), receiver={"hints": RECEIVER_HINTS})
    peer.wait_for_match("t")
    receiver.wait_for_match()
    peer.write("t", [blob_row(number, 10) for number in range(3)])
    receiver.wait_for(3)
    receiver.process.stop()
    peer.wait_for_match("t", 0)
    peer.write("t", [blob_row(number, 10) for number in range(3, 7)])
    receiver.restart()
    peer.wait_for_match("t")
    receiver.wait_for_match()
    write_until_all_is_reported(peer, receiver, 7)
    assert losses(receiver) == {LossCause.STOPPED: 4}
    wait_until(lambda: bool(warnings(receiver)), "a warning")
    assert all("leave_on_stop=false" in each for each in warnings(receiver))


@pytest.mark.parametrize("reliable", [True, False])
def test_images_of_a_camera(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription], *, reliable: bool
) -> None:
    """6 MB each, as fast as they come, and the default receive buffer: each arrives, or is told to be lost."""
    peer = cyclone()
    peer.writer("t", Blob, reliable=reliable)
    receiver = subscribe("t", "Blob", subscribe=qos(reliable=reliable), receiver={"log_max_bytes": 1 << 30})
    peer.wait_for_match("t")
    receiver.wait_for_match()
    for number in range(20):
        peer.write("t", [blob_row(number, IMAGE)])
    if reliable:
        receiver.wait_for(20)
        assert losses(receiver) == {}
    write_until_all_is_reported(peer, receiver, 20)
    assert set(losses(receiver)) <= {LossCause.RECEIVE_BUFFER}
    for sample in receiver.received():
        number = sample.sn - 1
        assert sample.row == blob_row(number, IMAGE if number < 20 else 10)
