"""The loss report: what was lost of which writer, how often and when."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from spark_rtps.transport.errors import LogError
from spark_rtps.transport.log.loss_report import Loss, LossReport, read_loss_report
from spark_rtps.transport.protocol.policies import LossCause
from spark_rtps.transport.structure import INFINITE, Guid

NOW = 1_700_000_000_000_000_000
ONE = Guid(bytes(range(12)), b"\0\0\1\2")
TWO = Guid(bytes(range(12)), b"\0\0\2\2")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "loss_report"


def losses(path: Path) -> list[Loss]:
    return read_loss_report(path)[0]


def test_one_entry_a_writer_and_topic(path: Path) -> None:
    report = LossReport(path)
    report.observe(ONE, "A", 5, now=NOW, sample_bytes=100)
    report.observe(TWO, "A", 1, now=NOW + 1)
    report.observe(ONE, "A", 7, now=NOW + 2, sample_bytes=10)
    report.observe(ONE, "B", 2, now=NOW + 3)
    assert losses(path) == [
        Loss(ONE, "A", 2, 12, 570, NOW, NOW + 2),
        Loss(TWO, "A", 1, 1, 0, NOW + 1, NOW + 1),
        Loss(ONE, "B", 1, 2, 0, NOW + 3, NOW + 3),
    ]


def test_missed_samples_have_their_own_cause(path: Path) -> None:
    report = LossReport(path)
    report.observe(ONE, "A", 5, now=NOW)
    report.observe(ONE, "A", 7, now=NOW + 1, cause=LossCause.MOVED)
    again = LossReport(path)
    again.observe(ONE, "A", 1, now=NOW + 2, cause=LossCause.MOVED)
    assert losses(path) == [
        Loss(ONE, "A", 1, 5, 0, NOW, NOW),
        Loss(ONE, "A", 2, 8, 0, NOW + 1, NOW + 2, LossCause.MOVED),
    ]


def test_no_loss_no_file(path: Path) -> None:
    report = LossReport(path)
    report.observe(ONE, "A", 0, now=NOW)
    assert not path.exists()
    with pytest.raises(LogError):
        read_loss_report(path)


def test_a_restarted_receiver_goes_on(path: Path) -> None:
    LossReport(path).observe(ONE, "A", 5, now=NOW)
    again = LossReport(path)
    again.observe(TWO, "A", 1, now=NOW + 1)
    again.observe(ONE, "A", 5, now=NOW + 2)
    assert [(loss.writer, loss.samples, loss.last_ns) for loss in losses(path)] == [
        (ONE, 10, NOW + 2),
        (TWO, 1, NOW + 1),
    ]


def test_writers_are_bounded(path: Path) -> None:
    report = LossReport(path, size=8192)
    guids = [Guid(number.to_bytes(12, "big"), b"\0\0\1\2") for number in range(300)]
    for guid in guids:
        report.observe(guid, "A", 1, now=NOW)
    found, overflow = read_loss_report(path)
    assert 50 < len(found) < 200
    assert len(found) + overflow == len(guids)
    assert path.stat().st_size == 8192
    report.observe(guids[0], "A", 1, now=NOW)
    assert losses(path)[0].samples == 2


def test_a_forged_loss(path: Path) -> None:
    """A HEARTBEAT can announce and lose 2 ** 63 samples."""
    report = LossReport(path)
    for _ in range(3):
        report.observe(ONE, "A", INFINITE, now=NOW, sample_bytes=1 << 20)
    (loss,) = losses(path)
    assert (loss.samples, loss.nbytes, loss.observations) == (INFINITE, INFINITE, 3)


def test_long_topics_are_cut(path: Path) -> None:
    LossReport(path).observe(ONE, "\N{GREEK SMALL LETTER OMEGA}" * 4000, 1, now=NOW)
    (loss,) = losses(path)
    assert loss.topic == "\N{GREEK SMALL LETTER OMEGA}" * 128


def test_an_unwritable_report_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    report = LossReport(tmp_path / "none" / "loss_report")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            report.observe(ONE, "A", 1, now=NOW)
    (record,) = caplog.records
    assert "losses of topic 'A' are not reported" in record.message


def test_an_error_log_is_none(path: Path) -> None:
    from spark_rtps.transport.log.error_log import ErrorLog

    ErrorLog(path).record("ERROR", "x", "a", now=NOW)
    with pytest.raises(LogError, match="damaged, or something else"):
        read_loss_report(path)
