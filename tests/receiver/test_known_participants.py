"""What a receiver writes down of the participants it knows, and what it makes of a file that is not whole."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from spark_rtps.transport.protocol.discovery.remote_participant import Announcement
from spark_rtps.transport.receiver.known_participants import (
    read_known_participants,
    write_known_participants,
)

FOUND = [
    Announcement(bytes(range(12)), 7, b"\x00\x03\x00\x00payload", "127.0.0.1"),
    Announcement(bytes(12), 1 << 40, b"\x01", "10.1.2.3", ("10.1.2.3", "10.1.2.4")),
]


def test_written_participants_are_read(tmp_path: Path) -> None:
    assert read_known_participants(tmp_path) == []
    write_known_participants(tmp_path, FOUND)
    assert read_known_participants(tmp_path) == FOUND
    write_known_participants(tmp_path, FOUND[:1])
    assert read_known_participants(tmp_path) == FOUND[:1]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[", "{}x", "[1]", "[" * 100_000, "\udcff", '[["00", 1, "00"]]', '[["xx", 1, "00", "a"]]'),
        *('[["00", 1, "00", "a"]]', f'[["{"00" * 12}", 1, "", "a"]]', f'[["{"00" * 12}", 1e400, "00", "a"]]'),
        *(f'[["{"00" * 12}", {sn}, "00", "a"]]' for sn in (-1, 0, 1 << 63, 1.5, '"1"')),
    ],
)
def test_an_unreadable_file_is_logged_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    write_known_participants(tmp_path, FOUND)
    (file,) = tmp_path.iterdir()
    file.write_bytes(text.encode(errors="surrogateescape"))
    assert read_known_participants(tmp_path) == []
    assert str(file) in caplog.text


def test_a_full_disk_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        write_known_participants(tmp_path / "gone", FOUND)
    assert "writing the known participants" in caplog.text
