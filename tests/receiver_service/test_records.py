"""Which log belongs to which subscription, on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_rtps.receiver_service import records as records_module
from spark_rtps.receiver_service.records import FILE, LogRecord, read_records, write_records
from spark_rtps.transport.errors import LogError

LOG = "0b6e3a52-7c57-4d2c-9d0e-0e5f3c9e8a11"


def test_written_records_are_read(tmp_path: Path) -> None:
    assert read_records(tmp_path) == {}
    records = {
        "a": LogRecord(LOG, {"topic": "A"}),
        "b/c.d": LogRecord(LOG, {"topic": "é"}, dynamic=True),
        "p/x": LogRecord(LOG, {"topic": "x"}, pattern="p"),
    }
    write_records(tmp_path, records)
    assert read_records(tmp_path) == records
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"a": 1}',
        '{"../a": {"log": "LOG", "options": {}}}',
        '{"a": {"log": "../../etc", "options": {}}}',
        '{"a": {"log": "LOG", "options": {}}}'.replace("LOG", LOG.upper()),
        '{"a": {"log": "LOG", "options": {"topic": 1}}}',
        '{"a": {"log": "LOG"}}',
        '{"a": {"log": "LOG", "options": {}, "pattern": 1}}',
        '{"a": "\ud800"}',
    ],
)
def test_unreadable_records_are_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text.replace("LOG", LOG), errors="surrogatepass")
    with pytest.raises(LogError, match="maps subscriptions to their logs"):
        read_records(tmp_path)


def test_the_size_of_the_records_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_records(tmp_path, {"a": LogRecord(LOG, {"topic": "A" * 200})})
    monkeypatch.setattr(records_module, "_BYTES_MAX", 100)
    with pytest.raises(LogError, match="too large"):
        read_records(tmp_path)
    with pytest.raises(LogError, match="cannot be written"):
        write_records(tmp_path, {"a": LogRecord(LOG, {"topic": "A" * 200})})
    assert json.loads((tmp_path / FILE).read_text())


def test_a_disk_that_refuses(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot be written"):
        write_records(tmp_path / "none", {})
