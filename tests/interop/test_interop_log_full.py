"""A Cyclone DDS writer and a log without room: the writer waits, or its samples are dropped, or the receiver goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_rtps.monitoring.stream_counters import lost
from spark_rtps.options.explanations import RECEIVER_HINTS
from spark_rtps.transport.errors import LogFullError
from spark_rtps.transport.log.error_log import ERROR_LOG, read_error_log
from spark_rtps.transport.log.loss_report import LOSS_REPORT, read_loss_report
from spark_rtps.transport.protocol.policies import LossCause
from tests.interop.cyclone_peer import CyclonePeer
from tests.interop.cyclone_types import Blob
from tests.interop.subscription import Subscription
from tests.support.waiting import wait_until

#: So that some 160 of the peer's samples fit.
MAX_BYTES = 16 << 20


def streaming(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription], on_log_full: str
) -> tuple[CyclonePeer, Subscription]:
    peer = cyclone()
    peer.writer("t", Blob)
    limits = {"log_max_bytes": MAX_BYTES, "log_segment_bytes": 64 << 20, "on_log_full": on_log_full}
    receiver = subscribe("t", "Blob", receiver={**limits, "hints": RECEIVER_HINTS})
    peer.wait_for_match("t")
    peer.call("start_stream", "t", 0.001)
    return peer, receiver


def warnings(receiver: Subscription) -> list[str]:
    path = Path(receiver.config.log_directory) / ERROR_LOG
    return [error.text for error in read_error_log(path)[0]] if path.exists() else []


def warning(receiver: Subscription, words: str) -> str:
    def found() -> list[str]:
        return [text for text in warnings(receiver) if words in text]

    wait_until(lambda: bool(found()), lambda: f"a warning of {words!r} in {warnings(receiver)}")
    return found()[0]


def commit(receiver: Subscription) -> None:
    receiver.process.commit_position(receiver.process.cursor().position)


def test_hold_names_the_writer_that_waits_and_loses_nothing(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    peer, receiver = streaming(cyclone, subscribe, "hold")
    receiver.wait_for_counter("reader.window_closed", 1)
    held = receiver.rows
    first = receiver.received()
    (writer,) = {sample.writer for sample in first}
    assert held * 100_000 < MAX_BYTES
    output = warning(receiver, "is full")
    assert writer in output and "these reliable writers are held back" in output and "on_log_full" in output

    def goes_on(rows: int) -> bool:
        commit(receiver)
        return receiver.rows >= rows

    wait_until(lambda: goes_on(held + 200), "the writer to go on")
    count = peer.call("stop_stream")
    wait_until(lambda: goes_on(count), lambda: f"{count} samples; there are {receiver.rows}")
    assert receiver.rows == count
    assert lost(receiver.process.counters()) == 0


def test_drop_lets_the_writer_go_on_and_counts_each_lost_sample_once(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    peer, receiver = streaming(cyclone, subscribe, "drop")
    wait_until(lambda: peer.call("streamed") > 500, "the writer to go on")
    kept = receiver.rows
    assert kept * 100_000 < MAX_BYTES
    commit(receiver)
    wait_until(lambda: receiver.rows > kept, "new samples in the log")
    count = peer.call("stop_stream")
    peer.wait_for_acks("t")
    wait_until(
        lambda: receiver.rows + receiver.process.counters()["log.dropped_samples"] == count,
        lambda: f"{count} samples in {receiver.process.counters()}",
    )
    counters = receiver.process.counters()
    assert lost(counters) == counters["log.dropped_samples"] > 300
    assert counters["reader.lost_samples"] == 0
    (loss,) = read_loss_report(Path(receiver.config.log_directory) / LOSS_REPORT)[0]
    assert (loss.cause, loss.samples) == (LossCause.LOG_FULL, lost(counters))
    output = warning(receiver, "nearly full") + warning(
        receiver, "samples dropped so far because the log is full"
    )
    assert str(loss.writer) in output and "samples of all writers are dropped" in output


def test_fail_ends_the_receiver_and_frees_the_writer(
    cyclone: Callable[..., CyclonePeer], subscribe: Callable[..., Subscription]
) -> None:
    peer, receiver = streaming(cyclone, subscribe, "fail")

    def has_failed() -> bool:
        try:
            receiver.process.check()
        except LogFullError:
            return True
        return False

    wait_until(has_failed, "the receiver to end")
    with pytest.raises(LogFullError, match=r"the log in .* is full: its limit is 16777216 bytes"):
        receiver.process.check()
    peer.wait_for_match("t", 0)
    written = peer.call("streamed")
    wait_until(lambda: peer.call("streamed") > written + 50, "the writer to go on")
    peer.call("stop_stream")
