"""What a receiver lost is in its loss report, and what it warned of in its error log."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from spark_rtps.transport.log.error_log import ERROR_LOG, read_error_log
from spark_rtps.transport.log.loss_report import LOSS_REPORT, read_loss_report
from spark_rtps.transport.net.node import Node
from spark_rtps.transport.net.node_config import NodeConfig
from spark_rtps.transport.protocol.participant.endpoint_specs import WriterSpec
from spark_rtps.transport.protocol.policies import LossCause
from spark_rtps.transport.qos import Qos, ReliabilityKind
from spark_rtps.transport.receiver.config import ReceiverConfig
from spark_rtps.transport.receiver.process import ReceiverProcess
from spark_rtps.transport.wire.samples import Samples
from tests.support import domains
from tests.support.waiting import PATIENCE, wait_until

DOMAIN = domains.RECEIVER_OBSERVED
BEST_EFFORT = Qos(reliability=ReliabilityKind.BEST_EFFORT)
SAMPLE = 64


def test_observed_samples_of_a_best_effort_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node_config = NodeConfig(domain=DOMAIN, interface="lo")
    receiver = ReceiverProcess.start(
        ReceiverConfig(str(tmp_path / "log"), "t", "T", False, qos=BEST_EFFORT, node=node_config)
    )
    node = Node.open(node_config).start()
    try:
        writer = node.create_writer(WriterSpec("t", "T", BEST_EFFORT))
        assert writer.wait_for_readers(PATIENCE)
        samples = Samples.uniform(np.zeros(10 * SAMPLE, np.uint8), 10, SAMPLE)
        wait_until(lambda: receiver.counters().get("reader.matched_writers") == 1, "the reader's match")
        writer.write_samples(samples)
        wait_until(lambda: receiver.counters()["log.rows"] == 10, "the first samples")
        before = time.time_ns()
        with monkeypatch.context() as patch, node.lock:
            patch.setattr(node.sockets, "send", lambda datagrams: sum(1 for _ in datagrams))
            writer.write_samples(samples)
        writer.write_samples(samples)
        reports = [tmp_path / "log" / name for name in (LOSS_REPORT, ERROR_LOG)]
        wait_until(lambda: all(each.exists() for each in reports), "the reports")
    finally:
        node.close()
        receiver.stop()
    (loss,), _ = read_loss_report(tmp_path / "log" / LOSS_REPORT)
    assert (loss.writer, loss.topic, loss.samples, loss.observations) == (writer.guid, "t", 10, 1)
    assert 10 * SAMPLE <= loss.nbytes <= 10 * SAMPLE * 2
    assert before <= loss.first_ns == loss.last_ns <= time.time_ns()
    errors, _ = read_error_log(tmp_path / "log" / ERROR_LOG)
    assert loss.cause == LossCause.NOT_RECEIVED, "no receive buffer was full"
    assert ["10 samples were not received" in error.text for error in errors] == [True]
